package broker_test

import (
	"bytes"
	"testing"
	"time"
)

// CONNECT, CONNACK, the first packets, keep-alive, PING, DISCONNECT and AUTH, by the statements of the two standards.
// A number such as [MQTT-3.1.0-1] in a comment says that the test shows that statement; CONFORMANCE.md lists them all.

// The first packet has to be a CONNECT. [MQTT-3.1.0-1] Before a CONNACK there is no DISCONNECT. [MQTT-3.14.0-1]
func TestMQTT_3_1_0_1(t *testing.T) {
	conform(t, func(r *rig) {
		for _, first := range [][]byte{{0xC0, 0}, {0xE0, 0}, {0xF0, 0}, subscribe(r.version, 1, nil, 0, "#"), pub{topic: "plain/a", payload: "x"}.bytes(r.version),
			{0x40, 2, 0, 1}, {0x20, 2, 0, 0}} {
			c := r.raw()
			c.write(first)
			c.shut()
		}
	})
}

// A second CONNECT is a protocol error [MQTT-3.1.0-2] [MQTT-4.13.1-1] [MQTT-4.8.0-1] and gets no second CONNACK
// [MQTT-3.2.0-2]; the connection ends with the reason's code [MQTT-4.13.2-1].
func TestMQTT_3_1_0_2(t *testing.T) {
	conform(t, func(r *rig) {
		c := r.named("c")
		c.write(r.ready(hello{id: "c"}).bytes())
		c.cut(0x82)
	})
}

// The protocol name is MQTT. [MQTT-3.1.2-1]
func TestMQTT_3_1_2_1(t *testing.T) {
	conform(t, func(r *rig) {
		for _, name := range []string{"", "mqtt", "MQTX", "HTTP", "MQTTT", "MQTT\x00"} {
			c := r.raw()
			c.write(frame(0x10, str(name), []byte{r.version, 2, 0, 0}, props(r.version, nil), str("c")))
			c.refused(0x80, 0x81, 0x82, 0x84)
		}
	})
}

// Of a version that is not spoken the client is told so, then the connection ends. [MQTT-3.1.2-2]
func TestMQTT_3_1_2_2(t *testing.T) {
	conform(t, func(r *rig) {
		for version, want := range map[byte]byte{0: 1, 1: 1, 2: 1, 3: 1, 6: 0x84, 9: 0x84, 0x84: 0x84} {
			c := r.raw()
			c.write(frame(0x10, str("MQTT"), []byte{version, 2, 0, 0}, props(version, nil), str("c")))
			if p := c.want(0x20); p.body[0] != 0 || p.body[1] != want {
				r.t.Errorf("version %d: %v", version, p)
			}
			c.ended()
		}
	})
}

