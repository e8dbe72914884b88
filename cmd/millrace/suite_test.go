package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// What the well-known public suites play, against the program as they find it: `serve --profile conformance`, no account.
// The sequences are ours, from the text of the two standards; the topics are those that suites are set up with.

var (
	suiteTopics  = []string{"TopicA", "TopicA/B", "Topic/C", "TopicA/C", "/TopicA"}
	suiteFilters = []struct{ filter, matches string }{
		{"TopicA/+", "TopicA/B TopicA/C"},
		{"+/C", "Topic/C TopicA/C"},
		{"#", "TopicA TopicA/B Topic/C TopicA/C /TopicA"},
		{"/#", "/TopicA"},
		{"/+", "/TopicA"},
		{"+/+", "TopicA/B Topic/C TopicA/C /TopicA"},
		{"TopicA/#", "TopicA TopicA/B TopicA/C"},
	}
)

// suite is the box and the version it is asked in.
type suite struct {
	*testing.T
	p       *process
	at      string
	version byte
}

// come connects under an identifier with a session that ends with its connection.
func (s suite) come(id string) *guest {
	s.Helper()
	g, _ := enter(s, s.at, opening{version: s.version, id: id})
	return g
}

// stay connects to a session that is kept for an hour, and says whether it was there.
func (s suite) stay(id string) (*guest, bool) {
	s.Helper()
	o := opening{version: s.version, id: id, keep: true}
	if s.version == 5 {
		o.props = prop4(0x11, 3600)
	}
	return enter(s, s.at, o)
}

func (s suite) wants(got letter, topic, payload string, qos byte, retain bool) {
	s.Helper()
	if got.topic != topic || got.payload != payload || got.qos != qos || got.retain != retain {
		s.Errorf("got %+v, want %s %q QoS %d retain %v", got, topic, payload, qos, retain)
	}
}

func TestSuitesOfOthers(t *testing.T) {
	p := serve(t, t.TempDir(), "--profile", "conformance")
	for _, version := range []byte{4, 5} {
		for _, part := range []struct {
			name string
			play func(s suite)
		}{
			{"basic", suite.basic}, {"retained", suite.retained}, {"wills", suite.wills}, {"client identifiers", suite.identifiers},
			{"offline", suite.offline}, {"overlapping", suite.overlapping}, {"keep-alive", suite.keepAlive}, {"redelivery", suite.redelivery},
			{"dollar", suite.dollar}, {"unsubscribe", suite.unsubscribe}, {"nosubscribe", suite.noSubscribe}, {"wildcards", suite.wildcards},
			{"accounts", suite.accounts},
		} {
			t.Run(fmt.Sprintf("v%d/%s", version, part.name), func(t *testing.T) { part.play(suite{t, p, p.mqtt, version}) })
		}
	}
	for _, part := range []struct {
		name string
		play func(s suite)
	}{
		{"session expiry", suite.sessionExpiry}, {"shared", suite.shared}, {"assigned identifier", suite.assigned}, {"request and response", suite.request},
		{"flow control", suite.flow}, {"server keep-alive", suite.serverKeepAlive}, {"aliases in", suite.aliasesIn}, {"aliases out", suite.aliasesOut},
		{"payload format", suite.format}, {"packet size", suite.packetSize}, {"message expiry", suite.messageExpiry}, {"will delay", suite.willDelay},
		{"user properties", suite.userProperties}, {"subscription options", suite.options}, {"subscription identifiers", suite.subscriptionIDs},
		{"unsubscribe codes", suite.unsubscribeCodes},
	} {
		t.Run("v5/"+part.name, func(t *testing.T) { part.play(suite{t, p, p.mqtt, 5}) })
	}
	p.stop()
	if !strings.Contains(p.told.String(), "broker.profile is conformance: everybody is let in") {
		t.Errorf("the log does not warn: %s", p.told.String())
	}
}

func (s suite) basic() {
	g := s.come("myclientid")
	g.listen(2, suiteTopics[0])
	for qos := range byte(3) {
		g.send(letter{topic: suiteTopics[0], payload: fmt.Sprint("qos ", qos), qos: qos})
		s.wants(g.get(), suiteTopics[0], fmt.Sprint("qos ", qos), qos, false)
	}
	g.quiet()
	// A second CONNECT ends the connection.
	g.write(opening{version: s.version, id: "myclientid"}.frame())
	g.over()
	// So does a protocol that is none.
	odd := s.come("odd")
	odd.write([]byte{0xF1, 0})
	odd.over()
}

