package pipeline

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"time"

	"millrace/uns"
)

// keepEvery is how often the cursor is saved and runs that take long are looked for.
const keepEvery = time.Second

// promoteAfter is how long a run may hold its frame.
const promoteAfter = 2 * time.Second

// flights are the frames that the queue has handed out and whose runs have not all ended.
type flights struct {
	mu   sync.Mutex
	open map[uint64]*flight // by the sequence of the frame
}

// add takes a frame in; false when it is here already, because the queue took it for lost.
func (f *flights) add(fl *flight) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, twice := f.open[fl.frame.Seq]; twice {
		return false
	}
	if f.open == nil {
		f.open = make(map[uint64]*flight)
	}
	f.open[fl.frame.Seq] = fl
	return true
}

func (f *flights) done(fl *flight) {
	f.mu.Lock()
	delete(f.open, fl.frame.Seq)
	f.mu.Unlock()
}

// list gives the frames taken before a time.
func (f *flights) list(before time.Time) []*flight {
	f.mu.Lock()
	defer f.mu.Unlock()
	var list []*flight
	for _, fl := range f.open {
		if fl.taken.Before(before) {
			list = append(list, fl)
		}
	}
	return list
}

// keep saves the cursor, promotes runs that take long and tells the queue which frames are worked on, until ctx ends.
func (e *Engine) keep(ctx context.Context) {
	tick := time.NewTicker(keepEvery)
	defer tick.Stop()
	progress := e.o.ExecutionQueue.Scheduler.AckWait / 3
	told := e.now()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		e.save()
		e.promote()
		if n%10 == 0 {
			e.forgetPlans()
		}
		if now := e.now(); now.Sub(told) >= progress {
			told = now
			for _, fl := range e.flights.list(now) {
				fl.frame.Progress()
			}
		}
	}
}

// save writes the cursor down, lets the historian's log go up to it, and forgets the publish keys of what is finished for
// good.
func (e *Engine) save() {
	next := uint64(1)
	if e.position != nil {
		next = e.position() + 1
	}
	ended := e.parking.take()
	cursor, marks := e.byKind['v'].look(next)
	if cursor == e.before.saved.Load() && len(marks) == 0 && len(ended) == 0 {
		e.sweep(cursor, ended) // an idle box writes nothing
		return
	}
	if err := e.history.SaveCursor(cursor, marks); err != nil {
		if !e.saveFailed.Swap(true) {
			e.log.Error("the cursor of pipelines could not be saved; runs would be made twice after a kill", "error", err)
		}
		e.byKind['v'].again(marks)
		e.parking.giveBack(ended)
		return
	}
	e.saveFailed.Store(false)
	e.before.saved.Store(cursor)
	e.values.Hold(cursor)
	e.sweep(cursor, ended)
}

// sweep takes back what only runs need that have not ended.
func (e *Engine) sweep(cursor uint64, ended []endedRow) {
	if err := e.attempts.sweep(); err != nil {
		e.log.Error("marks of attempts could not be deleted; they are tried again", "error", err)
	}
	e.before.settle(cursor)
	e.forget(cursor, ended)
}

// forget drops publish keys that nobody looks up any more. Those of a run that is parked stay until it has ended.
func (e *Engine) forget(cursor uint64, ended []endedRow) {
	if cursor > e.forgotten {
		e.drop('v', e.forgotten, cursor, e.parking.numbers('v', e.forgotten, cursor))
		e.forgotten = cursor
	}
	e.parking.remove(ended)
	for _, x := range ended {
		if x.id.Kind != 'v' || x.id.N < cursor {
			e.dropRange(x.id.Kind, x.id.N, x.id.N+1)
		}
	}
	// Fresh ids and planned times carry their time, so what is older than a few seconds and has no unfinished run below it
	// has been acknowledged and synced by the queue.
	for _, kind := range []byte{'x', 's'} {
		limit := e.now().Add(-keysFor).UnixMilli()
		if kind == 'x' {
			limit <<= freshShift
		}
		if low := e.byKind[kind].lowest(uint64(max(limit, 0))); low > e.forgottenBy[kind] {
			e.drop(kind, e.forgottenBy[kind], low, e.parking.numbers(kind, e.forgottenBy[kind], low))
			e.forgottenBy[kind] = low
		}
		e.byKind[kind].look(0)
	}
}

// keysFor is how long keys of runs without a sequence are kept at least.
const keysFor = 10 * time.Second

// drop forgets the keys of numbers from <= n < to, but for those kept, which are in order.
func (e *Engine) drop(kind byte, from, to uint64, kept []uint64) {
	for _, k := range kept {
		if k > from {
			e.dropRange(kind, from, k)
		}
		from = k + 1
	}
	if from < to {
		e.dropRange(kind, from, to)
	}
}

func (e *Engine) dropRange(kind byte, from, to uint64) {
	lo := keyAt(kind, from)
	hi := keyAt(kind, to)
	if err := e.values.DropRows(context.Background(), lo, hi); err != nil && !errors.Is(err, context.Canceled) {
		e.log.Error("publish keys of finished runs could not be dropped; they take room until the next start", "error", err)
	}
}

// keyAt is where the rows of publish keys of a number begin.
func keyAt(kind byte, n uint64) []byte {
	return binary.BigEndian.AppendUint64(append([]byte(uns.KeyPrefix), kind), n)
}

// promote gives rows of their own to runs that hold their frame for long.
func (e *Engine) promote() {
	for _, fl := range e.flights.list(e.now().Add(-promoteAfter)) {
		for _, r := range fl.runs {
			e.promoteRun(r)
		}
	}
}

// settleDown lets runs under way end when the engine stops, then takes them off what they do.
func (e *Engine) settleDown() {
	quiet := e.lanes.hold()
	timer := time.NewTimer(e.o.DrainTimeout)
	defer timer.Stop()
	select {
	case <-quiet:
	case <-timer.C:
	}
	e.mu.RLock()
	pipes := make([]*pipe, 0, len(e.pipes))
	for _, p := range e.pipes {
		pipes = append(pipes, p)
	}
	e.mu.RUnlock()
	left := 0
	for _, p := range pipes {
		for _, r := range p.runs() {
			r.mu.Lock()
			if !r.done && !r.stopped {
				r.dropped, r.stopped = true, true
				clear(r.ready)
				r.wakeAll()
				if r.slot {
					left++
				}
				r.life.end(errStopping)
			}
			r.mu.Unlock()
		}
	}
	if left > 0 {
		e.log.Warn("runs did not end before the stop; they begin anew after the next start", "runs", left, "waited", e.o.DrainTimeout)
	}
	e.lanes.close()
}

var errStopping = errors.New("the box stops")
