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
	Role    Role       `json:"role"`
	Created time.Time  `json:"created"`
	Expires *time.Time `json:"expires,omitempty"` // nil: no end
}

// token is one token in memory; never changed.
type token struct {
	Token
	hash      digest
	principal *Principal // of its MQTT sessions
}

func (t *token) expired(now time.Time) bool { return t.Expires != nil && !now.Before(*t.Expires) }

// AddToken makes a personal access token for name with role; ttl 0 = no end. The text is shown here and never again. Faults
// name the fields name, role, ttl. Expired tokens are cleared out on the way.
func (b *Book) AddToken(name string, role Role, ttl time.Duration) (id, text string, err error) {
	switch {
	case name == "" || len(name) > maxTokenName || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
		return "", "", faultf("name", "%s: give 1 to %d bytes of text without control characters", shown(name), maxTokenName)
	case !role.known():
		return "", "", faultf("role", "%s is none of viewer, operator, designer, admin", shown(string(role)))
	case ttl < 0 || ttl > maxTokenTTL:
		return "", "", faultf("ttl", "%s is outside 0 (no end) to %s", ttl, maxTokenTTL)
	}
	b.change.Lock()
	defer b.change.Unlock()
	if b.closed {
		return "", "", ErrClosed
	}
	now := b.o.Now().UTC().Truncate(time.Millisecond)
	live := make(map[digest]*token, len(b.tokens)+1)
	var ops []kv.Op
	for hash, t := range b.tokens {
		if t.expired(now) {
			ops = append(ops, remove(tokenPrefix+t.ID))
			continue
		}
		live[hash] = t
	}
	if len(live) >= maxTokens {
		return "", "", faultf("name", "the box holds %d tokens, its bound: delete some first", len(live))
	}
	text = tokenStart + mint(b.o.Random)
	t := &token{Token: Token{ID: mint(b.o.Random)[:tokenIDLetters], Name: name, Role: role, Created: now}}
	if ttl > 0 {
		expires := now.Add(ttl)
		t.Expires = &expires
	}
	t.hash = b.hash.of("token", "", []byte(text))
	op, err := set(tokenPrefix+t.ID, tokenRecord{
		Version: recordVersion, ID: t.ID, Name: name, Role: role, Created: now, Expires: t.Expires, Hash: t.hash[:],
	})
	if err != nil {
		return "", "", err
	}
	if err := b.apply(append(ops, op)); err != nil {
		return "", "", err
	}
	t.standFor(b.o.Workspaces[0])
	live[t.hash] = t
	b.mu.Lock()
	b.tokens = live
	b.mu.Unlock()
	b.log.Info("token added", "id", t.ID, "name", name, "role", string(role))
	return t.ID, text, nil
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
func (b *Book) DeleteToken(id string) error {
	b.change.Lock()
	defer b.change.Unlock()
	if b.closed {
		return ErrClosed
	}
	for hash, t := range b.tokens {
		if t.ID != id {
			continue
		}
		if err := b.apply([]kv.Op{remove(tokenPrefix + id)}); err != nil {
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
	t, ok := b.tokens[sum] // by a keyed hash, so the time of the look-up tells nothing about the text
	closed := b.closed
	b.mu.RUnlock()
	if !ok || closed || t.expired(b.o.Now()) {
		return Caller{}, false
	}
	return Caller{Name: t.Name, Role: t.Role, Metrics: true}, true
}
