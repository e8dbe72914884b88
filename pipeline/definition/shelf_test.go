package definition_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/historian/kv"
	"millrace/pipeline/definition"
)

type shelf struct {
	*definition.Shelf
	t   testing.TB
	fs  vfs.FS
	db  *kv.Store
	seq uint64
	c   *definition.Compiler
	got []string
}

func openShelf(t testing.TB) *shelf {
	s := &shelf{t: t, fs: vfs.NewMem(), seq: 100, c: compiler(t)}
	s.open()
	t.Cleanup(func() { _ = s.db.Close() })
	return s
}

func (s *shelf) open() {
	s.t.Helper()
	db, err := kv.Open("records", kv.Options{FS: s.fs})
	if err != nil {
		s.t.Fatal(err)
	}
	s.db = db
	if s.Shelf, err = definition.OpenShelf(db, s.c, definition.ShelfOptions{Seq: func() uint64 { s.seq++; return s.seq }}); err != nil {
		s.t.Fatal(err)
	}
	s.Listen(func(c definition.Change) {
		version := func(p *definition.Plan) uint32 {
			if p == nil {
				return 0
			}
			return p.Version
		}
		s.got = append(s.got, fmt.Sprintf("%d: %d>%d at %d %v", c.Number, version(c.Old), version(c.New), c.Seq, c.Deleted))
	})
}

func (s *shelf) reopen() {
	s.t.Helper()
	if err := s.db.Close(); err != nil {
		s.t.Fatal(err)
	}
	s.open()
}

func simple(id, topic string, more ...string) *definition.Definition {
	text := fmt.Sprintf(`{"id":%q,"nodes":[{"id":"in","type":"trigger.values","params":{"topics":[%q]}},{"id":"s","type":"test.set","params":{"x":1%s}}],"edges":[{"from":"in","to":"s"}]}`, id, topic, strings.Join(more, ""))
	d, faults := definition.Read([]byte(text))
	if len(faults) > 0 {
		panic(fmt.Sprint(faults))
	}
	return &d
}

