package historian_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace/historian"
)

// A burst right after the start must not leave the log files that were written in advance: an fsync into a fresh
// one costs several times as much.
func TestTheFirstBurstStaysInWarmLogs(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "db")
	o := historian.DefaultOptions()
	o.MinFreeSpace = 0
	s := mustOpen(t, dir, o)
	meta := []byte(strings.Repeat("m", 200))
	for i := range 10_000 {
		if _, err := s.CreateSeries(fmt.Sprintf("plant/device%04d/tag%d", i/10, i%10), historian.Class1d, meta); err != nil {
			t.Fatal(err)
		}
		if i%100 != 99 {
			continue
		}
		if err := s.Append(context.Background(), nil, []historian.Row{{Key: []byte("burst"), Value: []byte{1}}}); err != nil {
			t.Fatal(err)
		}
	}
	logs, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("log files: %v, %v", logs, err)
	}
	for _, l := range logs {
		info, err := os.Stat(l)
		if err != nil {
			t.Fatal(err)
		}
		if info.Size() < 16<<20 {
			t.Errorf("%s has %d bytes: it was not written in advance", l, info.Size())
		}
	}
}
