package broker_test

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"millrace/broker"
)

// hour is a session expiry of an hour, as a property.
var hour = []byte{0x11, 0, 0, 0x0E, 0x10}

// keeper connects with a session that outlives the connection; present says whether it had one.
func keeper(t testing.TB, addr, id, user string, version byte) (c *client, present bool) {
	t.Helper()
	h := hello{id: id, user: user, version: version, persistent: true}
	if version == 5 {
		h.properties = hour
	}
	c, p := dialAny(t, addr, h)
	if p.body[1] != 0 {
		t.Fatalf("CONNACK %v", p)
	}
	return c, p.body[0] == 1
}

// gone ends a connection and waits until the box has noticed.
func (x *box) gone(c *client, id string) {
	x.t.Helper()
	_ = c.conn.Close()
	eventually(x.t, id+" is offline", func() bool {
		for _, s := range x.Sessions() {
			if s.MQTTID == id {
				return !s.Connected
			}
		}
		return true
	})
}

// wantValues reads live messages whose values count from a up to b, and acknowledges them.
func (c *client) wantValues(a, b int) {
	c.t.Helper()
	for i := a; i < b; i++ {
		m := c.wantMsg()
		if !strings.HasPrefix(m.payload, fmt.Sprintf(`{"value":%d,`, i)) {
			c.t.Fatalf("want value %d, got %+v", i, m)
		}
		if m.qos == 1 {
			c.puback(m.id)
		}
	}
}

// restarts are the two ways in which a box may end and come back on its store.
var restarts = map[string]func(t testing.TB, x *box) *box{
	"the box goes on": func(_ testing.TB, x *box) *box { return x },
	"orderly stop":    func(t testing.TB, x *box) *box { x.stop(); return open(t, setting{store: x.store}) },
	"kill -9":         func(t testing.TB, x *box) *box { return open(t, setting{store: x.store.killed()}) },
}

// F02: what came while a session was offline arrives once and in order.
// [MQTT-3.1.2-5] [MQTT-3.1.2-23] [MQTT-3.2.2-3] [MQTT-4.5.0-1] [MQTT-3.2.2-2]
func TestSessionGoesOn(t *testing.T) {
	t.Parallel()
	for name, restart := range restarts {
		for _, v := range versions {
			t.Run(fmt.Sprintf("%s, v%d", name, v), func(t *testing.T) {
				x := open(t, setting{})
				s, present := keeper(t, x.Addr(), "s", "line", v)
				if present {
					t.Fatal("a new session is said to be present")
				}
				s.mustSub(1, full("line1/#"), "plain/#")
				p := dial(t, x.Addr(), hello{id: "p", user: "dev"})
				p.publishes(full("line1/a"), 1, values)
				s.wantValues(0, 1)
				s.alive()
				eventually(t, "the row of what is done is deleted", func() bool { return x.store.count("bq") == 0 })
				x.gone(s, "s")
				p.publishes(full("line1/a"), 500, values)
				p.pub(pub{topic: "plain/x", payload: "ordinary", qos: 1, id: 9, properties: []byte{0x26, 0, 1, 'k', 0, 1, 'v'}})
				p.ackOf(9)
				p.settled() // what another connection publishes from here on comes after it

				x = restart(t, x)
				p = dial(t, x.Addr(), hello{id: "p2", user: "dev"})
				p.publishes(full("line1/b"), 1, values)
				s, present = keeper(t, x.Addr(), "s", "line", v)
				if !present {
					t.Fatal("the session is gone")
				}
				s.wantValues(0, 500)
				m := s.wantMsg()
				if m.payload != "ordinary" || v == 5 && string(m.properties) != "\x26\x00\x01k\x00\x01v" {
					t.Fatalf("%+v", m)
				}
				s.puback(m.id)
				if m = s.wantMsg(); m.topic != full("line1/b") {
					t.Fatalf("%+v", m)
				}
				s.puback(m.id)
				s.alive()
				// The subscriptions are those of before, and UNSUBSCRIBE finds them.
				s.write(frame(0xA2, []byte{0, 3}, props(v, nil), str(full("line1/#"))))
				if a := s.want(0xB0); v == 5 && a.body[3] != 0 {
					t.Errorf("UNSUBACK %v", a)
				}
				p.publishes(full("line1/a"), 1, values)
				s.alive()
			})
		}
	}
}

