package queue

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"time"
)

// Limits are the bounds of a queue.
type Limits struct {
	MaxBytes         int64
	MaxAge           time.Duration // 0 = any
	DiscardNewOnFull bool          // Put waits; otherwise the oldest that waits is dropped
	// Shed is told of entries that were dropped and will not be taken; valid during the call only. It must not call the queue.
	Shed func(entries []Entry)
	Now  func() time.Time // nil = time.Now
}

// maxFrameRuns and maxFrameBytes bound what is taken at once.
const (
	maxFrameRuns  = 64
	maxFrameBytes = 64 << 10
)

// Memory is a queue that ends with the process. Triggers are not lost with it, because the follower reads the
// historian's log again from the cursor; runs that a person or a schedule started are.
type Memory struct {
	o Limits

	mu     sync.Mutex
	closed bool
	seq    uint64
	lanes  [Lanes]waiting
	bytes  int64
	shed   [2]uint64     // by size, by age
	room   chan struct{} // closed and replaced when something was taken
}

type waiting struct {
	entries []held
	head    int
	runs    int
	came    chan struct{} // closed and replaced when something was put
}

type held struct {
	entry Entry
	at    time.Time
}

// NewMemory makes an empty queue.
func NewMemory(o Limits) *Memory {
	if o.Now == nil {
		o.Now = time.Now
	}
	q := &Memory{o: o, room: make(chan struct{})}
	for i := range q.lanes {
		q.lanes[i].came = make(chan struct{})
	}
	return q
}

// Put implements Queue.
func (q *Memory) Put(ctx context.Context, l Lane, e Entry) error {
	e.Value, e.Refs = bytes.Clone(e.Value), slices.Clone(e.Refs)
	size := e.size()
	q.mu.Lock()
	for !q.closed && q.bytes > 0 && q.bytes+size > q.o.MaxBytes {
		if !q.o.DiscardNewOnFull {
			q.drop(q.oldest(), 0)
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
		close(w.came)
		w.came = make(chan struct{})
	}
	return nil
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
func (q *Memory) drop(l Lane, cause int) {
	e := q.lanes[l].pop()
	q.bytes -= e.size()
	q.shed[cause] += uint64(len(e.Refs))
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
	w := &q.lanes[l]
	for {
		if q.closed {
			q.mu.Unlock()
			return nil, ErrClosed
		}
		if q.o.MaxAge > 0 {
			limit := q.o.Now().Add(-q.o.MaxAge)
			for w.head < len(w.entries) && w.entries[w.head].at.Before(limit) {
				q.drop(l, 1)
			}
		}
		if w.head < len(w.entries) {
			break
		}
		again := w.came
		q.mu.Unlock()
		select {
		case <-again:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		q.mu.Lock()
	}
	defer q.mu.Unlock()
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
	return NewFrame(l, q.seq, created, entries, func() {}, nil), nil
}

// Stats implements Queue.
func (q *Memory) Stats() Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := Stats{Bytes: q.bytes, ShedSize: q.shed[0], ShedAge: q.shed[1]}
	for l := range q.lanes {
		w := &q.lanes[l]
		s.Pending[l] = w.runs
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
