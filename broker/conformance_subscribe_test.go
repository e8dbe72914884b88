package broker_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// SUBSCRIBE and UNSUBSCRIBE, filters and what they match.

// A SUBSCRIBE gets one SUBACK [MQTT-3.8.4-1] with its identifier [MQTT-3.8.4-2] [MQTT-2.2.1-6] [MQTT-2.3.1-7] and a code for each
// filter [MQTT-3.8.4-6] [MQTT-3.8.4-5] in their order [MQTT-3.9.3-1], each a QoS granted or a failure of the table
// [MQTT-3.8.4-7] [MQTT-3.9.3-2], as if each had been a SUBSCRIBE of its own [MQTT-3.8.4-5] [MQTT-3.8.4-4].
func TestMQTT_3_8_4_1(t *testing.T) {
	conform(t, func(r *rig) {
		c := r.dial(hello{id: "c", user: "line"})
		failed := map[byte][]byte{4: {0x80, 0x80}, 5: {0x87, 0x8F}}[r.version]
		for _, id := range []uint16{1, 256, 65535} {
			c.write(frame(0x82, []byte{byte(id >> 8), byte(id)}, props(r.version, nil),
				str("plain/a"), []byte{0}, str("else/#"), []byte{1}, str("plain/b"), []byte{1}, str("plain/b#"), []byte{1}, str("plain/a"), []byte{1}))
			p := c.want(0x90)
			want := join([]byte{byte(id >> 8), byte(id)}, props(r.version, nil), []byte{0, failed[0], 1, failed[1], 1})
			if !bytes.Equal(p.body, want) {
				r.t.Errorf("SUBACK %v, want %x", p, want)
			}
		}
		c.send(pub{topic: "plain/b", payload: "b"})
		c.only("b")
		c.send(pub{topic: "plain/a", payload: "a"})
		if m := c.only("a"); m.qos != 1 {
			r.t.Errorf("the later of two equal filters is in force: %+v", m)
		}
		c.alive()
	})
}

// Without a filter [MQTT-3.8.3-2] [MQTT-3.8.3-3] [MQTT-3.10.3-2], with bits or a QoS that are not [MQTT-3.8.3-5] [MQTT-3.8.3-4], or with the
// identifier 0 [MQTT-2.2.1-3] [MQTT-2.3.1-1] a connection ends.
func TestMQTT_3_8_3_2(t *testing.T) {
	conform(t, func(r *rig) {
		none := props(r.version, nil)
		cases := [][]byte{
			frame(0x82, []byte{0, 1}, none), frame(0xA2, []byte{0, 1}, none),
			frame(0x82, []byte{0, 0}, none, str("plain/a"), []byte{0}), frame(0xA2, []byte{0, 0}, none, str("plain/a")),
			frame(0x82, []byte{0, 1}, none, str("plain/a")), frame(0x82, []byte{0, 1}, none, str("plain/a"), []byte{0}, str("plain/b")),
			frame(0x82, []byte{0, 1}, none, str("plain/a"), []byte{3}), frame(0x82, []byte{0, 1}, none, str("plain/a"), []byte{0x40}),
			frame(0x82, []byte{0, 1}, none, str("plain/a"), []byte{0x80}), frame(0x82, []byte{0, 1}, none, str("plain/a"), []byte{0x30}),
		}
		if r.version == 4 {
			cases = append(cases, subscribe(4, 1, nil, 4, "plain/a"), subscribe(4, 1, nil, 8, "plain/a"), subscribe(4, 1, nil, 0x10, "plain/a"))
		} else {
			cases = append(cases, subscribe(5, 1, []byte{0x0B, 0}, 0, "plain/a"), subscribe(5, 1, []byte{0x0B, 1, 0x0B, 2}, 0, "plain/a"))
		}
		for _, b := range cases {
			c := r.named("c")
			c.write(b)
			p, err := c.read(patience)
			if isTimeout(err) || err == nil && (r.version == 4 || p.first != 0xE0 || p.body[0] != 0x81 && p.body[0] != 0x82) {
				r.t.Errorf("%x: %v, %v", b, p, err)
			}
		}
	})
}

// A SUBSCRIBE with a filter that is there already replaces it. [MQTT-3.8.4-3]
func TestMQTT_3_8_4_3(t *testing.T) {
	conform(t, func(r *rig) {
		c := r.named("c")
		for _, qos := range []byte{0, 1, 0} {
			c.mustSub(qos, "plain/+")
			c.send(pub{topic: "plain/x", payload: fmt.Sprint(qos)})
			if m := c.only(fmt.Sprint(qos)); m.qos != qos {
				r.t.Errorf("%+v, want QoS %d", m, qos)
			}
			c.alive() // one copy
		}
		c.unsubscribe(1, "plain/+")
		c.send(pub{topic: "plain/x", payload: "x"})
		c.alive()
	})
}

