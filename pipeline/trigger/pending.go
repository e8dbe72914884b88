package trigger

import (
	"container/heap"

	"millrace/historian"
	"millrace/pipeline/queue"
)

// pendingKey is a topic of a debounced trigger.
type pendingKey struct {
	gate   *gate
	series historian.Series
}

// pending is a value that waits for its topic to be quiet. It owns its bytes.
type pending struct {
	pendingKey
	ref              queue.Ref
	lane             queue.Lane
	due              int64
	sample           historian.Sample
	workspace, topic string
	at               int // in the heap
}

// pendings are all of them, the next one due first.
type pendings struct {
	heap []*pending
	by   map[pendingKey]*pending
}

func (p *pendings) Len() int           { return len(p.heap) }
func (p *pendings) Less(i, j int) bool { return p.heap[i].due < p.heap[j].due }
func (p *pendings) Swap(i, j int) {
	p.heap[i], p.heap[j] = p.heap[j], p.heap[i]
	p.heap[i].at, p.heap[j].at = i, j
}

// Push and Pop are container/heap's.
func (p *pendings) Push(x any) {
	e := x.(*pending)
	e.at = len(p.heap)
	p.heap = append(p.heap, e)
}

// Pop takes the last one off.
func (p *pendings) Pop() any {
	n := len(p.heap) - 1
	e := p.heap[n]
	p.heap[n] = nil
	p.heap = p.heap[:n]
	return e
}

// get is what waits for a topic of a trigger.
func (p *pendings) get(k pendingKey) *pending { return p.by[k] }

// put adds e, in the place of one with the same key.
func (p *pendings) put(e *pending) {
	if was := p.by[e.pendingKey]; was != nil {
		p.remove(was)
	}
	if p.by == nil {
		p.by = map[pendingKey]*pending{}
	}
	p.by[e.pendingKey] = e
	heap.Push(p, e)
}

func (p *pendings) remove(e *pending) {
	heap.Remove(p, e.at)
	delete(p.by, e.pendingKey)
}

// first is the next one due, nil if there is none.
func (p *pendings) first() *pending {
	if len(p.heap) == 0 {
		return nil
	}
	return p.heap[0]
}

// oldest is the lowest sequence that waits; ok is false when nothing does.
func (p *pendings) oldest() (seq uint64, ok bool) {
	for _, e := range p.heap {
		if !ok || e.sample.Seq < seq {
			seq, ok = e.sample.Seq, true
		}
	}
	return seq, ok
}