// What a CONNECT may not be: the reserved flag set [MQTT-3.1.2-3]; flags of a will without a will [MQTT-3.1.2-11]
// [MQTT-3.1.2-13] [MQTT-3.1.2-15]; a will with QoS 3 [MQTT-3.1.2-12] [MQTT-3.1.2-14]; fields that no flag announces, or
// announced ones that are missing [MQTT-3.1.2-9] [MQTT-3.1.2-16] [MQTT-3.1.2-17] [MQTT-3.1.2-18] [MQTT-3.1.2-19]
// [MQTT-3.1.2-20] [MQTT-3.1.2-21], or in another order [MQTT-3.1.3-1]; no identifier at all [MQTT-3.1.3-3]; on 3.1.1 a
// password without a user name [MQTT-3.1.2-22]. The box looks before it answers [MQTT-3.1.4-1] and without a code that
// fits 3.1.1 it closes without a word [MQTT-3.2.2-6].
func TestMQTT_3_1_4_1(t *testing.T) {
	conform(t, func(r *rig) {
		none := props(r.version, nil)
		id, user, password := str("c"), str("dev"), str(secret)
		will := append(append(bytes.Clone(none), str("plain/w")...), str("gone")...)
		cases := map[string][]byte{
			"reserved flag":                 frame(0x10, str("MQTT"), []byte{r.version, 0xC3, 0, 0}, none, id, user, password),
			"will QoS without will":         frame(0x10, str("MQTT"), []byte{r.version, 0xCA, 0, 0}, none, id, user, password),
			"will retain without will":      frame(0x10, str("MQTT"), []byte{r.version, 0xE2, 0, 0}, none, id, user, password),
			"will QoS 3":                    frame(0x10, str("MQTT"), []byte{r.version, 0xDE, 0, 0}, none, id, will, user, password),
			"will announced, none there":    frame(0x10, str("MQTT"), []byte{r.version, 0x06, 0, 0}, none, id),
			"half a will":                   frame(0x10, str("MQTT"), []byte{r.version, 0x06, 0, 0}, none, id, none, str("plain/w")),
			"user announced, none there":    frame(0x10, str("MQTT"), []byte{r.version, 0x82, 0, 0}, none, id),
			"user not announced":            frame(0x10, str("MQTT"), []byte{r.version, 0x02, 0, 0}, none, id, user),
			"password announced, not there": frame(0x10, str("MQTT"), []byte{r.version, 0xC2, 0, 0}, none, id, user),
			"password not announced":        frame(0x10, str("MQTT"), []byte{r.version, 0x82, 0, 0}, none, id, user, password),
			"nothing after the header":      frame(0x10, str("MQTT"), []byte{r.version, 0x02, 0, 0}, none),
		}
		if r.version == 5 { // on 3.1.1 it reads as another CONNECT
			cases["will behind the user"] = frame(0x10, str("MQTT"), []byte{5, 0xC6, 0, 0}, none, id, user, password, will)
		} else {
			cases["password alone"] = frame(0x10, str("MQTT"), []byte{4, 0x42, 0, 0}, id, password)
		}
		for name, b := range cases {
			c := r.raw()
			c.write(b)
			if r.version == 4 {
				p, err := c.read(patience)
				if err == nil {
					r.t.Errorf("%s: %v", name, p)
				}
				continue
			}
			c.refused(0x81, 0x82)
		}
		if n := len(r.Sessions()); n != 0 {
			r.t.Errorf("%d sessions", n)
		}
	})
}

// A CONNECT that is in order but not let in gets a CONNACK from the table [MQTT-3.2.2-8] with session present 0
// [MQTT-3.2.2-6] [MQTT-3.2.2-4] and the end [MQTT-3.2.2-7] [MQTT-3.2.2-5] [MQTT-3.1.4-2]; what came after it is not looked
// at. [MQTT-3.1.4-6] [MQTT-3.1.4-5]
func TestMQTT_3_1_4_2(t *testing.T) {
	conform(t, func(r *rig) {
		s := r.named("s")
		s.mustSub(0, "plain/#")
		c := r.raw()
		c.write(r.ready(hello{id: "c", password: "wrong"}).bytes(), pub{topic: "plain/x", payload: "smuggled"}.bytes(r.version))
		want := []byte{0, 0x86}
		if r.version == 4 {
			want = []byte{0, 5}
		}
		if p := c.want(0x20); !bytes.Equal(p.body[:2], want) {
			r.t.Errorf("CONNACK %v", p)
		}
		c.ended()
		s.send(pub{topic: "plain/y", payload: "after"})
		s.only("after")
	})
}

// A device with the identifier of a connected one takes its place; the other is told on MQTT 5 and closed. [MQTT-3.1.4-3]
// [MQTT-3.1.4-2] State belongs to the identifier. [MQTT-3.1.3-2]
func TestMQTT_3_1_4_3(t *testing.T) {
	conform(t, func(r *rig) {
		first := r.named("same")
		second := r.named("same")
		first.cut(0x8E)
		second.alive()
		if s := r.Sessions(); len(s) != 1 || s[0].MQTTID != "same" {
			r.t.Errorf("%+v", s)
		}
	})
}

