package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

type topicViolations struct {
	workspaceFlag
	Filter string `arg:"" optional:"" default:"#" help:"MQTT filter over paths."`
}

func (c topicViolations) Run(ctx context.Context, con console, g *globals) error {
	box, err := g.connect(con)
	if err != nil {
		return err
	}
	type violation struct {
		Time                                    time.Time
		Client, Status, Reason, Detail, Payload string
	}
	type violated struct {
		Topic string
		Count uint64
		Last  []violation
	}
	var topics []json.RawMessage
	for next := ""; ; {
		var page struct {
			Topics []json.RawMessage
			Next   string
		}
		if err := box.call(ctx, http.MethodGet, "/uns/violations", c.query("filter", c.Filter, "cursor", next), nil, &page); err != nil {
			return err
		}
		topics = append(topics, page.Topics...)
		if next = page.Next; next == "" {
			break
		}
	}
	if g.JSON {
		return json.NewEncoder(con.out).Encode(map[string]any{"topics": slices.Concat([]json.RawMessage{}, topics)})
	}
	w := tabwriter.NewWriter(con.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TOPIC\tCOUNT\tTIME\tCLIENT\tWHY")
	for _, raw := range topics {
		var t violated
		if err := json.Unmarshal(raw, &t); err != nil {
			return err
		}
		for i, v := range t.Last {
			name, count, why := t.Topic, fmt.Sprint(t.Count), v.Detail
			if i > 0 {
				name, count = "", ""
			}
			if v.Status == "uncertain" {
				why += " (stored as uncertain)"
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", name, count, v.Time.UTC().Format(time.RFC3339), v.Client, why)
		}
	}
	return w.Flush()
}

type clientLedger struct {
	clientName
	From string `help:"First moment: RFC 3339, epoch ms, or relative as -6h or -7d." default:"-24h"`
	To   string `help:"End, exclusive; as --from." default:"now"`
}

func (c clientLedger) Run(ctx context.Context, con console, g *globals) error {
	box, err := g.connect(con)
	if err != nil {
		return err
	}
	var raw json.RawMessage
	if err := box.call(ctx, http.MethodGet, c.path()+"/ledger", url.Values{"from": {c.From}, "to": {c.To}}, nil, &raw); err != nil {
		return err
	}
	if g.JSON {
		return printRaw(con, raw)
	}
	type counts struct {
		Accepted, Late, Duplicate, Gaps uint64
		GapS                            float64 `json:"gap_s"`
		Refused                         map[string]uint64
	}
	var ledger struct {
		Hours []struct {
			Hour time.Time
			counts
		}
		Total counts
	}
	if err := json.Unmarshal(raw, &ledger); err != nil {
		return err
	}
	w := tabwriter.NewWriter(con.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "HOUR\tSTORED\tLATE\tDUPLICATE\tGAPS\tSILENT\tREFUSED")
	row := func(hour string, n counts) {
		var refused []string
		for _, why := range slices.Sorted(maps.Keys(n.Refused)) {
			refused = append(refused, fmt.Sprintf("%d %s", n.Refused[why], why))
		}
		silent := time.Duration(n.GapS * float64(time.Second)).Round(time.Second)
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%s\t%s\n", hour, n.Accepted, n.Late, n.Duplicate, n.Gaps, silent, strings.Join(refused, ", "))
	}
	for _, h := range ledger.Hours {
		row(h.Hour.Format(time.RFC3339), h.counts)
	}
	row("total", ledger.Total)
	return w.Flush()
}
