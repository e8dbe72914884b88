package historian_test

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"millrace/historian"
)

// walSync says whether an operation makes the write-ahead log durable.
func walSync(op errorfs.Op) bool {
	return strings.HasSuffix(op.Path, ".log") &&
		(op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData || op.Kind == errorfs.OpFileSyncTo)
}

func TestAppendWaitsForFsync(t *testing.T) {
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
	tick := make(chan time.Time)
	o := options(fsys)
	o.Tick = tick
	s := mustOpen(t, "db", o)
	id := mustCreate(t, s, "a")
	mustAppend(t, s, at(id, 1, 1))

	armed.Store(true)
	done := make(chan error)
	go func() { done <- s.Append(context.Background(), []historian.Sample{at(id, 2, 2)}, nil) }()
	<-reached
	select {
	case err := <-done:
		t.Fatalf("acknowledged (%v) before the fsync returned", err)
	default:
	}
	if last, _ := s.Latest(id); last.Value.Mant != 1 {
		t.Errorf("latest shows %d before it is durable", last.Value.Mant)
	}
	// The fsync hangs for more than a second: the watch stalls the store, and an append that comes now is
	// turned away when its context ends.
	for !s.State().Stalled {
		tick <- time.Now()
	}
	if st := s.State(); st.Why != "fsync" {
		t.Errorf("state says %q, want fsync", st.Why)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Append(ctx, []historian.Sample{at(id, 3, 3)}, nil); !errors.Is(err, historian.ErrStalled) {
		t.Errorf("append during the stall: %v, want ErrStalled", err)
	}
	close(release)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	mustAppend(t, s, at(id, 4, 4)) // the gate opens by itself
	if got := all(t, s, id, 10, false); len(got) != 3 {
		t.Errorf("stored %v, want 1, 2 and 4", got)
	}
}

func TestLowDiskHoldsAppendsBackUntilThereIsRoom(t *testing.T) {
	var free atomic.Uint64
	free.Store(2_000_000)
	tick := make(chan time.Time)
	o := options(vfs.NewMem())
	o.MinFreeSpace = 1_000_000
	o.Free = func(string) (uint64, error) { return free.Load(), nil }
	o.Tick = tick
	s := mustOpen(t, "db", o)
	id := mustCreate(t, s, "a")
	mustAppend(t, s, at(id, 1, 1))

	poll := func(n uint64) {
		free.Store(n)
		tick <- time.Now()
		tick <- time.Now() // taken only when the first one is dealt with
	}
	poll(999_999)
	st := s.State()
	if !st.Stalled || st.Why != "disk_low" || st.FreeBytes != 999_999 {
		t.Fatalf("state %+v, want stalled by disk_low", st)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Append(ctx, []historian.Sample{at(id, 2, 2)}, nil); !errors.Is(err, historian.ErrStalled) {
		t.Fatalf("append on a full disk: %v, want ErrStalled", err)
	}
	poll(1_050_000)
	if !s.State().Stalled {
		t.Error("resumed within the margin; it would flutter")
	}
	done := make(chan error)
	go func() { done <- s.Append(context.Background(), []historian.Sample{at(id, 3, 3)}, nil) }()
	poll(1_100_000)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if st := s.State(); st.Stalled || st.Why != "" {
		t.Errorf("state %+v after there is room again", st)
	}
	if got := all(t, s, id, 10, false); len(got) != 2 {
		t.Errorf("stored %v, want 1 and 3", got)
	}
}

// Large values must not run past the watermark between two looks at the disk.
func TestCommitsCountAgainstTheSpaceSeenLast(t *testing.T) {
	tick := make(chan time.Time)
	o := options(vfs.NewMem())
	o.MinFreeSpace = 1_000_000
	o.Free = func(string) (uint64, error) { return 1_150_000, nil }
	o.Tick = tick
	s := mustOpen(t, "db", o)
	id := mustCreate(t, s, "a")
	big := at(id, 1, 1)
	big.Value = historian.Value{Kind: historian.Text, Raw: bytes.Repeat([]byte("x"), 20_000)}
	stored := 0
	for ; stored < 100; stored++ {
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		err := s.Append(ctx, []historian.Sample{big}, nil)
		cancel()
		if errors.Is(err, historian.ErrStalled) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if stored < 1 || stored > 7 { // 150,000 of room, 20,000 each, twice over in log and table
		t.Errorf("%d values of 20,000 octets went into 150,000 octets of room before anybody looked", stored)
	}
	if st := s.State(); !st.Stalled || st.Why != "disk_low" {
		t.Errorf("state %+v", st)
	}
	tick <- time.Now()
	tick <- time.Now()
	mustAppend(t, s, big) // the look found the room still there
}

func TestNothingIsAcknowledgedAfterAWriteError(t *testing.T) {
	var armed atomic.Bool
	fsys := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if armed.Load() && walSync(op) {
			return syscall.EIO
		}
		return nil
	}))
	fatal := make(chan error, 10)
	o := options(fsys)
	o.Fatal = func(err error) { fatal <- err }
	s, err := historian.Open("db", o)
	if err != nil {
		t.Fatal(err)
	}
	id := mustCreate(t, s, "a")
	mustAppend(t, s, at(id, 1, 1))
	armed.Store(true)
	for n := range int64(3) {
		if err := s.Append(context.Background(), []historian.Sample{at(id, 2+n, 2)}, nil); err == nil {
			t.Errorf("append %d succeeded on a disk that refuses writes", n)
		}
	}
	if last, _ := s.Latest(id); last.Value.Mant != 1 {
		t.Errorf("latest shows %d, which no caller was told to be stored", last.Value.Mant)
	}
	if err := <-fatal; !strings.Contains(err.Error(), "refused a write") {
		t.Errorf("fatal: %v", err)
	}
	if len(fatal) != 0 {
		t.Error("Fatal was called more than once")
	}
	if err := s.Close(); err == nil {
		t.Error("close says that all is well")
	}
}

