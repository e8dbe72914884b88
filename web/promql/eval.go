package promql

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Label is one label of a series.
type Label struct{ Name, Value string }

// Series is one line of an answer: a number a step, NaN where there is none.
type Series struct {
	Labels []Label // by name
	Points []float64
}

// Target is a series of the source.
type Target struct {
	ID     int // the source's own
	Labels []Label
}

// Cell is what a source says of one series in one stretch of time. Numbers, Sum, Min, Max, First and Last are of numbers and
// booleans that are not bad; Count is of all values.
type Cell struct {
	Count, Numbers             float64
	Sum, Min, Max, First, Last float64
}

// Source has the values. Both calls are bounded by the source.
type Source interface {
	// Targets are the series that meet the conditions, by labels.
	Targets(ctx context.Context, m []Matcher) ([]Target, error)
	// Cells calls each for every stretch of length every from `from` on, before `to`, in which a target has values. Calls for one
	// target come in order; for different ones they may come at once.
	Cells(ctx context.Context, targets []Target, from, to time.Time, every time.Duration, each func(target, stretch int, c *Cell)) error
}

// Grid are the times of an answer: Start, and every Step up to End. With Step 0 it is Start alone.
type Grid struct {
	Start, End time.Time
	Step       time.Duration
}

// Len is the number of times.
func (g Grid) Len() int {
	if g.Step <= 0 {
		return 1
	}
	return int(g.End.Sub(g.Start)/g.Step) + 1
}

// The bounds of a query.
const (
	MaxPoints = 11_000  // of one series, as Prometheus has it
	maxCells  = 500_000 // of one selector, over all its series
)

// Lookback is how old the last value may be that stands for an instant. Where steps are longer, it is the step: what a chart
// shows must not vanish because somebody looks at a whole year.
const Lookback = 5 * time.Minute

// Answer is a scalar (Scalar set, one Series without labels) or series, by labels.
type Answer struct {
	Scalar bool
	Series []Series
}

// Eval answers a query on a grid. An error that is the query's fault is an *Error.
func (q *Query) Eval(ctx context.Context, src Source, g Grid) (Answer, error) {
	if n := g.Len(); n > MaxPoints || n < 1 {
		return Answer{}, &Error{-1, fmt.Sprintf("%d points a series, at most %d are allowed: ask for a longer step or a shorter time", n, MaxPoints)}
	}
	e := &evaluation{ctx, src, g, g.Len()}
	a, err := e.expr(q.root)
	if err != nil {
		return Answer{}, err
	}
	a.Series = slices.DeleteFunc(a.Series, func(s Series) bool {
		return !a.Scalar && !slices.ContainsFunc(s.Points, func(f float64) bool { return !math.IsNaN(f) })
	})
	slices.SortFunc(a.Series, func(x, y Series) int { return strings.Compare(key(x.Labels), key(y.Labels)) })
	return a, nil
}

// key is one text for a set of labels.
func key(labels []Label) string {
	var b strings.Builder
	for _, l := range labels {
		b.WriteString(l.Name + "\x00" + l.Value + "\x01")
	}
	return b.String()
}

type evaluation struct {
	ctx context.Context
	src Source
	g   Grid
	n   int
}

func (e *evaluation) expr(x expr) (Answer, error) {
	switch x := x.(type) {
	case *constant:
		points := make([]float64, e.n)
		for i := range points {
			points[i] = x.v
		}
		return Answer{Scalar: true, Series: []Series{{Points: points}}}, nil
	case *selector:
		return e.cells(x, max(Lookback, e.g.Step), "last_over_time", true)
	case *call:
		return e.cells(x.arg, x.arg.span, x.name, x.name == "last_over_time")
	case *aggregation:
		a, err := e.expr(x.arg)
		if err != nil || a.Scalar {
			return a, err
		}
		return x.over(a, e.n), nil
	case *binary:
		a, err := e.expr(x.a)
		if err != nil {
			return a, err
		}
		b, err := e.expr(x.b)
		if err != nil {
			return b, err
		}
		return x.of(a, b)
	}
	return Answer{}, &Error{-1, "this query is not understood"}
}

// cells evaluates a function over the span before each time, both ends as Prometheus has them: the beginning excluded.
func (e *evaluation) cells(s *selector, span time.Duration, function string, named bool) (Answer, error) {
	targets, err := e.src.Targets(e.ctx, s.matchers)
	if err != nil || len(targets) == 0 {
		return Answer{}, err
	}
	step := e.g.Step
	if e.n == 1 {
		step = span
	}
	every := gcd(span.Truncate(time.Millisecond), step.Truncate(time.Millisecond))
	if every > day {
		every = gcd(every, day)
	}
	if every < time.Millisecond {
		return Answer{}, faultAt(s.at, "ranges and steps are whole milliseconds")
	}
	wide, apart := int(span/every), int(step/every)
	total := (e.n-1)*apart + wide
	if total > maxCells/len(targets) {
		return Answer{}, faultAt(s.at, "%d series in %d stretches of %v are more than the %d that one query may look at: ask for fewer topics, a shorter time, or a range that is a multiple of the step", len(targets), total, every, maxCells)
	}
	// A stretch ends a millisecond behind its time, so that a value of that very time is in it.
	from := e.g.Start.Add(-s.offset - span + time.Millisecond)
	grid := make([][]Cell, len(targets))
	for i := range grid {
		grid[i] = make([]Cell, total)
	}
	err = e.src.Cells(e.ctx, targets, from, from.Add(time.Duration(total)*every), every, func(i, k int, c *Cell) {
		if k >= 0 && k < total {
			grid[i][k] = *c
		}
	})
	if err != nil {
		return Answer{}, err
	}
	out := Answer{Series: make([]Series, len(targets))}
	for i, t := range targets {
		labels := t.Labels
		if !named {
			labels = slices.DeleteFunc(slices.Clone(labels), func(l Label) bool { return l.Name == "__name__" })
		}
		points := make([]float64, e.n)
		for k := range points {
			points[k] = over(grid[i][k*apart:k*apart+wide], function)
		}
		out.Series[i] = Series{labels, points}
	}
	return out, nil
}