// F03: what was sent and not acknowledged is sent again, with DUP and the same identifier,
// before anything else, also after a kill.
// [MQTT-3.3.1-1] [MQTT-4.4.0-1] [MQTT-4.6.0-1] [MQTT-4.3.3-6]
func TestFlightsAreSentAgain(t *testing.T) {
	t.Parallel()
	for name, restart := range restarts {
		for qos := byte(1); qos <= 2; qos++ {
			t.Run(fmt.Sprintf("%s, QoS %d", name, qos), func(t *testing.T) {
				x := open(t, setting{broker: func(o *broker.Options) { o.LiveQoS = 2 }})
				s, _ := keeper(t, x.Addr(), "s", "line", 5)
				s.mustSub(qos, full("line1/#"))
				p := dial(t, x.Addr(), hello{id: "p", user: "dev"})
				p.publishes(full("line1/a"), 5, values)
				var sent []msg
				for range 5 {
					m := s.wantMsg()
					if m.dup || m.qos != qos {
						t.Fatalf("%+v", m)
					}
					sent = append(sent, m)
				}
				// The third is done; of QoS 2, the second is half done.
				done := map[uint16]bool{sent[2].id: true}
				if qos == 1 {
					s.puback(sent[2].id)
				} else {
					s.receive(sent[2].id)
					s.complete(sent[2].id)
					s.receive(sent[1].id)
				}
				s.alive()
				time.Sleep(3 * broker.JanitorEvery) // a flight of QoS 1 is noted within that
				x.gone(s, "s")
				p.publishes(full("line1/b"), 1, values)
				x = restart(t, x)
				s, _ = keeper(t, x.Addr(), "s", "line", 5)
				for i, want := range sent {
					if done[want.id] {
						continue
					}
					if qos == 2 && i == 1 {
						if r := s.want(0x62); binary.BigEndian.Uint16(r.body) != want.id {
							t.Fatalf("PUBREL %v, want of %d", r, want.id)
						}
						continue
					}
					m := s.wantMsg()
					if !m.dup || m.id != want.id || m.payload != want.payload {
						t.Fatalf("%d: %+v, want %+v again", i, m, want)
					}
				}
				if m := s.wantMsg(); m.dup || m.topic != full("line1/b") {
					t.Fatalf("%+v", m)
				}
				s.alive()
			})
		}
	}
}

// receive sends a PUBREC and wants the PUBREL; complete sends the PUBCOMP.
func (c *client) receive(id uint16) {
	c.t.Helper()
	c.write([]byte{0x50, 2, byte(id >> 8), byte(id)})
	if p := c.want(0x62); binary.BigEndian.Uint16(p.body) != id || len(p.body) > 2 && p.body[2] != 0 {
		c.t.Fatalf("PUBREL %v, want of %d", p, id)
	}
}

func (c *client) complete(id uint16) { c.write([]byte{0x70, 2, byte(id >> 8), byte(id)}) }

// exactly publishes at QoS 2 up to the PUBREC.
func (c *client) exactly(p pub) (code byte) {
	c.t.Helper()
	p.qos = 2
	c.pub(p)
	r := c.want(0x50)
	if binary.BigEndian.Uint16(r.body) != p.id {
		c.t.Fatalf("PUBREC %v, want of %d", r, p.id)
	}
	if len(r.body) > 2 {
		code = r.body[2]
	}
	return code
}

