package historian_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/historian"
)

func options(fsys vfs.FS) historian.Options {
	o := historian.DefaultOptions()
	o.FS, o.KeepAll = fsys, true // their times are small numbers
	return o
}

func mustOpen(t testing.TB, dir string, o historian.Options) *historian.Store {
	t.Helper()
	s, err := historian.Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

func mustCreate(t testing.TB, s *historian.Store, name string) historian.Series {
	t.Helper()
	id, err := s.CreateSeries(name, historian.Class1d, []byte("meta of "+name))
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func number(n int64) historian.Value { return historian.Value{Kind: historian.Decimal, Mant: n} }

func at(id historian.Series, ms, n int64) historian.Sample {
	return historian.Sample{Series: id, Stamped: true, Scale: 6, Time: ms * 1e6, Value: number(n)}
}

func mustAppend(t testing.TB, s *historian.Store, samples ...historian.Sample) {
	t.Helper()
	if err := s.Append(context.Background(), samples, nil); err != nil {
		t.Fatal(err)
	}
}

// all reads a series page by page and gives time in ms and value of each sample.
func all(t testing.TB, s *historian.Store, id historian.Series, limit int, desc bool) (out []string) {
	t.Helper()
	q := historian.Query{Series: id, From: -1 << 60, To: 1 << 62, Limit: limit, Desc: desc}
	for {
		page, next, err := s.Raw(context.Background(), nil, q)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range page {
			out = append(out, fmt.Sprintf("%d=%d", x.Time/1e6, x.Value.Mant))
		}
		if next == nil {
			return out
		}
		q.After = next
	}
}

func TestRawKeepsOrderOverCheckpointsAndRestarts(t *testing.T) {
	hour := time.Hour.Milliseconds()
	fsys := vfs.NewMem()
	o := options(fsys)
	o.Checkpoint.CarryBelow = -1
	s := mustOpen(t, "db", o)
	id := mustCreate(t, s, "a")
	other := mustCreate(t, s, "b")
	mustAppend(t, s, at(id, 5*hour, 1), at(other, 5*hour, 100), at(id, 5*hour, 2), at(id, 1, 3))
	if err := s.Checkpoint(context.Background()); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, s, at(id, 5*hour, 4), at(id, 5*hour-1, 5), at(id, 1, 6))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, "db", o)
	mustAppend(t, s, at(id, 5*hour, 7), at(id, 2, 8))
	want := []string{"1=3", "1=6", "2=8", "17999999=5", "18000000=1", "18000000=2", "18000000=4", "18000000=7"}
	back := make([]string, len(want))
	for i, x := range want {
		back[len(want)-1-i] = x
	}
	for limit := 1; limit <= len(want)+1; limit++ {
		if got := all(t, s, id, limit, false); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("pages of %d:\n got %v\nwant %v", limit, got, want)
		}
		if got := all(t, s, id, limit, true); fmt.Sprint(got) != fmt.Sprint(back) {
			t.Errorf("pages of %d, newest first:\n got %v\nwant %v", limit, got, back)
		}
	}
	if last, ok := s.Latest(id); !ok || last.Value.Mant != 7 {
		t.Errorf("latest is %v %v, want the last arrival at the greatest time, 7", last, ok)
	}
}
