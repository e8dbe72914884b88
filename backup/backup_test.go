package backup_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"millrace/backup"
	"millrace/historian"
	"millrace/historian/kv"

	"github.com/prometheus/client_golang/prometheus"
)

// stores is what a box keeps, on the real disk.
type stores struct {
	t       testing.TB
	data    string
	history *historian.Store
	records *kv.Store
	id      historian.Series
	n       int64 // values appended: 1…n
}

func open(t testing.TB, data string) *stores {
	t.Helper()
	o := historian.DefaultOptions()
	o.Checkpoint.Values, o.KeepAll = 500, true // the times of these values are small numbers
	s := &stores{t: t, data: data}
	var err error
	if s.records, err = kv.Open(filepath.Join(data, "records"), kv.Options{}); err != nil {
		t.Fatal(err)
	}
	if s.history, err = historian.Open(filepath.Join(data, "historian"), o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	return s
}

func (s *stores) close() {
	if s.history == nil {
		return
	}
	if err := errors.Join(s.history.Close(), s.records.Close()); err != nil {
		s.t.Error(err)
	}
	s.history = nil
}

func (s *stores) box() backup.Box {
	return backup.Box{Data: s.data, Version: "test", Sequence: func() uint64 { return s.history.State().LastSeq }, Files: []string{"key"}, Parts: []backup.Part{
		{Name: "historian", Snapshot: s.history.Snapshot, Check: historian.Verify}, {Name: "records", Snapshot: s.records.Snapshot, Check: kv.Verify}}}
}

func parts() []backup.Part {
	return []backup.Part{{Name: "historian", Check: historian.Verify}, {Name: "records", Check: kv.Verify}}
}

// fill appends n values, the record of their number, and moves them into a table.
func (s *stores) fill(n int64) {
	s.t.Helper()
	var err error
	if s.id == 0 {
		if s.id, err = s.history.CreateSeries("a", historian.Class1d, nil); err != nil {
			s.t.Fatal(err)
		}
	}
	for range n {
		s.n++
		if err := s.history.Append(context.Background(), []historian.Sample{{Series: s.id, Stamped: true, Scale: 6, Time: s.n * 1e6, Value: historian.Value{Kind: historian.Decimal, Mant: s.n}}}, nil); err != nil {
			s.t.Fatal(err)
		}
	}
	if err := errors.Join(s.records.Apply(kv.Op{Key: []byte("n"), Value: fmt.Append(nil, s.n)}), s.history.Checkpoint(context.Background())); err != nil {
		s.t.Fatal(err)
	}
}

func values(t testing.TB, h *historian.Store, id historian.Series) (out []int64) {
	t.Helper()
	q := historian.Query{Series: id, From: -1 << 60, To: 1 << 62, Limit: 100_000}
	page, next, err := h.Raw(context.Background(), nil, q)
	if err != nil || next != nil {
		t.Fatalf("%v, more: %v", err, next != nil)
	}
	for _, s := range page {
		out = append(out, s.Value.Mant)
	}
	return out
}

func create(t testing.TB, box backup.Box, dir, previous string) backup.Manifest {
	t.Helper()
	m, err := backup.Create(t.Context(), box, backup.Target{Dir: dir, Previous: previous}, time.Now, nil)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func faults(t testing.TB, dir string) []backup.Fault {
	t.Helper()
	_, list, err := backup.Verify(t.Context(), dir, parts(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// Restoring a backup taken under load gives all that was acknowledged before it, without a hole, and a record store that is no
// older than the values: each record names how many values it saw.
func TestRestoreOfABackupUnderLoad(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "data"))
	s.fill(600)
	if err := os.WriteFile(filepath.Join(s.data, "key"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	var acked atomic.Int64
	acked.Store(s.n)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := s.n + 1; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			// As a box does: first the record that a value needs, then the value.
			if err := s.records.Apply(kv.Op{Key: []byte("n"), Value: fmt.Append(nil, n)}); err != nil {
				t.Error(err)
				return
			}
			if err := s.history.Append(context.Background(), []historian.Sample{{Series: s.id, Stamped: true, Scale: 6, Time: n * 1e6, Value: historian.Value{Kind: historian.Decimal, Mant: n}}}, nil); err != nil {
				t.Error(err)
				return
			}
			acked.Store(n)
		}
	})
	root := t.TempDir()
	for i := range 3 {
		dir, before := filepath.Join(root, fmt.Sprint(i)), acked.Load()
		previous := ""
		if i > 0 {
			previous = filepath.Join(root, fmt.Sprint(i-1))
		}
		m := create(t, s.box(), dir, previous)
		if m.Sequence < uint64(before) {
			t.Errorf("sequence %d, %d were acknowledged", m.Sequence, before)
		}
		if list := faults(t, dir); list != nil {
			t.Fatalf("backup %d: %v", i, list)
		}
		data := filepath.Join(root, fmt.Sprint("data", i))
		if _, err := backup.Restore(t.Context(), dir, data, parts(), nil); err != nil {
			t.Fatal(err)
		}
		r := open(t, data)
		got := values(t, r.history, s.id)
		for k, v := range got {
			if v != int64(k+1) {
				t.Fatalf("backup %d: place %d holds %d", i, k, v)
			}
		}
		if int64(len(got)) < before {
			t.Errorf("backup %d: %d values, %d were acknowledged before it", i, len(got), before)
		}
		text, _, err := r.records.Get([]byte("n"))
		var seen int
		if _, scan := fmt.Sscan(string(text), &seen); err != nil || scan != nil || seen < len(got) {
			t.Errorf("backup %d: the records saw %s values, the historian has %d: %v", i, text, len(got), err)
		}
		if text, err := os.ReadFile(filepath.Join(data, "key")); string(text) != "secret" {
			t.Errorf("the key file: %q %v", text, err)
		}
		r.close()
	}
	close(stop)
	wg.Wait()
	if _, err := os.Stat(filepath.Join(s.data, backup.SnapshotDir)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the snapshot is still there: %v", err)
	}
}

// A later backup shares what has not changed, and is whole without the earlier one. It shares nothing that only looks the same:
// a previous backup that rotted, or a table of another life of the box that has the same number and size.
func TestIncremental(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "data"))
	s.fill(2000)
	root := t.TempDir()
	one, two, three, four := filepath.Join(root, "one"), filepath.Join(root, "two"), filepath.Join(root, "three"), filepath.Join(root, "four")
	first := create(t, s.box(), one, "")
	s.fill(10)
	second := create(t, s.box(), two, one)
	shared := 0
	for _, e := range second.Files {
		a, errA := os.Stat(filepath.Join(one, e.Path))
		b, errB := os.Stat(filepath.Join(two, e.Path))
		if errA == nil && errB == nil && os.SameFile(a, b) && strings.HasSuffix(e.Path, ".sst") {
			shared++
		}
	}
	if shared == 0 || second.Linked == 0 || second.Linked >= second.Bytes || first.Linked != 0 {
		t.Errorf("%d tables shared, %d of %d bytes linked", shared, second.Linked, second.Bytes)
	}

	table, size := "", int64(0) // the largest: a small one may be compacted away meanwhile
	for _, e := range second.Files {
		if strings.HasSuffix(e.Path, ".sst") && e.Size > size && slices.Contains(first.Files, e) {
			table, size = e.Path, e.Size
		}
	}
	damage(t, filepath.Join(two, table), 10)
	create(t, s.box(), three, two)
	if list := faults(t, three); list != nil {
		t.Errorf("a damaged file was shared: %v", list)
	}
	create(t, s.box(), four, three)
	if err := os.RemoveAll(three); err != nil {
		t.Fatal(err)
	}
	if list := faults(t, four); list != nil {
		t.Errorf("without the one before: %v", list)
	}
}