// released sends a PUBREL and gives the code of the PUBCOMP.
func (c *client) released(id uint16) (code byte) {
	c.t.Helper()
	c.write([]byte{0x62, 2, byte(id >> 8), byte(id)})
	r := c.want(0x70)
	if binary.BigEndian.Uint16(r.body) != id {
		c.t.Fatalf("PUBCOMP %v, want of %d", r, id)
	}
	if len(r.body) > 2 {
		code = r.body[2]
	}
	return code
}

// A QoS 2 publish is stored once, however often it is sent before its PUBREL, and also when the box is
// killed between storing and acknowledging.
// [MQTT-4.3.3-8] [MQTT-4.3.3-9] [MQTT-4.3.3-10] [MQTT-4.3.3-11] [MQTT-4.3.3-12] [MQTT-3.5.2-1] [MQTT-3.7.2-1] [MQTT-4.3.3-2]
func TestQoS2IsStoredOnce(t *testing.T) {
	for name, restart := range restarts {
		for _, v := range versions {
			t.Run(fmt.Sprintf("%s, v%d", name, v), func(t *testing.T) {
				x := open(t, setting{})
				c, _ := keeper(t, x.Addr(), "c", "line", v)
				one := pub{topic: full("line1/a"), payload: "1", id: 5}
				for range 3 {
					if code := c.exactly(one); code != 0 {
						t.Fatalf("%#x", code)
					}
					one.dup = true
				}
				x.gone(c, "c")
				before := x.store.stored()
				x = restart(t, x)
				c, present := keeper(t, x.Addr(), "c", "line", v)
				if !present {
					t.Fatal("the session is gone")
				}
				if code := c.exactly(one); code != 0 {
					t.Fatalf("%#x", code)
				}
				if n := x.store.stored(); before != 1 || n != 1 {
					t.Errorf("%d, then %d stored", before, n)
				}
				if code := c.released(5); code != 0 {
					t.Errorf("PUBCOMP %#x", code)
				}
				want := byte(0)
				if v == 5 {
					want = 0x92
				}
				if code := c.released(5); code != want {
					t.Errorf("PUBCOMP of a released identifier: %#x", code)
				}
				one.dup = false
				c.exactly(one) // a new message
				if n := x.store.stored(); n != 2 {
					t.Errorf("%d stored", n)
				}
				if code := c.exactly(pub{topic: full("line2/a"), payload: "1", id: 6}); v == 5 && code != 0x87 || v == 4 && code != 0 {
					t.Errorf("refused: %#x", code)
				}
				if v == 5 { // a refusal frees the identifier
					if code := c.exactly(pub{topic: full("line1/a"), payload: "2", id: 6}); code != 0 || x.store.stored() != 3 {
						t.Errorf("%#x, %d stored", code, x.store.stored())
					}
				}
			})
		}
	}
}

// More unfinished QoS 2 publishes than Receive Maximum end the connection with 0x93.
func TestQoS2ReceiveMaximum(t *testing.T) {
	x := open(t, setting{broker: func(o *broker.Options) { o.Limits.ReceiveMaximum = 10 }})
	c := dial(t, x.Addr(), hello{id: "c", user: "dev"})
	for i := range 10 {
		c.exactly(pub{topic: full("a"), payload: "1", id: uint16(i + 1)})
	}
	c.exactly(pub{topic: full("a"), payload: "1", id: 3, dup: true})
	c.pub(pub{topic: full("a"), payload: "1", id: 11, qos: 2})
	c.disconnected(0x93)
	if n := x.store.stored(); n != 10 {
		t.Errorf("%d stored", n)
	}
}

