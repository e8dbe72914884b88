package historian_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"millrace/historian"
)

var errEnough = errors.New("enough")

// readTo reads the log from one sequence to another and gives a copy of what came.
func readTo(t testing.TB, s *historian.Store, from, to uint64) (out []historian.Sample) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	err := s.ReadLog(ctx, from, func(samples []historian.Sample) error {
		for _, x := range samples {
			if x.Seq > to {
				return errEnough
			}
			x.Value = x.Value.Clone()
			out = append(out, x)
		}
		if samples[len(samples)-1].Seq == to {
			return errEnough
		}
		return nil
	})
	if !errors.Is(err, errEnough) {
		t.Fatalf("read the log from %d to %d: %v, after %d samples", from, to, err, len(out))
	}
	return out
}

// sameLog holds what was read against what was appended, sequence by sequence.
func sameLog(t testing.TB, what string, want, got []historian.Sample) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d samples, want %d", what, len(got), len(want))
	}
	for i := range want {
		w, g := want[i], got[i]
		if w.Seq != g.Seq || w.Series != g.Series || w.Hops != g.Hops || traitsOf(w) != traitsOf(g) || !w.Value.Equal(g.Value) {
			t.Fatalf("%s: sample %d is %+v, want %+v", what, i, g, w)
		}
	}
}

// draw makes n samples with everything a sample can have, hops as well.
func draw(r *rand.Rand, n int, id historian.Series) []historian.Sample {
	out := hostile(r, n, id)
	for i := range out {
		out[i].Seq, out[i].Received = 0, 0
		if r.IntN(3) == 0 {
			out[i].Hops = uint8(r.IntN(256))
		}
	}
	return out
}

func TestLogReaderSeesEverySampleInOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 21))
	s := mustOpen(t, "db", options(vfs.NewMem()))
	s.Hold(1)
	id := mustCreate(t, s, "a")
	var want []historian.Sample
	put := func(n int) {
		samples := draw(r, n, id)
		if r.IntN(40) == 0 {
			samples[0].Value = historian.Value{Kind: historian.Text, Raw: make([]byte, 300<<10)} // the memory does not keep it
		}
		mustAppend(t, s, samples...)
		want = append(want, samples...)
	}
	put(3)
	// A reader that is at the end all the time, and one that stops every now and then.
	var reading sync.WaitGroup
	var got [2][]historian.Sample
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	pause, resume := make(chan struct{}), make(chan struct{})
	for i := range got {
		reading.Go(func() {
			err := s.ReadLog(ctx, 1, func(samples []historian.Sample) error {
				for _, x := range samples {
					x.Value = x.Value.Clone()
					got[i] = append(got[i], x)
					if string(x.Value.Raw) == "the end" {
						return errEnough
					}
					if i == 1 && len(got[i]) == 50 {
						close(pause)
						<-resume
					}
				}
				return nil
			})
			if !errors.Is(err, errEnough) {
				t.Errorf("reader %d: %v", i, err)
			}
		})
	}
	for range 60 {
		put(1 + r.IntN(20))
	}
	<-pause
	// More than the memory keeps, while one reader stands still: nobody who appends waits for it.
	for range 400 {
		put(1 + r.IntN(200))
		if r.IntN(60) == 0 {
			if err := s.Checkpoint(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	close(resume)
	end := at(id, 1, 0)
	end.Value = historian.Value{Kind: historian.Text, Raw: []byte("the end")}
	mustAppend(t, s, end)
	reading.Wait()
	for i := range got {
		sameLog(t, fmt.Sprintf("reader %d", i), want, got[i][:len(got[i])-1])
	}
	for range 20 {
		from := 1 + r.Uint64N(uint64(len(want)))
		sameLog(t, fmt.Sprintf("from %d", from), want[from-1:], readTo(t, s, from, uint64(len(want))))
	}
}

func TestLogReaderSeesNothingThatIsNotDurable(t *testing.T) {
	var armed atomic.Bool
	reached, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	fsys := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if armed.Load() && walSync(op) {
			once.Do(func() { close(reached) })
			<-release
		}
		return nil
	}))
	s := mustOpen(t, "db", options(fsys))
	id := mustCreate(t, s, "a")
	mustAppend(t, s, at(id, 1, 1))
	seen := make(chan historian.Sample, 1)
	ctx, stop := context.WithCancel(t.Context())
	var reading sync.WaitGroup
	reading.Go(func() {
		err := s.ReadLog(ctx, 2, func(samples []historian.Sample) error { seen <- samples[0]; return nil })
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	defer reading.Wait()
	defer stop()
	armed.Store(true)
	acked := make(chan error, 1)
	go func() { acked <- s.Append(context.Background(), []historian.Sample{at(id, 2, 2)}, nil) }()
	<-reached
	select {
	case x := <-seen:
		t.Errorf("%+v was read before its fsync", x)
	default:
	}
	if n := s.LastSeq(); n != 1 {
		t.Errorf("the last sequence is %d before the fsync", n)
	}
	close(release)
	if err := <-acked; err != nil {
		t.Fatal(err)
	}
	if x := <-seen; x.Seq != 2 || x.Value.Mant != 2 {
		t.Errorf("read %+v", x)
	}
	if last, _ := s.Latest(id); last.Value.Mant != 2 {
		t.Errorf("what was read is not in the head: %+v", last)
	}
}

func TestLogReaderEnds(t *testing.T) {
	s := mustOpen(t, "db", options(vfs.NewMem()))
	id := mustCreate(t, s, "a")
	mustAppend(t, s, at(id, 1, 1))
	if err := s.ReadLog(t.Context(), 1, func([]historian.Sample) error { return errEnough }); !errors.Is(err, errEnough) {
		t.Errorf("the error of fn came back as %v", err)
	}
	waiting := make(chan struct{})
	done := make(chan error)
	go func() {
		done <- s.ReadLog(context.Background(), 1, func([]historian.Sample) error { close(waiting); return nil })
	}()
	<-waiting
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, historian.ErrClosed) {
		t.Errorf("a reader of a closed store got %v", err)
	}
	if err := s.ReadLog(context.Background(), 1, func([]historian.Sample) error { return nil }); !errors.Is(err, historian.ErrClosed) {
		t.Errorf("a reader that came later got %v", err)
	}
}

