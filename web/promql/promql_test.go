package promql_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"millrace/web/promql"
)

// source is samples in memory, cut into cells one by one.
type source struct {
	labels  [][]promql.Label
	samples [][]sample
}

type sample struct {
	at time.Time
	v  float64
}

var zero = time.Unix(1_800_000_000, 0)

func labels(kv ...string) (list []promql.Label) {
	for i := 0; i < len(kv); i += 2 {
		list = append(list, promql.Label{Name: kv[i], Value: kv[i+1]})
	}
	return list
}

// add puts one sample every ten seconds from zero on.
func (s *source) add(l []promql.Label, values ...float64) {
	var list []sample
	for i, v := range values {
		if !math.IsNaN(v) {
			list = append(list, sample{zero.Add(time.Duration(i) * 10 * time.Second), v})
		}
	}
	s.labels, s.samples = append(s.labels, l), append(s.samples, list)
}

func (s *source) Targets(_ context.Context, m []promql.Matcher) (list []promql.Target, err error) {
next:
	for i, l := range s.labels {
		for k := range m {
			v := ""
			for _, x := range l {
				if x.Name == m[k].Label {
					v = x.Value
				}
			}
			if !m[k].Holds(v) {
				continue next
			}
		}
		list = append(list, promql.Target{ID: i, Labels: l})
	}
	return list, nil
}

func (s *source) Cells(_ context.Context, targets []promql.Target, from, to time.Time, every time.Duration, each func(int, int, *promql.Cell)) error {
	for i, t := range targets {
		cells := map[int]*promql.Cell{}
		last := -1
		for _, x := range s.samples[t.ID] {
			if x.at.Before(from) || !x.at.Before(to) {
				continue
			}
			k := int(x.at.Sub(from) / every)
			c := cells[k]
			if c == nil {
				c = &promql.Cell{First: x.v, Min: x.v, Max: x.v}
				cells[k] = c
			}
			c.Count, c.Numbers, c.Sum, c.Last = c.Count+1, c.Numbers+1, c.Sum+x.v, x.v
			c.Min, c.Max = min(c.Min, x.v), max(c.Max, x.v)
			last = max(last, k)
		}
		for k := 0; k <= last; k++ {
			if c := cells[k]; c != nil {
				each(i, k, c)
			}
		}
	}
	return nil
}

func plant() *source {
	s := &source{}
	s.add(labels("__name__", "millrace_value", "topic", "a/temp", "unit", "C", "workspace", "main"), 1, 2, 3, 4, 5, 6)
	s.add(labels("__name__", "millrace_value", "topic", "b/temp", "workspace", "main"), 10, 20, math.NaN(), math.NaN(), 50, 60)
	return s
}

func show(a promql.Answer) string {
	var out []string
	for _, s := range a.Series {
		var l []string
		for _, x := range s.Labels {
			if x.Name == "__name__" {
				l = append([]string{x.Value}, l...)
			} else if x.Name != "workspace" {
				l = append(l, x.Value)
			}
		}
		out = append(out, strings.Join(l, ",")+fmt.Sprint(s.Points))
	}
	return strings.Join(out, " ")
}

