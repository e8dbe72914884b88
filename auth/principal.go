package auth

import (
	"crypto/subtle"
	"sync/atomic"
)

// Principal is one signed-in identity, shared by all its sessions. Safe for concurrent use.
//
// It stands for the secret it signed in with: rotating the secret ends this Principal (its Policy is nil from then on) and
// the next sign-in gets another. Deleting a client ends it for ever, too, even when the id is used again.
type Principal struct {
	id, workspace string
	role          Role
	policy        atomic.Pointer[Policy]
}

// Role is that of the person who signed in with a personal access token; empty for API clients.
func (p *Principal) Role() Role { return p.role }

// Guest is a principal of no client on record: its grants are fixed, and nothing ends it. It is for profiles in which nobody
// signs in; the grants are taken unchecked.
func Guest(id, workspace string, grants []Grant) *Principal {
	p := &Principal{id: id, workspace: workspace}
	p.policy.Store(compile(id, grants))
	return p
}

// ID is the client id.
func (p *Principal) ID() string { return p.id }

// Workspace is the one workspace the client works in.
func (p *Principal) Workspace() string { return p.workspace }

// Policy returns the rules in force now: one atomic load. The pointer changes with every change of grants, secret, enabled
// flag or deletion, so a cache compares pointers. Nil = may do nothing any more (disabled, rotated, deleted): cut the
// session. A session looks once more after it has registered itself, because a change may fall between sign-in and that.
func (p *Principal) Policy() *Policy { return p.policy.Load() }

// entry is one client in memory. It is replaced as a whole, never changed, so that readers need no lock after finding it.
type entry struct {
	client    Client
	hash      digest
	principal *Principal
}

// Certified signs in the client that a certificate names, which the caller has verified. ok=false: there is none, or it is
// disabled.
func (b *Book) Certified(id string) (p *Principal, ok bool) {
	p, _ = b.certified(id)
	return p, p != nil
}

// CertifiedFrom is Certified for a connection from address, which the audit log tells of.
func (b *Book) CertifiedFrom(address, id string) (p *Principal, ok bool) {
	p, why := b.certified(id)
	b.tally(Actor{Kind: ByClient, Name: id, Address: address}, "session", "certificate", id, why)
	return p, p != nil
}

// certified says why not.
func (b *Book) certified(id string) (p *Principal, why string) {
	b.mu.RLock()
	e, known := b.clients[id]
	closed := b.closed
	b.mu.RUnlock()
	switch {
	case !known || closed:
		b.metrics.unknown.Inc()
		return nil, "unknown"
	case e.principal.Policy() == nil:
		b.metrics.disabled.Inc()
		return nil, "disabled"
	}
	b.metrics.ok.Inc()
	return e.principal, ""
}

// Policy is the rules of a client in force now, without signing in; nil when there is none or it is disabled.
func (b *Book) Policy(id string) *Policy {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if e, known := b.clients[id]; known && !b.closed {
		return e.principal.Policy()
	}
	return nil
}

// SignIn checks an API client's id and secret: one keyed hash and a comparison in constant time, the same steps whether or
// not the client exists. ok=false says only "no"; which reason it had is counted in metrics, not told. secret is not kept.
func (b *Book) SignIn(id string, secret []byte) (p *Principal, ok bool) {
	return b.SignInFrom("", id, secret)
}

// SignInFrom is SignIn for a call from address, which the audit log tells of.
func (b *Book) SignInFrom(address, id string, secret []byte) (p *Principal, ok bool) {
	p, why := b.signIn(id, secret)
	b.tally(Actor{Kind: ByClient, Name: id, Address: address}, "session", "sign_in", id, why)
	return p, p != nil
}

// signIn says why not.
func (b *Book) signIn(id string, secret []byte) (p *Principal, why string) {
	// Cut to what could be right, so that a peer's 64 KiB password costs no more than a good one; the empty id and the empty
	// secret belong to nobody.
	if len(id) > maxID {
		id = ""
	}
	if len(secret) > maxSecret {
		secret = nil
	}
	b.mu.RLock()
	e, known := b.clients[id]
	closed := b.closed
	b.mu.RUnlock()
	if !known {
		e = b.nobody
	}
	sum := b.hash.of("client", id, secret)
	same := subtle.ConstantTimeCompare(sum[:], e.hash[:]) == 1
	switch {
	case !known || closed:
		b.metrics.unknown.Inc()
		return nil, "unknown"
	case !same:
		b.metrics.wrongSecret.Inc()
		return nil, "wrong secret"
	case e.principal.Policy() == nil:
		b.metrics.disabled.Inc()
		return nil, "disabled"
	}
	b.metrics.ok.Inc()
	return e.principal, ""
}
