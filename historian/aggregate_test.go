package historian_test

import (
	"context"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"millrace/historian"
)

// told is a bucket in a form that can be compared: values by their digits.
func told(b *historian.Bucket) string {
	out := fmt.Sprintf("%d..%d n=%d good=%d numeric=%d", b.From, b.To, b.Count, b.Good, b.Numeric)
	js := func(v historian.Value) string { return string(v.AppendJSON(nil)) }
	if b.Valued {
		out += fmt.Sprintf(" first=%s last=%s", js(b.First), js(b.Last))
	}
	if b.Numbered {
		out += fmt.Sprintf(" sum=%s min=%s max=%s avg=%v", js(b.Sum), js(b.Min), js(b.Max), b.Avg)
	}
	if b.Timed {
		out += fmt.Sprintf(" twa=%v", b.TWA)
	}
	return out
}

// asked runs an aggregation and gives up to most buckets of each series.
func asked(t *testing.T, s *historian.Store, q historian.Aggregation, most int) [][]string {
	t.Helper()
	var mu sync.Mutex
	out := make([][]string, len(q.Series))
	err := s.Aggregate(context.Background(), q, func(i int, b *historian.Bucket) bool {
		mu.Lock()
		defer mu.Unlock()
		if len(out[i]) == most {
			t.Errorf("series %d got a bucket after it had enough", i)
		}
		out[i] = append(out[i], told(b))
		return len(out[i]) < most
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// aggregate answers from all samples of a series, with fractions.
func (o *oracle) aggregate(id historian.Series, q historian.Aggregation, most int) (out []string) {
	cut := historian.NewBuckets(q.Step)
	bounds := func(t int64) (int64, int64) {
		if q.Step == (historian.Step{}) {
			return q.From, q.To
		}
		return cut.At(t)
	}
	all := o.samples(id)
	float := func(n historian.Value) *big.Rat {
		if n.Kind == historian.Decimal && n.Exp <= 18 {
			return historian.RatOf(n)
		}
		f, _ := n.Float()
		return new(big.Rat).SetFloat64(f)
	}
	number := func(s historian.Sample) (historian.Value, bool) {
		n, ok := historian.NumberOf(s.Value)
		return n, ok && s.Quality != historian.Bad
	}
	if q.Until == 0 {
		q.Until = q.To
	}
	if q.Origin == 0 || q.Step.Every == 0 && q.Step.Months == 0 {
		q.Origin = q.From
	}
	// one makes the bucket from..to of the samples within it and the range.
	one := func(from, to, rangeFrom, rangeTo int64) historian.Bucket {
		b := historian.Bucket{From: from, To: to}
		sum, area := new(big.Rat), new(big.Rat)
		var carry, last historian.Value
		var lastAt, begin int64
		var carried bool
		var lo, hi historian.Value
		begin = max(from, rangeFrom)
		for _, s := range all {
			n, ok := number(s)
			if s.Time < begin {
				if ok {
					carry, carried = n, true
				}
				continue
			}
			if s.Time >= min(to, rangeTo) {
				break
			}
			b.Count++
			if s.Quality == historian.Good {
				b.Good++
			}
			if s.Quality == historian.Bad {
				continue
			}
			if !b.Valued {
				b.Valued, b.First = true, s.Value
			}
			b.Last = s.Value
			if !ok {
				continue
			}
			if b.Numeric++; b.Numeric == 1 {
				lo, hi = n, n
				if carried {
					area.Mul(float(carry), new(big.Rat).SetFrac(new(big.Int).Sub(big.NewInt(s.Time), big.NewInt(begin)), big.NewInt(1)))
				} else {
					begin = s.Time
				}
			} else {
				area.Add(area, new(big.Rat).Mul(float(last), new(big.Rat).SetFrac(new(big.Int).Sub(big.NewInt(s.Time), big.NewInt(lastAt)), big.NewInt(1))))
			}
			if historian.RatOf(n).Cmp(historian.RatOf(lo)) < 0 || historian.CompareNumbers(n, lo) < 0 {
				lo = n
			}
			if c := historian.RatOf(n).Cmp(historian.RatOf(hi)); c > 0 || c == 0 && historian.CompareNumbers(n, hi) < 0 {
				hi = n
			}
			sum.Add(sum, float(n))
			last, lastAt = n, s.Time
		}
		end := min(to, rangeTo, q.Until)
		if b.Numeric > 0 {
			b.Min, b.Max = lo, hi
			var tally historian.Tally
			for _, s := range all {
				if s.Time >= max(from, rangeFrom) && s.Time < min(to, rangeTo) {
					tally.Add(s)
				}
			}
			b.Sum, b.Numbered = tally.Told().Shown, tally.Told().Finite
			if tally.Told().Sum.Cmp(sum) != 0 {
				o.t.Fatalf("sum %v, want %v", tally.Told().Sum, sum)
			}
			if b.Numbered {
				b.Avg, _ = new(big.Rat).Quo(sum, new(big.Rat).SetInt64(int64(b.Numeric))).Float64()
			}
			if end = max(end, lastAt); begin < end {
				width := func(a, z int64) *big.Rat {
					return new(big.Rat).SetInt(new(big.Int).Sub(big.NewInt(z), big.NewInt(a)))
				}
				area.Add(area, new(big.Rat).Mul(float(last), width(lastAt, end)))
				b.TWA, _ = area.Quo(area, width(begin, end)).Float64()
				b.Timed = true
			} else {
				b.TWA, b.Timed = last.Float()
			}
		} else if carried && begin < end {
			b.TWA, b.Timed = carry.Float()
		}
		if !q.Weighted {
			b.TWA, b.Timed = 0, false
		}
		return b
	}
	var prev historian.Bucket
	if q.Fill == historian.FillPrev {
		for _, s := range all {
			if s.Time >= q.From {
				break
			}
			if s.Quality == historian.Bad {
				continue
			}
			if s.Time >= q.Origin {
				from, to := bounds(s.Time)
				prev = one(from, to, q.Origin, min(q.From, q.To))
				continue
			}
			was := prev
			prev = historian.Bucket{Valued: true, First: s.Value, Last: s.Value}
			if n, ok := number(s); ok {
				prev.Numbered, prev.Min, prev.Max = true, n, n
				prev.Avg, _ = n.Float()
			} else if was.Numbered {
				prev.Numbered = false
			}
		}
	}
	emit := func(from, to int64) {
		b := one(from, to, q.From, q.To)
		if b.Count == 0 && q.Fill == historian.FillPrev {
			was := prev
			was.From, was.To, was.Timed, was.TWA, was.Count, was.Good, was.Numeric = b.From, b.To, b.Timed, b.TWA, 0, 0, 0
			b = was
		} else if b.Count > 0 {
			prev = b
		}
		out = append(out, told(&b))
	}
	at := q.From
	for at < q.To && len(out) < most {
		if q.Fill == historian.FillNone {
			found := false
			for _, s := range all {
				if s.Time >= at && s.Time < q.To {
					at, found = s.Time, true
					break
				}
			}
			if !found {
				break
			}
		}
		from, to := bounds(at)
		emit(from, to)
		at = to
	}
	return out
}

// askAggregate compares a random aggregation.
func (m *model) askAggregate(zones []*time.Location) {
	q := historian.Aggregation{From: math.MinInt64 + 1, To: math.MaxInt64, Fill: historian.Fill(m.r.IntN(3)), Weighted: m.r.IntN(2) == 0}
	for range 1 + m.r.IntN(5) {
		q.Series = append(q.Series, m.ids[m.r.IntN(len(m.ids))])
	}
	if m.r.IntN(3) != 0 {
		q.From, q.To = m.time(6), m.time(6)
		if q.From > q.To {
			q.From, q.To = q.To, q.From
		}
	}
	if m.r.IntN(3) == 0 {
		q.Until = m.clock.ns.Load()
	}
	if m.r.IntN(3) == 0 {
		q.Origin = q.From - m.r.Int64N(48*3600*1e9)
	}
	q.Step = []historian.Step{
		{}, {Every: time.Hour}, {Every: time.Minute}, {Every: time.Second, Offset: 200 * time.Millisecond}, {Every: 24 * time.Hour},
		{Every: 8 * time.Hour, Offset: 6 * time.Hour}, {Months: 1}, {Every: 7 * time.Minute}, {Every: 15 * time.Millisecond},
	}[m.r.IntN(9)]
	q.Step.Zone = zones[m.r.IntN(len(zones))]
	if q.Step.Every == 0 && q.Step.Months == 0 {
		q.Step.Zone = nil
	}
	const most = 60
	got := asked(m.t, m.store, q, most)
	for i, id := range q.Series {
		if d := cmp.Diff(m.oracle.aggregate(id, q, most), got[i]); d != "" {
			m.fail("aggregate %+v of series %d (-oracle +store):\n%s", q, id, d)
		}
	}
}

// The same samples in any order of arrival, cut by checkpoints, merges and restarts anywhere, must give the same answers to
// the last digit.
func TestAggregatesDoNotDependOnHowSamplesCame(t *testing.T) {
	berlin := zone(t, "Europe/Berlin")
	for seed := range seedCount(12) {
		r := rand.New(rand.NewPCG(seed, 21))
		// Each time once: of equal times the order of arrival is part of what is asked.
		samples := measured(r, 400)
		for i := range samples {
			samples[i].Stamped = true
			samples[i].Scale = 0
			if i > 0 && samples[i].Time <= samples[i-1].Time {
				samples[i].Time = samples[i-1].Time + 1
			}
		}
		spread := int64(1 + r.IntN(100))
		for i := range samples {
			samples[i].Time = epoch + (samples[i].Time-epoch)*spread
		}
		var want [][][]string
		for variant := range 6 {
			fs, clock := vfs.NewMem(), &clock{}
			clock.ns.Store(epoch)
			open := func() *historian.Store {
				s, err := historian.Open("store", memoryOptions(fs, clock.now, false))
				if err != nil {
					t.Fatal(err)
				}
				return s
			}
			s := open()
			id, err := s.CreateSeries("a", historian.ClassForever, nil)
			if err != nil {
				t.Fatal(err)
			}
			order := make([]int, len(samples))
			for i := range order {
				order[i] = i
			}
			switch variant {
			case 0:
			case 1:
				for i := range order {
					order[i] = len(order) - 1 - i
				}
			default:
				r.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
			}
			for len(order) > 0 {
				n := 1 + r.IntN(min(100, len(order)))
				var group []historian.Sample
				for _, i := range order[:n] {
					c := samples[i]
					c.Series = id
					c.Value = c.Value.Clone()
					group = append(group, c)
				}
				order = order[n:]
				if err := s.Append(context.Background(), group, nil); err != nil {
					t.Fatal(err)
				}
				if variant > 0 && r.IntN(3) == 0 {
					if err := s.Checkpoint(context.Background()); err != nil {
						t.Fatal(err)
					}
				}
				if variant > 1 && r.IntN(3) == 0 {
					if err := s.MergeAll(); err != nil {
						t.Fatal(err)
					}
				}
				if variant > 0 && r.IntN(6) == 0 {
					if err := s.Close(); err != nil {
						t.Fatal(err)
					}
					s = open()
				}
			}
			var got [][][]string
			for _, step := range []historian.Step{{}, {Every: time.Hour}, {Every: time.Second}, {Every: time.Minute, Offset: 13 * time.Second}, {Every: 24 * time.Hour, Zone: berlin}} {
				for _, fill := range []historian.Fill{historian.FillNone, historian.FillNull, historian.FillPrev} {
					from := samples[0].Time
					to := samples[len(samples)-1].Time
					for _, q := range []historian.Aggregation{{From: from, To: to + 1}, {From: from + (to-from)/3, To: to - (to-from)/3}} {
						q.Step, q.Fill, q.Weighted, q.Series = step, fill, true, []historian.Series{id}
						got = append(got, asked(t, s, q, 300))
					}
				}
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if variant == 0 {
				want = got
				continue
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Fatalf("seed %d variant %d (-in order +otherwise): %s", seed, variant, d)
			}
		}
	}
}
