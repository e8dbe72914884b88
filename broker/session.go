package broker

import (
	"sync"
	"sync/atomic"
	"time"

	"millrace/auth"
	"millrace/uns"
)

// session is what the box keeps for one client identifier: its subscriptions, what is owed to it, and the identifiers
// of QoS 2. With a session expiry it outlives its connection, and its rows outlive the process.
//
// mu is held neither across a socket write nor a store call, nor while another session's mu is taken.
type session struct {
	b     *Broker
	id    string // the MQTT client identifier
	owner string // the API client it belongs to
	num   uint32 // of the incarnation, for its rows; 0: it ends with its connection
	who   atomic.Pointer[auth.Principal]

	committing    sync.Mutex // held while flights are made durable
	mu            sync.Mutex
	conn          *conn // nil: offline, or ended
	over          bool  // ended for ever
	version       byte
	window        int      // deliveries that may be unacknowledged
	maxPacket     uint32   // what the client takes, 0 = anything
	aliases       *aliases // of conn; nil: its client wants none
	expiry        uint32   // seconds it outlives its connection
	ended         time.Time
	subscriptions map[string]*subscription
	hold          bool   // a SUBACK is to be written first
	replay        replay // goes before the queue
	will          *will
	queue         ring
	flights       []flight // sent and not done, in order
	open          map[uint16]struct{}
	resend        int // flights[resend:] are to be sent again on this connection
	lastID        uint16
	inbound       map[uint16]struct{} // QoS 2 publishes that were stored and not released

	// Of the connection's reader alone.
	seen seenIDs
	turn uint64 // of rows that remember publishes

	remembered [][]byte // rows of publishes, while the session is brought back

	dirty     bool      // noted for the janitor
	told      bool      // the row says that the session is offline
	forgotten [][]byte  // rows to delete
	durable   []uns.Row // rows that must be committed before what was filled is sent

	lastN    atomic.Uint64 // of queue rows
	dropped  dropCounts
	losing   uint32       // messages in a row that a full queue had to make room for
	lastLost atomic.Int64 // ns, when a full queue last lost a message, give or take lookEvery; 0 = never
}

// defaultWindow is for clients that name no Receive Maximum, maxWindow for those that name a huge one.
const (
	defaultWindow = 100
	maxWindow     = 1000
	loadPortion   = 256 // payloads read back at once
	lookEvery     = 16  // losses in a row for each look at the clock, which costs as much as the loss
)

// principal is who the session acts for.
func (s *session) principal() *auth.Principal { return s.who.Load() }

// enqueue owes the session a message. It never blocks: a full queue drops its oldest.
func (s *session) enqueue(d delivery) {
	d.weight = d.message.size()
	switch e := s.join(&d); {
	case e.over && d.group != "": // it was chosen and has ended meanwhile: another member gets it
		left := remains{num: s.num}
		if d.n == 0 {
			left = remains{shared: []delivery{d}, from: s}
		}
		s.b.janitor.discard(left)
	case e.over:
	case e.offline:
		s.drop(dropOffline, 1)
	default:
		if e.lost > 0 {
			s.drop(dropQueueFull, e.lost)
			if e.look {
				s.tooSlow()
			}
		}
		if e.wake != nil {
			e.wake.out.wakeLive(!d.wide)
		}
	}
}

// joined is what became of a message that was owed.
type joined struct {
	over, offline bool  // it was not put into the queue
	lost          int   // others that it pushed out
	look          bool  // it is time to see whether the subscriber is too slow
	wake          *conn // whose writer has something to do; nil = nobody's
}

// join puts a message into the queue. The lock is given back even by a panic, which would end one connection, but with
// the lock the box.
func (s *session) join(d *delivery) (e joined) {
	l := &s.b.o.Limits
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.conn
	if s.over || c == nil && (s.num == 0 || d.qos == 0) {
		e.over, e.offline = s.over, !s.over
		if !s.over || d.group == "" {
			s.settle(d)
		}
		return e
	}
	for s.queue.n > 0 && (s.queue.n >= l.MaxSubscriberQueue || s.queue.bytes+d.weight > l.MaxSubscriberQueueBytes) {
		s.settle(s.queue.front())
		s.queue.pop()
		e.lost++
	}
	if e.lost == 0 {
		s.losing = 0
	} else {
		e.look = s.losing%lookEvery == 0
		s.losing++
	}
	if c == nil {
		d.spill()
	}
	s.queue.push(*d, l.MaxSubscriberQueue)
	if s.queue.n == 1 || c != nil && s.freed(e.lost > 0) {
		e.wake = c
	}
	return e
}

