package pipeline

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"millrace/pipeline/definition"
	"millrace/pipeline/history"
	"millrace/pipeline/node"
	"millrace/pipeline/queue"
	"millrace/pipeline/script"
	"millrace/pipeline/value"
	"millrace/uns"
)

// TestOrderModel: runs by key, with waits, failures, refusals and several publications each, against what the order
// promises: for each key, the values of run n come before those of n+1, and each exactly once.
func TestOrderModel(t *testing.T) {
	scripts := script.NewEngine(script.Options{})
	defer scripts.Close()
	key, err := scripts.Expression("$trigger.value % 7")
	if err != nil {
		t.Fatal(err)
	}
	for round := range 5 {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			random := rand.New(rand.NewPCG(uint64(round), 1))
			const n = 600
			var how [n]int
			for i := range how {
				how[i] = random.IntN(6)
			}
			g := newGraph(1)
			g.plan.Settings.Order, g.plan.Settings.Key = definition.OrderByKey, key
			first := g.step("first", 1, publishes("first"))
			a := g.step("a", 1, func(_ context.Context, c *node.Call) node.Result {
				i, _ := c.Scope.Trigger.Get("value").Int()
				switch how[i] {
				case 0:
					if !c.Resumed {
						return node.Result{Wait: time.Duration(i%3) * time.Millisecond}
					}
				case 1:
					return node.Result{Err: &node.Failure{Message: "broken", Permanent: true}}
				case 2:
					return node.Result{Port: -1}
				}
				return node.Result{}
			})
			b1 := g.step("second", 1, publishes("second"))
			g.edge(0, 0, first).edge(first, 0, a).edge(a, 0, b1)
			b := newBench(t, func(o *Options) { o.ExecutionQueue.Scheduler.MaxAckPending = 8 }, g.plan)
			b.refuse = func(path string) uns.Verdict { return uns.Verdict{} }
			b.run()
			for i := range n {
				b.trigger(1, fmt.Sprint(i))
			}
			eventually(t, "every run ended", func() bool { return len(b.ended()) == n })
			last := map[int]int{}
			count := map[string]int{}
			for _, s := range b.values() {
				var i int
				if _, err := fmt.Sscanf(s.payload, `{"value":%d,`, &i); err != nil {
					t.Fatal(s.payload)
				}
				if i < last[i%7] {
					t.Fatalf("key %d: a value of run %d after one of run %d", i%7, i, last[i%7])
				}
				last[i%7] = i
				count[s.path+fmt.Sprint(i)]++
			}
			for i := range n {
				second := 1
				if how[i] == 1 || how[i] == 2 {
					second = 0
				}
				if count[fmt.Sprint("first", i)] != 1 || count[fmt.Sprint("second", i)] != second {
					t.Errorf("run %d (%d): %d and %d values", i, how[i], count[fmt.Sprint("first", i)], count[fmt.Sprint("second", i)])
				}
			}
		})
	}
}

// TestWaitsHoldNoSlot: with one slot a hundred runs wait at once.
func TestWaitsHoldNoSlot(t *testing.T) {
	var waiting, most atomic.Int64
	g := newGraph(1)
	release := make(chan struct{})
	a := g.step("a", 1, func(_ context.Context, c *node.Call) node.Result {
		select {
		case <-release:
			return node.Result{}
		default:
		}
		if !c.Resumed {
			most.Store(max(most.Load(), waiting.Add(1)))
		}
		return node.Result{Wait: 5 * time.Millisecond}
	})
	b := newBench(t, func(o *Options) { o.ExecutionQueue.Scheduler.MaxAckPending = 1 }, g.edge(0, 0, a).plan)
	b.run()
	for range 100 {
		b.trigger(1, "1")
	}
	eventually(t, "all of them wait", func() bool { return waiting.Load() == 100 })
	close(release)
	eventually(t, "all of them ended", func() bool { return len(b.ended()) == 100 })
	if n, _ := b.eng.lanes.load(queue.Normal); n != 0 {
		t.Errorf("%d slots are held", n)
	}
	if n := b.eng.resting.Load(); n != 0 {
		t.Errorf("%d runs are counted as waiting", n)
	}
}

// TestSlots: no more runs of a lane execute at once than it has slots, and a blocked lane does not keep another.
func TestSlots(t *testing.T) {
	var now, most atomic.Int64
	release := make(chan struct{})
	g := newGraph(1)
	a := g.step("a", 1, func(ctx context.Context, _ *node.Call) node.Result {
		n := now.Add(1)
		for {
			m := most.Load()
			if n <= m || most.CompareAndSwap(m, n) {
				break
			}
		}
		<-release
		now.Add(-1)
		return node.Result{}
	})
	g.plan.Steps[a].Spec = &node.Spec{Blocking: true}
	b := newBench(t, func(o *Options) { o.ExecutionQueue.Scheduler.MaxAckPending = 5 }, g.edge(0, 0, a).plan, passThrough(2, "out"))
	b.run()
	for range 50 {
		b.trigger(1, "1")
	}
	eventually(t, "the slots are taken", func() bool { return now.Load() == 5 })
	e := queue.Entry{Kind: queue.Value, Seq: b.seq.Add(1), Workspace: "main", Value: []byte("1"), Refs: []queue.Ref{{Pipeline: 2, Version: 1}}}
	if err := b.eng.Put(context.Background(), queue.High, e); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the high lane goes on", func() bool { return len(b.values()) == 1 })
	close(release)
	eventually(t, "all ended", func() bool { return len(b.ended()) == 51 })
	if most.Load() != 5 {
		t.Errorf("%d ran at once, want 5", most.Load())
	}
}

