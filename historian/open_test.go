package historian_test

import (
	"context"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/google/go-cmp/cmp"

	"millrace/historian"
	"millrace/historian/datadir"
)

func writeFile(t *testing.T, fsys vfs.FS, path, text string) {
	t.Helper()
	f, err := fsys.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestOpenRefuses(t *testing.T) {
	tests := []struct {
		name  string
		dir   func(t *testing.T, fsys *vfs.MemFS) vfs.FS
		wants []string
	}{
		{"a foreign directory", func(t *testing.T, fsys *vfs.MemFS) vfs.FS {
			writeFile(t, fsys, "db/photo.jpg", "x")
			return fsys
		}, []string{"db", "photo.jpg", "choose an empty data directory"}},
		{"a newer format", func(t *testing.T, fsys *vfs.MemFS) vfs.FS {
			writeFile(t, fsys, "db/"+datadir.MarkFile, "millrace historian 2\n")
			return fsys
		}, []string{"db", "format 2", "up to 1", "newer millrace"}},
		{"the mark of another part", func(t *testing.T, fsys *vfs.MemFS) vfs.FS {
			writeFile(t, fsys, "db/"+datadir.MarkFile, "millrace kv 1\n")
			return fsys
		}, []string{"db", "not ours"}},
		{"a directory in use", func(t *testing.T, fsys *vfs.MemFS) vfs.FS {
			mustOpen(t, "db", options(fsys))
			return fsys
		}, []string{"db", "in use by another millrace", "stop it"}},
		{"no write access", func(t *testing.T, fsys *vfs.MemFS) vfs.FS {
			return errorfs.Wrap(fsys, errorfs.InjectorFunc(func(op errorfs.Op) error {
				if op.Kind == errorfs.OpCreate || op.Kind == errorfs.OpLock {
					return fs.ErrPermission
				}
				return nil
			}))
		}, []string{"db", "cannot write", "give the user"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			mem := vfs.NewMem()
			if err := mem.MkdirAll("db", 0o755); err != nil {
				t.Fatal(err)
			}
			fsys := tt.dir(t, mem)
			before, err := mem.List("db")
			if err != nil {
				t.Fatal(err)
			}
			_, err = historian.Open("db", options(fsys))
			if err == nil {
				t.Fatal("opened")
			}
			for _, want := range tt.wants {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q lacks %q", err, want)
				}
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("error of more than one line: %q", err)
			}
			after, err := mem.List("db")
			if err != nil {
				t.Fatal(err)
			}
			if len(before) != len(after) {
				t.Errorf("the directory changed from %v to %v", before, after)
			}
		})
	}
}

func TestOptionsReportEveryFault(t *testing.T) {
	o := historian.DefaultOptions()
	if err := o.Validate(); err != nil {
		t.Fatalf("the defaults are refused: %v", err)
	}
	o.Pebble.CommitWindow = 2 * time.Second
	o.MaxLogBytes = 1
	o.DefaultRetention = "2d"
	o.MinFreeSpace = -1
	err := o.Validate()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"historian.pebble.commitWindow: 2s is above 1s", "historian.maxLogBytes: 1 is below",
		`historian.defaultRetention: "2d"`, "historian.minFreeSpace: -1 is below 0"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in %q", want, err)
		}
	}
}

func TestClassWords(t *testing.T) {
	for c := historian.Class1d; c <= historian.ClassForever; c++ {
		if got, ok := historian.ParseClass(c.String()); !ok || got != c {
			t.Errorf("%v reads back as %v %v", c, got, ok)
		}
	}
	if _, ok := historian.ParseClass("2d"); ok {
		t.Error("2d is a class")
	}
	if d := historian.Class366d.Duration(); d != 366*24*time.Hour {
		t.Errorf("366d is %v", d)
	}
	if d := historian.ClassForever.Duration(); d != 0 {
		t.Errorf("forever is %v", d)
	}
}

