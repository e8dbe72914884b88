package pipeline

import (
	"context"
	"time"

	"millrace/pipeline/definition"
	"millrace/pipeline/history"
	"millrace/pipeline/node"
	"millrace/pipeline/queue"
	"millrace/pipeline/value"
)

// trial is a dry run: nothing is stored and nothing waits; what would be published is kept.
type trial struct {
	now       time.Time
	published []Published
}

// Published is what a dry run would have published.
type Published struct {
	Node string // its id
	node.Publication
}

func (t *trial) publish(r *run, i int, list []node.Publication) {
	for _, p := range list {
		t.published = append(t.published, Published{r.prog.steps[i].ID, p})
	}
}

// Input is what a dry run, a manual run or an edited replay begins with.
type Input struct {
	Trigger string // id of the trigger node; empty = the first
	Topic   string
	Value   value.Value
	Time    time.Time // zero = now
	Quality string    // empty = good
}

// maxTrial is how long a dry run may take.
const maxTrial = 30 * time.Second

// Test runs a plan in memory, in the caller's goroutine: nodes with an effect say what they would do, publications are
// returned, waits pass at once on the run's own clock, failures are not tried again. The trace is that of a run of full
// detail. The plan need not be deployed.
func (e *Engine) Test(ctx context.Context, p *definition.Plan, in Input) (history.Run, []Published, error) {
	g := newProgram(p, newPipe(p.Number, p.ID))
	var st *start
	for _, t := range p.Triggers {
		if in.Trigger == "" || p.Steps[t].ID == in.Trigger {
			st = g.starts[uint16(p.Steps[t].Number)]
			break
		}
	}
	if st == nil {
		return history.Run{}, nil, refuse("no_trigger", "pipeline %s has no trigger %q", p.ID, in.Trigger)
	}
	now := e.now()
	if in.Time.IsZero() {
		in.Time = now.Truncate(time.Millisecond)
	}
	x := queue.Entry{Kind: queue.Manual, ID: e.fresh.next(now.UnixMilli()), Workspace: p.Workspace, Topic: in.Topic, Time: in.Time.UnixNano(), Scale: scaleOf(in.Time), Quality: qualityOf(in.Quality)}
	r := &run{eng: e, prog: g, pipe: g.pipe, start: st, id: history.RunID{Kind: history.Fresh, Pipeline: p.Number, N: x.ID}, mode: modeTest, space: p.Workspace,
		trigger: triggerValue(&x, in.Value), attempt: 1, created: now, trial: &trial{now: now},
		origin: node.Origin{Topic: in.Topic, Time: x.Time, Scale: x.Scale, Quality: qualityName(x.Quality)}}
	r.execution = executionValue(r)
	ctx, cancel := context.WithTimeoutCause(ctx, maxTrial, &outOfTime{maxTrial})
	defer cancel()
	defer context.AfterFunc(ctx, func() { e.stop(r, context.Cause(ctx)) })()
	e.work(r, e.newScratch(), false)
	row := e.row(r)
	row.Detail = history.Full
	return row, r.trial.published, nil
}

// scaleOf is the precision of a time, as in historian.Sample.
func scaleOf(t time.Time) uint8 {
	switch ns := t.Nanosecond(); {
	case ns%1e9 == 0:
		return 9
	case ns%1e6 == 0:
		return 6
	case ns%1e3 == 0:
		return 3
	}
	return 0
}
