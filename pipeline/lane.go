package pipeline

import (
	"context"
	"sync"

	"millrace/pipeline/queue"
)

// lanesCount is the number of lanes: high, normal, low.
const lanesCount = 3

// item is what a worker takes: a run, or a mailbox with runs in it. Exactly one is set.
type item struct {
	run *run
	box *mailbox
	// permit says that the run may compute one script; whoever takes it owes lanes.computed.
	permit bool
	slot   bool // it comes with a slot
}

// laneQueue is what waits for a slot of one lane.
type laneQueue struct {
	resumed ring[*run] // their wait is over; they go before those that have not begun
	fresh   ring[item]
	free    int // slots that nobody holds
	waiting int // runs taken from the queue that have not begun, in mailboxes, too
}

func (q *laneQueue) has() bool { return q.resumed.len()+q.fresh.len() > 0 }

// lanes decides which run goes next. A slot is held by a run while it executes: from its first step to its end, but not
// while it only waits. Workers take from here; nothing in here blocks but take and room.
type lanes struct {
	slots int

	mu      sync.Mutex
	work    sync.Cond  // there may be something for a worker
	idle    int        // workers that wait for it
	going   ring[*run] // they hold a slot and can go on
	scripts ring[*run] // they hold a slot and have a script to compute
	// computing scripts are no more than cores, so that half the workers are left for runs that are short.
	computing, cores int
	lane             [lanesCount]laneQueue
	turn             *queue.Turn
	roomFor          [lanesCount]chan struct{} // closed and replaced when runs begin
	held             bool                      // no new runs begin: the engine is stopping
	quiet            chan struct{}             // closed when held and nobody has a slot
	closed           bool
}

func newLanes(slots, threshold, cores int) *lanes {
	l := &lanes{slots: slots, cores: cores, turn: queue.NewTurn(threshold), quiet: make(chan struct{})}
	l.work.L = &l.mu
	for i := range l.lane {
		l.lane[i].free = slots
		l.roomFor[i] = make(chan struct{})
	}
	return l
}

// wake lets a worker look for work. The lock is held.
func (l *lanes) wake() {
	if l.idle > 0 {
		l.work.Signal()
	}
}

// goOn queues a run that holds a slot.
func (l *lanes) goOn(r *run) {
	l.mu.Lock()
	l.going.push(r)
	l.wake()
	l.mu.Unlock()
}

// resume queues a run that gave its slot back.
func (l *lanes) resume(r *run) {
	l.mu.Lock()
	l.lane[r.lane].resumed.push(r)
	l.wake()
	l.mu.Unlock()
}

// begin queues runs that have not begun, and mailboxes that have become ready.
func (l *lanes) begin(lane queue.Lane, items []item, runs int) {
	l.mu.Lock()
	q := &l.lane[lane]
	for _, it := range items {
		q.fresh.push(it)
	}
	q.waiting += runs
	l.wake()
	l.mu.Unlock()
}

// take waits for something to do; false when the lanes are closed. A run or mailbox from a lane comes with a slot of it.
func (l *lanes) take() (item, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		if l.closed {
			return item{}, false
		}
		if it, ok := l.next(); ok {
			if l.idle > 0 && l.more() {
				l.work.Signal()
			}
			return it, true
		}
		l.idle++
		l.work.Wait()
		l.idle--
	}
}

func (l *lanes) next() (item, bool) {
	if l.scripts.len() > 0 && l.computing < l.cores {
		l.computing++
		return item{run: l.scripts.pop(), permit: true}, true
	}
	if l.going.len() > 0 {
		return item{run: l.going.pop()}, true
	}
	if l.held {
		return item{}, false
	}
	var ready [lanesCount]bool
	for i := range l.lane {
		ready[i] = l.lane[i].free > 0 && l.lane[i].has()
	}
	lane, ok := l.turn.Next(ready)
	if !ok {
		return item{}, false
	}
	q := &l.lane[lane]
	q.free--
	if q.resumed.len() > 0 {
		return item{run: q.resumed.pop(), slot: true}, true
	}
	it := q.fresh.pop()
	it.slot = true
	if it.run != nil {
		l.began(lane)
	}
	return it, true
}

// more says whether another worker would find something. The lock is held.
func (l *lanes) more() bool {
	if l.going.len() > 0 || l.scripts.len() > 0 && l.computing < l.cores {
		return true
	}
	if l.held {
		return false
	}
	for i := range l.lane {
		if l.lane[i].free > 0 && l.lane[i].has() {
			return true
		}
	}
	return false
}

// began counts a run that waits no longer. The lock is held.
func (l *lanes) began(lane queue.Lane) {
	l.lane[lane].waiting--
	if l.lane[lane].waiting == l.slots {
		close(l.roomFor[lane])
		l.roomFor[lane] = make(chan struct{})
	}
}

// another asks for a slot for the next run of a mailbox that a worker is at.
func (l *lanes) another(lane queue.Lane) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held || l.closed || l.lane[lane].free == 0 {
		return false
	}
	l.lane[lane].free--
	return true
}

// start counts a run of a mailbox that begins.
func (l *lanes) start(lane queue.Lane) {
	l.mu.Lock()
	l.began(lane)
	l.mu.Unlock()
}

// release gives a slot back.
func (l *lanes) release(lane queue.Lane) {
	l.mu.Lock()
	l.lane[lane].free++
	if l.held {
		l.settled()
	} else if l.lane[lane].has() {
		l.wake()
	}
	l.mu.Unlock()
}

// leave counts runs out that will not begin here: cancelled, or promoted to parked rows.
func (l *lanes) leave(lane queue.Lane, runs int) {
	l.mu.Lock()
	for range runs {
		l.began(lane)
	}
	l.mu.Unlock()
}

// compute asks whether a script may be computed now; if not, the run is queued and a worker gets it when it may.
func (l *lanes) compute(r *run) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.computing < l.cores {
		l.computing++
		return true
	}
	l.scripts.push(r)
	return false
}

// computed says that a script has ended.
func (l *lanes) computed() {
	l.mu.Lock()
	l.computing--
	if l.scripts.len() > 0 {
		l.wake()
	}
	l.mu.Unlock()
}

// room waits until a lane may be given more runs: no more wait than twice its slots.
func (l *lanes) room(ctx context.Context, lane queue.Lane) error {
	for {
		l.mu.Lock()
		enough := l.lane[lane].waiting <= 2*l.slots
		again := l.roomFor[lane]
		l.mu.Unlock()
		if enough {
			return ctx.Err()
		}
		select {
		case <-again:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// load is what a lane holds now: runs that hold a slot, and runs that wait for one.
func (l *lanes) load(lane queue.Lane) (executing, waiting int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := &l.lane[lane]
	return l.slots - q.free, q.waiting + q.resumed.len()
}

// hold lets no further run begin; the channel is closed when nobody holds a slot.
func (l *lanes) hold() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = true
	l.settled()
	return l.quiet
}

// settled closes quiet when nobody holds a slot. The lock is held.
func (l *lanes) settled() {
	for i := range l.lane {
		if l.lane[i].free < l.slots {
			return
		}
	}
	select {
	case <-l.quiet:
	default:
		close(l.quiet)
	}
}

// close ends the workers.
func (l *lanes) close() {
	l.mu.Lock()
	l.closed = true
	l.work.Broadcast()
	l.mu.Unlock()
}
