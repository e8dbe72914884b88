package web

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"millrace/auth"
	"millrace/pipeline"
	"millrace/pipeline/definition"
	"millrace/pipeline/history"
	"millrace/pipeline/value"
)

// StartRequest documents the body of a manual run.
type StartRequest struct {
	Trigger string `json:"trigger,omitempty" doc:"Id of the trigger to begin with; left out: the first"`
	Value   any    `json:"value,omitempty" doc:"What $trigger.value is; left out: the sample of the trigger, or null"`
}

// ReplayRequest documents the body of a replay.
type ReplayRequest struct {
	Version string `json:"version,omitempty" doc:"original (default), current, or a number"`
	Value   any    `json:"value,omitempty" doc:"Instead of the value that started the run"`
}

// RunStarted documents the answer of what queues a run.
type RunStarted struct {
	Run string `json:"run" doc:"Id of the run"`
}

func (w *Web) addStarts() {
	change := rule{role: auth.RoleDesigner}
	started := map[string]any{"application/json": RunStarted{}}
	type startIn struct {
		PipelinePath
		RawBody []byte `contentType:"application/json"`
	}
	register(w, route{method: http.MethodPost, path: "/pipelines/{id}/run", id: "run-pipeline", tag: "Runs", rule: change, missing: true, optional: true, conflicts: []int{409},
		summary: "Start a run by hand", doc: "Of the deployed version; it is queued when this answers.", takes: map[string]any{"application/json": StartRequest{}}, gives: started},
		func(ctx context.Context, c *caller, in *startIn) (*written, error) {
			a, _, err := askedFor(in.RawBody)
			if err != nil {
				return nil, err
			}
			p, err := w.parts.Pipelines.Shelf.Show(in.ID)
			if err == nil && p.Deployed == 0 {
				err = fmt.Errorf("%w: deploy %s first", definition.ErrNotDeployed, in.ID)
			}
			if err != nil {
				return nil, ofPipeline(err)
			}
			plan := w.parts.Pipelines.Shelf.Plan(p.Number, p.Deployed)
			if plan == nil {
				return nil, ofPipeline(fmt.Errorf("%w: version %d of %s no longer compiles", definition.ErrNotDeployed, p.Deployed, in.ID))
			}
			ctx, cancel := context.WithTimeout(ctx, writeWait)
			defer cancel()
			id, err := w.parts.Pipelines.Engine.Start(ctx, plan, a.Trigger, a.Value)
			if err = w.noted(c, auth.Event{Category: "pipeline", Action: "run", ID: in.ID}, ofPipeline(err)); err != nil {
				return nil, err
			}
			return answerOf(value.Object(value.Field{Name: "run", Value: value.Text(id.String())})), nil
		})
	type replayIn struct {
		RunPath
		RawBody []byte `contentType:"application/json"`
	}
	register(w, route{method: http.MethodPost, path: "/runs/{id}/replay", id: "replay-run", tag: "Runs", rule: change, missing: true, optional: true, conflicts: []int{409},
		summary: "Run a kept run once more", doc: "From its start, with the value that started it or the one sent along, on the version it ran on or another. It gets an id of its own, runs in lane low and counts as a replay.",
		takes: map[string]any{"application/json": ReplayRequest{}}, gives: started},
		func(ctx context.Context, c *caller, in *replayIn) (*written, error) {
			r, name, err := w.findRun(in.ID)
			if err != nil {
				return nil, err
			}
			how, err := w.replayOf(in.RawBody, r.ID.Pipeline, name)
			if err != nil {
				return nil, err
			}
			ctx, cancel := context.WithTimeout(ctx, writeWait)
			defer cancel()
			id, err := w.parts.Pipelines.Engine.Replay(ctx, r.ID, how)
			if err = w.noted(c, auth.Event{Category: "pipeline", Action: "replay", ID: in.ID}, ofPipeline(err)); err != nil {
				return nil, err
			}
			return answerOf(value.Object(value.Field{Name: "run", Value: value.Text(id.String())})), nil
		})
	type gone struct{}
	register(w, route{method: http.MethodPost, path: "/runs/{id}/cancel", id: "cancel-run", tag: "Runs", rule: change, missing: true, status: http.StatusNoContent, summary: "Cancel a run", doc: "One that waits or executes. What it has published stays."},
		func(_ context.Context, c *caller, in *RunPath) (*gone, error) {
			err := error(pipeline.ErrNoRun)
			if id, ok := history.ParseRunID(in.ID); ok {
				err = w.parts.Pipelines.Engine.Cancel(id, c.actor().Name)
			}
			return nil, w.noted(c, auth.Event{Category: "pipeline", Action: "cancel", ID: in.ID}, ofPipeline(err))
		})
}

// replayOf reads how a run is to be run again.
func (w *Web) replayOf(text []byte, number uint32, name string) (how pipeline.Replay, err error) {
	if len(text) == 0 {
		return how, nil
	}
	if err := plainJSON(text); err != nil {
		return how, problem(http.StatusBadRequest, "malformed", "the body cannot be read: "+jsonFault(err), `send for example {"version":"current"}`)
	}
	var body struct {
		Version json.RawMessage `json:"version"`
		Value   json.RawMessage `json:"value"`
	}
	d := json.NewDecoder(bytesReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&body); err != nil {
		return how, invalid("", "the body is not what this call takes: "+err.Error(), `send for example {"version":"current"}`)
	}
	if len(body.Value) > 0 {
		if how.Value, err = value.Parse(body.Value); err != nil {
			return how, problem(http.StatusBadRequest, "malformed", "the value cannot be read: "+err.Error(), "")
		}
	}
	version := uint32(0)
	switch word := string(bytes.Trim(body.Version, `"`)); word {
	case "", "null", "original":
		return how, nil
	case "current":
		p, err := w.parts.Pipelines.Shelf.Show(name)
		if err != nil {
			return how, ofPipeline(err)
		}
		version = p.Deployed
	default:
		n, err := strconv.ParseUint(word, 10, 32)
		if err != nil {
			return how, invalid("version", fmt.Sprintf("%s is none of original, current and the number of a version", word), "")
		}
		version = uint32(n)
	}
	if how.Plan = w.parts.Pipelines.Shelf.Plan(number, version); how.Plan == nil {
		return how, problem(http.StatusNotFound, "version_not_found", fmt.Sprintf("there is no version %d that could run", version), "list the versions with GET /api/v1/pipelines/{id}/versions")
	}
	return how, nil
}