// Both halves of a QoS 2 delivery, and unknown identifiers: they open nothing and raise no quota.
// [MQTT-4.3.3-1] [MQTT-4.3.3-2] [MQTT-4.3.3-3] [MQTT-4.3.3-4] [MQTT-4.3.3-5] [MQTT-3.6.2-1]
func TestQoS2Outbound(t *testing.T) {
	x := open(t, setting{broker: func(o *broker.Options) { o.LiveQoS = 2 }})
	s := dial(t, x.Addr(), hello{id: "s", user: "sub", properties: []byte{0x21, 0, 2}})
	s.mustSub(2, full("a"))
	p := dial(t, x.Addr(), hello{id: "p", user: "dev"})
	p.publishes(full("a"), 4, values)
	a, b := s.wantMsg(), s.wantMsg()
	s.write([]byte{0x50, 2, 0x99, 0x99})
	if r := s.want(0x62); len(r.body) != 3 || r.body[2] != 0x92 {
		t.Errorf("PUBREL for an unknown identifier: %v", r)
	}
	s.complete(a.id) // before its PUBREC: nothing
	s.puback(a.id)   // not a packet of QoS 2: nothing
	s.alive()
	s.receive(a.id)
	s.complete(a.id)
	c := s.wantMsg()
	s.write([]byte{0x50, 3, byte(b.id >> 8), byte(b.id), 0x97}) // the client refuses it: done
	d := s.wantMsg()
	for i, m := range []msg{a, b, c, d} {
		if m.qos != 2 || !strings.HasPrefix(m.payload, fmt.Sprintf(`{"value":%d,`, i)) {
			t.Errorf("%+v", m)
		}
	}
	s.alive()
}

// F05: the queue of an offline session is bounded in count; the oldest goes and is counted.
func TestOfflineQueueIsBounded(t *testing.T) {
	limit := func(o *broker.Options) { o.Limits.MaxSubscriberQueue = 100 }
	x := open(t, setting{broker: limit})
	s, _ := keeper(t, x.Addr(), "s", "sub", 5)
	s.mustSub(1, full("a"))
	x.gone(s, "s")
	p := dial(t, x.Addr(), hello{id: "p", user: "dev"})
	p.publishes(full("a"), 500, values)
	p.settled()
	if n := x.metric("millrace_broker_messages_dropped_total", "queue_full"); n != 400 {
		t.Errorf("%v dropped", n)
	}
	eventually(t, "the rows of dropped messages are deleted", func() bool { return x.store.count("bq") == 100 })
	x = open(t, setting{store: x.store.killed(), broker: limit})
	s, _ = keeper(t, x.Addr(), "s", "sub", 5)
	s.wantValues(400, 500)
	s.alive()
	eventually(t, "the rows of delivered messages are deleted", func() bool { return x.store.count("bq") == 0 && x.store.count("bf") == 0 })
}

// A session belongs to the API client that made it, connected or not (contract section 6).
func TestSessionOfAnotherClient(t *testing.T) {
	x := open(t, setting{})
	s, _ := keeper(t, x.Addr(), "s", "sub", 5)
	x.gone(s, "s")
	for _, clean := range []bool{true, false} {
		if _, p := dialAny(t, x.Addr(), hello{id: "s", user: "dev", persistent: !clean}); p.body[1] != 0x85 {
			t.Errorf("v5, clean start %v: %v", clean, p)
		}
		if _, p := dialAny(t, x.Addr(), hello{id: "s", user: "dev", version: 4, persistent: !clean}); p.body[1] != 2 {
			t.Errorf("v3.1.1, clean session %v: %v", clean, p)
		}
	}
	if _, present := keeper(t, x.Addr(), "s", "sub", 5); !present {
		t.Error("the session was lost to another client")
	}
}

// Grants are checked again for what was queued, and for what was on its way (security row 17).
func TestGrantsAtResume(t *testing.T) {
	x := open(t, setting{})
	x.add("late", "allow subscribe uns #")
	s, _ := keeper(t, x.Addr(), "s", "late", 5)
	s.mustSub(1, full("#"))
	p := dial(t, x.Addr(), hello{id: "p", user: "dev"})
	p.publishes(full("secret"), 2, values)
	s.wantMsg()
	s.wantMsg() // both are on their way
	x.gone(s, "s")
	p.publishes(full("secret"), 3, values)
	p.publishes(full("open"), 1, values)
	x.grant("late", "allow subscribe uns open")
	s, _ = keeper(t, x.Addr(), "s", "late", 5)
	if m := s.wantMsg(); m.topic != full("open") {
		t.Errorf("delivered without a grant: %+v", m)
	}
	s.alive()
	if n := x.metric("millrace_broker_messages_dropped_total", "not_permitted"); n != 5 {
		t.Errorf("%v dropped", n)
	}
}

