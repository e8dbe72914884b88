package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"millrace/pipeline/definition"
	"millrace/pipeline/history"
	"millrace/pipeline/node"
	"millrace/pipeline/queue"
	"millrace/pipeline/script"
	"millrace/pipeline/value"
	"millrace/uns"
)

// flight is a frame that the queue has handed out; the last of its runs to end acknowledges it.
type flight struct {
	frame *queue.Frame
	left  atomic.Int32
	runs  []*run // to promote those that take long
	taken time.Time
}

// read takes frames of one lane until ctx ends or the queue is closed.
func (e *Engine) read(ctx context.Context, lane queue.Lane) error {
	for {
		if err := e.lanes.room(ctx, lane); err != nil {
			return nil
		}
		f, err := e.queue.Take(ctx, lane)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("pipeline: take from lane %d: %w", lane, err)
		}
		e.metrics.waited[lane].Observe(max(0, e.now().Sub(f.Created).Seconds()))
		e.admit(ctx, f)
	}
}

// admit makes runs of a frame and queues them in the order of the frame.
func (e *Engine) admit(ctx context.Context, f *queue.Frame) {
	fl := &flight{frame: f, taken: e.now()}
	var gone []*run
	for i := range f.Entries {
		x := &f.Entries[i]
		runs := e.runsOf(f.Lane, x, f.Suspect)
		for _, r := range runs {
			r.flight = fl
			if r.prog == nil {
				gone = append(gone, r)
			} else {
				fl.runs = append(fl.runs, r)
			}
		}
	}
	if len(fl.runs)+len(gone) == 0 {
		f.Ack()
		return
	}
	fl.left.Store(int32(len(fl.runs) + len(gone)))
	if !e.flights.add(fl) {
		return // its runs are under way
	}
	for _, r := range gone {
		e.ended(r)
	}
	if f.Suspect || slices.ContainsFunc(fl.runs, func(r *run) bool { return r.suspect }) {
		e.try(ctx, fl.runs)
		return
	}
	e.begin(fl.runs)
}

// begin queues runs that were admitted, in their order. Each has its mailbox.
func (e *Engine) begin(runs []*run) {
	var items []item
	count := 0
	lane := queue.Normal
	flush := func() {
		if count > 0 {
			e.lanes.begin(lane, items, count)
			items, count = nil, 0
		}
	}
	for _, r := range runs {
		if r.pipe.enter(r) {
			continue
		}
		queued := r.box != nil && r.box.put(r)
		if r.lane != lane && count > 0 {
			flush()
		}
		lane = r.lane
		count++
		if r.box == nil {
			items = append(items, item{run: r})
		} else if queued {
			items = append(items, item{box: r.box})
		}
	}
	flush()
}

// assign gives a run of an ordered pipeline its mailbox, before anybody else sees the run.
func (e *Engine) assign(r *run) {
	ordered, key, fault := r.prog.order(e, r)
	if fault != nil {
		r.stop(history.Failed, fault, r.start.trigger)
	}
	if ordered {
		r.pipe.assign(r, key)
	}
}

// runsOf makes the runs of one entry, without those that are known to be finished.
func (e *Engine) runsOf(lane queue.Lane, x *queue.Entry, suspect bool) []*run {
	var input, trigger value.Value
	var runs []*run
	for _, ref := range x.Refs {
		id := runID(x, ref)
		if e.before.over(id) {
			continue
		}
		if trigger.IsMissing() {
			var err error
			if input, err = value.Parse(x.Value); err != nil {
				input = value.Text(string(x.Value))
			}
			trigger = triggerValue(x, input)
		}
		r := &run{eng: e, id: id, lane: lane, mode: modeOf(x.Kind), space: x.Workspace, trigger: trigger, hops: x.Hops,
			suspect: suspect || e.before.may(id), created: e.now(), attempt: 1,
			origin: node.Origin{Topic: x.Topic, Seq: x.Seq, Time: x.Time, Scale: x.Scale, Quality: qualityName(x.Quality)}}
		if r.suspect {
			if n := e.attempts.before(id); n > 0 {
				r.attempt, r.solo = n+1, make(chan struct{})
			}
		}
		e.open(id)
		runs = append(runs, r)
		p, g := e.program(ref.Pipeline, ref.Version)
		if r.pipe = p; g == nil {
			continue // deleted since
		}
		if g.starts[ref.Node] == nil {
			e.log.Error("a run cannot start: its version has no such trigger", "pipeline", p.id, "run", id.String(), "version", ref.Version, "trigger", ref.Node)
			continue
		}
		r.prog, r.start = g, g.starts[ref.Node]
		r.execution = executionValue(r)
		e.assign(r)
		if by := e.asked.take(id); by != "" {
			cause := &cancelled{by}
			r.stop(history.Cancelled, &node.Failure{Message: cause.Error(), Permanent: true, Err: cause}, -1)
		}
	}
	return runs
}

