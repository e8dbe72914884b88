package trigger_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"millrace/historian"
	"millrace/pipeline/definition"
	"millrace/pipeline/node"
	"millrace/pipeline/queue"
	"millrace/pipeline/trigger"
	"millrace/uns"
)

// One value is put once for each lane, with every run it starts.
func TestOneEntryForAValueAndLane(t *testing.T) {
	b := newBox(t)
	b.follow(1, nil)
	b.change(1, plan(1, 4, queue.High, node.Values{Filters: []string{"line1/#"}}))
	b.change(2, plan(2, 1, queue.Low, node.Values{Filters: []string{"line1/+"}}, node.Values{Filters: []string{"x"}}, node.Values{Filters: []string{"line1/temp", "#"}}))
	b.change(3, plan(3, 1, queue.High, node.Values{Filters: []string{"+/temp"}}))
	b.send("line1/temp", `{"value":21.50,"timestamp":"2026-09-21T14:00:00.123456Z","quality":"uncertain"}`, "other/x", "1")
	b.caught(false)
	got := b.sink.all()
	if len(got) != 3 {
		t.Fatalf("%d entries: %+v", len(got), got)
	}
	ref := func(pipeline, version uint32, node uint16) queue.Ref {
		return queue.Ref{Pipeline: pipeline, Version: version, Node: node}
	}
	for i, want := range [][]queue.Ref{{ref(1, 4, 0), ref(3, 1, 0)}, {ref(2, 1, 0), ref(2, 1, 2)}, {ref(2, 1, 2)}} {
		if e := got[i]; !slices.Equal(e.Refs, want) || (e.lane == queue.High) != (i == 0) {
			t.Errorf("entry %d: lane %v, %v, want %v", i, e.lane, e.Refs, want)
		}
	}
	e := got[0].Entry
	e.Refs = nil
	want := queue.Entry{Seq: 1, Workspace: "main", Topic: "line1/temp", Time: time.Date(2026, 9, 21, 14, 0, 0, 123456000, time.UTC).UnixNano(), Scale: 3, Quality: 1}
	if string(e.Value) != "21.50" {
		t.Errorf("the value is %s", e.Value)
	}
	e.Value = nil
	if fmt.Sprint(e) != fmt.Sprint(want) {
		t.Errorf("got %+v, want %+v", e, want)
	}
}

// A full queue holds the follower, not the acknowledgements, and not those who deploy and stop.
func TestFullQueueHoldsTheFollowerAlone(t *testing.T) {
	b := newBox(t)
	b.sink.block = make(chan struct{})
	b.follow(1, nil)
	b.change(1, plan(1, 1, queue.High, node.Values{Filters: []string{"a"}}))
	b.send("a", "1")
	wait(t, "the follower waits for the queue", b.sink.blocked.Load)
	for i := range 2000 {
		b.send("a", fmt.Sprint(i+2))
	}
	if p := b.f.Position(); p != 0 {
		t.Errorf("position is %d while the first value is not put", p)
	}
	b.change(2, plan(2, 1, queue.High, node.Values{Filters: []string{"a"}}))
	b.change(1, nil)
	b.send("a", "5000")
	close(b.sink.block)
	wait(t, "the backlog is put or shed", func() bool { return trigger.Put(b.f) == b.store.LastSeq() })
	got := b.puts()
	if got[0] != "1:a=1" || got[len(got)-1] != "2:a=5000" {
		t.Errorf("put was %v … %v", got[0], got[len(got)-1])
	}
}

