package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"
)

type topicCommand struct {
	List       topicList       `cmd:"" help:"Topics with their last value."`
	Show       topicShow       `cmd:"" help:"One topic: settings and last value."`
	Delete     topicDelete     `cmd:"" help:"Delete a topic with its history."`
	Violations topicViolations `cmd:"" help:"Values that topics did not take as they came: refused, or stored as uncertain."`
	Set        topicSet        `cmd:"" help:"Change schema, unit, retention or time rules; creates the topic if it is new."`
}

type workspaceFlag struct {
	Workspace string `help:"Workspace (default: the box's first)."`
}

func (w workspaceFlag) query(pairs ...string) url.Values {
	q := url.Values{}
	if w.Workspace != "" {
		q.Set("workspace", w.Workspace)
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Add(pairs[i], pairs[i+1])
		}
	}
	return q
}

type topicList struct {
	workspaceFlag
	Filter string `arg:"" optional:"" default:"#" help:"MQTT filter over paths."`
}

// latestShown is one row of GET /uns/latest.
type latestShown struct {
	Topic     string          `json:"topic"`
	Value     json.RawMessage `json:"value"`
	Timestamp string          `json:"timestamp"`
	Quality   string          `json:"quality"`
}

func (c topicList) Run(ctx context.Context, con console, g *globals) error {
	box, err := g.connect(con)
	if err != nil {
		return err
	}
	rows := []latestShown{}
	for next := ""; ; {
		var page struct {
			Topics []latestShown `json:"topics"`
			Next   string        `json:"next"`
		}
		if err := box.call(ctx, http.MethodGet, "/uns/latest", c.query("filter", c.Filter, "cursor", next), nil, &page); err != nil {
			return err
		}
		rows = append(rows, page.Topics...)
		if next = page.Next; next == "" {
			break
		}
	}
	if g.JSON {
		return json.NewEncoder(con.out).Encode(map[string]any{"topics": rows})
	}
	w := tabwriter.NewWriter(con.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TOPIC\tVALUE\tQUALITY\tTIMESTAMP")
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", r.Topic, shorten(string(r.Value), 48), r.Quality, r.Timestamp)
	}
	return w.Flush()
}

// shorten cuts a text for a table, at a character's edge.
func shorten(s string, most int) string {
	runes := []rune(s)
	if len(runes) <= most {
		return s
	}
	return string(runes[:most-1]) + "…"
}

type topicShow struct {
	workspaceFlag
	Topic string `arg:"" help:"Path, or full topic."`
}

func (c topicShow) Run(ctx context.Context, con console, g *globals) error {
	return c.topic(ctx, con, g, http.MethodGet, c.Topic, nil)
}

// topic makes a call that answers with the topic, and prints it.
func (w workspaceFlag) topic(ctx context.Context, con console, g *globals, method, topic string, in any) error {
	box, err := g.connect(con)
	if err != nil {
		return err
	}
	var raw json.RawMessage
	if err := box.call(ctx, method, "/uns/topic", w.query("topic", topic), in, &raw); err != nil {
		return err
	}
	if !g.JSON {
		var pretty map[string]json.RawMessage
		if err := json.Unmarshal(raw, &pretty); err != nil {
			return err
		}
		t := tabwriter.NewWriter(con.out, 0, 0, 2, ' ', 0)
		for _, key := range []string{"topic", "workspace", "value", "timestamp", "quality", "schema", "retention", "timestampUnit", "timeZone", "expectedInterval", "latest", "stale_since", "violations"} {
			if v, ok := pretty[key]; ok && string(v) != "null" && string(v) != `""` {
				fmt.Fprintf(t, "%s\t%s\n", key, strings.Trim(string(v), `"`))
			}
		}
		return t.Flush()
	}
	return printRaw(con, raw)
}

type topicSet struct {
	workspaceFlag
	Topic            string   `arg:"" help:"Path, or full topic."`
	Type             string   `help:"number, integer, boolean, string, object, array, any, text or bytes."`
	Unit             string   `help:"Unit, such as °C."`
	Min              string   `help:"Smallest number allowed."`
	Max              string   `help:"Largest number allowed."`
	Enum             []string `help:"Values allowed, as JSON. May be repeated." sep:"none"`
	Mode             string   `help:"strict refuses what breaks range or enum; soft stores it as uncertain."`
	Retention        string   `help:"1d 7d 14d 32d 90d 366d 1830d forever."`
	TimestampUnit    string   `help:"Unit of numeric timestamps: s ms us ns."`
	TimeZone         string   `help:"Zone of timestamps without one, such as Europe/Berlin."`
	ExpectedInterval string   `help:"How often a value is expected, such as 10s."`
	From             string   `help:"Take the whole JSON document from this file (- is stdin) instead." placeholder:"FILE"`
}

func (c topicSet) Run(ctx context.Context, con console, g *globals) error {
	var in any
	if c.From != "" {
		text, err := readFileOr(con, c.From)
		if err != nil {
			return fmt.Errorf("--from: %w", err)
		}
		in = json.RawMessage(text)
		if !json.Valid(text) {
			return fmt.Errorf("--from: %s is not JSON", c.From)
		}
	} else {
		schema, top := map[string]any{}, map[string]any{}
		put := func(m map[string]any, key, v string) {
			if v != "" {
				m[key] = v
			}
		}
		put(schema, "type", c.Type)
		put(schema, "unit", c.Unit)
		put(schema, "mode", c.Mode)
		for key, v := range map[string]string{"min": c.Min, "max": c.Max} {
			if v == "" {
				continue
			}
			if !json.Valid([]byte(v)) {
				return usageError{fmt.Sprintf("--%s %q is not a number", key, v)}
			}
			schema[key] = json.RawMessage(v)
		}
		var enum []json.RawMessage
		for _, v := range c.Enum {
			if !json.Valid([]byte(v)) {
				text, err := json.Marshal(v)
				if err != nil {
					return err
				}
				v = string(text)
			}
			enum = append(enum, json.RawMessage(v))
		}
		if enum != nil {
			schema["enum"] = enum
		}
		if len(schema) > 0 {
			top["schema"] = schema
		}
		put(top, "retention", c.Retention)
		put(top, "timestampUnit", c.TimestampUnit)
		put(top, "timeZone", c.TimeZone)
		put(top, "expectedInterval", c.ExpectedInterval)
		if len(top) == 0 {
			return usageError{"nothing to set; see the flags"}
		}
		in = top
	}
	return c.topic(ctx, con, g, http.MethodPut, c.Topic, in)
}

type topicDelete struct {
	workspaceFlag
	Topic string `arg:"" help:"Path, or full topic."`
	Purge bool   `help:"Take what it leaves off the disk within minutes, rather than as its retention would have it."`
}

func (c topicDelete) Run(ctx context.Context, con console, g *globals) error {
	box, err := g.connect(con)
	if err != nil {
		return err
	}
	purge := ""
	if c.Purge {
		purge = "true"
	}
	if err := box.call(ctx, http.MethodDelete, "/uns/topic", c.query("topic", c.Topic, "purge", purge), nil, nil); err != nil {
		return err
	}
	if g.JSON {
		return json.NewEncoder(con.out).Encode(map[string]string{"deleted": c.Topic})
	}
	_, err = fmt.Fprintf(con.out, "deleted %s\n", c.Topic)
	return err
}
