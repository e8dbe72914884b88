package web

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"millrace/auth"
	"millrace/historian"
	"millrace/pipeline"
	"millrace/pipeline/definition"
	"millrace/pipeline/history"
	"millrace/pipeline/value"
	"millrace/uns"
)

// RunSummary documents one run in a list.
type RunSummary struct {
	ID         string     `json:"id" doc:"Name of the run"`
	Pipeline   string     `json:"pipeline" doc:"Id of the pipeline"`
	Version    uint32     `json:"version" doc:"Version that ran; 0: a draft, dry"`
	Status     string     `json:"status" enum:"completed,failed,completed_with_errors,cancelled" doc:"How it ended"`
	Mode       string     `json:"mode" doc:"trigger, schedule, webhook, manual, replay or test"`
	Trigger    RunTrigger `json:"trigger" doc:"What started it"`
	Started    string     `json:"started" doc:"RFC 3339"`
	DurationUS int64      `json:"duration_us" doc:"From its start to its end, in microseconds"`
	Attempt    int        `json:"attempt" doc:"1, more after a crash"`
	Counted    uint32     `json:"counted" doc:"How many runs the row stands for: at most one successful run of a second is kept"`
	Error      string     `json:"error,omitempty" doc:"Why it failed"`
}

// RunList documents a page of runs.
type RunList struct {
	Runs []RunSummary `json:"runs" doc:"The newest first"`
	Next string       `json:"next" doc:"Cursor of the next page, or empty"`
}

// SampleList documents what started the last runs.
type SampleList struct {
	Samples []RunTrigger `json:"samples" doc:"The newest first"`
}

// RunTrigger documents what started a run.
type RunTrigger struct {
	Topic     string `json:"topic,omitempty" doc:"Topic of the value"`
	Value     any    `json:"value" doc:"The value"`
	Timestamp string `json:"timestamp" doc:"Its time"`
	Quality   string `json:"quality" doc:"Its quality"`
}

// RunDetail documents one run with its nodes.
type RunDetail struct {
	RunSummary
	Nodes []RunNode `json:"nodes" doc:"The nodes in the order in which they ran"`
	Log   []RunLine `json:"log,omitempty" doc:"What nodes printed"`
}

// RunNode documents one node of a run.
type RunNode struct {
	ID         string    `json:"id" doc:"Id of the node"`
	Status     string    `json:"status" enum:"idle,completed,failed,handled,skipped" doc:"handled: failed, and the run went on"`
	DurationUS int64     `json:"duration_us" doc:"Microseconds"`
	In         any       `json:"in,omitempty" doc:"What it got, as far as it is kept"`
	Out        any       `json:"out,omitempty" doc:"What it gave, as far as it is kept"`
	Error      *RunError `json:"error,omitempty" doc:"Why it failed"`
}

// RunError documents a node's failure.
type RunError struct {
	Message string `json:"message" doc:"What went wrong"`
	Line    int    `json:"line,omitempty" doc:"In the node's code, from 1"`
	Column  int    `json:"column,omitempty" doc:"In the line, from 1"`
}

// RunLine documents a line that a node printed.
type RunLine struct {
	Node  string `json:"node" doc:"Id of the node"`
	Level string `json:"level" doc:"debug, info, warn or error"`
	Text  string `json:"text" doc:"The line"`
}

// RunPath names one run. (Exported, because the REST library skips what is not.)
type RunPath struct {
	ID string `path:"id" doc:"Id of the run" maxLength:"64"`
}

func bytesReader(b []byte) io.Reader { return bytes.NewReader(b) }

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// raw makes a value of what is kept of one.
func raw(j history.JSON) value.Value {
	switch x := j.(type) {
	case nil:
		return value.Value{}
	case value.Value:
		return x
	default:
		v, err := value.Parse(x.AppendJSON(nil))
		if err != nil {
			return value.Text(string(x.AppendJSON(nil))) // cut short by the bound of a row
		}
		return v
	}
}

func runSummary(r *history.Run, pipelineID string) value.Value {
	trigger := value.Object()
	if r.Trigger.Topic != "" {
		trigger = trigger.With("topic", value.Text(r.Trigger.Topic))
	}
	if v := raw(r.Trigger.Value); !v.IsMissing() {
		trigger = trigger.With("value", v)
	}
	trigger = trigger.With("timestamp", value.Text(string(uns.AppendTime(nil, r.Trigger.Time, r.Trigger.Scale)))).With("quality", value.Text(historian.Quality(r.Trigger.Quality).String()))
	v := value.Object(value.Field{Name: "id", Value: value.Text(r.ID.String())}, value.Field{Name: "pipeline", Value: value.Text(pipelineID)}, value.Field{Name: "version", Value: value.Int(int64(r.Version))},
		value.Field{Name: "status", Value: value.Text(r.Status.String())}, value.Field{Name: "mode", Value: value.Text(r.Mode)}, value.Field{Name: "trigger", Value: trigger},
		value.Field{Name: "started", Value: value.Text(r.Started.UTC().Format("2006-01-02T15:04:05.000000Z"))}, value.Field{Name: "duration_us", Value: value.Int(r.Duration.Microseconds())},
		value.Field{Name: "attempt", Value: value.Int(int64(r.Attempt))}, value.Field{Name: "counted", Value: value.Int(int64(r.Counted))})
	if r.Error != "" {
		v = v.With("error", value.Text(r.Error))
	}
	return v
}

