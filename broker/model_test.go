package broker_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"millrace/broker"
)

// sessionModel is what the specification says of one publisher and one subscriber with sessions that last, beside a box on
// which the same is done over sockets: connections break, the box is killed, answers are withheld or repeated.
type sessionModel struct {
	t   *testing.T
	x   *box
	rng *rand.Rand
	// crash kills the box and starts another on what it leaves. stored counts the values it has.
	crash  func(old *box) *box
	stored func() int
	cuts   int // of a thousand steps

	next int // values stored so far; the payload of the next

	p        *client
	open     map[uint16]int // QoS 2 identifiers between PUBLISH and PUBREL, and their value
	lastID   uint16
	last1    pub // the last QoS 1 publish
	s        *client
	received map[uint16]bool // the subscriber's: between PUBLISH and PUBREL
	got      int             // values the subscriber has, in order and once each
}

func (m *sessionModel) dialAs(id, user string) *client {
	return dial(m.t, m.x.Addr(), hello{id: id, user: user, persistent: true, properties: forAnHour})
}

func (m *sessionModel) fatalf(format string, args ...any) {
	m.t.Helper()
	m.t.Fatalf("value %d, delivered %d: "+format, append([]any{m.next, m.got}, args...)...)
}

func (m *sessionModel) id() uint16 {
	for {
		if m.lastID = m.lastID%2000 + 1; !m.inUse(m.lastID) {
			return m.lastID
		}
	}
}

func (m *sessionModel) inUse(id uint16) bool { _, used := m.open[id]; return used }

