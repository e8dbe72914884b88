package broker_test

import (
	"encoding/binary"
	"slices"
	"time"
)

func (m *spec) member() *listener { return m.members[m.pick(len(m.members), "member")] }

// over is the end of a session.
func (s *listener) over() { *s = listener{id: s.id} }

// offline is what the end of a connection does.
func (m *spec) offline(s *listener) {
	if s.c = nil; s.expiry == 0 {
		s.over()
		return
	}
	s.ended = m.now
}

func (m *spec) left(s *listener) {
	eventually(m, s.id+" is offline", func() bool {
		if m.x.Claimed(s.id) { // the end is not over, and another API client would be refused
			return false
		}
		for _, shown := range m.x.Sessions() {
			if shown.MQTTID == s.id {
				return !shown.Connected
			}
		}
		return true
	})
}

func (m *spec) connect() {
	s := m.member()
	h := hello{id: s.id, user: "sub", version: []byte{4, 5, 5}[m.pick(3, "version")], persistent: !m.chance(4, "clean")}
	if m.chance(8, "foreign") {
		if !s.exists {
			return
		}
		h.user = "dev"
		_, p := dialAny(m, m.x.Addr(), h)
		if want := map[byte]byte{4: 2, 5: 0x85}[h.version]; p.body[1] != want {
			m.Fatalf("another client takes %s: %v", s.id, p)
		}
		return
	}
	expiry, window := time.Duration(0), 100
	if h.version == 5 {
		if !m.chance(4, "no expiry") {
			expiry = time.Hour
			h.properties = append(h.properties, hour...)
		}
		if n := m.pick(4, "window"); n > 0 {
			window = n
			h.properties = append(h.properties, 0x21, 0, byte(n))
		}
	} else if h.persistent {
		expiry = never
	}
	old := s.c
	if old != nil {
		m.offline(s)
	}
	present := s.exists && h.persistent
	c, p := dialAny(m, m.x.Addr(), h)
	if p.body[1] != 0 || (p.body[0] == 1) != present { // [MQTT-3.2.2-2] [MQTT-3.2.2-3]
		m.Fatalf("%s %+v: %v, present %v", s.id, h, p, present)
	}
	if old != nil {
		old.disconnected(0x8E)
		_ = old.conn.Close()
	}
	if !present {
		s.over()
		s.exists, s.filters = true, map[string]wanted{}
	}
	s.c, s.expiry, s.window, s.resend = c, expiry, window, 0
	s.flights = slices.DeleteFunc(s.flights, func(f sent) bool { return !f.rel && !m.may(f.topic) })
	m.pump(s)
}

func (m *spec) disconnect() {
	s := m.member()
	if s.c == nil {
		return
	}
	if m.chance(2, "orderly") {
		s.c.write([]byte{0xE0, 0})
		s.c.ended()
	}
	_ = s.c.conn.Close()
	m.left(s)
	m.offline(s)
}

// finish has everything of a subscriber delivered and acknowledged.
func (m *spec) finish(s *listener) {
	for m.pump(s); len(s.flights) > 0; m.pump(s) {
		m.ackAt(s, 0)
	}
}

// ackAt takes the next step of a flight.
func (m *spec) ackAt(s *listener, i int) {
	if i >= s.resend {
		return // not sent on this connection
	}
	f := &s.flights[i]
	id := []byte{byte(f.id >> 8), byte(f.id)}
	switch {
	case f.qos == 1:
		s.c.write([]byte{0x40, 2}, id)
		m.landed(s, i)
	case !f.rel:
		s.c.write([]byte{0x50, 2}, id)
		if p := s.c.want(0x62); binary.BigEndian.Uint16(p.body) != f.id || len(p.body) > 2 {
			m.Fatalf("%s: %v, want the PUBREL of %d", s.id, p, f.id)
		}
		f.rel = true
	default:
		s.c.write([]byte{0x70, 2}, id)
		m.landed(s, i)
	}
}

func (m *spec) landed(s *listener, i int) {
	s.flights = slices.Delete(s.flights, i, i+1)
	s.resend--
}

func (m *spec) ack() {
	s := m.member()
	if s.c == nil || len(s.flights) == 0 {
		return
	}
	m.ackAt(s, m.pick(len(s.flights), "flight"))
	m.pump(s)
}

