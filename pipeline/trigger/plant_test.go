package trigger_test

import (
	"context"
	"errors"
	"fmt"

	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/historian"
	"millrace/pipeline/definition"
	"millrace/pipeline/node"
	"millrace/pipeline/queue"
	"millrace/pipeline/trigger"
	"millrace/uns"
)

// epoch is where the clocks of these tests begin, in ms.
const epoch = int64(1_790_000_000_000)

// plan makes a plan of one or more triggers.
func plan(number, version uint32, lane queue.Lane, list ...node.Values) *definition.Plan {
	p := &definition.Plan{Number: number, Version: version, ID: fmt.Sprintf("p%d", number), Workspace: "main", Settings: definition.Resolved{Lane: uint8(lane)}}
	for i := range list {
		p.Steps = append(p.Steps, definition.Step{Number: i, Trigger: values{&list[i]}})
		p.Triggers = append(p.Triggers, i)
	}
	return p
}

type values struct{ v *node.Values }

func (t values) Start() node.Start { return node.Start{Values: t.v} }

// versions are what held when, as the shelf would say.
type versions struct {
	mu    sync.Mutex
	holds []definition.Change // in order of Seq
}

func (v *versions) all() []definition.Change {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.holds)
}

func (v *versions) List() (list []definition.Pipeline) {
	for _, c := range v.all() {
		if !slices.ContainsFunc(list, func(p definition.Pipeline) bool { return p.Number == c.Number }) {
			list = append(list, definition.Pipeline{Number: c.Number})
		}
	}
	return list
}

func (v *versions) At(number uint32, seq uint64) (version uint32) {
	for _, c := range v.all() {
		if c.Number == number && c.Seq <= seq {
			if version = 0; c.New != nil {
				version = c.New.Version
			}
		}
	}
	return version
}

func (v *versions) Since(seq uint64) (list []definition.Change) {
	for _, c := range v.all() {
		if c.Seq >= seq {
			list = append(list, c)
		}
	}
	return list
}

func (v *versions) Plan(number, version uint32) *definition.Plan {
	for _, c := range v.all() {
		if c.Number == number && c.New != nil && c.New.Version == version {
			return c.New
		}
	}
	return nil
}

func (v *versions) add(c definition.Change) {
	v.mu.Lock()
	v.holds = append(v.holds, c)
	v.mu.Unlock()
}

// sink keeps what is put.
type sink struct {
	mu      sync.Mutex
	entries []entry
	block   chan struct{} // Put waits for it when set
	blocked atomic.Bool
	onPut   func(lane queue.Lane, e queue.Entry)
}

type entry struct {
	queue.Entry
	lane queue.Lane
}

func (s *sink) Put(ctx context.Context, lane queue.Lane, e queue.Entry) error {
	if s.block != nil {
		s.blocked.Store(true)
		select {
		case <-s.block:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	e.Value, e.Refs = slices.Clone(e.Value), slices.Clone(e.Refs)
	s.mu.Lock()
	s.entries = append(s.entries, entry{e, lane})
	s.mu.Unlock()
	if s.onPut != nil {
		s.onPut(lane, e)
	}
	return nil
}

func (s *sink) all() []entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.entries)
}

// box is a historian with topics, a follower and what it puts.
type box struct {
	t        testing.TB
	clock    atomic.Int64 // ms
	disk     *vfs.MemFS
	store    *historian.Store
	catalog  *uns.Catalog
	in       *uns.Ingress
	versions *versions
	sink     *sink
	f        *trigger.Follower
	stop     func()
	between  func(seq uint64) // runs between the sequence of a change and the change
}

func (b *box) now() time.Time { return time.UnixMilli(b.clock.Load()) }

// newBox has a store and no follower yet.
func newBox(t testing.TB) *box {
	b := &box{t: t, disk: vfs.NewCrashableMem(), versions: &versions{}}
	b.clock.Store(epoch)
	b.open()
	return b
}

func (b *box) open() {
	b.t.Helper()
	o := historian.DefaultOptions()
	o.FS, o.Now, o.MinFreeSpace = b.disk, b.now, 0
	o.Pebble.CommitWindow = 0
	var err error
	if b.store, err = historian.Open("db", o); err != nil {
		b.t.Fatal(err)
	}
	store := b.store
	b.t.Cleanup(func() { _ = store.Close() }) // a crashed one may be closed already
	uo := uns.DefaultOptions()
	uo.Now = b.now
	uo.Ingress.PerClientRatePerSec = 0
	ns := uns.NewNamespace(uo)
	if b.catalog, err = uns.OpenCatalog(ns, b.store, b.store, uo); err != nil {
		b.t.Fatal(err)
	}
	b.in = uns.NewIngress(ns, b.catalog, b.store, nil, uo)
	b.sink = &sink{}
}

// follow starts a follower from a cursor.
func (b *box) follow(from uint64, change func(*trigger.Options)) {
	b.t.Helper()
	o := trigger.Options{Log: b.store, Sink: b.sink, Topics: b.catalog, Versions: b.versions, From: from, Now: b.now, Tick: make(chan time.Time)}
	if change != nil {
		change(&o)
	}
	var err error
	if b.f, err = trigger.New(o); err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	f := b.f
	go func() { done <- f.Run(ctx) }()
	var once sync.Once
	b.stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) && !errors.Is(err, historian.ErrClosed) {
				b.t.Errorf("the follower ended with %v", err)
			}
		})
	}
	b.t.Cleanup(b.stop)
}

// send stores values, each a path and a payload, in one commit.
func (b *box) send(pairs ...string) {
	b.t.Helper()
	batch := &uns.Batch{}
	for i := 0; i < len(pairs); i += 2 {
		batch.Messages = append(batch.Messages, uns.Message{Workspace: "main", Path: pairs[i], Payload: []byte(pairs[i+1])})
	}
	if err := b.in.Accept(b.t.Context(), batch); err != nil {
		b.t.Fatal(err)
	}
	for i := range batch.Messages {
		if m := &batch.Messages[i]; m.Verdict.Reason != uns.Stored {
			b.t.Fatalf("%s %s: %v", m.Path, m.Payload, m.Verdict)
		}
	}
}

// change deploys a plan (nil stops the pipeline), as the shelf does it.
func (b *box) change(number uint32, p *definition.Plan) {
	seq := b.f.Seq()
	defer b.f.Settled()
	if b.between != nil {
		b.between(seq)
	}
	c := definition.Change{Number: number, New: p, Seq: seq}
	b.versions.add(c)
	b.f.Change(c)
}

// wait waits until something holds.
func wait(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(200 * time.Microsecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited for 20 s: %s", what)
		}
	}
}

// caught waits until the follower has dealt with everything but what is pending.
func (b *box) caught(pending bool) {
	b.t.Helper()
	if pending {
		wait(b.t, "the follower is at the end but for what is pending", func() bool { return trigger.Put(b.f) == b.store.LastSeq() })
		return
	}
	wait(b.t, "the follower is at the end", func() bool { return b.f.Position() == b.store.LastSeq() })
}

// puts is what was put so far, as pipeline:topic=value.
func (b *box) puts() (list []string) {
	for _, e := range b.sink.all() {
		for _, r := range e.Refs {
			list = append(list, fmt.Sprintf("%d:%s=%s", r.Pipeline, e.Topic, e.Value))
		}
	}
	return list
}

func (b *box) wantPuts(want ...string) {
	b.t.Helper()
	if got := b.puts(); !slices.Equal(got, want) {
		b.t.Errorf("put was\n %q, want\n %q", got, want)
	}
}