func TestFailedCheckpointLosesNothing(t *testing.T) {
	var armed atomic.Bool
	fsys := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if armed.Load() && op.Kind == errorfs.OpCreate && strings.Contains(op.Path, "build") {
			return syscall.EIO
		}
		return nil
	}))
	o := options(fsys)
	o.Checkpoint.CarryBelow = -1
	s := mustOpen(t, "db", o)
	id := mustCreate(t, s, "a")
	mustAppend(t, s, at(id, 1, 1), at(id, 2, 2))
	armed.Store(true)
	if err := s.Checkpoint(context.Background()); err == nil {
		t.Fatal("checkpoint succeeded without its tables")
	}
	mustAppend(t, s, at(id, 1, 3))
	armed.Store(false)
	if err := s.Checkpoint(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(all(t, s, id, 10, false), " "); got != "1=1 1=3 2=2" {
		t.Errorf("stored %s", got)
	}
	if st := s.State(); st.LogBytes != 0 {
		t.Errorf("%d octets of log left behind the checkpoint", st.LogBytes)
	}
}

func TestCloseWhileAppending(t *testing.T) {
	before := countOwn()
	fsys := vfs.NewMem()
	s, err := historian.Open("db", options(fsys))
	if err != nil {
		t.Fatal(err)
	}
	id := mustCreate(t, s, "a")
	var stored atomic.Int64
	var wg sync.WaitGroup
	begun := make(chan struct{}, 8)
	for range 8 {
		wg.Go(func() {
			for i := 0; ; i++ {
				err := s.Append(context.Background(), []historian.Sample{{Series: id, Value: number(1)}, {Series: id, Value: number(2)}}, nil)
				if errors.Is(err, historian.ErrClosed) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				stored.Add(2)
				if i == 0 {
					begun <- struct{}{}
				}
			}
		})
	}
	for range 8 {
		<-begun
	}
	for range 2 {
		wg.Go(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if after := countOwn(); after > before {
		t.Errorf("%d goroutines of the store outlive it", after-before)
	}
	if _, _, err := s.Raw(context.Background(), nil, historian.Query{Series: id, To: 1 << 62}); !errors.Is(err, historian.ErrClosed) {
		t.Errorf("query after close: %v, want ErrClosed", err)
	}
	s = mustOpen(t, "db", options(fsys))
	if got := len(all(t, s, id, 1000, false)); int64(got) != stored.Load() {
		t.Errorf("%d samples stored, %d acknowledged", got, stored.Load())
	}
}

// countOwn counts the goroutines that run methods of a store.
func countOwn() int {
	buf := make([]byte, 1<<20)
	buf = buf[:runtime.Stack(buf, true)]
	return strings.Count(string(buf), "created by millrace/historian.")
}

// TestWithoutSyncWritesASlowFsyncHoldsAcknowledgementsBack keeps the promise that a power cut takes at most
// 100 ms of acknowledged values, on a disk whose fsync takes longer.
func TestWithoutSyncWritesASlowFsyncHoldsAcknowledgementsBack(t *testing.T) {
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
	o := options(fsys)
	o.Pebble.SyncWrites = false
	s := mustOpen(t, "db", o)
	id := mustCreate(t, s, "a")
	armed.Store(true)
	mustAppend(t, s, at(id, 1, 0)) // acknowledged without an fsync, which begins some time later
	<-reached
	var acked atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := range int64(1 << 30) {
			if err := s.Append(context.Background(), []historian.Sample{at(id, 2+n, n)}, nil); err != nil {
				t.Error(err)
				return
			}
			acked.Add(1)
			select {
			case <-release:
				return
			default:
			}
		}
	}()
	// The appends go on for a while and then stop for as long as the fsync hangs.
	for !s.State().Stalled {
		runtime.Gosched()
	}
	held := acked.Load()
	for range 100 {
		runtime.Gosched()
	}
	if now := acked.Load(); now != held {
		t.Errorf("%d values acknowledged while the fsync hung", now-held)
	}
	close(release)
	<-done
}