// runID is the name of a run of an entry.
func runID(x *queue.Entry, ref queue.Ref) history.RunID {
	switch x.Kind {
	case queue.Value:
		return history.RunID{Kind: 'v', Pipeline: ref.Pipeline, N: x.Seq, Node: ref.Node}
	case queue.Schedule:
		return history.RunID{Kind: 's', Pipeline: ref.Pipeline, N: x.ID, Node: ref.Node}
	}
	return history.RunID{Kind: 'x', Pipeline: ref.Pipeline, N: x.ID}
}

func modeOf(kind uint8) mode {
	switch kind {
	case queue.Schedule:
		return modeSchedule
	case queue.Webhook:
		return modeWebhook
	case queue.Manual:
		return modeManual
	case queue.Replay:
		return modeReplay
	}
	return modeTrigger
}

// triggerValue is $trigger.
func triggerValue(x *queue.Entry, input value.Value) value.Value {
	var at [40]byte
	return value.Object(
		value.Field{Name: "topic", Value: value.Text(x.Topic)},
		value.Field{Name: "value", Value: input},
		value.Field{Name: "timestamp", Value: value.Text(string(uns.AppendTime(at[:0], x.Time, x.Scale)))},
		value.Field{Name: "quality", Value: value.Text(qualityName(x.Quality))})
}

// executionValue is $execution.
func executionValue(r *run) value.Value {
	return value.Object(
		value.Field{Name: "id", Value: value.Text(r.id.String())},
		value.Field{Name: "key", Value: value.Text(r.id.String())},
		value.Field{Name: "pipeline", Value: value.Text(r.prog.plan.ID)},
		value.Field{Name: "version", Value: value.Int(int64(r.prog.plan.Version))},
		value.Field{Name: "attempt", Value: value.Int(int64(r.attempt))},
		value.Field{Name: "mode", Value: value.Text(r.mode.String())})
}

// order says whether runs of the program are ordered, and by which key.
func (g *program) order(e *Engine, r *run) (ordered bool, key string, fault *node.Failure) {
	switch {
	case g.plan.Settings.Order == definition.OrderParallel:
		return false, "", nil
	case g.plan.Settings.Order == definition.OrderRuns || g.plan.Settings.Key == nil:
		return true, "", nil
	}
	v, err := g.plan.Settings.Key.Eval(context.Background(), &script.Scope{Trigger: r.trigger, Input: []value.Value{r.trigger}, Execution: r.execution, Vars: emptyObject})
	if err != nil {
		var at *script.Error
		f := &node.Failure{Message: "settings.orderKey: " + err.Error(), Permanent: true, Err: err}
		if errors.As(err, &at) {
			f.Line, f.Column = at.Line, at.Column
		}
		return true, "", f
	}
	return true, v.String(), nil
}

// emptyObject is {}.
var emptyObject = value.Object()

// ended counts a run as finished: for its frame, and for the cursor.
func (e *Engine) ended(r *run) {
	if r.suspect {
		e.attempts.ended(r.id)
	}
	if r.solo != nil {
		close(r.solo)
	}
	e.close(r.id)
	if fl := r.flight; fl != nil && fl.left.Add(-1) == 0 {
		e.flights.done(fl)
		fl.frame.Ack()
	}
}
