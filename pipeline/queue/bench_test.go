package queue

import (
	"context"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func cpuTime() time.Duration {
	var ru syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &ru) // fails only for a wrong argument
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}

func writes(b *testing.B) (n float64) {
	text, err := os.ReadFile("/proc/self/io")
	if err != nil {
		return 0 // not on Linux: the figure is left at nought
	}
	for line := range strings.Lines(string(text)) {
		if s, ok := strings.CutPrefix(line, "syscw: "); ok {
			n, _ = strconv.ParseFloat(strings.TrimSpace(s), 64)
		}
	}
	return n
}

// BenchmarkQueue passes runs of 200-octet values through the queue, 80 % in lane normal, in groups as the follower gets
// them, and tells CPU, write() calls and the latency of a run.
func BenchmarkQueue(b *testing.B) {
	for _, tt := range []struct {
		name        string
		rate, group int // runs a second, runs that come at once
		memory      bool
	}{
		{"flat out", 0, 64, false},
		{"4400 one by one", 4400, 1, false},
		{"4400 groups of 8", 4400, 8, false},
		{"4400 groups of 44", 4400, 44, false},
		{"20000 groups of 50", 20000, 50, false},
		{"100 one by one", 100, 1, false},
		{"none 4400 one by one", 4400, 1, true},
		{"none 4400 groups of 8", 4400, 8, true},
		{"none flat out", 0, 64, true},
	} {
		b.Run(tt.name, func(b *testing.B) {
			var q closer
			if tt.memory {
				q = NewMemory(Options{})
			} else {
				j, err := Open(b.TempDir(), Options{MaxBytes: 1 << 30})
				if err != nil {
					b.Fatal(err)
				}
				q = j
			}
			defer q.Close()
			ctx, cancel := context.WithCancel(context.Background())
			value := []byte(strings.Repeat("1", 200))
			var takers sync.WaitGroup
			var mu sync.Mutex
			var late []time.Duration
			done := make(chan struct{})
			for l := range Lanes {
				takers.Go(func() {
					for {
						f, err := q.Take(ctx, l)
						if err != nil {
							return
						}
						now := time.Now().UnixNano()
						mu.Lock()
						for i := range f.Entries {
							late = append(late, time.Duration(now-f.Entries[i].Time))
						}
						if len(late) >= b.N {
							close(done)
						}
						mu.Unlock()
						f.Ack()
					}
				})
			}
			b.ResetTimer()
			cpu, calls, began := cpuTime(), writes(b), time.Now()
			refs := []Ref{{1, 1, 0}}
			for i := range b.N {
				if i%tt.group == 0 && tt.rate > 0 {
					time.Sleep(time.Until(began.Add(time.Duration(i) * time.Second / time.Duration(tt.rate))))
				}
				l := Normal
				if i%10 == 0 {
					l = High
				} else if i%10 == 1 {
					l = Low
				}
				if err := q.Put(ctx, l, Entry{Seq: uint64(i) + 1, Workspace: "main", Topic: "plant/line1/speed", Time: time.Now().UnixNano(), Value: value, Refs: refs}); err != nil {
					b.Fatal(err)
				}
			}
			<-done
			n := float64(b.N)
			b.ReportMetric(float64((cpuTime()-cpu).Nanoseconds())/n/1e3, "cpu-µs/run")
			b.ReportMetric((writes(b)-calls)/n, "write()/run")
			cancel()
			takers.Wait()
			b.ReportMetric(float64(percentile(late, 50).Microseconds())/1e3, "p50-ms")
			b.ReportMetric(float64(percentile(late, 99).Microseconds())/1e3, "p99-ms")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func percentile(list []time.Duration, p int) time.Duration {
	slices.Sort(list)
	return list[min(len(list)*p/100, len(list)-1)]
}
