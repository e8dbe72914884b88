package broker_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

// The MQTT library is told of no subscription: it would keep a second tree of filters, in time that grows with the square of a
// filter's length.
func TestLibraryKnowsNoSubscriptions(t *testing.T) {
	for _, v := range versions {
		x := open(t, setting{})
		c := dial(t, x.Addr(), hello{id: "c", user: "dev", version: v})
		c.mustSub(1, "plain/#", full("line1/+"), "$share/group/plain/x", "#")
		if n := x.LibrarySubscriptions(); n != 0 {
			t.Errorf("v%d: it has %d", v, n)
		}
		c.write(frame(0xA2, []byte{0, 3}, props(v, nil), str("plain/#"), str("none")))
		if p := c.want(0xB0); v == 5 && string(p.body[3:]) != "\x00\x11" {
			t.Errorf("UNSUBACK %v", p)
		}
		if n := x.LibrarySubscriptions(); n != 0 {
			t.Errorf("v%d: %d remain", v, n)
		}
	}
}

// What a session is owed of retained messages is bounded by its subscriptions, however often it subscribes anew while it
// takes nothing; what is unsubscribed meanwhile never comes, the rest comes once.
func TestReplaysDoNotPileUp(t *testing.T) {
	x := open(t, setting{})
	p := dial(t, x.Addr(), hello{id: "p", user: "dev"})
	const topics = 60
	for i := range topics {
		put(p, pub{topic: fmt.Sprint("plain/", i), payload: fmt.Sprint(i), retain: true})
	}
	s := dial(t, x.Addr(), hello{id: "s", user: "sub", properties: []byte{0x21, 0, 1}}) // one at a time
	var filters []string
	for i := range topics {
		filters = append(filters, fmt.Sprint("plain/", i))
	}
	s.mustSub(1, filters[0])
	held := s.wantMsg()
	for range 50 {
		s.mustSub(1, filters[1:]...)
	}
	if owed, listed := x.ReplayJobs("s"); owed > topics || listed > 2*topics {
		t.Errorf("owed by %d subscriptions, in a list of %d", owed, listed)
	}
	s.write(frame(0xA2, []byte{0, 3}, props(5, nil), str(filters[5]), str(filters[59])))
	s.want(0xB0)
	s.puback(held.id)
	got := map[string]int{}
	for range topics - 3 {
		m := s.wantMsg()
		got[m.payload]++
		s.puback(m.id)
	}
	s.alive()
	if len(got) != topics-3 || got["5"] != 0 || got["59"] != 0 {
		t.Errorf("got %v", got)
	}
}

// stall has every write of the store wait from now on until its context ends, or the test does; entered tells of each.
func (x *box) stall() (entered chan struct{}) {
	entered = make(chan struct{}, 64)
	over := make(chan struct{})
	x.t.Cleanup(func() { close(over) })
	x.store.onAppend(func(ctx context.Context, _ int) error {
		entered <- struct{}{}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-over:
			return errors.New("the test is over")
		}
	})
	return entered
}

// A SUBSCRIBE, an UNSUBSCRIBE and a QoS 2 delivery wait for the store, and the watchdog sees that as it sees a batch: after
// 30 s the session is told 0x97 and ends; what was asked for is not done.
func TestStalledStoreIsSeenEverywhere(t *testing.T) {
	for _, v := range versions {
		for _, what := range []string{"SUBSCRIBE", "UNSUBSCRIBE", "delivery"} {
			t.Run(fmt.Sprintf("%s, v%d", what, v), func(t *testing.T) {
				x := open(t, setting{broker: live2})
				c, _ := keeper(t, x.Addr(), "c", "sub", v)
				c.mustSub(2, "plain/old")
				if what == "delivery" {
					x.gone(c, "c")
					p := dial(t, x.Addr(), hello{id: "p", user: "dev"})
					p.exactly(pub{topic: "plain/old", payload: "x", id: 1})
					p.released(1)
				}
				entered := x.stall()
				switch what {
				case "SUBSCRIBE":
					c.write(subscribe(v, 5, nil, 1, "plain/new"))
				case "UNSUBSCRIBE":
					c.write(frame(0xA2, []byte{0, 5}, props(v, nil), str("plain/old")))
				default:
					c, _ = keeper(t, x.Addr(), "c", "sub", v)
				}
				<-entered
				waits := func() bool { return what == "delivery" || x.metric("millrace_broker_connections_storing", "") == 1 }
				eventually(t, "it waits", waits)
				x.clock.advance(29 * time.Second)
				x.Inspect(x.clock.now())
				if p, err := c.read(20 * time.Millisecond); !isTimeout(err) {
					t.Fatalf("%v %v", p, err)
				}
				x.clock.advance(2 * time.Second)
				x.Inspect(x.clock.now())
				if v == 5 {
					if p := c.want(0xE0); p.body[0] != 0x97 {
						t.Errorf("DISCONNECT %v", p)
					}
				}
				c.ended()
				x.store.onAppend(nil)
				c, _ = keeper(t, x.Addr(), "c", "sub", v)
				if what == "delivery" {
					if m := c.wantMsg(); m.payload != "x" || m.qos != 2 {
						t.Errorf("%+v", m)
					}
					return
				}
				p := dial(t, x.Addr(), hello{id: "p", user: "dev"})
				p.send(pub{topic: "plain/new", payload: "new"})
				p.send(pub{topic: "plain/old", payload: "old"})
				c.only("old")
				c.alive()
			})
		}
	}
}

