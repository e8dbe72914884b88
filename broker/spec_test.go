package broker_test

import (
	"cmp"
	"encoding/binary"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"millrace/broker"
)

// spec is what the specification says of one publisher and three subscribers, beside a box on which the same is done over
// sockets. What the box must have sent is always read at once; what is withheld are acknowledgements.
type spec struct {
	drawn
	x       *box
	now     time.Duration // what the clock was moved
	next    int           // payload of the next message
	denied  bool          // nobody may receive a topic that ends with /b
	kept    map[string]held
	p       *client
	pOpen   map[uint16]int // QoS 2 identifiers of the publisher between PUBLISH and PUBREL
	pLast   pub            // its last QoS 1 publish, for a retransmission
	pID     uint16
	members []*listener
}

// drawn is a testing.TB whose failures are rapid's, so that it finds the shortest way to them.
type drawn struct {
	testing.TB
	r *rapid.T
}

func (d drawn) Helper()                        {}
func (d drawn) Fatal(a ...any)                 { d.r.Fatal(a...) }
func (d drawn) Fatalf(f string, a ...any)      { d.r.Fatalf(f, a...) }
func (d drawn) Error(a ...any)                 { d.r.Error(a...) }
func (d drawn) Errorf(f string, a ...any)      { d.r.Errorf(f, a...) }
func (d drawn) pick(n int, label string) int   { return rapid.IntRange(0, n-1).Draw(d.r, label) }
func (d drawn) chance(n int, what string) bool { return d.pick(n, what) == 0 }

type held struct {
	payload string
	qos     byte
}

// listener is one subscriber and its session.
type listener struct {
	id      string
	c       *client // nil: offline
	exists  bool    // its session
	expiry  time.Duration
	ended   time.Duration
	window  int
	filters map[string]wanted
	queue   []owed
	flights []sent
	pings   int // whose answers may come between messages
	resend  int // flights[resend:] are to be sent again on this connection
}

type wanted struct {
	qos          byte
	noLocal, rap bool
	id           int
}

type owed struct {
	topic, payload string
	qos            byte
	retain         bool
	ids            []int
	expires        time.Duration // 0: never
}

type sent struct {
	owed
	id  uint16
	rel bool // the PUBREC was sent
}

const never = 1 << 60

var specTopics = []string{"plain/a", "plain/b", full("a"), full("b")}
var specFilters = []string{"plain/a", "plain/b", "plain/+", "plain/#", "#", full("a"), full("+"), full("#"), "+/+/b", "plain/none"}

func specMatch(filter, topic string) bool {
	f, t := strings.Split(filter, "/"), strings.Split(topic, "/")
	for i, level := range f {
		if level == "#" {
			return true
		}
		if i >= len(t) || level != "+" && level != t[i] {
			return false
		}
	}
	return len(f) == len(t)
}

func (m *spec) may(topic string) bool { return !m.denied || !strings.HasSuffix(topic, "/b") }

func live(topic string) bool { return strings.HasPrefix(topic, "mHv1.0/") }

// owe is what a publish does to every session.
func (m *spec) owe(topic, payload string, qos byte, retain bool, from *listener, expires time.Duration) {
	if live(topic) {
		if qos = 2; payload == "" {
			qos = 1 // the publishes that clear are of QoS 1
		}
		if payload == "" {
			delete(m.kept, topic)
		} else {
			m.kept[topic] = held{payload, 2}
		}
	} else if retain {
		if payload == "" {
			delete(m.kept, topic)
		} else {
			m.kept[topic] = held{payload, qos}
		}
	}
	for _, s := range m.members {
		if !s.exists || !m.may(topic) {
			continue
		}
		o, hit := owed{topic: topic, payload: payload, expires: expires}, false
		for f, w := range s.filters {
			if !specMatch(f, topic) || w.noLocal && from == s {
				continue
			}
			hit = true
			o.qos = max(o.qos, min(qos, w.qos))
			o.retain = o.retain || retain && w.rap
			if w.id > 0 {
				o.ids = append(o.ids, w.id)
			}
		}
		slices.Sort(o.ids)
		if hit && (s.c != nil || o.qos > 0) {
			s.queue = append(s.queue, o)
		}
	}
	for _, s := range m.members {
		m.pump(s)
	}
}

