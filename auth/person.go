package auth

import (
	"strings"
	"time"
)

// A person signs in over MQTT with a personal access token as the password, to look: an MQTT explorer, a dashboard. What
// is received follows from the token's role; nothing can be published, since values need an API client as their source.

// personID is the id of the principal of a token. No client can have it.
func personID(token string) string { return "token:" + token }

// standFor gives a token the principal that its sessions share, with the role it comes to now; it ends with the token, and when
// that role changes. A token that reads the metrics only, or whose owner is disabled, gets one that may do nothing.
func (b *Book) standFor(t *token) {
	role, ok := b.roleOf(t)
	t.principal = &Principal{id: personID(t.ID), workspace: b.o.Workspaces[0], role: role}
	if !ok || !role.Allows(RoleViewer) {
		return
	}
	grants := []Grant{{Effect: "allow", Actions: []Action{ActionSubscribe}, Filter: "#", Scope: ScopeUNS}}
	if role.Allows(RoleAdmin) {
		grants = append(grants, Grant{Effect: "allow", Actions: []Action{ActionSubscribe}, Filter: "#", Scope: ScopeMQTT})
	}
	t.principal.policy.Store(compile(t.principal.id, grants))
}

// roleOf is what a token comes to now: its own role, bounded by its owner's. ok=false: the owner may not sign in. The caller holds
// mu or change.
func (b *Book) roleOf(t *token) (role Role, ok bool) {
	if t.Owner == "" {
		return t.Role, true
	}
	owner := b.users[t.Owner]
	if owner == nil || !owner.Enabled {
		return "", false
	}
	return t.Role.atMost(owner.Role), true
}

// standAnew ends the MQTT sessions of a user's tokens and lets those that still may sign in again. The caller holds change, and
// has shown what changed.
func (b *Book) standAnew(user string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for hash, t := range b.tokens {
		if t.Owner == user {
			fresh := *t
			b.standFor(&fresh)
			b.tokens[hash] = &fresh
			t.principal.policy.Store(nil)
		}
	}
}

// person signs in whoever holds a personal access token. until is the token's end, zero: it has none.
func (b *Book) person(address string, password []byte) (p *Principal, until time.Time, ok bool) {
	if len(password) > maxToken || !strings.HasPrefix(string(password), tokenStart) {
		return nil, until, false
	}
	sum := b.hash.of("token", "", password)
	b.mu.RLock()
	t, known := b.tokens[sum]
	closed := b.closed
	b.mu.RUnlock()
	if !known || closed || t.expired(b.o.Now()) || t.principal.Policy() == nil {
		return nil, until, false
	}
	if t.Expires != nil {
		until = *t.Expires
	}
	name := t.Owner
	if name == "" {
		name = t.Name
	}
	b.tally(Actor{Kind: ByToken, Name: name, Token: t.ID, Address: address}, "session", "mqtt", t.ID, "")
	return t.principal, until, true
}