// damage flips one bit of the file, in a copy of its own, so that what is linked to it stays well.
func damage(t testing.TB, name string, at int) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	text[at%len(text)] ^= 1
	if err := errors.Join(os.Remove(name), os.WriteFile(name, text, 0o600)); err != nil {
		t.Fatal(err)
	}
}

// Verify reads everything: one flipped bit in any file is found, as are files that are missing, short or strange.
func TestVerifyFindsEveryDamage(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "data"))
	s.fill(600)
	root := t.TempDir()
	good := filepath.Join(root, "good")
	m := create(t, s.box(), good, "")
	n := 0
	again := func() string {
		n++
		dir := filepath.Join(root, fmt.Sprint("bad", n))
		if err := os.CopyFS(dir, os.DirFS(good)); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	if list := faults(t, good); list != nil {
		t.Fatalf("a whole backup: %v", list)
	}
	for _, e := range m.Files {
		if e.Size == 0 {
			continue
		}
		for _, place := range []int{0, int(e.Size) / 2, int(e.Size) - 1} {
			dir := again()
			damage(t, filepath.Join(dir, e.Path), place)
			if list := faults(t, dir); len(list) != 1 || list[0].Path != e.Path {
				t.Errorf("%s damaged at %d: %v", e.Path, place, list)
			}
			if _, err := backup.Restore(t.Context(), dir, filepath.Join(root, "data"), parts(), nil); err == nil {
				t.Errorf("%s damaged at %d was restored", e.Path, place)
			}
			if entries, _ := os.ReadDir(filepath.Join(root, "data")); len(entries) != 0 {
				t.Errorf("a refused restore left %v", entries)
			}
			_ = os.RemoveAll(dir)
		}
		dir := again()
		if err := os.Remove(filepath.Join(dir, e.Path)); err != nil {
			t.Fatal(err)
		}
		if list := faults(t, dir); len(list) != 1 || !strings.Contains(list[0].Detail, "missing") {
			t.Errorf("%s missing: %v", e.Path, list)
		}
		dir = again()
		if err := os.Truncate(filepath.Join(dir, e.Path), e.Size-1); err != nil {
			t.Fatal(err)
		}
		if list := faults(t, dir); len(list) != 1 {
			t.Errorf("%s short: %v", e.Path, list)
		}
	}
	dir := again()
	if err := os.WriteFile(filepath.Join(dir, "historian", "000999.sst"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if list := faults(t, dir); len(list) != 1 || !strings.Contains(list[0].Detail, "does not belong") {
		t.Errorf("a strange file: %v", list)
	}
	for _, name := range []string{backup.ManifestFile, backup.SumFile} {
		dir := again()
		damage(t, filepath.Join(dir, name), 20)
		if _, _, err := backup.Verify(t.Context(), dir, parts(), nil); err == nil {
			t.Errorf("%s damaged: not noticed", name)
		}
		dir = again()
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		if _, _, err := backup.Verify(t.Context(), dir, parts(), nil); !errors.Is(err, backup.ErrNoBackup) {
			t.Errorf("%s missing: %v", name, err)
		}
	}
}

// Damage that was there before the backup was made has a right checksum; the store's own are read as well.
func TestVerifyReadsTheStores(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "data"))
	s.fill(3000)
	s.close()
	tables, err := filepath.Glob(filepath.Join(s.data, "historian", "*.sst"))
	if err != nil || len(tables) == 0 {
		t.Fatal("no tables", err)
	}
	slices.SortFunc(tables, func(a, b string) int {
		x, _ := os.Stat(a)
		y, _ := os.Stat(b)
		return int(y.Size() - x.Size())
	})
	damage(t, tables[0], 100)
	dir := filepath.Join(t.TempDir(), "b")
	create(t, backup.Box{Data: s.data, Parts: parts()}, dir, "")
	if list := faults(t, dir); len(list) != 1 || list[0].Path != "historian" {
		t.Errorf("a damaged block: %v", list)
	}
}

