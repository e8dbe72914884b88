package web

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	_ "time/tzdata" // the box has zones even where its system has none

	"millrace/historian"
	"millrace/uns"
)

// aggregates is the table of functions: what each says of a bucket. None: the bucket has nothing to say.
var aggregates = []struct {
	name string
	of   func(*historian.Bucket) (v historian.Value, ok bool)
}{
	{"avg", func(b *historian.Bucket) (historian.Value, bool) { return float(b.Avg, b.Numbered) }},
	{"min", func(b *historian.Bucket) (historian.Value, bool) { return b.Min, b.Numbered }},
	{"max", func(b *historian.Bucket) (historian.Value, bool) { return b.Max, b.Numbered }},
	{"sum", func(b *historian.Bucket) (historian.Value, bool) {
		return b.Sum, b.Numbered && b.Sum.Kind != historian.Null
	}},
	{"count", func(b *historian.Bucket) (historian.Value, bool) {
		return historian.Value{Kind: historian.Decimal, Mant: int64(b.Count)}, true
	}},
	{"first", func(b *historian.Bucket) (historian.Value, bool) { return b.First, b.Valued }},
	{"last", func(b *historian.Bucket) (historian.Value, bool) { return b.Last, b.Valued }},
	{"twa", func(b *historian.Bucket) (historian.Value, bool) { return float(b.TWA, b.Timed) }},
	{"good", func(b *historian.Bucket) (historian.Value, bool) {
		return float(100*float64(b.Good)/float64(b.Count), b.Count > 0)
	}},
}

// good is the place of the function that JSON always shows.
const good = 8

func float(f float64, ok bool) (historian.Value, bool) {
	if !ok || math.IsNaN(f) || math.IsInf(f, 0) {
		return historian.Value{}, false
	}
	format := byte('f')
	if size := math.Abs(f); size != 0 && (size < 1e-6 || size >= 1e21) {
		format = 'e'
	}
	return historian.Value{Kind: historian.Number, Raw: strconv.AppendFloat(nil, f, format, -1, 64)}, true
}

// grouping is the part of a request that asks for aggregates; nil functions ask for raw values.
type grouping struct {
	functions  []int // places in aggregates, each once, in the order asked for
	step       historian.Step
	fill       historian.Fill
	resolution string
}

// AggregateParams are the parameters of aggregates.
type AggregateParams struct {
	Agg    string `query:"agg" doc:"Functions, by comma: avg, min, max, sum, count, first, last, twa (time-weighted average), good (percent of good quality). Leave it out for raw values" maxLength:"256" example:"avg,min,max"`
	Every  string `query:"every" doc:"Length of a bucket: 10s, 15m, 8h, 1d, 1w, 1mo, 1y. Left out: one bucket of the whole window" maxLength:"32" example:"15m"`
	Offset string `query:"offset" doc:"Moves the beginning of every bucket: every=8h&offset=6h are shifts from 06:00, 14:00 and 22:00" maxLength:"32"`
	TZ     string `query:"tz" doc:"IANA zone on whose clock buckets begin, as Europe/Berlin; left out: UTC" maxLength:"64"`
	Fill   string `query:"fill" doc:"Buckets without values: none leaves them out, null shows them, prev carries on what was before (default: none)" maxLength:"8"`
}

// grouping checks the parameters of aggregates.
func (p AggregateParams) grouping() (g grouping, err error) {
	if p.Agg == "" {
		for _, f := range []struct{ field, value string }{{"every", p.Every}, {"offset", p.Offset}, {"tz", p.TZ}, {"fill", p.Fill}} {
			if f.value != "" {
				return g, invalid(f.field, f.field+" is for aggregates, and there is no agg", "give agg, as in agg=avg,min,max, or leave "+f.field+" out")
			}
		}
		return g, nil
	}
	for name := range strings.SplitSeq(p.Agg, ",") {
		name = strings.TrimSpace(name)
		i := slices.IndexFunc(aggregates, func(a struct {
			name string
			of   func(*historian.Bucket) (historian.Value, bool)
		}) bool {
			return a.name == name
		})
		if i < 0 {
			return g, invalid("agg", fmt.Sprintf("there is no function %q", name), "choose among avg, min, max, sum, count, first, last, twa, good")
		}
		if !slices.Contains(g.functions, i) {
			g.functions = append(g.functions, i)
		}
	}
	g.resolution = "window"
	if p.Every != "" {
		var ok bool
		if g.step.Every, g.step.Months, ok = parseEvery(p.Every); !ok {
			return g, invalid("every", fmt.Sprintf("%q is not a length of time", p.Every), "send for example 10s, 15m, 8h, 1d, 1w, 1mo")
		}
		g.resolution = p.Every
	}
	if p.Offset != "" {
		if g.step.Offset, err = parseOffset(p.Offset); err != nil {
			return g, err
		}
	}
	if p.TZ != "" {
		if g.step.Zone, err = time.LoadLocation(p.TZ); err != nil || p.TZ == "Local" {
			return g, invalid("tz", fmt.Sprintf("there is no time zone %q", p.TZ), "send an IANA name, as Europe/Berlin or America/New_York")
		}
	}
	if err := g.step.Validate(); err != nil {
		field := "every"
		if strings.Contains(err.Error(), "offset") {
			field = "offset"
		}
		return g, invalid(field, err.Error(), "buckets are up to a day long, or whole days, weeks (1w) or months (1mo); an offset is shorter than its bucket")
	}
	switch p.Fill {
	case "", "none":
	case "null":
		g.fill = historian.FillNull
	case "prev":
		g.fill = historian.FillPrev
	default:
		return g, invalid("fill", fmt.Sprintf("%q is no way to fill", p.Fill), "choose none, null or prev")
	}
	return g, nil
}

