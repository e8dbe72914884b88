package trigger

import (
	"context"
	"time"

	"millrace/historian"
	"millrace/pipeline/queue"
)

// fireEvery is how often pending values are looked at while the log has not been read to its end.
const fireEvery = 100 * time.Millisecond

// debounce makes s the value that waits for its topic to be quiet.
func (f *Follower) debounce(t *Trigger, s *historian.Sample, workspace, topic string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.supersede(t, s)
	if len(f.pending.heap) >= f.o.MaxPending {
		// The one that is due first goes early.
		f.m.early.Inc()
		e := f.pending.first()
		f.takeOut(e)
		f.out = append(f.out, item{sample: -1, pending: e})
	}
	e := &pending{pendingKey: pendingKey{t.gate, s.Series}, ref: t.Ref, lane: t.Lane, due: due(s.Received, t.Values.Debounce), sample: *s, workspace: workspace, topic: topic}
	e.sample.Value = s.Value.Clone()
	f.pending.put(e)
	f.waiting.Add(1)
	if f.pending.first() == e {
		select {
		case f.wake <- struct{}{}:
		default:
		}
	}
}

// supersede takes what waits for the topic of s away: it starts a run if its topic had been quiet by then, else s takes its place. The lock is held.
func (f *Follower) supersede(t *Trigger, s *historian.Sample) {
	e := f.pending.get(pendingKey{t.gate, s.Series})
	switch {
	case e == nil:
	case e.due <= s.Received:
		f.takeOut(e)
		f.out = append(f.out, item{sample: -1, pending: e})
	default:
		f.pending.remove(e)
		f.waiting.Add(-1)
	}
}

// takeOut is between pending and the queue. The lock is held.
func (f *Follower) takeOut(e *pending) {
	f.pending.remove(e)
	f.firing[e] = struct{}{}
}

// putPending puts a value that was pending.
func (f *Follower) putPending(ctx context.Context, e *pending) error {
	refs := [1]queue.Ref{e.ref}
	if err := f.send(ctx, e.lane, &e.sample, e.workspace, e.topic, e.sample.Value.AppendJSON(nil), refs[:]); err != nil {
		return err
	}
	f.mu.Lock()
	delete(f.firing, e)
	f.mu.Unlock()
	f.waiting.Add(-1)
	return nil
}

// fireLoop puts pending values whose topics have been quiet for long enough by the wall clock, once the log is read to its end.
func (f *Follower) fireLoop(ctx context.Context) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(f.nextDue())
		tick := f.o.Tick
		if tick == nil {
			tick = timer.C
		}
		select {
		case <-ctx.Done():
			return nil
		case <-f.wake:
			continue
		case <-tick:
		}
		for _, e := range f.takeDue() {
			if err := f.putPending(ctx, e); err != nil {
				return err
			}
		}
	}
}

// nextDue is how long to wait.
func (f *Follower) nextDue() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.pending.first()
	if e == nil {
		return time.Hour
	}
	if left := time.Duration(e.due - f.o.Now().UnixNano()); left > 0 {
		return min(left, time.Hour)
	}
	return fireEvery
}

// takeDue takes what is due by now. While the log has not been read to its end, its own time decides: see match.
func (f *Follower) takeDue() (out []*pending) {
	now, last := f.o.Now().UnixNano(), f.o.Log.LastSeq()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.matched < last {
		return nil
	}
	for e := f.pending.first(); e != nil && e.due <= now; e = f.pending.first() {
		f.takeOut(e)
		out = append(out, e)
	}
	return out
}
