package history

import (
	"encoding/hex"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

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

// golden are octets as version 1 wrote them and what they mean for ever.
func golden() (r Run, row, details string) {
	at := time.UnixMicro(1790000000000123).UTC()
	return Run{ID: RunID{ByValue, 7, 5, 2}, Version: 3, Status: Failed, Mode: "trigger", Started: at, Duration: 1500 * time.Microsecond, Sum: 1500 * time.Microsecond, Longest: 1500 * time.Microsecond, Attempt: 2, Counted: 1,
			Trigger: Trigger{Workspace: "main", Topic: "a/b", Value: Raw("5"), Time: at.UnixNano() - 1500, Scale: 6, Quality: 1, Node: 2}, Detail: Standard, Error: "broken", Node: 1,
			Nodes: []NodeRun{{Number: 0, Status: NodeDone, Duration: time.Microsecond}, {Number: 1, Status: NodeFailed, From: 20 * time.Microsecond, Duration: time.Millisecond, In: Raw("5"), Error: "broken", Line: 3, Column: 4, Attempts: 2}},
			Lines: []Line{{Number: 1, Level: "info", Text: "hm", At: time.Millisecond}}},
		"01210601" + "03dc0b0201" + "b717" + "02046d61696e03612f62" + "0135" + "0662726f6b656e02" + "02" + "01000001" + "320114e8070662726f6b656e030402", `{"value":5,"nodes":[{"node":1,"in":5}],"lines":[{"Number":1,"Level":"info","Text":"hm","At":1000000}]}`
}

func TestGoldenRow(t *testing.T) {
	want, text, details := golden()
	if got := hex.EncodeToString(appendRow(nil, &want)); got != text {
		t.Errorf("written as %s", got) // allowed to change, with a new version
	}
	if got := string(appendDetail(&want, false)); got != details {
		t.Errorf("details written as %s", got)
	}
	id, started, ok := readRunKey(runKey(want.Started, want.ID))
	if key := hex.EncodeToString(runKey(want.Started, want.ID)); !ok || key != "720007964600000007d050f78476fffffffffffffffa0002" {
		t.Errorf("key %s", key)
	}
	row, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	got, err := readRow(id, started, row)
	if err != nil {
		t.Fatal(err)
	}
	if err := got.addDetail([]byte(details)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func FuzzRow(f *testing.F) {
	r, _, _ := golden()
	f.Add(appendRow(nil, &r))
	r.Counted, r.Detail = 5, Full
	f.Add(appendRow(nil, &r))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := readRow(RunID{}, time.UnixMicro(5), b)
		if err != nil {
			return
		}
		again, err := readRow(RunID{}, time.UnixMicro(5), appendRow(nil, r))
		if err != nil || !cmp.Equal(r.Trigger, again.Trigger) && len(raw(r.Trigger.Value)) <= maxRowValue || r.Error != again.Error {
			t.Errorf("%+v is read again as %+v, %v", r, again, err)
		}
	})
}

func FuzzMarks(f *testing.F) {
	f.Add(appendMarks(nil, []Mark{{5, 1, 0}, {5, 2, 0}, {1 << 40, 1, 3}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if list, err := readMarks(b); err == nil {
			if again, err := readMarks(appendMarks(nil, list)); err != nil || !slices.Equal(list, again) {
				t.Errorf("%v is read again as %v, %v", list, again, err)
			}
		}
	})
}

func TestRowsComeBack(t *testing.T) {
	at := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	now := at
	s, db := open(t, vfs.NewMem(), func() time.Time { return now })
	defer db.Close()
	failed, _, _ := golden()
	failed.Started, failed.ID.Node = at.Add(-time.Millisecond), 0
	s.Add(failed)
	for i := range 10 {
		s.Add(Run{ID: RunID{ByValue, 7, uint64(10 + i), 0}, Started: at.Add(time.Duration(i) * time.Millisecond), Duration: time.Duration(i) * time.Millisecond, Mode: "trigger", Detail: Standard})
	}
	now = at.Add(time.Second)
	s.Add(Run{ID: RunID{ByValue, 7, 30, 0}, Started: now, Mode: "trigger", Detail: Standard})
	now = at.Add(2 * time.Second)
	s.Add(Run{ID: RunID{Fresh, 7, 31, 0}, Started: now, Mode: "manual", Trigger: Trigger{Value: Raw(`{"a":1}`)}, Detail: Standard})
	list, more, err := s.List(Query{Pipeline: 7, Limit: 10})
	if err != nil || more || len(list) != 4 {
		t.Fatalf("%d rows, %v, %v; want 4: the failure, one success a second, the manual one", len(list), more, err)
	}
	if list[0].ID.Kind != Fresh || list[1].ID.N != 30 || list[2].Counted != 10 || list[2].Sum != 45*time.Millisecond || list[2].Longest != 9*time.Millisecond {
		t.Errorf("rows %+v", list)
	}
	if only, _, _ := s.List(Query{Pipeline: 7, Status: []Status{Failed}}); len(only) != 1 || only[0].ID != failed.ID {
		t.Errorf("failed: %v", only)
	}
	if some, _, _ := s.List(Query{Pipeline: 7, From: at.Add(time.Second), To: at.Add(2 * time.Second)}); len(some) != 1 || some[0].ID.N != 30 {
		t.Errorf("of a second: %v", some)
	}
	s.Forget(7) // nothing from memory
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	got, ok, err := s.Get(failed.ID)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	if diff := cmp.Diff(&failed, got, cmpopts.IgnoreFields(Run{}, "Sum", "Longest")); diff != "" {
		t.Errorf("the failed run (-want +got):\n%s", diff)
	}
	if _, ok, err := s.Get(RunID{ByValue, 7, 11, 0}); ok || err != nil {
		t.Error("a run that another stands for was found", err)
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

// Pages go on over hours, newest first, each run once, while runs are added.
func TestPagesOverHours(t *testing.T) {
	at := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	now := at
	s, db := open(t, vfs.NewMem(), func() time.Time { return now })
	defer db.Close()
	for i := range uint64(300) {
		now = at.Add(time.Duration(i) * 3 * time.Minute / 4)
		s.Add(Run{ID: RunID{Fresh, 1 + uint32(i%2), i, 0}, Started: now, Mode: "manual", Status: Status(i % 4)})
	}
	var seen []uint64
	q := Query{Pipeline: 2, Limit: 7}
	for {
		page, more, err := s.List(q)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range page {
			seen = append(seen, r.ID.N)
		}
		if !more {
			break
		}
		q.After = After{page[len(page)-1].Started, page[len(page)-1].ID}
		s.Add(Run{ID: RunID{Fresh, 2, 1000 + uint64(len(seen)), 0}, Started: now.Add(time.Second), Mode: "manual"})
	}
	if len(seen) != 150 || seen[0] != 299 || seen[149] != 1 || !slices.IsSortedFunc(seen, func(a, b uint64) int { return int(b) - int(a) }) {
		t.Errorf("%d runs: %v", len(seen), seen)
	}
	for i := range uint64(3) {
		s.Add(Run{ID: RunID{Fresh, 9, i, 0}, Started: now, Mode: "manual"})
	}
	if same, _, err := s.List(Query{Pipeline: 9}); err != nil || len(same) != 3 || same[0].ID.N != 2 {
		t.Errorf("runs of one time %v, %v", same, err)
	}
	got, ok, err := s.Get(RunID{Fresh, 2, 1, 0})
	if err != nil || !ok || got.Mode != "manual" {
		t.Error(got, ok, err)
	}
}

// What rows stand for adds up to the runs there were: at any time through List, and after a power cut as far as was flushed.
func TestCountedRunsAddUp(t *testing.T) {
	disk := vfs.NewCrashableMem()
	var mu sync.Mutex
	now := time.Date(2026, 12, 1, 12, 59, 50, 0, time.UTC)
	clock := func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	s, db := open(t, disk, clock)
	defer db.Close()
	sum := func(s *Store, pipeline uint32) (runs uint64, total, most time.Duration) {
		q := Query{Pipeline: pipeline, Limit: 100}
		for {
			list, more, err := s.List(q)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range list {
				runs += uint64(r.Counted)
				total += r.Sum
				most = max(most, r.Longest)
			}
			if !more {
				return runs, total, most
			}
			q.After = After{list[len(list)-1].Started, list[len(list)-1].ID}
		}
	}
	n := uint64(0)
	for second := range 20 {
		var workers sync.WaitGroup
		for w := range uint64(4) {
			workers.Go(func() {
				for i := range uint64(50) {
					seq := n + w*50 + i
					r := Run{ID: RunID{ByValue, uint32(w%2) + 1, seq, 0}, Started: clock().Add(time.Duration(w*50+i) * time.Microsecond), Duration: time.Duration(seq) * time.Microsecond, Mode: "trigger"}
					if seq%37 == 0 {
						r.Status = Failed
					}
					s.Add(r)
				}
			})
		}
		workers.Wait()
		n += 200
		for p := uint32(1); p <= 2; p++ {
			st := s.Stats(p)
			if runs, total, most := sum(s, p); runs != n/2 || total != st.Total || most != st.Most || st.Runs["completed"]+st.Runs["failed"] != n/2 {
				t.Fatalf("second %d: rows stand for %d runs, %v, %v; there were %d, %+v", second, runs, total, most, n/2, st)
			}
		}
		if second == 12 {
			crashed, crashedDB := open(t, disk.CrashClone(vfs.CrashCloneCfg{}), clock)
			if runs, _, _ := sum(crashed, 1); runs != n/2 {
				t.Errorf("after a power cut rows stand for %d runs of %d that were flushed", runs, n/2)
			}
			if err := crashedDB.Close(); err != nil {
				t.Error(err)
			}
		}
		mu.Lock()
		now = now.Add(time.Second)
		mu.Unlock()
		s.settle(false)
	}
	if st := s.Stats(1); st.P50 < 1500*time.Microsecond || st.P50 > 2500*time.Microsecond || st.P99 > 4500*time.Microsecond || st.P99 < 3500*time.Microsecond || st.PerSecond <= 0 {
		t.Errorf("%+v", st)
	}
}

// The ring keeps the last runs whatever they hold, and gives their values up, the oldest first, at its bound.
func TestTheRingIsBounded(t *testing.T) {
	s, db := open(t, vfs.NewMem(), time.Now)
	defer db.Close()
	big := Raw(strings.Repeat("1", 60<<10))
	for i := range uint64(30) {
		s.Add(Run{ID: RunID{Fresh, 1, i, 0}, Started: time.Now(), Nodes: []NodeRun{{Status: NodeDone, In: big, Out: Raw("1")}}})
	}
	ring := s.Ring(1)
	held := 0
	for i, r := range ring {
		if r.ID.N != uint64(29-i) || len(r.Nodes) != 1 || r.Cut != (r.Nodes[0].In == nil) {
			t.Errorf("run %d: %+v", i, r.ID)
		}
		held += r.size()
	}
	if len(ring) != ringSize || held > ringBytes || held < ringBytes/2 || s.bytes != held {
		t.Errorf("%d runs hold %d octets, counted %d", len(ring), held, s.bytes)
	}
	s.Add(Run{ID: RunID{Fresh, 1, 99, 0}, Started: time.Now(), Trigger: Trigger{Value: Raw(strings.Repeat("1", ringBytes+1))}})
	if r := s.Ring(1)[0]; !r.Cut || r.Trigger.Value != nil {
		t.Error("a giant is kept")
	}
	if r, ok, err := s.Get(RunID{Fresh, 1, 99, 0}); !ok || err != nil || r == nil {
		t.Error(ok, err)
	}
}

func TestSpread(t *testing.T) {
	for _, d := range []time.Duration{0, 1, 2, 3, 4, 5, 7, 8, 9, 100, 1000, 12345, 1e6, 3e9} {
		var s spread
		d *= time.Microsecond
		s.add(d)
		if got := s.quantile(.99); got < d*7/8 || got > d*9/8 {
			t.Errorf("%v is told as %v", d, got)
		}
	}
}

func TestCursorAndMarks(t *testing.T) {
	disk := vfs.NewCrashableMem()
	s, db := open(t, disk, time.Now)
	defer db.Close()
	if c, m, err := s.LoadCursor(); c != 0 || m != nil || err != nil {
		t.Error(c, m, err)
	}
	for _, step := range []struct {
		cursor uint64
		add    []Mark
	}{{5, []Mark{{9, 1, 0}, {7, 1, 0}, {3, 1, 0}, {9, 1, 1}}}, {6, nil}, {8, []Mark{{12, 2, 1}, {7, 7, 7}}}, {8, nil}, {8, []Mark{{12, 2, 2}}}} {
		if err := s.SaveCursor(step.cursor, step.add); err != nil {
			t.Fatal(err)
		}
	}
	s, db2 := open(t, disk.CrashClone(vfs.CrashCloneCfg{}), time.Now) // a power cut
	defer db2.Close()
	c, m, err := s.LoadCursor()
	if diff := cmp.Diff([]Mark{{9, 1, 0}, {9, 1, 1}, {12, 2, 1}, {12, 2, 2}}, m); c != 8 || diff != "" || err != nil {
		t.Errorf("cursor %d, %v, marks (-want +got):\n%s", c, err, diff)
	}
	if err := s.SaveCursor(13, nil); err != nil {
		t.Fatal(err)
	}
	n := 0
	if err := db2.Scan([]byte{markPrefix}, func(_, _ []byte) bool { n++; return true }); err != nil || n != 0 {
		t.Errorf("%d rows of marks are left, %v", n, err)
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
