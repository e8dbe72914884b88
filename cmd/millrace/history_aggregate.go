package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/parquet-go/parquet-go"
)

// aggregate prints aggregates, page by page.
func (c historyGet) aggregate(ctx context.Context, con console, box *remote, format string) error {
	asked := format
	if asked == "parquet" {
		asked = "json"
	}
	var whole bucketsShown
	left := c.Limit
	for next, first := "", true; ; first = false {
		limit := page
		if left > 0 {
			limit = min(limit, left)
		}
		res, err := box.send(ctx, http.MethodGet, "/uns/history", c.query("topic", c.Topic, "from", c.From, "to", c.To, "order", c.Order, "cursor", next, "limit", strconv.Itoa(limit),
			"format", asked, "agg", c.Agg, "every", c.Every, "fill", c.Fill, "tz", c.TZ, "offset", c.Offset), "", nil)
		if err != nil {
			return err
		}
		text, err := io.ReadAll(res.Body)
		if err := errors.Join(err, res.Body.Close()); err != nil {
			return err
		}
		rows := 0
		if asked == "json" {
			if rows, err = whole.add(text); err != nil {
				return err
			}
			next = whole.Next
		} else {
			next = res.Header.Get("Next-Cursor")
			rows = bytes.Count(text, []byte("\n"))
			if head := bytes.IndexByte(text, '\n') + 1; asked == "csv" {
				rows--
				if !first {
					text = text[head:]
				}
			}
			if _, err := con.out.Write(text); err != nil {
				return err
			}
		}
		if left > 0 {
			left -= rows
		}
		if next == "" || c.Limit > 0 && left <= 0 {
			break
		}
	}
	switch format {
	case "json":
		return json.NewEncoder(con.out).Encode(whole)
	case "parquet":
		return whole.parquet(con.out)
	}
	return nil
}

// bucketsShown is GET /uns/history with aggregates, pages put together.
type bucketsShown struct {
	Topics []*bucketColumns `json:"topics"`
	Next   string           `json:"next"`
}

// bucketColumns is one topic: a name and its columns, in the order they came.
type bucketColumns struct {
	topic, resolution json.RawMessage
	names             []string
	columns           map[string][]json.RawMessage
}

// add takes a page and tells how many buckets it has.
func (b *bucketsShown) add(text []byte) (rows int, err error) {
	var page bucketsShown
	if err := json.Unmarshal(text, &page); err != nil {
		return 0, err
	}
	b.Next = page.Next
	for _, t := range page.Topics {
		rows += len(t.columns["t"])
		if n := len(b.Topics); n > 0 && bytes.Equal(b.Topics[n-1].topic, t.topic) {
			for name, column := range t.columns {
				b.Topics[n-1].columns[name] = append(b.Topics[n-1].columns[name], column...)
			}
			continue
		}
		b.Topics = append(b.Topics, t)
	}
	return rows, nil
}

// UnmarshalJSON keeps the order of the columns.
func (c *bucketColumns) UnmarshalJSON(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	if _, err := d.Token(); err != nil {
		return err
	}
	c.columns = map[string][]json.RawMessage{}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return err
		}
		name, _ := key.(string)
		switch name {
		case "topic":
			err = d.Decode(&c.topic)
		case "resolution":
			err = d.Decode(&c.resolution)
		default:
			var column []json.RawMessage
			err = d.Decode(&column)
			c.names = append(c.names, name)
			c.columns[name] = column
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// MarshalJSON writes what UnmarshalJSON read.
func (c *bucketColumns) MarshalJSON() ([]byte, error) {
	b := append([]byte(`{"topic":`), c.topic...)
	b = append(append(b, `,"resolution":`...), c.resolution...)
	for _, name := range c.names {
		b = append(append(append(b, `,"`...), name...), `":[`...)
		for i, cell := range c.columns[name] {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(b, cell...)
		}
		b = append(b, ']')
	}
	return append(b, '}'), nil
}

// parquet writes the buckets as a table: topic, timestamp, and a column for each function. First and last are the values
// as JSON, all else is float64 or null.
func (b *bucketsShown) parquet(out io.Writer) error {
	group := parquet.Group{"topic": parquet.String(), "timestamp": parquet.Timestamp(parquet.Millisecond)}
	var names []string
	if len(b.Topics) > 0 {
		names = b.Topics[0].names
	}
	isText := func(name string) bool { return name == "first" || name == "last" }
	for _, name := range names {
		switch {
		case name == "t":
		case isText(name):
			group[name] = parquet.Optional(parquet.String())
		default:
			group[name] = parquet.Optional(parquet.Leaf(parquet.DoubleType))
		}
	}
	w := parquet.NewGenericWriter[map[string]any](out, parquet.NewSchema("history", group), parquet.Compression(&parquet.Zstd))
	for _, t := range b.Topics {
		var topic string
		if err := json.Unmarshal(t.topic, &topic); err != nil {
			return err
		}
		for i, stamp := range t.columns["t"] {
			ms, err := strconv.ParseInt(string(stamp), 10, 64)
			if err != nil {
				return err
			}
			row := map[string]any{"topic": topic, "timestamp": time.UnixMilli(ms).UnixMilli()}
			for _, name := range names {
				cell := t.columns[name][i]
				if name == "t" || string(cell) == "null" {
					continue
				}
				if isText(name) {
					row[name] = string(cell)
				} else if row[name], err = strconv.ParseFloat(string(cell), 64); err != nil {
					return err
				}
			}
			if _, err := w.Write([]map[string]any{row}); err != nil {
				return err
			}
		}
	}
	return w.Close()
}
