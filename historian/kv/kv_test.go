package kv_test

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/google/go-cmp/cmp"

	"millrace/historian/datadir"
	"millrace/historian/kv"
)

func mustOpen(t *testing.T, fsys vfs.FS) *kv.Store {
	t.Helper()
	s, err := kv.Open("kv", kv.Options{FS: fsys})
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

func set(k, v string) kv.Op { return kv.Op{Key: []byte(k), Value: []byte(v)} }

func scan(t *testing.T, s *kv.Store, prefix string) (out []string) {
	t.Helper()
	if err := s.Scan([]byte(prefix), func(k, v []byte) bool { out = append(out, string(k)+"="+string(v)); return true }); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestApplyGetScan(t *testing.T) {
	s := mustOpen(t, vfs.NewMem())
	if err := s.Apply(set("a/1", "x"), set("a/2", ""), set("a\xff", "y"), set("b", "z"), set("a/1", "w")); err != nil {
		t.Fatal(err)
	}
	if err := s.Apply(kv.Op{Key: []byte("b")}, set("c", "1")); err != nil {
		t.Fatal(err)
	}
	if err := s.Apply(set("d", "1"), set("", "1")); err == nil {
		t.Error("an empty key was taken")
	}
	for _, tt := range []struct {
		prefix string
		want   []string
	}{
		{"a/", []string{"a/1=w", "a/2="}},
		{"a\xff", []string{"a\xff=y"}},
		{"", []string{"a/1=w", "a/2=", "a\xff=y", "c=1"}},
		{"zz", nil},
	} {
		if diff := cmp.Diff(tt.want, scan(t, s, tt.prefix)); diff != "" {
			t.Errorf("scan of %q (-want +got):\n%s", tt.prefix, diff)
		}
	}
	if v, ok, err := s.Get([]byte("a/2")); v == nil || len(v) != 0 || !ok || err != nil {
		t.Errorf("an empty value reads as %q %v %v", v, ok, err)
	}
	if v, ok, err := s.Get([]byte("b")); ok || err != nil {
		t.Errorf("a deleted key reads as %q %v", v, err)
	}
}

func TestAppliedOutlivesAPowerCut(t *testing.T) {
	fsys := vfs.NewCrashableMem()
	s := mustOpen(t, fsys)
	if err := s.Apply(set("a", "1"), set("b", "2")); err != nil {
		t.Fatal(err)
	}
	after := mustOpen(t, fsys.CrashClone(vfs.CrashCloneCfg{}))
	if diff := cmp.Diff([]string{"a=1", "b=2"}, scan(t, after, "")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestWriteErrorIsFinal(t *testing.T) {
	var armed atomic.Bool
	fsys := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if armed.Load() && strings.HasSuffix(op.Path, ".log") && op.Kind != errorfs.OpFileClose {
			return syscall.EIO
		}
		return nil
	}))
	var fatal []error
	s, err := kv.Open("kv", kv.Options{FS: fsys, Fatal: func(err error) { fatal = append(fatal, err) }})
	if err != nil {
		t.Fatal(err)
	}
	armed.Store(true)
	for range 2 {
		if err := s.Apply(set("a", "1")); err == nil {
			t.Error("applied on a disk that refuses writes")
		}
	}
	if len(fatal) != 1 {
		t.Errorf("Fatal was called %d times, want once", len(fatal))
	}
	if err := s.Close(); err == nil {
		t.Error("close says that all is well")
	}
}

func TestCloseWhileInUse(t *testing.T) {
	s := mustOpen(t, vfs.NewMem())
	if err := s.Apply(set("a", "1"), set("b", "1")); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	inside := make(chan struct{})
	wg.Go(func() {
		n := 0
		err := s.Scan(nil, func(k, _ []byte) bool {
			if n++; n == 1 {
				close(inside)
			}
			// May be turned away, must not hang or crash.
			if _, _, err := s.Get(k); err != nil && !errors.Is(err, kv.ErrClosed) {
				t.Error(err)
			}
			return true
		})
		if err != nil || n != 2 {
			t.Errorf("scan under way at close: %d records, %v", n, err)
		}
	})
	<-inside
	for range 2 {
		wg.Go(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if err := s.Apply(set("a", "2")); !errors.Is(err, kv.ErrClosed) {
		t.Errorf("apply after close: %v, want ErrClosed", err)
	}
}

func TestOpenRefuses(t *testing.T) {
	write := func(name, text string) *vfs.MemFS {
		fsys := vfs.NewMem()
		if err := fsys.MkdirAll("kv", 0o755); err != nil {
			t.Fatal(err)
		}
		f, err := fsys.Create("kv/"+name, vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		return fsys
	}
	locked := vfs.NewMem()
	mustOpen(t, locked)
	for _, tt := range []struct {
		name, want string
		fsys       vfs.FS
	}{
		{"foreign", "foreign files", write("x", "")},
		{"newer", "newer millrace", write(datadir.MarkFile, "millrace kv 9\n")},
		{"historian's", "not ours", write(datadir.MarkFile, "millrace historian 1\n")},
		{"locked", "in use", locked},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := kv.Open("kv", kv.Options{FS: tt.fsys})
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("open: %v, want one line with %q", err, tt.want)
			}
		})
	}
}

func TestDropRange(t *testing.T) {
	s, err := kv.Open("records", kv.Options{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, k := range []string{"a", "b1", "b2", "c"} {
		if err := s.Apply(kv.Op{Key: []byte(k), Value: []byte{1}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.DropRange([]byte("b"), []byte("c")); err != nil {
		t.Fatal(err)
	}
	left := ""
	if err := s.Scan(nil, func(k, _ []byte) bool { left += string(k); return true }); err != nil || left != "ac" {
		t.Errorf("left %q, %v", left, err)
	}
}
