package web

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"millrace/auth"
	"millrace/historian"
	"millrace/uns"

	"github.com/danielgtaylor/huma/v2"
)

const (
	// maxHistoryTopics bounds the topics of one page.
	maxHistoryTopics = 1_000
	// chunkBytes is about how much one read of the historian may hold in memory.
	chunkBytes = 1 << 20
	minChunk   = 16
	maxChunk   = 4096
)

// HistoryPage documents the JSON answer of GET /uns/history.
type HistoryPage struct {
	Topics []HistoryTopic `json:"topics" doc:"In the order asked for, or by path for a filter"`
	Next   string         `json:"next" doc:"Cursor of the next page, or empty. csv and ndjson have it in the header Next-Cursor"`
}

// HistoryTopic documents the columns of one topic: entry i of t, v and q belong together.
type HistoryTopic struct {
	Topic      string   `json:"topic" doc:"Path within the workspace"`
	Resolution string   `json:"resolution" doc:"raw: every value as it was stored; with agg what was given as every, or window"`
	T          []any    `json:"t" doc:"Times: milliseconds since 1970, or RFC 3339 text where the topic has finer ones. With agg: where the buckets begin"`
	V          []any    `json:"v,omitempty" doc:"Values, digit for digit; not with agg"`
	Q          []string `json:"q,omitempty" doc:"Qualities: good, uncertain, bad; not with agg"`
	Avg        []any    `json:"avg,omitempty" doc:"Mean of the numbers of each bucket; null where there is none, as in all that follow"`
	Min        []any    `json:"min,omitempty" doc:"Least number, digit for digit"`
	Max        []any    `json:"max,omitempty" doc:"Greatest number"`
	Sum        []any    `json:"sum,omitempty" doc:"Sum, exact for decimals"`
	Count      []any    `json:"count,omitempty" doc:"How many values, bad ones too"`
	First      []any    `json:"first,omitempty" doc:"First value that is not bad"`
	Last       []any    `json:"last,omitempty" doc:"Last value that is not bad"`
	TWA        []any    `json:"twa,omitempty" doc:"Mean weighted by how long each number stood"`
	Good       []any    `json:"good,omitempty" doc:"Percent of values of good quality"`
}

type historyIn struct {
	WorkspaceParam
	Topic  []string `query:"topic,explode" doc:"Path or full topic; may be given several times" maxItems:"1000"`
	Filter string   `query:"filter" doc:"Instead of topic: every topic that matches, in path order" maxLength:"2048"`
	From   string   `query:"from" doc:"First moment: RFC 3339, epoch ms, or relative as -6h or -7d" default:"-1h" maxLength:"64"`
	To     string   `query:"to" doc:"End, exclusive; as from" default:"now" maxLength:"64"`
	Limit  int      `query:"limit" doc:"Values on one page, over all topics; a page of large values may end earlier" default:"10000" minimum:"1" maximum:"100000"`
	Cursor string   `query:"cursor" doc:"The next of the page before; it keeps from and to of the first page" maxLength:"8192"`
	Order  string   `query:"order" enum:"asc,desc" default:"asc" doc:"By time within a topic"`
	Format string   `query:"format" enum:"json,ndjson,csv" default:"json" doc:"csv and ndjson: topic, timestamp, value, quality; with agg topic, timestamp and the functions"`
	AggregateParams
}

// historyOut streams its text, so that the pooled sheet goes back once it is written.
type historyOut struct {
	Body func(huma.Context)
}

// span is a history request after all checks.
type span struct {
	workspace string
	topics    []*uns.Topic
	more      bool // topics beyond the list wait for the next page
	place
	limit int
	grouping
}

func (w *Web) addHistory() {
	layouts := map[string]layout{"json": columns{}, "ndjson": lines{}, "csv": table{}}
	forms := map[string]form{"json": columnForm{}, "ndjson": lineForm{}, "csv": tableForm{}}
	pool := &sheets{}
	register(w, route{method: http.MethodGet, path: "/uns/history", id: "get-history", tag: "UNS",
		rule: rule{role: auth.RoleViewer, clients: true}, missing: true, summary: "Read stored values",
		doc: "Every value of the window in order of time, values of one time in order of arrival. Give several `topic` or one `filter`. " +
			"Following `next` to the end gives the whole, also while values arrive. With `agg` the window is cut into buckets and each function " +
			"gives one number a bucket: bad values count in count and good only, uncertain ones like good ones, booleans are 0 and 1, and text " +
			"and structures have count, first and last.",
		gives: map[string]any{"application/json": HistoryPage{}, "application/x-ndjson": nil, "text/csv": nil}},
		func(ctx context.Context, c *caller, in *historyIn) (*historyOut, error) {
			ask, err := w.parseHistory(c, in)
			if err != nil {
				return nil, err
			}
			if err := w.reads.enter(ctx); err != nil {
				return nil, err
			}
			defer w.reads.leave()
			layout := layouts[in.Format]
			s := pool.get()
			var next string
			if ask.functions == nil {
				next, err = w.writeHistory(ctx, s, layout, ask)
			} else {
				next, err = w.writeAggregates(ctx, s, forms[in.Format], ask)
			}
			if err != nil {
				pool.put(s)
				return nil, err
			}
			return &historyOut{Body: func(ctx huma.Context) {
				defer pool.put(s)
				ctx.SetHeader("Content-Type", layout.contentType())
				if next != "" {
					ctx.SetHeader("Next-Cursor", next)
				}
				ctx.SetStatus(http.StatusOK)
				ctx.BodyWriter().Write(s.out)
			}}, nil
		})
}

