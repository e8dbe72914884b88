package historian_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"millrace/historian"

	"github.com/cockroachdb/pebble/v2/vfs"
)

func mergeNow(t testing.TB, s *historian.Store) {
	t.Helper()
	if err := s.MergeNow(); err != nil {
		t.Fatal(err)
	}
}

// Hours that are over become one chunk a series with what they amount to; what can be read stays as it was, before and after
// a restart, and late values join their hour in the order in which they came.
func TestMergeOfHours(t *testing.T) {
	c, fsys := newPlantClock(), vfs.NewMem()
	o := c.options(fsys)
	s := mustOpen(t, "db", o)
	a, b := create(t, s, "a", historian.Class7d), create(t, s, "b", historian.Class7d)
	n := int64(0)
	put := func(id historian.Series, at time.Time) {
		n++
		mustAppend(t, s, historian.Sample{Series: id, Stamped: true, Scale: 6, Time: at.UnixNano(), Value: number(n)})
	}
	var shown []string
	look := func() []string {
		return slices.Concat(all(t, s, a, 7, false), all(t, s, b, 1000, false), all(t, s, a, 1000, true))
	}
	check := func(when string, merged, partial int) {
		t.Helper()
		if got := look(); !slices.Equal(got, shown) {
			t.Fatalf("%s: %d values, want %d; first difference %v", when, len(got), len(shown), firstDifference(got, shown))
		}
		if got := s.Keys('C'); got != merged {
			t.Errorf("%s: %d merged chunks, want %d", when, got, merged)
		}
		if got := s.Keys('P'); got != partial {
			t.Errorf("%s: %d chunks of checkpoints, want %d", when, got, partial)
		}
	}
	c.pass(30 * time.Minute)
	for range 6 { // 30 minutes of one hour and 30 of the next
		for range 10 {
			c.pass(time.Minute)
			put(a, c.now())
			put(a, c.now()) // equal times
			put(b, c.now())
		}
		checkpoint(t, s)
	}
	shown = look()
	check("before", 0, 12+2) // the checkpoint at the hour's end has a chunk of both hours
	c.pass(time.Minute)
	mergeNow(t, s)
	check("the first hour is over, but for the checkpoint at its end", 2, 10)
	mergeNow(t, s)
	check("nothing more to do", 2, 10)
	c.pass(time.Hour)
	mergeNow(t, s)
	check("both are over", 6, 0)
	if got := s.Keys('A'); got != 6 {
		t.Errorf("%d tallies", got)
	}
	// late values of the first hour, some at times that are there
	put(a, c.now().Add(-90*time.Minute))
	put(a, c.now().Add(-90*time.Minute))
	put(b, c.now().Add(-100*time.Minute))
	shown = look()
	checkpoint(t, s)
	check("late values", 6, 2)
	mergeNow(t, s)
	check("late values, their checkpoint over", 8, 0)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, "db", o)
	check("after a restart", 8, 0)
	c.pass(8 * 24 * time.Hour)
	keep(t, s)
	shown = nil
	check("past the class", 0, 0)
	if got := s.Keys('A'); got != 0 {
		t.Errorf("%d tallies", got)
	}
}

func firstDifference(a, b []string) string {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("%d: %s, want %s", i, a[i], b[i])
		}
	}
	return "the length"
}

// Any samples, in any order, with checkpoints, merges, restarts and changes of class at any moment, read as though nothing had
// happened to them: in order of time, equal times in order of arrival.
func TestMergeChangesNothing(t *testing.T) {
	for seed := range uint64(8) {
		rng := rand.New(rand.NewPCG(seed, 3))
		c, fsys := newPlantClock(), vfs.NewMem()
		o := c.options(fsys)
		o.Checkpoint.CarryBelow = []int{-1, 3, 64}[seed%3]
		s := mustOpen(t, "db", o)
		type kept struct {
			at int64
			n  int64
		}
		model := map[historian.Series][]kept{}
		var ids []historian.Series
		for i := range 5 {
			ids = append(ids, create(t, s, fmt.Sprint(i), historian.Class366d))
		}
		start := c.now()
		n := int64(0)
		for range 600 {
			switch x := rng.IntN(100); {
			case x < 70:
				id := ids[rng.IntN(len(ids))]
				at := c.now().UnixMilli()
				if rng.IntN(3) == 0 { // late by up to two days
					at -= rng.Int64N(min(int64(48*time.Hour/time.Millisecond), max(1, c.now().Sub(start).Milliseconds())))
				}
				at -= at % 60_000 // many equal times
				n++
				mustAppend(t, s, historian.Sample{Series: id, Stamped: true, Scale: 6, Time: at * 1e6, Value: number(n)})
				model[id] = append(model[id], kept{at, n})
			case x < 80:
				c.pass(time.Duration(rng.IntN(40)) * time.Minute)
			case x < 90:
				checkpoint(t, s)
			case x < 97:
				mergeNow(t, s)
			case x < 98:
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				s = mustOpen(t, "db", o)
			}
		}
		for _, id := range ids {
			slices.SortStableFunc(model[id], func(a, b kept) int { return int(a.at - b.at) })
			var want []string
			for _, k := range model[id] {
				want = append(want, fmt.Sprintf("%d=%d", k.at, k.n))
			}
			for _, limit := range []int{3, 1000} {
				if got := all(t, s, id, limit, false); !slices.Equal(got, want) {
					t.Fatalf("seed %d, series %d: %s", seed, id, firstDifference(got, want))
				}
			}
			slices.Reverse(want)
			if got := all(t, s, id, 10, true); !slices.Equal(got, want) {
				t.Fatalf("seed %d, series %d, newest first: %s", seed, id, firstDifference(got, want))
			}
		}
		if s.Keys('C') == 0 {
			t.Errorf("seed %d: nothing was merged", seed)
		}
	}
}

