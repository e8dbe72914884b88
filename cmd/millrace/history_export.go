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
	"time"
)

type historyExport struct {
	workspaceFlag
	Topics   []string `arg:"" optional:"" help:"Paths, or full topics."`
	Filter   string   `help:"MQTT filter over paths, instead of topics." placeholder:"line1/#"`
	From     string   `help:"Start, included: RFC 3339, epoch milliseconds, or relative such as -7d (default: the last hour)."`
	To       string   `help:"End, excluded (default: now)."`
	Format   string   `enum:"csv,ndjson,parquet" default:"csv" help:"csv, ndjson or parquet."`
	Output   string   `short:"o" help:"File to write; it appears when it is whole (default: standard output)." placeholder:"FILE"`
	Progress bool     `help:"Tell the progress on stderr also where it is no terminal, or with the output in a pipe."`
}

// Run streams the export. A file gets its name when it is whole, so that half of one is never taken for all of it.
func (c historyExport) Run(ctx context.Context, con console, g *globals) (err error) {
	if (len(c.Topics) == 0) == (c.Filter == "") {
		return usageError{"name either topics or --filter"}
	}
	box, err := g.connect(con)
	if err != nil {
		return err
	}
	q := c.query("filter", c.Filter, "from", c.From, "to", c.To, "format", c.Format)
	for _, t := range c.Topics {
		q.Add("topic", t)
	}
	tell := c.Progress || c.Output != "" && newProgress(con, sizeText).live && !g.JSON
	if c.Output == "" {
		return stream(ctx, con, box, con.out, q, tell)
	}
	f, err := os.CreateTemp(filepath.Dir(c.Output), ".millrace-export-*")
	if err != nil {
		return err
	}
	err = stream(ctx, con, box, f, q, tell)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), c.Output)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// stream copies an export to out.
func stream(ctx context.Context, con console, box *remote, out io.Writer, q url.Values, tell bool) error {
	res, err := box.send(ctx, http.MethodGet, "/uns/export", q, "", nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	var watch *exportWatch
	if tell {
		watch = newExportWatch(con, res.Header, q.Get("format"))
		defer watch.p.end()
	}
	room := make([]byte, 64<<10)
	for {
		n, err := res.Body.Read(room)
		if _, err := out.Write(room[:n]); err != nil {
			return err
		}
		if watch != nil {
			watch.see(room[:n])
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("the export broke off and is not whole: %w", err)
		}
	}
}

// exportWatch follows an export by its rows: they come topic by topic and each in order of time, so the last one tells how
// far it is. Parquet shows its size only.
type exportWatch struct {
	p        *progress
	format   string
	from, to time.Time
	topics   int64
	size     int64
	begun    int64  // topics that had a row
	head     []byte // of the rows of the topic in hand, up to its timestamp
	rest     []byte // of a line that is not whole
	at       time.Time
}

func newExportWatch(con console, h http.Header, format string) *exportWatch {
	number := func(name string) int64 {
		n, _ := strconv.ParseInt(h.Get(name), 10, 64) // without it there is no total
		return n
	}
	w := &exportWatch{format: format, topics: number("Export-Topics"), from: time.UnixMilli(number("Export-From")), to: time.UnixMilli(number("Export-To"))}
	w.p = newProgress(con, func(n int64) string { return fmt.Sprintf("%.1f h of history", float64(n)/3600) })
	if format == "parquet" {
		w.p.unit = sizeText
	}
	return w
}

func (w *exportWatch) see(b []byte) {
	w.size += int64(len(b))
	if w.format == "parquet" {
		w.p.to("export", w.size, 0)
		return
	}
	w.rest = append(w.rest, b...)
	for {
		n := bytes.IndexByte(w.rest, '\n')
		if n < 0 {
			break
		}
		w.line(w.rest[:n])
		w.rest = w.rest[n+1:]
	}
	w.rest = append([]byte(nil), w.rest...)
	window := int64(w.to.Sub(w.from) / time.Second)
	done := max(0, w.begun-1) * window
	if w.begun > 0 {
		done += int64(w.at.Sub(w.from) / time.Second)
	}
	w.p.to("export "+sizeText(w.size), done, w.topics*window)
}

// line takes one row, or a part of one whose text has several lines.
func (w *exportWatch) line(line []byte) {
	var topic, stamp []byte
	if w.format == "ndjson" {
		var row struct{ Topic, Timestamp json.RawMessage }
		if json.Unmarshal(line, &row) != nil {
			return
		}
		topic, stamp = row.Topic, bytes.Trim(row.Timestamp, `"`)
	} else {
		end := bytes.IndexByte(line, ',')
		if len(line) > 0 && line[0] == '"' {
			end = bytes.Index(line, []byte(`",`)) + 1
		}
		if end <= 0 {
			return
		}
		topic = line[:end]
		stamp, _, _ = bytes.Cut(line[end+1:], []byte(","))
	}
	at, err := time.Parse(time.RFC3339Nano, string(stamp))
	if err != nil {
		return
	}
	if !bytes.Equal(topic, w.head) {
		w.head = append(w.head[:0], topic...)
		w.begun++
	}
	w.at = at
}
