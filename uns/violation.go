package uns

import (
	"sync"
	"sync/atomic"
	"time"
)

// Violation is a value that a topic's rules did not take as it came: refused, or stored as uncertain.
type Violation struct {
	Time    time.Time // of the box's clock
	Client  string    // who sent it; "" is the box itself
	Reason  Reason    // Stored: kept with quality uncertain, by a soft schema
	Detail  string    // field, found, wanted
	Payload string    // its beginning, printable
}

// What is kept of the violations: enough to see what a device does wrong. Beyond maxViolated topics of a workspace they
// are counted and no longer listed.
const (
	keptViolations = 8
	maxViolated    = 4096
	maxShownDetail = 256
)

// violations belong to one topic. They live in memory: the ledger keeps counts, and a device that is wrong is wrong again.
type violations struct {
	count atomic.Uint64
	mu    sync.Mutex
	last  [keptViolations]Violation
	n     int // ever kept
}

// Violations returns how many values of the topic were not taken as they came since start, and the last of them, newest
// first. The slice is the caller's.
func (t *Topic) Violations() (count uint64, last []Violation) {
	v := t.violated.Load()
	if v == nil {
		return 0, nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for i := range min(v.n, keptViolations) {
		last = append(last, v.last[(v.n-1-i)%keptViolations])
	}
	return v.count.Load(), last
}

// violates tells whether a verdict is about what the payload says, rather than about who may send how much.
func (v Verdict) violates() bool { return v.Reason >= PayloadInvalid && v.Reason <= TimestampTooOld }

// violated notes what a topic's rules did not take.
func (c *Catalog) violated(m *Message, v Verdict, now time.Time) {
	t := m.Topic
	kept := t.violated.Load()
	if kept == nil {
		kept = &violations{}
		if n := c.violatedTopics.Add(1); n > maxViolated {
			c.violatedTopics.Add(-1)
			return
		}
		if !t.violated.CompareAndSwap(nil, kept) {
			c.violatedTopics.Add(-1)
			kept = t.violated.Load()
		}
	}
	kept.count.Add(1)
	one := Violation{Time: now, Reason: v.Reason, Detail: v.Detail, Payload: clip(m.Payload)}
	if len(one.Detail) > maxShownDetail {
		one.Detail = one.Detail[:maxShownDetail] + "…"
	}
	if m.Source != nil {
		one.Client = m.Source.Client
	}
	kept.mu.Lock()
	kept.last[kept.n%keptViolations] = one
	kept.n++
	kept.mu.Unlock()
}
