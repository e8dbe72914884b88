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
	o.MinFreeSpace, o.KeepAll = 0, true
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
	for _, c := range []struct {
		name                string
		weighted, ingesting bool
	}{{"plain", false, false}, {"weighted", true, false}, {"beside 10,000 values a second", false, true}} {
		weighted := c.weighted
		b.Run(c.name, func(b *testing.B) {
			if c.ingesting {
				stop, ended := make(chan struct{}), make(chan struct{})
				go ingest(b, s, ids, stop, ended)
				defer func() { close(stop); <-ended }()
			}
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

// ingest stores 10,000 values a second, 100 at a time, until stop is closed.
func ingest(b *testing.B, s *historian.Store, ids []historian.Series, stop, ended chan struct{}) {
	defer close(ended)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		group := make([]historian.Sample, 100)
		for i := range group {
			group[i] = historian.Sample{Series: ids[(n*100+i)%len(ids)], Value: historian.Value{Kind: historian.Decimal, Mant: int64(n + i)}}
		}
		if err := s.Append(context.Background(), group, nil); err != nil {
			b.Error(err)
			return
		}
	}
}

// BenchmarkMonth reads a month of one series out of 1,000 in hours, from the tallies of merged hours. Cold: the store is
// opened anew for each look, so that Pebble's cache is empty; the operating system's is not.
func BenchmarkMonth(b *testing.B) {
	const hours, series = 720, 1000
	dir := b.TempDir()
	o := historian.DefaultOptions()
	o.Pebble.SyncWrites, o.MinFreeSpace, o.KeepAll = false, 0, true
	begin := epoch / int64(time.Hour) * int64(time.Hour)
	s, err := historian.Open(dir, o)
	if err != nil {
		b.Fatal(err)
	}
	ids := make([]historian.Series, series)
	for i := range ids {
		ids[i] = mustCreate(b, s, fmt.Sprintf("plant/%d", i))
	}
	for hour := range int64(hours) {
		var group []historian.Sample
		for i, id := range ids {
			for m := range int64(70) { // enough for a chunk
				group = append(group, historian.Sample{Series: id, Stamped: true, Scale: 6, Time: begin + hour*int64(time.Hour) + m*50*int64(time.Second) + int64(i)*int64(time.Millisecond),
					Value: historian.Value{Kind: historian.Decimal, Exp: 1, Mant: 200 + m*7919%41 + hour%24 + int64(i)}})
			}
		}
		mustAppend(b, s, group...)
		if hour%12 == 11 {
			if err := s.Checkpoint(context.Background()); err != nil {
				b.Fatal(err)
			}
			if err := s.MergeAll(); err != nil {
				b.Fatal(err)
			}
		}
	}
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	look := func(b *testing.B, s *historian.Store, i int) {
		n := 0
		q := historian.Aggregation{Series: ids[i*7%series : i*7%series+1], From: begin, To: begin + hours*int64(time.Hour), Step: historian.Step{Every: time.Hour}}
		if err := s.Aggregate(context.Background(), q, func(_ int, bucket *historian.Bucket) bool {
			n += int(bucket.Count)
			return true
		}); err != nil || n != hours*70 {
			b.Fatal(n, err)
		}
	}
	b.Run("cold", func(b *testing.B) {
		var took time.Duration
		for i := range b.N {
			s, err := historian.Open(dir, o)
			if err != nil {
				b.Fatal(err)
			}
			began := time.Now()
			look(b, s, i)
			took += time.Since(began)
			if err := s.Close(); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(took.Seconds()*1e3/float64(b.N), "ms/look")
	})
	b.Run("warm", func(b *testing.B) {
		s, err := historian.Open(dir, o)
		if err != nil {
			b.Fatal(err)
		}
		defer s.Close()
		for i := 0; b.Loop(); i++ {
			look(b, s, i%3)
		}
	})
}
