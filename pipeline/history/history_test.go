package history

import (
	"encoding/binary"
	"reflect"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/historian/kv"
)

func open(t *testing.T, fs vfs.FS, now func() time.Time) (*Store, *kv.Store) {
	t.Helper()
	db, err := kv.Open("runs", kv.Options{FS: fs})
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(db, Options{Retention: 24 * time.Hour, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	return s, db
}

func TestRunID(t *testing.T) {
	for text, id := range map[string]RunID{
		"7-v123456":                    {ByValue, 7, 123456, 0},
		"7-v123456-2":                  {ByValue, 7, 123456, 2},
		"7-s1790000000000-2":           {BySchedule, 7, 1790000000000, 2},
		"4294967295-x00000000000000ff": {Fresh, 1<<32 - 1, 255, 0},
	} {
		if id.String() != text {
			t.Errorf("%v is written %s, want %s", id, id, text)
		}
		if got, ok := ParseRunID(text); !ok || got != id {
			t.Errorf("%s is read as %v, %v", text, got, ok)
		}
		if got, ok := readID(appendID(nil, id)); !ok || got != id {
			t.Errorf("%s in a key is %v", text, got)
		}
	}
	for _, bad := range []string{"", "7", "7-", "7-v", "7-q1", "x-v1", "7-v01", "7-v1-0", "7-x1", "7-v1-70000"} {
		if id, ok := ParseRunID(bad); ok {
			t.Errorf("%q was read as %v", bad, id)
		}
	}
}

func FuzzRow(f *testing.F) {
	f.Add(appendRow(nil, &Run{Version: 1, Nodes: []NodeRun{{Number: 1, Status: NodeDone}}, Detail: Standard}))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := readRow(RunID{}, b)
		if err != nil {
			return
		}
		again, err := readRow(RunID{}, appendRow(nil, r))
		if err == nil && !reflect.DeepEqual(r.Trigger.Topic, again.Trigger.Topic) {
			t.Errorf("%v is read again as %v", r, again)
		}
	})
}

func TestRowsComeBack(t *testing.T) {
	at := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	now := at
	s, db := open(t, vfs.NewMem(), func() time.Time { return now })
	defer db.Close()
	failed := Run{ID: RunID{ByValue, 7, 5, 0}, Version: 3, Status: Failed, Mode: "trigger", Started: at, Duration: 1500 * time.Microsecond, Attempt: 2, Counted: 1,
		Trigger: Trigger{Workspace: "main", Topic: "a/b", Value: Raw("5"), Time: at.UnixNano(), Scale: 6, Quality: 1}, Detail: Standard, Error: "broken", Node: 1,
		Nodes: []NodeRun{{Number: 0, Status: NodeDone}, {Number: 1, Status: NodeFailed, Duration: time.Millisecond, In: Raw("5"), Error: "broken", Line: 3, Column: 4}}}
	s.Add(failed)
	for i := range 10 {
		s.Add(Run{ID: RunID{ByValue, 7, uint64(10 + i), 0}, Started: at.Add(time.Duration(i) * time.Millisecond), Mode: "trigger", Detail: Standard})
	}
	s.Add(Run{ID: RunID{ByValue, 7, 30, 0}, Started: at.Add(time.Second), Mode: "trigger", Detail: Standard})
	s.Add(Run{ID: RunID{Fresh, 7, 31, 0}, Started: at.Add(2 * time.Second), Mode: "manual", Trigger: Trigger{Value: Raw(`{"a":1}`)}, Detail: Standard})
	list, more, err := s.List(Query{Pipeline: 7, Limit: 10})
	if err != nil || more || len(list) != 4 {
		t.Fatalf("%d rows, %v, %v; want 4: the failure, one success a second, the manual one", len(list), more, err)
	}
	if list[0].ID.Kind != Fresh || list[1].ID.N != 30 || list[3].Counted != 10 {
		t.Errorf("rows %+v", list)
	}
	page, more, err := s.List(Query{Pipeline: 7, Limit: 2, After: After{list[1].Started, list[1].ID}})
	if err != nil || more || len(page) != 2 || page[0].ID != list[2].ID {
		t.Errorf("second page %v, %v, %v", page, more, err)
	}
	if only, _, _ := s.List(Query{Pipeline: 7, Status: []Status{Failed}}); len(only) != 1 {
		t.Errorf("failed: %v", only)
	}
	s.mu.Lock()
	clear(s.pipes) // nothing from memory
	s.mu.Unlock()
	got, ok, err := s.Get(failed.ID)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	if got.Error != "broken" || string(raw(got.Trigger.Value)) != "5" || got.Nodes[1].Line != 3 || string(raw(got.Nodes[1].In)) != "5" || got.Attempt != 2 {
		t.Errorf("the failed run came back as %+v", got)
	}
	now = at.Add(26 * time.Hour)
	if err := s.expire(); err != nil {
		t.Fatal(err)
	}
	if _, ok, _ := s.Get(failed.ID); ok {
		t.Error("a run past its retention is still there")
	}
	left := 0
	if err := db.Scan(nil, func(_, _ []byte) bool { left++; return true }); err != nil || left != 0 {
		t.Errorf("%d records are left, %v", left, err)
	}
}

