package pipeline

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"millrace/pipeline/definition"
	"millrace/pipeline/history"
	"millrace/pipeline/node"
	"millrace/pipeline/queue"
)

// TestParkedRunsGoOn: a run that waits for long has a row, counts as finished for its frame and the cursor, and goes on
// after a restart where it was, without a step made twice.
func TestParkedRunsGoOn(t *testing.T) {
	var calls atomic.Int64
	g := newGraph(1)
	before := g.step("before", 1, func(_ context.Context, c *node.Call) node.Result {
		calls.Add(1)
		return node.Result{Out: c.Scope.Trigger.Get("value")}
	})
	w := g.step("wait", 1, func(_ context.Context, c *node.Call) node.Result {
		if !c.Resumed {
			return node.Result{Wait: time.Hour}
		}
		return node.Result{}
	})
	p := g.step("publish", 1, func(_ context.Context, c *node.Call) node.Result {
		return node.Result{Publish: []node.Publication{{Topic: "out", Value: c.Input}}}
	})
	b := newBench(t, nil, g.edge(0, 0, before).edge(before, 0, w).edge(w, 0, p).plan)
	now := time.Unix(1_790_000_000, 0)
	var mu sync.Mutex
	o := DefaultOptions()
	o.Now = func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	b.open(o)
	b.run()
	b.trigger(1, "1.50")
	eventually(t, "the frame is acknowledged", func() bool { return b.acks.Load() == 1 })
	b.end()
	if b.cursor != b.seq.Load()+1 {
		t.Errorf("cursor %d, want %d: the run has a row", b.cursor, b.seq.Load()+1)
	}
	if len(b.rows) != 1 || len(b.ended()) != 0 {
		t.Fatalf("%d rows, %d runs ended", len(b.rows), len(b.ended()))
	}
	for _, d := range b.dropped {
		from, to := d[0], d[1]
		if key := string(keyAt('v', b.last.Load())); from <= key && key < to {
			t.Errorf("the keys of a parked run were dropped: %x to %x", from, to)
		}
	}
	mu.Lock()
	now = now.Add(2 * time.Hour)
	mu.Unlock()
	b.open(o)
	if !b.eng.Skip(b.last.Load(), 1, 0) {
		t.Error("the follower would start the run again")
	}
	b.run()
	eventually(t, "the run ended", func() bool { return len(b.ended()) == 1 })
	if v := b.values(); len(v) != 1 || v[0].payload != `{"value":1.50}` || calls.Load() != 1 {
		t.Errorf("values %v after %d calls", v, calls.Load())
	}
	b.end()
	if len(b.rows) != 0 {
		t.Errorf("%d rows are left", len(b.rows))
	}
	dropped := false
	for _, d := range b.dropped {
		key := string(keyAt('v', b.last.Load()))
		dropped = dropped || d[0] <= key && key < d[1]
	}
	if !dropped {
		t.Error("the keys of the run that ended are still there")
	}
}

// TestOrderOverRestart: what waits in a mailbox behind a parked run stays behind it.
func TestOrderOverRestart(t *testing.T) {
	g := newGraph(1)
	g.plan.Settings.Order = definition.OrderRuns
	w := g.step("wait", 1, func(_ context.Context, c *node.Call) node.Result {
		if v, _ := c.Scope.Trigger.Get("value").Int(); v == 0 && !c.Resumed {
			return node.Result{Wait: time.Hour}
		}
		return node.Result{}
	})
	p := g.step("publish", 1, publishes("out"))
	b := newBench(t, nil, g.edge(0, 0, w).edge(w, 0, p).plan)
	now := time.Unix(1_790_000_000, 0)
	var mu sync.Mutex
	o := DefaultOptions()
	o.Now = func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	b.open(o)
	b.run()
	for i := range 5 {
		b.trigger(1, fmt.Sprint(i))
	}
	eventually(t, "the first waits, the others behind it", func() bool {
		_, waiting := b.eng.lanes.load(queue.Normal)
		return b.acks.Load() == 1 && waiting == 4
	})
	mu.Lock()
	now = now.Add(10 * time.Second) // long enough to be promoted
	mu.Unlock()
	eventually(t, "those behind it have rows", func() bool { b.mu.Lock(); defer b.mu.Unlock(); return len(b.rows) == 5 })
	b.end()
	mu.Lock()
	now = now.Add(2 * time.Hour)
	mu.Unlock()
	b.open(o)
	b.run()
	b.trigger(1, "5")
	eventually(t, "all ended", func() bool { return len(b.ended()) == 6 })
	for i, v := range b.values() {
		if want := fmt.Sprintf(`{"value":%d,`, i); v.payload[:len(want)] != want {
			t.Errorf("value %d is %s", i, v.payload)
		}
	}
}