// Clean start, expiry, and its change at DISCONNECT.
// [MQTT-4.1.0-1] [MQTT-4.1.0-2]
func TestSessionExpiry(t *testing.T) {
	x := open(t, setting{})
	s, _ := keeper(t, x.Addr(), "s", "sub", 5)
	s.mustSub(1, full("a"))
	x.gone(s, "s")
	x.clock.advance(59 * time.Minute)
	time.Sleep(3 * broker.JanitorEvery)
	if s, present := keeper(t, x.Addr(), "s", "sub", 5); !present {
		t.Fatal("gone before its time")
	} else {
		s.write(frame(0xE0, []byte{0, 5}, []byte{0x11, 0, 0, 0, 10})) // ten seconds from now
		x.gone(s, "s")
	}
	x.clock.advance(11 * time.Second)
	eventually(t, "the session has ended", func() bool { return len(x.Sessions()) == 0 && x.IndexSize() == 0 })
	eventually(t, "no row is left", func() bool { return x.store.count("bs")+x.store.count("bu")+x.store.count("bq") == 0 })

	s, _ = keeper(t, x.Addr(), "s", "sub", 5)
	s.mustSub(1, full("a"))
	x.gone(s, "s")
	if _, p := dialAny(t, x.Addr(), hello{id: "s", user: "sub", properties: hour}); p.body[0] != 0 {
		t.Error("clean start found a session")
	}
	c := dial(t, x.Addr(), hello{id: "short", user: "sub"})
	c.write(frame(0xE0, []byte{0, 5}, []byte{0x11, 0, 0, 0, 10}))
	c.disconnected(0x82)
}

// A takeover keeps the session: nothing is lost between the two connections [MQTT-3.1.4-3].
func TestTakeoverKeepsTheSession(t *testing.T) {
	x := open(t, setting{})
	s, _ := keeper(t, x.Addr(), "s", "sub", 5)
	s.mustSub(1, full("a"))
	p := dial(t, x.Addr(), hello{id: "p", user: "dev"})
	for i := range 20 {
		p.publishes(full("a"), 1, func(int) string { return fmt.Sprintf(`{"value":%d}`, i) })
		next, present := keeper(t, x.Addr(), "s", "sub", 5)
		if !present {
			t.Fatal("the session is gone")
		}
		s.disconnected(0x8E)
		s = next
		m := s.wantMsg()
		if !strings.HasPrefix(m.payload, fmt.Sprintf(`{"value":%d,`, i)) {
			t.Fatalf("%+v", m)
		}
		s.puback(m.id)
		s.alive()
	}
}

// A retransmission after a kill between storing and acknowledging is stored once (contract section 4).
func TestRetransmissionAfterKill(t *testing.T) {
	x := open(t, setting{})
	c, _ := keeper(t, x.Addr(), "c", "line", 4)
	one := pub{topic: full("line1/a"), payload: "1", qos: 1, id: 5}
	c.pub(one)
	c.ackOf(5)
	x = open(t, setting{store: x.store.killed()})
	c, present := keeper(t, x.Addr(), "c", "line", 4)
	if !present {
		t.Fatal("the session is gone")
	}
	one.dup = true
	c.pub(one)
	c.ackOf(5)
	if n := x.store.stored(); n != 1 {
		t.Errorf("%d stored", n)
	}
	one.payload = "2"
	c.pub(one)
	c.ackOf(5)
	if n := x.store.stored(); n != 2 {
		t.Errorf("%d stored", n)
	}
}