// Clean start discards what there was [MQTT-3.1.2-4] [MQTT-3.1.4-4] [MQTT-3.1.2-6] [MQTT-3.1.4-3]: session present is 0
// [MQTT-3.2.2-2] [MQTT-3.2.2-1], the other bits of that byte are 0 always, and there are no subscriptions.
func TestMQTT_3_1_2_4(t *testing.T) {
	conform(t, func(r *rig) {
		expiry := []byte{0x11, 0, 0, 0, 60}
		if r.version == 4 {
			expiry = nil
		}
		c := r.dial(hello{persistent: true, properties: expiry})
		c.mustSub(1, "plain/#")
		c.write([]byte{0xE0, 0})
		c.ended()
		c, p := r.connect(hello{id: "c", properties: expiry})
		if p.body[0] != 0 || p.body[1] != 0 {
			r.t.Fatalf("CONNACK %v", p)
		}
		c.send(pub{topic: "plain/x", payload: "x"})
		c.alive()
	})
}

// The CONNACK comes first, once, then the answers in order. [MQTT-3.2.0-1] [MQTT-3.1.4-5] [MQTT-3.1.4-4] All that is asked of the
// transport is a stream of bytes in order. [MQTT-4.2.0-1] [MQTT-7.1.1-1]
func TestMQTT_3_2_0_1(t *testing.T) {
	conform(t, func(r *rig) {
		c := r.raw()
		c.write(r.ready(hello{id: "c"}).bytes(), subscribe(r.version, 1, nil, 0, "plain/#"), pub{topic: "plain/x", payload: "x", qos: 1, id: 2}.bytes(r.version), []byte{0xC0, 0})
		if p := c.want(0x20); p.body[1] != 0 {
			r.t.Fatal(p)
		}
		c.want(0x90)
		seen := map[byte]int{}
		for range 3 {
			p, err := c.read(patience)
			if err != nil {
				r.t.Fatal(err)
			}
			seen[p.first]++
		}
		if seen[0x40] != 1 || seen[0x30] != 1 || seen[0xD0] != 1 {
			r.t.Errorf("%v", seen)
		}
	})
}

// Identifiers of 1 to 23 letters and digits are taken. [MQTT-3.1.3-5]
func TestMQTT_3_1_3_5(t *testing.T) {
	conform(t, func(r *rig) {
		const letters = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
		for i := 0; i < len(letters); i += 23 {
			r.named(letters[i:min(i+23, len(letters))]).alive()
		}
		r.named("a").alive()
	})
}

// Without an identifier a device gets one of its own [MQTT-3.1.3-6], on MQTT 5 it is told which [MQTT-3.1.3-7]
// [MQTT-3.2.2-16] and the session is that identifier's; on 3.1.1 only with clean session, else it is refused with code 2
// [MQTT-3.1.3-8] and closed [MQTT-3.1.3-9].
func TestMQTT_3_1_3_6(t *testing.T) {
	conform(t, func(r *rig) {
		if r.version == 4 {
			for range 2 {
				c := r.raw()
				c.write(r.ready(hello{}).bytes())
				if p := c.want(0x20); !bytes.Equal(p.body, []byte{0, 0}) {
					r.t.Fatal(p)
				}
				c.alive()
			}
			if n := len(r.Sessions()); n != 2 {
				r.t.Errorf("%d sessions", n)
			}
			c, p := r.connect(hello{persistent: true})
			if !bytes.Equal(p.body, []byte{0, 2}) {
				r.t.Error(p)
			}
			c.ended()
			return
		}
		ids := map[string]*client{}
		for range 3 {
			c := r.raw()
			c.write(r.ready(hello{}).bytes())
			p := c.want(0x20)
			i := bytes.Index(p.body, []byte{0x12, 0})
			if p.body[1] != 0 || i < 0 {
				r.t.Fatal(p)
			}
			ids[string(p.body[i+3:i+3+int(p.body[i+2])])] = c
		}
		if len(ids) != 3 {
			r.t.Fatalf("%v", ids)
		}
		for id, c := range ids {
			r.named(id).alive()
			c.cut(0x8E)
		}
	})
}

