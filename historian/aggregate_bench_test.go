package historian_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"millrace/historian"
)

// plantStore holds an hour of a plant, 1 Hz a series, with a checkpoint every ten minutes; the last ten minutes are in
// the heads.
func plantStore(b *testing.B, devices int) (*historian.Store, []historian.Series, int64) {
	b.Helper()
	o := historian.DefaultOptions()
	o.Pebble.SyncWrites = false
	o.MinFreeSpace = 0
	s := mustOpen(b, b.TempDir(), o)
	ids := make([]historian.Series, devices*plantTags)
	for i := range ids {
		ids[i] = mustCreate(b, s, fmt.Sprintf("plant/%d", i))
	}
	begin := epoch/int64(time.Hour)*int64(time.Hour) + int64(time.Hour)
	p := newPlant(devices, 1000, 3)
	group := make([]historian.Sample, 0, len(ids))
	for sec := range int64(3600) {
		group = group[:0]
		p.next(func(sample *historian.Sample) {
			c := *sample
			c.Stamped, c.Series, c.Time = true, ids[sample.Series-1], begin+sec*int64(time.Second)+sample.Time%int64(time.Second)
			group = append(group, c)
		})
		if err := s.Append(context.Background(), group, nil); err != nil {
			b.Fatal(err)
		}
		if sec%600 == 599 && sec < 3599 {
			if err := s.Checkpoint(context.Background()); err != nil {
				b.Fatal(err)
			}
		}
	}
	return s, ids, begin
}

// BenchmarkAggregate reads one-minute aggregates of 1,000 series over an hour.
func BenchmarkAggregate(b *testing.B) {
	s, ids, begin := plantStore(b, 100)
	for _, weighted := range []bool{false, true} {
		b.Run(fmt.Sprintf("weighted=%v", weighted), func(b *testing.B) {
			b.ReportAllocs()
			var values atomic.Uint64
			for b.Loop() {
				q := historian.Aggregation{Series: ids, From: begin, To: begin + int64(time.Hour), Step: historian.Step{Every: time.Minute}, Weighted: weighted}
				if err := s.Aggregate(context.Background(), q, func(_ int, bucket *historian.Bucket) bool {
					values.Add(bucket.Count)
					return true
				}); err != nil {
					b.Fatal(err)
				}
			}
			if values.Load() != uint64(b.N)*3_600_000 {
				b.Fatal(values.Load(), b.N)
			}
			b.ReportMetric(float64(values.Load())/b.Elapsed().Seconds()/1e6, "M-values/s")
		})
	}
}
