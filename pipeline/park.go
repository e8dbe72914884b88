package pipeline

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"millrace/pipeline/history"
	"millrace/pipeline/node"
	"millrace/pipeline/queue"
	"millrace/pipeline/value"
)

// parked says that a run has a row of its own, or will have.
type parked struct {
	kept bool // the row is durable; guarded by parking
	over bool // the run ended before it was
}

// state is a run as its row keeps it: what its trigger was, and what its steps have handed on.
type state struct {
	Lane      queue.Lane  `json:"lane"`
	Mode      mode        `json:"mode"`
	Version   uint32      `json:"version"`
	Start     uint16      `json:"start"`
	Workspace string      `json:"workspace"`
	Topic     string      `json:"topic"`
	Seq       uint64      `json:"seq,omitempty"`
	Time      int64       `json:"time"`
	Scale     uint8       `json:"scale"`
	Quality   string      `json:"quality"`
	Trigger   value.Value `json:"trigger"`
	Hops      uint8       `json:"hops,omitempty"`
	Attempt   int         `json:"attempt"`
	Created   time.Time   `json:"created"`
	Started   time.Time   `json:"started,omitzero"`
	Handled   int         `json:"handled,omitempty"`
	Executed  int         `json:"executed,omitempty"`
	Steps     []stepRow   `json:"steps,omitempty"`
}

// stepRow is a step that has begun.
type stepRow struct {
	Step    int           `json:"step"`
	Status  uint8         `json:"status"`
	Port    int           `json:"port"`
	Also    []int         `json:"also,omitempty"`
	Failed  uint16        `json:"failed,omitempty"`
	Resumed bool          `json:"resumed,omitempty"`
	Out     value.Value   `json:"out"`
	Took    time.Duration `json:"took"`
	Until   time.Time     `json:"until,omitzero"` // it rests until then
}

// state writes the run down as it stands. The lock is held.
func (r *run) state() ([]byte, time.Time) {
	s := state{Lane: r.lane, Mode: r.mode, Version: r.prog.plan.Version, Start: uint16(r.prog.steps[r.start.trigger].Number), Workspace: r.space,
		Topic: r.origin.Topic, Seq: r.origin.Seq, Time: r.origin.Time, Scale: r.origin.Scale, Quality: r.origin.Quality, Trigger: r.trigger,
		Hops: r.hops, Attempt: r.attempt, Created: r.created, Started: r.started, Handled: r.handled, Executed: r.executed}
	due := r.created
	for i := range r.steps {
		st := &r.steps[i]
		if i == r.start.trigger || st.status == stepSkipped || st.status == stepIdle && st.failed == 0 && !st.resting {
			continue
		}
		row := stepRow{Step: i, Status: st.status, Port: st.port, Also: st.also, Failed: st.failed, Resumed: st.resumed, Out: st.out, Took: st.took}
		if st.resting {
			row.Until = st.until
			if due = st.until; due.IsZero() {
				due = r.created
			}
		}
		s.Steps = append(s.Steps, row)
	}
	b, err := json.Marshal(s)
	if err != nil { // every field is ours and can be written
		panic(fmt.Sprintf("pipeline: state of a run: %v", err))
	}
	return b, due
}

