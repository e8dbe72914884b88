package queue

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"time"
)

// Limits is the former name of Options.
type Limits = Options

// maxFrameRuns and maxFrameBytes bound what is taken at once; an entry that is larger is a frame of its own.
const (
	maxFrameRuns  = 64
	maxFrameBytes = 64 << 10
)

// Memory is a queue that ends with the process. Triggers are not lost with it, because the follower reads the
// historian's log again from the cursor; runs that a person or a schedule started are.
type Memory struct {
	o Options

	mu     sync.Mutex
	closed bool
	seq    uint64
	lanes  [Lanes]waiting
	bytes  int64
	shed   [causes]uint64
	room   chan struct{} // closed and replaced when something was taken
}

type waiting struct {
	entries []held
	head    int
	runs    int
	came    chan struct{} // closed and replaced when there may be something to take

	out     []*handed // in the order in which they were handed out
	outRuns int
	lapsed  uint64
}

type held struct {
	entry Entry
	at    time.Time
}

// handed is a frame that is out.
type handed struct {
	frame *Frame
	runs  int
	since time.Time
}

// NewMemory makes an empty queue.
func NewMemory(o Options) *Memory {
	q := &Memory{o: o.filled(), room: make(chan struct{})}
	for i := range q.lanes {
		q.lanes[i].came = make(chan struct{})
	}
	return q
}

// Put implements Queue.
func (q *Memory) Put(ctx context.Context, l Lane, e Entry) error {
	size := e.size()
	if size > maxEntry {
		return ErrTooLarge
	}
	e.Value, e.Refs = bytes.Clone(e.Value), slices.Clone(e.Refs)
	q.mu.Lock()
	for !q.closed && q.bytes > 0 && q.bytes+size > q.o.MaxBytes {
		if !q.o.DiscardNewOnFull {
			q.drop(q.oldest(), bySize)
			continue
		}
		again := q.room
		q.mu.Unlock()
		select {
		case <-again:
		case <-ctx.Done():
			return ctx.Err()
		}
		q.mu.Lock()
	}
	defer q.mu.Unlock()
	if q.closed {
		return ErrClosed
	}
	w := &q.lanes[l]
	w.entries = append(w.entries, held{e, q.o.Now()})
	w.runs += len(e.Refs)
	q.bytes += size
	if len(w.entries)-w.head == 1 {
		w.wake()
	}
	return nil
}

func (w *waiting) wake() {
	close(w.came)
	w.came = make(chan struct{})
}

// oldest is the lane whose first entry came first.
func (q *Memory) oldest() Lane {
	pick, at := Lane(0), time.Time{}
	for l := range q.lanes {
		if w := &q.lanes[l]; w.head < len(w.entries) && (at.IsZero() || w.entries[w.head].at.Before(at)) {
			pick, at = Lane(l), w.entries[w.head].at
		}
	}
	return pick
}

// drop sheds the first entry of a lane. The lock is held.
func (q *Memory) drop(l Lane, why cause) {
	e := q.lanes[l].pop()
	q.bytes -= e.size()
	q.shed[why] += uint64(len(e.Refs))
	if q.o.Shed != nil {
		q.o.Shed([]Entry{e})
	}
}

func (w *waiting) pop() Entry {
	e := w.entries[w.head].entry
	w.entries[w.head] = held{}
	w.runs -= len(e.Refs)
	if w.head++; w.head == len(w.entries) {
		w.entries, w.head = w.entries[:0], 0
	} else if w.head >= 1024 && w.head*2 >= len(w.entries) {
		n := copy(w.entries, w.entries[w.head:])
		clear(w.entries[n:])
		w.entries, w.head = w.entries[:n], 0
	}
	return e
}

