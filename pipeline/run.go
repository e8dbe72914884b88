package pipeline

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"millrace/pipeline/definition"
	"millrace/pipeline/history"
	"millrace/pipeline/node"
	"millrace/pipeline/queue"
	"millrace/pipeline/value"
)

// What became of a step of a run.
const (
	stepIdle    uint8 = iota // not reached
	stepDone                 // left by a port, or its branch ended
	stepFailed               // the run failed here
	stepHandled              // failed, and its settings said to go on
	stepSkipped              // nothing came
)

// stepState is a step in one run.
type stepState struct {
	pending uint16 // edges into it that are not decided
	failed  uint16 // attempts
	status  uint8
	resumed bool // a Wait of it is over
	port    int
	also    []int // further ports
	out     value.Value
	fault   *node.Failure
	took    time.Duration
	from    time.Duration // since the run started
	alarm   *alarm        // while it rests
	until   time.Time
	resting bool
}

// run is one execution of a pipeline. Its mutex guards what is below it; what is above does not change once it is queued.
type run struct {
	eng     *Engine
	prog    *program
	pipe    *pipe
	start   *start
	id      history.RunID
	lane    queue.Lane
	mode    mode
	flight  *flight  // the frame it came in; nil for none
	box     *mailbox // of an ordered pipeline
	origin  node.Origin
	space   string // workspace
	trigger value.Value
	hops    uint8
	attempt int
	// suspect says that this run may have run before, so that its publish keys are looked up.
	suspect bool
	created time.Time
	trial   *trial // of a dry run; nil otherwise

	// life is what nodes see; it ends when the run is cancelled or out of time, and with the engine.
	life life

	hasRow atomic.Bool   // parked
	solo   chan struct{} // closed when it has ended or is parked; nil unless somebody waits
	limit  *alarm        // the pipeline's timeout

	mu      sync.Mutex
	started time.Time
	// spent is for how long the run was under way, up to awake; asleep says that everything of it waits.
	spent, awake time.Duration
	asleep       bool
	steps        []stepState
	ready        set
	active       int // steps under way: called, waiting, publishing
	resting      int // of these, those that wait
	executed     int
	handled      int // failures that the run went on after
	slot         bool
	uncounted    bool // it no longer counts as waiting for its lane
	passed       bool // the next run of the mailbox may begin
	stopped      bool // no further step is called
	done         bool
	dead         bool    // it goes to the dead letters
	dropped      bool    // the engine stopped under it: it begins anew after the next start
	parked       *parked // it has a row of its own and counts as finished for its frame
	status       history.Status
	fault        *node.Failure
	faulty       int // the step that failed
	lines        []logLine
	execution    value.Value
}

// mode is what started a run.
type mode uint8

const (
	modeTrigger mode = iota
	modeSchedule
	modeWebhook
	modeManual
	modeReplay
	modeTest
)

var modeNames = [...]string{"trigger", "schedule", "webhook", "manual", "replay", "test"}

func (m mode) String() string { return modeNames[m] }

// logLine is what a node printed.
type logLine struct {
	step        int
	level, text string
	at          time.Duration
}

// maxLines and maxLineBytes bound what one run may print.
const (
	maxLines     = 200
	maxLineBytes = 4 << 10
)

// errors a run is cancelled with.
type cancelled struct{ by string }

func (c *cancelled) Error() string { return "cancelled by " + c.by }

// outOfTime ends a run that took longer than its pipeline allows.
type outOfTime struct{ after time.Duration }

func (o *outOfTime) Error() string {
	return "the pipeline's timeout of " + o.after.String() + " is over"
}

// prepare sets the run to where its trigger has just handed on. The lock is held, or nobody else knows the run.
func (r *run) prepare() {
	g := r.prog
	r.steps = make([]stepState, len(g.steps))
	r.ready = append(set(nil), r.start.ready...)
	for i := range r.steps {
		r.steps[i].pending = r.start.pending[i]
		if r.start.dead[i] {
			r.steps[i].status = stepSkipped
		}
	}
	t := &r.steps[r.start.trigger]
	t.status, t.out = stepDone, r.trigger
}

