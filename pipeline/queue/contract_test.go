package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// closer is what both implementations are beside a Queue.
type closer interface {
	Queue
	Close() error
}

// both runs a test on each implementation.
func both(t *testing.T, test func(t *testing.T, open func(o Options) closer)) {
	t.Helper()
	t.Parallel()
	t.Run("memory", func(t *testing.T) {
		test(t, func(o Options) closer {
			q := NewMemory(o)
			t.Cleanup(func() { _ = q.Close() })
			return q
		})
	})
	t.Run("jetstream", func(t *testing.T) {
		test(t, func(o Options) closer { return open1(t, t.TempDir(), o) })
	})
}

func open1(t *testing.T, dir string, o Options) *JetStream {
	t.Helper()
	q, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := q.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return q
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func take(t *testing.T, q Queue, l Lane) *Frame {
	t.Helper()
	f, err := q.Take(within(t), l)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// eventually polls until ok.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

func entry(seq uint64, runs int) Entry {
	e := Entry{Seq: seq, Workspace: "main", Topic: fmt.Sprintf("plant/line%d/speed", seq%7), Time: int64(seq) * 1e6, Scale: 6, Value: fmt.Appendf(nil, `%d.5`, seq)}
	for i := range runs {
		e.Refs = append(e.Refs, Ref{Pipeline: uint32(i + 1), Version: 3, Node: uint16(i)})
	}
	return e
}

func TestEntriesComeAsTheyWerePutInOrder(t *testing.T) {
	both(t, func(t *testing.T, open func(Options) closer) {
		q := open(Options{})
		const n = 500
		var want [Lanes][]Entry
		go func() {
			for i := range uint64(n) {
				e := entry(i+1, int(i%4)+1)
				e.Kind, e.Quality, e.Hops, e.ID = uint8(i%6), uint8(i%3), uint8(i%17), i*i
				if err := q.Put(context.Background(), Lane(i%3), e); err != nil {
					t.Error(err)
					return
				}
				clear(e.Value) // the caller's again
				clear(e.Refs)
			}
		}()
		for i := range uint64(n) {
			e := entry(i+1, int(i%4)+1)
			e.Kind, e.Quality, e.Hops, e.ID = uint8(i%6), uint8(i%3), uint8(i%17), i*i
			want[i%3] = append(want[i%3], e)
		}
		for l := range Lanes {
			var got []Entry
			for len(got) < len(want[l]) {
				f := take(t, q, l)
				runs := 0
				for _, e := range f.Entries {
					runs += len(e.Refs)
				}
				if f.Lane != l || f.Suspect || runs > maxFrameRuns || f.Created.IsZero() {
					t.Fatalf("frame %+v of %d runs", f, runs)
				}
				got = append(got, f.Entries...)
				f.Ack()
				f.Ack() // does nothing
			}
			if diff := cmp.Diff(want[l], got); diff != "" {
				t.Fatalf("lane %v (-want +got):\n%s", l, diff)
			}
		}
		eventually(t, "empty", func() bool { s := q.Stats(); return s == (Stats{}) })
	})
}

func TestPendingAndInFlight(t *testing.T) {
	both(t, func(t *testing.T, open func(Options) closer) {
		q := open(Options{})
		for i := range uint64(10) {
			if err := q.Put(within(t), Low, entry(i+1, 2)); err != nil {
				t.Fatal(err)
			}
		}
		if s := q.Stats(); s.Pending != [Lanes]int{Low: 20} || s.Oldest[Low].IsZero() || s.Bytes == 0 {
			t.Errorf("after Put: %+v", s)
		}
		var frames []*Frame
		for runs := 0; runs < 20; {
			f := take(t, q, Low)
			frames = append(frames, f)
			runs += 2 * len(f.Entries)
		}
		if s := q.Stats(); s.Pending != [Lanes]int{} || s.InFlight != [Lanes]int{Low: 20} || s.Bytes != 0 || !s.Oldest[Low].IsZero() {
			t.Errorf("after Take: %+v", s)
		}
		for _, f := range frames {
			f.Ack()
		}
		if s := q.Stats(); s.InFlight != [Lanes]int{} {
			t.Errorf("after Ack: %+v", s)
		}
	})
}

func TestTheOldestAreShed(t *testing.T) {
	both(t, func(t *testing.T, open func(Options) closer) {
		var mu sync.Mutex
		shed := map[uint64]int{}
		q := open(Options{MaxBytes: 1 << 20, Shed: func(list []Entry) {
			mu.Lock()
			defer mu.Unlock()
			for _, e := range list {
				shed[e.Seq] += len(e.Refs)
			}
		}})
		const n = 3000
		big := make([]byte, 1000)
		// One frame is out: it must stay.
		if err := q.Put(within(t), Normal, entry(1_000_000, 1)); err != nil {
			t.Fatal(err)
		}
		first := take(t, q, Normal)
		for i := range uint64(n) {
			e := entry(i+1, 3)
			e.Value = big
			if err := q.Put(within(t), Lane(i%3), e); err != nil {
				t.Fatal(err)
			}
		}
		eventually(t, "within the bound", func() bool { return q.Stats().Bytes <= 1<<20 })
		taken := map[uint64]int{}
		deadline, cancel := context.WithCancel(context.Background())
		defer cancel()
		var takers sync.WaitGroup
		for l := range Lanes {
			takers.Go(func() {
				for {
					f, err := q.Take(deadline, l)
					if err != nil {
						return
					}
					mu.Lock()
					for _, e := range f.Entries {
						taken[e.Seq] += len(e.Refs)
					}
					mu.Unlock()
					f.Ack()
				}
			})
		}
		sum := func() (runs int) {
			mu.Lock()
			defer mu.Unlock()
			for seq, n := range taken {
				runs += n
				if shed[seq] > 0 {
					t.Fatalf("%d was shed and taken", seq)
				}
			}
			for _, n := range shed {
				runs += n
			}
			return runs
		}
		eventually(t, "every run is taken or shed", func() bool { return sum() == 3*n })
		cancel()
		takers.Wait()
		s := q.Stats()
		total := 0
		for _, n := range shed {
			total += n
		}
		if s.ShedSize != uint64(total) || total == 0 || s.ShedAge+s.ShedStore+s.LostOut != 0 {
			t.Errorf("%d shed, counted %+v", total, s)
		}
		if s.InFlight[Normal] != 1 {
			t.Errorf("the frame that was out is gone: %+v", s)
		}
		first.Ack()
	})
}

func TestTooOldIsShed(t *testing.T) {
	both(t, func(t *testing.T, open func(Options) closer) {
		var mu sync.Mutex
		now := time.Now()
		clock := func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
		q := open(Options{MaxAge: time.Minute, Now: clock})
		if err := q.Put(within(t), Low, entry(1, 2)); err != nil {
			t.Fatal(err)
		}
		if j, ok := q.(*JetStream); ok {
			if err := j.Flush(within(t)); err != nil {
				t.Fatal(err)
			}
		}
		mu.Lock()
		now = now.Add(2 * time.Minute)
		mu.Unlock()
		if _, ok := q.(*JetStream); ok {
			eventually(t, "shed", func() bool { return q.Stats().ShedAge == 2 })
		}
		if err := q.Put(within(t), Low, entry(2, 1)); err != nil {
			t.Fatal(err)
		}
		f := take(t, q, Low)
		if len(f.Entries) != 1 || f.Entries[0].Seq != 2 || q.Stats().ShedAge != 2 {
			t.Errorf("took %+v, %+v", f, q.Stats())
		}
		f.Ack()
	})
}

func TestPutWaitsWhenNewOnesAreRefused(t *testing.T) {
	both(t, func(t *testing.T, open func(Options) closer) {
		q := open(Options{MaxBytes: 100_000, DiscardNewOnFull: true})
		const n = 1000
		done := make(chan error, 1)
		go func() {
			for i := range uint64(n) {
				e := entry(i+1, 1)
				e.Value = make([]byte, 1000)
				if err := q.Put(context.Background(), Normal, e); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
		eventually(t, "full", func() bool { return q.Stats().Bytes > 90_000 })
		short, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		defer cancel()
		big := entry(7, 1)
		big.Value = make([]byte, 50_000)
		for q.Stats().Bytes < 100_000 { // there may be room for one more
			if err := q.Put(short, High, big); err != nil {
				break
			}
		}
		if err := q.Put(short, High, big); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Put into a full queue: %v", err)
		}
		for next := uint64(1); next <= n; {
			f := take(t, q, Normal)
			for _, e := range f.Entries {
				if e.Seq != next {
					t.Fatalf("sequence %d, want %d", e.Seq, next)
				}
				next++
			}
			f.Ack()
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		if s := q.Stats(); s.ShedSize+s.ShedAge+s.ShedStore != 0 {
			t.Errorf("shed: %+v", s)
		}
	})
}

func TestAFrameOfWhichNothingIsHeardComesAgain(t *testing.T) {
	both(t, func(t *testing.T, open func(Options) closer) {
		q := open(Options{Scheduler: Scheduler{AckWait: time.Second}})
		for l := range Lanes {
			if err := q.Put(within(t), l, entry(uint64(l)+1, 2)); err != nil {
				t.Fatal(err)
			}
		}
		lost, kept := take(t, q, High), take(t, q, Low)
		stop := make(chan struct{})
		var reports sync.WaitGroup
		reports.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(100 * time.Millisecond):
					kept.Progress()
				}
			}
		})
		f := take(t, q, High)
		if !f.Suspect || f.Seq != lost.Seq || !cmp.Equal(f.Entries, lost.Entries) {
			t.Errorf("%+v came again as %+v", lost, f)
		}
		f.Ack()
		short, cancel := context.WithTimeout(context.Background(), 1500*time.Millisecond)
		defer cancel()
		if f, err := q.Take(short, Low); err == nil {
			t.Errorf("a frame that is reported on came again: %+v", f)
		}
		close(stop)
		reports.Wait()
		kept.Ack()
		if s := q.Stats(); s.Redelivered != 2 || s.InFlight != [Lanes]int{} {
			t.Errorf("%+v", s)
		}
	})
}

func TestACallEndsWithItsContextOrTheQueue(t *testing.T) {
	both(t, func(t *testing.T, open func(Options) closer) {
		q := open(Options{})
		ctx, cancel := context.WithCancel(context.Background())
		errs := make(chan error, 2)
		for range 2 {
			go func() { _, err := q.Take(ctx, Normal); errs <- err }()
		}
		cancel()
		for range 2 {
			if err := <-errs; !errors.Is(err, context.Canceled) {
				t.Errorf("Take after its context: %v", err)
			}
		}
		go func() { _, err := q.Take(context.Background(), Normal); errs <- err }()
		time.Sleep(time.Millisecond)
		if err := q.Close(); err != nil {
			t.Error(err)
		}
		if err := <-errs; !errors.Is(err, ErrClosed) {
			t.Errorf("Take of a queue that closes: %v", err)
		}
		if err := q.Put(context.Background(), High, entry(1, 1)); !errors.Is(err, ErrClosed) {
			t.Errorf("Put into a closed queue: %v", err)
		}
		if err := q.Put(context.Background(), High, Entry{Value: make([]byte, maxEntry)}); !errors.Is(err, ErrTooLarge) {
			t.Errorf("a giant: %v", err)
		}
	})
}
