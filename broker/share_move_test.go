package broker_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"millrace/broker"
)

// everyKill is what a kill would leave before and after each commit of the box from now on, until it is taken.
func (m *memory) everyKill() (take func() []*memory) {
	var left []*memory
	m.onAppend(func(context.Context, int) error {
		left = append(left, m.killed()) // commits come one at a time here
		return nil
	})
	return func() []*memory {
		m.onAppend(nil)
		return append(left, m.killed())
	}
}

// drained reads what a client gets until a ping is answered, and acknowledges it.
func (c *client) drained() (payloads []string) {
	c.t.Helper()
	c.write([]byte{0xC0, 0})
	for {
		p, err := c.read(patience)
		if err != nil {
			c.t.Fatal(err)
		}
		switch p.first >> 4 {
		case 13:
			return payloads
		case 3:
			m := c.parse(p)
			payloads = append(payloads, m.payload)
			switch m.qos {
			case 1:
				c.puback(m.id)
			case 2:
				c.write([]byte{0x50, 2, byte(m.id >> 8), byte(m.id)})
			}
		case 6:
			c.complete(uint16(p.body[0])<<8 | uint16(p.body[1]))
		default:
			c.t.Fatalf("got %v", p)
		}
	}
}

// until drains the client until it has n different payloads.
func (c *client) until(n int) []string {
	c.t.Helper()
	got := map[string]bool{}
	var list []string
	eventually(c.t, fmt.Sprintf("%d messages", n), func() bool {
		for _, p := range c.drained() {
			if !got[p] {
				got[p] = true
				list = append(list, p)
			}
		}
		return len(got) >= n
	})
	return list
}

// What a member of a group was to get and did not acknowledge is not lost when its session ends and the box is killed at
// any moment of that: the message is with the old session or with another member. Some of the messages are on their way
// to the member that ends, others wait for it, in memory or in their rows alone.
func TestGroupMessagesMoveDurably(t *testing.T) {
	const n = 12
	for _, way := range []string{"expires", "starts clean"} {
		t.Run(way, func(t *testing.T) {
			x := open(t, setting{})
			small := append([]byte{0x21, 0, 4}, forAnHour...) // Receive Maximum
			a := dial(t, x.Addr(), hello{id: "a", user: "sub", persistent: true, properties: small})
			a.mustSub(1, "$share/g/plain/#")
			p := dial(t, x.Addr(), hello{id: "p", user: "dev"})
			var want []string
			for i := range n {
				if i == n/2 {
					for range 4 {
						a.wantMsg()
					}
					x.gone(a, "a")
				}
				p.pub(pub{topic: "plain/x", payload: fmt.Sprint(i), qos: 1, id: uint16(i + 1)})
				p.ackOf(uint16(i + 1))
				want = append(want, fmt.Sprint(i))
			}
			b, _ := keeper(t, x.Addr(), "b", "sub", 5)
			b.mustSub(1, "$share/g/plain/#")
			x.gone(b, "b")
			eventually(t, "the ends are noted", func() bool { return !x.Dirty() })
			take := x.store.everyKill()
			if way == "expires" {
				b, _ = keeper(t, x.Addr(), "b", "sub", 5) // its time begins anew
				x.clock.advance(2 * time.Hour)
			} else {
				dial(t, x.Addr(), hello{id: "a", user: "sub"})
			}
			eventually(t, "all rows of the session are gone", func() bool { return len(x.Rows(1)) == 0 })
			kills := take()
			if way != "expires" {
				b, _ = keeper(t, x.Addr(), "b", "sub", 5)
			}
			if got := b.until(n); !sameSet(got, want) {
				t.Errorf("without a kill b got %v", got)
			}
			for i, left := range kills {
				y := open(t, setting{store: left})
				b, present := keeper(t, y.Addr(), "b", "sub", 5)
				if !present {
					t.Fatal("b is gone")
				}
				// Before its end is durable, a is still there; a clean start ends it.
				dial(t, y.Addr(), hello{id: "a", user: "sub"})
				if got := b.until(n); !sameSet(got, want) {
					t.Errorf("kill %d of %d: b got %v", i, len(kills), got)
				}
				y.stop()
			}
			if len(kills) < 2 {
				t.Errorf("%d kills", len(kills))
			}
		})
	}
}

func sameSet(a, b []string) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}

