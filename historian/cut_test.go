package historian_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"millrace/historian"
)

// TestCheckpointAfterACutCheckpoint has the power cut between the ingestion of one checkpoint and the commit
// that ends it, and again right after the next one, which replaces the fence of the first.
func TestCheckpointAfterACutCheckpoint(t *testing.T) {
	disk := vfs.NewCrashableMem()
	var s *historian.Store
	var id historian.Series
	var linked, done atomic.Bool
	var cut *vfs.MemFS
	fsys := errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch {
		case op.Kind == errorfs.OpLink && !linked.Load():
			// Behind the line of the checkpoint, so that the next one has something to move.
			if err := s.Append(context.Background(), []historian.Sample{at(id, 3, 3)}, nil); err != nil {
				t.Error(err)
			}
			linked.Store(true)
		case linked.Load() && walSync(op) && done.CompareAndSwap(false, true):
			cut = disk.CrashClone(vfs.CrashCloneCfg{})
		}
		return nil
	}))
	o := options(fsys)
	o.Checkpoint.CarryBelow = -1
	s = mustOpen(t, "db", o)
	id = mustCreate(t, s, "a")
	mustAppend(t, s, at(id, 1, 1), at(id, 2, 2))
	if err := s.Checkpoint(context.Background()); err != nil {
		t.Fatal(err)
	}
	// Without a fsync of its own the commit becomes durable with the next value.
	mustAppend(t, s, at(id, 4, 4))
	if cut == nil {
		t.Fatal("the checkpoint linked no table or fsynced nothing after it")
	}

	o.FS = cut
	again := mustOpen(t, "db", o)
	if got := strings.Join(all(t, again, id, 10, false), " "); got != "1=1 2=2 3=3" {
		t.Fatalf("after the first cut: %s", got)
	}
	if err := again.Checkpoint(context.Background()); err != nil {
		t.Fatal(err)
	}
	o.FS = cut.CrashClone(vfs.CrashCloneCfg{})
	last := mustOpen(t, "db", o)
	if got := strings.Join(all(t, last, id, 10, false), " "); got != "1=1 2=2 3=3" {
		t.Errorf("after the second cut: %s", got)
	}
}
