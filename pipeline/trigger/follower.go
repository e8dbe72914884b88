package trigger

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"millrace/historian"
	"millrace/pipeline/queue"
	"millrace/pipeline/script"
)

// Follower reads the log and puts into the queue what pipelines want of it. Make one with New; Run is called once, everything else at
// any time by anybody.
type Follower struct {
	o     Options
	table *Table
	m     *metrics
	last  uint64 // the last sequence stored before the start

	// put is the last sequence of which everything was put, was not wanted, or waits in pending or firing.
	put atomic.Uint64
	// waiting counts what is in pending and firing.
	waiting atomic.Int64

	// marks is how many topics the gates remember; recount says that some gates may be gone.
	marks   atomic.Int64
	recount atomic.Bool

	// mu is never held during Put or a call of the log, so that a full queue holds up no deploy.
	mu       sync.Mutex
	settled  *sync.Cond // of changing
	changing bool
	matched  uint64 // the last sequence held against the table
	received int64  // the latest receipt among them
	expires  uint64 // the lowest end of a trigger in the table, 0 = none
	pending  pendings
	firing   map[*pending]struct{} // taken out of pending, not put yet
	wake     chan struct{}         // another value is pending

	// Of the goroutine of Run alone, as are the gates.
	out  []item
	refs []queue.Ref
	json []byte
	dead map[uint32]time.Time // by pipeline, when it was last told of
}

// item is one entry on its way: the refs of one sample in one lane, or a value that was pending.
type item struct {
	sample   int32 // of the group; -1: pending
	lane     queue.Lane
	from, to int // of Follower.refs
	plain    []queue.Ref
	pending  *pending
}

// New makes a follower that knows the versions from o.From on. Its metrics are registered.
func New(o Options) (*Follower, error) {
	if err := o.settle(); err != nil {
		return nil, err
	}
	f := &Follower{o: o, table: NewTable(o.Topics), last: o.Log.LastSeq(), firing: map[*pending]struct{}{}, dead: map[uint32]time.Time{}, wake: make(chan struct{}, 1)}
	f.settled = sync.NewCond(&f.mu)
	f.put.Store(o.From - 1)
	f.matched = o.From - 1
	f.load()
	var err error
	if f.m, err = newMetrics(o.Registry, f); err != nil {
		return nil, err
	}
	return f, nil
}

// Table is the table in force; it is the follower's to change.
func (f *Follower) Table() *Table { return f.table }

// Position is the highest sequence up to which every value was put, was not wanted, or starts nothing. Put has returned for
// all of them.
func (f *Follower) Position() uint64 {
	put := f.put.Load()
	if f.waiting.Load() == 0 {
		return put
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	put = f.put.Load()
	if seq, ok := f.pending.oldest(); ok {
		put = min(put, seq-1)
	}
	for e := range f.firing {
		put = min(put, e.sample.Seq-1)
	}
	return put
}

// Run follows the log until ctx ends or something fails; a log that was shed is told of and read on behind the gap.
func (f *Follower) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var firing sync.WaitGroup
	defer firing.Wait()
	defer cancel(nil)
	firing.Go(func() {
		if err := f.fireLoop(ctx); err != nil {
			cancel(err)
		}
	})
	at := f.put.Load() + 1
	for {
		err := f.o.Log.ReadLog(ctx, at, func(samples []historian.Sample) error { return f.group(ctx, samples) })
		var shed *historian.Shed
		switch {
		case errors.As(err, &shed):
			f.m.shed.Add(float64(shed.To - shed.From + 1))
			f.o.Logger.Warn("values start no runs, because the log could not be read", "error", shed)
			f.o.Shed(shed.From, shed.To)
			f.pass(shed.To)
			at = shed.To + 1
		case context.Cause(ctx) != nil:
			return context.Cause(ctx)
		default:
			return fmt.Errorf("trigger: follow the log from %d: %w", at, err)
		}
	}
}

// pass goes on behind a gap of the log.
func (f *Follower) pass(seq uint64) {
	f.mu.Lock()
	f.matched = seq
	f.mu.Unlock()
	f.put.Store(seq)
}

// group is one call of the log.
func (f *Follower) group(ctx context.Context, samples []historian.Sample) error {
	f.match(ctx, samples)
	if err := ctx.Err(); err != nil {
		return err // a filter may have been cut short
	}
	for i := range f.out {
		x := &f.out[i]
		if x.pending != nil {
			if err := f.putPending(ctx, x.pending); err != nil {
				return err
			}
			continue
		}
		s := &samples[x.sample]
		refs := x.plain
		if refs == nil {
			refs = f.refs[x.from:x.to]
		}
		topic := f.o.Topics.BySeries(s.Series)
		if topic == nil {
			continue // deleted since it was matched
		}
		if err := f.putSample(ctx, x.lane, s, topic.Workspace, topic.Path, refs); err != nil {
			return err
		}
	}
	clear(f.out)
	f.put.Store(samples[len(samples)-1].Seq)
	return nil
}

// putSample puts one entry. Its memory is used again afterwards.
func (f *Follower) putSample(ctx context.Context, lane queue.Lane, s *historian.Sample, workspace, topic string, refs []queue.Ref) error {
	f.json = s.Value.AppendJSON(f.json[:0])
	return f.send(ctx, lane, s, workspace, topic, f.json, refs)
}

