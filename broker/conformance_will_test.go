package broker_test

import (
	"testing"
	"time"
)

// Wills.

// will is a CONNECT's will: its connect flags and its fields.
func (r *rig) will(qos byte, retain bool, topic, payload string, properties ...byte) hello {
	h := hello{flags: 4 | qos<<3, afterID: join(props(r.version, properties), str(topic), str(payload))}
	if retain {
		h.flags |= 0x20
	}
	return h
}

// A will is kept with the connection [MQTT-3.1.2-7] and published when that ends without a word [MQTT-3.1.2-8], by whatever end,
// with its QoS, once [MQTT-3.1.2-10]; DISCONNECT drops it [MQTT-3.14.4-3] [MQTT-3.1.2-10].
func TestMQTT_3_1_2_10(t *testing.T) {
	conform(t, func(r *rig) {
		s := r.named("s")
		s.mustSub(1, "plain/#")
		mark := func(text string) {
			r.t.Helper()
			s.send(pub{topic: "plain/mark", payload: text, id: 9})
			s.only(text)
		}
		ends := map[string]func(c *client){
			"closed":         func(c *client) { _ = c.conn.Close() },
			"protocol error": func(c *client) { c.write([]byte{0x20, 2, 0, 0}) },
			"ejected":        func(*client) { r.Disconnect("dying") },
			"taken over":     func(*client) { r.named("dying") },
		}
		if r.version == 5 {
			ends["DISCONNECT 0x04"] = func(c *client) { c.write([]byte{0xE0, 1, 4}) }
		}
		for name, end := range ends {
			for qos := byte(0); qos <= 1; qos++ {
				h := r.will(qos, false, "plain/will", name)
				h.id = "dying"
				end(r.dial(h))
				if m := s.only(name); m.qos != qos || m.retain || m.topic != "plain/will" {
					r.t.Errorf("%s: %+v", name, m)
				}
			}
		}
		h := r.will(1, false, "plain/will", "never")
		h.id = "orderly"
		c := r.dial(h)
		c.write([]byte{0xE0, 0})
		c.ended()
		r.dial(hello{id: "orderly"}).alive() // and without a will of its own nothing is published
		eventually(r.t, "it is gone", func() bool { return !r.Disconnect("nobody") })
		mark("end")
	})
}

// A will is retained when it says so, and only then. [MQTT-3.1.2-14] [MQTT-3.1.2-15] [MQTT-3.1.2-16] [MQTT-3.1.2-17]
func TestMQTT_3_1_2_15(t *testing.T) {
	conform(t, func(r *rig) {
		s := r.named("s")
		s.mustSub(1, "plain/+")
		for topic, retain := range map[string]bool{"plain/passing": false, "plain/kept": true} {
			h := r.will(1, retain, topic, topic)
			h.id = "dying"
			c := r.dial(h)
			_ = c.conn.Close()
			s.only(topic)
		}
		s.alive()
		late := r.named("late")
		late.mustSub(1, "plain/+")
		if m := late.only("plain/kept"); !m.retain {
			r.t.Errorf("%+v", m)
		}
		late.alive()
	})
}

// A will waits as long as it says; a client that comes back in time takes it back [MQTT-3.1.3-9]. Its properties arrive as they are,
// user properties in their order [MQTT-3.1.3-10].
func TestMQTT_3_1_3_10(t *testing.T) {
	conform5(t, func(r *rig) {
		s := r.named("s")
		s.mustSub(1, "plain/#")
		content := join(text(3, "text/plain"), pair("b", "1"), pair("a", "2"), pair("b", "3"))
		h := r.will(1, false, "plain/will", "gone", join([]byte{0x18, 0, 0, 0, 60}, content)...)
		h.id, h.persistent, h.properties = "dying", true, hour
		c := r.dial(h)
		r.gone(c, "dying")
		r.clock.advance(30 * time.Second)
		r.Inspect(r.clock.now())
		c = r.dial(h) // in time
		c.alive()
		r.clock.advance(60 * time.Second)
		r.Inspect(r.clock.now())
		s.send(pub{topic: "plain/mark", payload: "nothing yet"})
		s.only("nothing yet")
		r.gone(c, "dying")
		r.clock.advance(61 * time.Second)
		r.Inspect(r.clock.now())
		if m := s.only("gone"); split(r.t, m.properties) != split(r.t, content) {
			r.t.Errorf("properties %x, want %x", m.properties, content)
		}
	})
}