// TestStopLetsRunsEnd: what executes may end; what does not is neither acknowledged nor recorded, and its cursor stays.
func TestStopLetsRunsEnd(t *testing.T) {
	entered := make(chan struct{}, 2)
	release := make(chan struct{})
	g := newGraph(1)
	a := g.step("a", 1, func(context.Context, *node.Call) node.Result { entered <- struct{}{}; <-release; return node.Result{} })
	g.plan.Steps[a].Spec = &node.Spec{Blocking: true}
	h := newGraph(2)
	c := h.step("c", 1, func(ctx context.Context, _ *node.Call) node.Result {
		entered <- struct{}{}
		<-ctx.Done()
		return node.Result{Err: ctx.Err()}
	})
	h.plan.Steps[c].Spec = &node.Spec{Blocking: true}
	b := newBench(t, func(o *Options) { o.DrainTimeout = 200 * time.Millisecond }, g.edge(0, 0, a).plan, h.edge(0, 0, c).plan)
	b.run()
	b.trigger(1, "1")
	b.trigger(2, "1")
	<-entered
	<-entered
	stopped := make(chan struct{})
	go func() { b.end(); close(stopped) }()
	close(release)
	<-stopped
	if list := b.ended(); len(list) != 1 || list[0].ID.Pipeline != 1 || list[0].Status != history.Completed {
		t.Errorf("ended %+v", list)
	}
	if b.acks.Load() != 1 || b.cursor != b.last.Load() {
		t.Errorf("%d frames acknowledged, cursor %d, want 1 and %d", b.acks.Load(), b.cursor, b.last.Load())
	}
}

// TestPoison: a run that ends the process each time is given up after three marked attempts; the others of its frame run.
func TestPoison(t *testing.T) {
	b := newBench(t, nil, passThrough(1, "out"))
	suspects := func() *queue.Frame {
		var list []queue.Entry
		for seq := uint64(1); seq <= 10; seq++ {
			list = append(list, queue.Entry{Kind: queue.Value, Seq: seq, Workspace: "main", Value: []byte(fmt.Sprint(seq)), Refs: []queue.Ref{{Pipeline: 1, Version: 1}}})
		}
		f := queue.NewFrame(queue.Normal, 1, time.Now(), list, func() { b.acks.Add(1) }, nil)
		f.Suspect = true
		return f
	}
	b.seq.Store(10)
	b.cursor = 1
	poison := history.RunID{Kind: 'v', Pipeline: 1, N: 4}
	// What three kills in the middle of run 4 leave: the first marked the whole frame, then each went alone.
	for range maxAttempts {
		b.eng.attempts.count = nil
		if err := b.eng.attempts.load(); err != nil {
			t.Fatal(err)
		}
		if err := b.eng.attempts.mark([]history.RunID{poison}); err != nil {
			t.Fatal(err)
		}
	}
	other := history.RunID{Kind: 'v', Pipeline: 1, N: 5}
	if err := b.eng.attempts.mark([]history.RunID{other}); err != nil {
		t.Fatal(err)
	}
	o := DefaultOptions()
	b.open(o)
	b.frames[queue.Normal] <- suspects()
	b.run()
	eventually(t, "the frame is acknowledged", func() bool { return b.acks.Load() == 1 })
	if len(b.values()) != 9 || len(b.dead) != 1 || b.dead[0].ID != poison || b.dead[0].Attempts != 3 {
		t.Errorf("%d values, dead letters %+v", len(b.values()), b.dead)
	}
	for _, r := range b.ended() {
		want := history.Completed
		if r.ID == poison {
			want = history.Failed
		}
		if r.Status != want {
			t.Errorf("run %s ended as %s", r.ID, r.Status)
		}
		if r.ID == other && r.Attempt != 2 {
			t.Errorf("attempt %d, want 2", r.Attempt)
		}
	}
	b.end()
	n := 0
	b.records.Scan([]byte(attemptPrefix), func(_, _ []byte) bool { n++; return true })
	if n != 0 {
		t.Errorf("%d marks are left", n)
	}
}

// TestStartsAndStops: many short lives over one backlog; each run ends once, except those that a stop cut off.
func TestStartsAndStops(t *testing.T) {
	g := newGraph(1)
	w := g.step("w", 1, func(_ context.Context, c *node.Call) node.Result {
		if v, _ := c.Scope.Trigger.Get("value").Int(); v%5 == 0 && !c.Resumed {
			return node.Result{Wait: time.Millisecond}
		}
		return node.Result{}
	})
	p := g.step("publish", 1, publishes("out"))
	b := newBench(t, nil, g.edge(0, 0, w).edge(w, 0, p).plan)
	o := DefaultOptions()
	for round := range 20 {
		b.open(o)
		b.run()
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for i := range 25 {
					seq := b.seq.Add(1)
					b.eng.Put(context.Background(), queue.Lane(i%3), queue.Entry{Kind: queue.Value, Seq: seq, Workspace: "main", Value: []byte(fmt.Sprint(i)), Refs: []queue.Ref{{Pipeline: 1, Version: 1}}})
				}
			})
		}
		wg.Wait()
		if round%2 == 0 {
			eventually(t, "some ended", func() bool { return len(b.ended()) > 0 })
		}
		b.end()
	}
	seen := map[history.RunID]int{}
	for _, r := range b.ended() {
		seen[r.ID]++
	}
	for id, n := range seen {
		if n > 1 {
			t.Errorf("run %s ended %d times", id, n)
		}
	}
}
