package queue

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// What a lane's writer gathers, and how much of it may be on its way.
const (
	gather = 5 * time.Millisecond // between frames that are not full
	// maxFlying is how many frames may await their confirmation. With a second one a refused frame could be overtaken; one
	// carries 64 runs in 0.2 ms.
	maxFlying = 1
	stalled   = 5 * time.Second // a consumer that hands out nothing so long, while frames wait, is made anew
	maxReady  = 8               // full frames that wait to be sent
	// maxOutRuns and maxOutBytes bound what is out of one lane, so that a restart has little to doubt.
	maxOutRuns  = 16_384
	maxOutBytes = 16 << 20
)

// lane is one subject: its writer, its consumer and its ledger.
type lane struct {
	q       *JetStream
	l       Lane
	subject string
	inbox   string // confirmations of its frames come to inbox + number

	mu     sync.Mutex
	open   *builder
	ready  []*builder
	flying []flight // in the order in which they were sent
	failed []flight // refused by the stream; sent again before anything else
	number uint64
	sent   time.Time // when the last frame was
	ledger ledger
	// pending are runs that were put and not taken; lapsed those that were handed out again.
	pending int
	lapsed  uint64

	wake  chan struct{} // one token for the writer
	taker chan struct{} // the right to call messages.Next
	gate  chan struct{} // one token: something was settled
	msgs  jetstream.MessagesContext
	timer *time.Timer
}

// flight is a frame on its way into the stream.
type flight struct {
	number  uint64
	data    []byte
	runs    int
	created time.Time
	refused string
}

func newLane(q *JetStream, l Lane) *lane {
	return &lane{
		q: q, l: l, subject: subjects[l], inbox: q.inbox + strconv.Itoa(int(l)) + ".", ledger: newLedger(),
		wake: make(chan struct{}, 1), taker: make(chan struct{}, 1), gate: make(chan struct{}, 1), timer: time.NewTimer(time.Hour),
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// put adds an entry to the open frame; false when the writer is so far behind that the caller must wait.
func (n *lane) put(e *Entry) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.open != nil && !n.open.room(e) {
		if len(n.ready) >= maxReady {
			return false
		}
		n.ready = append(n.ready, n.open)
		n.open = nil
	}
	first := n.open == nil
	if first {
		n.open = newBuilder(n.l, n.q.boot, n.q.o.Now())
		n.q.held.Add(overhead(n.l) + headerSize + sumSize)
	}
	before := len(n.open.buf)
	n.open.add(e)
	n.pending += len(e.Refs)
	n.q.held.Add(int64(len(n.open.buf) - before))
	if first || n.open.full() || len(n.ready) > 0 {
		signal(n.wake)
	}
	return true
}

// overhead is what the stream counts for a message beside its data.
func overhead(l Lane) int64 { return int64(22 + 8 + len(subjects[l])) }

// write sends frames until the queue closes: at once in a lane that is quiet, otherwise when the open one is full or the
// last one was sent long enough ago.
func (n *lane) write(ctx context.Context) {
	for {
		select {
		case <-n.wake:
		case <-n.timer.C:
		case <-ctx.Done():
			return
		}
		for {
			f, ok := n.next()
			if !ok {
				break
			}
			n.send(f)
		}
	}
}

// next detaches the frame to be sent now.
func (n *lane) next() (flight, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.failed) > 0 {
		// What was refused comes before all that is newer.
		if len(n.flying) > 0 || n.q.pausing() {
			n.timer.Reset(gather)
			return flight{}, false
		}
		f := n.failed[0]
		n.failed = n.failed[1:]
		n.flying = append(n.flying, f)
		return f, true
	}
	if len(n.flying) >= maxFlying {
		return flight{}, false
	}
	var b *builder
	switch {
	case len(n.ready) > 0:
		b = n.ready[0]
		n.ready = append(n.ready[:0], n.ready[1:]...)
		n.q.freed()
	case n.open == nil:
		return flight{}, false
	case !n.open.full():
		if left := gather - time.Since(n.sent); left > 0 {
			n.timer.Reset(left)
			return flight{}, false
		}
		fallthrough
	default:
		b, n.open = n.open, nil
	}
	n.sent = time.Now()
	n.number++
	f := flight{number: n.number, data: b.frame(), runs: b.runs, created: b.created}
	n.flying = append(n.flying, f)
	return f, true
}

func (n *lane) send(f flight) {
	if err := n.q.conn.PublishRequest(n.subject, n.inbox+strconv.FormatUint(f.number, 10), f.data); err != nil {
		n.answer(f.number, 0, err.Error())
	}
}

