package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"text/tabwriter"
)

// change makes a call that answers with the pipeline, and tells what it is now.
func (n pipelineName) change(ctx context.Context, con console, g *globals, verb string, in any) error {
	box, err := g.connect(con)
	if err != nil {
		return err
	}
	var raw json.RawMessage
	if err := box.call(ctx, http.MethodPost, n.path(verb), nil, in, &raw); err != nil || g.JSON {
		return errors.Join(err, orPrint(con, raw))
	}
	var p pipelineShown
	if err := json.Unmarshal(raw, &p); err != nil {
		return err
	}
	for _, f := range p.Warnings {
		fmt.Fprintln(con.err, f)
	}
	_, err = fmt.Fprintf(con.out, "%s is %s, version %d\n", p.ID, p.State, p.Version)
	return err
}

type pipelineDeploy struct {
	pipelineName
	Comment string `help:"Why, for whoever reads the versions."`
}

func (c pipelineDeploy) Run(ctx context.Context, con console, g *globals) error {
	return c.change(ctx, con, g, "deploy", map[string]string{"comment": c.Comment})
}

type pipelineStart struct{ pipelineName }

func (c pipelineStart) Run(ctx context.Context, con console, g *globals) error {
	return c.change(ctx, con, g, "start", nil)
}

type pipelineStop struct{ pipelineName }

func (c pipelineStop) Run(ctx context.Context, con console, g *globals) error {
	return c.change(ctx, con, g, "stop", nil)
}

type pipelineRollback struct {
	pipelineName
	Version int `arg:"" help:"The version to go back to."`
}

func (c pipelineRollback) Run(ctx context.Context, con console, g *globals) error {
	return c.change(ctx, con, g, "rollback", map[string]int{"version": c.Version})
}

type pipelineDelete struct{ pipelineName }

func (c pipelineDelete) Run(ctx context.Context, con console, g *globals) error {
	box, err := g.connect(con)
	if err != nil {
		return err
	}
	if err := box.call(ctx, http.MethodDelete, c.path(), nil, nil, nil); err != nil {
		return err
	}
	if g.JSON {
		return json.NewEncoder(con.out).Encode(map[string]string{"deleted": c.ID})
	}
	_, err = fmt.Fprintf(con.out, "deleted %s\n", c.ID)
	return err
}

type pipelineVersions struct{ pipelineName }

func (c pipelineVersions) Run(ctx context.Context, con console, g *globals) error {
	box, err := g.connect(con)
	if err != nil {
		return err
	}
	var raw json.RawMessage
	if err := box.call(ctx, http.MethodGet, c.path("versions"), nil, nil, &raw); err != nil || g.JSON {
		return errors.Join(err, orPrint(con, raw))
	}
	var list struct {
		Versions []struct {
			Version     int
			Comment, By string
			Created     string
		}
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return err
	}
	w := tabwriter.NewWriter(con.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "VERSION\tCREATED\tBY\tCOMMENT")
	for _, v := range list.Versions {
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\n", v.Version, v.Created, v.By, v.Comment)
	}
	return w.Flush()
}

type pipelineDiff struct {
	pipelineName
	A string `arg:"" optional:"" help:"Version before, or draft (default: the deployed one)."`
	B string `arg:"" optional:"" default:"draft" help:"Version after, or draft."`
}

func (c pipelineDiff) Run(ctx context.Context, con console, g *globals) error {
	box, err := g.connect(con)
	if err != nil {
		return err
	}
	if c.A == "" {
		var p pipelineShown
		if err := box.call(ctx, http.MethodGet, c.path(), nil, nil, &p); err != nil {
			return err
		}
		if p.Version == 0 {
			return fmt.Errorf("%s has no deployed version to compare with; name two versions", c.ID)
		}
		c.A = strconv.Itoa(p.Version)
	}
	var raw json.RawMessage
	if err := box.call(ctx, http.MethodGet, c.path("versions", c.A, "diff", c.B), nil, nil, &raw); err != nil || g.JSON {
		return errors.Join(err, orPrint(con, raw))
	}
	var list struct {
		Differences []struct {
			Kind, What, Node, Field string
			Was, Is                 json.RawMessage
		}
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return err
	}
	for _, d := range list.Differences {
		fmt.Fprintln(con.out, strings.Join(strings.Fields(fmt.Sprintf("%s %s %s %s", d.What, d.Kind, d.Node, d.Field)), " "))
		if len(d.Was) > 0 {
			fmt.Fprintf(con.out, "  - %s\n", d.Was)
		}
		if len(d.Is) > 0 {
			fmt.Fprintf(con.out, "  + %s\n", d.Is)
		}
	}
	if len(list.Differences) == 0 {
		fmt.Fprintln(con.out, "no difference")
	}
	return nil
}

type pipelineRun struct {
	pipelineName
	Trigger string `help:"Id of the trigger node to begin with (default: the first)."`
	Value   string `help:"What the run gets, as JSON." placeholder:"JSON"`
	Topic   string `help:"With --dry: what $$trigger.topic is."`
	Dry     bool   `help:"Run the draft in memory: nothing is stored or sent; print the trace."`
}

func (c pipelineRun) Run(ctx context.Context, con console, g *globals) error {
	body := map[string]any{}
	if c.Trigger != "" {
		body["trigger"] = c.Trigger
	}
	if c.Value != "" {
		if !json.Valid([]byte(c.Value)) {
			return usageError{fmt.Sprintf("--value %s is no JSON; a text needs quotes within quotes: '\"text\"'", c.Value)}
		}
		body["value"] = json.RawMessage(c.Value)
	}
	if c.Topic != "" {
		if !c.Dry {
			return usageError{"--topic is for --dry"}
		}
		body["topic"] = c.Topic
	}
	box, err := g.connect(con)
	if err != nil {
		return err
	}
	verb := "run"
	if c.Dry {
		verb = "test"
	}
	var raw json.RawMessage
	if err := box.call(ctx, http.MethodPost, c.path(verb), nil, body, &raw); err != nil || g.JSON {
		return errors.Join(err, orPrint(con, raw))
	}
	if !c.Dry {
		var made struct{ Run string }
		if err := json.Unmarshal(raw, &made); err != nil {
			return err
		}
		_, err = fmt.Fprintln(con.out, made.Run)
		return err
	}
	var dry struct {
		Run       runShown
		Published []struct {
			Node, Topic string
			Value       json.RawMessage
			Quality     string
		}
	}
	if err := json.Unmarshal(raw, &dry); err != nil {
		return err
	}
	if err := dry.Run.print(con); err != nil {
		return err
	}
	for _, p := range dry.Published {
		fmt.Fprintf(con.out, "would publish %s = %s (%s), node %s\n", p.Topic, p.Value, p.Quality, p.Node)
	}
	return nil
}
