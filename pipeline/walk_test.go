package pipeline

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"millrace/pipeline/definition"
	"millrace/pipeline/history"
	"millrace/pipeline/node"
	"millrace/pipeline/value"
)

func TestPassThrough(t *testing.T) {
	b := newBench(t, nil, passThrough(1, "out"))
	b.run()
	const n = 1000
	for i := range n {
		b.trigger(1, fmt.Sprint(i))
	}
	eventually(t, "every run ended", func() bool { return len(b.ended()) == n && b.acks.Load() == n })
	seen := make(map[string]bool)
	for _, s := range b.values() {
		seen[s.payload] = true
	}
	if len(seen) != n || len(b.values()) != n {
		t.Fatalf("%d values stored, %d of them different; want %d", len(b.values()), len(seen), n)
	}
	b.end()
	if b.cursor != b.seq.Load()+1 {
		t.Errorf("cursor %d, want %d", b.cursor, b.seq.Load()+1)
	}
}

// TestBranches walks graphs with branches, joins, filters, errors.
func TestBranches(t *testing.T) {
	fails := func(context.Context, *node.Call) node.Result {
		return node.Result{Err: &node.Failure{Message: "broken", Line: 3}}
	}
	lists := func(_ context.Context, c *node.Call) node.Result {
		return node.Result{Out: value.List(append([]value.Value(nil), c.Scope.Input...)...)}
	}
	by := func(port int) acts {
		return func(context.Context, *node.Call) node.Result { return node.Result{Port: port} }
	}
	cases := []struct {
		name   string
		build  func(g *graph, pub func(from, port int))
		want   string
		status history.Status
	}{
		{"join", func(g *graph, pub func(int, int)) {
			a, c := g.step("a", 1, sets(value.Int(1))), g.step("b", 1, sets(value.Int(2)))
			m := g.step("m", 1, lists)
			g.edge(0, 0, a).edge(0, 0, c).edge(a, 0, m).edge(c, 0, m)
			pub(m, 0)
		}, "[1,2]", history.Completed},
		{"join of one branch that ends", func(g *graph, pub func(int, int)) {
			a, c := g.step("a", 1, sets(value.Int(1))), g.step("b", 1, by(-1))
			m := g.step("m", 1, lists)
			g.edge(0, 0, a).edge(0, 0, c).edge(a, 0, m).edge(c, 0, m)
			pub(m, 0)
		}, "[1]", history.Completed},
		{"if", func(g *graph, pub func(int, int)) {
			a := g.step("a", 2, by(1))
			no, yes := g.step("no", 1, sets(value.Int(0))), g.step("yes", 1, sets(value.Int(1)))
			m := g.step("m", 1, lists)
			g.edge(0, 0, a).edge(a, 0, no).edge(a, 1, yes).edge(no, 0, m).edge(yes, 0, m)
			pub(m, 0)
		}, "[1]", history.Completed},
		{"filter", func(g *graph, pub func(int, int)) {
			a := g.step("a", 1, by(-1))
			g.edge(0, 0, a)
			pub(a, 0)
		}, "", history.Completed},
		{"error stops", func(g *graph, pub func(int, int)) {
			a := g.step("a", 1, fails)
			g.edge(0, 0, a)
			pub(a, 0)
		}, "", history.Failed},
		{"error port", func(g *graph, pub func(int, int)) {
			a := g.step("a", 1, fails)
			g.edge(0, 0, a)
			pub(a, errorPort)
		}, `{"error":{"message":"broken","line":3,"column":0,"node":"a"},"input":5}`, history.CompletedWithErrors},
		{"continue", func(g *graph, pub func(int, int)) {
			a := g.step("a", 1, fails)
			g.plan.Steps[a].Settings.OnError = definition.ErrorContinues
			g.edge(0, 0, a)
			pub(a, 0)
		}, "5", history.CompletedWithErrors},
		{"panic", func(g *graph, pub func(int, int)) {
			a := g.step("a", 1, func(context.Context, *node.Call) node.Result { panic("oops") })
			g.edge(0, 0, a)
			pub(a, 0)
		}, "", history.Failed},
		{"stop", func(g *graph, pub func(int, int)) {
			a := g.step("a", 1, func(context.Context, *node.Call) node.Result { return node.Result{Stop: true} })
			g.edge(0, 0, a)
			pub(a, 0)
		}, "", history.Completed},
		{"wait", func(g *graph, pub func(int, int)) {
			a := g.step("a", 1, func(_ context.Context, c *node.Call) node.Result {
				if !c.Resumed {
					return node.Result{Wait: time.Millisecond}
				}
				return node.Result{}
			})
			g.edge(0, 0, a)
			pub(a, 0)
		}, "5", history.Completed},
		{"retry", func(g *graph, pub func(int, int)) {
			a := g.step("a", 1, func(_ context.Context, c *node.Call) node.Result {
				if c.Attempt < 3 {
					return node.Result{Err: fmt.Errorf("attempt %d", c.Attempt)}
				}
				return node.Result{Out: value.Int(int64(c.Attempt))}
			})
			g.plan.Steps[a].Settings = definition.StepSettings{Retries: 2, Delay: time.Millisecond, Max: time.Second, Exponential: true, Jitter: 0.5}
			g.edge(0, 0, a)
			pub(a, 0)
		}, "3", history.Completed},
		{"$node and $execution", func(g *graph, pub func(int, int)) {
			a := g.step("a", 1, sets(value.Int(7)))
			m := g.step("m", 1, func(_ context.Context, c *node.Call) node.Result {
				return node.Result{Out: value.List(c.Scope.Nodes("a"), c.Scope.Nodes("nobody"), c.Scope.Execution.Get("pipeline"))}
			})
			g.edge(0, 0, a).edge(a, 0, m)
			pub(m, 0)
		}, `[7,null,"p1"]`, history.Completed},
	}
	for _, parallel := range []bool{false, true} {
		for _, c := range cases {
			t.Run(fmt.Sprintf("%s/%v", c.name, parallel), func(t *testing.T) {
				g := newGraph(1)
				g.plan.Settings.Parallel = parallel
				first := g.step("first", 1, func(_ context.Context, c *node.Call) node.Result {
					return node.Result{Out: c.Scope.Trigger.Get("value")}
				})
				_ = first
				g.edge(0, 0, first)
				// cases begin at the trigger; move their edges behind first
				c.build(g, func(from, port int) {
					p := g.step("publish", 1, func(_ context.Context, c *node.Call) node.Result {
						return node.Result{Publish: []node.Publication{{Topic: "out", Value: c.Input}}}
					})
					g.edge(from, port, p)
				})
				g.plan.Steps[first].Out[0] = nil
				for _, to := range g.plan.Steps[0].Out[0] {
					if to != first {
						g.edge(first, 0, to)
					}
				}
				g.plan.Steps[0].Out[0] = []int{first}
				b := newBench(t, nil, g.plan)
				b.run()
				b.trigger(1, "5")
				eventually(t, "the run ended", func() bool { return len(b.ended()) == 1 })
				run := b.ended()[0]
				got := ""
				for _, s := range b.values() {
					got += strings.TrimSuffix(strings.TrimPrefix(s.payload, `{"value":`), "}")
				}
				if got != c.want || run.Status != c.status {
					t.Errorf("stored %q, status %d; want %q, %d", got, run.Status, c.want, c.status)
				}
			})
		}
	}
}