// answer takes the stream's word on a frame: its sequence, or why it was refused.
func (n *lane) answer(number, seq uint64, refused string) {
	n.mu.Lock()
	at := -1
	for i := range n.flying {
		if n.flying[i].number == number {
			at = i
			break
		}
	}
	if at < 0 {
		n.mu.Unlock()
		return
	}
	f := n.flying[at]
	n.flying = append(n.flying[:at], n.flying[at+1:]...)
	if refused != "" {
		f.refused = refused
		n.failed = append(n.failed, f)
		n.mu.Unlock()
		n.q.refused(refused)
		signal(n.wake)
		return
	}
	n.ledger.confirm(parcel{seq: seq, bytes: int64(len(f.data)) + overhead(n.l), runs: f.runs, created: f.created})
	more := n.open != nil || len(n.ready) > 0 || len(n.failed) > 0
	n.mu.Unlock()
	n.q.confirmed()
	if more {
		signal(n.wake)
	}
}

// idle says that everything put so far is in the stream.
func (n *lane) idle() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.open == nil && len(n.ready) == 0 && len(n.flying) == 0 && len(n.failed) == 0
}

// take waits for the next frame that is to be handed out.
func (n *lane) take(ctx context.Context) (*Frame, error) {
	select {
	case n.taker <- struct{}{}:
		defer func() { <-n.taker }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	for {
		if err := n.admitted(ctx); err != nil {
			return nil, err
		}
		head := n.first()
		short, cancel := context.WithTimeout(ctx, stalled)
		m, err := n.messages().Next(jetstream.NextContext(short))
		cancel()
		switch {
		case err == nil:
		case n.q.closing.Err() != nil:
			return nil, ErrClosed
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case !errors.Is(err, context.DeadlineExceeded):
			return nil, err
		case head != 0 && head == n.first():
			// The ledger knows what is out, so frames that come twice are told apart.
			n.q.o.Log.Warn("the execution queue's stream handed out nothing although frames wait; its consumer is made anew", "lane", n.l, "frame", head)
			n.messages().Stop()
			if err := n.consume(ctx, n.q.ctl, n.q.o.Scheduler.AckWait); err != nil {
				return nil, err
			}
			continue
		default:
			continue
		}
		if f := n.handOut(m); f != nil {
			return f, nil
		}
	}
}

// first is the sequence of the frame that waits longest, 0 for none.
func (n *lane) first() uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	if list := n.ledger.queue(); len(list) > 0 {
		return list[0].seq
	}
	return 0
}

func (n *lane) messages() jetstream.MessagesContext {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.msgs
}

// admitted waits while too much of the lane is out.
func (n *lane) admitted(ctx context.Context) error {
	for {
		n.mu.Lock()
		full := n.ledger.outRuns >= maxOutRuns || n.ledger.outBytes >= maxOutBytes
		n.mu.Unlock()
		if !full {
			return nil
		}
		select {
		case <-n.gate:
		case <-ctx.Done():
			return ctx.Err()
		case <-n.q.closing.Done():
			return ErrClosed
		}
	}
}

// handOut makes a frame of a message; nil when there is nothing to hand out.
func (n *lane) handOut(m jetstream.Msg) *Frame {
	at, err := m.Metadata()
	if err != nil {
		return nil // not from a stream: nothing we could acknowledge
	}
	seq := at.Sequence.Stream
	h, entries, err := decode(m.Data())
	if err != nil {
		n.q.spoiled(n, seq, err)
		_ = m.Ack() // damaged: it will not get better
		return nil
	}
	p := parcel{seq: seq, bytes: int64(len(m.Data())) + overhead(n.l), runs: h.runs, created: h.created}
	n.mu.Lock()
	fresh, again := n.ledger.hand(p, n.q.o.Now(), n.q.o.Scheduler.AckWait)
	_, inHand := n.ledger.out[seq]
	if fresh && !again {
		n.pending -= p.runs
		n.q.held.Add(-p.bytes)
	}
	if again {
		n.lapsed += uint64(p.runs)
	}
	n.mu.Unlock()
	if !fresh {
		if inHand {
			_ = m.InProgress()
		} else {
			_ = m.Ack() // shed, or acknowledged before
		}
		return nil
	}
	n.q.freed()
	f := NewFrame(n.l, seq, h.created, entries, func() { n.settle(seq, m) }, func() { n.progress(seq, m) })
	f.Suspect = again || seq <= n.q.lastAtStart
	return f
}

func (n *lane) settle(seq uint64, m jetstream.Msg) {
	n.mu.Lock()
	was := n.ledger.settle(seq)
	n.mu.Unlock()
	if was {
		_ = m.Ack() // fails only when the connection is closed; then the frame survives
		signal(n.gate)
	}
}

func (n *lane) progress(seq uint64, m jetstream.Msg) {
	n.mu.Lock()
	d := n.ledger.out[seq]
	if d != nil {
		d.since = n.q.o.Now()
	}
	n.mu.Unlock()
	if d != nil {
		_ = m.InProgress() // as with Ack
	}
}
