package historian_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"millrace/historian"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// plantClock is a wall clock and the machine's, both moved by the test.
type plantClock struct{ wall, machine atomic.Int64 }

func newPlantClock() *plantClock {
	c := &plantClock{}
	c.wall.Store(time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC).UnixNano())
	return c
}

func (c *plantClock) pass(d time.Duration) { c.wall.Add(int64(d)); c.machine.Add(int64(d)) }
func (c *plantClock) jump(d time.Duration) { c.wall.Add(int64(d)) }
func (c *plantClock) now() time.Time       { return time.Unix(0, c.wall.Load()) }

func (c *plantClock) options(fsys vfs.FS) historian.Options {
	o := historian.DefaultOptions()
	o.FS, o.MinFreeSpace = fsys, 0
	o.Now, o.Elapsed = c.now, func() time.Duration { return time.Duration(c.machine.Load()) }
	o.Tick = make(chan time.Time) // nothing happens by itself
	o.Checkpoint.CarryBelow = -1
	return o
}

func create(t testing.TB, s *historian.Store, name string, class historian.Class) historian.Series {
	t.Helper()
	id, err := s.CreateSeries(name, class, nil)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func keep(t testing.TB, s *historian.Store) {
	t.Helper()
	if err := s.KeepNow(); err != nil {
		t.Fatal(err)
	}
}

func checkpoint(t testing.TB, s *historian.Store) {
	t.Helper()
	if err := s.Checkpoint(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// Four hundred days of values of three classes, a checkpoint a day: what can be read reaches back as far as the
// class says, the disk stays as it is, and the last value of a topic that went silent is there for ever.
func TestRetentionOverFourHundredDays(t *testing.T) {
	dir := t.TempDir()
	c := newPlantClock()
	o := c.options(vfs.Default)
	o.Pebble.SyncWrites = false
	s := mustOpen(t, dir, o)
	ids := map[historian.Class]historian.Series{}
	for _, class := range []historian.Class{historian.Class1d, historian.Class7d, historian.Class32d} {
		ids[class] = create(t, s, class.String(), class)
	}
	silent := create(t, s, "silent", historian.Class1d)
	mustAppend(t, s, historian.Sample{Series: silent, Value: number(7)})
	const perDay, every = 24, time.Hour
	var sizes []uint64
	for d := range 400 {
		for i := range perDay {
			c.pass(every)
			for _, id := range ids {
				mustAppend(t, s, historian.Sample{Series: id, Value: number(int64(d*perDay + i))})
			}
			if i == perDay-1 {
				checkpoint(t, s)
				keep(t, s)
			}
		}
		if d == 200 { // the rest is after a restart
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = mustOpen(t, dir, o)
		}
		sizes = append(sizes, s.TableBytes())
	}
	for class, id := range ids {
		got := all(t, s, id, 10_000, false)
		want := int(class.Duration()/every) + 1 // both edges
		if len(got) != want {
			t.Errorf("%s: %d values, want %d", class, len(got), want)
		}
	}
	if got := all(t, s, silent, 10, false); len(got) != 0 {
		t.Errorf("the silent topic still shows %v", got)
	}
	if last, ok := s.Latest(silent); !ok || last.Value.Mant != 7 {
		t.Errorf("its last value: %v %v", last, ok)
	}
	early, late := sizes[60], sizes[399]
	if late > early+early/4 {
		t.Errorf("tables take %d octets after 60 days and %d after 400", early, late)
	}
	t.Logf("tables: %d octets after 60 days, %d after 400", early, late)
}

// A clock that jumps ahead deletes and hides nothing until it has stayed there for a day; one that comes back in time never
// does; one that jumps back and forth neither.
func TestRetentionAndClockJumps(t *testing.T) {
	c := newPlantClock()
	s := mustOpen(t, "db", c.options(vfs.NewMem()))
	id := create(t, s, "a", historian.Class7d)
	fill := func(n int) {
		for range n {
			c.pass(time.Hour)
			mustAppend(t, s, historian.Sample{Series: id, Value: number(1)})
		}
		checkpoint(t, s)
		keep(t, s)
	}
	count := func(when string, want int) {
		t.Helper()
		keep(t, s)
		if got := len(all(t, s, id, 10_000, false)); got != want {
			t.Errorf("%s: %d values, want %d", when, got, want)
		}
	}
	fill(24)
	count("before", 24)
	c.jump(365 * 24 * time.Hour) // a year
	count("after the jump", 24)
	c.pass(23 * time.Hour)
	count("a day later, nearly", 24)
	c.jump(-365 * 24 * time.Hour) // somebody has seen it
	count("set right", 24)
	c.pass(23 * time.Hour)
	count("and another day on", 24)

	c.jump(-400 * 24 * time.Hour) // no battery: it wakes up in the past
	count("in the past", 24)
	c.pass(time.Minute)
	c.jump(400 * 24 * time.Hour) // and is set by the network
	count("back in the present", 24)
	c.pass(5 * 24 * time.Hour)
	count("a week old, in part", 2) // 190 hours after the beginning, those of hours 23 and 24

	c.jump(30 * 24 * time.Hour)
	keep(t, s)
	c.pass(25 * time.Hour) // it stays: it is believed
	count("a jump that was meant", 0)
}

// What was believed before a restart is what the time goes on from, so that a restart does not make a wrong clock right.
func TestRetentionClockOverRestarts(t *testing.T) {
	c, fsys := newPlantClock(), vfs.NewMem()
	o := c.options(fsys)
	s := mustOpen(t, "db", o)
	id := create(t, s, "a", historian.Class1d)
	mustAppend(t, s, historian.Sample{Series: id, Value: number(1)})
	for range 3 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		c.jump(100 * 24 * time.Hour)
		c.pass(time.Minute)
		s = mustOpen(t, "db", o)
		keep(t, s)
		if got := all(t, s, id, 10, false); len(got) != 1 {
			t.Fatalf("after a start under a wrong clock: %v", got)
		}
	}
	c.pass(25 * time.Hour)
	keep(t, s)
	if got := all(t, s, id, 10, false); len(got) != 0 {
		t.Errorf("a day later: %v", got)
	}
}

// A shorter class hides what is older at once, a longer one shows what is still there; chunks stay in the class they were
// written under.
func TestChangeOfClass(t *testing.T) {
	c := newPlantClock()
	s := mustOpen(t, "db", c.options(vfs.NewMem()))
	id := create(t, s, "a", historian.Class32d)
	for range 10 {
		c.pass(24 * time.Hour)
		mustAppend(t, s, historian.Sample{Series: id, Value: number(1)})
		checkpoint(t, s)
	}
	count := func(class historian.Class, want int) {
		t.Helper()
		if err := s.SetSeries(context.Background(), id, class, nil); err != nil {
			t.Fatal(err)
		}
		keep(t, s)
		if got := len(all(t, s, id, 100, false)); got != want {
			t.Errorf("%s: %d values, want %d", class, got, want)
		}
	}
	count(historian.Class32d, 10)
	count(historian.Class7d, 8) // the one exactly seven days old is at the edge
	count(historian.Class1d, 2)
	count(historian.ClassForever, 10)
	for range 10 {
		c.pass(24 * time.Hour)
		mustAppend(t, s, historian.Sample{Series: id, Value: number(1)})
		checkpoint(t, s)
	}
	count(historian.ClassForever, 20)
	c.pass(20 * 24 * time.Hour)
	count(historian.ClassForever, 13) // of the first ten, written as 32d, three are left
}

// An hour's expiry of many series takes whole files out at once.
func BenchmarkExpire(b *testing.B) {
	c := newPlantClock()
	dir := b.TempDir()
	s := mustOpen(b, dir, c.options(vfs.Default))
	var ids []historian.Series
	for i := range 2000 {
		ids = append(ids, create(b, s, fmt.Sprint("s", i), historian.Class1d))
	}
	var spent time.Duration
	freed := uint64(0)
	for b.Loop() {
		batch := make([]historian.Sample, 0, len(ids))
		for range 64 {
			batch = batch[:0]
			for _, id := range ids {
				batch = append(batch, historian.Sample{Series: id, Value: number(time.Now().UnixNano() % 1000)})
			}
			mustAppend(b, s, batch...)
		}
		checkpoint(b, s)
		c.pass(25 * time.Hour)
		before := s.TableBytes()
		start := time.Now()
		keep(b, s)
		spent += time.Since(start)
		freed += before - s.TableBytes()
	}
	b.ReportMetric(float64(spent.Nanoseconds())/float64(b.N)/1e6, "ms/expiry")
	b.ReportMetric(float64(freed)/float64(b.N)/1024, "KiB-freed/expiry")
}
