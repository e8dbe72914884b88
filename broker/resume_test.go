package broker_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"testing"

	"millrace/broker"
)

// An hour's session.
var forAnHour = []byte{0x11, 0, 0, 0x0E, 0x10}

// publishAll publishes numbered values with QoS 1 and has them acknowledged.
func (c *client) publishAll(topic string, from, to int) {
	c.t.Helper()
	for i := from; i < to; i++ {
		c.pub(pub{topic: topic, payload: values(i), qos: 1, id: uint16(i%60000 + 1)})
		if code, reason := c.ackOf(uint16(i%60000 + 1)); code != 0 {
			c.t.Fatalf("refused: %02x %s", code, reason)
		}
	}
}

// A client that comes back and takes fewer at once than before gets what is on its way piece by piece, in order.
func TestResendKeepsToReceiveMaximum(t *testing.T) {
	x := open(t, setting{})
	h := hello{id: "s", user: "sub", persistent: true, properties: forAnHour}
	s := dial(t, x.Addr(), h)
	s.mustSub(1, full("#"))
	p := dial(t, x.Addr(), hello{id: "p", user: "dev"})
	p.publishAll(full("a"), 0, 20)
	var ids []uint16
	for range 20 {
		ids = append(ids, s.wantMsg().id)
	}
	h.properties = slices.Concat(forAnHour, []byte{0x21, 0, 3})
	s = dial(t, x.Addr(), h)
	p.publishAll(full("a"), 20, 21)
	for i := range 3 {
		if m := s.wantMsg(); m.id != ids[i] || !m.dup {
			t.Fatalf("message %d is %+v", i, m)
		}
	}
	s.alive() // nothing beyond
	for i := range 17 {
		s.puback(ids[i])
		if m := s.wantMsg(); m.id != ids[i+3] || !m.dup {
			t.Fatalf("message %d is %+v", i+3, m)
		}
	}
	s.puback(ids[17])
	if m := s.wantMsg(); m.dup {
		t.Fatalf("the new one is %+v", m)
	}
}

func (m *memory) failing(on bool) {
	if !on {
		m.onAppend(nil)
		return
	}
	m.onAppend(func(context.Context, int) error {
		m.failed.Add(1)
		return errors.New("no space")
	})
}

// What the janitor cannot write is written later: a row left for ever would be delivered again after a restart.
func TestSettledRowsGoWhenTheStoreIsBack(t *testing.T) {
	x := open(t, setting{})
	s := dial(t, x.Addr(), hello{id: "s", user: "sub", persistent: true, properties: forAnHour})
	s.mustSub(1, full("#"))
	p := dial(t, x.Addr(), hello{id: "p", user: "dev"})
	p.publishAll(full("a"), 0, 5)
	x.store.failing(true)
	failed := x.store.failed.Load()
	for range 5 {
		s.puback(s.wantMsg().id)
	}
	eventually(t, "the janitor has failed twice", func() bool { return x.store.failed.Load() >= failed+2 })
	x.store.failing(false)
	eventually(t, "no message is left", func() bool { return x.store.count("bq")+x.store.count("bf") == 0 })
}

// Neither SUBACK nor CONNACK promises what is not stored.
func TestNothingUnstoredIsPromised(t *testing.T) {
	x := open(t, setting{})
	h := hello{id: "s", user: "sub", persistent: true, properties: forAnHour}
	s := dial(t, x.Addr(), h)
	x.store.failing(true)
	if codes := s.sub(1, full("#")); codes[0] != 0x80 {
		t.Fatalf("SUBACK %x", codes)
	}
	h.id = "t"
	if _, p := dialAny(t, x.Addr(), h); p.body[1] != 0x89 {
		t.Fatalf("CONNACK %v", p)
	}
	x.store.failing(false)
	s.mustSub(1, full("#"))
}

