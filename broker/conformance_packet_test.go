package broker_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

// What every packet is made of: flags, text, lengths, and the sizes and words that a client takes.

// Flags of a packet that are reserved have their value or the connection ends. [MQTT-2.1.3-1] [MQTT-2.2.2-1]
// [MQTT-2.2.2-2] [MQTT-3.6.1-1] [MQTT-3.8.1-1] [MQTT-3.10.1-1] [MQTT-3.14.1-1] [MQTT-3.15.1-1]
func TestMQTT_2_1_3_1(t *testing.T) {
	conform(t, func(r *rig) {
		for _, b := range [][]byte{
			{0x41, 2, 0, 1}, {0x48, 2, 0, 1}, {0x51, 2, 0, 1}, {0x60, 2, 0, 1}, {0x63, 2, 0, 1}, {0x72, 2, 0, 1},
			append([]byte{0x80}, subscribe(r.version, 1, nil, 0, "plain/a")[1:]...), append([]byte{0x83}, subscribe(r.version, 1, nil, 0, "plain/a")[1:]...),
			frame(0xA0, []byte{0, 1}, props(r.version, nil), str("plain/a")), {0xC1, 0}, {0xE1, 0}, {0xF1, 0},
		} {
			c := r.named("c")
			c.write(b)
			c.cut(0x81)
		}
	})
}

// Packets that a server never gets, and the reserved type, end the connection. [MQTT-4.13.1-1] [MQTT-4.8.0-1]
func TestMQTT_4_13_1_1(t *testing.T) {
	conform(t, func(r *rig) {
		for _, b := range [][]byte{{0x00, 0}, {0x20, 2, 0, 0}, {0x90, 3, 0, 1, 0}, {0xB0, 2, 0, 1}, {0xD0, 0}} {
			c := r.named("c")
			c.write(b)
			p, err := c.read(patience)
			switch {
			case isTimeout(err):
				r.t.Errorf("%x: left open", b)
			case err == nil && (r.version == 4 || p.first != 0xE0 || p.body[0] != 0x82 && p.body[0] != 0x81):
				r.t.Errorf("%x: %v", b, p)
			}
		}
	})
}

// No packet is larger than the client said [MQTT-3.1.2-24]; a message that is, counts as sent [MQTT-3.1.2-25].
func TestMQTT_3_1_2_25(t *testing.T) {
	conform5(t, func(r *rig) {
		s := r.dial(hello{id: "s", properties: []byte{0x27, 0, 0, 0, 150, 0x21, 0, 1}}) // one at a time
		s.mustSub(1, "plain/#")
		p := r.named("p")
		for range 3 {
			p.send(pub{topic: "plain/x", payload: strings.Repeat("x", 200)})
		}
		p.send(pub{topic: "plain/x", payload: "fits"})
		s.only("fits")
	})
}

// Reason strings: none when they would not fit [MQTT-3.4.2-2] [MQTT-3.4.2-3] [MQTT-3.9.2-1] [MQTT-3.9.2-2] [MQTT-3.11.2-1]
// [MQTT-3.11.2-2] [MQTT-3.14.2-3] [MQTT-3.14.2-4] [MQTT-3.2.2-19] [MQTT-3.2.2-20], none when they are not wanted
// [MQTT-3.1.2-29], no response information that was not asked for [MQTT-3.1.2-28].
func TestMQTT_3_4_2_2(t *testing.T) {
	conform5(t, func(r *rig) {
		deep := full("forbidden/" + strings.Repeat("x", 200))
		for name, h := range map[string]hello{
			"small":      {properties: []byte{0x27, 0, 0, 0, 60}},
			"not wanted": {properties: []byte{0x17, 0}},
		} {
			h.id, h.user = "c", "line"
			h = r.ready(h)
			c := r.raw()
			c.write(h.bytes())
			ack := c.want(0x20)
			if name == "small" && len(ack.body)+2 > 60 {
				r.t.Errorf("CONNACK of %d bytes", len(ack.body)+2)
			}
			if bytes.Contains(ack.body[3:], []byte{0x1A, 0}) {
				r.t.Errorf("response information: %v", ack)
			}
			c.pub(pub{topic: deep, payload: "1", qos: 1, id: 1})
			if p := c.want(0x40); len(p.body) != 3 || p.body[2] != 0x87 {
				r.t.Errorf("%s: %v", name, p)
			}
			c.write(subscribe(5, 1, nil, 0, deep))
			if p := c.want(0x90); len(p.body) != 4 {
				r.t.Errorf("%s: %v", name, p)
			}
			if got := c.unsubscribe(2, deep); !bytes.Equal(got, []byte{0x11}) {
				r.t.Errorf("%s: %x", name, got)
			}
			r.Disconnect("c")
			if p := c.want(0xE0); len(p.body) != 1 {
				r.t.Errorf("%s: %v", name, p)
			}
			c.ended()
		}
	})
}

