package pipeline

import (
	"context"
	"time"

	"millrace/pipeline/definition"
	"millrace/pipeline/history"
	"millrace/pipeline/queue"
	"millrace/pipeline/value"
)

// Replay says how a run is run again.
type Replay struct {
	// Plan is the version to run; nil is that of the run.
	Plan *definition.Plan
	// Value is the input instead of the run's; missing keeps it.
	Value value.Value
}

// Replay queues a kept run once more, from its start, with a fresh id, in lane low. Its input is the one that the run had,
// whatever its topic holds by now.
func (e *Engine) Replay(ctx context.Context, id history.RunID, how Replay) (history.RunID, error) {
	r, ok, err := e.history.Get(id)
	if err != nil {
		return history.RunID{}, err
	}
	if !ok {
		return history.RunID{}, refuse("run_unknown", "no run %s is kept: of successful triggered runs at most one a second is", id)
	}
	return e.again(ctx, r, how)
}

func (e *Engine) again(ctx context.Context, r *history.Run, how Replay) (history.RunID, error) {
	p := how.Plan
	if p == nil {
		if p = e.plans.Plan(r.ID.Pipeline, r.Version); p == nil {
			return history.RunID{}, refuse("version_gone", "version %d of the pipeline of run %s is gone", r.Version, r.ID)
		}
	}
	trigger := ""
	for _, t := range p.Triggers {
		if p.Steps[t].Number == int(r.Trigger.Node) {
			trigger = p.Steps[t].ID
		}
	}
	x := queue.Entry{Kind: queue.Replay, Workspace: r.Trigger.Workspace, Topic: r.Trigger.Topic, Time: r.Trigger.Time, Scale: r.Trigger.Scale, Quality: r.Trigger.Quality}
	switch {
	case !how.Value.IsMissing():
		x.Value = how.Value.AppendJSON(nil)
	case r.Trigger.Value == nil:
		return history.RunID{}, refuse("no_input", "of run %s the input is not kept: it is with historyDetail full, and of runs that failed, were cancelled or were started by a person", r.ID)
	default:
		x.Value = r.Trigger.Value.AppendJSON(nil)
	}
	return e.enqueue(ctx, p, trigger, queue.Low, x)
}

// replayRate is how many replays a second one call of ReplayFailed queues.
const replayRate = 50

// ReplayFailed queues every failed run of a pipeline that started in a period again, oldest of each page first, at most
// replayRate a second, and returns how many. It ends early with ctx; what was queued stays.
func (e *Engine) ReplayFailed(ctx context.Context, pipeline uint32, from, to time.Time, how Replay) (n int, err error) {
	q := history.Query{Pipeline: pipeline, Status: []history.Status{history.Failed}, From: from, To: to, Limit: 500}
	pace := time.NewTicker(time.Second / replayRate)
	defer pace.Stop()
	for {
		page, more, err := e.history.List(q)
		if err != nil {
			return n, err
		}
		if len(page) == 0 {
			return n, nil
		}
		last := page[len(page)-1]
		for i := len(page) - 1; i >= 0; i-- {
			if page[i].Replay {
				continue // a replay that failed is for a person to look at
			}
			r, ok, err := e.history.Get(page[i].ID)
			if err != nil {
				return n, err
			}
			if !ok {
				continue
			}
			select {
			case <-ctx.Done():
				return n, ctx.Err()
			case <-pace.C:
			}
			if _, err := e.again(ctx, r, how); err != nil {
				return n, err
			}
			n++
		}
		if !more {
			return n, nil
		}
		q.After = history.After{Started: last.Started, ID: last.ID}
	}
}
