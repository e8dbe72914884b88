package web

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"millrace/auth"
	"millrace/pipeline"
	"millrace/pipeline/definition"
	"millrace/pipeline/node"
	"millrace/pipeline/value"
)

// NodeTypes documents GET /node-types.
type NodeTypes struct {
	Types []*node.Spec `json:"types" doc:"By type"`
}

// FaultsAnswer documents the answer of a validation.
type FaultsAnswer struct {
	Valid  bool         `json:"valid" doc:"No fault is an error"`
	Faults []node.Fault `json:"faults" doc:"Everything that is wrong, or should be looked at"`
}

// TestRequest documents the body of a dry run.
type TestRequest struct {
	Definition any    `json:"definition,omitempty" doc:"What to run; left out: the draft"`
	Trigger    string `json:"trigger,omitempty" doc:"Id of the trigger to begin with; left out: the first"`
	Topic      string `json:"topic,omitempty" doc:"What $trigger.topic is"`
	Value      any    `json:"value,omitempty" doc:"What $trigger.value is"`
	Timestamp  string `json:"timestamp,omitempty" doc:"RFC 3339; left out: now"`
	Quality    string `json:"quality,omitempty" enum:"good,uncertain,bad" doc:"Left out: good"`
}

// TestAnswer documents a dry run.
type TestAnswer struct {
	Run       RunDetail      `json:"run" doc:"The trace"`
	Published []DryPublished `json:"published" doc:"What would have been stored"`
}

// DryPublished documents a value that a dry run would have stored.
type DryPublished struct {
	Node    string `json:"node" doc:"Id of the node"`
	Topic   string `json:"topic" doc:"Topic"`
	Value   any    `json:"value" doc:"Value"`
	Quality string `json:"quality" doc:"Quality"`
}

func (w *Web) addDeploys() {
	change := rule{role: auth.RoleDesigner}
	detail := map[string]any{"application/json": PipelineDetail{}}
	type bodyIn struct {
		RawBody []byte `contentType:"application/json"`
	}
	register(w, route{method: http.MethodPost, path: "/pipelines/validate", id: "validate-pipeline", tag: "Pipelines", rule: rule{role: auth.RoleViewer},
		summary: "Check a definition", doc: "Lists every fault with node and field. Nothing is saved.",
		takes: map[string]any{"application/json": PipelineDefinition{}}, gives: map[string]any{"application/json": FaultsAnswer{}}},
		func(_ context.Context, _ *caller, in *bodyIn) (*written, error) {
			d, faults := definition.Read(in.RawBody)
			if len(faults) == 1 && faults[0].Code == "syntax" {
				return nil, problem(http.StatusBadRequest, "malformed", "the body cannot be read: "+faults[0].Message, "send a definition as JSON")
			}
			if !definition.Broken(faults) {
				_, more := w.parts.Pipelines.Compiler.Compile(&d, 0, 0)
				faults = append(faults, more...)
			}
			return answerOf(value.Object(value.Field{Name: "valid", Value: value.Bool(!definition.Broken(faults))}, value.Field{Name: "faults", Value: faultList(faults)})), nil
		})
	type deployIn struct {
		PipelinePath
		Body *struct {
			Comment string `json:"comment,omitempty" doc:"Why, for whoever reads the versions" maxLength:"1000"`
		}
	}
	register(w, route{method: http.MethodPost, path: "/pipelines/{id}/deploy", id: "deploy-pipeline", tag: "Pipelines", rule: change, missing: true, optional: true,
		summary: "Make a version of the draft and have it run", doc: "It holds from the next stored value on; runs that have begun end on the version they began with. Faults refuse it as a whole, and what was deployed goes on.", gives: detail},
		func(_ context.Context, c *caller, in *deployIn) (*pipelineOut, error) {
			comment := ""
			if in.Body != nil {
				comment = in.Body.Comment
			}
			_, warnings, err := w.parts.Pipelines.Shelf.Deploy(in.ID, comment, c.actor().Name)
			if err = w.noted(c, auth.Event{Category: "pipeline", Action: "deploy", ID: in.ID}, ofPipeline(err)); err != nil {
				return nil, err
			}
			return w.pipelineDetail(in.ID, warnings)
		})
	for _, x := range []struct {
		verb, summary, doc string
		do                 func(id, by string) (definition.Pipeline, error)
	}{
		{"start", "Have the deployed version run again", "From the next stored value on.", func(id, by string) (definition.Pipeline, error) { return w.parts.Pipelines.Shelf.Start(id, by) }},
		{"stop", "Have no more runs begin", "From the next stored value on. Runs that wait or have begun go on.", func(id, by string) (definition.Pipeline, error) { return w.parts.Pipelines.Shelf.Stop(id, by) }},
	} {
		conflicts := []int{409}
		if x.verb == "stop" {
			conflicts = nil
		}
		register(w, route{method: http.MethodPost, path: "/pipelines/{id}/" + x.verb, id: x.verb + "-pipeline", tag: "Pipelines", rule: change, missing: true, conflicts: conflicts,
			summary: x.summary, doc: x.doc, gives: detail},
			func(_ context.Context, c *caller, in *PipelinePath) (*pipelineOut, error) {
				_, err := x.do(in.ID, c.actor().Name)
				if err = w.noted(c, auth.Event{Category: "pipeline", Action: x.verb, ID: in.ID}, ofPipeline(err)); err != nil {
					return nil, err
				}
				return w.pipelineDetail(in.ID, nil)
			})
	}
	type rollbackIn struct {
		PipelinePath
		Body struct {
			Version uint32 `json:"version" doc:"The version to go back to" minimum:"1"`
		}
	}
	register(w, route{method: http.MethodPost, path: "/pipelines/{id}/rollback", id: "rollback-pipeline", tag: "Pipelines", rule: change, missing: true,
		summary: "Deploy an older version again", doc: "It becomes the draft, too.", gives: detail},
		func(_ context.Context, c *caller, in *rollbackIn) (*pipelineOut, error) {
			_, err := w.parts.Pipelines.Shelf.Rollback(in.ID, in.Body.Version, c.actor().Name)
			if err = w.noted(c, auth.Event{Category: "pipeline", Action: "rollback", ID: in.ID, Detail: strconv.Itoa(int(in.Body.Version))}, ofPipeline(err)); err != nil {
				return nil, err
			}
			return w.pipelineDetail(in.ID, nil)
		})
	w.addTests(change)
	type typesOut struct{ Body NodeTypes }
	register(w, route{method: http.MethodGet, path: "/node-types", id: "list-node-types", tag: "Pipelines", rule: rule{role: auth.RoleViewer}, summary: "List the types of nodes",
		doc: "What each type says of itself: fields, ports, an example. The designer's forms and the checks of definitions are made from it."},
		func(context.Context, *caller, *struct{}) (*typesOut, error) {
			return &typesOut{NodeTypes{w.parts.Pipelines.Compiler.Specs()}}, nil
		})
}

