package broker

import (
	"sync"
	"sync/atomic"

	"millrace/auth"
)

// session is one signed-in client identifier: its subscriptions and what is owed to it. For now it lives as long as
// its connection.
//
// mu is held neither across a socket write nor while another session's mu is taken.
type session struct {
	b         *Broker
	id        string // the MQTT client identifier
	principal *auth.Principal
	version   byte
	window    int    // deliveries that may be unacknowledged
	maxPacket uint32 // what the client takes, 0 = anything

	mu            sync.Mutex
	conn          *conn // nil: ended
	subscriptions map[string]*subscription
	hold          bool // a SUBACK is to be written first
	queue         ring
	open          map[uint16]struct{} // packet identifiers that were sent and not acknowledged
	lastID        uint16

	dropped  dropCounts
	lastLost atomic.Int64 // ns, when a full queue last lost a message; 0 = never
}

// defaultWindow is for clients that name no Receive Maximum, maxWindow for those that name a huge one.
const (
	defaultWindow = 100
	maxWindow     = 1000
)

// enqueue owes the session a message. It never blocks: a full queue drops its oldest.
func (s *session) enqueue(d delivery) {
	l := &s.b.o.Limits
	s.mu.Lock()
	c := s.conn
	if c == nil {
		s.mu.Unlock()
		return
	}
	lost := 0
	for s.queue.n > 0 && (s.queue.n >= l.MaxSubscriberQueue || s.queue.bytes+d.size() > l.MaxSubscriberQueueBytes) {
		s.queue.pop()
		lost++
	}
	s.queue.push(d, l.MaxSubscriberQueue)
	first := s.queue.n == 1
	s.mu.Unlock()
	if lost > 0 {
		s.drop(dropQueueFull, lost)
	}
	if first {
		c.out.wakeLive()
	}
}

// fill appends what may be sent now to buf, in order, up to limit bytes; more says that the limit ended it.
func (s *session) fill(buf []byte, limit int) (filled []byte, messages int, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hold || s.queue.n == 0 {
		return buf, 0, false
	}
	now := s.b.now().Unix()
	for s.queue.n > 0 {
		if len(buf) >= limit {
			return buf, messages, true
		}
		d := s.queue.front()
		if d.expires > 0 && d.expires <= now { // [MQTT-3.3.2-5]
			s.drop(dropExpired, 1)
			s.queue.pop()
			continue
		}
		var id uint16
		if d.qos > 0 {
			if len(s.open) >= s.window {
				break
			}
			id = s.nextID()
		}
		at := len(buf)
		buf = appendPublish(buf, d, s.version, id, now)
		if s.maxPacket > 0 && len(buf)-at > int(s.maxPacket) { // [MQTT-3.1.2-24] [MQTT-3.1.2-25]
			buf = buf[:at]
			s.drop(dropTooLarge, 1)
			s.queue.pop()
			continue
		}
		if d.qos > 0 {
			if s.open == nil {
				s.open = map[uint16]struct{}{}
			}
			s.open[id] = struct{}{}
		}
		messages++
		s.queue.pop()
	}
	return buf, messages, false
}

// nextID finds a packet identifier that is not in use; the window is far smaller than there are identifiers.
func (s *session) nextID() uint16 {
	for {
		if s.lastID++; s.lastID == 0 {
			continue
		}
		if _, used := s.open[s.lastID]; !used {
			return s.lastID
		}
	}
}

// acked takes a PUBACK; wake says that it opened the window for something. An identifier that is not open is ignored
// and opens nothing.
func (s *session) acked(id uint16) (wake bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.open[id]; !ok {
		return false
	}
	full := len(s.open) >= s.window
	delete(s.open, id)
	return full && s.queue.n > 0
}

// owed is how many messages wait, how many are on their way, and by how many filters they came.
type owed struct{ queued, inflight, subscriptions int }

func (s *session) owed() owed {
	s.mu.Lock()
	defer s.mu.Unlock()
	return owed{s.queue.n, len(s.open), len(s.subscriptions)}
}

// holdBack stops deliveries until release, so that none overtakes the SUBACK.
func (s *session) holdBack() {
	s.mu.Lock()
	s.hold = true
	s.mu.Unlock()
}

func (s *session) release() {
	s.mu.Lock()
	s.hold = false
	s.mu.Unlock()
}

// end lets go of the connection and of what was owed. Cached matches may still point here for a while.
func (s *session) end() (subscriptions map[string]*subscription) {
	s.mu.Lock()
	lost := s.queue.n
	subscriptions = s.subscriptions
	s.conn, s.subscriptions, s.queue, s.open = nil, nil, ring{}, nil
	s.mu.Unlock()
	if lost > 0 {
		s.drop(dropSessionEnded, lost)
	}
	return subscriptions
}