var nodeStatus = [...]string{history.NodeIdle: "idle", history.NodeDone: "completed", history.NodeFailed: "failed", history.NodeHandled: "handled", history.NodeSkipped: "skipped"}

// runDetail adds the nodes; their ids come from the plan, whose version the run names.
func runDetail(r *history.Run, plan *definition.Plan, pipelineID string) value.Value {
	id := func(number int) value.Value {
		if plan != nil {
			for i := range plan.Steps {
				if plan.Steps[i].Number == number {
					return value.Text(plan.Steps[i].ID)
				}
			}
		}
		return value.Text("#" + strconv.Itoa(number))
	}
	nodes := make([]value.Value, 0, len(r.Nodes))
	for _, n := range r.Nodes {
		v := value.Object(value.Field{Name: "id", Value: id(n.Number)}, value.Field{Name: "status", Value: value.Text(nodeStatus[min(int(n.Status), len(nodeStatus)-1)])},
			value.Field{Name: "duration_us", Value: value.Int(n.Duration.Microseconds())})
		if in := raw(n.In); !in.IsMissing() {
			v = v.With("in", in)
		}
		if out := raw(n.Out); !out.IsMissing() {
			v = v.With("out", out)
		}
		if n.Error != "" {
			e := value.Object(value.Field{Name: "message", Value: value.Text(n.Error)})
			if n.Line > 0 {
				e = e.With("line", value.Int(int64(n.Line))).With("column", value.Int(int64(n.Column)))
			}
			v = v.With("error", e)
		}
		nodes = append(nodes, v)
	}
	v := runSummary(r, pipelineID).With("nodes", value.List(nodes...))
	if len(r.Lines) > 0 {
		lines := make([]value.Value, len(r.Lines))
		for i, l := range r.Lines {
			lines[i] = value.Object(value.Field{Name: "node", Value: id(l.Number)}, value.Field{Name: "level", Value: value.Text(l.Level)}, value.Field{Name: "text", Value: value.Text(l.Text)})
		}
		v = v.With("log", value.List(lines...))
	}
	return v
}

// runCursor is where a page of runs ended.
type runCursor struct {
	At int64  `json:"at"`
	ID string `json:"id"`
}

