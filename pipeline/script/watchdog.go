package script

import (
	"context"
	"runtime"
	"runtime/metrics"
	"sync"
	"time"
)

// lookEvery is how often running evaluations are looked at: how much later than its limit one may end.
const lookEvery = 5 * time.Millisecond

// watchdog ends evaluations that run too long, whose run has ended, or that fill the memory. Its goroutine looks while there is
// something to look at; it belongs to the engine and ends with Close.
type watchdog struct {
	memory int64

	mu     sync.Mutex
	active map[*machine]watched
	closed bool
	busy   chan struct{} // 1: somebody has come
	done   chan struct{}
	gone   chan struct{}
}

type watched struct {
	ctx   context.Context
	began time.Time
	limit time.Duration
	heap  uint64 // when it was first looked at; 0 = not yet
}

func newWatchdog(memory int64) *watchdog {
	w := &watchdog{memory: memory, active: map[*machine]watched{}, busy: make(chan struct{}, 1), done: make(chan struct{}), gone: make(chan struct{})}
	go w.run()
	return w
}

func (w *watchdog) enter(m *machine, ctx context.Context, limit time.Duration) {
	w.mu.Lock()
	w.active[m] = watched{ctx: ctx, began: time.Now(), limit: limit}
	first := len(w.active) == 1
	w.mu.Unlock()
	if first {
		select {
		case w.busy <- struct{}{}:
		default:
		}
	}
}

// leave returns when no interrupt for m is on its way any more.
func (w *watchdog) leave(m *machine) {
	w.mu.Lock()
	delete(w.active, m)
	w.mu.Unlock()
}

func (w *watchdog) run() {
	defer close(w.gone)
	tick := time.NewTicker(lookEvery)
	tick.Stop()
	heap := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	for {
		select {
		case <-w.done:
			return
		case <-w.busy:
		}
		tick.Reset(lookEvery)
		for more := true; more; {
			select {
			case <-w.done:
				return
			case <-tick.C:
			}
			metrics.Read(heap)
			var suspect *machine
			if suspect, more = w.look(heap[0].Value.Uint64()); suspect != nil {
				// What nobody holds any more is no growth: only what stays after a collection is.
				runtime.GC()
				metrics.Read(heap)
				w.judge(suspect, heap[0].Value.Uint64())
			}
		}
		tick.Stop()
	}
}

// look interrupts what has to end, and names the one during which the heap has grown by more than it may. more is false when nothing runs.
func (w *watchdog) look(heap uint64) (suspect *machine, more bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	var oldest time.Time
	for m, x := range w.active {
		switch {
		case x.heap == 0:
			x.heap = heap
			w.active[m] = x
		case x.ctx.Err() != nil:
			m.r.Interrupt(why(Cancelled))
		case now.Sub(x.began) >= x.limit:
			m.r.Interrupt(why(Timeout))
		case heap > x.heap+uint64(w.memory) && (suspect == nil || x.began.Before(oldest)):
			suspect, oldest = m, x.began
		}
	}
	return suspect, len(w.active) > 0
}

// judge interrupts a suspect if the heap is too large still; else what there is now is where its growth begins.
func (w *watchdog) judge(m *machine, heap uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	x, ok := w.active[m]
	switch {
	case !ok:
	case heap > x.heap+uint64(w.memory):
		m.r.Interrupt(why(Memory))
	default:
		x.heap = max(x.heap, heap)
		w.active[m] = x
	}
}

func (w *watchdog) close() {
	w.mu.Lock()
	if !w.closed {
		w.closed = true
		close(w.done)
	}
	w.mu.Unlock()
	<-w.gone
}