// live says whether an edge brought something.
func (r *run) live(e edge) bool {
	s := &r.steps[e.from]
	return (s.status == stepDone || s.status == stepHandled) && (s.port == e.port || slices.Contains(s.also, e.port))
}

// input gathers what reached step i. The lock is held.
func (r *run) input(i int, into []value.Value) []value.Value {
	for _, e := range r.prog.steps[i].in {
		if r.live(e) {
			into = append(into, r.steps[e.from].out)
		}
	}
	return into
}

// output is what $node sees of a step.
func (r *run) output(name string) value.Value {
	i, ok := r.prog.names[name]
	if !ok {
		return value.Value{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := &r.steps[i]; s.status == stepDone || s.status == stepHandled {
		return s.out
	}
	return value.Value{}
}

// leave decides every edge out of step i, which was left by port; -1 by none. Steps that nothing can reach any more are
// skipped, and so on. The lock is held.
func (r *run) leave(i, port int) {
	s := &r.prog.steps[i]
	r.steps[i].port = port
	for _, next := range s.Out {
		for _, to := range next {
			r.decide(to)
		}
	}
	for _, to := range s.Step.Error {
		r.decide(to)
	}
}

// decide counts one edge into step i as decided.
func (r *run) decide(i int) {
	st := &r.steps[i]
	if st.pending--; st.pending > 0 || st.status != stepIdle {
		return
	}
	for _, e := range r.prog.steps[i].in {
		if r.live(e) {
			r.ready.add(i)
			return
		}
	}
	st.status = stepSkipped
	r.leave(i, -1)
}

// fail takes a failed attempt of step i: another attempt, the error port, on with the input, or the end of the run. It
// returns how long to wait before the next attempt, and whether there is one. The lock is held.
func (r *run) fail(i int, f *node.Failure) (again time.Duration, more bool) {
	s, st := &r.prog.steps[i], &r.steps[i]
	st.failed++
	st.fault = f
	if r.stopped {
		return 0, false
	}
	if int(st.failed) <= s.retry.count && !f.Permanent && r.trial == nil {
		return s.retry.after(int(st.failed), r.eng.random()), true
	}
	switch s.Settings.OnError {
	case definition.ErrorOutput:
		r.handled++
		st.status, st.out = stepHandled, r.failed(i, f)
		r.leave(i, errorPort)
	case definition.ErrorContinues:
		r.handled++
		st.status, st.out = stepHandled, r.first(i)
		r.leave(i, 0)
	default:
		st.status = stepFailed
		r.stop(history.Failed, f, i)
	}
	return 0, false
}

// first is the first input of step i, null when there is none. The lock is held.
func (r *run) first(i int) value.Value {
	for _, e := range r.prog.steps[i].in {
		if r.live(e) {
			return r.steps[e.from].out
		}
	}
	return value.Null()
}

// failed is what leaves by the error port. The lock is held.
func (r *run) failed(i int, f *node.Failure) value.Value {
	return value.Object(
		value.Field{Name: "error", Value: value.Object(
			value.Field{Name: "message", Value: value.Text(f.Message)},
			value.Field{Name: "line", Value: value.Int(int64(f.Line))},
			value.Field{Name: "column", Value: value.Int(int64(f.Column))},
			value.Field{Name: "node", Value: value.Text(r.prog.steps[i].Name)})},
		value.Field{Name: "input", Value: r.first(i)})
}

// stop calls no further step. The first reason is the run's. The lock is held.
func (r *run) stop(status history.Status, f *node.Failure, step int) {
	if r.stopped {
		return
	}
	r.stopped, r.status, r.fault, r.faulty = true, status, f, step
	clear(r.ready)
}

// log keeps a line of step i in the trace.
func (r *run) log(i int, level, text string) {
	if len(text) > maxLineBytes {
		text = text[:maxLineBytes]
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.lines) < maxLines {
		r.lines = append(r.lines, logLine{i, level, text, r.eng.now().Sub(r.started)})
	}
}
