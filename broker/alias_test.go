package broker_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// aliasReader reads deliveries as a client with a Topic Alias Maximum does, and complains of what it could not know.
type aliasReader struct {
	*client
	most   uint16
	known  map[uint16]string
	saved  int // topics that were left out
	taught int
}

func (r *aliasReader) next() msg {
	r.t.Helper()
	m := r.wantMsg()
	var alias uint16
	if len(m.properties) > 2 && m.properties[0] == 0x23 {
		alias, m.properties = binary.BigEndian.Uint16(m.properties[1:]), m.properties[3:]
		if alias == 0 || alias > r.most {
			r.t.Fatalf("alias %d, at most %d are taken", alias, r.most)
		}
	}
	switch {
	case m.topic != "" && alias != 0:
		r.known[alias] = m.topic
		r.taught++
	case m.topic == "":
		if m.topic = r.known[alias]; m.topic == "" {
			r.t.Fatalf("alias %d was never given a topic", alias)
		}
		r.saved++
	}
	if m.qos == 1 {
		r.puback(m.id)
	}
	return m
}

// Outbound topic aliases: at most as many as the client takes, and 64; each is taught before it is used, a topic is left out
// only then; none without a maximum, and none is remembered from one connection to the next [MQTT-3.1.2-26] [MQTT-3.1.2-27]
// [MQTT-3.3.2-7] [MQTT-3.3.2-8] [MQTT-3.3.2-11].
func TestMQTT_3_3_2_11(t *testing.T) {
	conform5(t, func(r *rig) {
		p := r.named("p")
		for _, most := range []uint16{1, 3, 64, 200} {
			id := fmt.Sprint("s", most)
			for turn := range 2 {
				s := &aliasReader{client: r.dial(hello{id: id, persistent: true, properties: []byte{0x11, 0, 0, 1, 0, 0x22, byte(most >> 8), byte(most)}}), most: min(most, 64), known: map[uint16]string{}}
				if turn == 0 {
					s.mustSub(1, "plain/#", full(id+"/#"))
				}
				n := int(s.most) + 2 // topics, more than there may be aliases
				topic := func(i int) string { return fmt.Sprint("plain/topic/", i%n) }
				for i := range 4 * n {
					p.pub(pub{topic: topic(i / 2), payload: fmt.Sprint(i)})
				}
				for i := range 4 * n {
					if m := s.next(); m.topic != topic(i/2) || m.payload != fmt.Sprint(i) {
						r.t.Fatalf("%d: got %+v", i, m)
					}
				}
				p.publishes(full(id+"/of/a/topic"), 10, values)
				for i := range 10 {
					if m := s.next(); m.topic != full(id+"/of/a/topic") {
						r.t.Fatalf("%d: got %+v", i, m)
					}
				}
				if s.saved == 0 || s.taught == 0 {
					r.t.Errorf("maximum %d, turn %d: %d topics left out, %d taught", most, turn, s.saved, s.taught)
				}
				s.write([]byte{0xE0, 0})
				s.ended()
			}
		}
		for name, properties := range map[string][]byte{"none": nil, "zero": {0x22, 0, 0}} {
			s := &aliasReader{client: r.dial(hello{id: name, properties: properties}), known: map[uint16]string{}}
			s.mustSub(1, "plain/#")
			for range 20 {
				p.pub(pub{topic: "plain/topic", payload: "x"})
				s.next()
			}
		}
	})
}

