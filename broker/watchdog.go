package broker

import "time"

const (
	watchEvery   = 250 * time.Millisecond
	storeTimeout = 30 * time.Second // a batch, a subscription, a delivery may wait that long for the store
	forceAfter   = 2 * time.Second  // an ejected connection may take that long to settle its batch
)

// watch looks after every connection every watchEvery until stop: one goroutine instead of a timer per connection.
func (b *Broker) watch(stop <-chan struct{}) {
	t := time.NewTicker(watchEvery)
	defer t.Stop()
	for {
		select {
		case <-stop:
			return
		case <-t.C:
			b.inspect(b.now())
		}
	}
}

// inspect ends what has to end: silent clients, clients that may do nothing any more, what the store does not take,
// and ejected connections that do not leave.
func (b *Broker) inspect(now time.Time) {
	b.listener.checkCertificate()
	b.sweepTallies(now)
	b.publishSystem(now)
	ns := now.UnixNano()
	b.listener.each(func(c *conn) {
		c.out.inspect()
		if code := c.kick.Load(); code != 0 {
			if ns-c.kickedAt.Load() > int64(forceAfter) {
				c.force(byte(code))
			}
			return
		}
		if !c.live.Load() {
			return
		}
		switch {
		case c.principal.Policy() == nil, c.until != 0 && ns >= c.until:
			c.eject(codeNotAuthorized)
		case overdue(ns, c.pending.Load()), overdue(ns, c.flushing.Load()):
			c.eject(codeQuota)
			c.force(codeQuota)
		case c.pending.Load() != 0: // it is not read meanwhile
		case c.keepAlive.Load() > 0 && ns-c.seen.Load() > c.keepAlive.Load():
			c.eject(codeKeepAlive)
		}
	})
}

// overdue says that the store has been waited for too long; since 0: nobody waits.
func overdue(ns, since int64) bool { return since != 0 && ns-since > int64(storeTimeout) }

// force ends the connection without waiting for its reader: the store is told to give up, the client is told why.
func (c *conn) force(code byte) {
	c.out.disconnect(code) // first: what the reader answers when its wait is cut off must not come before it
	c.cancel()
}