// Text that is not UTF-8, or has U+0000 in it, ends the connection wherever it is. [MQTT-1.5.4-1] [MQTT-1.5.4-2]
// [MQTT-1.5.3-1] [MQTT-1.5.3-2] [MQTT-1.5.7-1] [MQTT-3.1.3-4] [MQTT-3.1.3-10] [MQTT-3.1.3-11] [MQTT-3.1.3-12]
// [MQTT-3.3.2-1] [MQTT-3.3.2-13] [MQTT-3.3.2-19] [MQTT-3.8.3-1] [MQTT-3.10.3-1] [MQTT-4.7.3-2]
func TestMQTT_1_5_4_1(t *testing.T) {
	conform(t, func(r *rig) {
		bad := map[string]string{"surrogate": "\xED\xA0\x80", "overlong": "\xC0\x80", "NUL": "a\x00b", "cut": "\xE2\x82", "beyond": "\xF4\x90\x80\x80", "lone": "\x80"}
		for name, text := range bad {
			first := []hello{{id: text}, {id: "c", user: text}, {id: "c", flags: 4, afterID: append(append(props(r.version, nil), str("plain/"+text)...), str("x")...)}}
			if r.version == 5 {
				first = append(first, hello{id: "c", properties: append(append([]byte{0x26}, str("k")...), str(text)...)})
			}
			for i, h := range first {
				c := r.raw()
				c.write(r.ready(h).bytes())
				p, err := c.read(patience)
				if isTimeout(err) || err == nil && (r.version == 4 || p.first != 0x20 || p.body[1] != 0x81) {
					r.t.Errorf("%s in field %d of CONNECT: %v %v", name, i, p, err)
				}
			}
		}
		text := func(id byte, s string) []byte { return append([]byte{id}, str(s)...) }
		for name, bad := range bad {
			later := [][]byte{
				pub{topic: "plain/" + bad, payload: "x", qos: 1, id: 1}.bytes(r.version),
				subscribe(r.version, 1, nil, 0, "plain/"+bad),
				frame(0xA2, []byte{0, 1}, props(r.version, nil), str("plain/"+bad)),
			}
			if r.version == 5 {
				later = append(later,
					pub{topic: "plain/x", qos: 1, id: 1, properties: text(3, bad)}.bytes(5),
					pub{topic: "plain/x", qos: 1, id: 1, properties: text(8, bad)}.bytes(5),
					pub{topic: "plain/x", qos: 1, id: 1, properties: append(text(0x26, bad), str("v")...)}.bytes(5),
					pub{topic: "plain/x", qos: 1, id: 1, properties: append(text(0x26, "k"), str(bad)...)}.bytes(5),
				)
			}
			for i, b := range later {
				c := r.dial(hello{id: fmt.Sprint(name, i)})
				c.write(b)
				c.cut(0x81)
			}
		}
	})
}

// U+FEFF is a character like any other and stays where it is. [MQTT-1.5.4-3] [MQTT-1.5.3-3] Nothing else is normalised
// either. [MQTT-4.7.3-4]
func TestMQTT_1_5_4_3(t *testing.T) {
	conform(t, func(r *rig) {
		s := r.named("s")
		topics := []string{"\uFEFFplain", "plain/\uFEFF", "plain/\u00E9", "plain/e\u0301", "plain/E\u0301", "plain/ x ", "plain//x", "plain/.."}
		for i, topic := range topics {
			s.mustSub(0, topic)
			s.send(pub{topic: topic, payload: fmt.Sprint(i)})
			if m := s.only(fmt.Sprint(i)); m.topic != topic {
				r.t.Errorf("%q came as %q", topic, m.topic)
			}
		}
		s.unsubscribe(9, "plain/\u00E9", "plain")
		s.send(pub{topic: "plain/\u00E9", payload: "composed"})
		s.send(pub{topic: "plain", payload: "without U+FEFF"})
		s.send(pub{topic: "plain/e\u0301", payload: "combining"})
		s.only("combining")
	})
}

// A length of more than four bytes is malformed. What the box writes is the shortest form [MQTT-1.5.5-1]; it reads longer ones,
// which small devices send that fill the length in afterwards.
func TestMQTT_1_5_5_1(t *testing.T) {
	conform(t, func(r *rig) {
		c := r.named("c")
		c.write([]byte{0xC0, 0x80, 0x80, 0x80, 0x80, 0})
		c.cut(0x81)
		s := r.named("s")
		s.write([]byte{0xC0, 0x80, 0})
		s.want(0xD0)
		s.mustSub(0, "p")
		over := len(pub{topic: "p"}.bytes(r.version)) - 2
		for _, size := range []int{127, 128, 16383, 16384} {
			p := pub{topic: "p", payload: strings.Repeat("x", size-over)}
			s.pub(p)
			want := lenBytes(size)
			got := make([]byte, 1+len(want))
			_ = s.conn.SetReadDeadline(time.Now().Add(patience))
			for i := range got {
				if _, err := s.conn.Read(got[i : i+1]); err != nil {
					r.t.Fatal(err)
				}
			}
			if !bytes.Equal(got[1:], want) {
				r.t.Fatalf("a length of %d is written %x", size, got[1:])
			}
			rest := make([]byte, size)
			for n := 0; n < size; {
				k, err := s.conn.Read(rest[n:])
				if err != nil {
					r.t.Fatal(err)
				}
				n += k
			}
		}
	})
}

// The box closes when it cannot go on [MQTT-4.8.0-2] and does not acknowledge what it did not store [MQTT-4.3.2-2].
func TestMQTT_4_8_0_2(t *testing.T) {
	conform(t, func(r *rig) {
		r.store.onAppend(func(context.Context, int) error { return fmt.Errorf("the disk is gone") })
		c := r.named("c")
		c.pub(pub{topic: full("a"), payload: "1", qos: 1, id: 1})
		c.cut(0x80)
	})
}
