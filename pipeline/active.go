package pipeline

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"millrace/pipeline/history"
)

// Active is a run that has not ended.
type Active struct {
	ID      history.RunID
	Version uint32
	Mode    string
	// Status is queued (not begun), running, waiting (rests without a slot), or parked (waits, with a row that outlives a restart).
	Status  string
	Since   time.Time // when it began, else when it came
	Node    string    // id of a step that is under way or waits
	Until   time.Time // when it goes on; zero unless it waits
	Attempt int
}

// asked are runs that somebody started by hand, by a webhook or as a replay, from when they have their id until they are taken
// from the queue.
type asked struct {
	mu   sync.Mutex
	runs map[history.RunID]*ask
}

type ask struct {
	at      time.Time
	version uint32
	mode    mode
	by      string // who cancelled it; empty = nobody
}

// maxAsked bounds what is known of them; further ones cannot be seen or cancelled before they are taken.
const maxAsked = 10_000

func (a *asked) add(id history.RunID, x ask) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.runs == nil {
		a.runs = make(map[history.RunID]*ask)
	}
	if len(a.runs) < maxAsked {
		a.runs[id] = &x
	}
}

// take forgets a run, which is no longer in the queue, and says who has cancelled it.
func (a *asked) take(id history.RunID) (by string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if x := a.runs[id]; x != nil {
		delete(a.runs, id)
		return x.by
	}
	return ""
}

// cancel has a run end when it is taken; false when it is not known.
func (a *asked) cancel(id history.RunID, by string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	x := a.runs[id]
	if x == nil || x.by != "" {
		return false
	}
	x.by = by
	return true
}

// Active lists the runs of a pipeline that have not ended and are known, newest first, at most limit. Triggered runs that wait in the
// queue are not among them: the queue counts those.
func (e *Engine) Active(pipeline uint32, limit int) []Active {
	var list []Active
	e.asked.mu.Lock()
	for id, x := range e.asked.runs {
		if id.Pipeline == pipeline && x.by == "" {
			list = append(list, Active{ID: id, Version: x.version, Mode: x.mode.String(), Status: "queued", Since: x.at, Attempt: 1})
		}
	}
	e.asked.mu.Unlock()
	e.mu.RLock()
	p := e.pipes[pipeline]
	e.mu.RUnlock()
	if p != nil {
		for _, r := range p.runs() {
			if a, ok := r.standing(); ok {
				list = append(list, a)
			}
		}
	}
	slices.SortFunc(list, func(a, b Active) int {
		if c := b.Since.Compare(a.Since); c != 0 {
			return c
		}
		return cmp.Compare(b.ID.N, a.ID.N)
	})
	return list[:min(len(list), limit)]
}

// ActiveRun is one run that has not ended; false when there is none.
func (e *Engine) ActiveRun(id history.RunID) (Active, bool) {
	for _, a := range e.Active(id.Pipeline, maxAsked+maxParked) {
		if a.ID == id {
			return a, true
		}
	}
	return Active{}, false
}

// standing is how the run stands; false when it has ended.
func (r *run) standing() (Active, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done {
		return Active{}, false
	}
	a := Active{ID: r.id, Version: r.prog.plan.Version, Mode: r.mode.String(), Status: "queued", Since: r.created, Attempt: r.attempt}
	if r.steps == nil {
		return a, true
	}
	a.Status, a.Since = "running", r.started
	for i := range r.steps {
		st := &r.steps[i]
		if st.resting && (a.Until.IsZero() || st.until.Before(a.Until)) {
			a.Until = st.until
			a.Node = r.prog.steps[i].ID
		}
	}
	if r.resting > 0 && r.resting == r.active {
		if a.Status = "waiting"; r.parked != nil {
			a.Status = "parked"
		}
		return a, true
	}
	if i := r.at(); i >= 0 {
		a.Node = r.prog.steps[i].ID
	}
	return a, true
}

// at is the first step that is called now, -1 for none. The lock is held.
func (r *run) at() int {
	for i := range r.steps {
		// A step that is called has left the set of ready ones, and has no status yet.
		if st := &r.steps[i]; st.status == stepIdle && st.pending == 0 && !st.resting && r.ready[i>>6]&(1<<(i&63)) == 0 {
			return i
		}
	}
	return -1
}