// pump reads everything the box must have sent to a subscriber by now.
func (m *spec) pump(s *listener) {
	if s.c == nil {
		return
	}
	for ; s.resend < len(s.flights); s.resend++ { // [MQTT-4.4.0-1]
		f := s.flights[s.resend]
		if f.rel {
			if p := s.c.want(0x62); binary.BigEndian.Uint16(p.body) != f.id {
				m.Fatalf("%s: %v, want the PUBREL of %d", s.id, p, f.id)
			}
			continue
		}
		if s.resend >= s.window { // [MQTT-3.3.4-9]
			return
		}
		got := m.message(s)
		if !got.dup || got.id != f.id { // [MQTT-3.3.1-1]
			m.Fatalf("%s: %+v, want %+v again", s.id, got, f)
		}
		m.compare(s, got, f.owed)
	}
	for len(s.queue) > 0 {
		o := s.queue[0]
		if o.expires > 0 && o.expires <= m.now || !m.may(o.topic) {
			s.queue = s.queue[1:]
			continue
		}
		if o.qos > 0 && len(s.flights) >= s.window {
			return
		}
		got := m.message(s)
		if got.dup {
			m.Fatalf("%s: %+v: DUP", s.id, got)
		}
		m.compare(s, got, o)
		if s.queue = s.queue[1:]; o.qos > 0 {
			if slices.ContainsFunc(s.flights, func(f sent) bool { return f.id == got.id }) {
				m.Fatalf("%s: %+v: the identifier is in use", s.id, got)
			}
			s.flights = append(s.flights, sent{owed: o, id: got.id})
			s.resend = len(s.flights)
		}
	}
}

func (m *spec) message(s *listener) msg {
	p, err := s.c.read(patience)
	if err == nil && p.first == 0xD0 && s.pings > 0 {
		s.pings--
		p, err = s.c.read(patience)
	}
	if err != nil || p.first>>4 != 3 {
		m.Fatalf("%s: want a PUBLISH, got %v, %v", s.id, p, err)
	}
	return s.c.parse(p)
}

func (m *spec) compare(s *listener, got msg, want owed) {
	ids := subscriptionIDs(got.properties)
	payload := got.payload
	if live(got.topic) && payload != "" {
		payload, _, _ = strings.Cut(strings.TrimPrefix(payload, `{"value":`), ",")
	}
	if s.c.version < 5 {
		ids = want.ids
	}
	if got.topic != want.topic || payload != want.payload || got.qos != want.qos || got.retain != want.retain || !slices.Equal(ids, want.ids) {
		m.Fatalf("%s: got %+v with %v, want %+v", s.id, got, ids, want)
	}
}

func subscriptionIDs(b []byte) (ids []int) {
	for len(b) > 0 {
		switch b[0] {
		case 0x0B:
			ids, b = append(ids, int(b[1])), b[2:]
		case 2:
			b = b[5:]
		default:
			panic(fmt.Sprintf("property %x", b))
		}
	}
	slices.Sort(ids)
	return ids
}

// quiet wants nothing to come but what pump has read: no window was opened by what opens none.
func (m *spec) quiet() {
	for _, s := range m.members {
		if s.c != nil {
			s.c.alive()
			s.c.alive() // deliveries follow the answers written with them
		}
	}
}

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

// restart stops the box in order and starts another on its rows.
func (m *spec) restart() {
	if !m.chance(3, "restart") {
		return
	}
	for _, s := range m.members {
		if s.c != nil {
			_ = s.c.conn.Close()
			m.left(s)
			m.offline(s)
		}
		s.queue = slices.DeleteFunc(s.queue, func(o owed) bool { return o.qos == 0 })
	}
	_ = m.p.conn.Close()
	m.x.stop()
	ahead := m.x.clock.ahead.Load()
	m.x = open(m.TB, setting{store: m.x.store, broker: live2, ahead: ahead})
	for topic := range m.kept {
		if live(topic) {
			delete(m.kept, topic) // the store of these tests forgets its topics
		}
	}
	m.rule()
	m.hire()
}

