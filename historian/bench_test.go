package historian_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/historian"
)

// written is how many octets the process has sent to the disk.
func written(b *testing.B) int64 {
	text, err := os.ReadFile("/proc/self/io")
	if err != nil {
		return 0 // not a Linux: the figure is left out
	}
	for line := range strings.Lines(string(text)) {
		if word, ok := strings.CutPrefix(line, "write_bytes: "); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(word), 10, 64)
			if err != nil {
				b.Fatal(err)
			}
			return n
		}
	}
	return 0
}

func openOnDisk(b *testing.B, sync bool) (*historian.Store, []historian.Series) {
	o := historian.DefaultOptions()
	o.Pebble.SyncWrites = sync
	o.MinFreeSpace = 0
	s := mustOpen(b, b.TempDir(), o)
	ids := make([]historian.Series, 10_000)
	for i := range ids {
		ids[i] = mustCreate(b, s, fmt.Sprintf("plant/device%04d/tag%d", i/10, i%10))
	}
	// The rows of the series are not part of what is measured.
	if err := s.Append(context.Background(), nil, []historian.Row{{Key: []byte("ready"), Value: []byte{1}}}); err != nil {
		b.Fatal(err)
	}
	return s, ids
}

// BenchmarkAppend has many callers, each waiting for its own commit, as connections do: as fast as it goes,
// and paced to 20,000 values a second.
func BenchmarkAppend(b *testing.B) {
	for _, c := range []struct {
		name           string
		callers, batch int
		rate           float64 // values a second of all; 0 is no limit
		sync           bool
		reader         bool // the log is followed meanwhile
	}{
		{"sync/callers=1000/batch=1", 1000, 1, 0, true, false},
		{"sync/callers=1000/batch=1/paced=20000", 1000, 1, 20_000, true, false},
		{"sync/callers=10/batch=100", 10, 100, 0, true, false},
		{"sync/callers=1/batch=1", 1, 1, 0, true, false},
		{"nosync/callers=1000/batch=1", 1000, 1, 0, false, false},
		{"nosync/callers=1000/batch=1/paced=20000", 1000, 1, 20_000, false, false},
		{"nosync/callers=10/batch=100", 10, 100, 0, false, false},
		{"read/sync/callers=1000/batch=1/paced=20000", 1000, 1, 20_000, true, true},
		{"read/sync/callers=10/batch=100", 10, 100, 0, true, true},
		{"read/sync/callers=1/batch=1", 1, 1, 0, true, true},
		{"read/nosync/callers=10/batch=100", 10, 100, 0, false, true},
	} {
		b.Run(c.name, func(b *testing.B) {
			s, ids := openOnDisk(b, c.sync)
			if c.reader {
				ctx, stop := context.WithCancel(context.Background())
				var reading sync.WaitGroup
				reading.Go(func() {
					err := s.ReadLog(ctx, s.LastSeq()+1, func(samples []historian.Sample) error {
						s.Hold(samples[0].Seq)
						return nil
					})
					if !errors.Is(err, context.Canceled) {
						b.Error(err)
					}
				})
				defer reading.Wait()
				defer stop()
			}
			b.ReportAllocs()
			rounds := max(1, b.N/(c.callers*c.batch))
			waits := make([][]time.Duration, c.callers)
			before := written(b)
			b.ResetTimer()
			start := time.Now()
			var wg sync.WaitGroup
			for w := range c.callers {
				waits[w] = make([]time.Duration, 0, rounds)
				wg.Go(func() {
					samples := make([]historian.Sample, c.batch)
					for r := range rounds {
						if c.rate > 0 {
							turn := float64(r*c.callers+w*7919%c.callers) * float64(c.batch) / c.rate
							time.Sleep(time.Until(start.Add(time.Duration(turn * float64(time.Second)))))
						}
						for i := range samples {
							samples[i] = historian.Sample{Series: ids[(w*10+i+r%10)%len(ids)], Value: number(int64(20_000 + r%17))}
						}
						t := time.Now()
						if err := s.Append(context.Background(), samples, nil); err != nil {
							b.Error(err)
							return
						}
						waits[w] = append(waits[w], time.Since(t))
					}
				})
			}
			wg.Wait()
			took := time.Since(start)
			b.StopTimer()
			n := float64(rounds * c.callers * c.batch)
			b.ReportMetric(n/took.Seconds(), "values/s")
			b.ReportMetric(float64(written(b)-before)/n, "written-B/value")
			reportWaits(b, waits)
		})
	}
}

func BenchmarkRawHour(b *testing.B) {
	s, ids := openOnDisk(b, true)
	begin := int64(1_790_000_000) / 3600 * 3600 * 1000
	// Ten series, an hour at 1 Hz, a checkpoint every ten minutes, the last ten minutes in the head.
	for sec := range int64(3600) {
		var samples []historian.Sample
		for i := range 10 {
			samples = append(samples, at(ids[i], begin+sec*1000+sec%4, 20_000+sec%97))
		}
		mustAppend(b, s, samples...)
		if sec%600 == 599 && sec < 3599 {
			if err := s.Checkpoint(context.Background()); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportAllocs()
	var page []historian.Sample
	for i := 0; b.Loop(); i++ {
		var err error
		page, _, err = s.Raw(context.Background(), page[:0], historian.Query{
			Series: ids[i%10], From: begin * 1e6, To: (begin + 3_600_000) * 1e6,
		})
		if err != nil || len(page) != 3600 {
			b.Fatal(len(page), err)
		}
	}
}

func BenchmarkCreateSeries(b *testing.B) {
	o := historian.DefaultOptions()
	o.MinFreeSpace = 0
	for range b.N {
		s, err := historian.Open(b.TempDir(), o)
		if err != nil {
			b.Fatal(err)
		}
		start := time.Now()
		var wg sync.WaitGroup
		for w := range 5 {
			wg.Go(func() {
				for i := range 2000 {
					id := mustCreate(b, s, fmt.Sprintf("w%d/%d", w, i))
					if err := s.Append(context.Background(), []historian.Sample{{Series: id, Value: number(1)}}, nil); err != nil {
						b.Error(err)
					}
				}
			})
		}
		wg.Wait()
		b.ReportMetric(time.Since(start).Seconds(), "s/10000-first-contacts")
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

func reportWaits(b *testing.B, waits [][]time.Duration) {
	all := slices.Concat(waits...)
	slices.Sort(all)
	if len(all) == 0 {
		return
	}
	b.ReportMetric(float64(all[len(all)/2].Microseconds())/1e3, "p50-ms")
	b.ReportMetric(float64(all[len(all)*99/100].Microseconds())/1e3, "p99-ms")
}
