package history

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"millrace/historian/kv"
)

// BenchmarkRows writes rows of runs of three nodes, of 2,000 pipelines, as the box does: a batch each half second of its
// time. It tells the CPU and the octets on disk of a row, and what Add alone takes for runs that another row stands for.
func BenchmarkRows(b *testing.B) {
	for _, tt := range []struct {
		name   string
		detail uint8
		each   time.Duration // of the clock, between two runs
	}{
		{"minimal", Minimal, time.Second / 2000}, {"standard", Standard, time.Second / 2000}, {"full", Full, time.Second / 2000},
		{"standard, most absorbed", Standard, time.Second / 200_000},
	} {
		b.Run(tt.name, func(b *testing.B) {
			dir := filepath.Join(b.TempDir(), "runs")
			db, err := kv.Open(dir, kv.Options{MemTable: MemTable})
			if err != nil {
				b.Fatal(err)
			}
			now := time.Unix(1790000000, 0)
			s, err := Open(db, Options{Retention: 24 * time.Hour, Now: func() time.Time { return now }})
			if err != nil {
				b.Fatal(err)
			}
			topics := []string{"plant/hall1/line1/filler/temperature", "plant/hall1/line2/capper/speed", "plant/hall2/line7/oven/pressure"}
			cpu, batch := cpuTime(), now
			b.ResetTimer()
			for i := range b.N {
				now = now.Add(tt.each)
				s.Add(Run{ID: RunID{ByValue, uint32(i%2000) + 1, uint64(i), 1}, Version: 3, Mode: "trigger", Started: now, Duration: time.Duration(300+i%977) * time.Microsecond, Attempt: 1, Node: -1, Detail: tt.detail,
					Trigger: Trigger{Workspace: "main", Topic: topics[i%3], Time: now.UnixNano() - int64(i%9e5), Scale: 6, Value: Raw("21.5"), Node: 1},
					Nodes: []NodeRun{{Number: 1, Status: NodeDone, Duration: time.Microsecond, Out: Raw(`{"value":21.5}`)}, {Number: 2, Status: NodeDone, From: 10 * time.Microsecond, Duration: time.Duration(i%50) * time.Microsecond, In: Raw(`{"value":21.5}`), Out: Raw(`{"value":22}`)},
						{Number: 3, Status: NodeDone, From: 70 * time.Microsecond, Duration: time.Duration(200+i%800) * time.Microsecond, In: Raw(`{"value":22}`), Out: Raw(`{"value":22}`)}}})
				if now.Sub(batch) >= flushEvery {
					batch = now
					s.settle(false)
					if err := s.Flush(); err != nil {
						b.Fatal(err)
					}
				}
			}
			s.settle(true)
			if err := s.Flush(); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64((cpuTime()-cpu).Nanoseconds())/float64(b.N)/1e3, "cpu-µs/run")
			if err := db.Close(); err != nil { // memory goes into tables
				b.Fatal(err)
			}
			if db, err = kv.Open(dir, kv.Options{}); err != nil {
				b.Fatal(err)
			}
			if err := db.Close(); err != nil {
				b.Fatal(err)
			}
			var tables int64
			if err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
				if err == nil && filepath.Ext(path) == ".sst" {
					if i, err := os.Stat(path); err == nil {
						tables += i.Size()
					}
				}
				return err
			}); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(tables)/float64(b.N), "octets/run")
		})
	}
}

func cpuTime() time.Duration {
	var ru syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &ru) // fails only for a wrong argument
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}
