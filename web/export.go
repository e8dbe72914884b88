package web

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"millrace/auth"
	"millrace/historian"
	"millrace/uns"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
)

const (
	// exportSlots is how many exports run at once; more are told to come back.
	exportSlots = 2
	// exportBytes is how much of an export is gathered before it is sent.
	exportBytes = 256 << 10
	// exportPause is how long a client may take for that, before its export ends.
	exportPause = 30 * time.Second
)

type exportIn struct {
	WorkspaceParam
	Topic  []string `query:"topic,explode" doc:"Path or full topic; may be given several times" maxItems:"1000"`
	Filter string   `query:"filter" doc:"Instead of topic: every topic that matches, in path order" maxLength:"2048"`
	From   string   `query:"from" doc:"First moment: RFC 3339, epoch ms, or relative as -6h or -7d" default:"-1h" maxLength:"64"`
	To     string   `query:"to" doc:"End, exclusive; as from" default:"now" maxLength:"64"`
	Format string   `query:"format" enum:"csv,ndjson,parquet" default:"csv" doc:"csv and ndjson: topic, timestamp, value, quality. parquet: those, and number"`
	Limit  int      `query:"limit" doc:"At most so many values, 0 for all; the trailer Next-Cursor tells where to go on" minimum:"0"`
	Cursor string   `query:"cursor" doc:"The Next-Cursor of the part before; it keeps from and to" maxLength:"8192"`
	Start  string   `query:"start" doc:"After a broken transfer: begin with this topic, the last one that arrived" maxLength:"2048"`
	Since  string   `query:"since" doc:"With start: begin within that topic at this time, inclusive: the timestamp of the last row" maxLength:"64"`
}

// exporter takes the samples of an export, topic by topic, and writes them out now and then.
type exporter interface {
	contentType() string
	topic(path string)
	rows(samples []historian.Sample) error
	// end writes what is left.
	end() error
}

func (w *Web) addExport() {
	pool := &sheets{}
	register(w, route{method: http.MethodGet, path: "/uns/export", id: "export-history", tag: "UNS",
		rule: rule{role: auth.RoleViewer, clients: true}, missing: true, summary: "Download stored values",
		doc: "All values of the window as one stream, topic by topic, each in order of time: for files, where `GET /uns/history` is for pages. " +
			"It needs little memory on the box and ends when the client goes away. A stream that ends early ends with a broken connection, never " +
			"quietly; `start` and `since` go on from the last row that arrived. The headers Export-Topics, Export-From and Export-To (ms since 1970) tell how much to expect. When too many exports run: 503 and Retry-After.",
		gives: map[string]any{"text/csv": nil, "application/x-ndjson": nil, "application/vnd.apache.parquet": nil}},
		func(ctx context.Context, c *caller, in *exportIn) (*historyOut, error) {
			ask, err := w.parseExport(c, in)
			if err != nil {
				return nil, err
			}
			select {
			case w.exports <- struct{}{}:
			default:
				return nil, errExports
			}
			return &historyOut{Body: func(ctx huma.Context) {
				defer func() { <-w.exports }()
				_, rw := humago.Unwrap(ctx)
				s := pool.get()
				defer pool.put(s)
				w.export(ctx.Context(), rw, s, c, ask, in)
			}}, nil
		})
}

// parseExport checks a request; its topics are those of the first page.
func (w *Web) parseExport(c *caller, in *exportIn) (span, error) {
	if (in.Since != "" || in.Cursor != "") && in.Start != "" == (in.Cursor != "") {
		return span{}, invalid("start", "start and since go together and not with a cursor", "give start and since, or cursor")
	}
	ask, err := w.parseHistory(c, &historyIn{WorkspaceParam: in.WorkspaceParam, Topic: in.Topic, Filter: in.Filter, From: in.From, To: in.To,
		Cursor: in.Cursor, Order: "asc", Format: in.Format, Limit: in.Limit})
	if err != nil || in.Start == "" {
		return ask, err
	}
	// A start is a cursor that the client makes itself.
	if ask.path, err = w.path(ask.workspace, in.Start); err != nil {
		p := problemOf(err)
		p.Field = "start"
		return span{}, p
	}
	at := ask.from
	if in.Since != "" {
		var ok bool
		if at, ok = parseMoment(in.Since, w.now()); !ok {
			return span{}, invalid("since", fmt.Sprintf("%q is not a time", in.Since), "send the timestamp of the last row")
		}
	}
	// Behind the last place of the moment before: all of this one.
	ask.after = &historian.Cursor{Time: max(at, ask.from, math.MinInt64+1) - 1, Ord: 1<<32 - 1}
	ask.topics, ask.more = nil, false
	if in.Filter != "" {
		err = w.matchTopics(c, &ask, in.Filter)
	} else {
		err = w.nameTopics(c, &ask, in.Topic)
	}
	if errors.Is(err, errCursor) {
		return span{}, invalid("start", "start is none of the topics asked for", "send the topic of the last row")
	}
	return ask, err
}