// Random topics through a small table: what is decoded is what was sent, also where messages are sent again, are too large
// for the client, or would be so only with the alias they teach.
func TestAliasesOfRandomTopics(t *testing.T) {
	t.Parallel()
	x := open(t, setting{})
	random := rand.New(rand.NewPCG(1, 2))
	const largest = 120
	s := &aliasReader{client: dial(t, x.Addr(), hello{id: "s", user: "dev", properties: []byte{0x22, 0, 8, 0x27, 0, 0, 0, largest}}), most: 8, known: map[uint16]string{}}
	s.mustSub(0, "plain/#")
	p := dial(t, x.Addr(), hello{id: "p", user: "dev"})
	size := func(topic, payload string) int { return 2 + 2 + len(topic) + 1 + len(payload) }
	atEdge := 0
	for i := range 2000 {
		// a few topics come often, many now and then
		n := random.IntN(12)
		if random.IntN(4) == 0 {
			n = random.IntN(500)
		}
		topic := fmt.Sprintf("plain/%d/%s", n, strings.Repeat("y", n%40))
		payload := fmt.Sprint(i, strings.Repeat("x", random.IntN(70)))
		if random.IntN(5) == 0 {
			payload = payload + strings.Repeat("z", max(0, largest-size(topic, payload))) // fits to the octet, without an alias
			atEdge++
		}
		p.pub(pub{topic: topic, payload: payload})
		if size(topic, payload) > largest {
			// with a known alias it may still fit; then it comes
			p.alive()
			s.write([]byte{0xC0, 0})
			pk, err := s.read(patience)
			if err != nil {
				t.Fatal(err)
			}
			if pk.first != 0xD0 {
				if m := s.parse(pk); m.payload != payload || s.known[binary.BigEndian.Uint16(m.properties[1:])] != topic {
					t.Fatalf("%d: got %+v", i, m)
				}
				s.want(0xD0)
			}
			continue
		}
		if m := s.next(); m.topic != topic || m.payload != payload {
			t.Fatalf("%d: got %+v, want %s %s", i, m, topic, payload)
		}
	}
	if s.saved < 400 || atEdge < 200 {
		t.Errorf("%d topics were left out, %d messages at the edge", s.saved, atEdge)
	}
}

// A message that was on its way when the connection ended is dropped, and counted, when the next one takes only smaller
// packets; those behind it come.
func TestResentWithinMaximumPacketSize(t *testing.T) {
	x := open(t, setting{})
	expiry := []byte{0x11, 0, 0, 1, 0}
	s := dial(t, x.Addr(), hello{id: "s", user: "dev", persistent: true, properties: expiry})
	s.mustSub(1, "plain/#")
	p := dial(t, x.Addr(), hello{id: "p", user: "dev"})
	for _, n := range []int{10, 200, 300, 20} {
		p.send(pub{topic: "plain/x", payload: strings.Repeat("x", n)})
		s.wantMsg()
	}
	_ = s.conn.Close()
	eventually(t, "it is offline", func() bool { return x.metric("millrace_broker_connections", "") == 1 })
	s = dial(t, x.Addr(), hello{id: "s", user: "dev", persistent: true, properties: append([]byte{0x27, 0, 0, 0, 100}, expiry...)})
	for _, n := range []int{10, 20} {
		if m := s.wantMsg(); len(m.payload) != n || !m.dup {
			t.Errorf("got %d octets, dup %v, want %d", len(m.payload), m.dup, n)
		}
	}
	p.send(pub{topic: "plain/x", payload: "last"})
	if m := s.wantMsg(); m.payload != "last" {
		t.Errorf("got %+v", m)
	}
	if n := x.metric("millrace_broker_messages_dropped_total", "too_large"); n != 2 {
		t.Errorf("%v dropped", n)
	}
}

// Topics that come in turn, more than the client takes aliases for, still save something; when others take their place, those get
// the aliases in the end.
func TestTooFewAliasesSave(t *testing.T) {
	x := open(t, setting{})
	dial(t, x.Addr(), hello{id: "none", user: "sub"})
	dial(t, x.Addr(), hello{id: "few", user: "sub", properties: []byte{0x22, 0, 10}})
	topics := func(kind string, n int) (list []string) {
		for i := range n {
			list = append(list, fmt.Sprintf("plain/%s/a/long/name/of/topic/%02d", kind, i))
		}
		return list
	}
	without, fill := x.NewFiller("none", "x", topics("first", 50)...), x.NewFiller("few", "x", topics("first", 50)...)
	plain, octets := 0, 0
	for range 40 {
		plain += without.Fill()
		octets += fill.Fill()
	}
	if octets > plain*90/100 {
		t.Errorf("%d octets, %d without aliases", octets, plain)
	}
	other := x.NewFiller("few", "x", topics("other", 10)...)
	for range 100 {
		octets = other.Fill()
	}
	if want := x.NewFiller("none", "x", topics("other", 10)...).Fill() * 60 / 100; octets > want {
		t.Errorf("%d octets of ten topics that came a hundred times, at most %d", octets, want)
	}
}
