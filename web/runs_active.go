package web

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"millrace/auth"
	"millrace/pipeline"
	"millrace/pipeline/definition"
	"millrace/pipeline/value"
)

// ActiveRun documents a run that has not ended.
type ActiveRun struct {
	ID       string `json:"id" doc:"Name of the run"`
	Pipeline string `json:"pipeline" doc:"Id of the pipeline"`
	Version  uint32 `json:"version" doc:"Version that runs"`
	Status   string `json:"status" enum:"queued,running,waiting,parked" doc:"parked: it waits on disk"`
	Mode     string `json:"mode" doc:"trigger, schedule, webhook, manual or replay"`
	Since    string `json:"since" doc:"When it began, or came"`
	Node     string `json:"node,omitempty" doc:"The node that is under way or waits"`
	Until    string `json:"until,omitempty" doc:"When it goes on"`
	Attempt  int    `json:"attempt" doc:"1, more after a crash"`
}

// ActiveList documents the runs under way.
type ActiveList struct {
	Runs []ActiveRun `json:"runs" doc:"The newest first, at most 1,000. Triggered runs that wait in the queue are counted by the metrics only"`
}

func activeRun(a *pipeline.Active, name string) value.Value {
	v := value.Object(value.Field{Name: "id", Value: value.Text(a.ID.String())}, value.Field{Name: "pipeline", Value: value.Text(name)}, value.Field{Name: "version", Value: value.Int(int64(a.Version))},
		value.Field{Name: "status", Value: value.Text(a.Status)}, value.Field{Name: "mode", Value: value.Text(a.Mode)}, value.Field{Name: "since", Value: value.Text(a.Since.UTC().Format(time.RFC3339Nano))})
	if a.Node != "" {
		v = v.With("node", value.Text(a.Node))
	}
	if !a.Until.IsZero() {
		v = v.With("until", value.Text(a.Until.UTC().Format(time.RFC3339Nano)))
	}
	return v.With("attempt", value.Int(int64(a.Attempt)))
}

func (w *Web) addActive(see, change rule) {
	register(w, route{method: http.MethodGet, path: "/pipelines/{id}/active", id: "list-active-runs", tag: "Runs", rule: see, missing: true, summary: "List runs under way", gives: map[string]any{"application/json": ActiveList{}}},
		func(_ context.Context, _ *caller, in *PipelinePath) (*written, error) {
			number, err := w.pipelineNumber(in.ID)
			if err != nil {
				return nil, err
			}
			items := []value.Value{}
			for _, a := range w.parts.Pipelines.Engine.Active(number, 1000) {
				items = append(items, activeRun(&a, in.ID))
			}
			return answerOf(value.Object(value.Field{Name: "runs", Value: value.List(items...)})), nil
		})
	type gone struct{}
	for _, x := range []struct {
		verb, summary, doc string
		do                 func(uint32)
	}{
		{"pause", "Keep runs from beginning", "Those that come are kept, in their order, until it is resumed or the box starts anew. Manual runs and replays go on.", func(n uint32) { w.parts.Pipelines.Engine.Pause(n) }},
		{"resume", "Let the runs of a paused pipeline begin", "", func(n uint32) { w.parts.Pipelines.Engine.Resume(n) }},
	} {
		register(w, route{method: http.MethodPost, path: "/pipelines/{id}/" + x.verb, id: x.verb + "-pipeline", tag: "Pipelines", rule: change, missing: true, status: http.StatusNoContent, summary: x.summary, doc: x.doc},
			func(_ context.Context, c *caller, in *PipelinePath) (*gone, error) {
				number, err := w.pipelineNumber(in.ID)
				if err == nil {
					x.do(number)
				}
				return nil, w.noted(c, auth.Event{Category: "pipeline", Action: x.verb, ID: in.ID}, err)
			})
	}
	type againIn struct {
		PipelinePath
		Body struct {
			From    string `json:"from,omitempty" doc:"First start: RFC 3339, epoch ms, or relative as -6h; left out: a day ago" maxLength:"64"`
			To      string `json:"to,omitempty" doc:"End, exclusive; left out: now" maxLength:"64"`
			Version string `json:"version,omitempty" doc:"original (default) or current" enum:"original,current"`
		}
	}
	type againOut struct {
		Body struct {
			Runs int `json:"runs" doc:"How many were queued"`
		} `nameHint:"Replayed"`
	}
	register(w, route{method: http.MethodPost, path: "/pipelines/{id}/replay", id: "replay-failed", tag: "Runs", rule: change, missing: true, conflicts: []int{409},
		summary: "Run every failed run of a period once more", doc: "At a bounded rate, in lane low. It answers when all are queued; a call that is given up leaves those queued that were."},
		func(ctx context.Context, c *caller, in *againIn) (*againOut, error) {
			p, err := w.parts.Pipelines.Shelf.Show(in.ID)
			if err != nil {
				return nil, ofPipeline(err)
			}
			from, to, err := w.period(in.Body.From, in.Body.To)
			if err != nil {
				return nil, err
			}
			if from.IsZero() {
				from = w.now().Add(-24 * time.Hour)
			}
			if to.IsZero() {
				to = w.now().Add(time.Second)
			}
			how := pipeline.Replay{}
			if in.Body.Version == "current" {
				if how.Plan = w.parts.Pipelines.Shelf.Plan(p.Number, p.Deployed); how.Plan == nil {
					return nil, ofPipeline(fmt.Errorf("%w: deploy %s first", definition.ErrNotDeployed, in.ID))
				}
			}
			out := &againOut{}
			out.Body.Runs, err = w.parts.Pipelines.Engine.ReplayFailed(ctx, p.Number, from, to, how)
			if err = w.noted(c, auth.Event{Category: "pipeline", Action: "replay", ID: in.ID}, ofPipeline(err)); err != nil {
				return nil, err
			}
			return out, nil
		})
}