// export streams what was asked for. A failure cuts the connection: nothing else tells that the file is not whole.
func (w *Web) export(ctx context.Context, rw http.ResponseWriter, s *sheet, c *caller, a span, in *exportIn) {
	out := &paced{rw: rw, control: http.NewResponseController(rw), metrics: w.metrics}
	var e exporter
	switch in.Format {
	case "ndjson":
		e = &textExport{out: out, s: s, form: lines{}}
	case "parquet":
		e = newParquetExport(out)
	default:
		e = &textExport{out: out, s: s, form: table{}}
	}
	rw.Header().Set("Content-Type", e.contentType())
	rw.Header().Set("Trailer", "Next-Cursor")
	for name, value := range map[string]int64{"Export-Topics": int64(w.countTopics(c, &a, in)), "Export-From": floorMillis(a.from), "Export-To": floorMillis(a.to)} {
		rw.Header().Set(name, strconv.FormatInt(value, 10))
	}
	rw.WriteHeader(http.StatusOK)
	next, err := w.writeExport(ctx, s, e, c, a, in)
	if err == nil {
		err = e.end()
	}
	if err != nil {
		if ctx.Err() == nil && !errors.Is(err, errGone) {
			w.log.Error("export failed; the connection is cut", "format", in.Format, "error", err)
		}
		panic(http.ErrAbortHandler)
	}
	rw.Header().Set("Next-Cursor", next)
}

// countTopics is how many topics an export has, for whoever shows its progress.
func (w *Web) countTopics(c *caller, a *span, in *exportIn) int {
	n := len(a.topics)
	if !a.more {
		return n
	}
	w.parts.Catalog.Match(a.workspace, in.Filter, a.topics[n-1].Path, func(t *uns.Topic) bool {
		if c.mayRead(t.Path) {
			n++
		}
		return n < maxScan
	})
	return n
}

func (w *Web) writeExport(ctx context.Context, s *sheet, e exporter, c *caller, a span, in *exportIn) (next string, err error) {
	left := a.limit
	for {
		after := a.after
		for _, t := range a.topics {
			e.topic(t.Path)
			chunk := w.firstChunk(t)
			for {
				q := historian.Query{Series: t.Series, From: a.from, To: a.to, Limit: chunk, After: after}
				if left > 0 {
					q.Limit = min(chunk, left)
				}
				var more *historian.Cursor
				if s.samples, more, err = w.parts.History.Raw(ctx, s.samples[:0], q); err != nil {
					return "", err
				}
				if err := e.rows(s.samples); err != nil {
					return "", err
				}
				if left > 0 {
					if left -= len(s.samples); left == 0 {
						return place{from: a.from, to: a.to, path: t.Path, after: more}.seal(), nil
					}
				}
				chunk = nextChunk(s.samples, chunk)
				if after = more; more == nil {
					break
				}
			}
		}
		if !a.more {
			return "", nil
		}
		a.path, a.after, a.more = a.topics[len(a.topics)-1].Path, nil, false
		a.topics = a.topics[:0]
		if err := w.matchTopics(c, &a, in.Filter); err != nil {
			return "", err
		}
	}
}

// errGone: the client did not take its export.
var errGone = errors.New("web: the client has gone")

// paced writes with a deadline for each piece instead of one for the whole.
type paced struct {
	rw      http.ResponseWriter
	control *http.ResponseController
	metrics *metrics
}

// Write sends a piece.
func (p *paced) Write(b []byte) (int, error) {
	// Where the connection has no deadlines the server's own holds.
	_ = p.control.SetWriteDeadline(time.Now().Add(exportPause))
	n, err := p.rw.Write(b)
	p.metrics.exported.Add(float64(n))
	if err != nil {
		return n, errors.Join(errGone, err)
	}
	return n, nil
}

// textExport writes csv or ndjson.
type textExport struct {
	out   *paced
	s     *sheet
	form  layout
	begun bool
}

func (t *textExport) contentType() string { return t.form.contentType() }

func (t *textExport) topic(path string) {
	t.begin()
	t.form.topic(t.s, path, false)
}

func (t *textExport) begin() {
	if !t.begun {
		t.form.begin(t.s)
		t.begun = true
	}
}

func (t *textExport) rows(samples []historian.Sample) error {
	t.form.rows(t.s, samples, false)
	if len(t.s.out) < exportBytes {
		return nil
	}
	return t.flush()
}

func (t *textExport) flush() error {
	_, err := t.out.Write(t.s.out)
	t.s.out = t.s.out[:0]
	return err
}

func (t *textExport) end() error {
	t.begin()
	return t.flush()
}
