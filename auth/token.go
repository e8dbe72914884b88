package auth

import (
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"millrace/historian/kv"
)

const (
	tokenStart     = "mr_"
	maxToken       = 8 << 10 // bytes looked at of any token; longer ones are refused unread
	maxTokens      = 10_000
	maxTokenName   = 128
	maxTokenTTL    = 100 * 366 * 24 * time.Hour
	tokenIDLetters = 12
)

// Token is a personal access token as shown. It never holds the token's text.
type Token struct {
	ID      string     `json:"id"`
	Name    string     `json:"name"`
	Owner   string     `json:"owner,omitempty"` // user it belongs to; "": made on the box
	Role    Role       `json:"role,omitempty"`  // what it may do at most; "": read /metrics only
	Metrics bool       `json:"metrics"`         // may read /metrics
	Created time.Time  `json:"created"`
	Expires *time.Time `json:"expires,omitempty"` // nil: no end
}

// NewToken asks for one. Owner, if any, is a user; the token is held to the owner's role as it is at each call, and ends with
// the owner. Without an owner the role stands for itself. Role "" with Metrics reads /metrics and does nothing else.
type NewToken struct {
	Name    string
	Owner   string
	Role    Role
	Metrics bool
	TTL     time.Duration // 0: no end
}

// token is one token in memory; never changed.
type token struct {
	Token     // Owner is folded
	hash      digest
	principal *Principal // of its MQTT sessions
}

func (t *token) expired(now time.Time) bool { return t.Expires != nil && !now.Before(*t.Expires) }

// AddToken makes a personal access token for name with role that belongs to no user; ttl 0 = no end. The text is shown here
// and never again. Faults name the fields name, role, ttl. Expired tokens are cleared out on the way.
func (b *Book) AddToken(name string, role Role, ttl time.Duration) (id, text string, err error) {
	return b.addToken(theBox, NewToken{Name: name, Role: role, TTL: ttl})
}

func (b *Book) addToken(by Actor, n NewToken) (id, text string, err error) {
	if fault := checkRole(n.Role); fault != nil {
		return "", "", fault
	}
	n.Metrics = true
	t, text, err := b.makeToken(by, n)
	return t.ID, text, err
}

// MakeToken makes a personal access token. The text is shown here and never again. Faults name the fields name, role, ttl;
// ErrNoUser when the owner is none.
func (b *Book) MakeToken(n NewToken) (Token, string, error) { return b.makeToken(theBox, n) }

func (b *Book) makeToken(by Actor, n NewToken) (made Token, text string, err error) {
	switch name := n.Name; {
	case name == "" || len(name) > maxTokenName || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
		return made, "", faultf("name", "%s: give 1 to %d bytes of text without control characters", shown(name), maxTokenName)
	case !n.Role.known() && (n.Role != "" || !n.Metrics):
		return made, "", checkRole(n.Role)
	case n.TTL < 0 || n.TTL > maxTokenTTL:
		return made, "", faultf("ttl", "%s is outside 0 (no end) to %s", n.TTL, maxTokenTTL)
	}
	b.change.Lock()
	defer b.change.Unlock()
	if b.closed {
		return made, "", ErrClosed
	}
	if n.Owner != "" {
		owner := b.users[folded(n.Owner)]
		switch {
		case owner == nil:
			return made, "", ErrNoUser
		case n.Role != "" && !owner.Role.Allows(n.Role):
			return made, "", faultf("role", "%s is more than %s has, the role of the token's owner", n.Role, owner.Role)
		}
	}
	now := b.o.Now().UTC().Truncate(time.Millisecond)
	live := make(map[digest]*token, len(b.tokens)+1)
	var ops []kv.Op
	var events []Event
	for hash, t := range b.tokens {
		if t.expired(now) {
			ops = append(ops, remove(tokenPrefix+t.ID))
			events = append(events, Event{Category: "token", Action: "expire", ID: t.ID, Before: t.Token})
			continue
		}
		live[hash] = t
	}
	if len(live) >= maxTokens {
		return made, "", faultf("name", "there are %d tokens, its bound: delete some first", len(live))
	}
	text = tokenStart + mint(b.o.Random)
	t := &token{Token: Token{ID: mint(b.o.Random)[:tokenIDLetters], Name: n.Name, Owner: folded(n.Owner), Role: n.Role, Metrics: n.Metrics, Created: now}}
	if n.TTL > 0 {
		expires := now.Add(n.TTL)
		t.Expires = &expires
	}
	t.hash = b.hash.of("token", "", []byte(text))
	op, err := set(tokenPrefix+t.ID, tokenRecord{
		Version: recordVersion, ID: t.ID, Name: t.Name, Owner: t.Owner, Role: t.Role, Metrics: t.Metrics, Scoped: 1, Created: now, Expires: t.Expires, Hash: t.hash[:],
	})
	if err != nil {
		return made, "", err
	}
	events = append(events, Event{Category: "token", Action: "add", ID: t.ID, After: t.Token})
	if err := b.commit(by, append(ops, op), events...); err != nil {
		return made, "", err
	}
	b.standFor(t)
	live[t.hash] = t
	b.mu.Lock()
	b.tokens = live
	b.mu.Unlock()
	b.log.Info("token added", "id", t.ID, "name", t.Name, "owner", t.Owner, "role", string(t.Role))
	return t.Token, text, nil
}