// Replacing a subscription loses nothing that is published meanwhile. [MQTT-3.8.4-4] [MQTT-3.8.4-3]
func TestMQTT_3_8_4_4(t *testing.T) {
	conform(t, func(r *rig) {
		s, p := r.named("s"), r.named("p")
		s.mustSub(0, "plain/x")
		const n = 200
		done := make(chan struct{})
		go func() {
			defer close(done)
			for i := range n {
				p.pub(pub{topic: "plain/x", payload: fmt.Sprint(i)})
			}
		}()
		for i, subs := 0, 0; i < n; {
			if subs < 50 {
				s.write(subscribe(r.version, 1, nil, 0, "plain/x"))
			}
			subs++
			for i < n {
				pk, err := s.read(patience)
				if err != nil {
					r.t.Fatalf("after %d: %v", i, err)
				}
				if pk.first == 0x90 {
					break
				}
				if m := s.parse(pk); m.payload != fmt.Sprint(i) {
					r.t.Fatalf("got %s, want %d", m.payload, i)
				}
				i++
			}
		}
		<-done
	})
}

// The QoS of a delivery is the lower of what was published and what was granted. [MQTT-3.8.4-8] [MQTT-3.8.4-6]
func TestMQTT_3_8_4_8(t *testing.T) {
	conform(t, func(r *rig) {
		c := r.named("c")
		c.mustSub(0, "plain/0")
		c.mustSub(1, "plain/1")
		for _, tc := range []struct {
			topic     string
			qos, want byte
		}{{"plain/0", 0, 0}, {"plain/0", 1, 0}, {"plain/1", 0, 0}, {"plain/1", 1, 1}} {
			c.pub(pub{topic: tc.topic, payload: "x", qos: tc.qos, id: 9})
			if tc.qos == 1 {
				c.ackOf(9)
			}
			if m := c.only("x"); m.qos != tc.want {
				r.t.Errorf("%+v: %+v", tc, m)
			}
		}
	})
}

// No local keeps a message from the connection that published it, and from no other. [MQTT-3.8.3-3]
func TestMQTT_3_8_3_3(t *testing.T) {
	conform5(t, func(r *rig) {
		c, other := r.named("c"), r.named("other")
		c.mustSub(0|4, "plain/#")
		other.mustSub(0|4, "plain/#")
		c.send(pub{topic: "plain/x", payload: "own"})
		other.only("own")
		other.send(pub{topic: "plain/x", payload: "foreign"})
		c.only("foreign")
	})
}

// RETAIN of a delivery: 0 to an established subscription [MQTT-3.3.1-12] [MQTT-3.3.1-9], the publisher's with retain as published
// [MQTT-3.3.1-13].
func TestMQTT_3_3_1_12(t *testing.T) {
	conform(t, func(r *rig) {
		plain := r.named("plain")
		plain.mustSub(0, "plain/#")
		p := r.named("p")
		p.send(pub{topic: "plain/x", payload: "x", retain: true})
		if m := plain.only("x"); m.retain {
			r.t.Errorf("%+v", m)
		}
		if r.version == 5 {
			as := r.named("as")
			as.mustSub(0|8|0x20, "plain/#") // and nothing that is kept
			for _, retain := range []bool{true, false} {
				p.send(pub{topic: "plain/y", payload: "y", retain: retain})
				if m := as.only("y"); m.retain != retain {
					r.t.Errorf("%+v", m)
				}
			}
		}
	})
}

// Filters: # alone or after / and last [MQTT-4.7.1-1] [MQTT-4.7.1-2], + a whole level [MQTT-4.7.1-2] [MQTT-4.7.1-3], at least one
// character [MQTT-4.7.3-1], up to 65,535 octets [MQTT-4.7.3-3] of which the box takes 128 levels.
func TestMQTT_4_7_1_1(t *testing.T) {
	conform(t, func(r *rig) {
		bad := map[byte]byte{4: 0x80, 5: 0x8F}[r.version]
		c := r.named("c")
		for _, f := range []string{"a#", "a/b#", "#/a", "a/#/b", "##", "a+", "+a", "a/+b", "a/b+/c", "++", ""} {
			if got := c.sub(0, f); len(got) != 1 || got[0] != bad {
				r.t.Errorf("%q: %x", f, got)
			}
		}
		for _, f := range []string{"#", "+", "+/+", "/+", "+/", "/", "//", "+/a/#", "a/+/b", "a/#", "/#", strings.Repeat("x", 65535)} {
			if got := c.sub(0, f); len(got) != 1 || got[0] != 0 {
				r.t.Errorf("%.10q: %x", f, got)
			}
		}
	})
}