// TestScriptsLeaveWorkers: while scripts compute on every core, a run without one goes through.
func TestScriptsLeaveWorkers(t *testing.T) {
	release := make(chan struct{})
	var computing, most atomic.Int64
	g := newGraph(1)
	a := g.step("a", 1, func(context.Context, *node.Call) node.Result {
		most.Store(max(most.Load(), computing.Add(1)))
		<-release
		computing.Add(-1)
		return node.Result{}
	})
	g.plan.Steps[a].Type = "logic.javascript"
	b := newBench(t, nil, g.edge(0, 0, a).plan, passThrough(2, "out"))
	b.run()
	for range 20 {
		b.trigger(1, "1")
	}
	eventually(t, "scripts compute", func() bool { return computing.Load() == 2 })
	b.trigger(2, "1")
	eventually(t, "the other run ended", func() bool { return len(b.values()) == 1 })
	close(release)
	eventually(t, "all ended", func() bool { return len(b.ended()) == 21 })
	if most.Load() != 2 {
		t.Errorf("%d scripts at once, want 2", most.Load())
	}
}

func TestCancelAndTimeout(t *testing.T) {
	g := newGraph(1)
	started := make(chan struct{}, 10)
	a := g.step("a", 1, func(ctx context.Context, c *node.Call) node.Result {
		started <- struct{}{}
		<-ctx.Done()
		return node.Result{Err: ctx.Err()}
	})
	g.plan.Steps[a].Spec = &node.Spec{Blocking: true}
	slow := newGraph(2)
	s := slow.step("s", 1, func(ctx context.Context, c *node.Call) node.Result { <-ctx.Done(); return node.Result{Err: ctx.Err()} })
	slow.plan.Steps[s].Spec = &node.Spec{Blocking: true}
	slow.plan.Settings.Timeout = 20 * time.Millisecond
	late := newGraph(3)
	l := late.step("l", 1, func(ctx context.Context, c *node.Call) node.Result { <-ctx.Done(); return node.Result{Err: ctx.Err()} })
	late.plan.Steps[l].Spec = &node.Spec{Blocking: true}
	late.plan.Steps[l].Settings.Timeout = 20 * time.Millisecond
	waits := newGraph(4)
	w := waits.step("w", 1, func(_ context.Context, c *node.Call) node.Result {
		started <- struct{}{}
		return node.Result{Wait: time.Hour}
	})
	b := newBench(t, nil, g.edge(0, 0, a).plan, slow.edge(0, 0, s).plan, late.edge(0, 0, l).plan, waits.edge(0, 0, w).plan)
	b.run()
	for i, want := range []struct {
		status history.Status
		text   string
	}{{history.Cancelled, "cancelled by admin"}, {history.Failed, "timeout of 20ms"}, {history.Failed, "node's timeout of 20ms"}, {history.Cancelled, "cancelled by admin"}} {
		b.trigger(uint32(i+1), "1")
		id := history.RunID{Kind: 'v', Pipeline: uint32(i + 1), N: b.last.Load()}
		if want.status == history.Cancelled {
			<-started
			eventually(t, "cancelled", func() bool { return b.eng.Cancel(id, "admin") == nil })
		}
		eventually(t, "the run ended", func() bool { return len(b.ended()) == i+1 })
		if r := b.ended()[i]; r.ID != id || r.Status != want.status || !strings.Contains(r.Error, want.text) {
			t.Errorf("run %v ended as %v: %q; want %v, %q", r.ID, r.Status, r.Error, want.status, want.text)
		}
	}
	if err := b.eng.Cancel(history.RunID{Kind: 'v', Pipeline: 1, N: 1}, "admin"); err != ErrNoRun {
		t.Errorf("a run that has ended: %v", err)
	}
}

// TestTimeoutLeavesWaitsOut: a run may wait for longer than its pipeline's timeout, and is still under it afterwards.
func TestTimeoutLeavesWaitsOut(t *testing.T) {
	g := newGraph(1)
	w := g.step("w", 1, func(_ context.Context, c *node.Call) node.Result {
		if !c.Resumed {
			return node.Result{Wait: 150 * time.Millisecond}
		}
		return node.Result{}
	})
	p := g.step("publish", 1, publishes("out"))
	s := g.step("s", 1, func(ctx context.Context, c *node.Call) node.Result { <-ctx.Done(); return node.Result{Err: ctx.Err()} })
	g.plan.Steps[s].Spec = &node.Spec{Blocking: true}
	g.plan.Settings.Timeout = 50 * time.Millisecond
	b := newBench(t, nil, g.edge(0, 0, w).edge(w, 0, p).edge(p, 0, s).plan)
	b.run()
	b.trigger(1, "1")
	eventually(t, "the run ended", func() bool { return len(b.ended()) == 1 })
	if r := b.ended()[0]; len(b.values()) != 1 || r.Status != history.Failed || !strings.Contains(r.Error, "timeout of 50ms") || r.Node != s {
		t.Errorf("%d values, ended %v at node %d: %q", len(b.values()), r.Status, r.Node, r.Error)
	}
}