// restore makes a run of its row.
func (e *Engine) restore(id history.RunID, row []byte) (*run, error) {
	var s state
	if err := json.Unmarshal(row, &s); err != nil {
		return nil, fmt.Errorf("its row cannot be read: %w", err)
	}
	p, g := e.program(id.Pipeline, s.Version)
	if g == nil || g.starts[s.Start] == nil {
		return nil, fmt.Errorf("version %d of its pipeline is gone", s.Version)
	}
	r := &run{eng: e, prog: g, pipe: p, start: g.starts[s.Start], id: id, lane: s.Lane, mode: s.Mode, space: s.Workspace, trigger: s.Trigger, hops: s.Hops,
		attempt: s.Attempt, suspect: true, created: s.Created, parked: &parked{kept: true},
		origin: node.Origin{Topic: s.Topic, Seq: s.Seq, Time: s.Time, Scale: s.Scale, Quality: s.Quality}}
	r.execution = executionValue(r)
	if s.Started.IsZero() {
		return r, nil
	}
	r.started, r.handled, r.executed = s.Started, s.Handled, s.Executed
	r.prepare()
	slices.SortFunc(s.Steps, func(a, b stepRow) int { return a.Step - b.Step })
	for _, row := range s.Steps {
		if row.Step >= len(r.steps) {
			return nil, fmt.Errorf("its row has a step %d, the plan has %d", row.Step, len(r.steps))
		}
		st := &r.steps[row.Step]
		st.failed, st.resumed, st.took = row.Failed, row.Resumed, row.Took
		switch {
		case row.Status == stepDone || row.Status == stepHandled:
			r.ready.drop(row.Step)
			st.status, st.out, st.also = row.Status, row.Out, row.Also
			r.leave(row.Step, row.Port)
		case !row.Until.IsZero():
			r.ready.drop(row.Step)
			st.until, st.resting = row.Until, true
			r.active++
			r.resting++
		}
	}
	return r, nil
}

// rearm puts the runs of the rows back where they were, in the order of their numbers.
func (e *Engine) rearm(rows []history.Parked) {
	slices.SortFunc(rows, func(a, b history.Parked) int {
		if a.ID.N < b.ID.N {
			return -1
		} else if a.ID.N > b.ID.N {
			return 1
		}
		return int(a.ID.Node) - int(b.ID.Node)
	})
	for _, row := range rows {
		r, err := e.restore(row.ID, row.State)
		if err != nil {
			e.log.Error("a parked run cannot go on and is given up", "run", row.ID.String(), "error", err)
			e.parking.gone(row.ID)
			continue
		}
		e.parking.known(r)
		r.hasRow.Store(true)
		r.pipe.track(r)
		e.assign(r)
		if r.steps == nil {
			e.begin([]*run{r})
			continue
		}
		if r.box != nil {
			r.box.occupy(r)
		}
		r.mu.Lock()
		e.limit(r)
		if r.asleep = r.resting > 0 && r.ready.empty(); r.asleep {
			r.awake = 0
		}
		for i := range r.steps {
			if st := &r.steps[i]; st.resting {
				e.resting.Add(1)
				st.alarm = e.waits.in(max(0, st.until.Sub(e.now())), func() { e.woke(r, i) })
			}
		}
		e.proceed(r)
	}
}

// endedRow is a parked run that has ended and whose row can go.
type endedRow struct{ id history.RunID }

// parking writes the rows of parked runs, many in one commit. A run counts as finished for its frame and for the cursor
// when its row is durable.
type parking struct {
	eng  *Engine
	rows Parked

	mu    sync.Mutex
	queue []parkCall
	runs  map[history.RunID]*parked
	ended []endedRow
	wake  chan struct{}
}

type parkCall struct {
	run *run
	row history.Parked
}

// park has the state of r written down. The lock of r is held.
func (e *Engine) park(r *run) {
	if r.mode == modeTest || r.dropped {
		return
	}
	if r.parked == nil {
		p := &e.parking
		p.mu.Lock()
		full := len(p.runs) >= maxParked
		p.mu.Unlock()
		if full {
			return // it holds its frame
		}
		r.parked = &parked{}
		r.hasRow.Store(true)
	}
	b, due := r.state()
	e.parking.add(parkCall{r, history.Parked{ID: r.id, Due: due, Version: r.prog.plan.Version, State: b}})
}

func (p *parking) add(c parkCall) {
	p.mu.Lock()
	p.queue = append(p.queue, c)
	p.runs[c.run.id] = c.run.parked
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// run writes rows until ctx ends.
func (p *parking) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		}
		p.flush()
	}
}