func (s suite) retained() {
	g := s.come("myclientid")
	kept := []string{suiteTopics[1], suiteTopics[2], suiteTopics[3]}
	for qos, topic := range kept {
		g.send(letter{topic: topic, payload: fmt.Sprint("qos ", qos), qos: byte(qos), retain: true})
	}
	g.quiet()
	b := s.come("myclientid2")
	b.listen(2, "+/+")
	got := map[string]letter{}
	for range kept {
		l := b.get()
		got[l.topic] = l
	}
	for qos, topic := range kept {
		s.wants(got[topic], topic, fmt.Sprint("qos ", qos), byte(qos), true)
	}
	b.quiet()
	for _, topic := range kept {
		g.send(letter{topic: topic, qos: 1, retain: true})
		s.wants(b.get(), topic, "", 1, false)
	}
	c := s.come("myclientid3")
	c.listen(2, "+/+")
	c.quiet()
}

func (s suite) wills() {
	b := s.come("myclientid2")
	b.listen(2, suiteTopics[2])
	for qos := range byte(3) {
		g, _ := enter(s, s.at, opening{version: s.version, id: "myclientid", will: &letter{topic: suiteTopics[2], payload: "client not disconnected", qos: qos, retain: true}})
		_ = g.conn.Close()
		s.wants(b.get(), suiteTopics[2], "client not disconnected", qos, false)
	}
	c := s.come("myclientid3")
	c.listen(2, suiteTopics[2])
	s.wants(c.get(), suiteTopics[2], "client not disconnected", 2, true)
	c.send(letter{topic: suiteTopics[2], qos: 1, retain: true})
	s.wants(b.get(), suiteTopics[2], "", 1, false)
	g, _ := enter(s, s.at, opening{version: s.version, id: "myclientid", will: &letter{topic: suiteTopics[2], payload: "no"}})
	g.bye()
	b.quiet()
}

func (s suite) identifiers() {
	// Taken over by the same identifier.
	first := s.come("myclientid")
	s.come("myclientid").quiet()
	if code := first.over(); s.version == 5 && code != 0x8E {
		s.Errorf("taken over: %#x", code)
	}
	// Of no length.
	if s.version == 5 {
		return // see assigned
	}
	_, p := hail(s, s.at, opening{version: 4, keep: true})
	if p.body[1] != 2 {
		s.Errorf("no identifier and a session to be kept: %#x, want 2", p.body[1])
	}
	s.come("").quiet()
	for range 2 { // two at once
		s.come("").quiet()
	}
}

func (s suite) offline() {
	if g, present := s.stay("myclientid"); true {
		if present {
			s.Error("a session that nobody began is there")
		}
		g.listen(2, "+/+")
		g.bye()
	}
	p := s.come("myclientid2")
	for qos := range byte(3) {
		p.send(letter{topic: suiteTopics[qos+1], payload: fmt.Sprint("qos ", qos), qos: qos})
	}
	p.quiet()
	g, present := s.stay("myclientid")
	if !present {
		s.Error("the session is gone")
	}
	var got []string
	for range 2 { // QoS 0 need not wait, and does not
		l := g.get()
		got = append(got, fmt.Sprint(l.topic, " ", l.payload, " ", l.qos))
	}
	slices.Sort(got)
	if strings.Join(got, ", ") != "Topic/C qos 1 1, TopicA/C qos 2 2" {
		s.Errorf("got %v", got)
	}
	g.quiet()
	g.bye()
	s.come("myclientid").bye() // a clean start ends it
	if g, present = s.stay("myclientid"); present {
		s.Error("the session outlived a clean start")
	}
	g.bye()
	s.come("myclientid").bye()
}

func (s suite) overlapping() {
	g := s.come("myclientid")
	g.listen(2, "TopicA/#")
	g.listen(1, "TopicA/+")
	g.send(letter{topic: suiteTopics[3], payload: "overlapping", qos: 2})
	s.wants(g.get(), suiteTopics[3], "overlapping", 2, false) // once, at the higher QoS
	g.quiet()
}

