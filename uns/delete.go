package uns

import (
	"context"
	"slices"
)

// Delete ends a topic with its history, its retained value and its settings, durably. ok is false when there is no such topic.
// purge: what it leaves goes off the disk within minutes. A value that comes afterwards makes the topic anew.
func (c *Catalog) Delete(ctx context.Context, t *Topic, purge bool) (ok bool, err error) {
	t.change.Lock()
	defer t.change.Unlock()
	if t.gone.Load() {
		return false, nil
	}
	// Out of the catalog first: a value that the series no longer takes finds a topic of its own.
	sp := c.spaces[t.Workspace]
	shard := sp.shard(t.Path)
	shard.mu.Lock()
	t.gone.Store(true)
	delete(shard.topics, t.Path)
	shard.mu.Unlock()
	if err := c.store.DeleteSeries(ctx, t.Series, purge); err != nil {
		shard.mu.Lock()
		defer shard.mu.Unlock()
		if shard.topics[t.Path] != nil {
			c.log.Error("a topic could not be deleted, and a new one has its path: its history is out of reach until a restart", "topic", t.Full, "error", err)
			return false, err
		}
		t.gone.Store(false)
		shard.topics[t.Path] = t
		return false, err
	}
	c.series.set(t.Series, nil)
	sp.tree.remove(t)
	sp.count.Add(-1)
	c.expected.forget(t)
	if t.violated.Load() != nil {
		c.violatedTopics.Add(-1)
	}
	if n := t.toggled.Load() >> 1; n > 0 {
		c.stale.add(toggleKey(t.Series, n))
	}
	return true, nil
}

// remove takes a topic out. Views that were handed out keep it.
func (t *tree) remove(x *Topic) {
	old := t.view() // works in what is pending, x among it
	t.merge.Lock()
	defer t.merge.Unlock()
	if now := t.current(); len(now) != len(old) {
		old = now
	}
	i := from(old, x.Path)
	for i < len(old) && old[i] != x && old[i].Path == x.Path {
		i++
	}
	if i < len(old) && old[i] == x {
		all := slices.Delete(slices.Clone(old), i, i+1)
		t.sorted.Store(&all)
	}
}

func (e *expectedTopics) forget(t *Topic) {
	e.mu.Lock()
	delete(e.all, t)
	e.mu.Unlock()
}