// ackWrongly sends what must change nothing and open no window.
func (m *spec) ackWrongly() {
	s := m.member()
	if s.c == nil {
		return
	}
	unknown := []byte{0xF0, byte(m.pick(4, "unknown"))}
	want := func(id []byte, code int) {
		p := s.c.want(0x62)
		if string(p.body[:2]) != string(id) || s.c.version == 5 && (code > 0) != (len(p.body) > 2) || len(p.body) > 2 && int(p.body[2]) != code {
			m.Fatalf("%s: %v", s.id, p)
		}
	}
	switch m.pick(5, "wrong") {
	case 0:
		s.c.write([]byte{0x40, 2}, unknown)
	case 1:
		s.c.write([]byte{0x70, 2}, unknown)
	case 2:
		s.c.write([]byte{0x50, 2}, unknown)
		want(unknown, 0x92)
	case 3: // PUBREC once more
		for _, f := range s.flights[:s.resend] {
			if id := []byte{byte(f.id >> 8), byte(f.id)}; f.rel {
				s.c.write([]byte{0x50, 2}, id)
				want(id, 0)
			}
		}
	case 4: // PUBCOMP early, PUBACK of QoS 2
		for _, f := range s.flights[:s.resend] {
			if id := []byte{byte(f.id >> 8), byte(f.id)}; f.qos == 2 && !f.rel {
				s.c.write([]byte{0x70, 2}, id, []byte{0x40, 2}, id)
			}
		}
	}
	s.c.alive()
	s.c.alive()
}

// refuse ends a QoS 2 flight with the subscriber's error.
func (m *spec) refuse() {
	s := m.member()
	if s.c == nil || s.c.version < 5 {
		return
	}
	for i, f := range s.flights[:s.resend] {
		if f.qos == 2 && !f.rel {
			s.c.write([]byte{0x50, 3, byte(f.id >> 8), byte(f.id), 0x97})
			m.landed(s, i)
			m.pump(s)
			return
		}
	}
}

func (m *spec) subscribe() {
	s := m.member()
	if s.c == nil {
		return
	}
	filter := specFilters[m.pick(len(specFilters), "filter")]
	w := wanted{qos: byte(m.pick(3, "qos"))}
	options, handling := w.qos, 0
	var properties []byte
	if s.c.version == 5 {
		w.noLocal, w.rap, handling = m.chance(2, "no local"), m.chance(2, "rap"), m.pick(3, "handling")
		if w.id = m.pick(3, "id"); w.id > 0 {
			w.id += 10 * slices.Index(specFilters, filter)
			properties = []byte{0x0B, byte(w.id)}
		}
		if w.noLocal {
			options |= 4
		}
		if w.rap {
			options |= 8
		}
		options |= byte(handling) << 4
	}
	m.finish(s) // retained messages go before the queue, which is another test's
	s.c.write(subscribe(s.c.version, 7, properties, options, filter))
	p := s.c.want(0x90)
	if code := p.body[len(p.body)-1]; code != w.qos {
		if code < 0x80 || !m.denied {
			m.Fatalf("%s: SUBACK %v", s.id, p)
		}
		return
	}
	_, known := s.filters[filter]
	s.filters[filter] = w
	if handling == 2 || handling == 1 && known { // [MQTT-3.3.1-9] [MQTT-3.3.1-10] [MQTT-3.3.1-11]
		return
	}
	due := map[string]held{}
	for topic, k := range m.kept {
		if specMatch(filter, topic) && m.may(topic) {
			due[topic] = k
		}
	}
	for open := 0; len(due)+open > 0; {
		p, err := s.c.read(patience)
		if err != nil {
			m.Fatalf("%s: %v, want the retained %v", s.id, err, due)
		}
		if p.first == 0x62 {
			s.c.complete(binary.BigEndian.Uint16(p.body))
			open--
			continue
		}
		if p.first>>4 != 3 {
			m.Fatalf("%s: %v, want the retained %v", s.id, p, due)
		}
		got := s.c.parse(p)
		k, ok := due[got.topic]
		if !ok {
			m.Fatalf("%s: retained %+v, want %v", s.id, got, due)
		}
		o := owed{topic: got.topic, payload: k.payload, qos: min(k.qos, w.qos), retain: true}
		if w.id > 0 {
			o.ids = []int{w.id}
		}
		m.compare(s, got, o)
		delete(due, got.topic)
		switch o.qos {
		case 1:
			s.c.puback(got.id)
		case 2:
			s.c.write([]byte{0x50, 2, byte(got.id >> 8), byte(got.id)})
			open++
		}
	}
	s.c.alive() // the look for retained messages is over: it begins no later than the second answer
	s.c.alive()
}

func (m *spec) unsubscribe() {
	s := m.member()
	if s.c == nil {
		return
	}
	filter := specFilters[m.pick(len(specFilters), "filter")]
	_, known := s.filters[filter]
	s.c.write(unsubscribeFrom(s.c.version, filter))
	p := s.c.want(0xB0)
	if s.c.version == 5 && (p.body[3] == 0) != known {
		m.Fatalf("%s: UNSUBACK %v, subscribed: %v", s.id, p, known)
	}
	delete(s.filters, filter)
}
