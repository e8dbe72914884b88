package pipeline

import (
	"time"

	"millrace/pipeline/history"
	"millrace/pipeline/node"
)

// maxExecuted bounds the calls of one run, attempts and resumptions included.
const maxExecuted = 10_000

// work takes a run as far as it goes without waiting for anybody. permit is the right to compute one script.
func (e *Engine) work(r *run, s *scratch, permit bool) {
	r.mu.Lock()
	for r.begun() {
		i := r.ready.lowest()
		if i < 0 || r.active > 0 && !r.prog.parallel() {
			break
		}
		st := &r.prog.steps[i]
		if st.computes && !permit && r.trial == nil {
			if permit = e.lanes.compute(r); !permit {
				break // queued; it comes back with a permit
			}
		}
		r.ready.drop(i)
		r.active++
		if r.executed++; r.executed > maxExecuted {
			r.active--
			r.steps[i].status = stepFailed
			r.stop(history.Failed, &node.Failure{Message: "the run made more than 10,000 calls of nodes", Permanent: true}, i)
			break
		}
		if r.steps[i].failed == 0 && !r.steps[i].resumed {
			r.steps[i].from = time.Since(r.started)
		}
		if st.blocking && r.trial == nil {
			e.io.submit(r, i)
			continue
		}
		if r.prog.parallel() && !r.ready.empty() && r.trial == nil {
			e.lanes.goOn(r) // another worker may take the next branch
		}
		r.mu.Unlock()
		from := time.Now()
		res := s.at(r, i)
		took := time.Since(from)
		r.pipe.spent(took)
		if st.computes && permit {
			e.lanes.computed()
			permit = false
		}
		r.mu.Lock()
		e.settle(r, i, res, took)
	}
	if permit {
		e.lanes.computed()
	}
	e.pause(r)
}

// begun says whether the run may take a step; a run that was cancelled before takes none. The lock is held.
func (r *run) begun() bool {
	if r.done || r.stopped {
		return false
	}
	if r.steps == nil {
		r.started = r.eng.now()
		r.prepare()
		r.eng.limit(r)
	}
	return true
}

// settle takes the answer of step i. The lock is held.
func (e *Engine) settle(r *run, i int, res node.Result, took time.Duration) {
	st := &r.steps[i]
	st.took += took
	if r.stopped {
		r.active--
		if st.status == stepIdle {
			st.status = stepFailed
			if res.Err != nil {
				st.fault = failureOf(res.Err)
			}
		}
		return
	}
	switch {
	case res.Err != nil && !res.Stop:
		e.failed(r, i, failureOf(res.Err))
	case res.Stop:
		r.active--
		st.status, st.port, st.out = stepDone, -1, res.Out
		if res.Err != nil {
			st.status, st.fault = stepFailed, failureOf(res.Err)
			r.stop(history.Failed, st.fault, i)
		} else {
			r.stop(history.Completed, nil, i)
		}
	case res.Wait > 0:
		st.resumed = true
		e.wait(r, i, res.Wait)
	case len(res.Publish) > 0:
		e.publish(r, i, res)
	default:
		r.active--
		e.leave(r, i, res.Port, res)
	}
}

// leave ends step i by a port. The lock is held.
func (e *Engine) leave(r *run, i, port int, res node.Result) {
	st := &r.steps[i]
	st.status, st.out, st.also = stepDone, res.Out, res.Also
	if st.out.IsMissing() {
		st.out = r.first(i)
	}
	r.leave(i, port)
}

// failed takes a failed attempt of step i. The lock is held.
func (e *Engine) failed(r *run, i int, f *node.Failure) {
	if again, more := r.fail(i, f); more {
		r.steps[i].resumed = false
		e.wait(r, i, again)
		return
	}
	r.active--
}

// pause looks at what is left to do when a goroutine has gone as far as it could: the end of the run, or the slot back
// because everything waits. The lock is held and given up.
func (e *Engine) pause(r *run) {
	if r.done || r.steps == nil && !r.stopped {
		r.mu.Unlock()
		return
	}
	if r.active == 0 && (r.stopped || r.ready.empty()) {
		e.finish(r)
		return
	}
	if r.resting > 0 && r.resting == r.active && r.ready.empty() {
		r.rest(e.waits.elapsed())
	}
	if r.slot && r.resting > 0 && r.resting == r.active && (r.ready.empty() || !r.prog.parallel()) {
		r.slot = false
		r.mu.Unlock()
		e.lanes.release(r.lane)
		return
	}
	r.mu.Unlock()
}

// proceed hands a run that can go on to a worker. The lock is held and given up.
func (e *Engine) proceed(r *run) {
	switch {
	case r.done:
		r.mu.Unlock()
	case r.active == 0 && (r.stopped || r.ready.empty()):
		e.finish(r)
	case r.stopped || r.ready.empty():
		r.mu.Unlock()
	case r.slot:
		r.mu.Unlock()
		e.lanes.goOn(r)
	default:
		r.mu.Unlock()
		e.lanes.resume(r)
	}
}

// finish ends a run. The lock is held and given up.
func (e *Engine) finish(r *run) {
	r.done = true
	if !r.stopped {
		r.stopped = true
		r.status = history.Completed
	}
	if r.status == history.Completed && r.handled > 0 {
		r.status = history.CompletedWithErrors
	}
	slot := r.slot
	r.slot = false
	parked, dropped := r.parked, r.dropped
	limit := r.limit
	r.mu.Unlock()
	// From here on nobody else changes the run.
	if limit != nil {
		e.waits.drop(limit)
	}
	if r.trial != nil {
		return
	}
	if slot {
		e.lanes.release(r.lane)
	}
	if dropped {
		return
	}
	e.record(r)
	r.pipe.leave(r)
	if r.box != nil {
		e.pass(r)
	}
	if parked != nil {
		e.parking.over(r, parked)
	} else {
		e.ended(r)
	}
}