// Take implements Queue.
func (q *Memory) Take(ctx context.Context, l Lane) (*Frame, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	w := &q.lanes[l]
	for {
		if q.closed {
			return nil, ErrClosed
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		now := q.o.Now()
		if len(w.out) > 0 && now.Sub(w.out[0].since) >= q.o.Scheduler.AckWait {
			return q.again(w, now), nil
		}
		if q.o.MaxAge > 0 {
			limit := now.Add(-q.o.MaxAge)
			for w.head < len(w.entries) && w.entries[w.head].at.Before(limit) {
				q.drop(l, byAge)
			}
		}
		if w.head < len(w.entries) && w.outRuns < maxOutRuns {
			return q.next(l, now), nil
		}
		q.sleep(ctx, w, now)
	}
}

// sleep waits, without the lock, until there may be something: an entry, a frame that lapses, the end.
func (q *Memory) sleep(ctx context.Context, w *waiting, now time.Time) {
	var lapse <-chan time.Time
	if len(w.out) > 0 {
		t := time.NewTimer(max(q.o.Scheduler.AckWait-now.Sub(w.out[0].since), time.Millisecond))
		defer t.Stop()
		lapse = t.C
	}
	again := w.came
	q.mu.Unlock()
	defer q.mu.Lock()
	select {
	case <-again:
	case <-lapse:
	case <-ctx.Done():
	}
}

// again hands out the frame of which nothing was heard for longest.
func (q *Memory) again(w *waiting, now time.Time) *Frame {
	h := w.out[0]
	w.lapsed += uint64(h.runs)
	w.touch(h, now)
	f := NewFrame(h.frame.Lane, h.frame.Seq, h.frame.Created, h.frame.Entries, func() { q.settle(w, h) }, func() { q.progress(w, h) })
	f.Suspect = true
	return f
}

// next hands out as much as belongs into a frame.
func (q *Memory) next(l Lane, now time.Time) *Frame {
	w := &q.lanes[l]
	created := w.entries[w.head].at
	var entries []Entry
	runs, size := 0, int64(0)
	for w.head < len(w.entries) {
		first := &w.entries[w.head].entry
		if n := first.size(); len(entries) > 0 && (runs+len(first.Refs) > maxFrameRuns || size+n > maxFrameBytes) {
			break
		}
		e := w.pop()
		entries = append(entries, e)
		runs += len(e.Refs)
		size += e.size()
	}
	q.bytes -= size
	q.seq++
	close(q.room)
	q.room = make(chan struct{})
	h := &handed{runs: runs, since: now}
	h.frame = NewFrame(l, q.seq, created, entries, func() { q.settle(w, h) }, func() { q.progress(w, h) })
	w.out = append(w.out, h)
	w.outRuns += runs
	return h.frame
}

func (q *Memory) settle(w *waiting, h *handed) {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(w.out, h)
	if i < 0 {
		return
	}
	w.out = slices.Delete(w.out, i, i+1)
	if w.outRuns -= h.runs; w.outRuns+h.runs >= maxOutRuns {
		w.wake()
	}
}

func (q *Memory) progress(w *waiting, h *handed) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if slices.Contains(w.out, h) {
		w.touch(h, q.o.Now())
	}
}

// touch moves a frame behind those of which nothing was heard for longer.
func (w *waiting) touch(h *handed, now time.Time) {
	h.since = now
	i := slices.Index(w.out, h)
	w.out = append(slices.Delete(w.out, i, i+1), h)
}

// Stats implements Queue.
func (q *Memory) Stats() Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := Stats{Bytes: q.bytes, ShedSize: q.shed[bySize], ShedAge: q.shed[byAge]}
	for l := range q.lanes {
		w := &q.lanes[l]
		s.Pending[l], s.InFlight[l], s.Frames[l] = w.runs, w.outRuns, len(w.out)
		s.Redelivered += w.lapsed
		if w.head < len(w.entries) {
			s.Oldest[l] = w.entries[w.head].at
		}
	}
	return s
}

// Close ends every call; what waits is gone.
func (q *Memory) Close() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return nil
	}
	q.closed = true
	close(q.room)
	for i := range q.lanes {
		close(q.lanes[i].came)
	}
	return nil
}