// What filters match. Wildcards at the front match no topic that begins with $. [MQTT-4.7.2-1]
func TestMQTT_4_7_2_1(t *testing.T) {
	conform(t, func(r *rig) {
		p := r.named("p")
		for filter, topics := range map[string]string{ // those that match
			"sport/tennis/#": "sport/tennis|sport/tennis/a|sport/tennis/a/b", "sport/+": "sport/|sport/tennis", "+": "sport|plain", "+/+": "/finance|sport/|sport/tennis",
			"/+": "/finance", "#": "sport|sport/|sport/tennis|sport/tennis/a|sport/tennis/a/b|/finance|plain|//", "+/tennis/+": "sport/tennis/a", "//": "//", "/#": "/finance|//",
			"sport/tennis/+/#": "sport/tennis/a|sport/tennis/a/b",
		} {
			c := r.named("c")
			c.mustSub(0, filter, "the/end/of/it/all")
			var want []string
			for _, topic := range []string{"sport", "sport/", "sport/tennis", "sport/tennis/a", "sport/tennis/a/b", "/finance", "plain", "//"} {
				p.send(pub{topic: topic, payload: "x"})
				if strings.Contains("|"+topics+"|", "|"+topic+"|") {
					want = append(want, topic)
				}
			}
			p.pub(pub{topic: "$SYS/x", payload: "x", qos: 1, id: 3}) // refused besides
			p.ackOf(3)
			p.send(pub{topic: "the/end/of/it/all", payload: "x"})
			var got []string
			for m := c.wantMsg(); m.topic != "the/end/of/it/all"; m = c.wantMsg() {
				got = append(got, m.topic)
			}
			if strings.Join(got, "|") != strings.Join(want, "|") {
				r.t.Errorf("%s: %q, want %q", filter, got, want)
			}
		}
	})
}

// UNSUBSCRIBE: filters are compared character by character, what is equal goes [MQTT-3.10.4-1]; no new message is added
// [MQTT-3.10.4-2]; the UNSUBACK [MQTT-3.10.4-4] has its identifier and comes when nothing went too [MQTT-3.10.4-5]
// [MQTT-2.2.1-6]; several are like several packets [MQTT-3.10.4-6], a code for each, in order [MQTT-3.11.3-1] from the table
// [MQTT-3.11.3-2].
func TestMQTT_3_10_4_1(t *testing.T) {
	conform(t, func(r *rig) {
		c := r.named("c")
		c.mustSub(0, "plain/+", "plain/a/#", "plain/b/#")
		got := c.unsubscribe(300, "plain/a", "plain/a/#", "plain/#", "plain/B/#", "plain/a/#")
		if r.version == 5 && !bytes.Equal(got, []byte{0x11, 0, 0x11, 0x11, 0x11}) {
			r.t.Errorf("codes %x", got)
		}
		p := r.named("p")
		for _, topic := range []string{"plain/a/x", "plain/a", "plain/b/x"} {
			p.send(pub{topic: topic, payload: topic})
		}
		c.only("plain/a")
		c.only("plain/b/x")
		c.unsubscribe(1, "plain/+", "plain/b/#")
		if got := c.unsubscribe(2, "plain/+"); r.version == 5 && !bytes.Equal(got, []byte{0x11}) {
			r.t.Errorf("codes %x", got)
		}
		p.send(pub{topic: "plain/a", payload: "x"})
		p.settled()
		c.alive()
		if n := r.IndexSize(); n != 0 {
			r.t.Errorf("%d entries left in the index", n)
		}
	})
}

// What was begun before an UNSUBSCRIBE is brought to its end. [MQTT-3.10.4-3]
func TestMQTT_3_10_4_3(t *testing.T) {
	conform(t, func(r *rig) {
		s := r.named("s")
		s.mustSub(1, "plain/x")
		r.named("p").send(pub{topic: "plain/x", payload: "begun"})
		m := s.wantMsg()
		s.unsubscribe(1, "plain/x")
		if m.payload != "begun" || m.qos != 1 {
			r.t.Errorf("%+v", m)
		}
		s.puback(m.id)
		s.alive()
	})
}
