package main

import (
	"fmt"
	"strings"
	"time"
)

// What public suites play on MQTT 5 only; see suite_test.go.

func (s suite) sessionExpiry() {
	at := func(expiry uint32, keep bool) (g *guest, present bool) {
		o := opening{id: "myclientid", keep: keep}
		if expiry > 0 {
			o.props = prop4(0x11, expiry)
		}
		return enter(s, s.at, o)
	}
	g, _ := at(0, false)
	g.bye()
	if g, present := at(3600, true); present {
		s.Error("a session without expiry outlived its connection")
	} else {
		g.listen(1, suiteTopics[0])
		g.bye()
	}
	g, present := at(1, true)
	if !present {
		s.Error("a session with an expiry is gone")
	}
	g.bye()
	time.Sleep(1500 * time.Millisecond) // the expiry that is tested; the box has no clock to move
	eventually(s, "the session expires", func() bool {
		return !strings.Contains(s.p.do("session", "list", "--state", "offline"), "myclientid")
	})
	if g, present = at(0, true); present {
		s.Error("a session outlived its expiry")
	}
	g.bye()
	// DISCONNECT may change it, but not from none.
	g, _ = at(3600, false)
	g.write([]byte{0xE0, 7, 0, 5, 0x11, 0, 0, 0, 0})
	g.over()
	if _, present := at(0, true); present {
		s.Error("DISCONNECT with expiry 0 kept the session")
	}
	g, _ = at(0, false)
	g.write([]byte{0xE0, 7, 0, 5, 0x11, 0, 0, 0, 9})
	if code := g.over(); code != 0x82 {
		s.Errorf("an expiry from none at DISCONNECT: %#x", code)
	}
}

func (s suite) shared() {
	a, b := s.come("myclientid"), s.come("myclientid2")
	shared := "$share/sharename/" + suiteTopics[0]
	for _, g := range []*guest{a, b} {
		g.listen(2, shared)
		g.listen(2, suiteTopics[0])
	}
	const n = 10
	p := s.come("myclientid3")
	for i := range n {
		p.send(letter{topic: suiteTopics[0], payload: fmt.Sprint(i), qos: 1})
	}
	p.quiet()
	got := map[string]int{}
	for _, g := range []*guest{a, b} {
		for _, l := range g.all() {
			got[l.payload]++
		}
	}
	for i := range n { // once for each own subscription, and once for the group
		if got[fmt.Sprint(i)] != 3 {
			s.Errorf("message %d came %d times, want 3", i, got[fmt.Sprint(i)])
		}
	}
}

func (s suite) assigned() {
	_, p := hail(s, s.at, opening{})
	id := saysIn(s, connackProps(p), 0x12)
	if p.body[1] != 0 || id == "" {
		s.Fatalf("no identifier was assigned: % x", p.body)
	}
	g, present := enter(s, s.at, opening{id: id, keep: true, props: prop4(0x11, 60)})
	if present {
		s.Error("a session that nobody keeps is there")
	}
	g.bye()
	if g, present = enter(s, s.at, opening{id: id}); present {
		s.Error("clean start found a session")
	}
	g.bye()
}

func (s suite) request() {
	a, b := s.come("myclientid"), s.come("myclientid2")
	a.listen(2, suiteTopics[0])
	b.listen(2, suiteTopics[1])
	b.send(letter{topic: suiteTopics[0], payload: "request", qos: 1, props: joined(propText(0x08, suiteTopics[1]), propText(0x09, "334"))})
	q := a.get()
	back := saysIn(s, q.props, 0x08)
	if back != suiteTopics[1] || saysIn(s, q.props, 0x09) != "334" {
		s.Fatalf("the request: %+v", q)
	}
	a.send(letter{topic: back, payload: "response", qos: 1, props: propText(0x09, saysIn(s, q.props, 0x09))})
	if m := b.get(); m.payload != "response" || saysIn(s, m.props, 0x09) != "334" {
		s.Errorf("the response: %+v", m)
	}
}

// flow: no more than Receive Maximum messages are unacknowledged, in either direction.
func (s suite) flow() {
	g, p := hail(s, s.at, opening{id: "myclientid", props: prop2(0x21, 2)})
	if saysIn(s, connackProps(p), 0x21) == "" {
		s.Error("the box announces no Receive Maximum")
	}
	g.listen(2, suiteTopics[0])
	pub := s.come("myclientid2")
	for i := range 6 {
		pub.send(letter{topic: suiteTopics[0], payload: fmt.Sprint(i), qos: byte(1 + i%2)})
	}
	pub.quiet()
	for i := 0; i < 6; i += 2 {
		two := []letter{g.take(), g.take()}
		g.silent() // a third would be here
		for _, l := range two {
			if l.qos == 1 {
				g.answer(pubackKind, 0, l.id)
				continue
			}
			g.answer(pubrecKind, 0, l.id)
			g.next(pubrelKind)
			g.answer(pubcompKind, 0, l.id)
		}
	}
	g.quiet()
}

