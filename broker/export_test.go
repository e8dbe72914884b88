package broker

import (
	"net"
	"sync/atomic"
	"time"

	"millrace/uns"
)

// Take runs a whole connection in the caller's goroutine, as the listener does after accept.
func (b *Broker) Take(raw net.Conn) {
	if c := b.listener.register(raw, b.listener.doors[doorTCP]); c != nil {
		b.listener.run(c)
	}
}

// SetLinger is how long a connection that was told why it ends is drained. Before Serve.
func (b *Broker) SetLinger(d time.Duration) { b.linger = d }

// LibrarySubscriptions is how many the MQTT library thinks there are.
func (b *Broker) LibrarySubscriptions() int64 { return atomic.LoadInt64(&b.library.Info.Subscriptions) }

// ReplayJobs counts what a session is still owed of retained messages, by subscription, and the list it is kept in.
func (b *Broker) ReplayJobs(mqttID string) (owed, listed int) {
	b.mu.Lock()
	s := b.sessions[mqttID]
	b.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.replay.by), len(s.replay.jobs)
}

// Looked is when the janitor last looked for sessions whose time is over.
func (b *Broker) Looked() time.Time { return time.Unix(0, b.janitor.looked.Load()) }

// JanitorEvery is how long rows may wait to be written.
const JanitorEvery = janitorEvery

// Inspect is one round of the watchdog.
func (b *Broker) Inspect(now time.Time) { b.inspect(now) }

// ReasonCode is the table of verdicts.
func ReasonCode(r uns.Reason) byte { return reasonCode(r) }

// ParsedPublish is what the box takes from a PUBLISH.
type ParsedPublish struct {
	Topic, Payload, Response, Correlation []byte
	ID, Alias                             uint16
	QoS                                   byte
	Retain                                bool
}

// ParsePublish parses the body of a PUBLISH.
func ParsePublish(flags byte, body []byte, version byte) (p ParsedPublish, code byte) {
	var q publish
	code = q.parse(flags, body, version)
	return ParsedPublish{q.topic, q.payload, q.response, q.correlation, q.id, q.alias, q.qos, q.retain}, code
}

// MatchAnew finds who listens to a stored topic, as if nobody had asked before.
func (b *Broker) MatchAnew(topic string) int {
	name := b.o.Namespace.Parse(topic, "")
	return len(b.index.match(topic, &name).receivers)
}

// IndexSize counts the subscriptions and branches in the tree of filters.
func (b *Broker) IndexSize() (n int) {
	b.index.mu.RLock()
	defer b.index.mu.RUnlock()
	var count func(*node)
	count = func(x *node) {
		n += len(x.subs) + len(x.below)
		for _, k := range x.below {
			count(k)
		}
		if x.only != nil {
			n++
			count(x.only)
		}
	}
	count(&b.index.root)
	return n
}

// MaxTallies is how many rows a table of limits has.
const MaxTallies = maxTallies

// Tallies is a table of limits.
type Tallies struct{ t tallies }

// NewTallies makes one that bans at most events a minute.
func NewTallies(most int) *Tallies {
	x := &Tallies{}
	x.t.init(most)
	return x
}

func (x *Tallies) Note(of, id string, now time.Time) bool { return x.t.note(tallyKey{of, id}, now) }
func (x *Tallies) Banned(of, id string, now time.Time) bool {
	return x.t.banned(tallyKey{of, id}, now)
}
func (x *Tallies) Sweep(now time.Time) { x.t.sweep(now) }
func (x *Tallies) Figures() (rows, bans int, displaced uint64) {
	f := x.t.figures()
	return f.rows, f.bans, f.displaced
}

// SourceOf is what an address counts as.
func SourceOf(address string) string { return sourceOf(address) }

// BoundRetained sets the bounds of retained messages.
func (b *Broker) BoundRetained(messages int, bytes int64) {
	b.retained.mu.Lock()
	defer b.retained.mu.Unlock()
	b.retained.most, b.retained.room = messages, bytes
}

// Filler has deliveries of a connected session encoded, as its flusher does.
type Filler struct {
	s    *session
	c    *conn
	buf  []byte
	most int
	list []delivery
}

// NewFiller makes one for a session, of QoS 0 messages on those topics in turn.
func (b *Broker) NewFiller(mqttID, payload string, topics ...string) *Filler {
	b.mu.Lock()
	s := b.sessions[mqttID]
	b.mu.Unlock()
	f := &Filler{s: s, c: s.conn, most: b.o.Limits.MaxSubscriberQueue}
	for _, topic := range topics {
		m := &message{topic: topic, payload: []byte(payload)}
		f.list = append(f.list, delivery{message: m, weight: m.size(), policy: s.principal().Policy()})
	}
	return f
}

// Fill encodes each message once and returns how many octets they took.
func (f *Filler) Fill() int {
	f.s.mu.Lock()
	for _, d := range f.list {
		f.s.queue.push(d, f.most)
	}
	f.s.mu.Unlock()
	f.buf, _, _ = f.s.fill(f.c, f.buf[:0], 1<<20)
	return len(f.buf)
}

// Rows are the keys of every row of a session's incarnation.
func (b *Broker) Rows(num uint32) (keys []string) {
	for _, kind := range []string{rowSession, rowFilter, rowQueued, rowFlight, rowInbound, rowSeen} {
		_ = b.rows.Rows(rowKey(kind, num), func(key, _ []byte) bool {
			keys = append(keys, string(key))
			return true
		})
	}
	return keys
}

// Dirty says whether the janitor has something to write.
func (b *Broker) Dirty() bool {
	b.janitor.mu.Lock()
	defer b.janitor.mu.Unlock()
	return len(b.janitor.dirty)+len(b.janitor.ended) > 0
}

// Expire is the janitor's look at sessions whose time is over.
func (b *Broker) Expire() { b.expire(b.now()) }

// Claimed says whether a connection still holds a client identifier.
func (b *Broker) Claimed(id string) bool {
	b.claims.mu.Lock()
	defer b.claims.mu.Unlock()
	return b.claims.holders[id] != nil
}
