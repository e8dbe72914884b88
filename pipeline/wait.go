package pipeline

import (
	"context"
	"fmt"
	"sync"
	"time"

	"millrace/pipeline/history"
	"millrace/pipeline/node"
)

// parkFrom is from which length on a wait is written down, so that it outlives a restart.
const parkFrom = 30 * time.Second

// alarm calls f at its time, once. index is its place among the others, -1 when it is not there.
type alarm struct {
	at    time.Duration // on the clock of the waits
	f     func()
	index int
}

// waits calls functions when their time has come: one goroutine and one timer for all. The clock does not step with the
// machine's time of day.
type waits struct {
	elapsed func() time.Duration

	mu    sync.Mutex
	heap  []*alarm
	wake  chan struct{}
	until time.Duration // what the goroutine sleeps to
}

func newWaits(elapsed func() time.Duration) *waits {
	return &waits{elapsed: elapsed, wake: make(chan struct{}, 1)}
}

// in calls f after d, in the goroutine of the waits: f must not block.
func (w *waits) in(d time.Duration, f func()) *alarm {
	a := &alarm{at: w.elapsed() + d, f: f}
	w.mu.Lock()
	a.index = len(w.heap)
	w.heap = append(w.heap, a)
	w.up(a.index)
	sooner := a.at < w.until
	w.mu.Unlock()
	if sooner {
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
	return a
}

// drop takes an alarm out; false when it has been or is being called.
func (w *waits) drop(a *alarm) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if a.index < 0 {
		return false
	}
	w.remove(a.index)
	return true
}

// run calls what is due until ctx ends.
func (w *waits) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		now := w.elapsed()
		w.mu.Lock()
		var due func()
		sleep := time.Hour
		if len(w.heap) > 0 {
			if first := w.heap[0]; first.at <= now {
				w.remove(0)
				due = first.f
			} else {
				sleep = first.at - now
			}
		}
		w.until = now + sleep
		w.mu.Unlock()
		if due != nil {
			due()
			continue
		}
		timer.Reset(sleep)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-w.wake:
		}
	}
}

func (w *waits) less(i, j int) bool { return w.heap[i].at < w.heap[j].at }

func (w *waits) swap(i, j int) {
	w.heap[i], w.heap[j] = w.heap[j], w.heap[i]
	w.heap[i].index, w.heap[j].index = i, j
}

func (w *waits) up(i int) {
	for i > 0 {
		p := (i - 1) / 2
		if !w.less(i, p) {
			return
		}
		w.swap(i, p)
		i = p
	}
}

func (w *waits) down(i int) {
	for {
		c := 2*i + 1
		if c >= len(w.heap) {
			return
		}
		if c+1 < len(w.heap) && w.less(c+1, c) {
			c++
		}
		if !w.less(c, i) {
			return
		}
		w.swap(i, c)
		i = c
	}
}

func (w *waits) remove(i int) {
	last := len(w.heap) - 1
	w.swap(i, last)
	w.heap[last].index = -1
	w.heap[last] = nil
	w.heap = w.heap[:last]
	if i < last {
		w.down(i)
		w.up(i)
	}
}

// wait lets step i rest for d without a slot; a longer wait is written down. The lock of r is held, the step is active.
func (e *Engine) wait(r *run, i int, d time.Duration) {
	st := &r.steps[i]
	if r.trial != nil {
		r.trial.now = r.trial.now.Add(d) // a dry run does not wait
		r.active--
		r.ready.add(i)
		return
	}
	if n := e.resting.Add(1); n > int64(e.o.maxWaiting()) {
		e.resting.Add(-1)
		r.active--
		st.status = stepFailed
		r.stop(history.Failed, &node.Failure{Message: fmt.Sprintf("%d runs wait already, which is the most the box keeps", n-1), Permanent: true}, i)
		st.fault = r.fault
		return
	}
	r.resting++
	st.resting = true
	st.until = e.now().Add(d)
	st.alarm = e.waits.in(d, func() { e.woke(r, i) })
	if d >= parkFrom {
		e.park(r)
	}
}

// woke ends the rest of step i.
func (e *Engine) woke(r *run, i int) {
	r.mu.Lock()
	if !r.rose(i) {
		r.mu.Unlock()
		return
	}
	r.ready.add(i)
	e.proceed(r)
}

// limit watches over the pipeline's timeout from now on. The lock is held, or nobody else knows the run.
func (e *Engine) limit(r *run) {
	if r.prog.plan.Settings.Timeout <= 0 || r.trial != nil {
		return
	}
	r.awake = e.waits.elapsed()
	r.alarm(e, r.prog.plan.Settings.Timeout)
}

func (r *run) alarm(e *Engine, d time.Duration) {
	r.limit = e.waits.in(d, func() { e.late(r) })
}

// late ends a run that has been under way for longer than its pipeline allows, waits not counted.
func (e *Engine) late(r *run) {
	most := r.prog.plan.Settings.Timeout
	r.mu.Lock()
	if r.done || r.stopped {
		r.mu.Unlock()
		return
	}
	if r.asleep {
		r.limit = nil // set again when it wakes
		r.mu.Unlock()
		return
	}
	if left := most - r.spent - (e.waits.elapsed() - r.awake); left > 0 {
		r.alarm(e, left)
		r.mu.Unlock()
		return
	}
	r.mu.Unlock()
	e.stop(r, &outOfTime{most})
}

// rest stops the clock of the timeout: everything of the run waits. The lock is held.
func (r *run) rest(now time.Duration) {
	if !r.asleep {
		r.asleep = true
		r.spent += now - r.awake
	}
}

// rose says that step i rested until now. The lock is held.
func (r *run) rose(i int) bool {
	st := &r.steps[i]
	if !st.resting {
		return false
	}
	st.resting, st.alarm = false, nil
	if r.asleep {
		r.asleep, r.awake = false, r.eng.waits.elapsed()
		if most := r.prog.plan.Settings.Timeout; r.limit == nil && most > 0 {
			r.alarm(r.eng, max(most-r.spent, 0))
		}
	}
	r.resting--
	r.active--
	r.eng.resting.Add(-1)
	return true
}

// wakeAll ends every rest of a run that was stopped. The lock is held.
func (r *run) wakeAll() {
	for i := range r.steps {
		if a := r.steps[i].alarm; a != nil {
			r.eng.waits.drop(a)
			r.rose(i)
		}
	}
}