func (f *Follower) send(ctx context.Context, lane queue.Lane, s *historian.Sample, workspace, topic string, json []byte, refs []queue.Ref) error {
	err := f.o.Sink.Put(ctx, lane, queue.Entry{
		Kind: queue.Value, Seq: s.Seq, Workspace: workspace, Topic: topic,
		Time: s.Time, Scale: s.Scale, Quality: uint8(s.Quality), Hops: s.Hops, Value: json, Refs: refs,
	})
	if err != nil {
		return fmt.Errorf("trigger: put sequence %d: %w", s.Seq, err)
	}
	f.m.entries.Inc()
	f.m.runs.Add(float64(len(refs)))
	return nil
}

// match holds a group against the table and the gates, and leaves in f.out what is to be put.
func (f *Follower) match(ctx context.Context, samples []historian.Sample) {
	f.out, f.refs = f.out[:0], f.refs[:0]
	now := f.o.Now().UnixNano()
	f.mu.Lock()
	for f.changing {
		f.settled.Wait()
	}
	f.mu.Unlock()
	if f.recount.Swap(false) {
		f.countMarks()
	}
	// From here on a change may come at any moment: it holds from behind these samples, so that either table gives the same.
	matched, received := 0, int64(0)
	for i := range samples {
		s := &samples[i]
		received = max(received, s.Received)
		set := f.table.Match(s.Series)
		if len(set.Triggers) == 0 {
			continue
		}
		matched++
		if set.plain && s.Seq >= set.from && s.Seq > f.last && s.Hops < MaxHops {
			for lane, refs := range set.refs {
				if len(refs) > 0 {
					f.out = append(f.out, item{sample: int32(i), lane: queue.Lane(lane), plain: refs})
				}
			}
			continue
		}
		f.matchEach(ctx, int32(i), s, set, now)
	}
	f.m.values.Add(float64(len(samples)))
	f.m.matched.Add(float64(matched))
	f.mu.Lock()
	defer f.mu.Unlock()
	f.matched = samples[len(samples)-1].Seq
	f.received = max(f.received, received)
	// By the clock of the log, so that a backlog is debounced like values that come live.
	for e := f.pending.first(); e != nil && e.due <= f.received; e = f.pending.first() {
		f.takeOut(e)
		f.out = append(f.out, item{sample: -1, pending: e})
	}
	if f.expires != 0 && f.expires <= f.matched {
		f.prune()
	}
}

// countMarks counts what the gates in force remember.
func (f *Follower) countMarks() {
	counted, n := map[*gate]bool{}, 0
	for _, t := range f.table.Triggers() {
		if t.gate != nil && !counted[t.gate] {
			counted[t.gate] = true
			n += len(t.gate.marks)
		}
	}
	f.marks.Store(int64(n))
}

// matchEach holds one sample against each trigger of its set.
func (f *Follower) matchEach(ctx context.Context, i int32, s *historian.Sample, set *Set, now int64) {
	topic := f.o.Topics.BySeries(s.Series)
	if topic == nil {
		return
	}
	var scope *script.Scope
	scoped := func() *script.Scope {
		if scope == nil {
			scope = scopeOf(topic, s)
		}
		return scope
	}
	for lane := range queue.Lanes {
		from := len(f.refs)
		for _, t := range set.Triggers {
			if t.Lane != lane || !t.holds(s.Seq) {
				continue
			}
			if s.Hops >= MaxHops {
				f.bury(topic.Path, s.Seq, t.Ref)
				continue
			}
			wait := false
			if g := t.gate; g != nil {
				answer, err := g.judge(ctx, s, now, scoped, func() { f.remember(g) })
				if answer != passed {
					f.m.held[answer].Inc()
				}
				if err != nil {
					f.o.Logger.Warn("the filter of a trigger took too long and is not asked for a while: its values start nothing",
						"pipeline", t.Ref.Pipeline, "topic", topic.Path, "error", err)
				}
				if answer != passed && answer != waits {
					continue
				}
				wait = answer == waits
			}
			// Behind the gate, which has to know of it.
			if s.Seq <= f.last && f.o.Skip(s.Seq, t.Ref.Pipeline, t.Ref.Node) {
				f.m.skipped.Inc()
				if wait {
					f.mu.Lock()
					f.supersede(t, s)
					f.mu.Unlock()
				}
				continue
			}
			if wait {
				f.debounce(t, s, topic.Workspace, topic.Path)
				continue
			}
			f.refs = append(f.refs, t.Ref)
		}
		if len(f.refs) > from {
			f.out = append(f.out, item{sample: i, lane: lane, from: from, to: len(f.refs)})
		}
	}
}

// remember counts one more topic that a gate remembers, and forgets another one when that is too many.
func (f *Follower) remember(g *gate) {
	if f.marks.Load() >= int64(f.o.MaxMarks) && g.forgetOne() {
		f.m.evicted.Inc()
		return
	}
	f.marks.Add(1)
}

// bury counts a value with too many hops.
func (f *Follower) bury(topic string, seq uint64, ref queue.Ref) {
	f.m.dead.Inc()
	now := f.o.Now()
	if at, ok := f.dead[ref.Pipeline]; ok && now.Sub(at) < time.Second && now.Sub(at) >= 0 {
		return
	}
	f.dead[ref.Pipeline] = now
	f.o.Logger.Warn("a value came through too many derivations and starts nothing: pipelines feed each other in a circle",
		"pipeline", ref.Pipeline, "topic", topic, "hops", MaxHops)
	f.o.Dead(Dead{topic, seq, ref})
}