// A member without a session that lasts leaves; what it did not acknowledge is in rows of the member that has one, before
// that member gets it.
func TestGroupMessagesOfAPassingMemberMoveDurably(t *testing.T) {
	x := open(t, setting{})
	a := dial(t, x.Addr(), hello{id: "a", user: "sub"})
	a.mustSub(1, "$share/g/plain/#")
	p := dial(t, x.Addr(), hello{id: "p", user: "dev"})
	for i := range 5 {
		p.pub(pub{topic: "plain/x", payload: fmt.Sprint(i), qos: 1, id: uint16(i + 1)})
		p.ackOf(uint16(i + 1))
		a.wantMsg()
	}
	b, _ := keeper(t, x.Addr(), "b", "sub", 5)
	b.mustSub(1, "$share/g/plain/#")
	x.gone(b, "b")
	x.gone(a, "a")
	eventually(t, "the messages have rows", func() bool { return x.store.count("bq") == 5 })
	y := restarts["kill -9"](t, x)
	b, _ = keeper(t, y.Addr(), "b", "sub", 5)
	if got := b.until(5); !slices.Equal(got, []string{"0", "1", "2", "3", "4"}) {
		t.Errorf("got %v", got)
	}
}

// A QoS 2 message that was sent goes to no other member, also when the box is killed while the session ends; one that
// was not sent does [MQTT-4.8.2-5].
func TestGroupMessagesSentExactlyOnceDoNotMove(t *testing.T) {
	x := open(t, setting{broker: func(o *broker.Options) { o.LiveQoS = 2 }})
	one := append([]byte{0x21, 0, 1}, forAnHour...)
	a := dial(t, x.Addr(), hello{id: "a", user: "sub", persistent: true, properties: one})
	a.mustSub(2, "$share/g/plain/#")
	p := dial(t, x.Addr(), hello{id: "p", user: "dev"})
	for i := range 3 {
		p.exactly(pub{topic: "plain/x", payload: fmt.Sprint(i), qos: 2, id: uint16(i + 1)})
		p.released(uint16(i + 1))
	}
	a.wantMsg()
	x.gone(a, "a")
	b, _ := keeper(t, x.Addr(), "b", "sub", 5)
	b.mustSub(2, "$share/g/plain/#")
	x.gone(b, "b")
	take := x.store.everyKill()
	dial(t, x.Addr(), hello{id: "a", user: "sub"})
	eventually(t, "all rows of the session are gone", func() bool { return len(x.Rows(1)) == 0 })
	for i, left := range take() {
		y := open(t, setting{store: left, broker: func(o *broker.Options) { o.LiveQoS = 2 }})
		b, _ := keeper(t, y.Addr(), "b", "sub", 5)
		dial(t, y.Addr(), hello{id: "a", user: "sub"})
		if got := b.until(2); !slices.Equal(got, []string{"1", "2"}) {
			t.Errorf("kill %d: b got %v", i, got)
		}
		y.stop()
	}
}

// The empty message of a clear waits for a session like every other, also over a kill.
func TestClearIsOwedDurably(t *testing.T) {
	for name, restart := range restarts {
		t.Run(name, func(t *testing.T) {
			x := open(t, setting{})
			s, _ := keeper(t, x.Addr(), "s", "sub", 5)
			s.mustSub(1|8, full("a"), "plain/a") // retain as published
			x.gone(s, "s")
			p := dial(t, x.Addr(), hello{id: "p", user: "dev"})
			for i, topic := range []string{full("a"), "plain/a"} {
				put(p, pub{topic: topic, payload: "1", qos: 1, retain: true, id: uint16(10*i) + 1})
				put(p, pub{topic: topic, qos: 1, retain: true, id: uint16(10*i) + 2})
			}
			put(p, pub{topic: full("a"), payload: "2", qos: 1, id: 30})
			x = restart(t, x)
			s, _ = keeper(t, x.Addr(), "s", "sub", 5)
			var got []string
			for range 5 {
				m := s.wantMsg()
				s.puback(m.id)
				if m.topic == full("a") && m.payload != "" {
					m.payload = m.payload[:len(`{"value":1`)]
				}
				got = append(got, fmt.Sprintf("%s %v %d", m.payload, m.retain, m.qos))
			}
			want := []string{`{"value":1 true 1`, " true 1", "1 true 1", " true 1", `{"value":2 false 1`}
			if !slices.Equal(got, want) {
				t.Errorf("got %q", got)
			}
			s.alive()
			eventually(t, "no row is left", func() bool { return x.store.count("bq") == 0 })
		})
	}
}
