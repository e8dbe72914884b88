package pipeline

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/historian/kv"
	"millrace/pipeline/definition"
	"millrace/pipeline/history"
	"millrace/pipeline/node"
	"millrace/pipeline/queue"
	"millrace/pipeline/value"
	"millrace/uns"
)

// bench is an engine between fakes.
type bench struct {
	t       *testing.T
	eng     *Engine
	plans   map[[2]uint32]*definition.Plan
	frames  [lanesCount]chan *queue.Frame
	acks    atomic.Int64
	seq     atomic.Uint64
	last    atomic.Uint64 // of trigger
	stop    context.CancelFunc
	stopped chan error

	mu      sync.Mutex
	stored  []stored
	runs    []history.Run
	cursor  uint64
	marks   []history.Mark
	rows    map[history.RunID]history.Parked
	dead    []history.Dead
	records *kv.Store
	refuse  func(path string) uns.Verdict
	hold    chan struct{} // writes wait for it
	dropped [][2]string
}

type stored struct{ path, payload, once string }

func (b *bench) Plan(number, version uint32) *definition.Plan {
	return b.plans[[2]uint32{number, version}]
}
func (b *bench) Forget(uint32, uint32) {}
func (b *bench) Put(ctx context.Context, l queue.Lane, e queue.Entry) error {
	b.frames[l] <- b.frame(l, e)
	return nil
}
func (b *bench) Take(ctx context.Context, l queue.Lane) (*queue.Frame, error) {
	select {
	case f := <-b.frames[l]:
		return f, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
func (b *bench) Stats() queue.Stats { return queue.Stats{} }
func (b *bench) LastSeq() uint64    { return b.seq.Load() }
func (b *bench) Hold(uint64)        {}
func (b *bench) SkipTo(uint64)      {}
func (b *bench) DropRows(_ context.Context, from, to []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dropped = append(b.dropped, [2]string{string(from), string(to)})
	return nil
}
func (b *bench) Path(_, topic string) (string, string) { return topic, "" }
func (b *bench) Root() string                          { return "mHv1.0" }
func (b *bench) Write(ctx context.Context, batch *uns.Batch) error {
	b.mu.Lock()
	hold := b.hold
	b.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range batch.Messages {
		m := &batch.Messages[i]
		if b.refuse != nil {
			if m.Verdict = b.refuse(m.Path); !m.Verdict.OK() {
				continue
			}
		}
		b.stored = append(b.stored, stored{m.Path, string(m.Payload), string(m.Once)})
	}
	return nil
}
func (b *bench) Add(r history.Run) { b.mu.Lock(); b.runs = append(b.runs, r); b.mu.Unlock() }
func (b *bench) SaveCursor(cursor uint64, marks []history.Mark) error {
	b.mu.Lock()
	b.cursor, b.marks = cursor, append(b.marks, marks...)
	b.mu.Unlock()
	return nil
}
func (b *bench) LoadCursor() (uint64, []history.Mark, error) { return b.cursor, b.marks, nil }
func (b *bench) ParkedRows() (list []history.Parked, err error) {
	for _, r := range b.rows {
		list = append(list, r)
	}
	return list, nil
}
func (b *bench) Bury(d history.Dead) error {
	b.mu.Lock()
	b.dead = append(b.dead, d)
	b.mu.Unlock()
	return nil
}
func (b *bench) Get(id history.RunID) (*history.Run, bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.runs {
		if b.runs[i].ID == id {
			return &b.runs[i], true, nil
		}
	}
	return nil, false, nil
}
func (b *bench) List(q history.Query) (list []history.Run, more bool, err error) {
	for _, r := range b.ended() {
		if q.After.ID == (history.RunID{}) && slices.Contains(q.Status, r.Status) {
			list = append(list, r)
		}
	}
	return list, false, nil
}
func (b *bench) Park(rows []history.Parked) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range rows {
		b.rows[r.ID] = r
	}
	return nil
}
func (b *bench) Unpark(ids []history.RunID) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, id := range ids {
		delete(b.rows, id)
	}
	return nil
}

func newBench(t *testing.T, change func(*Options), plans ...*definition.Plan) *bench {
	t.Helper()
	b := &bench{t: t, plans: make(map[[2]uint32]*definition.Plan), rows: make(map[history.RunID]history.Parked)}
	for i := range b.frames {
		b.frames[i] = make(chan *queue.Frame, 100_000)
	}
	for _, p := range plans {
		b.plans[[2]uint32{p.Number, p.Version}] = p
	}
	o := DefaultOptions()
	o.Cores = 2
	if change != nil {
		change(&o)
	}
	b.records = records(t)
	b.open(o)
	return b
}

