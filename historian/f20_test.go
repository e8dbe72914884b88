package historian_test

import (
	"context"
	"fmt"
	"math/big"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"millrace/historian"
)

// F20: a device that was away sends 48 hours at 1 Hz, oldest first, newest first, or in shuffled batches, while live
// values go on. The hourly averages that were read before are right again with the last batch, equal to a recompute
// from the raw values, and the last value stays the live one.
func TestF20LateBackfill(t *testing.T) {
	const hours = 48
	for _, order := range []string{"oldest first", "newest first", "batches in turn"} {
		t.Run(order, func(t *testing.T) {
			clock := &clock{}
			begin := epoch/int64(time.Hour)*int64(time.Hour) - hours*int64(time.Hour)
			clock.ns.Store(begin + hours*int64(time.Hour))
			o := memoryOptions(vfs.NewMem(), clock.now, false)
			s := mustOpen(t, "store", o)
			id, err := s.CreateSeries("line1/temp", historian.Class7d, nil)
			if err != nil {
				t.Fatal(err)
			}
			live := historian.Value{Kind: historian.Decimal, Mant: 999, Exp: 1}
			ask := historian.Aggregation{Series: []historian.Series{id}, From: begin, To: begin + hours*int64(time.Hour), Step: historian.Step{Every: time.Hour}}
			means := func() (out []string) {
				if err := s.Aggregate(context.Background(), ask, func(_ int, b *historian.Bucket) bool {
					out = append(out, fmt.Sprintf("%d n=%d avg=%v sum=%s", b.From, b.Count, b.Avg, b.Sum.AppendJSON(nil)))
					return true
				}); err != nil {
					t.Fatal(err)
				}
				return out
			}
			value := func(sec int64) int64 { return 451 + sec*7919%200 - sec%3 + sec/3600*7 }
			batches := make([]int64, hours*60)
			for i := range batches {
				batches[i] = int64(i) * 60
			}
			switch order {
			case "newest first":
				slices.Reverse(batches)
			case "batches in turn":
				slices.SortFunc(batches, func(a, b int64) int { return int(a*7919%2880007 - b*7919%2880007) })
			}
			for n, first := range batches {
				group := make([]historian.Sample, 0, 61)
				for i := range int64(60) {
					sec := first + i
					if order == "newest first" {
						sec = first + 59 - i
					}
					group = append(group, historian.Sample{Series: id, Stamped: true, Scale: 6, Time: begin + sec*int64(time.Second), Value: historian.Value{Kind: historian.Decimal, Exp: 1, Mant: value(sec)}})
				}
				clock.ns.Add(int64(time.Second))
				group = append(group, historian.Sample{Series: id, Value: live})
				mustAppend(t, s, group...)
				if n%500 == 250 {
					if n == 250 {
						means() // what is read in between must not stick
					}
					if err := s.Checkpoint(context.Background()); err != nil {
						t.Fatal(err)
					}
				}
				if n%1000 == 750 {
					if err := s.MergeAll(); err != nil {
						t.Fatal(err)
					}
				}
			}
			var want []string
			for hour := range int64(hours) {
				sum := int64(0)
				for sec := hour * 3600; sec < (hour+1)*3600; sec++ {
					sum += value(sec)
				}
				avg, _ := big.NewRat(sum, 36000).Float64()
				digits := historian.Value{Kind: historian.Decimal, Mant: sum, Exp: 1}
				if sum%10 == 0 {
					digits = historian.Value{Kind: historian.Decimal, Mant: sum / 10}
				}
				want = append(want, fmt.Sprintf("%d n=3600 avg=%v sum=%s", begin+hour*int64(time.Hour), avg, digits.AppendJSON(nil)))
			}
			if d := cmp.Diff(want, means()); d != "" {
				t.Errorf("(-recomputed +read): %s", d)
			}
			if last, ok := s.Latest(id); !ok || !last.Value.Equal(live) {
				t.Errorf("the last value is %+v, not the live one", last)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}
