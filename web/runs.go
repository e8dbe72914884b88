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
	w.addHooks()
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