func TestPauseKeepsABacklog(t *testing.T) {
	p := passThrough(1, "out")
	p.Settings.Order = definition.OrderRuns
	b := newBench(t, nil, p, passThrough(2, "other"))
	b.run()
	b.eng.pipe(1, "p1")
	b.eng.Pause(1)
	for i := range 50 {
		b.trigger(1, fmt.Sprint(i))
		b.trigger(2, fmt.Sprint(i))
	}
	eventually(t, "the other pipeline's runs ended", func() bool { return len(b.ended()) == 50 })
	for _, r := range b.ended() {
		if r.ID.Pipeline == 1 {
			t.Fatal("a run of the paused pipeline ended")
		}
	}
	b.eng.Resume(1)
	eventually(t, "every run ended", func() bool { return len(b.ended()) == 100 })
	next := 0
	for _, s := range b.values() {
		if s.path == "out" {
			if !strings.HasPrefix(s.payload, fmt.Sprintf(`{"value":%d,`, next)) {
				t.Fatalf("value %d is %s", next, s.payload)
			}
			next++
		}
	}
}

func TestHopsAreBounded(t *testing.T) {
	b := newBench(t, nil, passThrough(1, "out"))
	b.run()
	for _, hops := range []uint8{15, 16} {
		e := queue.Entry{Kind: queue.Value, Seq: b.seq.Add(1), Workspace: "main", Hops: hops, Value: []byte("1"), Refs: []queue.Ref{{Pipeline: 1, Version: 1}}}
		if err := b.eng.Put(context.Background(), queue.Normal, e); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "both ended", func() bool { return len(b.ended()) == 2 })
	if n := len(b.values()); n != 1 {
		t.Errorf("%d values, want 1", n)
	}
	if list := b.eng.Issues(); len(list) != 1 || list[0].Kind != "loop" || list[0].Node != "publish" {
		t.Errorf("issues %+v", list)
	}
}

func TestDryRun(t *testing.T) {
	g := newGraph(1)
	a := g.step("a", 1, func(_ context.Context, c *node.Call) node.Result {
		if !c.Resumed {
			c.Log("info", "waiting")
			return node.Result{Wait: time.Hour}
		}
		return node.Result{Out: value.Text(c.Now.UTC().Format(time.RFC3339))}
	})
	p := g.step("publish", 1, publishes("out"))
	b := newBench(t, nil, g.edge(0, 0, a).edge(a, 0, p).plan)
	run, published, err := b.eng.Test(context.Background(), g.plan, Input{Value: value.Int(5), Topic: "in"})
	if err != nil || run.Status != history.Completed || len(published) != 1 || published[0].Topic != "out" || len(run.Lines) != 1 {
		t.Errorf("%v, %+v, %+v", err, run, published)
	}
	if len(b.values())+len(b.ended()) != 0 {
		t.Error("a dry run left something")
	}
}

func TestReplay(t *testing.T) {
	var fail atomic.Bool
	fail.Store(true)
	g := newGraph(1)
	a := g.step("a", 1, func(_ context.Context, c *node.Call) node.Result {
		if fail.Load() {
			return node.Result{Err: fmt.Errorf("broken")}
		}
		return node.Result{}
	})
	p := g.step("publish", 1, publishes("out"))
	b := newBench(t, nil, g.edge(0, 0, a).edge(a, 0, p).plan)
	b.run()
	b.trigger(1, "1.50")
	b.trigger(1, "2")
	eventually(t, "both failed", func() bool { return len(b.ended()) == 2 })
	fail.Store(false)
	if n, err := b.eng.ReplayFailed(context.Background(), 1, time.Time{}, time.Time{}, Replay{}); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	if _, err := b.eng.Replay(context.Background(), b.ended()[0].ID, Replay{Value: value.Int(7)}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the replays ended", func() bool { return len(b.ended()) == 5 })
	got := ""
	keys := map[string]bool{}
	for _, s := range b.values() {
		got += strings.SplitN(strings.TrimPrefix(s.payload, `{"value":`), ",", 2)[0] + " "
		keys[s.once] = true
	}
	if len(strings.Fields(got)) != 3 || !strings.Contains(got, "1.50 ") || !strings.Contains(got, "2 ") || !strings.Contains(got, "7 ") || len(keys) != 3 {
		t.Errorf("values %s with %d keys", got, len(keys))
	}
	for _, r := range b.ended()[2:] {
		if !r.Replay || r.ID.Kind != history.Fresh {
			t.Errorf("replay %+v", r)
		}
	}
}
