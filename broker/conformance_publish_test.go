package broker_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"
)

// PUBLISH and its acknowledgements, delivery, order and flow control.

func text(id byte, s string) []byte { return append([]byte{id}, str(s)...) }

func pair(k, v string) []byte { return append(append([]byte{0x26}, str(k)...), str(v)...) }

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

// A message of QoS 0 has no identifier [MQTT-2.2.1-2] [MQTT-2.3.1-5], is delivered with DUP 0 [MQTT-3.3.1-2] [MQTT-4.3.1-1]
// and gets no answer; one of QoS 1 gets a PUBACK with its identifier [MQTT-3.3.4-1] [MQTT-2.2.1-5] [MQTT-2.3.1-6]
// [MQTT-4.3.2-4] [MQTT-4.3.2-2] [MQTT-3.4.2-1]. Without properties the length of the list is 0, and it is there.
// [MQTT-2.2.2-1]
func TestMQTT_3_3_4_1(t *testing.T) {
	conform(t, func(r *rig) {
		s := r.named("s")
		s.mustSub(1, "plain/#")
		p := r.named("p")
		p.pub(pub{topic: "plain/x", payload: "zero"})
		p.alive() // no answer
		if got, want := s.want(0x30), (pub{topic: "plain/x", payload: "zero"}).bytes(r.version); !bytes.Equal(frame(0x30, got.body), want) {
			r.t.Errorf("got %v, want %x", got, want)
		}
		for _, id := range []uint16{1, 2, 255, 256, 65535} {
			p.pub(pub{topic: "plain/x", payload: "one", qos: 1, id: id})
			if ack := p.want(0x40); !bytes.Equal(ack.body, []byte{byte(id >> 8), byte(id)}) {
				r.t.Errorf("PUBACK %v, want %d", ack, id)
			}
			if m := s.only("one"); m.qos != 1 || m.dup || m.id == 0 {
				r.t.Errorf("%+v", m)
			}
		}
	})
}

// DUP of a delivery is its own, not the publisher's. [MQTT-3.3.1-3] [MQTT-4.3.2-2]
func TestMQTT_3_3_1_3(t *testing.T) {
	conform(t, func(r *rig) {
		s := r.named("s")
		s.mustSub(1, "plain/#")
		p := r.named("p")
		p.send(pub{topic: "plain/x", payload: "again", dup: true, id: 4})
		if m := s.only("again"); m.dup {
			r.t.Errorf("%+v", m)
		}
		// DUP on QoS 0 means nothing and is malformed. [MQTT-3.3.1-2]
		p.write([]byte{0x38}, pub{topic: "plain/x", payload: "x"}.bytes(r.version)[1:])
		p.cut(0x81)
	})
}

// QoS 3 there is not. [MQTT-3.3.1-4]
func TestMQTT_3_3_1_4(t *testing.T) {
	conform(t, func(r *rig) {
		for _, flags := range []byte{0x36, 0x37, 0x3E} {
			c := r.named("c")
			c.write([]byte{flags}, pub{topic: "plain/x", payload: "x", qos: 1, id: 1}.bytes(r.version)[1:])
			c.cut(0x81)
		}
	})
}

// A topic name has no wildcards [MQTT-3.3.2-2] [MQTT-4.7.0-1] [MQTT-4.7.1-1] and at least one character [MQTT-4.7.3-1]; an
// identifier of 0 is none [MQTT-2.2.1-3] [MQTT-2.3.1-1].
func TestMQTT_3_3_2_2(t *testing.T) {
	conform(t, func(r *rig) {
		for topic, code := range map[string]byte{"plain/+": 0x82, "plain/#": 0x82, "#": 0x82, "+": 0x82, "plain/a+b": 0x82, "plain/a#": 0x82, "": 0x82} {
			c := r.named("c")
			c.pub(pub{topic: topic, payload: "x", qos: 1, id: 1})
			c.cut(code)
		}
		c := r.named("c")
		c.pub(pub{topic: "plain/x", payload: "x", qos: 1})
		c.cut(0x82)
	})
}

// What a receiver gets belongs to one of its filters. [MQTT-3.3.2-3]
func TestMQTT_3_3_2_3(t *testing.T) {
	conform(t, func(r *rig) {
		s := r.named("s")
		s.mustSub(1, "plain/a", "plain/b/+")
		for _, topic := range []string{"plain", "plain/b", "plain/a/x", "plain/A", "plain/b/c/d", "plain/a"} {
			s2 := pub{topic: topic, payload: topic}
			p := r.named("p")
			p.send(s2)
		}
		s.only("plain/a")
	})
}