func (s suite) serverKeepAlive() {
	for asked, want := range map[uint16]string{120: "60", 0: "60", 30: ""} {
		_, p := hail(s, s.at, opening{id: "myclientid", keepAlive: asked})
		if got := saysIn(s, connackProps(p), 0x13); got != want {
			s.Errorf("a keep-alive of %d is answered %q, want %q", asked, got, want)
		}
	}
}

func (s suite) aliasesIn() {
	g, p := hail(s, s.at, opening{id: "myclientid"})
	if saysIn(s, connackProps(p), 0x22) != "64" {
		s.Errorf("the CONNACK: % x", p.body)
	}
	g.listen(2, suiteTopics[0])
	g.send(letter{topic: suiteTopics[0], payload: "named", qos: 1, props: prop2(0x23, 1)})
	g.send(letter{payload: "by alias", qos: 1, props: prop2(0x23, 1)})
	s.wants(g.get(), suiteTopics[0], "named", 1, false)
	s.wants(g.get(), suiteTopics[0], "by alias", 1, false)
	// An alias that nobody taught, 0, and one above the maximum.
	for _, alias := range []uint16{7, 0, 65} {
		g := s.come("myclientid2")
		l := letter{props: prop2(0x23, alias), qos: 1, id: 1}
		if alias == 65 {
			l.topic = suiteTopics[0]
		}
		g.post(l)
		if code := g.over(); code != 0x94 && code != 0x82 {
			s.Errorf("alias %d: DISCONNECT %#x", alias, code)
		}
	}
}

func (s suite) aliasesOut() {
	g, _ := hail(s, s.at, opening{id: "myclientid", props: prop2(0x22, 1)})
	g.listen(1, "+/+", suiteTopics[0])
	none := s.come("myclientid2")
	none.listen(1, "#")
	p := s.come("myclientid3")
	known := map[string]string{}
	for i := range 6 {
		topic := suiteTopics[i%2]
		p.send(letter{topic: topic, payload: fmt.Sprint(topic, " ", i), qos: 1})
		l := g.get()
		alias := saysIn(s, l.props, 0x23)
		switch {
		case alias != "" && alias != "1":
			s.Errorf("alias %s to a client that takes one", alias)
		case l.topic != "" && alias != "":
			known[alias] = l.topic
		case l.topic == "":
			l.topic = known[alias]
		}
		if !strings.HasPrefix(l.payload, l.topic+" ") {
			s.Errorf("%q came on %q", l.payload, l.topic)
		}
		if l := none.get(); l.topic != topic || saysIn(s, l.props, 0x23) != "" {
			s.Errorf("to a client without aliases: %+v", l)
		}
	}
	if len(known) == 0 {
		s.Error("no alias was taught in six messages")
	}
}

func (s suite) format() {
	g := s.come("myclientid")
	g.listen(2, suiteTopics[0])
	g.send(letter{topic: suiteTopics[0], payload: "gemütlich", qos: 1, props: joined(prop1(0x01, 1), propText(0x03, "text/plain"))})
	if m := g.get(); m.payload != "gemütlich" || saysIn(s, m.props, 0x01) != "1" || saysIn(s, m.props, 0x03) != "text/plain" {
		s.Errorf("got %+v", m)
	}
	if g.send(letter{topic: suiteTopics[0], payload: "\xff\xfe", qos: 1, props: prop1(0x01, 1)}); g.sent != 0x99 {
		s.Errorf("text that is none: %#x", g.sent)
	}
	if g.send(letter{topic: suiteTopics[0], payload: "\xff\xfe", qos: 2}); g.sent != 0 {
		s.Errorf("octets: %#x", g.sent)
	}
	if m := g.get(); m.payload != "\xff\xfe" || saysIn(s, m.props, 0x01) != "" {
		s.Errorf("got %+v", m)
	}
}

func (s suite) packetSize() {
	g, p := hail(s, s.at, opening{id: "myclientid", props: prop4(0x27, 64)})
	if saysIn(s, connackProps(p), 0x27) == "" {
		s.Error("the box announces no Maximum Packet Size")
	}
	g.listen(2, suiteTopics[0])
	pub := s.come("myclientid2")
	pub.send(letter{topic: suiteTopics[0], payload: strings.Repeat("x", 100), qos: 1})
	pub.send(letter{topic: suiteTopics[0], payload: "short", qos: 2})
	s.wants(g.get(), suiteTopics[0], "short", 2, false)
	g.quiet()
	// Towards the box: one packet above what it announces.
	pub.write([]byte{0x30, 0x80, 0x80, 0x80, 0x01}) // 2 MiB follow, says the header
	if code := pub.over(); code != 0x95 {
		s.Errorf("a packet that is too large: %#x", code)
	}
}

