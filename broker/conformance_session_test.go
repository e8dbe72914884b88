package broker_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"millrace/broker"
)

// Sessions that outlive their connection, and QoS 2.

// keep connects with a session that outlives the connection; present says whether there was one.
func (r *rig) keep(id string, more ...byte) (c *client, present bool) {
	r.t.Helper()
	h := hello{id: id, persistent: true}
	if r.version == 5 {
		h.properties = join(hour, more)
	}
	c, p := r.connect(h)
	if p.body[1] != 0 || p.body[0] > 1 {
		r.t.Fatalf("CONNACK %v", p)
	}
	return c, p.body[0] == 1
}

// Without clean start a session is kept [MQTT-3.1.2-23] and goes on [MQTT-3.1.2-4] [MQTT-3.1.2-5], which session present says
// [MQTT-3.2.2-2] [MQTT-3.2.2-3], or begins anew [MQTT-3.1.2-6]; messages that came meanwhile are added to it [MQTT-4.5.0-1]. What
// was sent and not acknowledged is sent again, first, in order, with DUP and its identifier [MQTT-4.4.0-1] [MQTT-3.3.1-1]
// [MQTT-4.6.0-1], and at no other time.
func TestMQTT_4_4_0_1(t *testing.T) {
	conform(t, func(r *rig) {
		s, present := r.keep("s")
		if present {
			r.t.Error("a new session is said to be there")
		}
		s.mustSub(1, "plain/#")
		p := r.named("p")
		var sent []msg
		for i := range 3 {
			p.send(pub{topic: "plain/x", payload: fmt.Sprint(i)})
			sent = append(sent, s.wantMsg())
		}
		r.clock.advance(10 * time.Minute)
		s.alive() // nothing is sent again
		s.puback(sent[1].id)
		s.alive()
		r.gone(s, "s")
		p.pub(pub{topic: "plain/x", payload: "QoS 0"})
		p.send(pub{topic: "plain/x", payload: "meanwhile"})
		s, present = r.keep("s")
		if !present {
			r.t.Error("the session is not there")
		}
		for _, want := range []msg{sent[0], sent[2]} {
			if m := s.wantMsg(); !m.dup || m.id != want.id || m.payload != want.payload || m.topic != want.topic || m.qos != 1 {
				r.t.Errorf("%+v, want %+v again", m, want)
			}
		}
		m := s.wantMsg()
		for m.payload == "QoS 0" {
			m = s.wantMsg()
		}
		if m.payload != "meanwhile" || m.dup {
			r.t.Errorf("%+v", m)
		}
		for _, id := range []uint16{sent[0].id, sent[2].id, m.id} {
			s.puback(id)
		}
		s.alive()
		r.gone(s, "s")
		s, _ = r.keep("s")
		s.alive() // nothing is open any more
	})
}

// A session lasts while its connection does, whatever its expiry [MQTT-4.1.0-1] [MQTT-4.1.0-2], and is discarded when that has
// passed after it [MQTT-4.1.0-2].
func TestMQTT_4_1_0_2(t *testing.T) {
	t.Parallel()
	conform(t, func(r *rig) {
		s, _ := r.keep("s")
		s.mustSub(1, "plain/#")
		r.clock.advance(48 * time.Hour)
		time.Sleep(3 * broker.JanitorEvery) // rounds of the one who ends sessions
		s.send(pub{topic: "plain/x", payload: "x"})
		s.only("x")
		r.gone(s, "s")
		r.clock.advance(25 * time.Hour)
		eventually(r.t, "the session has ended", func() bool { return len(r.Sessions()) == 0 })
		if _, present := r.keep("s"); present {
			r.t.Error("the session is still there")
		}
		if n := r.IndexSize(); n != 0 {
			r.t.Errorf("%d entries left in the index", n)
		}
	})
}