// A PUBREL whose commit fails is not answered, and its identifier still belongs to the message that is stored.
func TestUnstoredPubrelKeepsItsIdentifier(t *testing.T) {
	x := open(t, setting{})
	h := hello{id: "s", user: "dev", persistent: true, properties: forAnHour}
	c := dial(t, x.Addr(), h)
	m := pub{topic: full("a"), payload: "1", qos: 2, id: 5}
	c.pub(m)
	c.want(0x50)
	x.store.failing(true)
	c.write([]byte{0x62, 2, 0, 5})
	c.disconnected(0x80)
	x.store.failing(false)
	c = dial(t, x.Addr(), h)
	m.dup = true
	c.pub(m)
	c.want(0x50)
	c.write([]byte{0x62, 2, 0, 5})
	if p := c.want(0x70); len(p.body) > 2 && p.body[2] != 0 {
		t.Fatalf("PUBCOMP %v", p)
	}
	if n := x.store.stored(); n != 1 {
		t.Fatalf("stored %d times", n)
	}
}

// The identifier of a refused QoS 2 publish may be used again at once, and the new message survives a kill.
func TestRefusedIdentifierIsFreeAfterKill(t *testing.T) {
	x := open(t, setting{})
	h := hello{id: "s", user: "dev", persistent: true, properties: forAnHour}
	c := dial(t, x.Addr(), h)
	c.pub(pub{topic: full("a"), payload: "{", qos: 2, id: 5})
	if p := c.want(0x50); len(p.body) < 3 || p.body[2] != 0x99 {
		t.Fatalf("PUBREC %v", p)
	}
	y := restarts["kill -9"](t, x)
	c = dial(t, y.Addr(), h)
	for range 2 {
		c.pub(pub{topic: full("a"), payload: "2", qos: 2, id: 5})
		c.want(0x50)
	}
	if n := y.store.stored(); n != 1 {
		t.Fatalf("stored %d times", n)
	}
}

// A rotated secret does not make an offline session deaf.
func TestOfflineSessionSurvivesARotation(t *testing.T) {
	x := open(t, setting{})
	h := hello{id: "s", user: "sub", persistent: true, properties: forAnHour}
	s := dial(t, x.Addr(), h)
	s.mustSub(1, full("#"))
	x.gone(s, "s")
	if _, err := x.book.Rotate("sub", secret+"x"); err != nil {
		t.Fatal(err)
	}
	p := dial(t, x.Addr(), hello{id: "p", user: "dev"})
	n := 0
	eventually(t, "a message is kept for it", func() bool {
		p.publishAll(full("a"), n, n+1)
		n++
		return x.store.count("bq") > 0
	})
}

// Sessions that wait for their clients are bounded.
func TestSessionsAreBounded(t *testing.T) {
	t.Parallel()
	x := open(t, setting{broker: func(o *broker.Options) { o.Limits.MaxClients = 10 }})
	for i := range 1000 {
		h := hello{id: values(i), user: "sub", persistent: true, properties: forAnHour}
		x.gone(dial(t, x.Addr(), h), h.id)
	}
	if _, p := dialAny(t, x.Addr(), hello{id: "more", user: "sub", persistent: true, properties: forAnHour}); p.body[1] != 0x97 {
		t.Fatalf("CONNACK %v", p)
	}
}

// Whoever tries a client identifier that another API client has is refused without getting in its owner's way: the owner, coming
// back to its session at the same moments, is never taken for the stranger.
func TestStrangersDoNotHoldAnIdentifier(t *testing.T) {
	x := open(t, setting{})
	mine := hello{id: "mine", user: "dev", persistent: true, properties: hour}
	x.gone(dial(t, x.Addr(), mine), "mine")
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			c, err := net.Dial("tcp", x.Addr())
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = c.Write(hello{id: "mine", user: "line"}.bytes())
			if p, err := readPacket(c); err != nil || p.body[1] != 0x85 {
				t.Errorf("the stranger got %v, error %v", p, err)
			}
			_ = c.Close()
		}
	}()
	for range 200 {
		c, p := dialAny(t, x.Addr(), mine)
		if p.body[1] != 0 {
			t.Errorf("the owner is refused: %02x", p.body[1])
			break
		}
		x.gone(c, "mine")
	}
	close(stop)
	<-done
}