// UNSUBACK says success when the subscription is gone for good: after a kill it does not come back. What could not be taken back is
// told on MQTT 5 and stays in force; MQTT 3.1.1 has no word for it, and the connection ends without an answer.
func TestUnsubscribeIsDurable(t *testing.T) {
	for _, v := range versions {
		x := open(t, setting{})
		c, _ := keeper(t, x.Addr(), "c", "sub", v)
		c.mustSub(1, "plain/a", "plain/b", "plain/c")
		x.store.onAppend(func(context.Context, int) error { return errors.New("the disk is gone") })
		c.write(frame(0xA2, []byte{0, 5}, props(v, nil), str("plain/a"), str("plain/none"), str("plain/b")))
		if v == 5 {
			if p := c.want(0xB0); string(p.body[3:]) != "\x80\x11\x80" {
				t.Errorf("UNSUBACK %v", p)
			}
		} else {
			c.ended()
			c, _ = keeper(t, x.Addr(), "c", "sub", v)
		}
		x.store.onAppend(nil)
		p := dial(t, x.Addr(), hello{id: "p", user: "dev"})
		p.send(pub{topic: "plain/a", payload: "still"})
		c.only("still")
		c.write(frame(0xA2, []byte{0, 5}, props(v, nil), str("plain/a"), str("plain/a")))
		if p := c.want(0xB0); v == 5 && string(p.body[3:]) != "\x00\x11" {
			t.Errorf("UNSUBACK %v", p)
		}
		eventually(t, "nothing is owed", func() bool { return x.store.count("bq") == 0 })
		x = open(t, setting{store: x.store.killed()})
		c, _ = keeper(t, x.Addr(), "c", "sub", v)
		p = dial(t, x.Addr(), hello{id: "p", user: "dev"})
		p.send(pub{topic: "plain/a", payload: "gone"})
		p.send(pub{topic: "plain/b", payload: "there"})
		c.only("there")
		c.alive()
	}
}

// The janitor looks for sessions whose time is over once a second, by the box's clock, not each time it writes rows; and at
// once when the clock was set back.
func TestJanitorLooksOnceASecond(t *testing.T) {
	x := open(t, setting{})
	s, _ := keeper(t, x.Addr(), "s", "sub", 5)
	s.mustSub(1, "plain/#")
	p := dial(t, x.Addr(), hello{id: "p", user: "dev"})
	at := x.clock.now().Add(time.Hour)
	x.clock.stand(at)
	eventually(t, "it looks", func() bool { return x.Looked().Equal(at) })
	brief := dial(t, x.Addr(), hello{id: "brief", user: "sub", persistent: true, properties: []byte{0x11, 0, 0, 0, 1}})
	x.gone(brief, "brief")
	rounds := func() {
		t.Helper()
		for range 3 { // each has the janitor delete a row
			p.send(pub{topic: "plain/x", payload: "x"})
			s.only("x")
			eventually(t, "the janitor wrote", func() bool { return x.store.count("bq") == 0 })
		}
	}
	x.clock.advance(999 * time.Millisecond)
	rounds()
	if !x.Looked().Equal(at) {
		t.Errorf("looked %v after the last time", x.Looked().Sub(at))
	}
	x.clock.advance(time.Millisecond)
	eventually(t, "it looks again", func() bool { return x.Looked().Equal(at.Add(time.Second)) })
	eventually(t, "the session is over", func() bool { return len(x.Sessions()) == 2 })
	x.clock.advance(-time.Minute)
	eventually(t, "it looks", func() bool { return x.Looked().Equal(at.Add(time.Second - time.Minute)) })
}

// A QoS 2 delivery whose row cannot be written is not sent: the client gets its CONNACK, hears 0x80, and finds the message when
// it comes again, under an identifier that a kill does not change.
func TestDeliveryThatCannotBeNoted(t *testing.T) {
	x := open(t, setting{broker: live2})
	c, _ := keeper(t, x.Addr(), "c", "sub", 5)
	c.mustSub(2, "plain/#")
	x.gone(c, "c")
	p := dial(t, x.Addr(), hello{id: "p", user: "dev"})
	p.exactly(pub{topic: "plain/x", payload: "x", id: 1})
	p.released(1)
	x.store.onAppend(func(context.Context, int) error { return errors.New("the disk is gone") })
	c, _ = keeper(t, x.Addr(), "c", "sub", 5)
	if p := c.want(0xE0); p.body[0] != 0x80 {
		t.Errorf("DISCONNECT %v", p)
	}
	c.ended()
	x.store.onAppend(nil)
	c, _ = keeper(t, x.Addr(), "c", "sub", 5)
	first := c.wantMsg()
	x = open(t, setting{store: x.store.killed(), broker: live2})
	c, _ = keeper(t, x.Addr(), "c", "sub", 5)
	if m := c.wantMsg(); m.id != first.id || !m.dup || m.payload != "x" {
		t.Errorf("%+v, and before the kill %+v", m, first)
	}
}