// A message of QoS 2 is received once: PUBREC [MQTT-3.3.4-1] [MQTT-4.3.3-8] [MQTT-2.2.1-5] [MQTT-2.3.1-6], the same again for whatever
// comes with the identifier before PUBREL, and it goes to nobody [MQTT-4.3.3-10] [MQTT-4.3.3-2]; PUBREL gets PUBCOMP
// [MQTT-4.3.3-11]; then the identifier means a new message [MQTT-4.3.3-12], as it does after a PUBREC that refuses
// [MQTT-4.3.3-9] with a code of the table [MQTT-3.5.2-1] [MQTT-3.7.2-1].
func TestMQTT_4_3_3_8(t *testing.T) {
	conform(t, func(r *rig) {
		s := r.named("s")
		s.mustSub(2, "plain/#")
		p, _ := r.keep("p")
		for round := range 2 {
			payload := fmt.Sprint("round ", round)
			if code := p.exactly(pub{topic: "plain/x", payload: payload, id: 700}); code != 0 {
				r.t.Fatalf("PUBREC %02x", code)
			}
			m := s.wantMsg()
			if m.payload != payload || m.qos != 2 || m.dup {
				r.t.Fatalf("%+v", m)
			}
			s.receive(m.id)
			s.complete(m.id)
			p.exactly(pub{topic: "plain/x", payload: payload, id: 700, dup: true})
			p.exactly(pub{topic: "plain/x", payload: payload, id: 700})
			s.alive()
			if round == 1 { // over a reconnection too
				r.gone(p, "p")
				p, _ = r.keep("p")
				p.exactly(pub{topic: "plain/x", payload: payload, id: 700, dup: true})
				s.alive()
			}
			if code := p.released(700); code != 0 {
				r.t.Errorf("PUBCOMP %02x", code)
			}
		}
		if code := p.released(700); r.version == 5 && code != 0x92 {
			r.t.Errorf("PUBCOMP of nothing: %02x", code)
		}
		s.alive()
		line := r.dial(hello{id: "line", user: "line"})
		want := map[byte]byte{4: 0, 5: 0x87}[r.version]
		if code := line.exactly(pub{topic: "else/x", payload: "x", id: 3}); code != want {
			r.t.Errorf("PUBREC %02x, want %02x", code, want)
		}
		if r.version == 4 {
			line.released(3)
		}
		if code := line.exactly(pub{topic: "plain/y", payload: "new", id: 3}); code != 0 {
			r.t.Errorf("PUBREC %02x", code)
		}
		if m := s.wantMsg(); m.payload != "new" {
			r.t.Errorf("%+v", m)
		}
	})
}

// A message of QoS 2 is sent under an unused identifier with DUP 0 [MQTT-4.3.3-1] [MQTT-4.3.3-2], open until its PUBREC
// [MQTT-4.3.3-3], which PUBREL answers with the same identifier [MQTT-4.3.3-4] [MQTT-2.2.1-5] and code [MQTT-3.6.2-1], which is open until
// its PUBCOMP [MQTT-4.3.3-5]; after PUBREL the message is not sent again, PUBREL is [MQTT-4.3.3-6] [MQTT-4.4.0-1].
func TestMQTT_4_3_3_1(t *testing.T) {
	conform(t, func(r *rig) {
		s, _ := r.keep("s")
		s.mustSub(2, "plain/#")
		p := r.named("p")
		for i := range 3 {
			p.exactly(pub{topic: "plain/x", payload: fmt.Sprint(i), id: uint16(i + 1)})
			p.released(uint16(i + 1))
		}
		a, b, c := s.wantMsg(), s.wantMsg(), s.wantMsg()
		if a.id == b.id || b.id == c.id || a.id == c.id || a.id == 0 || a.dup || b.dup || c.dup || a.qos != 2 {
			r.t.Errorf("%+v %+v %+v", a, b, c)
		}
		s.receive(b.id) // half done
		s.receive(c.id)
		s.complete(c.id)
		s.alive()
		r.gone(s, "s")
		s, _ = r.keep("s")
		if m := s.wantMsg(); !m.dup || m.id != a.id || m.payload != "0" {
			r.t.Errorf("%+v, want %+v again", m, a)
		}
		if rel := s.want(0x62); binary.BigEndian.Uint16(rel.body) != b.id {
			r.t.Errorf("PUBREL %v, want of %d", rel, b.id)
		}
		s.alive()
		s.receive(a.id)
		s.complete(a.id)
		s.complete(b.id)
		r.gone(s, "s")
		s, _ = r.keep("s")
		s.alive()
	})
}