// freed says that the message at the front, which waits for the window, holds up those behind it no longer: it was
// dropped, it has expired, or other rules are in force. Else a message of QoS 0, which needs no window, would wait for
// the next acknowledgement. The lock is held.
func (s *session) freed(dropped bool) bool {
	if len(s.flights) < s.window {
		return false
	}
	f := s.queue.front()
	if f.message == nil { // it is in its row; the writer reads it back and looks at it then
		return false
	}
	return dropped || f.expires > 0 && f.expires <= s.b.now().UnixMilli() || f.policy != s.principal().Policy()
}

// fill appends what c may be sent now to buf, in order, up to limit bytes; more says that it is to be called again. What
// it leaves in s.durable must be committed before buf is written. The writer of an earlier connection gets nothing.
func (s *session) fill(c *conn, buf []byte, limit int) (filled []byte, messages int, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != c {
		return buf, 0, false
	}
	now := s.b.now().UnixMilli()
	for ; s.resend < len(s.flights); s.resend++ { // [MQTT-4.4.0-1] [MQTT-4.6.0-1]
		if len(buf) >= limit {
			return buf, messages, true
		}
		f := &s.flights[s.resend]
		if f.received {
			buf = append(buf, typePubrel<<4|2, 2, byte(f.id>>8), byte(f.id))
			continue
		}
		if s.resend >= s.window { // the client may take fewer than the one before [MQTT-3.3.4-9]
			return buf, messages, false
		}
		at := len(buf)
		var ok bool
		if buf, ok = s.appendMessage(buf, &f.delivery, f.id, now); !ok { // this connection takes less than the one before
			s.drop(dropTooLarge, 1)
			s.land(s.resend)
			s.resend--
			continue
		}
		buf[at] |= 8 // DUP [MQTT-3.3.1-1]
		messages++
	}
	if s.hold || s.queue.n == 0 && !s.replay.pending() {
		return buf, messages, false
	}
	if s.replay.pending() {
		var done bool
		if buf, messages, done, more = s.fillRetained(buf, messages, limit, now); !done {
			return buf, messages, more
		}
	}
	policy := s.principal().Policy()
	for s.queue.n > 0 {
		if len(buf) >= limit {
			return buf, messages, true
		}
		d := s.queue.front()
		if d.message == nil {
			return buf, messages, true // load reads it back
		}
		why, ok := s.deliverable(d, policy, now)
		if !ok {
			s.dropFront(why)
			continue
		}
		var id uint16
		if d.qos > 0 {
			if len(s.flights) >= s.window {
				break
			}
			id = s.nextID()
		}
		if buf, ok = s.appendMessage(buf, d, id, now); !ok { // [MQTT-3.1.2-24] [MQTT-3.1.2-25]
			s.dropFront(dropTooLarge)
			continue
		}
		if d.qos > 0 {
			s.launch(d, id)
		}
		messages++
		s.queue.pop()
	}
	return buf, messages, false
}

// launch notes a message as sent. The lock is held.
func (s *session) launch(d *delivery, id uint16) {
	if s.open == nil {
		s.open = map[uint16]struct{}{}
	}
	s.open[id] = struct{}{}
	f := flight{delivery: *d, id: id}
	if d.n != 0 {
		if d.qos == 2 { // sent again under another identifier after a crash it would be received twice
			f.marked = true
			s.durable = append(s.durable, f.row(s.num))
		} else {
			s.touch()
		}
	}
	s.flights = append(s.flights, f)
	s.resend = len(s.flights)
}

// deliverable holds a message against its expiry and the rules in force now. The lock is held.
func (s *session) deliverable(d *delivery, policy *auth.Policy, now int64) (why dropReason, ok bool) {
	switch {
	case d.lost:
		return dropLost, false
	case d.expires > 0 && d.expires <= now: // [MQTT-3.3.2-5]
		return dropExpired, false
	case d.policy == policy && policy != nil:
		return 0, true
	case policy == nil:
		return dropNotPermitted, false
	}
	name := s.b.o.Namespace.Parse(d.topic, s.owner)
	if !mayReceive(s.principal(), policy, &name, d.topic) {
		return dropNotPermitted, false
	}
	d.policy = policy
	return 0, true
}

// dropFront lets go of the oldest message. The lock is held.
func (s *session) dropFront(why dropReason) {
	s.drop(why, 1)
	s.settle(s.queue.front())
	s.queue.pop()
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

// owed is how many messages wait, how many are on their way, and by how many filters they came.
type owed struct{ queued, inflight, subscriptions int }

func (s *session) owed() owed {
	s.mu.Lock()
	defer s.mu.Unlock()
	return owed{s.queue.n, len(s.flights), len(s.subscriptions)}
}

// outlives says whether the session goes on without its connection.
func (s *session) outlives() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.num != 0 && s.expiry > 0
}

