package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"

	"millrace/pipeline/definition"
)

type pipelineCommand struct {
	List     pipelineList     `cmd:"" help:"Pipelines and their state."`
	Show     pipelineShow     `cmd:"" help:"One pipeline: state, and what it did since the box started."`
	Validate pipelineValidate `cmd:"" help:"Check definitions; nothing is saved."`
	Apply    pipelineApply    `cmd:"" help:"Save definitions as drafts, and deploy them with --deploy."`
	Export   pipelineExport   `cmd:"" help:"Write a definition as YAML or JSON."`
	Deploy   pipelineDeploy   `cmd:"" help:"Make a version of the draft and have it run."`
	Start    pipelineStart    `cmd:"" help:"Have the deployed version run again."`
	Stop     pipelineStop     `cmd:"" help:"Have no more runs begin."`
	Rollback pipelineRollback `cmd:"" help:"Deploy an older version again."`
	Versions pipelineVersions `cmd:"" help:"The versions of a pipeline."`
	Diff     pipelineDiff     `cmd:"" help:"What differs between two versions."`
	Run      pipelineRun      `cmd:"" help:"Start a run by hand, or try one dry."`
	Delete   pipelineDelete   `cmd:"" help:"Delete a pipeline with its versions."`
}

// pipelineShown is what REST tells of a pipeline.
type pipelineShown struct {
	ID          string          `json:"id"`
	Name        string          `json:"name"`
	Workspace   string          `json:"workspace"`
	Description string          `json:"description"`
	State       string          `json:"state"`
	Version     int             `json:"version"`
	Latest      int             `json:"latest"`
	Changed     bool            `json:"changed"`
	Updated     string          `json:"updated"`
	By          string          `json:"by"`
	Definition  json.RawMessage `json:"definition"`
	Warnings    []faultShown    `json:"warnings"`
}

// faultShown is one fault of a definition.
type faultShown struct {
	Node     string `json:"node"`
	Field    string `json:"field"`
	Code     string `json:"code"`
	Message  string `json:"message"`
	Severity string `json:"severity"`
}

func (f faultShown) String() string {
	where := strings.Trim(f.Node+" "+f.Field, " ")
	if where != "" {
		where += ": "
	}
	if f.Severity == "warning" {
		where = "warning: " + where
	}
	return where + f.Message
}

type pipelineName struct {
	ID string `arg:"" help:"Id of the pipeline."`
}

func (n pipelineName) path(more ...string) string {
	return strings.Join(append([]string{"/pipelines/" + url.PathEscape(n.ID)}, more...), "/")
}

type pipelineList struct {
	State string `enum:"draft,running,stopped," default:"" help:"Only those in this state: draft, running or stopped."`
}

