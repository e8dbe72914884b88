package pipeline

import (
	"context"
	"testing"
	"time"

	"millrace/pipeline/history"
	"millrace/pipeline/node"
)

// TestActive: a run is seen from its start on, and can be cancelled wherever it is.
func TestActive(t *testing.T) {
	g := newGraph(1)
	hold := make(chan struct{})
	w := g.step("w", 1, func(_ context.Context, c *node.Call) node.Result {
		select {
		case <-hold:
			return node.Result{}
		default:
			return node.Result{Wait: time.Hour}
		}
	})
	b := newBench(t, nil, g.edge(0, 0, w).plan)
	id, err := b.eng.Start(context.Background(), g.plan, "", []byte(`{"a":1}`))
	if err != nil {
		t.Fatal(err)
	}
	other, err := b.eng.Start(context.Background(), g.plan, "t", nil)
	if err != nil {
		t.Fatal(err)
	}
	if a, ok := b.eng.ActiveRun(id); !ok || a.Status != "queued" || a.Mode != "manual" {
		t.Errorf("before the engine runs: %+v, %v", a, ok)
	}
	if err := b.eng.Cancel(other, "admin"); err != nil {
		t.Errorf("cancel of a queued run: %v", err)
	}
	b.run()
	eventually(t, "the cancelled run ended", func() bool { return len(b.ended()) == 1 })
	if r := b.ended()[0]; r.ID != other || r.Status != history.Cancelled || r.Error != "cancelled by admin" {
		t.Errorf("ended %+v", r)
	}
	eventually(t, "the other waits", func() bool {
		a, _ := b.eng.ActiveRun(id)
		return a.Status == "parked" && a.Node == "w" && !a.Until.IsZero()
	})
	if list := b.eng.Active(1, 10); len(list) != 1 {
		t.Errorf("active: %+v", list)
	}
	if err := b.eng.Cancel(id, "admin"); err != nil {
		t.Errorf("cancel of a waiting run: %v", err)
	}
	eventually(t, "it ended", func() bool { return len(b.ended()) == 2 })
	if _, ok := b.eng.ActiveRun(id); ok {
		t.Error("it is still listed")
	}
	if _, err := b.eng.Start(context.Background(), g.plan, "nobody", nil); err == nil {
		t.Error("a start from a trigger that is not there")
	}
}