// pending picks one of the open identifiers.
func (m *sessionModel) pending() (uint16, bool) {
	if len(m.open) == 0 {
		return 0, false
	}
	ids := make([]uint16, 0, len(m.open))
	for id := range m.open {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids[m.rng.IntN(len(ids))], true
}

func (m *sessionModel) answer(first byte, id uint16, code byte) {
	m.t.Helper()
	p := m.p.want(first)
	got := byte(0)
	if len(p.body) > 2 {
		got = p.body[2]
	}
	if binary.BigEndian.Uint16(p.body) != id || got != code {
		m.fatalf("answer %v, want %02x of %d with %02x", p, first, id, code)
	}
}

func (m *sessionModel) step() {
	switch n := m.rng.IntN(1000); {
	case n < 450: // QoS 1
		m.last1 = pub{topic: full("a"), payload: values(m.next), qos: 1, id: m.id()}
		m.p.pub(m.last1)
		m.answer(0x40, m.last1.id, 0)
		m.next++
	case n < 480: // its retransmission is not stored again
		if m.last1.id != 0 && !m.inUse(m.last1.id) {
			again := m.last1
			again.dup = true
			m.p.pub(again)
			m.answer(0x40, again.id, 0)
		}
	case n < 650: // QoS 2
		if len(m.open) >= 50 {
			return
		}
		id := m.id()
		m.p.pub(pub{topic: full("a"), payload: values(m.next), qos: 2, id: id})
		m.answer(0x50, id, 0)
		m.open[id] = m.next
		m.next++
	case n < 730: // the same once more
		if id, ok := m.pending(); ok {
			m.p.pub(pub{topic: full("a"), payload: values(m.open[id]), qos: 2, id: id, dup: true})
			m.answer(0x50, id, 0)
		}
	case n < 900:
		if id, ok := m.pending(); ok {
			m.p.write([]byte{0x62, 2, byte(id >> 8), byte(id)})
			m.answer(0x70, id, 0)
			delete(m.open, id)
		}
	case n < 930:
		id := m.id()
		m.p.write([]byte{0x62, 2, byte(id >> 8), byte(id)})
		m.answer(0x70, id, 0x92)
	case n < 950:
		_ = m.p.conn.Close()
		m.p = m.dialAs("p", "dev")
	case n < 970:
		_ = m.s.conn.Close()
		m.s = m.dialAs("s", "sub")
	case n < 994:
		for range m.rng.IntN(20) {
			if !m.take(time.Millisecond, m.rng.IntN(4) > 0) {
				break
			}
		}
	case n < 998:
		m.check()
	case n < 998+m.cuts:
		m.kill(m.rng.IntN(12))
	}
}

// kill ends the box while n publishes are on their way. Afterwards they are sent again, as a client that keeps its session
// does: whatever of them was stored, each is stored once.
func (m *sessionModel) kill(n int) {
	var sent []pub
	var frames []byte
	for range n {
		p := pub{topic: full("a"), payload: values(m.next), qos: byte(1 + m.rng.IntN(2)), id: m.id()}
		if p.qos == 2 && len(m.open) >= 50 {
			break
		}
		m.next++
		if m.open[p.id] = m.next - 1; p.qos == 1 { // so that the next has another identifier
			defer delete(m.open, p.id)
		}
		sent = append(sent, p)
		frames = append(frames, p.bytes(5)...)
	}
	_ = m.s.conn.Close() // what a subscriber hears after the moment of the cut nobody has stored
	if len(frames) > 0 {
		m.p.write(frames)
	}
	time.Sleep(time.Duration(m.rng.IntN(1000)) * time.Microsecond)
	m.x = m.crash(m.x)
	m.p, m.s = m.dialAs("p", "dev"), m.dialAs("s", "sub")
	for _, p := range sent {
		p.dup = true
		m.p.pub(p)
		m.answer([]byte{0, 0x40, 0x50}[p.qos], p.id, 0)
	}
	m.last1 = pub{}
}

func live2(o *broker.Options) { o.LiveQoS = 2 }

// take reads one packet as the subscriber and answers it, or not.
func (m *sessionModel) take(wait time.Duration, answer bool) bool {
	p, err := m.s.read(wait)
	if err != nil {
		if wait == patience {
			m.fatalf("the subscriber misses a value: %v", err)
		}
		// Half a packet may have been read: the connection is of no more use.
		_ = m.s.conn.Close()
		m.s = m.dialAs("s", "sub")
		return false
	}
	switch p.first >> 4 {
	case 3:
		v := m.s.parse(p)
		if v.qos != 2 {
			m.fatalf("delivered %+v", v)
		}
		if !m.received[v.id] {
			if want := fmt.Sprintf(`{"value":%d,`, m.got); len(v.payload) < len(want) || v.payload[:len(want)] != want {
				m.fatalf("delivered %+v, want value %d", v, m.got)
			}
			m.received[v.id] = true
			m.got++
		} else if !v.dup { // [MQTT-3.3.1-1]
			m.fatalf("sent again without DUP: %+v", v)
		}
		if answer {
			m.s.write([]byte{0x50, 2, byte(v.id >> 8), byte(v.id)})
		}
	case 6:
		id := binary.BigEndian.Uint16(p.body)
		delete(m.received, id)
		if answer {
			m.s.write([]byte{0x70, 2, byte(id >> 8), byte(id)})
		}
	default:
		m.fatalf("the subscriber got %v", p)
	}
	return true
}

// check has everything delivered that was stored.
func (m *sessionModel) check() {
	if n := m.stored(); n != m.next {
		m.fatalf("%d values are stored", n)
	}
	_ = m.s.conn.Close()
	m.s = m.dialAs("s", "sub")
	for m.got < m.next {
		m.take(patience, true)
	}
}

// Sessions and QoS 2 against the specification: every value is stored once and delivered once and in order, whatever breaks.
// MILLRACE_LONG=1 takes a million steps.
func TestSessionModel(t *testing.T) {
	t.Parallel()
	steps := 100_000
	if os.Getenv("MILLRACE_LONG") == "1" {
		steps = 1_000_000
	} else if testing.Short() {
		steps = 5_000
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	m := &sessionModel{t: t, x: open(t, setting{broker: live2}), rng: rand.New(rand.NewPCG(seed, 1)), cuts: 1}
	m.crash = func(old *box) *box {
		x := open(t, setting{store: old.store.killed(), broker: live2})
		_ = m.p.conn.Close() // first, or the box waits for it to read why it goes
		old.stop()
		return x
	}
	m.stored = func() int { return m.x.store.stored() }
	m.run(steps)
}

func (m *sessionModel) run(steps int) {
	m.open, m.received = map[uint16]int{}, map[uint16]bool{}
	m.p, m.s = m.dialAs("p", "dev"), m.dialAs("s", "sub")
	m.s.mustSub(2, full("#"))
	for range steps {
		m.step()
	}
	m.check()
}