// PUBREC comes in the order of the messages [MQTT-4.6.0-3], PUBREL in that of the PUBREC [MQTT-4.6.0-4].
func TestMQTT_4_6_0_3(t *testing.T) {
	conform(t, func(r *rig) {
		c := r.named("c")
		c.mustSub(2, "plain/#")
		p := r.named("p")
		ids := []uint16{9, 3, 500, 1, 65535}
		var all []byte
		for _, id := range ids {
			all = append(all, pub{topic: "plain/x", payload: "x", qos: 2, id: id}.bytes(r.version)...)
		}
		p.write(all)
		for _, id := range ids {
			if rec := p.want(0x50); binary.BigEndian.Uint16(rec.body) != id {
				r.t.Errorf("PUBREC %v, want %d", rec, id)
			}
		}
		var got []uint16
		for range ids {
			got = append(got, c.wantMsg().id)
		}
		got[0], got[1], got[2], got[3], got[4] = got[3], got[0], got[4], got[1], got[2]
		all = nil
		for _, id := range got {
			all = append(all, 0x50, 2, byte(id>>8), byte(id))
		}
		c.write(all)
		for _, id := range got {
			if rel := c.want(0x62); binary.BigEndian.Uint16(rel.body) != id {
				r.t.Errorf("PUBREL %v, want %d", rel, id)
			}
		}
	})
}

// A message that was sent does not expire [MQTT-4.3.3-7], and its exchange goes on [MQTT-4.3.3-13].
func TestMQTT_4_3_3_7(t *testing.T) {
	conform5(t, func(r *rig) {
		s, _ := r.keep("s")
		s.mustSub(2, "plain/#")
		p := r.named("p")
		short := []byte{2, 0, 0, 0, 10}
		p.exactly(pub{topic: "plain/x", payload: "short", id: 1, properties: short})
		m := s.wantMsg()
		r.clock.advance(time.Minute)
		p.released(1) // as receiver
		r.gone(s, "s")
		s, _ = r.keep("s")
		again := s.wantMsg()
		if again.id != m.id || !again.dup || again.payload != "short" {
			r.t.Errorf("%+v", again)
		}
		s.receive(m.id) // as sender
		s.complete(m.id)
		s.alive()
	})
}

// Reason strings of the QoS 2 packets: none where they would not fit. [MQTT-3.5.2-2] [MQTT-3.5.2-3] [MQTT-3.6.2-2] [MQTT-3.6.2-3]
// [MQTT-3.7.2-2] [MQTT-3.7.2-3]
func TestMQTT_3_5_2_2(t *testing.T) {
	conform5(t, func(r *rig) {
		c := r.dial(hello{id: "c", user: "line", properties: []byte{0x27, 0, 0, 0, 60}})
		c.pub(pub{topic: full("forbidden/" + strings.Repeat("x", 200)), payload: "1", qos: 2, id: 1})
		if p := c.want(0x50); !bytes.Equal(p.body, []byte{0, 1, 0x87}) {
			r.t.Errorf("PUBREC %v", p)
		}
		c.write([]byte{0x62, 2, 0, 9})
		if p := c.want(0x70); !bytes.Equal(p.body, []byte{0, 9, 0x92}) {
			r.t.Errorf("PUBCOMP %v", p)
		}
		c.write([]byte{0x50, 2, 0, 9})
		if p := c.want(0x62); !bytes.Equal(p.body, []byte{0, 9, 0x92}) {
			r.t.Errorf("PUBREL %v", p)
		}
	})
}
