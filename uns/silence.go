package uns

import (
	"math"
	"sync"
	"time"
)

// maxInterval is the longest expected interval that is told from a longer one.
const maxInterval = 366 * 24 * time.Hour

// patience is how many expected intervals may pass without a value before a topic is stale, or its silence a gap.
const patience = 3

// expectedTopics are those that expect a value at an interval.
type expectedTopics struct {
	mu  sync.Mutex
	all map[*Topic]struct{}
}

func (e *expectedTopics) follow(t *Topic, r *rules) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if r.every == 0 {
		delete(e.all, t)
		return
	}
	if e.all == nil {
		e.all = make(map[*Topic]struct{})
	}
	e.all[t] = struct{}{}
}

// Silence says since when a topic gave no value that it should have given: the time at which its newest value became
// older than three times the expected interval, by the time it was received. ok is false for a topic that is in time,
// expects nothing, or never had a value.
func (c *Catalog) Silence(t *Topic, now time.Time) (since time.Time, ok bool) {
	every := t.rules.Load().every
	if every == 0 {
		return time.Time{}, false
	}
	s, ok := c.reader.Latest(t.Series)
	if !ok {
		return time.Time{}, false
	}
	since = time.Unix(0, s.Received).Add(patience * every)
	return since, now.After(since)
}

// StaleTopics counts the topics of all workspaces that Silence says something of. It looks at every topic that expects
// values.
func (c *Catalog) StaleTopics(now time.Time) (n int) {
	c.expected.mu.Lock()
	topics := make([]*Topic, 0, len(c.expected.all))
	for t := range c.expected.all {
		topics = append(topics, t)
	}
	c.expected.mu.Unlock()
	for _, t := range topics {
		if _, stale := c.Silence(t, now); stale {
			n++
		}
	}
	return n
}

// recall finds out how far a topic had come before this process followed it.
func (c *Catalog) recall(t *Topic) {
	newest := int64(math.MinInt64) // none: nothing is late against it, and no gap begins there
	if s, ok := c.reader.Latest(t.Series); ok {
		newest = s.Time
	}
	t.newest.CompareAndSwap(0, newest)
}

// follow notes how far the topics of a stored batch have come, what was late and what silence has ended.
func (in *Ingress) follow(b *Batch) {
	for i := range b.Messages {
		m := &b.Messages[i]
		if m.At < 0 || m.Topic == nil {
			continue
		}
		before := m.Topic.newest.Load()
		if before == 0 {
			continue
		}
		s := &b.Samples[m.At]
		for s.Time > before && !m.Topic.newest.CompareAndSwap(before, s.Time) {
			before = m.Topic.newest.Load()
		}
		if before == math.MinInt64 {
			continue
		}
		every := m.Topic.rules.Load().every
		switch silent := s.Time - before; {
		case silent < 0:
			if s.Stamped {
				in.metrics.late.Add(1)
				if m.Source != nil {
					m.Source.late.Add(1)
				}
			}
		case every > 0 && silent > patience*int64(every):
			in.metrics.gaps.Add(1)
			if m.Source != nil {
				m.Source.gaps.Add(1)
				m.Source.gapNS.Add(uint64(silent - int64(every)))
			}
		}
	}
}
