package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"millrace/auth"
	"millrace/pipeline"
	"millrace/pipeline/definition"
	"millrace/pipeline/history"
	"millrace/pipeline/node"
	"millrace/pipeline/value"
)

// Pipelines are the parts that keep and run pipelines.
type Pipelines struct {
	Shelf    *definition.Shelf
	Compiler *definition.Compiler
	Engine   *pipeline.Engine
	History  *history.Store
}

// PipelineSummary documents what there is of a pipeline beside its definition.
type PipelineSummary struct {
	ID          string            `json:"id" doc:"Name of the pipeline in the API"`
	Number      uint32            `json:"number" doc:"Its number, which the ids of its runs begin with"`
	Workspace   string            `json:"workspace" doc:"Workspace of its topics"`
	Name        string            `json:"name" doc:"Title for people"`
	Description string            `json:"description,omitempty" doc:"What it is for"`
	Labels      map[string]string `json:"labels,omitempty" doc:"Free labels"`
	State       string            `json:"state" enum:"draft,running,stopped" doc:"draft: never deployed"`
	Version     uint32            `json:"version" doc:"The deployed version; 0 = none"`
	Latest      uint32            `json:"latest" doc:"The newest version; 0 = none"`
	Changed     bool              `json:"changed" doc:"The draft differs from what is deployed"`
	Created     time.Time         `json:"created" doc:"When it was made"`
	Updated     time.Time         `json:"updated" doc:"When it was last changed"`
	By          string            `json:"by,omitempty" doc:"Who changed it last"`
}

// PipelineList documents GET /pipelines.
type PipelineList struct {
	Pipelines []PipelineSummary `json:"pipelines" doc:"By id"`
}

// PipelineDetail documents one pipeline.
type PipelineDetail struct {
	PipelineSummary
	Definition PipelineDefinition `json:"definition" doc:"The draft"`
	Warnings   []node.Fault       `json:"warnings,omitempty" doc:"After a deploy: what should be looked at"`
}

// PipelineDefinition documents a definition; the page on pipelines describes its members.
type PipelineDefinition struct {
	ID          string            `json:"id" doc:"Letters, digits, . _ and -"`
	Workspace   string            `json:"workspace,omitempty" doc:"Default main"`
	Name        string            `json:"name,omitempty" doc:"Title; default the id"`
	Description string            `json:"description,omitempty" doc:"What it is for"`
	Labels      map[string]string `json:"labels,omitempty" doc:"Free labels"`
	Settings    any               `json:"settings,omitempty" doc:"priority, runOrder, orderKey, stepExecution, historyDetail, timeout, maxDepth"`
	Nodes       []any             `json:"nodes" doc:"Each {id, type, name, params, settings}"`
	Edges       []any             `json:"edges,omitempty" doc:"Each {from, port, to}; port is out when left out"`
	Tests       any               `json:"tests,omitempty" doc:"Kept with the definition"`
	Layout      any               `json:"layout,omitempty" doc:"Where the designer drew the nodes"`
}

// PipelinePath names one pipeline. (Exported, because the REST library skips what is not.)
type PipelinePath struct {
	ID string `path:"id" doc:"Pipeline id" maxLength:"64"`
}

type pipelineOut struct {
	Location    string `header:"Location"`
	ETag        string `header:"ETag" doc:"Of the draft, for If-Match"`
	ContentType string `header:"Content-Type" hidden:"true"`
	Body        []byte
}

func pipelineFields(p *definition.Pipeline) []value.Field {
	text := func(name, s string) value.Field { return value.Field{Name: name, Value: value.Text(s)} }
	state := "draft"
	switch {
	case p.Running:
		state = "running"
	case p.Deployed > 0:
		state = "stopped"
	}
	f := []value.Field{text("id", p.ID), {Name: "number", Value: value.Int(int64(p.Number))}, text("workspace", p.Workspace), text("name", p.Name)}
	if p.Description != "" {
		f = append(f, text("description", p.Description))
	}
	if len(p.Labels) > 0 {
		labels := value.Object()
		for _, name := range sortedKeys(p.Labels) {
			labels = labels.With(name, value.Text(p.Labels[name]))
		}
		f = append(f, value.Field{Name: "labels", Value: labels})
	}
	f = append(f, text("state", state), value.Field{Name: "version", Value: value.Int(int64(p.Deployed))}, value.Field{Name: "latest", Value: value.Int(int64(p.Latest))},
		value.Field{Name: "changed", Value: value.Bool(p.Changed)}, text("created", p.Created.Format(time.RFC3339Nano)), text("updated", p.Updated.Format(time.RFC3339Nano)))
	if p.By != "" {
		f = append(f, text("by", p.By))
	}
	return f
}

func pipelineTag(p *definition.Pipeline) string {
	return `"` + strconv.FormatUint(uint64(p.Number), 10) + "-" + strconv.FormatUint(p.ETag, 10) + `"`
}