func (p *parking) flush() {
	for {
		p.mu.Lock()
		calls := p.queue
		p.queue = nil
		p.mu.Unlock()
		if len(calls) == 0 {
			return
		}
		rows := make([]history.Parked, len(calls))
		for i, c := range calls {
			rows[i] = c.row
		}
		if err := p.rows.Park(rows); err != nil {
			p.eng.log.Error("runs could not be parked; they hold their frames", "runs", len(rows), "error", err)
			p.refused(calls)
			continue
		}
		for _, c := range calls {
			p.mu.Lock()
			first := !c.run.parked.kept
			c.run.parked.kept = true
			over := c.run.parked.over
			p.mu.Unlock()
			if first {
				p.eng.ended(c.run)
			}
			if first && over {
				p.gone(c.run.id)
			}
		}
	}
}

// refused takes runs back whose rows could not be written.
func (p *parking) refused(calls []parkCall) {
	for _, c := range calls {
		c.run.mu.Lock()
		p.mu.Lock()
		was := c.run.parked
		if was == nil || was.kept {
			p.mu.Unlock()
			c.run.mu.Unlock()
			continue
		}
		delete(p.runs, c.run.id)
		over := was.over
		p.mu.Unlock()
		if !over {
			c.run.parked = nil
		}
		c.run.mu.Unlock()
		if over {
			p.eng.ended(c.run)
		}
	}
}

// over says that a parked run has ended.
func (p *parking) over(r *run, was *parked) {
	p.mu.Lock()
	was.over = true
	kept := was.kept
	p.mu.Unlock()
	if kept {
		p.gone(r.id)
	}
}

// gone has the row of a run deleted after the next save.
func (p *parking) gone(id history.RunID) {
	p.mu.Lock()
	p.ended = append(p.ended, endedRow{id})
	p.mu.Unlock()
}

// known takes in a run whose row was there at the start.
func (p *parking) known(r *run) {
	p.mu.Lock()
	p.runs[r.id] = r.parked
	p.mu.Unlock()
}

// take gives the runs whose rows can go once the cursor is saved.
func (p *parking) take() []endedRow {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.ended
	p.ended = nil
	return list
}

func (p *parking) giveBack(list []endedRow) {
	p.mu.Lock()
	p.ended = append(p.ended, list...)
	p.mu.Unlock()
}

// remove deletes rows.
func (p *parking) remove(list []endedRow) {
	if len(list) == 0 {
		return
	}
	ids := make([]history.RunID, len(list))
	for i, x := range list {
		ids[i] = x.id
	}
	if err := p.rows.Unpark(ids); err != nil {
		p.eng.log.Error("rows of runs that have ended could not be deleted; they are tried again", "error", err)
		p.giveBack(list)
		return
	}
	p.mu.Lock()
	for _, id := range ids {
		delete(p.runs, id)
	}
	p.mu.Unlock()
}

// numbers lists the numbers of parked runs with from <= n < to, in order.
func (p *parking) numbers(kind byte, from, to uint64) []uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []uint64
	for id := range p.runs {
		if id.Kind == kind && id.N >= from && id.N < to {
			list = append(list, id.N)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// len is how many runs have a row.
func (p *parking) len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.runs)
}

// promoteRun parks a run that has begun and goes on for long, or that waits behind one in its mailbox or for its paused
// pipeline.
func (e *Engine) promoteRun(r *run) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done || r.parked != nil || r.stopped || r.steps == nil && r.slot {
		return
	}
	if r.steps == nil && !(r.box != nil && r.box.blocked()) && !r.pipe.isPaused() {
		return // it waits for its turn, which the lanes bound
	}
	if r.steps == nil && r.box != nil && !r.pipe.isPaused() {
		r.uncounted = true
		e.lanes.leave(r.lane, 1)
	}
	e.park(r)
}
