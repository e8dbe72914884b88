package historian_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/historian"
)

// A row that is finished late sees what its samples became, and is as durable as they are.
func TestLateRow(t *testing.T) {
	fsys := vfs.NewCrashableMem()
	s := mustOpen(t, "db", options(fsys))
	id := mustCreate(t, s, "a")
	samples := []historian.Sample{{Series: id, Value: number(1)}, {Series: id, Value: number(2)}}
	row := historian.Row{Key: []byte("late"), Value: []byte("head "), Late: func(dst []byte) []byte {
		return fmt.Appendf(dst, "%d %d", samples[1].Seq, samples[1].Time)
	}}
	if err := s.Append(context.Background(), samples, []historian.Row{row}); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("head %d %d", samples[1].Seq, samples[1].Time)
	check := func(s *historian.Store) {
		t.Helper()
		got := ""
		if err := s.Rows([]byte("late"), func(_, value []byte) bool { got = string(value); return true }); err != nil {
			t.Fatal(err)
		}
		if got != want || samples[1].Time == 0 {
			t.Errorf("the row holds %q, want %q", got, want)
		}
	}
	check(s)
	check(mustOpen(t, "db", options(fsys.CrashClone(vfs.CrashCloneCfg{}))))
}