// parseEvery reads 10s, 1h30m, 7d, 2w, 1mo, 1y.
func parseEvery(s string) (every time.Duration, months int, ok bool) {
	for _, unit := range []struct {
		suffix string
		months int
		length time.Duration
	}{{"mo", 1, 0}, {"y", 12, 0}, {"w", 0, 7 * 24 * time.Hour}} {
		if head, found := strings.CutSuffix(s, unit.suffix); found {
			n, err := strconv.ParseUint(head, 10, 8)
			return time.Duration(n) * unit.length, int(n) * unit.months, err == nil && n > 0
		}
	}
	every, ok = parseDuration(s)
	return every, 0, ok && every > 0
}

func parseOffset(s string) (time.Duration, error) {
	if d, ok := parseDuration(s); ok {
		return d, nil
	}
	if d, ok := parseDistance(s); ok {
		return d, nil
	}
	return 0, invalid("offset", fmt.Sprintf("%q is not a distance", s), "send for example 6h, 30m or -15s")
}

// rowSet is the rows of one topic on a page: cells one behind the other, a time and then one for each function.
type rowSet struct {
	cells []byte
	ends  []int
	rows  int
	next  int64 // where the row begins that found no room, if cut
	cut   bool
}

func (r *rowSet) cell(row, column, width int) []byte {
	i := row*width + column
	from := 0
	if i > 0 {
		from = r.ends[i-1]
	}
	return r.cells[from:r.ends[i]]
}

// form is how aggregates are written in one format.
type form interface {
	// stamp and value append one cell.
	stamp(b []byte, ns int64) []byte
	value(b []byte, v historian.Value, ok bool) []byte
	begin(s *sheet, g *grouping)
	topic(s *sheet, g *grouping, path string, r *rowSet, order []int)
	end(s *sheet, next string)
}

// aggregateGroup is the most topics that are looked through together for one page.
const aggregateGroup = 1_000

// writeAggregates fills the sheet with one page and returns the cursor of the next.
func (w *Web) writeAggregates(ctx context.Context, s *sheet, f form, a span) (next string, err error) {
	g := &a.grouping
	f.begin(s, g)
	left, after := a.limit, a.after
	most := bucketCount(a.from, a.to, g.step)
	if a.desc && most > int64(a.limit) {
		return "", invalid("order", fmt.Sprintf("the window has about %d buckets, more than the limit, and cannot be paged from its end", most), "ask for order=asc, a shorter window or a longer every")
	}
	for at := 0; at < len(a.topics); {
		n := int(min(max(int64(left)/max(most, 1), 1), int64(len(a.topics)-at), aggregateGroup))
		from := a.from
		if after != nil {
			n, from = 1, max(after.Time, a.from)
		}
		topics := a.topics[at : at+n]
		sets, err := w.aggregate(ctx, f, &a, topics, from, left)
		if err != nil {
			return "", err
		}
		if n > 1 && sets[0].cut && sets[0].rows == 0 {
			// The others left no room for the first.
			topics = topics[:1]
			if sets, err = w.aggregate(ctx, f, &a, topics, from, left); err != nil {
				return "", err
			}
		}
		for i := range sets {
			r, t := &sets[i], topics[i]
			order := make([]int, r.rows)
			for row := range order {
				if order[row] = row; a.desc {
					order[row] = r.rows - 1 - row
				}
			}
			f.topic(s, g, t.Path, r, order)
			s.topics++
			left -= r.rows
			here := place{from: a.from, to: a.to, desc: a.desc, aggregated: true, path: t.Path}
			last := at+i == len(a.topics)-1 && !a.more
			switch {
			case r.cut:
				here.after = &historian.Cursor{Time: r.next}
				next = here.seal()
			case !last && (left <= 0 || s.size() >= maxPageBytes || at+i == len(a.topics)-1):
				next = here.seal()
			}
			if next != "" {
				f.end(s, next)
				return next, nil
			}
		}
		at, after = at+len(topics), nil
	}
	f.end(s, "")
	return "", nil
}

// aggregate reads the rows of some topics, up to limit each and about maxPageBytes together.
func (w *Web) aggregate(ctx context.Context, f form, a *span, topics []*uns.Topic, from int64, limit int) ([]rowSet, error) {
	g := &a.grouping
	q := historian.Aggregation{From: from, To: a.to, Origin: a.from, Until: w.now().UnixNano(), Step: g.step, Fill: g.fill}
	for _, i := range g.functions {
		q.Weighted = q.Weighted || aggregates[i].name == "twa"
	}
	for _, t := range topics {
		q.Series = append(q.Series, t.Series)
	}
	sets := make([]rowSet, len(topics))
	var size atomic.Int64
	err := w.parts.History.Aggregate(ctx, q, func(i int, b *historian.Bucket) bool {
		r := &sets[i]
		if r.rows >= limit || size.Load() >= maxPageBytes {
			r.next, r.cut = b.From, true
			return false
		}
		before := len(r.cells)
		r.cells = f.stamp(r.cells, b.From)
		r.ends = append(r.ends, len(r.cells))
		for _, function := range g.functions {
			v, ok := aggregates[function].of(b)
			r.cells = f.value(r.cells, v, ok)
			r.ends = append(r.ends, len(r.cells))
		}
		r.rows++
		size.Add(int64(len(r.cells) - before))
		return true
	})
	return sets, err
}

// bucketCount is about how many there are in a window, rather too many than too few.
func bucketCount(from, to int64, step historian.Step) int64 {
	every := step.Every
	switch {
	case step.Months > 0:
		every = time.Duration(step.Months) * 28 * 24 * time.Hour
	case every == 0:
		return 1
	case every > time.Hour:
		every -= time.Hour // a day of 23 hours
	}
	return int64(uint64(to-from)/uint64(every)) + 2
}