// expireAfter changes how long the session outlives its connection. One that would have ended with it cannot be made to
// stay [MQTT-3.14.2-2].
func (s *session) expireAfter(seconds, most uint32) (code byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.expiry == 0 && seconds != 0 {
		return codeProtocol
	}
	s.expiry = min(seconds, most)
	s.told = false
	s.touch()
	return 0
}

// attach gives the session a connection.
func (s *session) attach(c *conn, p *auth.Principal, window int, expiry uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.who.Store(p)
	s.conn, s.version, s.window, s.maxPacket, s.aliases = c, c.version, window, c.maxPacket, newAliases(c.aliasMaximum)
	changed := s.expiry != expiry || s.told
	s.expiry, s.told, s.hold, s.resend = expiry, false, false, 0
	if changed {
		s.touch()
	}
	policy := p.Policy()
	for i := 0; i < len(s.flights); { // grants may have changed meanwhile
		f := &s.flights[i]
		if !f.received {
			if why, ok := s.deliverable(&f.delivery, policy, 0); !ok {
				s.drop(why, 1)
				s.land(i)
				continue
			}
		}
		i++
	}
}

// detach takes the connection away and keeps the rest. Payloads that are in rows leave the memory.
func (s *session) detach(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conn, s.ended, s.hold = nil, now, false
	for i := range s.queue.n {
		s.queue.at(i).spill()
	}
	s.touch()
}

// end lets go of everything. Cached matches may still point here for a while.
func (s *session) end() (subscriptions map[string]*subscription, left remains) {
	s.mu.Lock()
	left = remains{num: s.num, shared: s.shared(), settled: s.forgotten, from: s}
	lost := s.queue.n + len(s.flights) - len(left.shared)
	if s.num != 0 { // those are counted when nobody of their group takes them
		for i := range s.flights {
			f := &s.flights[i]
			switch {
			case f.n == 0 || f.group == "":
			case f.qos == 1:
				lost--
			default:
				left.sent = append(left.sent, f.n)
			}
		}
		for i := range s.queue.n {
			if d := s.queue.at(i); d.n != 0 && d.group != "" {
				lost--
			}
		}
	}
	subscriptions = s.subscriptions
	s.over, s.conn, s.subscriptions, s.queue, s.flights, s.open, s.inbound = true, nil, nil, ring{}, nil, nil, nil
	s.resend, s.forgotten, s.durable, s.replay = 0, nil, nil, replay{}
	s.mu.Unlock()
	if lost > 0 {
		s.drop(dropSessionEnded, lost)
	}
	return subscriptions, left
}

// mustCommit says whether what fill gave waits for commit.
func (s *session) mustCommit() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.durable) > 0
}

// commit makes durable what must be before the messages that fill gave are sent.
func (s *session) commit(c *conn) error {
	s.committing.Lock() // the writer of an earlier connection may be at it
	defer s.committing.Unlock()
	s.mu.Lock()
	rows := s.durable
	s.durable = nil
	s.mu.Unlock()
	if len(rows) == 0 {
		return nil
	}
	c.flushing.Store(s.b.now().UnixNano())
	defer c.flushing.Store(0)
	if err := s.b.rows.Append(c.ctx, nil, rows); err != nil {
		s.mu.Lock()
		if !s.over { // the flights are there still: they are noted before the next connection gets them
			s.durable = append(rows, s.durable...)
		}
		s.mu.Unlock()
		return err
	}
	return nil
}

// load reads back the payloads of the next messages, where they were left to their rows. It is called by the writer,
// before fill.
func (s *session) load(c *conn) error {
	s.mu.Lock()
	var wanted map[uint64]*delivery
	if s.conn == c && s.queue.n > 0 && s.queue.front().message == nil {
		wanted = map[uint64]*delivery{}
		for i := range min(s.queue.n, loadPortion) {
			if d := s.queue.at(i); d.message == nil {
				wanted[d.n] = nil
			}
		}
	}
	s.mu.Unlock()
	if wanted == nil {
		return nil
	}
	left := len(wanted)
	err := s.b.rows.Rows(rowKey(rowQueued, s.num), func(key, value []byte) bool {
		n := queuedN(key)
		if _, ok := wanted[n]; ok {
			if d, ok := parseQueued(value); ok {
				wanted[n] = &d
			}
			left--
		}
		return left > 0
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.queue.n {
		d := s.queue.at(i)
		got, ok := wanted[d.n]
		if !ok || d.message != nil {
			continue
		}
		if got == nil {
			d.message, d.lost = &message{}, true
			continue
		}
		d.message, d.ids, d.qos, d.retain, d.policy = got.message, got.ids, got.qos, got.retain, nil
	}
	return nil
}