// open makes the engine; again after an end, as a start of the box does.
func (b *bench) open(o Options) {
	b.t.Helper()
	var err error
	if b.eng, err = Open(Parts{Plans: b, Queue: b, Ingress: b, Values: b, Paths: b, History: b, Parked: b, Records: b.records, Position: b.seq.Load}, o); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) run() {
	ctx, cancel := context.WithCancel(context.Background())
	b.stopped = make(chan error, 1)
	b.stop = cancel
	go func() { b.stopped <- b.eng.Run(ctx) }()
	b.t.Cleanup(b.end)
}

func (b *bench) end() {
	if b.stop == nil {
		return
	}
	b.stop()
	b.stop = nil
	if err := <-b.stopped; err != nil {
		b.t.Errorf("Run: %v", err)
	}
}

func (b *bench) frame(l queue.Lane, entries ...queue.Entry) *queue.Frame {
	return queue.NewFrame(l, b.seq.Add(1)<<20, time.Now(), entries, func() { b.acks.Add(1) }, nil)
}

// trigger queues one value for a pipeline.
func (b *bench) trigger(number uint32, json string) {
	seq := b.seq.Add(1)
	b.last.Store(seq)
	e := queue.Entry{Kind: queue.Value, Seq: seq, Workspace: "main", Topic: "in", Time: int64(seq) * 1e6, Scale: 6, Value: []byte(json), Refs: []queue.Ref{{Pipeline: number, Version: 1}}}
	if err := b.eng.Put(context.Background(), queue.Normal, e); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) ended() []history.Run {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.runs)
}

func (b *bench) values() []stored {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.stored)
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// acts is a node made of a function.
type acts func(ctx context.Context, c *node.Call) node.Result

func (f acts) Run(ctx context.Context, c *node.Call) node.Result { return f(ctx, c) }

type values struct{}

func (values) Start() node.Start { return node.Start{Values: &node.Values{Filters: []string{"#"}}} }

// graph builds a plan: the first step is the trigger.
type graph struct{ plan *definition.Plan }

func newGraph(number uint32) *graph {
	p := &definition.Plan{Number: number, Version: 1, ID: fmt.Sprintf("p%d", number), Workspace: "main", Name: fmt.Sprintf("p%d", number)}
	p.Settings.Lane = uint8(queue.Normal)
	g := &graph{p}
	g.plan.Steps = append(g.plan.Steps, definition.Step{Number: 0, ID: "t", Name: "trigger", Type: "trigger.uns.subscribe", Spec: &node.Spec{Trigger: true}, Trigger: values{}, Out: [][]int{nil}})
	g.plan.Triggers = []int{0}
	return g
}

// step adds a step with so many ports and gives its number.
func (g *graph) step(name string, ports int, f acts) int {
	i := len(g.plan.Steps)
	g.plan.Steps = append(g.plan.Steps, definition.Step{Number: i, ID: name, Name: name, Type: "test." + name, Spec: &node.Spec{}, Node: f, Out: make([][]int, ports)})
	return i
}

func (g *graph) edge(from, port, to int) *graph {
	s := &g.plan.Steps[from]
	if port == errorPort {
		s.Error = append(s.Error, to)
		s.Settings.OnError = definition.ErrorOutput
	} else {
		s.Out[port] = append(s.Out[port], to)
	}
	if !slices.Contains(g.plan.Steps[to].In, from) {
		g.plan.Steps[to].In = append(g.plan.Steps[to].In, from)
	}
	return g
}

// publishes is a node that publishes its $trigger.value to a topic.
func publishes(topic string) acts {
	return func(_ context.Context, c *node.Call) node.Result {
		return node.Result{Publish: []node.Publication{{Topic: topic, Value: c.Scope.Trigger.Get("value"), Stamped: true, Time: c.Trigger.Time, Scale: c.Trigger.Scale}}}
	}
}

func sets(v value.Value) acts {
	return func(context.Context, *node.Call) node.Result { return node.Result{Out: v} }
}

// passThrough is trigger, set, publish.
func passThrough(number uint32, topic string) *definition.Plan {
	g := newGraph(number)
	set := g.step("set", 1, func(_ context.Context, c *node.Call) node.Result {
		return node.Result{Out: c.Scope.Trigger.Get("value")}
	})
	pub := g.step("publish", 1, publishes(topic))
	return g.edge(0, 0, set).edge(set, 0, pub).plan
}

func records(t *testing.T) *kv.Store {
	t.Helper()
	s, err := kv.Open("records", kv.Options{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}
