package uns_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"millrace/historian"
	"millrace/uns"
)

func onceMessage(n int, suspect bool) uns.Message {
	return uns.Message{Workspace: "main", Path: "derived", Payload: fmt.Append(nil, n), Once: fmt.Appendf(nil, "run%d", n), Suspect: suspect, Hops: 3}
}

func TestOnce(t *testing.T) {
	b := newBox(t, nil)
	if v, s := b.put(t, onceMessage(1, false)); v.Reason != uns.Stored || s.Hops != 3 {
		t.Fatalf("%v %+v", v, s)
	}
	batch := &uns.Batch{Messages: []uns.Message{onceMessage(1, true), onceMessage(2, true), onceMessage(2, true), onceMessage(3, false)}}
	live := &published{}
	b.SetLive(live)
	if err := b.Write(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	for i, duplicate := range []bool{true, false, true, false} {
		m := &batch.Messages[i]
		if m.Verdict.Reason != uns.Stored || m.Duplicate != duplicate || (m.At < 0) != duplicate {
			t.Errorf("message %d: %v, duplicate %v, at %d", i, m.Verdict, m.Duplicate, m.At)
		}
	}
	if len(live.list) != 2 || len(b.store.samples) != 3 {
		t.Errorf("%d were announced, %d are stored", len(live.list), len(b.store.samples))
	}
	// A refused value leaves no key.
	bad := onceMessage(4, true)
	bad.Payload = []byte("{")
	if v, _ := b.put(t, bad); v.OK() {
		t.Error(v)
	}
	if there, err := b.store.HasRow([]byte("krun4")); there || err != nil {
		t.Error(there, err)
	}
	// Nor does one that could not be stored, and it is not taken for a duplicate.
	broken := errors.New("broken")
	b.store.onAppend = func() error { return broken }
	batch = &uns.Batch{Messages: []uns.Message{onceMessage(5, true), onceMessage(1, true)}}
	if err := b.Accept(t.Context(), batch); !errors.Is(err, broken) {
		t.Error(err)
	}
	for i := range batch.Messages {
		if m := &batch.Messages[i]; m.Verdict.Reason != uns.Internal || m.Duplicate {
			t.Errorf("message %d: %v %v", i, m.Verdict, m.Duplicate)
		}
	}
	b.store.onAppend = nil
	if v, s := b.put(t, onceMessage(5, true)); v.Reason != uns.Stored || string(s.Value.AppendJSON(nil)) != "5" {
		t.Errorf("%v %+v", v, s)
	}
}

// At whatever write the power goes: a key is there exactly if its value is, and running again stores each value once.
func TestOnceOverPowerCuts(t *testing.T) {
	seeds := uint64(30)
	if testing.Short() {
		seeds = 5
	}
	midway := 0
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 31))
		disk := vfs.NewCrashableMem()
		var left *vfs.MemFS
		var countdown, acked, floor atomic.Int64
		countdown.Store(50 + r.Int64N(200))
		rng := rand.New(rand.NewPCG(seed, 32))
		fs := errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && countdown.Add(-1) == 0 {
				floor.Store(acked.Load())
				left = disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: int(seed%3) * 50, RNG: rng})
			}
			return nil
		}))
		p := openPlant(t, fs)
		for n := range 60 {
			if err := p.Accept(t.Context(), &uns.Batch{Messages: []uns.Message{onceMessage(n, false)}}); err != nil {
				t.Fatal(err)
			}
			acked.Store(int64(n + 1))
		}
		if left == nil {
			floor.Store(60)
			left = disk.CrashClone(vfs.CrashCloneCfg{})
		} else {
			midway++
		}
		p = openPlant(t, left)
		stored := func() map[string]int {
			got := map[string]int{}
			topic := p.catalog.Lookup("main", "derived")
			if topic == nil {
				return got
			}
			samples, _, err := p.store.Raw(t.Context(), nil, historian.Query{Series: topic.Series, To: 1<<63 - 1, Limit: 1000})
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range samples {
				got[string(s.Value.AppendJSON(nil))]++
			}
			return got
		}
		before := stored()
		for n := range 60 {
			there, err := p.store.HasRow(fmt.Appendf(nil, "krun%d", n))
			if err != nil || there != (before[fmt.Sprint(n)] == 1) || n < int(floor.Load()) && !there {
				t.Fatalf("seed %d: run %d: key %v, value %d, %d were acknowledged, %v", seed, n, there, before[fmt.Sprint(n)], floor.Load(), err)
			}
		}
		for n := range 60 {
			batch := &uns.Batch{Messages: []uns.Message{onceMessage(n, true)}}
			if err := p.Accept(t.Context(), batch); err != nil || !batch.Messages[0].Verdict.OK() || batch.Messages[0].Duplicate != (before[fmt.Sprint(n)] == 1) {
				t.Fatalf("seed %d: run %d again: %+v, %v", seed, n, batch.Messages[0], err)
			}
		}
		for n, times := range stored() {
			if times != 1 {
				t.Errorf("seed %d: value %s is stored %d times", seed, n, times)
			}
		}
	}
	if midway == 0 {
		t.Error("no cut came in the middle")
	}
}

func TestBySeries(t *testing.T) {
	b := newBox(t, nil)
	for i := range 10_000 {
		b.send(t, fmt.Sprintf("t/%d", i), "1")
	}
	for i := range 10_000 {
		topic := b.catalog.Lookup("main", fmt.Sprintf("t/%d", i))
		if b.catalog.BySeries(topic.Series) != topic {
			t.Fatalf("series %d leads elsewhere", topic.Series)
		}
	}
	gone := b.catalog.Lookup("main", "t/7")
	if _, err := b.catalog.Delete(t.Context(), gone, false); err != nil {
		t.Fatal(err)
	}
	for _, id := range []historian.Series{0, gone.Series, 10_001, 1 << 20, 1<<32 - 1} {
		if topic := b.catalog.BySeries(id); topic != nil {
			t.Errorf("series %d leads to %s", id, topic.Path)
		}
	}
	// A start knows them again.
	again := boxOn(t, b.store, nil)
	if topic := again.catalog.BySeries(9000); topic == nil || topic.Series != 9000 {
		t.Errorf("after a start series 9000 leads to %v", topic)
	}
	if n := testing.AllocsPerRun(100, func() { again.catalog.BySeries(9000) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
