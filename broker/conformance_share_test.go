package broker_test

import (
	"fmt"
	"testing"
)

// A shared subscription is $share/, a name of at least one character [MQTT-4.8.2-1] without / + #, and a filter [MQTT-4.8.2-2]; no
// local does not go with it [MQTT-3.8.3-4].
func TestMQTT_4_8_2_1(t *testing.T) {
	conform5(t, func(r *rig) {
		c := r.named("c")
		for filter, want := range map[string]byte{"$share/g/plain/#": 0, "$share/g/+": 0, "$share/g/#": 0, "$share/g//x": 0, "$share//plain/x": 0x8F, "$share/g": 0x8F, "$share/g/": 0x8F, "$share": 0x8F,
			"$share/a+/plain/x": 0x8F, "$share/#/plain/x": 0x8F, "$share/+/plain/x": 0x8F, "$share/g/a#": 0x8F} {
			if got := c.sub(0, filter); got[0] != want {
				r.t.Errorf("%s: %02x, want %02x", filter, got[0], want)
			}
		}
		c.write(subscribe(5, 1, nil, 4, "$share/g/plain/x"))
		c.cut(0x82)
	})
}

// Each message goes to one member, under the QoS granted to it [MQTT-4.8.2-3]. What a member refuses goes to nobody else
// [MQTT-4.8.2-6].
func TestMQTT_4_8_2_3(t *testing.T) {
	conform5(t, func(r *rig) {
		a, b, p := r.named("a"), r.named("b"), r.named("p")
		a.mustSub(1, "$share/g/plain/#")
		b.mustSub(0, "$share/g/plain/#")
		const n = 10
		for i := range n {
			p.send(pub{topic: "plain/x", payload: fmt.Sprint(i)})
		}
		p.settled()
		got := map[string]int{}
		for range n / 2 {
			m := a.wantMsg()
			if m.qos != 1 {
				r.t.Errorf("%+v", m)
			}
			got[m.payload]++
			a.pubackWith(m.id, 0x97)
			m = b.wantMsg()
			if m.qos != 0 {
				r.t.Errorf("%+v", m)
			}
			got[m.payload]++
		}
		if len(got) != n {
			r.t.Errorf("%v", got)
		}
		a.alive()
		b.alive()
		a.write([]byte{0xE0, 0})
		a.ended()
		b.alive() // nothing of a's comes here
	})
}

// A QoS 2 message that was sent is finished with its member when that comes back [MQTT-4.8.2-4], and goes to nobody else, not even
// when the member's session ends [MQTT-4.8.2-5].
func TestMQTT_4_8_2_4(t *testing.T) {
	conform5(t, func(r *rig) {
		a, _ := r.keep("a")
		a.mustSub(2, "$share/g/plain/#")
		p := r.named("p")
		p.exactly(pub{topic: "plain/x", payload: "begun", id: 1})
		p.released(1)
		m := a.wantMsg()
		b := r.named("b")
		b.mustSub(2, "$share/g/plain/#")
		r.gone(a, "a")
		b.alive()
		a, _ = r.keep("a")
		if again := a.wantMsg(); again.id != m.id || !again.dup || again.payload != "begun" {
			r.t.Errorf("%+v", again)
		}
		r.gone(a, "a")
		a = r.named("a") // a clean start ends the session
		a.alive()
		p.send(pub{topic: "plain/y", payload: "end"})
		if m := b.wantMsg(); m.payload != "end" {
			r.t.Errorf("%+v", m)
		}
	})
}