// day is the longest stretch that a source is asked for.
const day = 24 * time.Hour

func gcd(a, b time.Duration) time.Duration {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// over brings the cells of one span together.
func over(cells []Cell, function string) float64 {
	var all Cell
	for i := range cells {
		c := &cells[i]
		all.Count += c.Count
		if c.Numbers == 0 {
			continue
		}
		if all.Numbers == 0 {
			count := all.Count
			all = *c
			all.Count = count
			continue
		}
		all.Numbers += c.Numbers
		all.Sum += c.Sum
		all.Min, all.Max, all.Last = min(all.Min, c.Min), max(all.Max, c.Max), c.Last
	}
	switch {
	case function == "count_over_time" && all.Count > 0:
		return all.Count
	case function == "present_over_time" && all.Count > 0:
		return 1
	case all.Numbers == 0:
		return math.NaN()
	}
	switch function {
	case "avg_over_time":
		return all.Sum / all.Numbers
	case "min_over_time":
		return all.Min
	case "max_over_time":
		return all.Max
	case "sum_over_time":
		return all.Sum
	case "first_over_time":
		return all.First
	case "last_over_time":
		return all.Last
	case "delta":
		return all.Last - all.First
	}
	return math.NaN()
}

// over brings series with the same labels, of those that are kept, together.
func (a *aggregation) over(in Answer, n int) Answer {
	type group struct {
		Series
		count []float64
	}
	groups := map[string]*group{}
	var order []*group
	for _, s := range in.Series {
		var labels []Label
		for _, l := range s.Labels {
			if l.Name != "__name__" && slices.Contains(a.by, l.Name) != a.without && a.grouped {
				labels = append(labels, l)
			}
		}
		k := key(labels)
		g := groups[k]
		if g == nil {
			g = &group{Series{labels, make([]float64, n)}, make([]float64, n)}
			groups[k] = g
			order = append(order, g)
		}
		for i, f := range s.Points {
			if math.IsNaN(f) {
				continue
			}
			switch {
			case g.count[i] == 0:
				g.Points[i] = f
			case a.op == "min":
				g.Points[i] = min(g.Points[i], f)
			case a.op == "max":
				g.Points[i] = max(g.Points[i], f)
			default:
				g.Points[i] += f
			}
			g.count[i]++
		}
	}
	out := Answer{}
	for _, g := range order {
		for i, c := range g.count {
			switch {
			case c == 0:
				g.Points[i] = math.NaN()
			case a.op == "avg":
				g.Points[i] /= c
			case a.op == "count":
				g.Points[i] = c
			}
		}
		out.Series = append(out.Series, g.Series)
	}
	return out
}

// of works out an operator. Series meet series with the same labels, the name left aside.
func (x *binary) of(a, b Answer) (Answer, error) {
	comparison := precedence[x.op] == 1
	if a.Scalar && b.Scalar {
		if comparison && !x.bool {
			return a, faultAt(x.at, "a comparison of numbers needs bool")
		}
		return Answer{Scalar: true, Series: []Series{{Points: x.points(a.Series[0].Points, b.Series[0].Points, true)}}}, nil
	}
	out := Answer{}
	add := func(labels []Label, points []float64) {
		if !comparison || x.bool {
			labels = slices.DeleteFunc(slices.Clone(labels), func(l Label) bool { return l.Name == "__name__" })
		}
		out.Series = append(out.Series, Series{labels, points})
	}
	switch {
	case a.Scalar:
		for _, s := range b.Series {
			add(s.Labels, x.points(a.Series[0].Points, s.Points, false))
		}
	case b.Scalar:
		for _, s := range a.Series {
			add(s.Labels, x.points(s.Points, b.Series[0].Points, true))
		}
	default:
		bare := func(labels []Label) string {
			return key(slices.DeleteFunc(slices.Clone(labels), func(l Label) bool { return l.Name == "__name__" }))
		}
		other := map[string]Series{}
		for _, s := range b.Series {
			other[bare(s.Labels)] = s
		}
		for _, s := range a.Series {
			if t, ok := other[bare(s.Labels)]; ok {
				add(s.Labels, x.points(s.Points, t.Points, true))
			}
		}
	}
	return out, nil
}

// points works an operator out for every step. Of a comparison that holds, the side of the series is what stays.
func (x *binary) points(a, b []float64, left bool) []float64 {
	out := make([]float64, len(a))
	for i := range out {
		out[i] = x.number(a[i], b[i], left)
	}
	return out
}

func (x *binary) number(a, b float64, left bool) float64 {
	var holds bool
	switch x.op {
	case "+":
		return a + b
	case "-":
		return a - b
	case "*":
		return a * b
	case "/":
		return a / b
	case "%":
		return math.Mod(a, b)
	case "^":
		return math.Pow(a, b)
	case "==":
		holds = a == b
	case "!=":
		holds = a != b
	case "<":
		holds = a < b
	case ">":
		holds = a > b
	case "<=":
		holds = a <= b
	case ">=":
		holds = a >= b
	}
	switch {
	case math.IsNaN(a) || math.IsNaN(b):
		return math.NaN()
	case x.bool && holds:
		return 1
	case x.bool:
		return 0
	case !holds:
		return math.NaN()
	case left:
		return a
	}
	return b
}