// An identifier that belongs to somebody else's session is refused: 0x85 [MQTT-3.1.3-8], code 2 [MQTT-3.1.3-9].
func TestMQTT_3_1_3_8(t *testing.T) {
	conform(t, func(r *rig) {
		mine := r.named("mine")
		c, p := r.connect(hello{id: "mine", user: "line"})
		if want := map[byte]byte{4: 2, 5: 0x85}[r.version]; p.body[0] != 0 || p.body[1] != want {
			r.t.Error(p)
		}
		c.ended()
		mine.alive()
	})
}

// Silence of more than one and a half times the keep-alive ends the connection [MQTT-3.1.2-22] [MQTT-3.1.2-24], the client's
// own value when the CONNACK names none [MQTT-3.2.2-22]. PINGREQ is answered [MQTT-3.12.4-1] and breaks the silence.
func TestMQTT_3_1_2_24(t *testing.T) {
	conform(t, func(r *rig) {
		silent, p := r.connect(hello{id: "silent", keepAlive: 20})
		if r.version == 5 && bytes.Contains(p.body[3:], []byte{0x13, 0}) {
			r.t.Errorf("a keep-alive of the server's: %v", p)
		}
		pinging := r.dial(hello{id: "pinging", keepAlive: 20})
		never := r.named("never")
		silent.alive()
		r.clock.advance(29 * time.Second)
		r.Inspect(r.clock.now())
		pinging.alive()
		silentStill := len(r.Sessions())
		r.clock.advance(3 * time.Second)
		r.Inspect(r.clock.now())
		silent.cut(0x8D)
		if silentStill != 3 {
			r.t.Errorf("%d sessions within the time", silentStill)
		}
		pinging.alive()
		never.alive()
	})
}

// DISCONNECT: after it nothing is sent and the connection ends [MQTT-3.14.4-1] [MQTT-3.14.4-2]; one of the server's has a
// code of the table [MQTT-3.14.2-1] and no session expiry [MQTT-3.14.2-2].
func TestMQTT_3_14_4_1(t *testing.T) {
	conform(t, func(r *rig) {
		c := r.named("c")
		c.mustSub(1, "plain/#")
		c.write([]byte{0xE0, 0}, pub{topic: "plain/x", payload: "late", qos: 1, id: 1}.bytes(r.version), []byte{0xC0, 0})
		c.shut()

		c = r.named("c")
		c.mustSub(1, "plain/#")
		if !r.Disconnect("c") {
			r.t.Fatal("not found")
		}
		if r.version == 5 {
			if p := c.want(0xE0); p.body[0] != 0x98 || len(p.body) > 1 {
				r.t.Errorf("DISCONNECT %v", p)
			}
		}
		c.shut()
	})
}

// A method of enhanced authentication that is not offered is refused [MQTT-4.12.0-1]; without one no AUTH is sent, and none
// is taken [MQTT-4.12.0-6].
func TestMQTT_4_12_0_1(t *testing.T) {
	conform5(t, func(r *rig) {
		c, p := r.connect(hello{id: "c", properties: append([]byte{0x15}, str("SCRAM-SHA-256")...)})
		if p.body[1] != 0x8C {
			r.t.Error(p)
		}
		c.ended()
		c, p = r.connect(hello{id: "c"})
		if bytes.Contains(p.body[3:], []byte{0x15}) {
			r.t.Errorf("an authentication method: %v", p)
		}
		c.write([]byte{0xF0, 0})
		c.cut(0x82)
	})
}
