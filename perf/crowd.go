package perf

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// crowd is many clients that sign in, subscribe to one topic each and then keep still.
type crowd struct {
	box     *box
	version byte
	tls     bool
	links   []*link
	faults  atomic.Int64 // attempts that were refused or failed
	last    atomic.Pointer[error]
}

const (
	crowdWait  = 20 * time.Second      // for each step of a sign-in
	firstRetry = 50 * time.Millisecond // doubling
	lastRetry  = 1600 * time.Millisecond
)

// enrolCrowd creates n API clients that may subscribe to everything.
func enrolCrowd(ctx context.Context, b *box, n int) error {
	var list []identity
	for i := range n {
		c := subscriberOf(i)
		list = append(list, identity{ID: c, Secret: b.secrets(c), Workspace: DefaultFleetOptions().Workspace, Grants: []grant{allow("#", "subscribe")}})
	}
	return b.api.addClients(ctx, list)
}

// gather signs n clients in, rate of them begun a second (0 = all at once); each tries until it is in or limit has passed.
// It returns when the last is in. vanish must be called, whatever it returns.
func (c *crowd) gather(ctx context.Context, n int, rate float64, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	c.links = make([]*link, n)
	var wg sync.WaitGroup
	var in atomic.Int64
	begun := time.Now()
	for i := range n {
		if rate > 0 {
			if err := pause(ctx, time.Until(begun.Add(time.Duration(float64(i)/rate*float64(time.Second))))); err != nil {
				break
			}
		}
		wg.Go(func() {
			for wait := firstRetry; ; wait = min(2*wait, lastRetry) {
				l, err := c.enter(ctx, i)
				if err == nil {
					c.links[i] = l
					in.Add(1)
					return
				}
				c.faults.Add(1)
				c.last.Store(&err)
				// Spread by number, so that those refused together do not return together.
				if pause(ctx, wait+time.Duration(i%50)*time.Millisecond) != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	if in.Load() == int64(n) {
		return nil
	}
	err := errors.New("none")
	if p := c.last.Load(); p != nil {
		err = *p
	}
	return fmt.Errorf("perf: %d of %d clients signed in within %s; last fault: %w", in.Load(), n, limit, err)
}

// enter signs client i in and subscribes it.
func (c *crowd) enter(ctx context.Context, i int) (*link, error) {
	name := subscriberOf(i)
	o := linkOptions{address: c.box.mqtt, client: name, secret: c.box.secret(name), limit: crowdWait, version: c.version}
	if c.tls {
		o.address, o.trust = c.box.process.tls, c.box.trust
	}
	l, err := openLink(ctx, o)
	if err != nil {
		return nil, err
	}
	fleet := DefaultFleetOptions()
	if err := l.subscribe(1, nil, fmt.Sprintf("%s/%s/%s/%s/state", fleet.Namespace, fleet.Workspace, lineOf(i), name)); err != nil {
		_ = l.conn.Close()
		return nil, err
	}
	return l, nil
}

// alive has every client ask for a sign of life and counts those that get none.
func (c *crowd) alive() (lost int) {
	for _, l := range c.links {
		if l == nil || l.ping() != nil {
			lost++
		}
	}
	return lost
}

// vanish ends every connection without a word, as a killed server's clients find it.
func (c *crowd) vanish() {
	for _, l := range c.links {
		if l != nil {
			_ = l.conn.Close()
		}
	}
	c.links = nil
}