func openRunCursor(text string) (a history.After, err error) {
	if text == "" {
		return a, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(text)
	var c runCursor
	if err == nil {
		err = json.Unmarshal(b, &c)
	}
	id, ok := history.ParseRunID(c.ID)
	if err != nil || !ok {
		return a, errCursor
	}
	return history.After{Started: time.Unix(0, c.At), ID: id}, nil
}

func (w *Web) addRuns() {
	see := rule{role: auth.RoleViewer}
	type runsIn struct {
		PipelinePath
		Status string `query:"status" enum:"completed,failed,completed_with_errors,cancelled" doc:"Only those that ended so"`
		From   string `query:"from" doc:"First start: RFC 3339, epoch ms, or relative as -6h" maxLength:"64"`
		To     string `query:"to" doc:"End, exclusive; as from" maxLength:"64"`
		Limit  int    `query:"limit" doc:"At most this many on one page" default:"100" minimum:"1" maximum:"1000"`
		Cursor string `query:"cursor" doc:"The next of the page before" maxLength:"256"`
	}
	register(w, route{method: http.MethodGet, path: "/pipelines/{id}/runs", id: "list-runs", tag: "Runs", rule: see, missing: true, summary: "List runs of a pipeline",
		doc: "Failed, cancelled, manual and replayed runs are all kept; of successful ones that values triggered one a second, whose `counted` tells how many it stands for.", gives: map[string]any{"application/json": RunList{}}},
		func(_ context.Context, _ *caller, in *runsIn) (*written, error) {
			number, err := w.pipelineNumber(in.ID)
			if err != nil {
				return nil, err
			}
			q := history.Query{Pipeline: number, Limit: in.Limit}
			if q.After, err = openRunCursor(in.Cursor); err != nil {
				return nil, invalid("cursor", "the cursor is none of this list", "send the next of the page before, unchanged")
			}
			if q.From, q.To, err = w.period(in.From, in.To); err != nil {
				return nil, err
			}
			if s, ok := history.ParseStatus(in.Status); ok && in.Status != "" {
				q.Status = []history.Status{s}
			}
			runs, more, err := w.parts.Pipelines.History.List(q)
			if err != nil {
				return nil, err
			}
			items, next := make([]value.Value, len(runs)), ""
			for i := range runs {
				items[i] = runSummary(&runs[i], in.ID)
			}
			if more && len(runs) > 0 {
				last := &runs[len(runs)-1]
				b, err := json.Marshal(runCursor{last.Started.UnixNano(), last.ID.String()})
				if err != nil {
					return nil, err
				}
				next = base64.RawURLEncoding.EncodeToString(b)
			}
			return answerOf(value.Object(value.Field{Name: "runs", Value: value.List(items...)}, value.Field{Name: "next", Value: value.Text(next)})), nil
		})
	w.addPipelineFigures(see)
	w.addActive(see, rule{role: auth.RoleDesigner})
	detail := map[string]any{"application/json": RunDetail{}}
	register(w, route{method: http.MethodGet, path: "/runs/{id}", id: "get-run", tag: "Runs", rule: see, missing: true, summary: "Show a run with its trace", gives: detail},
		func(_ context.Context, _ *caller, in *RunPath) (*written, error) {
			r, name, err := w.findRun(in.ID)
			if id, ok := history.ParseRunID(in.ID); err != nil && ok {
				if a, under := w.parts.Pipelines.Engine.ActiveRun(id); under {
					return answerOf(activeRun(&a, name)), nil
				}
			}
			if err != nil {
				return nil, err
			}
			return answerOf(runDetail(r, w.parts.Pipelines.Shelf.Plan(r.ID.Pipeline, r.Version), name)), nil
		})
	w.addStarts()
}

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

func (w *Web) pipelineNumber(id string) (uint32, error) {
	p, err := w.parts.Pipelines.Shelf.Show(id)
	return p.Number, ofPipeline(err)
}

// period reads from and to; empty ones leave that end open.
func (w *Web) period(from, to string) (a, b time.Time, err error) {
	for _, x := range []struct {
		field, text string
		at          *time.Time
	}{{"from", from, &a}, {"to", to, &b}} {
		if x.text == "" {
			continue
		}
		ns, ok := parseMoment(x.text, w.now())
		if !ok {
			return a, b, invalid(x.field, fmt.Sprintf("%q is not a time", x.text), "send RFC 3339, epoch ms, or a distance such as -6h")
		}
		*x.at = time.Unix(0, ns)
	}
	return a, b, nil
}

// findRun looks among the last runs in memory, which have it all, and then on disk.
func (w *Web) findRun(text string) (*history.Run, string, error) {
	id, ok := history.ParseRunID(text)
	if !ok {
		return nil, "", problem(http.StatusNotFound, "run_not_found", fmt.Sprintf("%q is no id of a run", text), "list the runs with GET /api/v1/pipelines/{id}/runs")
	}
	name, _ := w.parts.Pipelines.Shelf.ByNumber(id.Pipeline)
	for _, r := range w.parts.Pipelines.History.Ring(id.Pipeline) {
		if r.ID == id {
			return &r, name, nil
		}
	}
	r, ok, err := w.parts.Pipelines.History.Get(id)
	if err != nil {
		return nil, "", err
	}
	if !ok {
		return nil, name, problem(http.StatusNotFound, "run_not_found", "the run "+text+" is not kept: it is past its retention, or another successful run of its second stands for it", "list the runs with GET /api/v1/pipelines/{id}/runs")
	}
	return r, name, nil
}

// PipelineStats documents what a pipeline did since the box started.
type PipelineStats struct {
	Runs   map[string]uint64 `json:"runs" doc:"Runs that ended, by status"`
	MeanUS int64             `json:"mean_us" doc:"Mean duration in microseconds"`
	MaxUS  int64             `json:"max_us" doc:"Longest duration in microseconds"`
}

func (w *Web) addPipelineFigures(see rule) {
	type statsOut struct{ Body PipelineStats }
	register(w, route{method: http.MethodGet, path: "/pipelines/{id}/stats", id: "pipeline-stats", tag: "Runs", rule: see, missing: true, summary: "What a pipeline did since the box started"},
		func(_ context.Context, _ *caller, in *PipelinePath) (*statsOut, error) {
			number, err := w.pipelineNumber(in.ID)
			if err != nil {
				return nil, err
			}
			s := w.parts.Pipelines.History.Stats(number)
			out := &statsOut{PipelineStats{Runs: map[string]uint64{}, MaxUS: s.Most.Microseconds()}}
			sum := uint64(0)
			for status, n := range s.Runs {
				out.Body.Runs[status] = n
				sum += n
			}
			if sum > 0 {
				out.Body.MeanUS = s.Total.Microseconds() / int64(sum)
			}
			return out, nil
		})
	register(w, route{method: http.MethodGet, path: "/pipelines/{id}/samples", id: "pipeline-samples", tag: "Runs", rule: see, missing: true, summary: "What started the last runs", doc: "Up to 20, for trying a draft on.",
		gives: map[string]any{"application/json": SampleList{}}},
		func(_ context.Context, _ *caller, in *PipelinePath) (*written, error) {
			number, err := w.pipelineNumber(in.ID)
			if err != nil {
				return nil, err
			}
			items := []value.Value{}
			for _, r := range w.parts.Pipelines.History.Ring(number) {
				items = append(items, runSummary(&r, in.ID).Get("trigger"))
			}
			return answerOf(value.Object(value.Field{Name: "samples", Value: value.List(items...)})), nil
		})
}

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