func (s suite) messageExpiry() {
	g, _ := s.stay("myclientid")
	g.listen(2, suiteTopics[0])
	g.bye()
	p := s.come("myclientid2")
	p.send(letter{topic: suiteTopics[0], payload: "gone", qos: 1, props: prop4(0x02, 1)})
	p.send(letter{topic: suiteTopics[0], payload: "there", qos: 2, props: prop4(0x02, 100)})
	p.send(letter{topic: suiteTopics[0], payload: "for ever", qos: 1})
	p.quiet()
	time.Sleep(1100 * time.Millisecond) // the expiry that is tested; the box has no clock to move
	g, _ = s.stay("myclientid")
	m := g.get()
	if left := saysIn(s, m.props, 0x02); m.payload != "there" || left == "" || left == "100" {
		s.Errorf("got %+v with %s s left", m, left)
	}
	if m := g.get(); m.payload != "for ever" || saysIn(s, m.props, 0x02) != "" {
		s.Errorf("got %+v", m)
	}
	g.quiet()
	g.bye()
	s.come("myclientid").bye()
}

func (s suite) willDelay() {
	b := s.come("myclientid2")
	b.listen(2, suiteTopics[2])
	o := opening{id: "myclientid", keep: true, props: prop4(0x11, 3600), will: &letter{topic: suiteTopics[2], payload: "late", qos: 1, props: prop4(0x18, 1)}}
	g, _ := enter(s, s.at, o)
	_ = g.conn.Close()
	g, _ = enter(s, s.at, o) // back in time
	b.quiet()
	began := time.Now()
	_ = g.conn.Close()
	s.wants(b.get(), suiteTopics[2], "late", 1, false)
	if after := time.Since(began); after < 900*time.Millisecond {
		s.Errorf("the will came after %s", after)
	}
	s.come("myclientid").bye()
	b.quiet()
}

func (s suite) userProperties() {
	g := s.come("myclientid")
	g.listen(2, suiteTopics[0])
	mine := joined(propPair("a", "2"), propPair("c", "3"), propPair("a", "1"))
	for qos := range byte(3) {
		g.send(letter{topic: suiteTopics[0], payload: "x", qos: qos, props: mine})
		if m := g.get(); string(m.props) != string(mine) {
			s.Errorf("QoS %d: % x, want % x", qos, m.props, mine)
		}
	}
}

func (s suite) options() {
	// No local.
	a, b := s.come("myclientid"), s.come("myclientid2")
	a.listen(2|4, suiteTopics[0])
	b.listen(2, suiteTopics[0])
	a.send(letter{topic: suiteTopics[0], payload: "mine", qos: 1})
	s.wants(b.get(), suiteTopics[0], "mine", 1, false)
	a.quiet()
	// Retain as published.
	a.listen(2|8, suiteTopics[1])
	b.listen(2, suiteTopics[1])
	b.send(letter{topic: suiteTopics[1], payload: "kept", qos: 1, retain: true})
	s.wants(a.get(), suiteTopics[1], "kept", 1, true)
	s.wants(b.get(), suiteTopics[1], "kept", 1, false)
	// Retain handling: 0 always, 1 only when new, 2 never.
	c := s.come("myclientid3")
	for _, step := range []struct {
		handling byte
		comes    bool
	}{{2, false}, {1, false}, {0, true}, {0, true}} {
		c.listen(2|step.handling<<4, suiteTopics[1])
		if step.comes {
			s.wants(c.get(), suiteTopics[1], "kept", 1, true)
		}
		c.quiet()
	}
	c.leave(suiteTopics[1])
	c.listen(2|1<<4, suiteTopics[1])
	s.wants(c.get(), suiteTopics[1], "kept", 1, true)
	c.send(letter{topic: suiteTopics[1], qos: 1, retain: true})
}

func (s suite) subscriptionIDs() {
	g := s.come("myclientid")
	g.ask(prop1(0x0B, 7), 2, suiteTopics[0])
	g.ask(prop1(0x0B, 9), 1, "+")
	g.send(letter{topic: suiteTopics[0], payload: "both", qos: 2})
	m := g.get()
	if string(m.props) != "\x0b\x07\x0b\x09" && string(m.props) != "\x0b\x09\x0b\x07" {
		s.Errorf("identifiers % x", m.props)
	}
	g.quiet()
}

func (s suite) unsubscribeCodes() {
	g := s.come("myclientid")
	g.listen(2, suiteTopics[0], suiteTopics[1])
	p := g.leave(suiteTopics[0], suiteTopics[1], suiteTopics[2])
	if got := string(p.body[len(p.body)-3:]); got != "\x00\x00\x11" {
		s.Errorf("UNSUBACK % x", got)
	}
}
