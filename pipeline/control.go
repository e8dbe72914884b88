package pipeline

import (
	"errors"
	"sort"
	"sync"
	"time"

	"millrace/pipeline/history"
	"millrace/pipeline/node"
	"millrace/pipeline/queue"
)

// ErrNoRun: no run of that id is under way.
var ErrNoRun = errors.New("pipeline: no such run is under way")

// Issue is something about a pipeline that somebody should look at.
type Issue struct {
	Pipeline string
	Node     string
	Kind     string // loop
	Text     string
	First    time.Time
	Last     time.Time
	Count    uint64
}

// issues keeps what was found, one for each pipeline, node and kind.
type issues struct {
	mu   sync.Mutex
	list map[[3]string]*Issue
}

// maxIssues bounds what is kept; a box with more has other problems.
const maxIssues = 1000

// note keeps an issue; true when it is new.
func (s *issues) note(x Issue, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := [3]string{x.Pipeline, x.Node, x.Kind}
	if old := s.list[key]; old != nil {
		old.Last, old.Text = now, x.Text
		old.Count++
		return false
	}
	if s.list == nil {
		s.list = make(map[[3]string]*Issue)
	}
	if len(s.list) >= maxIssues {
		return false
	}
	x.First, x.Last, x.Count = now, now, 1
	s.list[key] = &x
	return true
}

// Issues lists what was found since the start, newest first. The slice is the caller's.
func (e *Engine) Issues() []Issue {
	e.issues.mu.Lock()
	defer e.issues.mu.Unlock()
	list := make([]Issue, 0, len(e.issues.list))
	for _, x := range e.issues.list {
		list = append(list, *x)
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Last.After(list[j].Last) })
	return list
}

// looped notes that step i of r was not let publish.
func (e *Engine) looped(r *run, i int) {
	e.metrics.loops.Add(1)
	s := &r.prog.steps[i]
	if e.issues.note(Issue{Pipeline: r.pipe.id, Node: s.ID, Kind: "loop",
		Text: "the pipeline is triggered by what it publishes itself, directly or by others"}, e.now()) {
		e.log.Warn("a loop of pipelines was stopped", "pipeline", r.pipe.id, "node", s.ID)
	}
}

// Loop notes that a value on a topic started no run, because it had been derived from derived values too often.
func (e *Engine) Loop(ref queue.Ref, topic string) {
	e.metrics.loops.Add(1)
	e.mu.RLock()
	p := e.pipes[ref.Pipeline]
	e.mu.RUnlock()
	if p == nil {
		return
	}
	if e.issues.note(Issue{Pipeline: p.id, Kind: "loop", Text: "the pipeline is triggered by what it publishes itself, directly or by others; the last such topic is " + topic}, e.now()) {
		e.log.Warn("a loop of pipelines was stopped", "pipeline", p.id, "topic", topic)
	}
}

// Cancel ends a run that is queued, executes or waits. What it has published stays.
func (e *Engine) Cancel(id history.RunID, by string) error {
	if e.asked.cancel(id, by) {
		return nil
	}
	e.mu.RLock()
	p := e.pipes[id.Pipeline]
	e.mu.RUnlock()
	if p == nil {
		return ErrNoRun
	}
	for _, r := range p.runs() {
		if r.id == id {
			if e.stop(r, &cancelled{by}) {
				return nil
			}
		}
	}
	return ErrNoRun
}

// stop ends a run from outside; false when it has ended.
func (e *Engine) stop(r *run, cause error) bool {
	r.mu.Lock()
	if r.done || r.stopped {
		r.mu.Unlock()
		return false
	}
	status := history.Cancelled
	var late *outOfTime
	if errors.As(cause, &late) {
		status = history.Failed
	}
	r.stop(status, &node.Failure{Message: cause.Error(), Permanent: true, Err: cause}, r.at())
	r.wakeAll()
	begun := r.steps != nil
	r.life.end(cause)
	if !begun {
		r.mu.Unlock()
		return true // it ends when its turn comes
	}
	e.proceed(r)
	return true
}

// Pause keeps runs of a pipeline from beginning; those that come are kept for Resume. Manual runs and replays go on.
func (e *Engine) Pause(number uint32) {
	e.mu.RLock()
	p := e.pipes[number]
	e.mu.RUnlock()
	if p == nil {
		p = e.pipe(number, "")
	}
	p.mu.Lock()
	p.paused = true
	p.mu.Unlock()
}

// Resume lets the runs of a paused pipeline begin, in the order in which they came.
func (e *Engine) Resume(number uint32) {
	e.mu.RLock()
	p := e.pipes[number]
	e.mu.RUnlock()
	if p != nil {
		e.begin(p.unpause())
	}
}

// forgetPlans lets versions go that no longer run and have no run left.
func (e *Engine) forgetPlans() {
	e.mu.RLock()
	pipes := make([]*pipe, 0, len(e.pipes))
	for _, p := range e.pipes {
		pipes = append(pipes, p)
	}
	e.mu.RUnlock()
	running := e.running.Load()
	for _, p := range pipes {
		for _, version := range p.unused((*running)[p.number]) {
			e.plans.Forget(p.number, version)
		}
	}
}
