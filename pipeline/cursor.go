package pipeline

import (
	"sync"

	"millrace/pipeline/history"
)

// ledger knows which numbers have runs that are not finished. For value triggers the numbers are sequences, and the
// lowest one is the cursor; for other runs they are their ids, and what lies below the lowest needs no publish keys.
type ledger struct {
	mu   sync.Mutex
	left map[uint64]int32 // unfinished runs of a number
	heap []uint64         // every number of left, and some that have gone from it
	done []history.Mark   // finished since the last look
}

func newLedger() *ledger { return &ledger{left: make(map[uint64]int32)} }

// begin adds runs of a number.
func (l *ledger) begin(n uint64, runs int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	left, ok := l.left[n]
	l.left[n] = left + int32(runs)
	if !ok {
		l.add(n)
	}
}

// finish takes one run of a number out.
func (l *ledger) finish(n uint64, mark history.Mark) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done = append(l.done, mark)
	l.less(n)
}

// drop takes a run back that never was queued.
func (l *ledger) drop(n uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.less(n)
}

func (l *ledger) less(n uint64) {
	switch left := l.left[n]; {
	case left > 1:
		l.left[n] = left - 1
	case left == 1:
		delete(l.left, n)
	}
}

// knows says whether runs of a number are unfinished.
func (l *ledger) knows(n uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.left[n]
	return ok
}

// lowest is the lowest number with an unfinished run, and not above next, which is what comes when there is none.
func (l *ledger) lowest(next uint64) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.low(next)
}

func (l *ledger) low(next uint64) uint64 {
	for len(l.heap) > 0 {
		if _, ok := l.left[l.heap[0]]; ok {
			return min(l.heap[0], next)
		}
		l.remove()
	}
	return next
}

// look gives the cursor, and what has finished above it since the last look.
func (l *ledger) look(next uint64) (cursor uint64, above []history.Mark) {
	l.mu.Lock()
	defer l.mu.Unlock()
	cursor = l.low(next)
	for _, m := range l.done {
		if m.Seq >= cursor {
			above = append(above, m)
		}
	}
	l.done = l.done[:0]
	return cursor, above
}

// again puts marks back that could not be saved.
func (l *ledger) again(marks []history.Mark) {
	l.mu.Lock()
	l.done = append(l.done, marks...)
	l.mu.Unlock()
}

func (l *ledger) add(n uint64) {
	l.heap = append(l.heap, n)
	for i := len(l.heap) - 1; i > 0; {
		p := (i - 1) / 2
		if l.heap[p] <= l.heap[i] {
			return
		}
		l.heap[p], l.heap[i] = l.heap[i], l.heap[p]
		i = p
	}
}

func (l *ledger) remove() {
	last := len(l.heap) - 1
	l.heap[0] = l.heap[last]
	l.heap = l.heap[:last]
	for i := 0; ; {
		c := 2*i + 1
		if c >= last {
			return
		}
		if c+1 < last && l.heap[c+1] < l.heap[c] {
			c++
		}
		if l.heap[i] <= l.heap[c] {
			return
		}
		l.heap[i], l.heap[c] = l.heap[c], l.heap[i]
		i = c
	}
}