func TestLifeOfAPipeline(t *testing.T) {
	s := openShelf(t)
	must := func(p definition.Pipeline, err error) definition.Pipeline {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := must(s.Save(simple("a", "x/#"), 0, "ann"))
	if p.Number != 1 || p.ETag != 1 || p.Running || !p.Changed || p.Workspace != "main" || p.Name != "a" {
		t.Errorf("%+v", p)
	}
	if _, err := s.Save(simple("a", "y"), 0, "bob"); !errors.Is(err, definition.ErrExists) {
		t.Error(err)
	}
	if _, err := s.Save(simple("a", "y"), 7, "bob"); !errors.Is(err, definition.ErrConflict) || !strings.Contains(err.Error(), "ann") {
		t.Error(err)
	}
	if _, err := s.Save(simple("b", "y"), 7, "bob"); !errors.Is(err, definition.ErrNotFound) {
		t.Error(err)
	}
	if _, err := s.Start("a", "ann"); !errors.Is(err, definition.ErrNotDeployed) {
		t.Error(err)
	}
	deploy := func(id, comment string) definition.Pipeline {
		t.Helper()
		p, _, err := s.Deploy(id, comment, "ann")
		return must(p, err)
	}
	if p = deploy("a", "first"); p.Deployed != 1 || !p.Running || p.Changed {
		t.Errorf("%+v", p)
	}
	if p = deploy("a", "again"); p.Latest != 1 {
		t.Errorf("the same draft made another version: %+v", p)
	}
	p = must(s.Save(simple("a", "x/#", `,"n":2`), 1, "bob"))
	if !p.Changed || p.ETag != 2 {
		t.Errorf("%+v", p)
	}
	if p = deploy("a", "second"); p.Deployed != 2 {
		t.Errorf("%+v", p)
	}
	must(s.Stop("a", "ann"))
	must(s.Stop("a", "ann")) // is stopped
	s.reopen()
	if len(s.Running()) != 0 {
		t.Error("it runs after a restart")
	}
	must(s.Start("a", "ann"))
	if p = must(s.Rollback("a", 1, "ann")); p.Deployed != 1 || p.Latest != 2 || p.Changed {
		t.Errorf("%+v", p)
	}
	list, err := s.Versions("a")
	if err != nil || len(list) != 2 || list[0].Comment != "second" || list[1].Comment != "first" {
		t.Errorf("%+v, %v", list, err)
	}
	for seq, want := range map[uint64]uint32{100: 0, 101: 1, 102: 1, 103: 2, 104: 0, 105: 2, 106: 1, 999: 1} {
		if got := s.At(1, seq); got != want {
			t.Errorf("at %d version %d holds, want %d", seq, got, want)
		}
	}
	var since []string
	for _, c := range s.Since(104) {
		since = append(since, fmt.Sprint(c.Seq, c.Old != nil, c.New != nil))
	}
	if strings.Join(since, ", ") != "104 true false, 105 false true, 106 true true" {
		t.Error(since)
	}
	if err := s.Delete("a", 5); !errors.Is(err, definition.ErrConflict) {
		t.Error(err)
	}
	if err := s.Delete("a", definition.Any); err != nil {
		t.Error(err)
	}
	if want := []string{"1: 0>1 at 101 false", "1: 1>1 at 102 false", "1: 1>2 at 103 false", "1: 2>0 at 104 false", "1: 0>2 at 105 false", "1: 2>1 at 106 false", "1: 1>0 at 107 true"}; fmt.Sprint(s.got) != fmt.Sprint(want) {
		t.Errorf("%q\n%q", s.got, want)
	}
	s.reopen()
	if _, err := s.Show("a"); !errors.Is(err, definition.ErrNotFound) || s.Plan(1, 1) != nil {
		t.Error(err)
	}
	if p = must(s.Save(simple("a", "x"), definition.Any, "ann")); p.Number != 2 {
		t.Errorf("the number was used again: %+v", p)
	}
}

func TestADraftWithFaultsIsNotDeployed(t *testing.T) {
	s := openShelf(t)
	if _, err := s.Save(simple("a", "x"), 0, "ann"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Deploy("a", "", "ann"); err != nil {
		t.Fatal(err)
	}
	bad := simple("a", "x/+y")
	if _, err := s.Save(bad, definition.Any, "ann"); err != nil {
		t.Fatal(err)
	}
	var faults *definition.FaultsError
	if _, _, err := s.Deploy("a", "", "ann"); !errors.As(err, &faults) || faults.Faults[0].Field != "params.topics[0]" {
		t.Errorf("%v", err)
	}
	if p, _ := s.Show("a"); p.Deployed != 1 || !p.Running || p.Latest != 1 {
		t.Errorf("%+v", p)
	}
	if _, err := s.Save(simple("a b", "x"), definition.Any, "ann"); !errors.As(err, &faults) {
		t.Error(err)
	}
}

func TestPipelinesThatTriggerEachOther(t *testing.T) {
	s := openShelf(t)
	for id, topics := range map[string][2]string{"a": {"x/#", "y/1"}, "b": {"y/+", "x/1"}} {
		text := fmt.Sprintf(`{"id":%q,"nodes":[{"id":"in","type":"trigger.values","params":{"topics":[%q]}},{"id":"p","type":"test.publish","params":{"topic":%q}}],"edges":[{"from":"in","to":"p"}]}`, id, topics[0], topics[1])
		d := read(t, text)
		if _, err := s.Save(&d, 0, "ann"); err != nil {
			t.Fatal(err)
		}
	}
	if _, warnings, err := s.Deploy("a", "", "ann"); err != nil || len(warnings) != 0 {
		t.Errorf("%v %v", warnings, err)
	}
	if _, warnings, err := s.Deploy("b", "", "ann"); err != nil || len(warnings) != 1 || warnings[0].Code != "loop" {
		t.Errorf("%v %v", warnings, err)
	}
}

// A cut of power leaves a change whole or undone.
func TestShelfOverACut(t *testing.T) {
	s := openShelf(t)
	mem := vfs.NewCrashableMem()
	s.fs = mem
	s.open()
	if _, err := s.Save(simple("a", "x"), 0, "ann"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Deploy("a", "", "ann"); err != nil {
		t.Fatal(err)
	}
	s.fs = mem.CrashClone(vfs.CrashCloneCfg{})
	old := s.db
	s.open()
	if p, err := s.Show("a"); err != nil || !p.Running || s.Plan(p.Number, 1) == nil {
		t.Errorf("%+v %v", p, err)
	}
	_ = old.Close()
}

// A deployed pipeline that does nothing costs what its plan takes.
func BenchmarkIdle(b *testing.B) {
	s := openShelf(b)
	const n = 1000
	for i := range n {
		d := simple(fmt.Sprint("p", i), fmt.Sprintf("line%d/#", i))
		if _, err := s.Save(d, 0, "ann"); err != nil {
			b.Fatal(err)
		}
		if _, _, err := s.Deploy(d.ID, "", "ann"); err != nil {
			b.Fatal(err)
		}
	}
	var before, after runtime.MemStats
	for b.Loop() {
		s.reopen()
		runtime.GC()
		runtime.ReadMemStats(&before)
		plans := s.Running()
		runtime.GC()
		runtime.ReadMemStats(&after)
		if len(plans) != n {
			b.Fatal(len(plans))
		}
		runtime.KeepAlive(plans)
	}
	b.ReportMetric(float64(int64(after.HeapAlloc)-int64(before.HeapAlloc))/n, "B/pipeline")
}
