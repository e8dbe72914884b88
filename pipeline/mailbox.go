package pipeline

import (
	"sync"

	"millrace/pipeline/queue"
)

// maxTurn is how many runs a worker takes from one mailbox before others get their turn.
const maxTurn = 64

// mailbox keeps the runs of an ordered pipeline, or of one key of it, in the order in which they came: the next one
// begins when the one before it has ended or has handed its last values to their publisher.
type mailbox struct {
	lane queue.Lane
	hash uint32 // chooses the publisher, so that values leave in the order of the runs
	pipe *pipe
	key  string

	mu      sync.Mutex
	runs    ring[*run]
	current *run // began, and keeps the next one from beginning
	queued  bool // a worker has it or will get it
	coming  int  // runs that will be put
}

// put adds a run; true when the mailbox has to be queued.
func (m *mailbox) put(r *run) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.coming--
	m.runs.push(r)
	if m.queued || m.current != nil {
		return false
	}
	m.queued = true
	return true
}

// next takes the run that may begin; nil when there is none, and then the mailbox is no longer the caller's.
func (m *mailbox) next() *run {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.current != nil || m.runs.len() == 0 {
		m.queued = false
		return nil
	}
	m.current = m.runs.pop()
	return m.current
}

// passed lets the run after r begin; true when the mailbox has to be queued for it.
func (m *mailbox) passed(r *run) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.current != r {
		return false
	}
	m.current = nil
	if m.queued || m.runs.len() == 0 {
		return false
	}
	m.queued = true
	return true
}

// blocked says that the run in front holds up those behind it without executing.
func (m *mailbox) blocked() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.current != nil && m.current.hasRow.Load()
}

// reserve announces a run.
func (m *mailbox) reserve() {
	m.mu.Lock()
	m.coming++
	m.mu.Unlock()
}

// occupy makes r, which was announced, the run that the next one waits for.
func (m *mailbox) occupy(r *run) {
	m.mu.Lock()
	m.coming--
	m.current = r
	m.mu.Unlock()
}

// idle says that nothing is in the mailbox.
func (m *mailbox) idle() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.current == nil && m.runs.len() == 0 && !m.queued && m.coming == 0
}

// drain runs what is in a mailbox that came with one slot.
func (e *Engine) drain(m *mailbox, s *scratch) {
	slot := true
	for range maxTurn {
		if !slot {
			if slot = e.lanes.another(m.lane); !slot {
				break // it goes on when a slot is free
			}
		}
		r := m.next()
		if r == nil {
			e.lanes.release(m.lane)
			return
		}
		slot = false
		r.mu.Lock()
		r.slot = true
		counted := !r.uncounted
		r.mu.Unlock()
		if counted {
			e.lanes.start(m.lane)
		}
		e.work(r, s, false)
	}
	if slot {
		e.lanes.release(m.lane)
	}
	e.lanes.begin(m.lane, []item{{box: m}}, 0)
}

// pass lets the run after r begin, once.
func (e *Engine) pass(r *run) {
	if r.box.passed(r) {
		e.lanes.begin(r.lane, []item{{box: r.box}}, 0)
	}
}