// The same with the log held: the backlog is matched with the versions of its time, to the value.
func TestBacklogIsMatchedBySequence(t *testing.T) {
	b := newBox(t)
	b.sink.block = make(chan struct{})
	b.store.Hold(1)
	b.follow(1, nil)
	b.change(1, plan(1, 1, queue.High, node.Values{Filters: []string{"a"}}))
	for i := range 3000 {
		switch i {
		case 1000:
			b.change(1, plan(1, 2, queue.High, node.Values{Filters: []string{"a"}}))
		case 1500:
			b.change(1, nil)
		case 2000:
			b.change(1, plan(1, 3, queue.High, node.Values{Filters: []string{"a"}, Sample: 2}))
		case 2500:
			if err := b.store.Checkpoint(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		b.send("a", fmt.Sprint(i))
	}
	close(b.sink.block)
	b.caught(false)
	byVersion := map[uint32][]uint64{}
	for _, e := range b.sink.all() {
		byVersion[e.Refs[0].Version] = append(byVersion[e.Refs[0].Version], e.Seq)
	}
	for version, want := range map[uint32][3]int{1: {1000, 1, 1000}, 2: {500, 1001, 1500}, 3: {500, 2001, 2999}} {
		got := byVersion[version]
		if len(got) != want[0] || got[0] != uint64(want[1]) || got[len(got)-1] != uint64(want[2]) {
			t.Errorf("version %d ran %d times, from %v to %v, want %v", version, len(got), got[0], got[len(got)-1], want)
		}
	}
	if n := len(b.f.Table().Triggers()); n != 1 {
		t.Errorf("%d triggers are in the table, one holds", n)
	}
}

// Deploys while values come: each value is run by the version that the shelf says held at its sequence, and by no other.
func TestChangesAreExactWhileValuesCome(t *testing.T) {
	b := newBox(t)
	b.store.Hold(1)
	b.follow(1, nil)
	var work sync.WaitGroup
	var stop atomic.Bool
	for w := range 3 {
		work.Go(func() {
			for i := 0; !stop.Load(); i++ {
				batch := &uns.Batch{Messages: []uns.Message{{Workspace: "main", Path: fmt.Sprintf("a/%d", w), Payload: fmt.Append(nil, i)}}}
				if err := b.in.Accept(t.Context(), batch); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	// The shelf writes to the disk meanwhile, and values go on coming.
	b.between = func(seq uint64) {
		wait(t, "values come during a change", func() bool { return b.store.LastSeq() > seq+20 || t.Failed() })
	}
	for i := range uint32(60) {
		number := i%3 + 1
		if i%5 == 4 {
			b.change(number, nil)
		} else {
			b.change(number, plan(number, i+1, queue.Normal, node.Values{Filters: []string{"a/+"}}))
		}
	}
	stop.Store(true)
	work.Wait()
	b.caught(false)
	want := map[string]bool{}
	for seq := uint64(1); seq <= b.store.LastSeq(); seq++ {
		for number := uint32(1); number <= 3; number++ {
			if v := b.versions.At(number, seq); v != 0 {
				want[fmt.Sprint(seq, number, v)] = true
			}
		}
	}
	last := uint64(0)
	for _, e := range b.sink.all() {
		if e.Seq <= last {
			t.Fatalf("sequence %d after %d", e.Seq, last)
		}
		last = e.Seq
		for _, r := range e.Refs {
			key := fmt.Sprint(e.Seq, r.Pipeline, r.Version)
			if !want[key] {
				t.Fatalf("%s (sequence, pipeline, version) does not hold, or was put twice", key)
			}
			delete(want, key)
		}
	}
	if len(want) != 0 || last == 0 {
		t.Errorf("%d runs were not put", len(want))
	}
}

func TestHopsEndACircle(t *testing.T) {
	b := newBox(t)
	var told []trigger.Dead
	var mu sync.Mutex
	again := make(chan queue.Entry, 1)
	b.sink.onPut = func(_ queue.Lane, e queue.Entry) { again <- e }
	b.follow(1, func(o *trigger.Options) {
		o.Dead = func(d trigger.Dead) { mu.Lock(); told = append(told, d); mu.Unlock() }
	})
	b.change(1, plan(1, 1, queue.High, node.Values{Filters: []string{"a"}}))
	b.send("a", "1")
	rounds := 0
	for rounds < 30 {
		var e queue.Entry
		select {
		case e = <-again:
		case <-time.After(20 * time.Second):
			t.Fatal("no run was started")
		}
		rounds++
		batch := &uns.Batch{Messages: []uns.Message{{Workspace: "main", Path: "a", Payload: []byte("1"), Hops: e.Hops + 1}}}
		if err := b.in.Accept(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
		if batch.Samples[0].Hops >= trigger.MaxHops {
			break
		}
	}
	if rounds != trigger.MaxHops {
		t.Errorf("the circle ended after %d runs", rounds)
	}
	b.caught(false)
	mu.Lock()
	defer mu.Unlock()
	if len(told) != 1 || told[0].Topic != "a" || told[0].Seq != trigger.MaxHops+1 || told[0].Ref.Pipeline != 1 {
		t.Errorf("told of %+v", told)
	}
}

func TestShedLogIsToldOfAndReadOnBehind(t *testing.T) {
	b := newBox(t)
	b.versions.add(change(1, 1, plan(1, 1, queue.High, node.Values{Filters: []string{"a"}})))
	b.send("a", "1")
	b.send("a", "2")
	if err := b.store.Checkpoint(t.Context()); err != nil { // nothing is held
		t.Fatal(err)
	}
	b.send("a", "3")
	var from, to uint64
	b.follow(1, func(o *trigger.Options) { o.Shed = func(f, t uint64) { from, to = f, t } })
	b.caught(false)
	b.stop()
	b.wantPuts("1:a=3")
	if from != 1 || to != 2 {
		t.Errorf("told of %d to %d", from, to)
	}
}

// rule is a trigger as the model has it: gates written down as slowly as they are said.
type rule struct {
	v    node.Values
	seen map[string]*memory
}

type memory struct {
	value   string
	quality historian.Quality
	known   bool
	turn    int
	passed  int64
	started bool
}

// starts says whether a value starts a run.
func (r *rule) starts(topic, v string, quality historian.Quality, at int64) bool {
	m := r.seen[topic]
	if m == nil {
		m = &memory{}
		r.seen[topic] = m
	}
	switch r.v.On {
	case "change":
		if m.known && m.value == v {
			return false
		}
	case "quality":
		if m.known && m.quality == quality {
			return false
		}
	}
	start := r.v.Sample <= 1 || m.turn%r.v.Sample == 0
	if start && r.v.Throttle > 0 && m.started && at-m.passed < int64(r.v.Throttle) {
		return false
	}
	m.turn++
	m.value, m.quality, m.known = v, quality, true
	if start {
		m.started, m.passed = true, at
	}
	return start
}

// TestFollowerDoesWhatTheModelSays: values, deploys and stops in any order, against a matcher that goes through all filters.
func TestFollowerDoesWhatTheModelSays(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b := newBox(t)
		b.follow(1, nil)
		type held struct {
			number, version uint32
			lane            queue.Lane
			rules           []*rule
		}
		running := map[uint32]*held{}
		var want []string
		seq := uint64(0)
		path := rapid.SampledFrom([]string{"a", "b", "a/x", "a/y", "b/x/z"})
		filter := rapid.SampledFrom([]string{"a", "b", "#", "+", "a/#", "+/x", "b/+/z"})
		payload := rapid.SampledFrom([]string{"1", "2", "true", `"s"`, `{"value":1,"quality":"bad"}`, `{"value":2,"quality":"uncertain"}`})
		say := map[string]string{`{"value":1,"quality":"bad"}`: "1", `{"value":2,"quality":"uncertain"}`: "2"}
		quality := map[string]historian.Quality{`{"value":1,"quality":"bad"}`: historian.Bad, `{"value":2,"quality":"uncertain"}`: historian.Uncertain}
		for step := range rapid.IntRange(5, 40).Draw(rt, "steps") {
			switch kind := rapid.IntRange(0, 9).Draw(rt, "kind"); {
			case kind < 2:
				h := &held{number: rapid.Uint32Range(1, 3).Draw(rt, "pipeline"), version: uint32(step + 1), lane: queue.Lane(rapid.IntRange(0, 2).Draw(rt, "lane"))}
				var list []node.Values
				for range rapid.IntRange(1, 2).Draw(rt, "triggers") {
					v := node.Values{
						Filters: rapid.SliceOfN(filter, 1, 2).Draw(rt, "filters"), On: rapid.SampledFrom([]string{"every", "change", "quality"}).Draw(rt, "on"),
						Sample: rapid.IntRange(0, 3).Draw(rt, "sample"), Throttle: time.Duration(rapid.IntRange(0, 2).Draw(rt, "throttle")) * time.Second,
					}
					list = append(list, v)
					h.rules = append(h.rules, &rule{v, map[string]*memory{}})
				}
				running[h.number] = h
				b.change(h.number, plan(h.number, h.version, h.lane, list...))
			case kind == 2:
				number := rapid.Uint32Range(1, 3).Draw(rt, "pipeline")
				delete(running, number)
				b.change(number, nil)
			default:
				b.clock.Add(rapid.Int64Range(0, 1500).Draw(rt, "pause"))
				var pairs []string
				for range rapid.IntRange(1, 4).Draw(rt, "values") {
					topic, p := path.Draw(rt, "path"), payload.Draw(rt, "payload")
					pairs = append(pairs, topic, p)
					seq++
					v := p
					if s, ok := say[p]; ok {
						v = s
					}
					for lane := range queue.Lanes {
						var refs []string
						for number := uint32(1); number <= 3; number++ {
							h := running[number]
							if h == nil || h.lane != lane {
								continue
							}
							for i, r := range h.rules {
								if slices.ContainsFunc(r.v.Filters, func(f string) bool { return uns.Match(f, topic) }) && r.starts(topic, v, quality[p], b.clock.Load()*1e6) {
									refs = append(refs, fmt.Sprintf("%d.%d.%d", number, h.version, i))
								}
							}
						}
						if len(refs) > 0 {
							slices.Sort(refs)
							want = append(want, fmt.Sprintf("%d %v %s=%s %v", seq, lane, topic, v, refs))
						}
					}
				}
				b.send(pairs...)
			}
		}
		b.caught(false)
		b.stop()
		var got []string
		for _, e := range b.sink.all() {
			var refs []string
			for _, r := range e.Refs {
				refs = append(refs, fmt.Sprintf("%d.%d.%d", r.Pipeline, r.Version, r.Node))
			}
			slices.Sort(refs)
			got = append(got, fmt.Sprintf("%d %v %s=%s %v", e.Seq, e.lane, e.Topic, e.Value, refs))
		}
		if !slices.Equal(got, want) {
			rt.Fatalf("put was\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if err := b.store.Close(); err != nil {
			rt.Fatal(err)
		}
	})
}

// TestNoTriggerIsLostOverCrashes: the box is killed again and again while values come, runs end in any order, the cursor follows. Every
// acknowledged value that matches is put at least once, with its version, in order in each life; what was finished or had
// survived in the queue is not put again.
func TestNoTriggerIsLostOverCrashes(t *testing.T) {
	for seed := range uint64(12) {
		r := rand.New(rand.NewPCG(seed, 41))
		b := newBox(t)
		b.store.Hold(1)
		type run struct {
			seq      uint64
			pipeline uint32
		}
		var mu sync.Mutex
		put, finished, survivors := map[run]bool{}, map[run]bool{}, map[run]bool{}
		open := map[run]bool{} // put and not finished
		acked := uint64(0)
		version := uint32(0)
		for life := range 5 {
			mu.Lock()
			cursor := b.store.LastSeq() + 1
			for x := range open {
				cursor = min(cursor, x.seq)
			}
			if life == 0 {
				cursor = 1
			} else if p := b.f.Position(); p+1 < cursor {
				cursor = p + 1
			}
			clear(survivors)
			for x := range open {
				if r.IntN(3) == 0 {
					survivors[x] = true // its frame was durable
				}
			}
			done := map[run]bool{}
			for x := range finished {
				if x.seq >= cursor && r.IntN(4) > 0 { // some marks were not written yet
					done[x] = true
				}
			}
			kept := map[run]bool{}
			for x := range survivors {
				kept[x] = true
			}
			mu.Unlock()
			last := [queue.Lanes]uint64{}
			ends := rand.New(rand.NewPCG(r.Uint64(), 42)) // of the goroutine that puts
			b.sink.onPut = func(lane queue.Lane, e queue.Entry) {
				mu.Lock()
				defer mu.Unlock()
				if e.Seq <= last[lane] {
					t.Errorf("seed %d: sequence %d after %d in lane %v", seed, e.Seq, last[lane], lane)
				}
				last[lane] = e.Seq
				for _, ref := range e.Refs {
					x := run{e.Seq, ref.Pipeline}
					if done[x] || kept[x] {
						t.Errorf("seed %d: %v was put again", seed, x)
					}
					if v := b.versions.At(ref.Pipeline, e.Seq); v != ref.Version {
						t.Errorf("seed %d: %v runs version %d, %d held", seed, x, ref.Version, v)
					}
					put[x] = true
					if ends.IntN(3) == 0 {
						finished[x] = true
						delete(open, x)
					} else {
						open[x] = true
					}
				}
			}
			b.follow(cursor, func(o *trigger.Options) {
				o.Skip = func(seq uint64, pipeline uint32, _ uint16) bool { x := run{seq, pipeline}; return done[x] || kept[x] }
			})
			b.store.Hold(cursor)
			for range 10 + r.IntN(30) {
				number := uint32(1 + r.IntN(3))
				switch r.IntN(8) {
				case 0:
					version++
					b.change(number, plan(number, version, queue.Lane(number-1), node.Values{Filters: []string{"a", "c/#"}}))
				case 1:
					b.change(number, nil)
				case 2:
					if err := b.store.Checkpoint(t.Context()); err != nil {
						t.Fatal(err)
					}
				default:
					b.send("a", "1", "b", "2", "c/d", "3")
					acked = b.store.LastSeq()
				}
			}
			// Sometimes at the end of the log, sometimes somewhere in it.
			if life == 4 || r.IntN(2) == 0 {
				b.caught(false)
			}
			left := b.disk.CrashClone(vfs.CrashCloneCfg{})
			b.stop()
			if err := b.store.Close(); err != nil {
				t.Fatal(err)
			}
			b.disk = left
			onPut := b.sink.onPut
			b.open()
			b.sink.onPut = onPut
			if b.store.LastSeq() < acked {
				t.Fatalf("seed %d: the store lost values", seed)
			}
		}
		for seq := uint64(1); seq <= acked; seq++ {
			if seq%3 == 2 {
				continue // topic b
			}
			for number := uint32(1); number <= 3; number++ {
				if b.versions.At(number, seq) != 0 && !put[run{seq, number}] {
					t.Errorf("seed %d: sequence %d was acknowledged and never put for pipeline %d", seed, seq, number)
				}
			}
		}
		if len(put) == 0 {
			t.Error("nothing was put")
		}
		if err := b.store.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// fakeLog hands out one group again and again.
type fakeLog struct {
	group []historian.Sample
	n     int
}

func (l *fakeLog) LastSeq() uint64 { return 0 }

func (l *fakeLog) ReadLog(ctx context.Context, from uint64, fn func([]historian.Sample) error) error {
	for range l.n {
		if err := fn(l.group); err != nil {
			return err
		}
	}
	return context.Canceled
}

type nothing struct{}

func (nothing) Put(context.Context, queue.Lane, queue.Entry) error { return nil }

// BenchmarkFollower is what a value costs: one nobody wants, one that a pipeline wants, and one that is held back by on: change.
func BenchmarkFollower(b *testing.B) {
	for _, c := range []struct {
		name string
		v    node.Values
	}{
		{"unwanted", node.Values{Filters: []string{"other"}}},
		{"wanted", node.Values{Filters: []string{"#"}}},
		{"unchanged", node.Values{Filters: []string{"#"}, On: "change"}},
	} {
		b.Run(c.name, func(b *testing.B) {
			known := topics{}
			log := &fakeLog{n: b.N / 512}
			for i := range 512 {
				id := historian.Series(i%100 + 1)
				known.add(id, "main", fmt.Sprintf("line/%d", i%100))
				log.group = append(log.group, historian.Sample{Series: id, Seq: uint64(i + 1), Received: 1, Value: historian.Value{Kind: historian.Decimal, Mant: 2150, Exp: 2}})
			}
			held := &versions{holds: []definition.Change{change(1, 1, plan(1, 1, queue.Normal, c.v))}}
			f, err := trigger.New(trigger.Options{Log: log, Sink: nothing{}, Topics: known, Versions: held})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			b.ResetTimer()
			_ = f.Run(context.Background())
		})
	}
}
