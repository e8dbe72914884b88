package broker_test

import (
	"encoding/binary"
	"millrace/broker"
	"slices"
	"strconv"
	"time"
)

func (m *spec) newID() uint16 {
	for {
		if m.pID = m.pID%100 + 1; !m.pUsed(m.pID) {
			return m.pID
		}
	}
}

func (m *spec) pUsed(id uint16) bool { _, used := m.pOpen[id]; return used }

func (m *spec) answer(first byte, id uint16, code byte) {
	p := m.p.want(first)
	got := byte(0)
	if len(p.body) > 2 {
		got = p.body[2]
	}
	if binary.BigEndian.Uint16(p.body) != id || got != code {
		m.Fatalf("%v, want %02x of %d with %02x", p, first, id, code)
	}
}

func (m *spec) publish() {
	p := pub{topic: specTopics[m.pick(len(specTopics), "topic")], qos: byte(m.pick(3, "qos")), retain: m.chance(3, "retain")}
	expires := time.Duration(0)
	m.next++
	switch p.payload = strconv.Itoa(m.next); {
	case p.retain && m.chance(3, "clear"):
		p.payload = ""
		if live(p.topic) {
			p.qos = 1
		}
	case !p.retain && !live(p.topic) && m.chance(4, "expiry"):
		expires = m.now + 500*time.Second
		p.properties = []byte{2, 0, 0, 1, 0xF4}
	}
	if p.qos > 0 {
		p.id = m.newID()
	}
	m.p.pub(p)
	switch p.qos {
	case 1:
		m.answer(0x40, p.id, 0)
		m.pLast = p
	case 2:
		m.answer(0x50, p.id, 0)
		m.pOpen[p.id] = m.next
		if m.pLast.id == p.id {
			m.pLast = pub{}
		}
	}
	m.p.alive() // it is announced
	m.owe(p.topic, p.payload, p.qos, p.retain, nil, expires)
}

// publishOwn is a publish by a subscriber, for no-local.
func (m *spec) publishOwn() {
	s := m.member()
	if s.c == nil {
		return
	}
	m.next++
	p := pub{topic: specTopics[m.pick(2, "topic")], payload: strconv.Itoa(m.next), qos: byte(m.pick(2, "qos"))}
	if p.qos == 1 {
		p.id = 1
	}
	s.c.pub(p)
	if p.qos == 1 {
		s.c.ackOf(1)
	}
	s.c.write([]byte{0xC0, 0}) // when it is answered the publish is announced
	s.pings++
	m.owe(p.topic, p.payload, p.qos, false, s, 0)
	if s.pings > 0 {
		s.pings--
		s.c.want(0xD0)
	}
}

// again sends what was stored once more: acknowledged, not stored, not delivered.
func (m *spec) again() {
	if m.chance(2, "qos 1") {
		if p := m.pLast; p.id != 0 && !m.pUsed(p.id) && live(p.topic) {
			p.dup = true
			m.p.pub(p)
			m.answer(0x40, p.id, 0)
		}
		return
	}
	for _, id := range m.openIDs() {
		m.p.pub(pub{topic: "plain/a", payload: "not this", qos: 2, id: id, dup: m.chance(2, "dup")})
		m.answer(0x50, id, 0)
	}
}

func (m *spec) openIDs() (ids []uint16) {
	for id := range m.pOpen {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

func (m *spec) release() {
	ids := m.openIDs()
	if len(ids) == 0 {
		return
	}
	id := ids[m.pick(len(ids), "open")]
	m.p.write([]byte{0x62, 2, byte(id >> 8), byte(id)})
	m.answer(0x70, id, 0)
	delete(m.pOpen, id)
	if m.chance(2, "twice") {
		m.p.write([]byte{0x62, 2, byte(id >> 8), byte(id)})
		m.answer(0x70, id, 0x92)
	}
}

func (m *spec) publisherAgain() {
	_ = m.p.conn.Close()
	m.hire()
}

func (m *spec) hire() {
	m.p = dial(m, m.x.Addr(), hello{id: "p", user: "dev", persistent: true, properties: append([]byte{0x21, 0, 9}, hour...)})
}

func (m *spec) grants() {
	// What waits for a connected subscriber is judged when the box looks at it, which may be before or after the change.
	for _, s := range m.members {
		if s.c != nil {
			m.finish(s)
		}
	}
	m.quiet()
	m.denied = !m.denied
	m.rule()
	for _, s := range m.members {
		m.pump(s)
	}
}

func (m *spec) rule() {
	list := []string{"allow publish,subscribe uns #", "allow publish,subscribe mqtt #"}
	if m.denied {
		list = append(list, "deny subscribe uns b", "deny subscribe mqtt plain/b")
	}
	m.x.grant("sub", list...)
}

func (m *spec) wait() {
	d := []time.Duration{10 * time.Minute, 2 * time.Hour}[m.pick(2, "long")]
	m.now += d
	m.x.clock.advance(d)
	for _, s := range m.members {
		if s.exists && s.c == nil && s.ended+s.expiry <= m.now {
			m.x.Expire()
			eventually(m, s.id+" has ended", func() bool {
				return !slices.ContainsFunc(m.x.Sessions(), func(shown broker.Session) bool { return shown.MQTTID == s.id })
			})
			s.over()
		}
	}
}