// Tokens lists the personal access tokens, expired ones too as long as they are kept, oldest first.
func (b *Book) Tokens() []Token {
	b.mu.RLock()
	list := make([]Token, 0, len(b.tokens))
	for _, t := range b.tokens {
		list = append(list, t.Token)
	}
	b.mu.RUnlock()
	for i, t := range list {
		if t.Expires != nil {
			expires := *t.Expires
			list[i].Expires = &expires
		}
	}
	slices.SortFunc(list, func(x, y Token) int {
		if by := x.Created.Compare(y.Created); by != 0 {
			return by
		}
		return strings.Compare(x.ID, y.ID)
	})
	return list
}

// DeleteToken ends a token at once. ErrNoToken when there is none of that id.
func (b *Book) DeleteToken(id string) error { return b.deleteToken(theBox, id) }

func (b *Book) deleteToken(by Actor, id string) error {
	b.change.Lock()
	defer b.change.Unlock()
	if b.closed {
		return ErrClosed
	}
	for hash, t := range b.tokens {
		if t.ID != id {
			continue
		}
		if err := b.commit(by, []kv.Op{remove(tokenPrefix + id)}, Event{Category: "token", Action: "delete", ID: id, Before: t.Token}); err != nil {
			return err
		}
		b.mu.Lock()
		delete(b.tokens, hash)
		b.mu.Unlock()
		t.principal.policy.Store(nil)
		b.log.Info("token deleted", "id", id, "name", t.Name)
		return nil
	}
	return ErrNoToken
}

// Bearer resolves a token of REST: a personal access token, which begins with "mr_", or an access token of an API client.
func (b *Book) Bearer(text string) (Caller, bool) {
	if len(text) > maxToken {
		return Caller{}, false
	}
	if !strings.HasPrefix(text, tokenStart) {
		e, _, ok := b.access(text)
		if !ok {
			return Caller{}, false
		}
		return Caller{Name: e.client.ID, Principal: e.principal, Metrics: e.client.Metrics}, true
	}
	sum := b.hash.of("token", "", []byte(text))
	b.mu.RLock()
	defer b.mu.RUnlock()
	t, ok := b.tokens[sum] // by a keyed hash, so the time of the look-up tells nothing about the text
	if !ok || b.closed || t.expired(b.o.Now()) {
		return Caller{}, false
	}
	role, ok := b.roleOf(t)
	if !ok {
		return Caller{}, false
	}
	c := Caller{Name: t.Name, Role: role, Metrics: t.Metrics, Token: t.ID}
	if t.Owner != "" {
		c.User = b.nameOf(t.Owner)
	}
	return c, true
}
