package web_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"millrace/auth"
	"millrace/historian/kv"
	"millrace/pipeline"
	"millrace/pipeline/definition"
	"millrace/pipeline/history"
	"millrace/pipeline/nodes"
	"millrace/pipeline/queue"
	"millrace/pipeline/script"
	"millrace/uns"
	"millrace/web"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// noLog is what the engine asks of a historian that keeps no log.
type noLog struct{}

func (noLog) LastSeq() uint64                                { return 0 }
func (noLog) SkipTo(uint64)                                  {}
func (noLog) Hold(uint64)                                    {}
func (noLog) DropRows(context.Context, []byte, []byte) error { return nil }

// pipelines are the real parts, on stores in memory and without a follower: what starts runs here are people.
func (b *box) pipelines(records *kv.Store, ns *uns.Namespace) web.Pipelines {
	t := b.t
	t.Helper()
	runs, err := kv.Open("runs", kv.Options{FS: vfs.NewMem()})
	must(t, err)
	t.Cleanup(func() { runs.Close() })
	p := web.Pipelines{}
	p.History, err = history.Open(runs, history.Options{Retention: 24 * time.Hour, Now: b.clock.Now})
	must(t, err)
	scripts := script.NewEngine(script.Options{})
	t.Cleanup(scripts.Close)
	p.Compiler = definition.NewCompiler(nodes.All(nodes.Options{}), scripts)
	p.Shelf, err = definition.OpenShelf(records, p.Compiler, definition.ShelfOptions{Seq: func() uint64 { return 1 }, Now: b.clock.Now})
	must(t, err)
	o := pipeline.DefaultOptions()
	o.Now = b.clock.Now
	q := queue.NewMemory(queue.Options{MaxBytes: o.ExecutionQueue.MaxBytes, MaxAge: o.ExecutionQueue.MaxAge})
	var values pipeline.Values = noLog{}
	if real, ok := b.store.(pipeline.Values); ok {
		values = real
	}
	p.Engine, err = pipeline.Open(pipeline.Parts{Plans: p.Shelf, Queue: q, Ingress: b.ingress, Values: values, Paths: ns, History: p.History, Parked: p.History, Records: records}, o)
	must(t, err)
	p.Shelf.Listen(func(definition.Change) { p.Engine.Running(p.Shelf.Running()) })
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Engine.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("engine: %v", err)
		}
		must(t, q.Close())
	})
	return p
}

// pipeline sees to it that there is one of that id: deployed and running, or a draft that never was. A manual run of it waits for an hour
// when its value is true.
func (b *box) pipeline(id string, deployed bool) {
	b.t.Helper()
	if p, err := b.parts.Pipelines.Shelf.Show(id); err == nil && p.Running == deployed && (p.Deployed > 0) == deployed {
		return
	}
	body := `{"id":"` + id + `","nodes":[{"id":"in","type":"trigger.manual"},{"id":"long","type":"logic.if","params":{"condition":"$trigger.value === true"}},` +
		`{"id":"wait","type":"action.wait","params":{"duration":"1h"}},{"id":"set","type":"transform.set","params":{"fields":[{"name":"x","value":1}]}}],` +
		`"edges":[{"from":"in","to":"long"},{"from":"long","port":"true","to":"wait"},{"from":"long","port":"false","to":"set"}]}`
	if !deployed { // what was deployed once cannot become a draft again
		if err := b.parts.Pipelines.Shelf.Delete(id, definition.Any); err != nil && !errors.Is(err, definition.ErrNotFound) {
			b.t.Fatal(err)
		}
	}
	b.call(auth.RoleDesigner, "PUT", "/pipelines/"+id).json(body).do().wants(b.t, 200)
	if deployed {
		b.call(auth.RoleDesigner, "POST", "/pipelines/"+id+"/deploy").do().wants(b.t, 200)
	}
}

// aRun is the id of a run of it: one that has ended and is kept, or one that waits.
func (b *box) aRun(id string, waits bool) string {
	b.t.Helper()
	b.pipeline(id, true)
	r := b.call(auth.RoleDesigner, "POST", "/pipelines/"+id+"/run").json(`{"value":`+strconv.FormatBool(waits)+`}`).do().wants(b.t, 200)
	var made struct{ Run string }
	must(b.t, json.Unmarshal([]byte(r.text), &made))
	if !waits {
		b.waitRun(made.Run)
		return made.Run
	}
	for deadline := time.Now().Add(20 * time.Second); !b.parked(made.Run); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			b.t.Fatalf("the run %s does not wait", made.Run)
		}
	}
	return made.Run
}

// waitRun returns when the run has ended.
func (b *box) waitRun(id string) {
	b.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !strings.Contains(b.call(auth.RoleViewer, "GET", "/runs/"+id).do().text, `"duration_us"`); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			b.t.Fatalf("the run %s has not ended", id)
		}
	}
}

// parked says that a run waits on disk.
func (b *box) parked(id string) bool {
	rows, err := b.parts.Pipelines.History.ParkedRows()
	must(b.t, err)
	return slices.ContainsFunc(rows, func(r history.Parked) bool { return r.ID.String() == id })
}