// The grid is 10 s, 20 s … 50 s after zero, where the values are 2 3 4 5 6 and 20 - - 50 60.
func TestQueries(t *testing.T) {
	grid := promql.Grid{Start: zero.Add(10 * time.Second), End: zero.Add(50 * time.Second), Step: 10 * time.Second}
	for q, want := range map[string]string{
		`millrace_value{topic="a/temp"}`:                                   "millrace_value,a/temp,C[2 3 4 5 6]",
		`{__name__="millrace_value",topic=~"b/.*"}`:                        "millrace_value,b/temp[20 20 20 50 60]",
		`millrace_value{topic!~"a/.*"}`:                                    "millrace_value,b/temp[20 20 20 50 60]",
		`millrace_value{topic=~"temp"}`:                                    "", // the whole label is matched
		`other_metric`:                                                     "",
		`millrace_value{unit=""}`:                                          "millrace_value,b/temp[20 20 20 50 60]",
		`avg_over_time(millrace_value{unit="C"}[10s])`:                     "a/temp,C[2 3 4 5 6]",
		`avg_over_time(millrace_value{unit="C"}[20s])`:                     "a/temp,C[1.5 2.5 3.5 4.5 5.5]",
		`sum_over_time(millrace_value[30s])`:                               "a/temp,C[3 6 9 12 15] b/temp[30 30 20 50 110]",
		`count_over_time(millrace_value{unit!="C"}[10s])`:                  "b/temp[1 NaN NaN 1 1]",
		`max_over_time(millrace_value{unit="C"}[15s])`:                     "a/temp,C[2 3 4 5 6]",
		`min_over_time(millrace_value{unit="C"}[25s])`:                     "a/temp,C[1 1 2 3 4]",
		`delta(millrace_value{unit="C"}[30s])`:                             "a/temp,C[1 2 2 2 2]",
		`first_over_time(millrace_value{unit="C"}[30s])`:                   "a/temp,C[1 1 2 3 4]",
		`last_over_time(millrace_value{unit!="C"}[10s])`:                   "millrace_value,b/temp[20 NaN NaN 50 60]",
		`present_over_time(millrace_value{unit!="C"}[10s])`:                "b/temp[1 NaN NaN 1 1]",
		`millrace_value{unit="C"} offset 10s`:                              "millrace_value,a/temp,C[1 2 3 4 5]",
		`millrace_value{unit="C"} offset -10s`:                             "millrace_value,a/temp,C[3 4 5 6 6]",
		`sum(millrace_value)`:                                              "[22 23 24 55 66]",
		`avg by (topic) (millrace_value)`:                                  "a/temp[2 3 4 5 6] b/temp[20 20 20 50 60]",
		`max(millrace_value) by (workspace)`:                               "[20 20 20 50 60]",
		`count without (topic,unit) (last_over_time(millrace_value[10s]))`: "[2 1 1 2 2]",
		`min without (unit) (millrace_value{unit="C"})`:                    "a/temp[2 3 4 5 6]",
		`millrace_value{unit="C"} * 2 + 1`:                                 "a/temp,C[5 7 9 11 13]",
		`1 + 2 * 3 ^ 2`:                                                    "[19 19 19 19 19]",
		`2 ^ 3 ^ 0`:                                                        "[2 2 2 2 2]",
		`-2 ^ 2`:                                                           "[-4 -4 -4 -4 -4]",
		`(1 + 2) * -3 % 4`:                                                 "[-1 -1 -1 -1 -1]",
		`millrace_value{unit="C"} > 4`:                                     "millrace_value,a/temp,C[NaN NaN NaN 5 6]",
		`4 < millrace_value{unit="C"}`:                                     "millrace_value,a/temp,C[NaN NaN NaN 5 6]",
		`millrace_value{unit="C"} >bool 4`:                                 "a/temp,C[0 0 0 1 1]",
		`1 ==bool 1`:                                                       "[1 1 1 1 1]",
		`millrace_value{unit="C"} / millrace_value{unit="C"}`:              "a/temp,C[1 1 1 1 1]",
		`millrace_value{unit="C"} - millrace_value{unit=""}`:               "",
		"sum(millrace_value{topic=~'a/temp|b/temp'}) # all":                "[22 23 24 55 66]",
	} {
		x, err := promql.Parse(q)
		if err != nil {
			t.Errorf("%s: %v", q, err)
			continue
		}
		a, err := x.Eval(context.Background(), plant(), grid)
		if got := show(a); err != nil || got != want {
			t.Errorf("%s:\n got %s, %v\nwant %s", q, got, err, want)
		}
	}
	x, _ := promql.Parse(`sum_over_time(millrace_value{unit="C"}[1m])`)
	at := zero.Add(50 * time.Second)
	if a, err := x.Eval(context.Background(), plant(), promql.Grid{Start: at, End: at}); err != nil || show(a) != "a/temp,C[21]" {
		t.Errorf("an instant: %s %v", show(a), err)
	}
	// An instant looks back five minutes, and no further.
	x, _ = promql.Parse(`millrace_value{unit="C"}`)
	for after, want := range map[time.Duration]string{5*time.Minute + 49*time.Second: "millrace_value,a/temp,C[6]", 5*time.Minute + 50*time.Second: ""} {
		at := zero.Add(after)
		if a, err := x.Eval(context.Background(), plant(), promql.Grid{Start: at, End: at}); err != nil || show(a) != want {
			t.Errorf("%v: %s %v", after, show(a), err)
		}
	}
}

