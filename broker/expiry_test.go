package broker_test

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"
)

// expiry is a Message Expiry Interval.
func expiry(seconds byte) []byte { return []byte{0x02, 0, 0, 0, seconds} }

// left is what a delivery says is left of its time, -1: it has no end.
func left(m msg) int {
	if len(m.properties) == 5 && m.properties[0] == 0x02 {
		return int(binary.BigEndian.Uint32(m.properties[1:]))
	}
	return -1
}

// A message lives as long as its publisher said, to the millisecond: one of a second is not gone with the turn of a second,
// in the queue of a client, of a session that is offline, and among the retained ones, here and after a restart.
func TestExpiryIsExact(t *testing.T) {
	for _, passed := range []time.Duration{500 * time.Millisecond, 1100 * time.Millisecond} {
		for name, restart := range restarts {
			t.Run(fmt.Sprintf("%s, after %v", name, passed), func(t *testing.T) {
				x := open(t, setting{})
				away, _ := keeper(t, x.Addr(), "away", "sub", 5)
				away.mustSub(1, "plain/#")
				x.gone(away, "away")
				s := dial(t, x.Addr(), hello{id: "s", user: "sub", properties: []byte{0x21, 0, 1}})
				s.mustSub(1, "plain/#")
				p := dial(t, x.Addr(), hello{id: "p", user: "dev"})
				p.send(pub{topic: "plain/first", payload: "first"})
				first := s.wantMsg()
				x.clock.stand(x.clock.now().Truncate(time.Second).Add(1900 * time.Millisecond)) // where counting in whole seconds goes wrong
				p.send(pub{topic: "plain/x", payload: "brief", retain: true, properties: expiry(1)})
				p.send(pub{topic: "plain/x2", payload: "next"})
				p.settled()
				x.clock.advance(passed)
				now := x.clock.now()
				want := func(c *client, payload string) {
					t.Helper()
					if m := c.only(payload); payload == "brief" && left(m) != 1 {
						t.Errorf("%+v", m)
					}
				}
				s.puback(first.id)
				if passed < time.Second {
					want(s, "brief")
				}
				want(s, "next")
				x = restart(t, x)
				x.clock.stand(now)
				away, _ = keeper(t, x.Addr(), "away", "sub", 5)
				away.only("first")
				if passed < time.Second {
					want(away, "brief")
				}
				want(away, "next")
				late := dial(t, x.Addr(), hello{id: "late", user: "sub"})
				late.mustSub(0, "plain/#")
				if passed < time.Second {
					want(late, "brief")
				}
				late.alive()
			})
		}
	}
}

// An interval of 0 is over when the message comes: it is acknowledged, counted, goes to nobody and is not retained; what was
// retained before is gone. A stored topic takes the value all the same, since its history has no expiry.
func TestExpiryOfNothing(t *testing.T) {
	x := open(t, setting{})
	s := dial(t, x.Addr(), hello{id: "s", user: "sub"})
	s.mustSub(1, "plain/#", full("#"))
	p := dial(t, x.Addr(), hello{id: "p", user: "dev"})
	p.send(pub{topic: "plain/x", payload: "before", retain: true})
	s.only("before")
	p.pub(pub{topic: "plain/x", payload: "never", properties: expiry(0)})
	p.send(pub{topic: "plain/x", payload: "never", retain: true, properties: expiry(0)})
	if code := p.exactly(pub{topic: "plain/x", payload: "never", id: 4, properties: expiry(0)}); code != 0 {
		t.Errorf("QoS 2: %02x", code)
	}
	p.released(4)
	p.send(pub{topic: full("line1/x"), payload: "7", properties: expiry(0)})
	if m := s.wantMsg(); m.topic != full("line1/x") || left(m) != -1 {
		t.Errorf("%+v", m)
	} else {
		s.puback(m.id)
	}
	if n := x.metric("millrace_broker_messages_dropped_total", "expired"); n != 3 {
		t.Errorf("%v expired", n)
	}
	if n := x.store.stored(); n != 1 {
		t.Errorf("%d values are stored", n)
	}
	late := dial(t, x.Addr(), hello{id: "late", user: "sub"})
	late.mustSub(0, "plain/#")
	late.alive()
	s.alive()
}