// The properties of an ordinary message arrive as they were sent, user properties in their order. [MQTT-3.3.2-4]
// [MQTT-3.3.2-15] [MQTT-3.3.2-16] [MQTT-3.3.2-17] [MQTT-3.3.2-18] [MQTT-3.3.2-20]
func TestMQTT_3_3_2_17(t *testing.T) {
	conform5(t, func(r *rig) {
		s := r.named("s")
		s.mustSub(1, "plain/#")
		sent := join([]byte{1, 1}, text(3, "text/plain"), text(8, "plain/answers"), text(9, "\x00\xFF"), pair("b", "1"), pair("a", "2"), pair("b", "1"), pair("", ""))
		r.named("p").send(pub{topic: "plain/x", payload: "x", properties: sent})
		got := split(r.t, s.only("x").properties)
		want := split(r.t, sent)
		if got.user != want.user || got.other != want.other {
			r.t.Errorf("got %+v, want %+v", got, want)
		}
	})
}

// list is a property list: the user properties in order, the others sorted.
type list struct{ user, other string }

func split(t testing.TB, b []byte) (l list) {
	t.Helper()
	var others [256]string
	for len(b) > 0 {
		n := 0
		switch b[0] {
		case 1:
			n = 2
		case 2:
			n = 5
		case 0x23:
			n = 3
		case 3, 8, 9:
			n = 3 + int(b[1])<<8 + int(b[2])
		case 0x26:
			n = 3 + int(b[1])<<8 + int(b[2])
			n += 2 + int(b[n])<<8 + int(b[n+1])
		case 0x0B:
			for n = 2; b[n-1] >= 0x80; n++ {
			}
		default:
			t.Fatalf("property %02x", b[0])
		}
		if b[0] == 0x26 {
			l.user += fmt.Sprintf("%x ", b[:n])
		} else {
			others[b[0]] += fmt.Sprintf("%x ", b[:n])
		}
		b = b[n:]
	}
	l.other = strings.Join(others[:], "")
	return l
}

// A response topic has no wildcards. [MQTT-3.3.2-14] A client does not send subscription identifiers. [MQTT-3.3.4-6]
func TestMQTT_3_3_2_14(t *testing.T) {
	conform5(t, func(r *rig) {
		for name, p := range map[string][]byte{"plus": text(8, "a/+"), "hash": text(8, "#"), "empty": text(8, ""), "subscription identifier": {0x0B, 1}} {
			c := r.named("c")
			c.pub(pub{topic: "plain/x", payload: "x", qos: 1, id: 1, properties: p})
			p, err := c.read(patience)
			if err != nil || p.first != 0xE0 || p.body[0] != 0x82 && p.body[0] != 0x81 {
				r.t.Errorf("%s: %v %v", name, p, err)
			}
			c.ended()
		}
	})
}

// Topic aliases: every one up to the announced maximum is taken [MQTT-3.3.2-12], none beyond it [MQTT-3.3.2-9], not 0
// [MQTT-3.3.2-8], and none is known on the next connection [MQTT-3.3.2-7].
func TestMQTT_3_3_2_12(t *testing.T) {
	conform5(t, func(r *rig) {
		s := r.named("s")
		s.mustSub(0, "plain/#")
		alias := func(n int) []byte { return []byte{0x23, byte(n >> 8), byte(n)} }
		c := r.named("c")
		for n := 1; n <= 64; n++ {
			c.send(pub{topic: fmt.Sprintf("plain/%d", n), payload: "named", properties: alias(n)})
			s.only("named")
		}
		for n := 64; n >= 1; n-- {
			c.send(pub{payload: "alias", properties: alias(n)})
			if m := s.only("alias"); m.topic != fmt.Sprintf("plain/%d", n) || len(m.properties) != 0 {
				r.t.Fatalf("%+v", m)
			}
		}
		c.send(pub{topic: "plain/new", payload: "changed", properties: alias(1)})
		s.only("changed")
		c.send(pub{payload: "changed too", properties: alias(1)})
		if m := s.only("changed too"); m.topic != "plain/new" {
			r.t.Errorf("%+v", m)
		}
		for n, code := range map[int]byte{0: 0x94, 65: 0x94, 65535: 0x94} {
			c = r.named("c")
			c.pub(pub{topic: "plain/x", payload: "x", qos: 1, id: 1, properties: alias(n)})
			for {
				if p := c.want(0xE0); p.body[0] != 0x8E {
					if p.body[0] != code {
						r.t.Errorf("alias %d: %v", n, p)
					}
					break
				}
			}
			c.ended()
		}
		c = r.named("c")
		c.pub(pub{payload: "of another connection", qos: 1, id: 1, properties: alias(1)})
		c.cut(0x82)
	})
}