func (s suite) keepAlive() {
	b := s.come("myclientid2")
	b.listen(2, suiteTopics[4])
	began := time.Now()
	g, _ := enter(s, s.at, opening{version: s.version, id: "myclientid", keepAlive: 2, will: &letter{topic: suiteTopics[4], payload: "keepalive expiry"}})
	s.wants(b.get(), suiteTopics[4], "keepalive expiry", 0, false)
	if after := time.Since(began); after < 2900*time.Millisecond {
		s.Errorf("ended after %s, which is less than one and a half times the keep-alive", after)
	}
	if code := g.over(); s.version == 5 && code != 0x8D {
		s.Errorf("keep-alive: %#x", code)
	}
}

func (s suite) redelivery() {
	g, _ := s.stay("myclientid")
	g.listen(2, "TopicA/#")
	p := s.come("myclientid2")
	for qos := byte(1); qos < 3; qos++ {
		p.send(letter{topic: suiteTopics[1], payload: fmt.Sprint("qos ", qos), qos: qos})
	}
	ids := map[byte]uint16{}
	for range 2 { // and neither is acknowledged
		l := g.take()
		ids[l.qos] = l.id
	}
	_ = g.conn.Close()
	g, present := s.stay("myclientid")
	if !present {
		s.Error("the session is gone")
	}
	for qos := byte(1); qos < 3; qos++ {
		l := g.get()
		s.wants(l, suiteTopics[1], fmt.Sprint("qos ", qos), qos, false)
		if !l.dup || l.id != ids[qos] {
			s.Errorf("QoS %d comes again as %+v, its identifier was %d", qos, l, ids[qos])
		}
	}
	g.quiet()
	g.bye()
	s.come("myclientid").bye()
}

func (s suite) dollar() {
	g := s.come("myclientid")
	g.listen(2, "#", "+/+", "+/data")
	p := s.come("myclientid2")
	p.send(letter{topic: "$", payload: "no wildcard begins with it", qos: 1})
	p.send(letter{topic: "$TopicA/data", payload: "no wildcard begins with it", qos: 1})
	p.quiet()
	g.quiet()
}

func (s suite) unsubscribe() {
	g := s.come("myclientid")
	g.listen(2, suiteTopics[0], suiteTopics[1], suiteTopics[2])
	g.leave(suiteTopics[0])
	p := s.come("myclientid2")
	for _, topic := range suiteTopics[:3] {
		p.send(letter{topic: topic, payload: topic, qos: 1})
	}
	p.quiet()
	s.wants(g.get(), suiteTopics[1], suiteTopics[1], 1, false)
	s.wants(g.get(), suiteTopics[2], suiteTopics[2], 1, false)
	g.quiet()
}

func (s suite) noSubscribe() {
	refused := byte(0x80)
	if s.version == 5 {
		refused = 0x87
	}
	g := s.come("myclientid")
	if got := g.ask(nil, 2, "test/nosubscribe"); got[0] != refused {
		s.Errorf("test/nosubscribe: %#x, want %#x", got[0], refused)
	}
	g.quiet() // and the connection lives
}

// Each filter gets what it matches, live at each QoS, and a slash first makes another topic.
func (s suite) wildcards() {
	p := s.come("myclientid2")
	for _, f := range suiteFilters {
		g := s.come("myclientid")
		g.listen(2, f.filter)
		for i, topic := range suiteTopics {
			p.send(letter{topic: topic, payload: topic, qos: byte(i % 3)})
		}
		p.quiet()
		var got []string
		for range strings.Fields(f.matches) {
			got = append(got, g.get().topic)
		}
		want := strings.Fields(f.matches)
		if slices.Sort(got); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
			s.Errorf("%s got %v", f.filter, got)
		}
		g.quiet()
	}
}

// A user name and password that nobody gave out are no obstacle.
func (s suite) accounts() {
	g, _ := enter(s, s.at, opening{version: s.version, id: "myclientid", user: "testuser", password: "testpassword"})
	g.listen(1, suiteTopics[0])
	g.send(letter{topic: suiteTopics[0], payload: "x", qos: 1})
	s.wants(g.get(), suiteTopics[0], "x", 1, false)
}
