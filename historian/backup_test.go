package historian_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/historian"
)

// A snapshot holds every value acknowledged before it, in order and without a hole, and nothing after it changes that: taken
// while values and checkpoints go on, opened from a disk that lost everything not synced when it was done.
func TestSnapshotHoldsWhatWasAcknowledged(t *testing.T) {
	for _, sync := range []bool{true, false} {
		t.Run(fmt.Sprint("syncWrites ", sync), func(t *testing.T) {
			mem := vfs.NewCrashableMem()
			o := options(mem)
			o.Pebble.SyncWrites = sync
			o.Checkpoint.Values = 700
			s := mustOpen(t, "db", o)
			appendWhile(t, s, func(acked []atomic.Int64, ids []historian.Series) {
				for n := range 6 {
					before := make([]int64, len(acked))
					for i := range acked {
						before[i] = acked[i].Load()
					}
					dir := fmt.Sprint("snapshot", n)
					if err := s.Snapshot(dir); err != nil {
						t.Fatal(err)
					}
					clone := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 0, RNG: rand.New(rand.NewPCG(1, uint64(n)))})
					copied := mustOpen(t, dir, options(clone))
					for i, id := range ids {
						got := all(t, copied, id, 1000, false)
						if int64(len(got)) < before[i] {
							t.Errorf("snapshot %d, series %d: %d values, %d were acknowledged before it", n, i, len(got), before[i])
						}
						for k, v := range got {
							if want := fmt.Sprintf("%d=%d", k+1, k+1); v != want {
								t.Fatalf("snapshot %d, series %d, place %d: %s, want %s", n, i, k, v, want)
							}
						}
					}
				}
			})
		})
	}
}

// appendWhile appends 1, 2, 3… to a few series while fn runs; acked is how many of each are acknowledged.
func appendWhile(t *testing.T, s *historian.Store, fn func(acked []atomic.Int64, ids []historian.Series)) {
	t.Helper()
	const callers = 4
	acked := make([]atomic.Int64, callers)
	ids := make([]historian.Series, callers)
	for i := range ids {
		ids[i] = mustCreate(t, s, fmt.Sprint("s", i))
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for n := int64(1); ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				if err := s.Append(t.Context(), []historian.Sample{at(ids[i], n, n)}, nil); err != nil {
					t.Error(err)
					return
				}
				acked[i].Store(n)
			}
		})
	}
	for deadline := time.Now().Add(10 * time.Second); acked[0].Load() < 50 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	defer wg.Wait()
	defer close(stop)
	fn(acked, ids)
}

// A folder that is no store, and one that is damaged, are told from a whole one; a store that is open is not held twice.
func TestVerifyAndHold(t *testing.T) {
	dir := t.TempDir()
	if err := historian.Verify(t.Context(), dir, true); err == nil {
		t.Error("an empty folder was taken for a store")
	}
	if _, err := historian.Hold(dir); err == nil {
		t.Error("an empty folder was held as a store")
	}
	s, err := historian.Open(dir, historian.DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	mustAppend(t, s, at(mustCreate(t, s, "a"), 1, 1))
	if _, err := historian.Hold(dir); err == nil {
		t.Error("a store in use was held")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	lock, err := historian.Hold(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := historian.Open(dir, historian.DefaultOptions()); err == nil {
		t.Error("a store that is held opened")
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	for _, every := range []bool{false, true} {
		if err := historian.Verify(t.Context(), dir, every); err != nil {
			t.Errorf("a whole store, every %v: %v", every, err)
		}
	}
}