// pipelineDetail is the answer that shows a pipeline with its draft.
func (w *Web) pipelineDetail(id string, warnings []node.Fault) (*pipelineOut, error) {
	d, p, err := w.parts.Pipelines.Shelf.Draft(id)
	if err != nil {
		return nil, ofPipeline(err)
	}
	f := append(pipelineFields(&p), value.Field{Name: "definition", Value: d.Value()})
	if len(warnings) > 0 {
		f = append(f, value.Field{Name: "warnings", Value: faultList(warnings)})
	}
	return &pipelineOut{ETag: pipelineTag(&p), ContentType: "application/json", Body: append(value.Object(f...).AppendJSON(nil), '\n')}, nil
}

func faultList(faults []node.Fault) value.Value {
	items := make([]value.Value, len(faults))
	for i, f := range faults {
		items[i] = value.Object()
		for _, x := range []struct{ name, text string }{{"node", f.Node}, {"field", f.Field}, {"code", f.Code}, {"message", f.Message}, {"severity", f.Severity}} {
			items[i] = items[i].With(x.name, value.Text(x.text))
		}
	}
	return value.List(items...)
}

// ofPipeline turns what shelf and engine refuse into problems.
func ofPipeline(err error) error {
	var faults *definition.FaultsError
	var refused *pipeline.Refused
	switch {
	case err == nil:
		return nil
	case errors.As(err, &faults):
		p := problem(http.StatusUnprocessableEntity, "definition_invalid", faults.Error(), "mend the faults that are listed; POST /api/v1/pipelines/validate lists them without saving")
		p.Faults = faults.Faults
		return p
	case errors.Is(err, definition.ErrNotFound):
		return problem(http.StatusNotFound, "pipeline_not_found", err.Error(), "list the pipelines with GET /api/v1/pipelines")
	case errors.Is(err, definition.ErrExists):
		return problem(http.StatusConflict, "pipeline_exists", err.Error(), "choose another id, or change it with PUT /api/v1/pipelines/{id}")
	case errors.Is(err, definition.ErrConflict):
		return problem(http.StatusPreconditionFailed, "changed_meanwhile", err.Error(), "read it again and repeat the change")
	case errors.Is(err, definition.ErrLimit):
		return problem(http.StatusUnprocessableEntity, "pipeline_limit", err.Error(), "delete pipelines that nobody needs")
	case errors.Is(err, definition.ErrNotDeployed):
		return problem(http.StatusConflict, "not_deployed", err.Error(), "POST /api/v1/pipelines/{id}/deploy makes a version of the draft and has it run")
	case errors.Is(err, pipeline.ErrNoRun):
		return problem(http.StatusNotFound, "run_not_found", "no such run is under way", "runs that have ended are listed with GET /api/v1/pipelines/{id}/runs")
	case errors.As(err, &refused):
		return problem(http.StatusConflict, refused.Code, refused.Detail, "")
	}
	return err
}

// definitionOf reads a definition as it was sent. strict: it must compile, too.
func (w *Web) definitionOf(text []byte, id string, strict bool) (d definition.Definition, err error) {
	if err := plainJSON(text); err != nil {
		return d, problem(http.StatusBadRequest, "malformed", "the body cannot be read: "+jsonFault(err), "send a definition as JSON")
	}
	d, faults := definition.Read(text)
	if id != "" && d.ID == "" {
		d.ID = id
	}
	if id != "" && d.ID != id {
		return d, invalid("id", fmt.Sprintf("the definition is of %q, the address of %q", d.ID, id), "a pipeline keeps its id: make a new one, and delete the old")
	}
	if strict && !definition.Broken(faults) {
		_, more := w.parts.Pipelines.Compiler.Compile(&d, 0, 0)
		faults = append(faults, more...)
	}
	if definition.Broken(faults) {
		return d, ofPipeline(&definition.FaultsError{Faults: faults})
	}
	return d, nil
}

// draftTag reads If-Match; without one any draft is replaced.
func (w *Web) draftTag(id, header string, missing uint64) (uint64, error) {
	if header == "" {
		return missing, nil
	}
	p, err := w.parts.Pipelines.Shelf.Show(id)
	if err != nil {
		return 0, ofPipeline(err)
	}
	if !etagMatches(header, pipelineTag(&p)) {
		return 0, ofPipeline(fmt.Errorf("%w: the draft of %s was changed by %s at %s", definition.ErrConflict, id, p.By, p.Updated.Format("2006-01-02 15:04:05Z")))
	}
	return p.ETag, nil
}

