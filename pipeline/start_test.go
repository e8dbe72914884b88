package pipeline

import (
	"context"
	"errors"
	"testing"
	"time"

	"millrace/pipeline/definition"
	"millrace/pipeline/history"
	"millrace/pipeline/node"
)

type starts node.Start

func (s starts) Start() node.Start { return node.Start(s) }

func TestRetryDelays(t *testing.T) {
	r := retry{count: 5, exponential: true, delay: time.Second, most: 10 * time.Second}
	for failed, want := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 4: 8 * time.Second, 5: 10 * time.Second, 99: 10 * time.Second} {
		if got := r.after(failed, 0.9); got != want {
			t.Errorf("after %d failures %s, want %s", failed, got, want)
		}
	}
	r = retry{delay: time.Second, most: time.Minute, jitter: 0.5}
	for random, want := range map[float64]time.Duration{0: 500 * time.Millisecond, 0.5: time.Second, 0.75: 1250 * time.Millisecond} {
		if got := r.after(3, random); got != want {
			t.Errorf("random %v: %s, want %s", random, got, want)
		}
	}
}

func TestLife(t *testing.T) {
	var l life
	ctx, cancel := context.WithTimeout(&l, time.Hour)
	defer cancel()
	if l.Err() != nil || l.cause() != nil {
		t.Error("ended before it began")
	}
	called := make(chan struct{})
	stop := context.AfterFunc(&l, func() { close(called) })
	never := context.AfterFunc(&l, func() { t.Error("called after it was stopped") })
	if !never() {
		t.Error("not stopped")
	}
	why := errors.New("why")
	l.end(why)
	l.end(errors.New("too late"))
	<-called
	<-l.Done()
	<-ctx.Done()
	if stop() || !errors.Is(l.Err(), context.Canceled) || l.cause() != why {
		t.Errorf("stop, %v, %v", l.Err(), l.cause())
	}
	var early life
	early.end(why)
	<-early.Done()
	again := make(chan struct{})
	context.AfterFunc(&early, func() { close(again) })
	<-again
}

// TestSchedules: runs begin at planned times, and have them as their names; a version that no longer runs plans nothing.
func TestSchedules(t *testing.T) {
	g := newGraph(1)
	g.plan.Steps[0].Trigger = starts(node.Start{Schedule: &node.Schedule{Every: 20 * time.Millisecond}})
	p := g.step("publish", 1, func(_ context.Context, c *node.Call) node.Result {
		return node.Result{Publish: []node.Publication{{Topic: "out", Value: c.Scope.Trigger.Get("timestamp")}}}
	})
	b := newBench(t, nil, g.edge(0, 0, p).plan)
	b.run()
	b.eng.Running([]*definition.Plan{g.plan})
	b.eng.Running([]*definition.Plan{g.plan}) // told twice, planned once
	eventually(t, "five runs ended", func() bool { return len(b.ended()) >= 5 })
	b.eng.Running(nil)
	b.eng.schedules.mu.Lock()
	if n := len(b.eng.schedules.armed); n != 0 {
		t.Errorf("%d schedules are armed", n)
	}
	b.eng.schedules.mu.Unlock()
	seen := map[history.RunID]bool{}
	for _, r := range b.ended() {
		if r.ID.Kind != history.BySchedule || r.ID.N%20 != 0 || seen[r.ID] || r.Mode != "schedule" {
			t.Errorf("run %+v", r.ID)
		}
		seen[r.ID] = true
	}
}

func TestWebhook(t *testing.T) {
	g := newGraph(1)
	g.plan.Steps[0].Trigger = starts(node.Start{Webhook: &node.Webhook{Path: "orders", Secret: "s3cret"}})
	p := g.step("publish", 1, publishes("out"))
	b := newBench(t, nil, g.edge(0, 0, p).plan)
	b.run()
	b.eng.Running([]*definition.Plan{g.plan})
	for _, bad := range [][3]string{{"p1", "orders", "wrong"}, {"p1", "orders", ""}, {"p1", "other", "s3cret"}, {"p2", "orders", "s3cret"}} {
		var refused *Refused
		if _, err := b.eng.Webhook(context.Background(), bad[0], bad[1], bad[2], nil); !errors.As(err, &refused) || refused.Code != "no_webhook" {
			t.Errorf("%v: %v", bad, err)
		}
	}
	id, err := b.eng.Webhook(context.Background(), "p1", "orders", "s3cret", []byte(`{"n":1.50}`))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the run ended", func() bool { return len(b.ended()) == 1 })
	if r := b.ended()[0]; r.ID != id || r.Mode != "webhook" || len(b.values()) != 1 || b.values()[0].payload[:21] != `{"value":{"n":1.50},"` {
		t.Errorf("run %+v, values %v", r, b.values())
	}
	if _, err := b.eng.Webhook(context.Background(), "p1", "orders", "s3cret", make([]byte, maxInput+1)); err == nil {
		t.Error("an input that is too large was taken")
	}
}