// end wants nothing to be left when everybody has gone for good.
func (m *spec) end() {
	m.quiet()
	for _, s := range m.members {
		c := dial(m, m.x.Addr(), hello{id: s.id, user: "sub"})
		if s.c != nil {
			s.c.disconnected(0x8E)
		}
		c.write([]byte{0xE0, 0})
		c.ended()
	}
	eventually(m, "nothing is left", func() bool {
		left := m.x.store.count("bu") + m.x.store.count("bq") + m.x.store.count("bf")
		return m.x.IndexSize() == 0 && len(m.x.Sessions()) == 1 && left == 0
	})
	if n := m.x.store.count("bi"); n != len(m.pOpen) {
		m.Errorf("%d identifiers are remembered, %d are open", n, len(m.pOpen))
	}
	_ = m.p.conn.Close()
	m.x.stop()
}

// Sessions of MQTT 3.1.1 and 5 against the specification, by random operations that rapid makes shorter when they fail:
// connections of every kind, overlapping subscriptions, every QoS in both directions with acknowledgements withheld,
// repeated, out of order and wrong, windows, expiry, grants, retained messages, restarts. [MQTT-3.3.5-1] [MQTT-4.3.3-2]
// [MQTT-4.9.0-2] [MQTT-3.8.4-3]. MILLRACE_LONG=1 takes a million steps.
func TestSessionSpec(t *testing.T) {
	leakCheck(t)
	steps, each := 20_000, 500
	if os.Getenv("MILLRACE_LONG") == "1" {
		steps = 1_000_000
	} else if testing.Short() {
		steps = 3_000
	}
	checks := steps / each
	if testing.Short() {
		each *= 2 // rapid halves it
	}
	set := func(name, value string) {
		f := flag.Lookup(name)
		old := f.Value.String()
		if old == f.DefValue {
			t.Cleanup(func() { _ = flag.Set(name, old) })
			_ = flag.Set(name, value)
		}
	}
	set("rapid.checks", strconv.Itoa(checks))
	set("rapid.steps", strconv.Itoa(each))
	taken := map[string]int{}
	rapid.Check(t, func(r *rapid.T) {
		m := &spec{drawn: drawn{t, r}, kept: map[string]held{}, pOpen: map[uint16]int{}}
		m.x = open(t, setting{broker: live2})
		defer func() {
			if m.p != nil {
				_ = m.p.conn.Close()
			}
			for _, s := range m.members {
				if s.c != nil {
					_ = s.c.conn.Close()
				}
			}
			m.x.stop()
		}()
		m.rule()
		m.hire()
		for i := range 3 {
			m.members = append(m.members, &listener{id: fmt.Sprint("s", i)})
		}
		r.Repeat(weighed(map[string]step{
			"publish": {m.publish, 12}, "publish own": {m.publishOwn, 2}, "again": {m.again, 2}, "release": {m.release, 4}, "ack": {m.ack, 10}, "ack wrongly": {m.ackWrongly, 3},
			"refuse": {m.refuse, 1}, "subscribe": {m.subscribe, 5}, "unsubscribe": {m.unsubscribe, 2}, "connect": {m.connect, 5}, "disconnect": {m.disconnect, 2},
			"publisher again": {m.publisherAgain, 1}, "grants": {m.grants, 1}, "wait": {m.wait, 1}, "quiet": {m.quiet, 1}, "restart": {m.restart, 1},
		}, taken))
		m.end()
	})
	sum := 0
	names := make([]string, 0, len(taken))
	for name, n := range taken {
		sum += n
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Compare(taken[b], taken[a]) })
	for _, name := range names {
		t.Logf("%6d %s", taken[name], name)
	}
	t.Logf("%6d steps", sum)
}

type step struct {
	do     func()
	weight int
}

func weighed(steps map[string]step, taken map[string]int) map[string]func(*rapid.T) {
	actions := map[string]func(*rapid.T){} // numbered first: rapid prefers what sorts low
	for name, s := range steps {
		for i := range s.weight {
			actions[fmt.Sprintf("%02d %s", i, name)] = func(*rapid.T) { taken[name]++; s.do() }
		}
	}
	return actions
}