func TestCursorAndMarks(t *testing.T) {
	fs := vfs.NewMem()
	s, db := open(t, fs, time.Now)
	if c, m, err := s.LoadCursor(); c != 0 || m != nil || err != nil {
		t.Error(c, m, err)
	}
	for _, step := range []struct {
		cursor uint64
		add    []Mark
	}{{5, []Mark{{7, 1, 0}, {9, 1, 0}, {3, 1, 0}}}, {8, []Mark{{12, 2, 1}}}} {
		if err := s.SaveCursor(step.cursor, step.add); err != nil {
			t.Fatal(err)
		}
	}
	db.Close()
	s, db = open(t, fs, time.Now)
	defer db.Close()
	c, m, err := s.LoadCursor()
	if c != 8 || len(m) != 2 || err != nil {
		t.Errorf("cursor %d, marks %v, %v", c, m, err)
	}
	n := 0
	db.Scan([]byte{markPrefix}, func(k, _ []byte) bool { n++; return binary.BigEndian.Uint64(k[1:]) >= 8 })
	if n != 2 {
		t.Errorf("%d marks on disk", n)
	}
}

func TestParkedAndDead(t *testing.T) {
	s, db := open(t, vfs.NewMem(), time.Now)
	defer db.Close()
	p := Parked{ID: RunID{ByValue, 7, 5, 1}, Due: time.Unix(100, 5), Version: 2, State: []byte("state")}
	if err := s.Park([]Parked{p}); err != nil {
		t.Fatal(err)
	}
	if rows, err := s.ParkedRows(); err != nil || len(rows) != 1 || !reflect.DeepEqual(rows[0], p) {
		t.Errorf("rows %v, %v", rows, err)
	}
	if err := s.Unpark([]RunID{p.ID}); err != nil {
		t.Fatal(err)
	}
	if rows, _ := s.ParkedRows(); len(rows) != 0 {
		t.Errorf("rows %v", rows)
	}
	d := Dead{ID: p.ID, Version: 2, Value: []byte("5"), Error: "given up", Attempts: 3}
	if err := s.Bury(d); err != nil {
		t.Fatal(err)
	}
	if list, err := s.Dead(7, 10); err != nil || len(list) != 1 || list[0].ID != d.ID || list[0].Error != d.Error {
		t.Errorf("dead %v, %v", list, err)
	}
	if list, _ := s.Dead(8, 10); len(list) != 0 {
		t.Errorf("dead of another %v", list)
	}
	if err := s.Exhume(d.ID); err != nil {
		t.Fatal(err)
	}
}