// parseHistory checks a request; the answer names topics the caller may read and a window in ns.
func (w *Web) parseHistory(c *caller, in *historyIn) (span, error) {
	group, err := in.grouping()
	if err != nil {
		return span{}, err
	}
	workspace, err := w.workspace(c, in.Workspace)
	if err != nil {
		return span{}, err
	}
	if (len(in.Topic) == 0) == (in.Filter == "") {
		return span{}, invalid("topic", "give either topic or filter", "as in ?topic=line1/press/temp")
	}
	if group.functions != nil && in.Format == "json" && !slices.Contains(group.functions, good) {
		group.functions = append(group.functions, good)
	}
	ask := span{workspace: workspace, limit: in.Limit, grouping: group}
	if in.Cursor != "" {
		if ask.place, err = openPlace(in.Cursor); err != nil {
			return span{}, err
		}
		if ask.desc != (in.Order == "desc") || ask.aggregated != (group.functions != nil) {
			return span{}, errCursor
		}
	} else if err := ask.window(in, w.now()); err != nil {
		return span{}, err
	}
	if in.Filter != "" {
		return ask, w.matchTopics(c, &ask, in.Filter)
	}
	return ask, w.nameTopics(c, &ask, in.Topic)
}

// window reads from, to and order.
func (a *span) window(in *historyIn, now time.Time) error {
	var ok bool
	if a.from, ok = parseMoment(in.From, now); !ok {
		return invalid("from", fmt.Sprintf("%q is not a time", in.From), "send RFC 3339, milliseconds since 1970, now, or a distance such as -6h")
	}
	if a.to, ok = parseMoment(in.To, now); !ok {
		return invalid("to", fmt.Sprintf("%q is not a time", in.To), "send RFC 3339, milliseconds since 1970, now, or a distance such as -6h")
	}
	if a.from >= a.to {
		return invalid("from", "from is not before to", "to is exclusive and by default now")
	}
	a.desc = in.Order == "desc"
	return nil
}

// nameTopics resolves topics given by name, each once, and goes on where the cursor points.
func (w *Web) nameTopics(c *caller, a *span, names []string) error {
	seen := make(map[*uns.Topic]bool, len(names))
	start := -1
	for _, name := range names {
		t, err := w.topic(c, a.workspace, name)
		if err != nil {
			return err
		}
		if seen[t] {
			continue
		}
		seen[t] = true
		if t.Path == a.path {
			start = len(a.topics)
		}
		a.topics = append(a.topics, t)
	}
	if a.path == "" {
		return nil
	}
	if start < 0 {
		return errCursor
	}
	if a.after == nil {
		start++
	}
	a.topics = a.topics[start:]
	return nil
}

// matchTopics resolves a filter to at most one page of topics.
func (w *Web) matchTopics(c *caller, a *span, filter string) error {
	filter, err := w.filter(a.workspace, filter)
	if err != nil {
		return err
	}
	if a.path != "" {
		t := w.parts.Catalog.Lookup(a.workspace, a.path)
		if t == nil || !uns.Match(filter, a.path) {
			return errCursor
		}
		if a.after != nil && c.mayRead(a.path) {
			a.topics = append(a.topics, t)
		}
	}
	w.parts.Catalog.Match(a.workspace, filter, a.path, func(t *uns.Topic) bool {
		if !c.mayRead(t.Path) {
			return true
		}
		if len(a.topics) == maxHistoryTopics {
			a.more = true
			return false
		}
		a.topics = append(a.topics, t)
		return true
	})
	if len(a.topics) > 0 && a.topics[0].Path != a.path {
		a.after = nil
	}
	return nil
}

// writeHistory fills the sheet with one page and returns the cursor of the next.
func (w *Web) writeHistory(ctx context.Context, s *sheet, form layout, a span) (next string, err error) {
	form.begin(s)
	left, after := a.limit, a.after
	for i, t := range a.topics {
		millis := w.parts.History.FinestScale(t.Series) >= 6
		form.topic(s, t.Path, millis)
		chunk := w.firstChunk(t)
		for {
			q := historian.Query{Series: t.Series, From: a.from, To: a.to, Limit: min(left, chunk), After: after, Desc: a.desc}
			var more *historian.Cursor
			s.samples, more, err = w.parts.History.Raw(ctx, s.samples[:0], q)
			if err != nil {
				return "", err
			}
			form.rows(s, s.samples, millis)
			left -= len(s.samples)
			chunk = nextChunk(s.samples, chunk)
			if after = more; more == nil || left <= 0 || s.size() >= maxPageBytes {
				break
			}
		}
		form.topicEnd(s)
		s.topics++
		here := place{from: a.from, to: a.to, desc: a.desc, path: t.Path, after: after}
		lastTopic := i == len(a.topics)-1 && !a.more
		switch {
		case after != nil:
			next = here.seal()
		case !lastTopic && (left <= 0 || s.size() >= maxPageBytes || i == len(a.topics)-1):
			next = here.seal()
		default:
			continue
		}
		break
	}
	form.end(s, next)
	return next, nil
}

// firstChunk guesses from the newest value how many samples fit into chunkBytes.
func (w *Web) firstChunk(t *uns.Topic) int {
	s, ok := w.parts.History.Latest(t.Series)
	if !ok {
		return maxChunk
	}
	return fitChunk(len(s.Value.Raw))
}

// nextChunk corrects the guess by what came.
func nextChunk(samples []historian.Sample, chunk int) int {
	if len(samples) == 0 {
		return chunk
	}
	total := 0
	for i := range samples {
		total += len(samples[i].Value.Raw)
	}
	return fitChunk(total / len(samples))
}

func fitChunk(size int) int { return min(max(chunkBytes/(size+64), minChunk), maxChunk) }