func TestLogWithoutHoldGoesWithTheCheckpoint(t *testing.T) {
	fsys := vfs.NewMem()
	s := mustOpen(t, "db", options(fsys))
	id := mustCreate(t, s, "a")
	mustAppend(t, s, at(id, 1, 1), at(id, 2, 2))
	if err := s.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, s, at(id, 3, 3))
	var shed *historian.Shed
	err := s.ReadLog(t.Context(), 1, func([]historian.Sample) error { return errEnough })
	if !errors.As(err, &shed) || *shed != (historian.Shed{From: 1, To: 2}) {
		t.Fatalf("got %v", err)
	}
	if got := readTo(t, s, shed.To+1, 3); len(got) != 1 {
		t.Errorf("read %+v", got)
	}
	if st := s.State(); st.LogShed != 0 || st.LogFrom != 3 {
		t.Errorf("nothing was held: %+v", st)
	}
}

func TestHeldLogOutlivesCheckpointsAndRestarts(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 21))
	fsys := vfs.NewMem()
	o := options(fsys)
	s := mustOpen(t, "db", o)
	id := mustCreate(t, s, "a")
	var want []historian.Sample
	put := func(n int) {
		samples := draw(r, n, id)
		mustAppend(t, s, samples...)
		want = append(want, samples...)
	}
	put(5)
	s.Hold(3)
	for life := range 4 {
		for range 3 {
			put(4)
			if err := s.Checkpoint(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		put(2)
		n := uint64(len(want))
		sameLog(t, "held", want[2:], readTo(t, s, 3, n))
		held := s.State().HeldBytes
		if held == 0 {
			t.Error("nothing is said to be held")
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = mustOpen(t, "db", o)
		if got := len(all(t, s, id, 100_000, false)); got != len(want) {
			t.Fatalf("life %d: the series has %d samples, want %d", life, got, len(want))
		}
		sameLog(t, "after a start", want[2:], readTo(t, s, 3, n))
		if now := s.State().HeldBytes; now < held {
			t.Errorf("a start says that %d octets are held, before it were %d", now, held)
		}
	}
	// The hold moves on: what is before it goes, and not one sample more.
	s.Hold(uint64(len(want)) - 3)
	if err := s.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	put(1)
	if err := s.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	n := uint64(len(want))
	sameLog(t, "moved on", want[n-4:], readTo(t, s, n-3, n))
	var shed *historian.Shed
	if err := s.ReadLog(t.Context(), 3, func([]historian.Sample) error { return errEnough }); !errors.As(err, &shed) || shed.From != 3 || shed.To > n-4 {
		t.Errorf("before the hold: %v", err)
	}
	s.Hold(historian.NoHold)
	put(1)
	if err := s.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := s.Keys('L'); n != 0 {
		t.Errorf("%d log records are left without a hold", n)
	}
	if st := s.State(); st.HeldBytes != 0 || st.LogShed != 0 {
		t.Errorf("%+v", st)
	}
}

// A reader that has caught up lets the log go without another checkpoint: a quiet plant makes none.
func TestWatchDropsLogThatIsNoLongerHeld(t *testing.T) {
	tick := make(chan time.Time)
	o := options(vfs.NewMem())
	o.Tick = tick
	s := mustOpen(t, "db", o)
	id := mustCreate(t, s, "a")
	s.Hold(1)
	mustAppend(t, s, at(id, 1, 1), at(id, 2, 2))
	if err := s.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.Keys('L') != 1 {
		t.Fatal("the log was not held")
	}
	s.Hold(3)
	tick <- time.Now()
	tick <- time.Now() // taken after the first was dealt with
	if n := s.Keys('L'); n != 0 {
		t.Errorf("%d log records are left", n)
	}
}

func TestFullLogShedsTheOldest(t *testing.T) {
	o := options(vfs.NewMem())
	o.MaxLogBytes = 1 << 20
	o.Checkpoint.Values = 1 << 40
	s := mustOpen(t, "db", o)
	id := mustCreate(t, s, "a")
	s.Hold(1)
	for i := range int64(60) {
		x := at(id, i, i)
		x.Value = historian.Value{Kind: historian.Text, Raw: []byte(strings.Repeat("x", 50_000))}
		mustAppend(t, s, x)
		if err := s.Checkpoint(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	var shed *historian.Shed
	err := s.ReadLog(t.Context(), 1, func([]historian.Sample) error { return errEnough })
	if !errors.As(err, &shed) || shed.From != 1 {
		t.Fatalf("a log of 3 MB with room for 1 MiB is still whole: %v", err)
	}
	st := s.State()
	if st.LogShed != shed.To || st.LogFrom != shed.To+1 {
		t.Errorf("shed to %d, but %+v", shed.To, st)
	}
	if st.HeldBytes+st.LogBytes > o.MaxLogBytes || st.HeldBytes < o.MaxLogBytes/2 {
		t.Errorf("%d octets are held, of at most %d", st.HeldBytes, o.MaxLogBytes)
	}
	if got := readTo(t, s, shed.To+1, 60); len(got) != 60-int(shed.To) {
		t.Errorf("%d samples are left behind %d", len(got), shed.To)
	}
}

// The power goes between the ingestion of a checkpoint and the commit that follows from it; the start that finishes it
// must not drop what is held.
func TestCutCheckpointKeepsWhatIsHeld(t *testing.T) {
	disk := vfs.NewCrashableMem()
	var armed, linked, done atomic.Bool
	var cut *vfs.MemFS
	fsys := errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch {
		case op.Kind == errorfs.OpLink && armed.Load():
			linked.Store(true)
		case linked.Load() && walSync(op) && done.CompareAndSwap(false, true):
			cut = disk.CrashClone(vfs.CrashCloneCfg{})
		}
		return nil
	}))
	o := options(fsys)
	s := mustOpen(t, "db", o)
	id := mustCreate(t, s, "a")
	mustAppend(t, s, at(id, 1, 1), at(id, 2, 2))
	s.Hold(2)
	mustAppend(t, s, at(id, 3, 3))
	armed.Store(true)
	if err := s.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	if cut == nil {
		t.Fatal("the checkpoint linked no table or fsynced nothing after it")
	}
	o.FS = cut
	again := mustOpen(t, "db", o)
	if got := readTo(t, again, 2, 3); len(got) != 2 || got[0].Seq != 2 {
		t.Errorf("read %+v", got)
	}
	if got := strings.Join(all(t, again, id, 10, false), " "); got != "1=1 2=2 3=3" {
		t.Errorf("the series is %s", got)
	}
	if again.State().HeldBytes == 0 {
		t.Error("nothing is said to be held")
	}
}

// Power cuts at any moment, with a hold that moves: from the hold on the log gives what the series hold, each sample once.
func TestCrashKeepsTheHeldLog(t *testing.T) {
	for seed := range seedCount(25) {
		r := rand.New(rand.NewPCG(seed, 22))
		disk := vfs.NewCrashableMem()
		var want []historian.Sample
		hold := uint64(1)
		for life := range 3 {
			var left *vfs.MemFS
			acked, held := 0, hold
			var linking sync.Mutex
			countdown := atomic.Int64{}
			countdown.Store(1 + r.Int64N(400))
			rng := rand.New(rand.NewPCG(seed, uint64(life)))
			state := func() {}
			fs := errorfs.Wrap(linkFS{disk, &linking}, errorfs.InjectorFunc(func(op errorfs.Op) error {
				if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && countdown.Add(-1) == 0 {
					state()
					linking.Lock()
					left = disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: int(seed%3) * 50, RNG: rng})
					linking.Unlock()
				}
				return nil
			}))
			var now clock
			now.ns.Store(epoch)
			o := memoryOptions(fs, now.now, true)
			o.KeepAll = true // some of their times are far away
			s, err := historian.Open("db", o)
			if err != nil {
				t.Fatal(err)
			}
			var mu sync.Mutex
			floor, floorHold := 0, hold
			state = func() { mu.Lock(); floor, floorHold = acked, held; mu.Unlock() }
			if life == 0 {
				mustCreate(t, s, "a")
				s.Hold(1)
			}
			acked = len(want)
			for range r.IntN(60) {
				samples := draw(r, 1+r.IntN(6), 1)
				if err := s.Append(t.Context(), samples, nil); err != nil {
					t.Fatal(err)
				}
				mu.Lock()
				want = append(want, samples...)
				acked = len(want)
				mu.Unlock()
				if r.IntN(8) == 0 {
					next := hold + r.Uint64N(uint64(len(want))-hold+2)
					mu.Lock()
					hold, held = next, next
					mu.Unlock()
					s.Hold(hold)
				}
				if r.IntN(10) == 0 {
					if err := s.Checkpoint(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if left == nil {
				state()
				left = disk.CrashClone(vfs.CrashCloneCfg{})
			}
			disk = left
			o.FS = disk
			s, err = historian.Open("db", o)
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			last := s.LastSeq()
			if last < uint64(floor) {
				t.Fatalf("seed %d: %d of %d acknowledged are left", seed, last, floor)
			}
			want = want[:last]
			hold = min(floorHold, last+1)
			if last >= hold {
				sameLog(t, fmt.Sprintf("seed %d, from %d", seed, hold), want[hold-1:], readTo(t, s, hold, last))
			}
			if last > 0 {
				got, _, err := s.Raw(t.Context(), nil, historian.Query{Series: 1, From: -1 << 63, To: 1<<63 - 1, Limit: 100_000})
				if err != nil || len(got) != int(last) {
					t.Fatalf("seed %d: the series has %d samples, want %d: %v", seed, len(got), last, err)
				}
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			disk = disk.CrashClone(vfs.CrashCloneCfg{})
			if last == 0 {
				break // the series may be gone
			}
		}
	}
}

// A damaged block of the log costs its samples their reader, and nothing else: neither the start nor a checkpoint, nor what lies behind it.
func TestDamagedLogIsReadOnBehind(t *testing.T) {
	dir := t.TempDir()
	o := options(vfs.Default)
	o.MinFreeSpace = 0
	s := mustOpen(t, dir, o)
	id := mustCreate(t, s, "a")
	s.Hold(1)
	r := rand.New(rand.NewPCG(3, 21))
	for range 200 {
		samples := make([]historian.Sample, 50)
		for i := range samples {
			samples[i] = at(id, r.Int64N(1e12), r.Int64())
		}
		mustAppend(t, s, samples...)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files { // one holds chunks, one the log
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if len(b) < 64<<10 {
			continue
		}
		clear(b[len(b)/2 : len(b)/2+4096])
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s = mustOpen(t, dir, o)
	mustAppend(t, s, at(id, 1, 1))
	if err := s.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	seen, at, sheds := uint64(0), uint64(1), 0
	for {
		err := s.ReadLog(ctx, at, func(samples []historian.Sample) error {
			if samples[0].Seq != at {
				t.Errorf("sequence %d after %d", samples[0].Seq, at-1)
			}
			seen += uint64(len(samples))
			if at = samples[len(samples)-1].Seq + 1; at > 10_001 {
				return errEnough
			}
			return nil
		})
		var shed *historian.Shed
		if errors.As(err, &shed) && sheds < 10 {
			if shed.Damage == nil || shed.From != at {
				t.Errorf("at %d: %v", at, shed)
			}
			t.Log(shed)
			at = shed.To + 1
			sheds++
			continue
		}
		if !errors.Is(err, errEnough) {
			t.Fatal(err)
		}
		break
	}
	if sheds == 0 || seen < 5000 {
		t.Errorf("%d times something could not be read, %d of 10,001 samples were", sheds, seen)
	}
}

func TestSkipToLeavesSequencesOut(t *testing.T) {
	fsys := vfs.NewMem()
	s := mustOpen(t, "db", options(fsys))
	id := mustCreate(t, s, "a")
	mustAppend(t, s, at(id, 1, 1))
	s.SkipTo(1000)
	s.SkipTo(10)
	mustAppend(t, s, at(id, 2, 2), at(id, 3, 3))
	s.Hold(1)
	for range 2 {
		for _, from := range []uint64{1, 2, 500, 1001} {
			got := readTo(t, s, from, 1002)
			if n := len(got); n != 2 && (n != 3 || from != 1) || got[n-1].Seq != 1002 || got[n-2].Seq != 1001 {
				t.Errorf("from %d: %+v", from, got)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = mustOpen(t, "db", options(fsys))
	}
	if got := all(t, s, id, 10, false); len(got) != 3 {
		t.Error(got)
	}
}
