package pipeline

import (
	"slices"
	"sync"
	"sync/atomic"

	"millrace/pipeline/history"
)

// History keeps what became of runs, and up to where triggers are done with: history.Store.
type History interface {
	Add(run history.Run)
	// SaveCursor writes the lowest unfinished sequence and adds marks of what has finished above it; durable when it returns.
	SaveCursor(cursor uint64, marks []history.Mark) error
	LoadCursor() (cursor uint64, marks []history.Mark, err error)
	ParkedRows() ([]history.Parked, error)
	Bury(d history.Dead) error
	Get(id history.RunID) (*history.Run, bool, error)
	List(q history.Query) (list []history.Run, more bool, err error)
}

// Parked keeps rows of runs that wait for long or take long: history.Store.
type Parked interface {
	Park(rows []history.Parked) error
	Unpark(ids []history.RunID) error
}

// before is what was finished when the engine started.
type before struct {
	saved   atomic.Uint64 // the cursor as it was written down last
	lastSeq uint64        // of the historian at the start

	mu    sync.Mutex
	marks map[history.Mark]struct{}
	rows  map[history.RunID]struct{}
	queue map[history.Mark]struct{} // runs in frames that outlived the start
}

// over says that a run has ended, or goes on from a row of its own.
func (b *before) over(id history.RunID) bool {
	if id.Kind == 'v' {
		if id.N < b.saved.Load() {
			return true
		}
		if id.N > b.lastSeq {
			return false
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.rows[id]; ok {
		return true
	}
	_, ok := b.marks[history.Mark{Seq: id.N, Pipeline: id.Pipeline, Node: id.Node}]
	return ok && id.Kind == 'v'
}

// may says that a run may have run before.
func (b *before) may(id history.RunID) bool { return id.Kind == 'v' && id.N <= b.lastSeq }

// settle forgets what was finished before the start, once the cursor has passed it all.
func (b *before) settle(cursor uint64) {
	if cursor <= b.lastSeq {
		return
	}
	b.mu.Lock()
	b.marks, b.queue = nil, nil
	b.mu.Unlock()
}

// Skip says that a trigger is not to be queued: its run has ended, has a row, or is in a frame that outlived the start.
// The follower asks while it reads what it may have read before.
func (e *Engine) Skip(seq uint64, pipeline uint32, trigger uint16) bool {
	if seq > e.before.lastSeq {
		return false
	}
	if e.before.over(history.RunID{Kind: 'v', Pipeline: pipeline, N: seq, Node: trigger}) {
		return true
	}
	e.before.mu.Lock()
	defer e.before.mu.Unlock()
	_, ok := e.before.queue[history.Mark{Seq: seq, Pipeline: pipeline, Node: trigger}]
	return ok
}

// record leaves a row of an ended run, and a dead letter of one that was given up.
func (e *Engine) record(r *run) {
	row := e.row(r)
	if r.dead {
		if err := e.history.Bury(history.Dead{ID: r.id, Version: row.Version, Workspace: r.space, Topic: r.origin.Topic, Value: row.Trigger.Value.AppendJSON(nil),
			Time: r.origin.Time, Scale: r.origin.Scale, Quality: row.Trigger.Quality, Node: row.Trigger.Node, Error: row.Error, Attempts: r.attempt - 1, At: e.now()}); err != nil {
			e.log.Error("a dead letter could not be kept", "run", r.id.String(), "error", err)
		}
	}
	e.history.Add(row)
}

// row is what the history keeps of a run that has ended.
func (e *Engine) row(r *run) history.Run {
	now := e.now()
	row := history.Run{ID: r.id, Status: r.status, Mode: r.mode.String(), Started: r.started, Attempt: r.attempt, Counted: 1, Node: -1, Replay: r.mode == modeReplay,
		Trigger: history.Trigger{Workspace: r.space, Topic: r.origin.Topic, Value: r.trigger.Get("value"), Time: r.origin.Time, Scale: r.origin.Scale, Node: r.id.Node}}
	row.Trigger.Quality = qualityOf(r.origin.Quality)
	if r.started.IsZero() {
		row.Started = r.created // it was stopped before it began
	}
	row.Duration = now.Sub(row.Started)
	if r.fault != nil {
		row.Error = r.fault.Message
	}
	if r.prog == nil {
		row.Error = "the version of its pipeline is gone"
		return row
	}
	row.Version, row.Detail = r.prog.plan.Version, r.prog.plan.Settings.Detail
	row.Trigger.Node = uint16(r.prog.steps[r.start.trigger].Number)
	if r.fault != nil && r.faulty >= 0 {
		row.Node = r.prog.steps[r.faulty].Number
	}
	if len(r.steps) > 0 {
		row.Nodes = make([]history.NodeRun, len(r.steps))
	}
	for i := range r.steps {
		st, n := &r.steps[i], &row.Nodes[i]
		n.Number, n.Status, n.Duration, n.From, n.Attempts = r.prog.steps[i].Number, st.status, st.took, st.from, int(st.failed)
		if st.status == stepSkipped || st.status == stepIdle {
			continue
		}
		if i != r.start.trigger {
			n.In = r.first(i)
		}
		if st.status == stepDone || st.status == stepHandled {
			n.Out = st.out
			n.Attempts++
		}
		if st.fault != nil {
			n.Error, n.Line, n.Column = st.fault.Message, st.fault.Line, st.fault.Column
		}
	}
	for _, l := range r.lines {
		row.Lines = append(row.Lines, history.Line{Number: r.prog.steps[l.step].Number, Level: l.level, Text: l.text, At: l.at})
	}
	return row
}

// qualities are the words of historian.Quality, by number.
var qualities = [...]string{"good", "uncertain", "bad"}

func qualityName(q uint8) string {
	if int(q) < len(qualities) {
		return qualities[q]
	}
	return qualities[len(qualities)-1]
}

// qualityOf is the number of a word; good when it is none.
func qualityOf(name string) uint8 { return uint8(max(0, slices.Index(qualities[:], name))) }
