package web

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"millrace/auth"
	"millrace/pipeline/definition"
	"millrace/pipeline/value"
)

// VersionSummary documents one version.
type VersionSummary struct {
	Version uint32    `json:"version" doc:"Its number, from 1"`
	Comment string    `json:"comment,omitempty" doc:"Why it was made"`
	By      string    `json:"by,omitempty" doc:"By whom"`
	Created time.Time `json:"created" doc:"When"`
}

// VersionDetail documents one version with its definition.
type VersionDetail struct {
	VersionSummary
	Definition PipelineDefinition `json:"definition" doc:"As it was deployed; it never changes"`
}

// VersionList documents the versions of a pipeline.
type VersionList struct {
	Versions []VersionSummary `json:"versions" doc:"The newest first"`
}

// DifferenceList documents how two versions differ.
type DifferenceList struct {
	Differences []DifferenceItem `json:"differences" doc:"What a designer changed; none: they are the same"`
}

// DifferenceItem documents one way in which two versions differ.
type DifferenceItem struct {
	Kind  string `json:"kind" enum:"pipeline,node,edge,tests,layout" doc:"What differs"`
	What  string `json:"what" enum:"added,removed,changed" doc:"How"`
	Node  string `json:"node,omitempty" doc:"Id of the node"`
	Field string `json:"field,omitempty" doc:"Where in it"`
	Was   any    `json:"was,omitempty" doc:"Before"`
	Is    any    `json:"is,omitempty" doc:"After"`
}

func versionFields(v *definition.Version) []value.Field {
	f := []value.Field{{Name: "version", Value: value.Int(int64(v.Version))}}
	if v.Comment != "" {
		f = append(f, value.Field{Name: "comment", Value: value.Text(v.Comment)})
	}
	if v.By != "" {
		f = append(f, value.Field{Name: "by", Value: value.Text(v.By)})
	}
	return append(f, value.Field{Name: "created", Value: value.Text(v.Created.Format(time.RFC3339Nano))})
}

func (w *Web) addVersions() {
	see := rule{role: auth.RoleViewer}
	register(w, route{method: http.MethodGet, path: "/pipelines/{id}/versions", id: "list-versions", tag: "Pipelines", rule: see, missing: true, summary: "List the versions of a pipeline",
		gives: map[string]any{"application/json": VersionList{}}},
		func(_ context.Context, _ *caller, in *PipelinePath) (*written, error) {
			versions, err := w.parts.Pipelines.Shelf.Versions(in.ID)
			if err != nil {
				return nil, ofPipeline(err)
			}
			items := make([]value.Value, len(versions))
			for i := range versions {
				items[i] = value.Object(versionFields(&versions[i])...)
			}
			return answerOf(value.Object(value.Field{Name: "versions", Value: value.List(items...)})), nil
		})
	type versionIn struct {
		PipelinePath
		Version uint32 `path:"version" doc:"Number of the version" minimum:"1"`
	}
	register(w, route{method: http.MethodGet, path: "/pipelines/{id}/versions/{version}", id: "get-version", tag: "Pipelines", rule: see, missing: true, summary: "Show a version",
		gives: map[string]any{"application/json": VersionDetail{}}},
		func(_ context.Context, _ *caller, in *versionIn) (*written, error) {
			v, err := w.parts.Pipelines.Shelf.Version(in.ID, in.Version)
			if err != nil {
				return nil, ofPipeline(err)
			}
			return answerOf(value.Object(append(versionFields(&v), value.Field{Name: "definition", Value: v.Definition.Value()})...)), nil
		})
	type diffIn struct {
		PipelinePath
		A string `path:"a" doc:"Number of the version before, or draft" maxLength:"10"`
		B string `path:"b" doc:"Number of the version after, or draft" maxLength:"10"`
	}
	register(w, route{method: http.MethodGet, path: "/pipelines/{id}/versions/{a}/diff/{b}", id: "diff-versions", tag: "Pipelines", rule: see, missing: true, summary: "Compare two versions",
		gives: map[string]any{"application/json": DifferenceList{}}},
		func(_ context.Context, _ *caller, in *diffIn) (*written, error) {
			a, err := w.versionNamed(in.ID, "a", in.A)
			if err != nil {
				return nil, err
			}
			b, err := w.versionNamed(in.ID, "b", in.B)
			if err != nil {
				return nil, err
			}
			items := []value.Value{}
			for _, d := range definition.Diff(&a, &b) {
				v := value.Object(value.Field{Name: "kind", Value: value.Text(d.Kind)}, value.Field{Name: "what", Value: value.Text(d.What)})
				if d.Node != "" {
					v = v.With("node", value.Text(d.Node))
				}
				if d.Field != "" {
					v = v.With("field", value.Text(d.Field))
				}
				items = append(items, v.With("was", d.Was).With("is", d.Is))
			}
			return answerOf(value.Object(value.Field{Name: "differences", Value: value.List(items...)})), nil
		})
}

// versionNamed is a version by its number, or the draft.
func (w *Web) versionNamed(id, field, name string) (definition.Definition, error) {
	if name == "draft" {
		d, _, err := w.parts.Pipelines.Shelf.Draft(id)
		return d, ofPipeline(err)
	}
	n, err := strconv.ParseUint(name, 10, 32)
	if err != nil || n == 0 {
		return definition.Definition{}, invalid(field, strconv.Quote(name)+" is neither a version nor draft", "versions count from 1")
	}
	v, err := w.parts.Pipelines.Shelf.Version(id, uint32(n))
	return v.Definition, ofPipeline(err)
}
