package historian_test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/historian"
)

const restartValues = 2_000_000

// fill stores values of 10,000 series at 1 Hz: drifting, counting and switching.
func fill(b *testing.B, s *historian.Store, n int) {
	ids := make([]historian.Series, 10_000)
	for i := range ids {
		ids[i] = mustCreate(b, s, fmt.Sprintf("plant/device%04d/tag%d", i/10, i%10))
	}
	samples := make([]historian.Sample, 500)
	for v := 0; v < n; v += len(samples) {
		for i := range samples {
			k := v + i
			sec := int64(k / len(ids))
			x := at(ids[k%len(ids)], 1_790_000_000_000+sec*1000+int64(k%4), 0)
			switch k % 10 {
			case 0, 1, 2:
				x.Value = historian.Value{Kind: historian.Decimal, Exp: 1, Mant: 200 + sec/7%40}
			case 3, 4, 5:
				x.Value = historian.Value{Kind: historian.Decimal, Exp: 2, Mant: 5000 + sec*7919%977}
			case 9:
				x.Value = historian.Value{Kind: historian.Bool, Mant: sec / 60 % 2}
			default:
				x.Value.Mant = sec * 3
			}
			samples[i] = x
		}
		mustAppend(b, s, samples...)
	}
}

// BenchmarkReplay opens a store that was cut off with its whole log to be read again.
func BenchmarkReplay(b *testing.B) {
	fsys := vfs.NewCrashableMem()
	o := options(fsys)
	s := mustOpen(b, "db", o)
	fill(b, s, restartValues)
	for b.Loop() {
		after := o
		after.FS = fsys.CrashClone(vfs.CrashCloneCfg{})
		start := time.Now()
		again, err := historian.Open("db", after)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(time.Since(start).Nanoseconds())/restartValues, "ns/value")
		if err := again.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkAtRest stores with checkpoints on a disk and measures what a clean stop leaves, and the time of
// the start after it.
func BenchmarkAtRest(b *testing.B) {
	for b.Loop() {
		dir := b.TempDir()
		o := historian.DefaultOptions()
		o.MinFreeSpace = 0
		s, err := historian.Open(dir, o)
		if err != nil {
			b.Fatal(err)
		}
		before := written(b)
		for range 3 {
			fill(b, s, restartValues)
			if err := s.Checkpoint(context.Background()); err != nil {
				b.Fatal(err)
			}
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(written(b)-before)/(3*restartValues), "written-B/value")
		size := int64(0)
		err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			i, err := d.Info()
			if err == nil {
				size += i.Size()
				if os.Getenv("MILLRACE_LONG") != "" {
					b.Log(i.Size(), path)
				}
			}
			return err
		})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(size)/(3*restartValues), "rest-B/value")
		start := time.Now()
		if s, err = historian.Open(dir, o); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(time.Since(start).Seconds()*1000, "open-ms")
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