// Deliveries carry an alias only to clients that take them. [MQTT-3.1.2-27]
func TestMQTT_3_1_2_27(t *testing.T) {
	conform5(t, func(r *rig) {
		s := r.named("s")
		s.mustSub(0, "plain/#")
		for range 3 {
			s.send(pub{topic: "plain/x", payload: "x"})
			if m := s.only("x"); m.topic != "plain/x" || bytes.Contains(m.properties, []byte{0x23}) {
				r.t.Errorf("%+v", m)
			}
		}
	})
}

// Overlapping subscriptions: one message with the highest QoS [MQTT-3.3.4-2] [MQTT-3.3.5-1] and the identifiers of all
// that match and have one [MQTT-3.3.4-3] [MQTT-3.3.4-4].
func TestMQTT_3_3_4_2(t *testing.T) {
	conform(t, func(r *rig) {
		s := r.named("s")
		one := func(options byte, id byte, filter string) {
			var p []byte
			if r.version == 5 && id != 0 {
				p = []byte{0x0B, id}
			}
			s.write(subscribe(r.version, 1, p, options, filter))
			s.want(0x90)
		}
		one(0, 3, "plain/#")
		one(1, 4, "+/x")
		one(0, 0, "plain/+")
		r.named("p").send(pub{topic: "plain/x", payload: "x"})
		m := s.only("x")
		if m.qos != 1 {
			r.t.Errorf("%+v", m)
		}
		if r.version == 5 && split(r.t, m.properties) != (list{other: "0b03 0b04 "}) && split(r.t, m.properties) != (list{other: "0b04 0b03 "}) {
			r.t.Errorf("%x", m.properties)
		}
		s.alive()
	})
}

// No more than Receive Maximum are open [MQTT-3.3.4-9] [MQTT-4.9.0-1] [MQTT-4.9.0-2], everything else goes on [MQTT-3.3.4-10]
// [MQTT-4.9.0-3], each has an identifier of its own that is not 0 [MQTT-2.2.1-4] [MQTT-2.3.1-4] [MQTT-4.3.2-1] and stays
// open until its PUBACK [MQTT-4.3.2-3] [MQTT-4.3.2-1]; acks of nothing open nothing.
func TestMQTT_3_3_4_9(t *testing.T) {
	conform(t, func(r *rig) {
		h := hello{id: "s"}
		window := 100
		if r.version == 5 {
			h.properties, window = []byte{0x21, 0, 3}, 3
		}
		s := r.dial(h)
		s.mustSub(1, "plain/#")
		p := r.named("p")
		total := 2*window + 1
		for i := range total {
			p.send(pub{topic: "plain/x", payload: fmt.Sprint(i), id: uint16(i + 1)})
		}
		p.pub(pub{topic: "plain/x", payload: "zero"}) // QoS 0 waits in line, but needs no place
		p.alive()
		open := map[uint16]bool{}
		var order []uint16
		for i := range window {
			m := s.wantMsg()
			if m.payload != fmt.Sprint(i) || m.id == 0 || open[m.id] {
				r.t.Fatalf("message %d: %+v", i, m)
			}
			open[m.id] = true
			order = append(order, m.id)
		}
		s.alive()
		for i := range 50 {
			if id := uint16(30000 + i); !open[id] {
				s.puback(id)
			}
		}
		s.alive() // nothing came
		if got := s.sub(0, "plain/other"); got[0] != 0 {
			r.t.Errorf("SUBACK %x", got)
		}
		for i := window; i < total; i++ {
			s.puback(order[0])
			delete(open, order[0])
			order = order[1:]
			m := s.wantMsg()
			if m.payload != fmt.Sprint(i) || open[m.id] {
				r.t.Fatalf("message %d: %+v", i, m)
			}
			open[m.id] = true
			order = append(order, m.id)
		}
		s.only("zero")
		s.alive()
	})
}

// A PUBACK that says no is an end all the same: the message is not sent again, and its place is free. [MQTT-4.4.0-2]
func TestMQTT_4_4_0_2(t *testing.T) {
	conform5(t, func(r *rig) {
		s := r.dial(hello{id: "s", properties: []byte{0x21, 0, 1}})
		s.mustSub(1, "plain/#")
		p := r.named("p")
		for i := range 3 {
			p.send(pub{topic: "plain/x", payload: fmt.Sprint(i)})
		}
		for i := range 3 {
			m := s.wantMsg()
			if m.payload != fmt.Sprint(i) {
				r.t.Fatalf("%+v", m)
			}
			s.pubackWith(m.id, 0x97)
		}
		s.alive()
	})
}