// asked is the body of dry runs and manual runs.
type asked struct {
	Definition json.RawMessage `json:"definition"`
	Trigger    string          `json:"trigger"`
	Topic      string          `json:"topic"`
	Value      json.RawMessage `json:"value"`
	Timestamp  string          `json:"timestamp"`
	Quality    string          `json:"quality"`
}

// askedFor reads such a body; an empty one asks for nothing in particular.
func askedFor(text []byte) (a asked, in pipeline.Input, err error) {
	if len(text) == 0 {
		return a, in, nil
	}
	if err := plainJSON(text); err != nil {
		return a, in, problem(http.StatusBadRequest, "malformed", "the body cannot be read: "+jsonFault(err), `send for example {"value":42.7}`)
	}
	d := json.NewDecoder(bytesReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&a); err != nil {
		return a, in, invalid("", "the body is not what this call takes: "+err.Error(), `send for example {"value":42.7}`)
	}
	in = pipeline.Input{Trigger: a.Trigger, Topic: a.Topic, Quality: a.Quality}
	if len(a.Value) > 0 {
		if in.Value, err = value.Parse(a.Value); err != nil {
			return a, in, problem(http.StatusBadRequest, "malformed", "the value cannot be read: "+err.Error(), "")
		}
	}
	if a.Timestamp != "" {
		if in.Time, err = time.Parse(time.RFC3339Nano, a.Timestamp); err != nil {
			return a, in, invalid("timestamp", fmt.Sprintf("%q is not RFC 3339", a.Timestamp), "")
		}
	}
	if a.Quality != "" && a.Quality != "good" && a.Quality != "uncertain" && a.Quality != "bad" {
		return a, in, invalid("quality", fmt.Sprintf("%q is none of good, uncertain, bad", a.Quality), "")
	}
	return a, in, nil
}

func (w *Web) addTests(change rule) {
	type testIn struct {
		PipelinePath
		RawBody []byte `contentType:"application/json"`
	}
	register(w, route{method: http.MethodPost, path: "/pipelines/{id}/test", id: "test-pipeline", tag: "Pipelines", rule: change, missing: true, optional: true, conflicts: []int{409},
		summary: "Run it dry", doc: "Runs the draft, or the definition that is sent along, in memory: nothing is stored or sent, waits pass at once. Answers the trace and what would have been published.",
		takes: map[string]any{"application/json": TestRequest{}}, gives: map[string]any{"application/json": TestAnswer{}}},
		func(ctx context.Context, _ *caller, in *testIn) (*written, error) {
			a, input, err := askedFor(in.RawBody)
			if err != nil {
				return nil, err
			}
			var d definition.Definition
			if len(a.Definition) > 0 && string(a.Definition) != "null" {
				d, err = w.definitionOf(a.Definition, in.ID, false)
			} else if d, _, err = w.parts.Pipelines.Shelf.Draft(in.ID); err != nil {
				err = ofPipeline(err)
			}
			if err != nil {
				return nil, err
			}
			number, _ := w.parts.Pipelines.Shelf.ByID(in.ID)
			plan, faults := w.parts.Pipelines.Compiler.Compile(&d, number, 0)
			if plan == nil {
				return nil, ofPipeline(&definition.FaultsError{Faults: faults})
			}
			run, published, err := w.parts.Pipelines.Engine.Test(ctx, plan, input)
			if err != nil {
				return nil, ofPipeline(err)
			}
			items := make([]value.Value, len(published))
			for i, p := range published {
				quality := p.Quality
				if quality == "" {
					quality = "good"
				}
				items[i] = value.Object(value.Field{Name: "node", Value: value.Text(p.Node)}, value.Field{Name: "topic", Value: value.Text(p.Topic)}, value.Field{Name: "value", Value: p.Value}, value.Field{Name: "quality", Value: value.Text(quality)})
			}
			return answerOf(value.Object(value.Field{Name: "run", Value: runDetail(&run, plan, in.ID)}, value.Field{Name: "published", Value: value.List(items...)})), nil
		})
}