// TestPanicNamesNodeAndLine: what the operator needs to find it.
func TestPanicNamesNodeAndLine(t *testing.T) {
	g := newGraph(1)
	a := g.step("bad", 1, func(context.Context, *node.Call) node.Result { panic("oops") })
	b := newBench(t, nil, g.edge(0, 0, a).plan)
	b.run()
	b.trigger(1, "1")
	eventually(t, "the run ended", func() bool { return len(b.ended()) == 1 })
	if text := b.ended()[0].Nodes[a].Error; !strings.Contains(text, "walk_test.go:") || !strings.Contains(text, "oops") {
		t.Errorf("error is %q", text)
	}
}

// TestOrdered: values leave in the order of their triggers, although runs take different times.
func TestOrdered(t *testing.T) {
	for _, waits := range []bool{false, true} {
		t.Run(fmt.Sprint(waits), func(t *testing.T) {
			g := newGraph(1)
			g.plan.Settings.Order = definition.OrderRuns
			var n atomic.Int64
			a := g.step("a", 1, func(_ context.Context, c *node.Call) node.Result {
				if waits && !c.Resumed && n.Add(1)%3 == 0 {
					return node.Result{Wait: time.Millisecond}
				}
				return node.Result{}
			})
			p := g.step("publish", 1, publishes("out"))
			b := newBench(t, nil, g.edge(0, 0, a).edge(a, 0, p).plan, passThrough(2, "other"))
			b.run()
			for i := range 500 {
				b.trigger(1, fmt.Sprint(i))
				b.trigger(2, fmt.Sprint(i))
			}
			eventually(t, "every run ended", func() bool { return len(b.ended()) == 1000 })
			next := 0
			for _, s := range b.values() {
				if s.path != "out" {
					continue
				}
				if !strings.HasPrefix(s.payload, fmt.Sprintf(`{"value":%d,`, next)) {
					t.Fatalf("value %d is %s", next, s.payload)
				}
				next++
			}
			if next != 500 {
				t.Errorf("%d values, want 500", next)
			}
		})
	}
}