func (w *Web) addPipelines() {
	see, change := rule{role: auth.RoleViewer}, rule{role: auth.RoleDesigner}
	body := map[string]any{"application/json": PipelineDefinition{}}
	detail := map[string]any{"application/json": PipelineDetail{}}
	type listIn struct {
		Workspace string `query:"workspace" doc:"Only those of this workspace" maxLength:"64"`
		State     string `query:"state" enum:"draft,running,stopped" doc:"Only those in this state"`
	}
	register(w, route{method: http.MethodGet, path: "/pipelines", id: "list-pipelines", tag: "Pipelines", rule: see, summary: "List pipelines",
		gives: map[string]any{"application/json": PipelineList{}}},
		func(_ context.Context, _ *caller, in *listIn) (*written, error) {
			items := []value.Value{}
			for _, p := range w.parts.Pipelines.Shelf.List() {
				v := value.Object(pipelineFields(&p)...)
				if (in.Workspace == "" || p.Workspace == in.Workspace) && (in.State == "" || v.Get("state").Text() == in.State) {
					items = append(items, v)
				}
			}
			return answerOf(value.Object(value.Field{Name: "pipelines", Value: value.List(items...)})), nil
		})
	register(w, route{method: http.MethodGet, path: "/pipelines/{id}", id: "get-pipeline", tag: "Pipelines", rule: see, missing: true,
		summary: "Show a pipeline with its draft", gives: detail},
		func(_ context.Context, _ *caller, in *PipelinePath) (*pipelineOut, error) {
			return w.pipelineDetail(in.ID, nil)
		})

	type addIn struct {
		RawBody []byte `contentType:"application/json"`
	}
	register(w, route{method: http.MethodPost, path: "/pipelines", id: "add-pipeline", tag: "Pipelines", rule: change, status: http.StatusCreated, conflicts: []int{409},
		summary: "Make a pipeline", doc: "Saves a definition as the draft of a new pipeline; it runs when it is deployed. A definition with faults is refused as a whole, and `faults` lists all of them.", takes: body},
		func(_ context.Context, c *caller, in *addIn) (*pipelineOut, error) {
			d, err := w.definitionOf(in.RawBody, "", true)
			if err != nil {
				return nil, err
			}
			out, err := w.save(c, "add", &d, 0)
			if out != nil {
				out.Location = apiRoot + "/pipelines/" + d.ID
			}
			return out, err
		})
	type putIn struct {
		PipelinePath
		IfMatch string `header:"If-Match" doc:"Change only if the draft still has this ETag; else 412"`
		RawBody []byte `contentType:"application/json"`
	}
	register(w, route{method: http.MethodPut, path: "/pipelines/{id}", id: "put-pipeline", tag: "Pipelines", rule: change, missing: true, conflicts: []int{412},
		summary: "Replace the draft, or make the pipeline", doc: "Like the POST, for one that may be there already. What is deployed stays as it is until the next deploy.", takes: body, gives: detail},
		func(_ context.Context, c *caller, in *putIn) (*pipelineOut, error) {
			return w.put(c, "put", in.ID, in.IfMatch, in.RawBody, true)
		})
	register(w, route{method: http.MethodPut, path: "/pipelines/{id}/draft", id: "put-draft", tag: "Pipelines", rule: change, missing: true, conflicts: []int{412},
		summary: "Save work in progress", doc: "Keeps a draft that need not compile yet; only its shape must be that of a definition.", takes: body, gives: detail},
		func(_ context.Context, c *caller, in *putIn) (*pipelineOut, error) {
			return w.put(c, "draft", in.ID, in.IfMatch, in.RawBody, false)
		})
	type deleteIn struct {
		PipelinePath
		IfMatch string `header:"If-Match" doc:"Delete only if the draft still has this ETag; else 412"`
	}
	type gone struct{}
	register(w, route{method: http.MethodDelete, path: "/pipelines/{id}", id: "delete-pipeline", tag: "Pipelines", rule: change, missing: true, status: http.StatusNoContent, conflicts: []int{412},
		summary: "Delete a pipeline", doc: "With its draft and versions. No run begins any more; values that it published stay."},
		func(_ context.Context, c *caller, in *deleteIn) (*gone, error) {
			tag, err := w.draftTag(in.ID, in.IfMatch, definition.Any)
			if err == nil {
				err = ofPipeline(w.parts.Pipelines.Shelf.Delete(in.ID, tag))
			}
			return nil, w.noted(c, auth.Event{Category: "pipeline", Action: "delete", ID: in.ID}, err)
		})
	w.addDeploys()
	w.addVersions()
	w.addRuns()
}

func (w *Web) put(c *caller, action, id, match string, text []byte, strict bool) (*pipelineOut, error) {
	d, err := w.definitionOf(text, id, strict)
	if err != nil {
		return nil, err
	}
	tag, err := w.draftTag(id, match, definition.Any)
	if err != nil {
		return nil, err
	}
	return w.save(c, action, &d, tag)
}

func (w *Web) save(c *caller, action string, d *definition.Definition, tag uint64) (*pipelineOut, error) {
	if ws := d.Workspace; ws != "" && !w.parts.Namespace.HasWorkspace(ws) {
		return nil, invalid("workspace", fmt.Sprintf("there is no workspace %q", ws), "the workspaces are set by uns.workspaces")
	}
	_, err := w.parts.Pipelines.Shelf.Save(d, tag, c.actor().Name)
	if err = w.noted(c, auth.Event{Category: "pipeline", Action: action, ID: d.ID}, ofPipeline(err)); err != nil {
		return nil, err
	}
	return w.pipelineDetail(d.ID, nil)
}

func answerOf(v value.Value) *written { return writtenJSON(append(v.AppendJSON(nil), '\n')) }