func (c pipelineList) Run(ctx context.Context, con console, g *globals) error {
	box, err := g.connect(con)
	if err != nil {
		return err
	}
	var raw json.RawMessage
	if err := box.call(ctx, http.MethodGet, "/pipelines", queryOf("state", c.State), nil, &raw); err != nil || g.JSON {
		return errors.Join(err, orPrint(con, raw))
	}
	var list struct{ Pipelines []pipelineShown }
	if err := json.Unmarshal(raw, &list); err != nil {
		return err
	}
	w := tabwriter.NewWriter(con.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tSTATE\tVERSION\tDRAFT\tNAME")
	for _, p := range list.Pipelines {
		draft := "-"
		if p.Changed {
			draft = "changed"
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\n", p.ID, p.State, p.Version, draft, shorten(p.Name, 48))
	}
	return w.Flush()
}

// orPrint prints an answer, if there is one.
func orPrint(con console, raw json.RawMessage) error {
	if raw == nil {
		return nil
	}
	return printRaw(con, raw)
}

func queryOf(pairs ...string) url.Values {
	q := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	return q
}

type pipelineShow struct{ pipelineName }

func (c pipelineShow) Run(ctx context.Context, con console, g *globals) error {
	box, err := g.connect(con)
	if err != nil {
		return err
	}
	var raw json.RawMessage
	if err := box.call(ctx, http.MethodGet, c.path(), nil, nil, &raw); err != nil || g.JSON {
		return errors.Join(err, orPrint(con, raw))
	}
	var p pipelineShown
	if err := json.Unmarshal(raw, &p); err != nil {
		return err
	}
	var s struct {
		Runs map[string]uint64 `json:"runs"`
		Mean int64             `json:"mean_us"`
		Max  int64             `json:"max_us"`
	}
	if err := box.call(ctx, http.MethodGet, c.path("stats"), nil, nil, &s); err != nil {
		return err
	}
	w := tabwriter.NewWriter(con.out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "id\t%s\nname\t%s\nworkspace\t%s\nstate\t%s\nversion\t%d of %d\ndraft changed\t%v\nupdated\t%s by %s\n", p.ID, p.Name, p.Workspace, p.State, p.Version, p.Latest, p.Changed, p.Updated, p.By)
	for _, status := range []string{"completed", "completed_with_errors", "failed", "cancelled"} {
		if n := s.Runs[status]; n > 0 || status == "completed" {
			fmt.Fprintf(w, "runs %s\t%d\n", status, n)
		}
	}
	fmt.Fprintf(w, "run time\tmean %d µs, longest %d µs\n", s.Mean, s.Max)
	return w.Flush()
}

// readDefinition reads a definition from a file, YAML or JSON; - is stdin. Its faults of shape are an error of their own.
func readDefinition(con console, file string) (d definition.Definition, err error) {
	var text []byte
	if file == "-" {
		text, err = io.ReadAll(io.LimitReader(con.in, definition.MaxBytes+1))
	} else {
		text, err = os.ReadFile(file)
	}
	if err != nil {
		return d, err
	}
	read := definition.ReadYAML
	if strings.HasSuffix(file, ".json") || bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) {
		read = definition.Read
	}
	d, faults := read(text)
	if definition.Broken(faults) {
		return d, &problem{Detail: "it is no definition", Faults: shownFaults(faults)}
	}
	return d, nil
}

func shownFaults(faults []definition.Fault) []faultShown {
	list := make([]faultShown, len(faults))
	for i, f := range faults {
		list[i] = faultShown{f.Node, f.Field, f.Code, f.Message, f.Severity}
	}
	return list
}

// applied is what became of one file.
type applied struct {
	File     string       `json:"file"`
	ID       string       `json:"id,omitempty"`
	State    string       `json:"state,omitempty"`
	Version  int          `json:"version,omitempty"`
	Warnings []faultShown `json:"warnings,omitempty"`
	Error    string       `json:"error,omitempty"`
	Faults   []faultShown `json:"faults,omitempty"`
}

// failed notes an error.
func (a *applied) failed(err error) {
	a.Error = err.Error()
	var p *problem
	if errors.As(err, &p) {
		a.Error, a.Faults = p.Detail, p.Faults
	}
}

// tell prints what became of files, and fails if one of them failed.
func tellApplied(con console, asJSON bool, results []applied, verb string) error {
	bad := 0
	for _, r := range results {
		if r.Error != "" {
			bad++
		}
	}
	if asJSON {
		if err := json.NewEncoder(con.out).Encode(map[string]any{"results": results}); err != nil {
			return err
		}
	} else {
		for _, r := range results {
			for _, f := range r.Warnings {
				fmt.Fprintf(con.err, "%s: %s\n", r.File, f)
			}
			switch {
			case len(r.Faults) > 0:
				for _, f := range r.Faults {
					fmt.Fprintf(con.err, "%s: %s\n", r.File, f)
				}
			case r.Error != "":
				fmt.Fprintf(con.err, "%s: %s\n", r.File, r.Error)
			default:
				line := fmt.Sprintf("%s %s", verb, r.ID)
				if r.State != "" {
					line += ": " + r.State
				}
				if r.State == "running" {
					line += ", version " + strconv.Itoa(r.Version)
				}
				fmt.Fprintln(con.out, line)
			}
		}
	}
	if bad > 0 {
		return fmt.Errorf("%d of %d refused; the others are as they say", bad, len(results))
	}
	return nil
}

type pipelineValidate struct {
	Files []string `arg:"" name:"file" help:"Definitions, YAML or JSON; - is stdin."`
}

func (c pipelineValidate) Run(ctx context.Context, con console, g *globals) error {
	box, err := g.connect(con)
	if err != nil {
		return err
	}
	results := make([]applied, len(c.Files))
	for i, file := range c.Files {
		r := &results[i]
		r.File = file
		d, err := readDefinition(con, file)
		if err != nil {
			r.failed(err)
			continue
		}
		r.ID = d.ID
		var answer struct {
			Valid  bool
			Faults []faultShown
		}
		if err := box.call(ctx, http.MethodPost, "/pipelines/validate", nil, d, &answer); err != nil {
			return err
		}
		if r.Warnings = answer.Faults; !answer.Valid {
			r.Warnings, r.Error, r.Faults = nil, "it has faults", answer.Faults
		}
	}
	return tellApplied(con, g.JSON, results, "valid")
}

type pipelineApply struct {
	Files   []string `arg:"" name:"file" help:"Definitions, YAML or JSON, one pipeline a file; - is stdin."`
	Deploy  bool     `help:"Deploy each that was saved."`
	Comment string   `help:"Why, for whoever reads the versions."`
}

func (c pipelineApply) Run(ctx context.Context, con console, g *globals) error {
	box, err := g.connect(con)
	if err != nil {
		return err
	}
	results := make([]applied, len(c.Files))
	for i, file := range c.Files {
		r := &results[i]
		r.File = file
		d, err := readDefinition(con, file)
		if err != nil {
			r.failed(err)
			continue
		}
		r.ID = d.ID
		name := pipelineName{d.ID}
		if d.ID == "" {
			r.failed(errors.New("it has no id"))
			continue
		}
		var p pipelineShown
		err = box.call(ctx, http.MethodPut, name.path(), nil, d, &p)
		if err == nil && c.Deploy {
			err = box.call(ctx, http.MethodPost, name.path("deploy"), nil, map[string]string{"comment": c.Comment}, &p)
		}
		if err != nil {
			r.failed(err)
			continue
		}
		r.State, r.Version, r.Warnings = p.State, p.Version, p.Warnings
	}
	return tellApplied(con, g.JSON, results, "saved")
}

type pipelineExport struct {
	ID      string `arg:"" optional:"" help:"Id of the pipeline; left out with --all."`
	All     bool   `help:"Every pipeline, a file each, into the folder of -o."`
	Output  string `short:"o" help:"File to write, or with --all the folder; else stdout." placeholder:"PATH"`
	Version int    `help:"This version instead of the draft."`
	Format  string `enum:"yaml,json" default:"yaml" help:"yaml or json."`
}

func (c pipelineExport) Run(ctx context.Context, con console, g *globals) error {
	if (c.ID == "") == !c.All {
		return usageError{"name a pipeline, or --all"}
	}
	if c.All && (c.Output == "" || c.Version != 0) {
		return usageError{"--all takes -o with a folder, and no --version"}
	}
	box, err := g.connect(con)
	if err != nil {
		return err
	}
	if g.JSON {
		c.Format = "json"
	}
	if !c.All {
		text, err := c.text(ctx, box, c.ID)
		if err != nil {
			return err
		}
		if c.Output == "" {
			_, err = con.out.Write(text)
			return err
		}
		return os.WriteFile(c.Output, text, 0o644)
	}
	var list struct{ Pipelines []pipelineShown }
	if err := box.call(ctx, http.MethodGet, "/pipelines", nil, nil, &list); err != nil {
		return err
	}
	if err := os.MkdirAll(c.Output, 0o755); err != nil {
		return err
	}
	for _, p := range list.Pipelines {
		text, err := c.text(ctx, box, p.ID)
		if err == nil {
			err = os.WriteFile(filepath.Join(c.Output, p.ID+"."+c.Format), text, 0o644)
		}
		if err != nil {
			return err
		}
	}
	fmt.Fprintf(con.out, "%d pipelines in %s\n", len(list.Pipelines), c.Output)
	return nil
}

func (c pipelineExport) text(ctx context.Context, box *remote, id string) ([]byte, error) {
	name := pipelineName{id}
	path := name.path()
	if c.Version != 0 {
		path = name.path("versions", strconv.Itoa(c.Version))
	}
	var p struct{ Definition json.RawMessage }
	if err := box.call(ctx, http.MethodGet, path, nil, nil, &p); err != nil {
		return nil, err
	}
	if c.Format == "json" {
		var out bytes.Buffer
		err := json.Indent(&out, p.Definition, "", "  ")
		return append(out.Bytes(), '\n'), err
	}
	d, faults := definition.Read(p.Definition)
	if definition.Broken(faults) { // a draft in progress: JSON has it as it is
		return nil, &problem{Detail: "the draft is not in the shape of a definition yet; --format json writes it as it is", Faults: shownFaults(faults)}
	}
	return d.YAML(), nil
}