func TestFaults(t *testing.T) {
	for q, at := range map[string]int{
		``: 0, `sum(`: 4, `sum(1)`: 4, `rate(millrace_value[5m])`: 0, `histogram_quantile(0.9, x)`: 0, `millrace_value[5m]`: 0, `millrace_value[5m:1m]`: 17, `avg_over_time(millrace_value)`: 14,
		`millrace_value{topic}`: 20, `millrace_value{topic="a}`: 21, `millrace_value{topic=~"("}`: 22, `a and b`: 2, `a + on(x) b`: 4, `a @ 5`: 2, `1 < 2`: 2, `a b`: 2, `{a=1}`: 3, `5x`: 0, `"a"`: 0, `a offset b`: 9,
		strings.Repeat("(", 100) + "1": 50,
	} {
		x, err := promql.Parse(q)
		if err == nil {
			_, err = x.Eval(context.Background(), plant(), promql.Grid{Start: zero, End: zero})
		}
		var f *promql.Error
		if !errors.As(err, &f) || f.At != at {
			t.Errorf("%s: %v, want byte %d", q, err, at)
		}
	}
	x, _ := promql.Parse("millrace_value")
	if _, err := x.Eval(context.Background(), plant(), promql.Grid{Start: zero, End: zero.Add(time.Hour), Step: 100 * time.Millisecond}); err == nil {
		t.Error("36,000 points")
	}
	x, _ = promql.Parse("avg_over_time(millrace_value[7777ms])")
	if _, err := x.Eval(context.Background(), plant(), promql.Grid{Start: zero, End: zero.Add(100 * time.Hour), Step: time.Minute}); err == nil {
		t.Error("a million stretches")
	}
}

// Whatever range, step and offset: the answer is that of looking at every sample for every point.
func TestAnyGrid(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := &source{}
		values := make([]float64, 400)
		for i := range values {
			if values[i] = float64(r.IntN(100)); r.IntN(3) == 0 {
				values[i] = math.NaN()
			}
		}
		s.add(labels("topic", "x"), values...)
		span, step := time.Duration(1+r.IntN(40))*5*time.Second, time.Duration(1+r.IntN(40))*5*time.Second
		grid := promql.Grid{Start: zero.Add(time.Duration(r.IntN(1000)) * time.Second), Step: step}
		grid.End = grid.Start.Add(time.Duration(r.IntN(50)) * step)
		if grid.Len() == 1 {
			grid.Step = 0
		}
		x, err := promql.Parse(fmt.Sprintf("sum_over_time({topic=\"x\"}[%ds])", int(span.Seconds())))
		if err != nil {
			t.Fatal(err)
		}
		a, err := x.Eval(context.Background(), s, grid)
		if err != nil {
			t.Fatal(err)
		}
		for k := range grid.Len() {
			at, want, n := grid.Start.Add(time.Duration(k)*grid.Step), 0.0, 0
			for _, x := range s.samples[0] {
				if x.at.After(at.Add(-span)) && !x.at.After(at) {
					want, n = want+x.v, n+1
				}
			}
			got := math.NaN()
			if len(a.Series) > 0 {
				got = a.Series[0].Points[k]
			}
			if n == 0 != math.IsNaN(got) || n > 0 && got != want {
				t.Fatalf("seed %d, [%v] every %v, point %d: %v, want %v of %d", seed, span, step, k, got, want, n)
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, q := range []string{`sum by (a) (avg_over_time(millrace_value{topic=~"x"}[5m] offset 1h)) > bool 1`, `-1^2 + {a!="b"}`, "`a`"} {
		f.Add(q)
	}
	f.Fuzz(func(t *testing.T, q string) {
		x, err := promql.Parse(q)
		if err != nil {
			var own *promql.Error
			if !errors.As(err, &own) || own.At < 0 || own.At > len(q) {
				t.Fatalf("%q: %#v", q, err)
			}
			return
		}
		_, _ = x.Eval(context.Background(), plant(), promql.Grid{Start: zero, End: zero.Add(time.Minute), Step: 10 * time.Second})
	})
}
