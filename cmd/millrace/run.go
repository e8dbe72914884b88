package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

type runCommand struct {
	List   runList   `cmd:"" help:"Runs of a pipeline, the newest first."`
	Show   runShow   `cmd:"" help:"One run with its trace."`
	Replay runReplay `cmd:"" help:"Run a kept run once more."`
	Cancel runCancel `cmd:"" help:"Cancel a run that waits or executes."`
}

// runShown is what REST tells of a run.
type runShown struct {
	ID       string `json:"id"`
	Pipeline string `json:"pipeline"`
	Version  int    `json:"version"`
	Status   string `json:"status"`
	Mode     string `json:"mode"`
	Trigger  struct {
		Topic     string          `json:"topic"`
		Value     json.RawMessage `json:"value"`
		Timestamp string          `json:"timestamp"`
	} `json:"trigger"`
	Started  string `json:"started"`
	Duration int64  `json:"duration_us"`
	Attempt  int    `json:"attempt"`
	Counted  int    `json:"counted"`
	Error    string `json:"error"`
	Nodes    []struct {
		ID       string          `json:"id"`
		Status   string          `json:"status"`
		Duration int64           `json:"duration_us"`
		In       json.RawMessage `json:"in"`
		Out      json.RawMessage `json:"out"`
		Error    *struct {
			Message      string
			Line, Column int
		} `json:"error"`
	} `json:"nodes"`
	Log []struct{ Node, Level, Text string } `json:"log"`
}

// print shows the trace.
func (r *runShown) print(con console) error {
	w := tabwriter.NewWriter(con.out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "run\t%s of %s, version %d, %s\nstatus\t%s\nstarted\t%s\ntook\t%v\ntrigger\t%s %s %s\n", r.ID, r.Pipeline, r.Version, r.Mode, r.Status, r.Started,
		time.Duration(r.Duration)*time.Microsecond, r.Trigger.Topic, shorten(string(r.Trigger.Value), 60), r.Trigger.Timestamp)
	if r.Error != "" {
		fmt.Fprintf(w, "error\t%s\n", r.Error)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	w = tabwriter.NewWriter(con.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NODE\tSTATUS\tTOOK\tIN\tOUT")
	for _, n := range r.Nodes {
		out := shorten(string(n.Out), 48)
		if n.Error != nil {
			if out = n.Error.Message; n.Error.Line > 0 {
				out += fmt.Sprintf(" (line %d, column %d)", n.Error.Line, n.Error.Column)
			}
		}
		fmt.Fprintf(w, "%s\t%s\t%v\t%s\t%s\n", n.ID, n.Status, time.Duration(n.Duration)*time.Microsecond, shorten(string(n.In), 48), out)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, l := range r.Log {
		fmt.Fprintf(con.out, "%s %s: %s\n", l.Node, l.Level, l.Text)
	}
	return nil
}

type runList struct {
	Pipeline string `arg:"" help:"Id of the pipeline."`
	Status   string `enum:"completed,failed,completed_with_errors,cancelled," default:"" help:"Only those that ended so: completed, failed, completed_with_errors or cancelled."`
	From     string `help:"First start: RFC 3339, ms since 1970, or relative as -6h."`
	To       string `help:"End, exclusive; as --from."`
	Limit    int    `default:"50" help:"At most so many; 0 for all."`
}

func (c runList) Run(ctx context.Context, con console, g *globals) error {
	box, err := g.connect(con)
	if err != nil {
		return err
	}
	rows := []json.RawMessage{}
	for next := ""; ; {
		var page struct {
			Runs []json.RawMessage
			Next string
		}
		limit := 1000
		if c.Limit > 0 {
			limit = min(limit, c.Limit-len(rows))
		}
		q := queryOf("status", c.Status, "from", c.From, "to", c.To, "cursor", next, "limit", strconv.Itoa(limit))
		if err := box.call(ctx, http.MethodGet, pipelineName{c.Pipeline}.path("runs"), q, nil, &page); err != nil {
			return err
		}
		rows = append(rows, page.Runs...)
		if next = page.Next; next == "" || c.Limit > 0 && len(rows) >= c.Limit {
			break
		}
	}
	if g.JSON {
		return json.NewEncoder(con.out).Encode(map[string]any{"runs": rows})
	}
	w := tabwriter.NewWriter(con.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "RUN\tSTATUS\tSTARTED\tTOOK\tFOR\tVERSION\tTRIGGER")
	for _, raw := range rows {
		var r runShown
		if err := json.Unmarshal(raw, &r); err != nil {
			return err
		}
		trigger := strings.TrimSpace(r.Trigger.Topic + " " + shorten(string(r.Trigger.Value), 32))
		if r.Error != "" {
			trigger += "  " + shorten(r.Error, 60)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%v\t%d\t%d\t%s\n", r.ID, r.Status, r.Started, time.Duration(r.Duration)*time.Microsecond, r.Counted, r.Version, trigger)
	}
	return w.Flush()
}

type runName struct {
	ID string `arg:"" help:"Id of the run."`
}

func (n runName) path() string { return "/runs/" + url.PathEscape(n.ID) }

type runShow struct{ runName }

func (c runShow) Run(ctx context.Context, con console, g *globals) error {
	box, err := g.connect(con)
	if err != nil {
		return err
	}
	var raw json.RawMessage
	if err := box.call(ctx, http.MethodGet, c.path(), nil, nil, &raw); err != nil || g.JSON {
		return errors.Join(err, orPrint(con, raw))
	}
	var r runShown
	if err := json.Unmarshal(raw, &r); err != nil {
		return err
	}
	return r.print(con)
}

type runReplay struct {
	runName
	Version string `default:"original" help:"original, current, or the number of a version."`
	Value   string `help:"Instead of the value that started the run, as JSON." placeholder:"JSON"`
}

func (c runReplay) Run(ctx context.Context, con console, g *globals) error {
	body := map[string]any{"version": c.Version}
	if c.Value != "" {
		if !json.Valid([]byte(c.Value)) {
			return usageError{fmt.Sprintf("--value %s is no JSON; a text needs quotes within quotes: '\"text\"'", c.Value)}
		}
		body["value"] = json.RawMessage(c.Value)
	}
	box, err := g.connect(con)
	if err != nil {
		return err
	}
	var raw json.RawMessage
	if err := box.call(ctx, http.MethodPost, c.path()+"/replay", nil, body, &raw); err != nil || g.JSON {
		return errors.Join(err, orPrint(con, raw))
	}
	var made struct{ Run string }
	if err := json.Unmarshal(raw, &made); err != nil {
		return err
	}
	_, err = fmt.Fprintln(con.out, made.Run)
	return err
}

type runCancel struct{ runName }

func (c runCancel) Run(ctx context.Context, con console, g *globals) error {
	box, err := g.connect(con)
	if err != nil {
		return err
	}
	if err := box.call(ctx, http.MethodPost, c.path()+"/cancel", nil, nil, nil); err != nil {
		return err
	}
	if g.JSON {
		return json.NewEncoder(con.out).Encode(map[string]string{"cancelled": c.ID})
	}
	_, err = fmt.Fprintf(con.out, "cancelled %s\n", c.ID)
	return err
}