// The expiry of a will counts from when the will is published, not from its CONNECT or the end of its connection; retained,
// it goes on counting there.
func TestExpiryOfWill(t *testing.T) {
	for _, late := range []int{15, 25} {
		x := open(t, setting{})
		away, _ := keeper(t, x.Addr(), "away", "sub", 5)
		away.mustSub(1, "plain/#")
		x.gone(away, "away")
		after, flags := willOf(5, "plain/will", "gone", 1, true, append([]byte{0x18, 0, 0, 0, 10}, expiry(20)...))
		c := dial(t, x.Addr(), hello{id: "w", user: "dev", flags: flags, afterID: after, properties: []byte{0x11, 0, 0, 0, 100}})
		x.clock.advance(30 * time.Second) // longer than its expiry
		x.gone(c, "w")
		x.clock.advance(11 * time.Second)
		s := dial(t, x.Addr(), hello{id: "s", user: "sub"})
		s.mustSub(1, "plain/#")
		if m := s.only("gone"); left(m) < 19 || left(m) > 20 {
			t.Errorf("published with %d s left", left(m))
		}
		x.clock.advance(time.Duration(late) * time.Second)
		away, _ = keeper(t, x.Addr(), "away", "sub", 5)
		reader := dial(t, x.Addr(), hello{id: "reader", user: "sub"})
		reader.mustSub(0, "plain/#")
		if late < 20 {
			for _, c := range []*client{away, reader} {
				if m := c.only("gone"); left(m) < 3 || left(m) > 5 {
					t.Errorf("%d s left", left(m))
				}
			}
		}
		away.alive()
		reader.alive()
	}
}

// Rows that an earlier box wrote, with their expiry in seconds, are read as they were meant.
func TestExpiryOfOldRows(t *testing.T) {
	x := open(t, setting{})
	away, _ := keeper(t, x.Addr(), "away", "sub", 5)
	away.mustSub(1, "plain/#")
	x.gone(away, "away")
	p := dial(t, x.Addr(), hello{id: "p", user: "dev"})
	p.send(pub{topic: "plain/x", payload: "kept", retain: true, properties: expiry(100)})
	store := x.store.killed()
	converted := 0
	for key, row := range store.rows {
		switch key[:2] {
		case "br":
			ms := binary.BigEndian.Uint64(row[2:])
			old := append([]byte{1, row[1]}, binary.BigEndian.AppendUint64(nil, ms/1000)...)
			store.rows[key] = append(old, row[10:]...)
			converted++
		case "bq":
			ms, n := binary.Uvarint(row[2:])
			old := binary.AppendUvarint([]byte{1, row[1]}, ms/1000)
			store.rows[key] = append(old, row[2+n:]...)
			converted++
		}
	}
	if converted != 2 {
		t.Fatalf("%d rows", converted)
	}
	x = open(t, setting{store: store})
	away, _ = keeper(t, x.Addr(), "away", "sub", 5)
	reader := dial(t, x.Addr(), hello{id: "reader", user: "sub"})
	reader.mustSub(0, "plain/#")
	for _, c := range []*client{away, reader} {
		if m := c.only("kept"); left(m) < 90 || left(m) > 100 {
			t.Errorf("%d s left", left(m))
		}
	}
}

// What waits for the window and has expired meanwhile holds up nobody: a message of QoS 0 behind it, which needs no window, comes
// without another acknowledgement.
func TestExpiredHoldsUpNothing(t *testing.T) {
	x := open(t, setting{})
	s := dial(t, x.Addr(), hello{id: "s", user: "sub", properties: []byte{0x21, 0, 1}})
	s.mustSub(1, "plain/#")
	p := dial(t, x.Addr(), hello{id: "p", user: "dev"})
	p.send(pub{topic: "plain/first", payload: "first"})
	first := s.wantMsg()
	x.clock.stand(x.clock.now())
	p.send(pub{topic: "plain/x", payload: "brief", properties: expiry(1)})
	p.settled()
	time.Sleep(10 * time.Millisecond) // deliveries are gathered for 1 ms: by now the queue was looked at and found to wait
	x.clock.advance(2 * time.Second)
	p.pub(pub{topic: "plain/x", payload: "now"})
	s.only("now")
	s.puback(first.id)
	s.alive()
}