// A restore overwrites nothing, and one that is cut off at any point leaves the folder as empty as it was.
func TestRestoreIsAllOrNothing(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "data"))
	s.fill(600)
	root := t.TempDir()
	dir := filepath.Join(root, "b")
	create(t, s.box(), dir, "")

	full := filepath.Join(root, "full")
	if err := errors.Join(os.Mkdir(full, 0o700), os.WriteFile(filepath.Join(full, "letter.txt"), []byte("x"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := backup.Restore(t.Context(), dir, full, parts(), nil); !errors.Is(err, backup.ErrTarget) || !strings.Contains(err.Error(), "letter.txt") {
		t.Errorf("into a folder that is not empty: %v", err)
	}
	if _, err := backup.Restore(t.Context(), dir, s.data, parts(), nil); !errors.Is(err, backup.ErrTarget) {
		t.Errorf("into a box: %v", err)
	}

	data := filepath.Join(root, "new")
	if err := errors.Join(os.Mkdir(data, 0o700), os.Mkdir(filepath.Join(data, "lost+found"), 0o700)); err != nil {
		t.Fatal(err)
	}
	steps := 0
	for stop := 0; ; stop++ {
		ctx, cancel := context.WithCancel(t.Context())
		calls := 0
		_, err := backup.Restore(ctx, dir, data, parts(), func(backup.Progress) {
			if calls++; calls > stop {
				cancel()
			}
		})
		cancel()
		if err == nil {
			break
		}
		steps++
		if entries, _ := os.ReadDir(data); len(entries) != 1 {
			t.Fatalf("cut off after %d steps: %v", stop, entries)
		}
	}
	if steps < 3 {
		t.Errorf("only %d ways to be cut off", steps)
	}
	r := open(t, data)
	if got := values(t, r.history, s.id); len(got) != 600 {
		t.Errorf("%d values", len(got))
	}
	r.close()

	// What a kill leaves: the mark of a restore under way, and parts of it.
	left := filepath.Join(root, "left")
	if err := errors.Join(os.MkdirAll(filepath.Join(left, backup.RestoreDir, "records"), 0o700), os.MkdirAll(filepath.Join(left, "historian"), 0o700),
		os.WriteFile(filepath.Join(left, "historian", "FORMAT"), []byte("x"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := backup.Restore(t.Context(), dir, left, parts(), nil); err != nil {
		t.Fatalf("over what a kill left: %v", err)
	}
	r = open(t, left)
	if got := values(t, r.history, s.id); len(got) != 600 {
		t.Errorf("%d values", len(got))
	}
}

// A backup that is cut off at any point leaves nothing, and what a kill leaves is no backup and is cleared by the next.
func TestCreateIsAllOrNothing(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "data"))
	s.fill(600)
	root := t.TempDir()
	dir := filepath.Join(root, "b")
	steps := 0
	for stop := 0; ; stop++ {
		ctx, cancel := context.WithCancel(t.Context())
		calls := 0
		_, err := backup.Create(ctx, s.box(), backup.Target{Dir: dir}, time.Now, func(backup.Progress) {
			if calls++; calls > stop {
				cancel()
			}
		})
		cancel()
		if err == nil {
			break
		}
		steps++
		if entries, _ := os.ReadDir(root); len(entries) != 0 {
			t.Fatalf("cut off after %d steps: %v", stop, entries)
		}
		if _, err := os.Stat(filepath.Join(s.data, backup.SnapshotDir)); err == nil {
			t.Fatalf("cut off after %d steps: the snapshot stays", stop)
		}
	}
	if list := faults(t, dir); list != nil || steps < 3 {
		t.Errorf("after %d cut off ones: %v", steps, list)
	}

	draft := filepath.Join(root, ".c.partial")
	if err := os.CopyFS(draft, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(draft, backup.SumFile)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := backup.Verify(t.Context(), draft, parts(), nil); !errors.Is(err, backup.ErrNoBackup) {
		t.Errorf("half a backup verifies: %v", err)
	}
	create(t, s.box(), filepath.Join(root, "c"), "")
	if _, err := os.Stat(draft); err == nil {
		t.Error("what a kill left is still there")
	}
}

// A key that is rotated during the cut is the one that opens what was cut, or the cut is made anew.
func TestKeyRotatedDuringTheCut(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "data"))
	s.fill(10)
	key := filepath.Join(s.data, "key")
	if err := os.WriteFile(key, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	box := s.box()
	plain, cuts := box.Parts[1].Snapshot, 0
	box.Parts[1].Snapshot = func(dir string) error {
		if cuts++; cuts == 1 {
			if err := os.WriteFile(key, []byte("new"), 0o600); err != nil {
				return err
			}
		}
		return plain(dir)
	}
	dir := filepath.Join(t.TempDir(), "b")
	create(t, box, dir, "")
	if text, err := os.ReadFile(filepath.Join(dir, "key")); string(text) != "new" || cuts != 2 {
		t.Errorf("%q after %d cuts: %v", text, cuts, err)
	}
	if list := faults(t, dir); list != nil {
		t.Error(list)
	}
}

// Where a backup cannot go is said before anything is written.
func TestCreateRefuses(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "data"))
	s.fill(10)
	root := t.TempDir()
	full := filepath.Join(root, "full")
	if err := errors.Join(os.Mkdir(full, 0o700), os.WriteFile(filepath.Join(full, "x"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	tight := s.box()
	tight.MinFree = 1 << 60
	for _, tt := range []struct {
		name string
		box  backup.Box
		to   backup.Target
		is   error
		says string
	}{
		{"a folder with files", s.box(), backup.Target{Dir: full}, backup.ErrTarget, "not empty"},
		{"a disk that is not mounted", s.box(), backup.Target{Dir: filepath.Join(root, "usb", "b")}, backup.ErrTarget, "mount its disk"},
		{"the data folder", s.box(), backup.Target{Dir: filepath.Join(s.data, "b")}, backup.ErrTarget, "data folder"},
		{"no room", tight, backup.Target{Dir: filepath.Join(root, "b")}, backup.ErrNoSpace, "must stay free"},
		{"a previous one that is none", s.box(), backup.Target{Dir: filepath.Join(root, "b"), Previous: full}, backup.ErrNoBackup, "no backup"},
	} {
		_, err := backup.Create(t.Context(), tt.box, tt.to, time.Now, nil)
		if !errors.Is(err, tt.is) || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	if entries, _ := os.ReadDir(root); len(entries) != 1 {
		t.Errorf("something was written: %v", entries)
	}
}

// One at a time; the next says which is under way. When the newest was taken outlives a restart. Close gives up what runs.
func TestRunner(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "data"))
	s.fill(600)
	root := t.TempDir()
	held, let := make(chan struct{}), make(chan struct{})
	box := s.box()
	plain := box.Parts[0].Snapshot
	box.Parts[0].Snapshot = func(dir string) error {
		close(held)
		<-let
		return plain(dir)
	}
	reg := prometheus.NewRegistry()
	r, err := backup.NewRunner(box, s.records, nil, nil, reg)
	if err != nil {
		t.Fatal(err)
	}
	if r.State().State != "none" || r.Cancel() {
		t.Errorf("at first: %+v", r.State())
	}
	if err := r.Begin(backup.Target{Dir: filepath.Join(root, "one")}); err != nil {
		t.Fatal(err)
	}
	<-held
	if err := r.Begin(backup.Target{Dir: filepath.Join(root, "two")}); !errors.Is(err, backup.ErrRunning) || !strings.Contains(err.Error(), "one") {
		t.Errorf("a second: %v", err)
	}
	close(let)
	at := ended(t, r)
	if at.State != "done" || at.LastSuccess.IsZero() || !at.LastSuccess.Equal(at.Taken) || at.Progress.Bytes != at.Progress.Total {
		t.Errorf("ended: %+v", at)
	}
	if list := faults(t, at.Dir); list != nil {
		t.Error(list)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if err := r.Begin(backup.Target{Dir: filepath.Join(root, "three")}); !errors.Is(err, backup.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}

	if err := os.MkdirAll(filepath.Join(s.data, backup.SnapshotDir, "historian"), 0o700); err != nil {
		t.Fatal(err)
	}
	again, err := backup.NewRunner(s.box(), s.records, nil, nil, reg)
	if err != nil {
		t.Fatal(err)
	}
	if got := again.State(); !got.LastSuccess.Equal(at.Taken) || got.LastDir != at.Dir || got.State != "none" {
		t.Errorf("after a restart: %+v", got)
	}
	if _, err := os.Stat(filepath.Join(s.data, backup.SnapshotDir)); err == nil {
		t.Error("the snapshot of a killed process is still there")
	}
	if err := again.Begin(backup.Target{Dir: filepath.Join(root, "four")}); err != nil {
		t.Fatal(err)
	}
	if err := again.Close(); err != nil { // it may be in time or not; nothing half may be there
		t.Fatal(err)
	}
	switch got := again.State(); got.State {
	case "done":
		if list := faults(t, got.Dir); list != nil {
			t.Error(list)
		}
	case "cancelled":
		if _, err := os.Stat(got.Dir); err == nil {
			t.Error("given up, and still there")
		}
	default:
		t.Errorf("after Close: %+v", got)
	}
}

func ended(t testing.TB, r *backup.Runner) backup.State {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if at := r.State(); at.State != "running" {
			return at
		}
	}
	t.Fatal("a backup does not end")
	return backup.State{}
}

// Callers over the network name a folder below the root and nothing else.
func TestPlace(t *testing.T) {
	o := backup.Options{Root: "/var/backups/millrace"}
	for _, tt := range []struct {
		name  string
		local bool
		want  string
	}{
		{"monday", false, "/var/backups/millrace/monday"}, {"monday", true, "/var/backups/millrace/monday"}, {"/mnt/usb/a/../b", true, "/mnt/usb/b"},
		{"/mnt/usb/b", false, ""}, {"../b", false, ""}, {"..", false, ""}, {".", false, ""}, {"a/b", false, ""}, {"a/../../b", true, ""}, {".hidden", false, ""}, {"", false, ""},
	} {
		got, err := o.Place(tt.name, tt.local)
		if got != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("%q local %v: %q, %v", tt.name, tt.local, got, err)
		}
	}
	if _, err := (&backup.Options{}).Place("monday", false); !errors.Is(err, backup.ErrNoRoot) {
		t.Errorf("without a root: %v", err)
	}
	if err := (&backup.Options{Root: "backups"}).Validate(); err == nil {
		t.Error("a root that is not absolute was taken")
	}
}

// A part that an earlier version did not have may be missing in its folder and its backups; one that is there is a part like any other.
func TestOptionalPart(t *testing.T) {
	for _, there := range []bool{false, true} {
		s := open(t, t.TempDir())
		s.close()
		box := backup.Box{Data: s.data, Parts: append([]backup.Part{{Name: "extra", Optional: true, Check: kv.Verify}}, parts()...)}
		if there {
			db, err := kv.Open(filepath.Join(s.data, "extra"), kv.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if err := db.Apply(kv.Op{Key: []byte("a"), Value: []byte("b")}); err != nil {
				t.Fatal(err)
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
		}
		dir, data := filepath.Join(t.TempDir(), "b"), filepath.Join(t.TempDir(), "data")
		create(t, box, dir, "")
		if _, faults, err := backup.Verify(t.Context(), dir, box.Parts, nil); err != nil || len(faults) > 0 {
			t.Errorf("%v: %v %v", there, faults, err)
		}
		if _, err := backup.Restore(t.Context(), dir, data, box.Parts, nil); err != nil {
			t.Errorf("%v: %v", there, err)
		}
		if _, err := os.Stat(filepath.Join(data, "extra")); (err == nil) != there {
			t.Errorf("%v: %v", there, err)
		}
	}
}
