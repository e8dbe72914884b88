package trigger

import (
	"millrace/pipeline/definition"
)

// load puts the versions in force that hold from the cursor on, each for its sequences.
func (f *Follower) load() {
	var list []*Trigger
	for _, p := range f.o.Versions.List() {
		if v := f.o.Versions.At(p.Number, f.o.From-1); v != 0 {
			list = append(list, f.of(f.o.Versions.Plan(p.Number, v), 0)...)
		}
	}
	for _, c := range f.o.Versions.Since(f.o.From) {
		list = f.changed(list, c)
	}
	f.replace(list)
}

// of gives the triggers of a plan, with filters on paths.
func (f *Follower) of(p *definition.Plan, from uint64) []*Trigger {
	list := Of(p, from)
	if f.o.Namespace == nil {
		return list
	}
	for _, t := range list {
		paths := make([]string, 0, len(t.Filters))
		for _, filter := range t.Filters {
			path, fault := f.o.Namespace.Filter(t.Workspace, filter)
			if fault != "" {
				f.o.Logger.Warn("a filter of a trigger matches nothing", "pipeline", p.ID, "filter", filter, "fault", fault)
				continue
			}
			paths = append(paths, path)
		}
		t.Filters = paths
	}
	return list
}

// Seq begins a change of what is deployed: it gives the sequence from which the change holds, and the follower matches no value at or behind it until
// Settled. It is ShelfOptions.Seq.
func (f *Follower) Seq() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.changing {
		f.settled.Wait()
	}
	f.changing = true
	return max(f.o.Log.LastSeq(), f.matched) + 1
}

// Settled ends a change that Seq began, whether it was made or not.
func (f *Follower) Settled() {
	f.mu.Lock()
	f.changing = false
	f.mu.Unlock()
	f.settled.Broadcast()
}

// Change puts a change in force for the values from c.Seq on; what the old version should still see of a backlog it sees. It is the listener of the shelf.
func (f *Follower) Change(c definition.Change) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.replace(f.changed(f.table.Triggers(), c))
}

// changed gives the triggers after a change. Those of other pipelines stay what they are, with their gates.
func (f *Follower) changed(list []*Trigger, c definition.Change) (next []*Trigger) {
	for _, t := range list {
		if t.Ref.Pipeline == c.Number && (t.To == 0 || t.To > c.Seq) {
			if t.From >= c.Seq {
				continue // never held
			}
			ended := *t
			ended.To = c.Seq
			t = &ended
		}
		next = append(next, t)
	}
	return append(next, f.of(c.New, c.Seq)...)
}

// prune drops triggers that no value to come can start. The lock is held.
func (f *Follower) prune() { f.replace(f.table.Triggers()) }

// replace makes the table anew without what has ended. The lock is held, or nobody else knows f yet.
func (f *Follower) replace(list []*Trigger) {
	kept := make([]*Trigger, 0, len(list))
	f.expires = 0
	f.recount.Store(true)
	for _, t := range list {
		if t.To != 0 && t.To <= f.matched+1 {
			continue
		}
		if t.To != 0 && (f.expires == 0 || t.To < f.expires) {
			f.expires = t.To
		}
		kept = append(kept, t)
	}
	f.table.Replace(kept)
}
