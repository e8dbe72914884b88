package auth

import (
	"strings"
	"time"
)

// A person signs in over MQTT with a personal access token as the password, to look: an MQTT explorer, a dashboard. What
// is received follows from the token's role; nothing can be published, since values need an API client as their source.

// personID is the id of the principal of a token. No client can have it.
func personID(token string) string { return "token:" + token }

// standFor gives a token the principal that its sessions share; it ends with the token.
func (t *token) standFor(workspace string) {
	grants := []Grant{{Effect: "allow", Actions: []Action{ActionSubscribe}, Filter: "#", Scope: ScopeUNS}}
	if t.Role.Allows(RoleAdmin) {
		grants = append(grants, Grant{Effect: "allow", Actions: []Action{ActionSubscribe}, Filter: "#", Scope: ScopeMQTT})
	}
	t.principal = &Principal{id: personID(t.ID), workspace: workspace, role: t.Role}
	t.principal.policy.Store(compile(t.principal.id, grants))
}

// person signs in whoever holds a personal access token. until is the token's end, zero: it has none.
func (b *Book) person(password []byte) (p *Principal, until time.Time, ok bool) {
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
	return t.principal, until, true
}
