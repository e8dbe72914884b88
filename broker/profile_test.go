package broker_test

import (
	"fmt"
	"strings"
	"testing"

	"millrace/broker"
)

// What the well-known public suites do first, against the profile that is made for them. The statements themselves have
// their own tests; here it is shown that somebody without an account can run them.
func TestConformanceProfile(t *testing.T) {
	profile := setting{broker: func(o *broker.Options) { o.Profile = broker.ProfileConformance }}
	conformWith(t, profile, versions, func(r *rig) {
		guest := func(id string, h hello) *client {
			h.id, h.bare = id, true
			return r.dial(h)
		}
		topics := []string{"TopicA", "TopicA/B", "Topic/C", "TopicA/C", "/TopicA"}
		filters := []string{"TopicA/+", "+/C", "#", "/#", "/+", "+/+", "TopicA/#"}
		matches := []string{"TopicA/B TopicA/C", "Topic/C TopicA/C", "TopicA TopicA/B Topic/C TopicA/C /TopicA", "/TopicA", "/TopicA",
			"TopicA/B Topic/C TopicA/C /TopicA", "TopicA TopicA/B TopicA/C"}
		p := guest("myclientid2", hello{})
		for i, filter := range filters { // live, at every QoS
			s := guest("myclientid", hello{})
			s.mustSub(2, filter)
			for _, topic := range topics {
				p.pub(pub{topic: topic, payload: topic})
			}
			p.pub(pub{topic: "$TopicA", payload: "no wildcard matches it"})
			p.alive()
			for _, topic := range strings.Fields(matches[i]) {
				if m := s.wantMsg(); m.topic != topic {
					r.t.Errorf("%s: got %s, want %s", filter, m.topic, topic)
				}
			}
			s.alive()
		}
		for _, topic := range topics { // retained, and cleared
			p.send(pub{topic: topic, payload: "kept", retain: true})
		}
		s := guest("myclientid", hello{})
		s.mustSub(2, "+/+")
		for range 4 {
			if m := s.wantMsg(); !m.retain || m.payload != "kept" {
				r.t.Errorf("got %+v", m)
			}
		}
		for _, topic := range topics {
			p.send(pub{topic: topic, retain: true})
		}
		s = guest("myclientid", hello{})
		s.mustSub(2, "#")
		s.alive()

		// names and passwords that nobody gave out, and no client identifier
		named := r.dial(hello{id: "named", user: "testuser", password: "testpass"})
		named.mustSub(1, "TopicA")
		_, ack := r.connect(hello{bare: true})
		if ack.body[1] != 0 {
			r.t.Errorf("an empty client identifier: %v", ack)
		}
		refused := byte(0x80)
		if r.version == 5 {
			refused = 0x87
		}
		if codes := named.sub(1, "test/nosubscribe", "test/other", "test/+"); codes[0] != refused || codes[1] != 1 || codes[2] != 1 {
			r.t.Errorf("test/nosubscribe: %x", codes)
		}
		p.send(pub{topic: "test/nosubscribe", payload: "not for anybody"})
		p.send(pub{topic: "test/other", payload: "x"})
		named.only("x")
		if r.version == 5 {
			for asked, want := range map[uint16]bool{0: true, 61: true, 600: true, 60: false, 20: false} {
				_, ack := r.connect(hello{id: fmt.Sprint("k", asked), bare: true, keepAlive: asked})
				if got := strings.Contains(string(ack.body), "\x13\x00\x3c"); got != want {
					r.t.Errorf("keep-alive %d: imposed %v: %v", asked, got, ack)
				}
			}
		}
		// offline, taken over forty times, and nobody is banned
		keep := []byte{0x11, 0, 0, 1, 0}
		s = guest("kept", hello{persistent: true, properties: keep})
		s.mustSub(2, "TopicA/#")
		for range 40 {
			s = guest("kept", hello{persistent: true, properties: keep})
		}
		s.write([]byte{0xE0, 0})
		s.ended()
		p.send(pub{topic: "TopicA/B", payload: "while you were away"})
		s = guest("kept", hello{persistent: true, properties: keep})
		s.only("while you were away")
		// what the box stores is not for guests
		p.pub(pub{topic: full("a"), payload: "1", qos: 1, id: 9})
		if code, _ := p.ackOf(9); r.version == 5 && code != 0x87 {
			r.t.Errorf("a guest stores values: %02x", code)
		}
		if r.catalog.Lookup("main", "a") != nil {
			r.t.Error("a guest stored a value")
		}
	})
}

// The profile is for one machine: its listeners are on loopback, or the box does not start.
func TestConformanceProfileStaysAtHome(t *testing.T) {
	for address, ok := range map[string]bool{"127.0.0.1:1883": true, "[::1]:1883": true, "localhost:1883": true, "127.8.0.1:0": true,
		":1883": false, "0.0.0.0:1883": false, "[::]:1883": false, "192.168.1.4:1883": false, "plant.example:1883": false} {
		o := broker.DefaultOptions()
		o.Profile, o.Address = broker.ProfileConformance, address
		if err := o.Validate(); (err == nil) != ok || err != nil && !strings.Contains(err.Error(), "broker.address: "+address) {
			t.Errorf("%s: %v", address, err)
		}
		o.Profile = ""
		if err := o.Validate(); err != nil {
			t.Errorf("%s without the profile: %v", address, err)
		}
	}
	o := broker.DefaultOptions()
	o.Profile = "easy"
	if err := o.Validate(); err == nil || !strings.Contains(err.Error(), `broker.profile: "easy"`) {
		t.Errorf("%v", err)
	}
}