func TestReceiptStampsNeverGoBack(t *testing.T) {
	fsys := vfs.NewMem()
	now := time.UnixMilli(1_790_000_000_123).Add(456 * time.Microsecond)
	o := options(fsys)
	o.Now = func() time.Time { return now }
	s := mustOpen(t, "db", o)
	id, other := mustCreate(t, s, "a"), mustCreate(t, s, "b")
	stamp := func(id historian.Series) int64 {
		t.Helper()
		sample := []historian.Sample{{Series: id, Value: number(1), Time: 5, Scale: 9}}
		if err := s.Append(context.Background(), sample, nil); err != nil {
			t.Fatal(err)
		}
		if x := sample[0]; x.Received != x.Time || x.Scale != 6 || x.Seq == 0 {
			t.Errorf("stamped as %+v", x)
		}
		return sample[0].Time
	}
	first := stamp(id)
	if first != 1_790_000_000_123_000_000 {
		t.Errorf("stamped %d, want the clock cut to the millisecond", first)
	}
	now = now.Add(-time.Hour)
	for _, step := range []func(){
		func() {},
		func() { reopen(t, &s, o) }, // from the carried head
		func() { o.Checkpoint.CarryBelow = -1; reopen(t, &s, o); reopen(t, &s, o) }, // from the chunk's head row
	} {
		step()
		if got := stamp(id); got != first {
			t.Errorf("stamped %d after the clock was set back, want %d", got, first)
		}
	}
	if got := stamp(other); got != first-time.Hour.Nanoseconds() {
		t.Errorf("another series is stamped %d; only the same one is bound", got)
	}
}

func reopen(t *testing.T, s **historian.Store, o historian.Options) {
	t.Helper()
	if err := (*s).Close(); err != nil {
		t.Fatal(err)
	}
	*s = mustOpen(t, "db", o)
}

func TestSeriesAndRowsOutliveARestart(t *testing.T) {
	fsys := vfs.NewMem()
	o := options(fsys)
	now := time.Unix(1_790_000_000, 0)
	o.Now = func() time.Time { return now }
	s := mustOpen(t, "db", o)
	a, b := mustCreate(t, s, "a"), mustCreate(t, s, "b")
	// No commit lies between the birth of a and this.
	if err := s.SetSeries(context.Background(), a, historian.Class7d, []byte("new")); err != nil {
		t.Fatal(err)
	}
	if err := s.SetSeries(context.Background(), 99, historian.Class7d, nil); err == nil {
		t.Error("a series that does not exist was changed")
	}
	rows := []historian.Row{{Key: []byte("x1"), Value: []byte("1")}, {Key: []byte("x2"), Value: []byte("2")}, {Key: []byte("y"), Value: []byte{}}}
	if err := s.Append(context.Background(), nil, rows); err != nil {
		t.Fatal(err)
	}
	if err := s.Append(context.Background(), []historian.Sample{at(b, 1, 1)}, []historian.Row{{Key: []byte("x1")}}); err != nil {
		t.Fatal(err)
	}
	reopen(t, &s, o)
	var got []historian.SeriesRow
	if err := s.EachSeries(func(r historian.SeriesRow) bool { got = append(got, r); return true }); err != nil {
		t.Fatal(err)
	}
	want := []historian.SeriesRow{
		{Series: a, Name: "a", Class: historian.Class7d, Created: now.UnixNano(), Meta: []byte("new")},
		{Series: b, Name: "b", Class: historian.Class1d, Created: now.UnixNano(), Meta: []byte("meta of b")},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("series (-want +got):\n%s", diff)
	}
	var keys []string
	for _, prefix := range []string{"x", "y"} {
		if err := s.Rows([]byte(prefix), func(k, v []byte) bool { keys = append(keys, string(k)+"="+string(v)); return true }); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"x2=2", "y="}, keys); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	if id, ok, err := s.Lookup("b"); id != b || !ok || err != nil {
		t.Errorf("lookup of b: %d %v %v", id, ok, err)
	}
	if c := mustCreate(t, s, "c"); c <= b {
		t.Errorf("id %d was given out before", c)
	}
	if err := s.Append(context.Background(), []historian.Sample{at(77, 1, 1)}, nil); err == nil {
		t.Error("a sample of no series was stored")
	}
}