// Queries beside checkpoints and merges see every value acknowledged before they began, each once.
func TestQueriesBesideMerges(t *testing.T) {
	o := options(vfs.NewMem())
	o.Checkpoint.CarryBelow = 2
	o.Pebble.SyncWrites = false
	s := mustOpen(t, "db", o)
	const series = 5
	var ids []historian.Series
	for i := range series {
		ids = append(ids, mustCreate(t, s, fmt.Sprint("s", i)))
	}
	var acked [series]atomic.Int64
	deadline := time.Now().Add(2 * time.Second)
	if testing.Short() {
		deadline = time.Now().Add(time.Second)
	}
	var wg sync.WaitGroup
	var looks atomic.Int64
	for i, id := range ids {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 4))
			for n := int64(1); time.Now().Before(deadline); n++ {
				mustAppend(t, s, at(id, n*60_000/7, n)) // some of an hour each
				acked[i].Store(n)
				if rng.IntN(20) == 0 {
					time.Sleep(time.Duration(rng.IntN(3)) * time.Millisecond)
				}
			}
		})
		wg.Go(func() {
			for time.Now().Before(deadline) {
				least := acked[i].Load()
				got := all(t, s, id, 1000, false)
				looks.Add(1)
				if int64(len(got)) < least {
					t.Errorf("series %d: %d values, %d were acknowledged", i, len(got), least)
					return
				}
				for k, v := range got {
					if want := fmt.Sprintf("%d=%d", int64(k+1)*60_000/7, k+1); v != want {
						t.Errorf("series %d: value %d is %s, want %s", i, k, v, want)
						return
					}
				}
				least = acked[i].Load()
				counted := uint64(0)
				err := s.Aggregate(t.Context(), historian.Aggregation{Series: []historian.Series{id}, From: 0, To: 1 << 60}, func(_ int, b *historian.Bucket) bool {
					counted += b.Count
					return true
				})
				if err != nil || int64(counted) < least || int64(counted) > acked[i].Load()+1 {
					t.Errorf("series %d: %d values counted, %d were acknowledged, error %v", i, counted, least, err)
					return
				}
			}
		})
	}
	merges := 0
	for time.Now().Before(deadline) {
		checkpoint(t, s)
		if merges++; merges%2 == 0 {
			if err := s.MergeAll(); err != nil {
				t.Error(err)
			}
		}
	}
	wg.Wait()
	t.Logf("%d looks beside %d checkpoints", looks.Load(), merges)
}

// An hour of a plant mix, 1 Hz in six checkpoints, and what its merge costs a value: octets written and time.
func BenchmarkMerge(b *testing.B) {
	c := newPlantClock()
	o := c.options(vfs.Default)
	o.Pebble.SyncWrites = false
	s := mustOpen(b, b.TempDir(), o)
	const series = 200
	var ids []historian.Series
	for i := range series {
		ids = append(ids, create(b, s, fmt.Sprint("s", i), historian.Class7d))
	}
	rng := rand.New(rand.NewPCG(1, 2))
	values := make([]int64, series)
	var spent time.Duration
	var written, count uint64
	for b.Loop() {
		for i := range 3600 {
			c.pass(time.Second)
			batch := make([]historian.Sample, 0, series)
			for k, id := range ids {
				switch k % 10 {
				case 0, 1, 2: // drifts, one decimal
					values[k] += rng.Int64N(3) - 1
				case 3, 4, 5: // wanders, two decimals
					values[k] += rng.Int64N(41) - 20
				case 6, 7: // counts
					values[k] += rng.Int64N(5)
				case 8: // a state
					if rng.IntN(60) == 0 {
						values[k] = rng.Int64N(6)
					}
				default:
					if rng.IntN(30) == 0 {
						values[k] = 1 - values[k]&1
					}
				}
				exp := uint8([]int{1, 1, 1, 2, 2, 2, 0, 0, 0, 0}[k%10])
				batch = append(batch, historian.Sample{Series: id, Stamped: true, Scale: 6, Time: c.now().UnixNano() + rng.Int64N(4)*1e6, Value: historian.Value{Kind: historian.Decimal, Mant: values[k], Exp: exp}})
			}
			mustAppend(b, s, batch...)
			count += series
			if i%600 == 599 {
				checkpoint(b, s)
			}
		}
		c.pass(3 * time.Minute)
		before := s.Ingested()
		start := time.Now()
		mergeNow(b, s)
		spent += time.Since(start)
		written += s.Ingested() - before
		c.pass(57 * time.Minute)
	}
	b.ReportMetric(float64(written)/float64(count), "B/value")
	b.ReportMetric(float64(spent.Nanoseconds())/float64(count), "ns/value")
}
