package broker

import (
	"sync"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"
)

// claims sees to it that at most one connection per client identifier is between CONNECT and its end. A newcomer ejects
// the holder and waits for its end, so nothing of the two sessions ever overlaps [MQTT-3.1.4-3].
type claims struct {
	mu      sync.Mutex
	holders map[string]*claim
}

// claim is one connection's hold on a client identifier, or its wait for it.
type claim struct {
	id    string
	owner string // API client
	c     *conn
	next  *claim        // who waits; a newer one takes its place
	lost  chan struct{} // closed when a newer one has taken its place
	over  chan struct{} // closed when the holder has ended
}

// takeClaim gives the connection its client identifier, or says why not.
func (b *Broker) takeClaim(c *conn, id, owner string) (refusal packets.Code, ok bool) {
	me := &claim{id: id, owner: owner, c: c, lost: make(chan struct{}), over: make(chan struct{})}
	b.claims.mu.Lock()
	holder := b.claims.holders[id]
	switch {
	case holder == nil && len(b.claims.holders) >= b.o.Limits.MaxClients:
		b.claims.mu.Unlock()
		return refusedBusy, false
	case holder == nil:
		b.claims.holders[id] = me
		b.claims.mu.Unlock()
		c.claim = me
		return refusal, true
	case holder.owner != owner:
		b.claims.mu.Unlock()
		return refusedClientID, false
	}
	key, now := tallyKey{owner, id}, b.now()
	if b.limits.flapping.banned(key, now) { // in a race many have passed the check at sign-in
		b.claims.mu.Unlock()
		return refusedBanned, false
	}
	begins := holder.c != nil && b.limits.flapping.note(key, now)
	if holder.next != nil {
		close(holder.next.lost)
	}
	holder.next = me
	b.claims.mu.Unlock()
	if begins {
		b.logFlap(owner, id)
	}
	if holder.c != nil {
		holder.c.eject(codeTakenOver)
	}

	timeout := time.NewTimer(b.o.Limits.ConnectTimeout)
	defer timeout.Stop()
	select {
	case <-holder.over: // who has it now is looked up: a newer one may have taken this place before the end
	case <-me.lost:
	case <-c.kicked:
	case <-timeout.C:
	}
	b.claims.mu.Lock()
	defer b.claims.mu.Unlock()
	switch {
	case b.claims.holders[id] == me:
		c.claim = me
		return refusal, true
	case holder.next == me:
		holder.next = nil
	}
	if byte(c.kick.Load()) == codeShuttingDown {
		return refusedStopping, false
	}
	return refusedBusy, false
}

// claimIdle takes the claim of an identifier that nobody holds, for work on its session.
func (b *Broker) claimIdle(id, owner string) (*claim, bool) {
	b.claims.mu.Lock()
	defer b.claims.mu.Unlock()
	if b.claims.holders[id] != nil {
		return nil, false
	}
	me := &claim{id: id, owner: owner, lost: make(chan struct{}), over: make(chan struct{})}
	b.claims.holders[id] = me
	return me, true
}

// releaseClaim passes the client identifier on to whoever waits.
func (b *Broker) releaseClaim(k *claim) {
	b.claims.mu.Lock()
	if k.next != nil {
		b.claims.holders[k.id] = k.next
	} else {
		delete(b.claims.holders, k.id)
	}
	b.claims.mu.Unlock()
	close(k.over)
}
