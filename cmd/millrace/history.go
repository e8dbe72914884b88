package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

type historyCommand struct {
	Get    historyGet    `cmd:"" help:"Stored values of a topic, or aggregates of them, oldest first."`
	Export historyExport `cmd:"" help:"All stored values of some topics as one file."`
}

type historyGet struct {
	workspaceFlag
	Topic  string `arg:"" help:"Path, or full topic."`
	From   string `help:"Start, included: RFC 3339, epoch milliseconds, or relative such as -6h (default: the last hour)."`
	To     string `help:"End, excluded (default: now)."`
	Order  string `enum:"asc,desc" default:"asc" help:"asc or desc."`
	Limit  int    `help:"At most so many values or buckets; 0 = all."`
	Format string `enum:"csv,ndjson,json,parquet" default:"csv" help:"csv, ndjson, json or parquet."`
	Agg    string `help:"Aggregates instead of values, by comma: avg min max sum count first last twa good." placeholder:"FUNCTIONS"`
	Every  string `help:"Length of a bucket: 10s 15m 8h 1d 1w 1mo (default: one of the whole range)."`
	Fill   string `help:"Buckets without values: none, null or prev." placeholder:"none"`
	TZ     string `name:"tz" help:"Time zone on whose clock buckets begin, as Europe/Berlin." placeholder:"UTC"`
	Offset string `help:"Moves the beginning of buckets: --every 8h --offset 6h are shifts from 06:00."`
}

// page is the most values asked for in one call.
const page = 50_000

// Run follows the cursor to the end of the range, so that a long history needs memory for one page only,
// but for json, which is one document.
func (c historyGet) Run(ctx context.Context, con console, g *globals) error {
	if c.Limit < 0 {
		return usageError{fmt.Sprintf("--limit %d is below 0", c.Limit)}
	}
	box, err := g.connect(con)
	if err != nil {
		return err
	}
	format := c.Format
	if g.JSON {
		format = "json"
	}
	switch {
	case c.Agg != "":
		return c.aggregate(ctx, con, box, format)
	case c.Every != "" || c.Fill != "" || c.TZ != "" || c.Offset != "":
		return usageError{"--every, --fill, --tz and --offset are for aggregates; add --agg, as in --agg avg,min,max"}
	case format == "parquet":
		if c.Order != "asc" {
			return usageError{"--format parquet is oldest first only"}
		}
		return stream(ctx, con, box, con.out, c.query("topic", c.Topic, "from", c.From, "to", c.To, "format", format, "limit", strconv.Itoa(c.Limit)), false)
	}
	// the end is fixed before the first page, or a busy topic would never end
	to := c.To
	if to == "" || to == "now" {
		to = "now"
	}
	var whole struct {
		Topics []rawShown `json:"topics"`
		Next   string     `json:"next"`
	}
	left := c.Limit
	for next, first := "", true; ; first = false {
		limit := page
		if left > 0 {
			limit = min(limit, left)
		}
		q := c.query("topic", c.Topic, "from", c.From, "to", to, "order", c.Order, "cursor", next, "limit", strconv.Itoa(limit), "format", "json")
		var got struct {
			Topics []rawShown `json:"topics"`
			Next   string     `json:"next"`
		}
		if err := box.call(ctx, http.MethodGet, "/uns/history", q, nil, &got); err != nil {
			return err
		}
		n := 0
		for _, t := range got.Topics {
			n += len(t.T)
			if format != "json" {
				if err := t.write(con.out, format, first); err != nil {
					return err
				}
				continue
			}
			if len(whole.Topics) == 0 {
				whole.Topics = append(whole.Topics, t)
			} else {
				w := &whole.Topics[0]
				w.T, w.V, w.Q = append(w.T, t.T...), append(w.V, t.V...), append(w.Q, t.Q...)
			}
		}
		if left > 0 {
			if left -= n; left <= 0 {
				whole.Next = got.Next
				break
			}
		}
		if next = got.Next; next == "" {
			break
		}
	}
	if format == "json" {
		if whole.Topics == nil {
			whole.Topics = []rawShown{}
		}
		return json.NewEncoder(con.out).Encode(whole)
	}
	return nil
}

// rawShown is one topic of GET /uns/history without aggregates.
type rawShown struct {
	Topic      string            `json:"topic"`
	Resolution string            `json:"resolution"`
	T          []json.RawMessage `json:"t"`
	V          []json.RawMessage `json:"v"`
	Q          []string          `json:"q"`
}

func (t rawShown) write(out io.Writer, format string, first bool) error {
	if format == "csv" && first {
		if _, err := io.WriteString(out, "topic,timestamp,value,quality\n"); err != nil {
			return err
		}
	}
	for i := range t.T {
		stamp, err := stampText(t.T[i])
		if err != nil {
			return err
		}
		if format == "csv" {
			_, err = fmt.Fprintf(out, "%s,%s,%s,%s\n", csvCell(t.Topic), stamp, csvCell(csvValue(t.V[i])), t.Q[i])
		} else {
			topic, _ := json.Marshal(t.Topic)
			_, err = fmt.Fprintf(out, `{"topic":%s,"timestamp":"%s","value":%s,"quality":"%s"}`+"\n", topic, stamp, t.V[i], t.Q[i])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// stampText gives a time of the JSON form, epoch milliseconds or RFC 3339, as RFC 3339.
func stampText(t json.RawMessage) (string, error) {
	if len(t) > 0 && t[0] == '"' {
		var s string
		err := json.Unmarshal(t, &s)
		return s, err
	}
	ms, err := strconv.ParseInt(string(t), 10, 64)
	if err != nil {
		return "", fmt.Errorf("the answer holds %s where a time belongs", t)
	}
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z07:00"), nil
}

// csvValue writes text without its JSON quotes and everything else as its JSON.
func csvValue(v json.RawMessage) string {
	var s string
	if len(v) > 0 && v[0] == '"' && json.Unmarshal(v, &s) == nil {
		return s
	}
	return string(v)
}

// csvCell quotes as RFC 4180 wants it.
func csvCell(s string) string {
	if strings.ContainsAny(s, "\",\r\n") {
		return `"` + strings.ReplaceAll(s, `"`, `""`) + `"`
	}
	return s
}
