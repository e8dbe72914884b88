package broker_test

import (
	"fmt"
	"testing"
)

// Retained messages.

// RETAIN 1 keeps a message with its QoS for those who subscribe later, in place of the one before [MQTT-3.3.1-5] [MQTT-3.3.1-6]
// whatever its QoS [MQTT-3.3.1-7]; it comes to them with RETAIN 1 [MQTT-3.3.1-8]; RETAIN 0 changes nothing [MQTT-3.3.1-8]
// [MQTT-3.3.1-12]; it belongs to no session [MQTT-3.1.2-7].
func TestMQTT_3_3_1_8(t *testing.T) {
	conform(t, func(r *rig) {
		p := r.named("p")
		late := func(i int, payload string, qos byte) {
			r.t.Helper()
			s := r.named(fmt.Sprint("s", i))
			s.mustSub(1, "plain/x")
			if payload != "" {
				if m := s.only(payload); !m.retain || m.dup || m.qos != qos {
					r.t.Errorf("%+v", m)
				}
			}
			s.alive()
		}
		late(0, "", 0)
		p.send(pub{topic: "plain/x", payload: "first", retain: true})
		p.settled()
		late(1, "first", 1)
		p.send(pub{topic: "plain/x", payload: "passing by"})
		late(2, "first", 1)
		p.pub(pub{topic: "plain/x", payload: "second", retain: true})
		p.settled()
		late(3, "second", 0)
		p.write([]byte{0xE0, 0})
		p.ended()
		late(4, "second", 0)
	})
}

// An empty retained message removes the one that was there and is delivered like any other [MQTT-3.3.1-6] [MQTT-3.3.1-10]; it is
// not kept itself [MQTT-3.3.1-7] [MQTT-3.3.1-11].
func TestMQTT_3_3_1_6(t *testing.T) {
	conform(t, func(r *rig) {
		s, p := r.named("s"), r.named("p")
		s.mustSub(1, "plain/#")
		p.send(pub{topic: "plain/x", payload: "kept", retain: true})
		s.only("kept")
		p.send(pub{topic: "plain/x", payload: "", retain: true})
		if m := s.only(""); m.retain || m.topic != "plain/x" {
			r.t.Errorf("%+v", m)
		}
		p.settled()
		late := r.named("late")
		late.mustSub(1, "plain/#")
		late.alive()
		if n := r.store.count("br"); n != 0 {
			r.t.Errorf("%d rows of retained messages", n)
		}
	})
}

// Retain handling: 0 sends what is retained with every SUBSCRIBE [MQTT-3.3.1-9] [MQTT-3.8.4-4], 1 with a new one only
// [MQTT-3.3.1-10], 2 never [MQTT-3.3.1-11].
func TestMQTT_3_3_1_10(t *testing.T) {
	conform5(t, func(r *rig) {
		p := r.named("p")
		p.send(pub{topic: "plain/x", payload: "kept", retain: true})
		p.send(pub{topic: full("line1/x"), payload: "5"})
		p.settled()
		for _, filter := range []string{"plain/x", full("line1/x")} {
			for handling, want := range [][2]int{{1, 1}, {1, 0}, {0, 0}} {
				s := r.dial(hello{id: fmt.Sprint("s", handling, len(filter))})
				for _, n := range want {
					s.mustSub(1|byte(handling)<<4, filter)
					for range n {
						m := s.wantMsg()
						s.puback(m.id)
						if !m.retain || m.topic != filter {
							r.t.Errorf("%+v", m)
						}
					}
					s.alive()
				}
			}
		}
	})
}