// Order: answers as the messages came, deliveries of a topic and QoS as they were received from the client, on every topic.
// [MQTT-4.6.0-5] [MQTT-4.6.0-6] [MQTT-4.6.0-2]
func TestMQTT_4_6_0_5(t *testing.T) {
	conform(t, func(r *rig) {
		s := r.named("s")
		s.mustSub(1, "plain/#", full("#"))
		p := r.named("p")
		const n = 60
		var stream []byte
		for i := range n {
			topic := []string{"plain/a", "plain/b", full("a"), full("b")}[i%4]
			stream = append(stream, pub{topic: topic, payload: fmt.Sprint(i), qos: 1, id: uint16(n - i)}.bytes(r.version)...)
		}
		p.write(stream)
		for i := range n {
			p.ackOf(uint16(n - i))
		}
		last := map[string]int{}
		for range n {
			m := s.wantMsg()
			for ; m.retain; m = s.wantMsg() { // what the box has kept of the round before
				s.puback(m.id)
			}
			s.puback(m.id)
			var i int
			if _, err := fmt.Sscanf(strings.TrimPrefix(m.payload, `{"value":`), "%d", &i); err != nil {
				r.t.Fatal(err)
			}
			if before, ok := last[m.topic]; ok && i != before+4 {
				r.t.Fatalf("%s: %d after %d", m.topic, i, before)
			}
			last[m.topic] = i
		}
	})
}

// An identifier is free again with its PUBACK: what comes with it then is a new message. [MQTT-4.3.2-5]
func TestMQTT_4_3_2_5(t *testing.T) {
	conform(t, func(r *rig) {
		s := r.named("s")
		s.mustSub(1, "plain/#", full("#"))
		p := r.named("p")
		for range 3 {
			p.send(pub{topic: "plain/x", payload: "same", id: 7})
			p.send(pub{topic: full("x"), payload: "5", id: 7})
		}
		for i := range 6 {
			m := s.wantMsg()
			s.puback(m.id)
			if m.dup {
				r.t.Errorf("message %d: %+v", i, m)
			}
		}
		if n := r.store.stored(); n != 3 {
			r.t.Errorf("%d stored, want 3", n)
		}
	})
}

// A publish that is not allowed is acknowledged on 3.1.1, which has no word for it [MQTT-3.3.5-2], and refused with a code of the
// table on MQTT 5 [MQTT-3.4.2-1]; it reaches nobody.
func TestMQTT_3_3_5_2(t *testing.T) {
	conform(t, func(r *rig) {
		s := r.named("s")
		s.mustSub(1, "#")
		line := r.dial(hello{id: "line", user: "line"})
		for _, topic := range []string{"else/x", full("line2/x"), "$SYS/x"} {
			line.pub(pub{topic: topic, payload: "1", qos: 1, id: 5})
			if code, _ := line.ackOf(5); r.version == 5 && code != 0x87 {
				r.t.Errorf("%s: %02x", topic, code)
			}
		}
		line.send(pub{topic: "plain/x", payload: "allowed"})
		s.only("allowed")
	})
}

// A message expires as its publisher said, and arrives with what is left of its time [MQTT-3.3.2-6]; nothing that expired
// before it could be sent is sent [MQTT-3.3.2-5]. Nobody else's message gets an expiry.
func TestMQTT_3_3_2_5(t *testing.T) {
	conform5(t, func(r *rig) {
		s := r.dial(hello{id: "s", properties: []byte{0x21, 0, 1}})
		s.mustSub(1, "plain/#")
		p := r.named("p")
		p.send(pub{topic: "plain/x", payload: "first"})
		p.send(pub{topic: "plain/x", payload: "short", properties: []byte{2, 0, 0, 0, 10}})
		p.send(pub{topic: "plain/x", payload: "long", properties: []byte{2, 0, 0, 0, 100}})
		p.send(pub{topic: "plain/x", payload: "no end"})
		p.settled()
		first := s.wantMsg()
		r.clock.advance(30 * time.Second)
		s.puback(first.id)
		m := s.only("long")
		if len(m.properties) != 5 || m.properties[0] != 2 || m.properties[4] < 68 || m.properties[4] > 70 {
			r.t.Errorf("what is left of 100 s after 30: %x", m.properties)
		}
		if m = s.only("no end"); len(m.properties) != 0 {
			r.t.Errorf("%x", m.properties)
		}
		s.alive()
	})
}
