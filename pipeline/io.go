package pipeline

import (
	"sync"
	"time"
)

// maxIO is how many calls of nodes that may wait for somebody outside are under way at once.
const maxIO = 512

// io calls blocking nodes, each in a goroutine of its own, so that no worker waits for somebody outside.
type io struct {
	eng *Engine

	mu     sync.Mutex
	active int
	queue  ring[ioCall] // bounded by the slots, times the branches of a run
	spare  []*scratch
	wg     sync.WaitGroup
}

type ioCall struct {
	run  *run
	step int
}

// submit has step i of r called; the lock of r is held and the step is marked as active.
func (p *io) submit(r *run, i int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.active == maxIO {
		p.queue.push(ioCall{r, i})
		return
	}
	p.active++
	p.wg.Go(func() { p.serve(ioCall{r, i}) })
}

func (p *io) serve(c ioCall) {
	p.mu.Lock()
	var s *scratch
	if n := len(p.spare); n > 0 {
		s, p.spare = p.spare[n-1], p.spare[:n-1]
	}
	p.mu.Unlock()
	if s == nil {
		s = p.eng.newScratch()
	}
	for {
		from := time.Now()
		res := s.at(c.run, c.step)
		c.run.mu.Lock()
		p.eng.settle(c.run, c.step, res, time.Since(from))
		if c.run.resting > 0 {
			p.eng.pause(c.run)
		} else {
			p.eng.proceed(c.run)
		}
		p.mu.Lock()
		if p.queue.len() == 0 {
			p.active--
			if len(p.spare) < 16 {
				p.spare = append(p.spare, s)
			}
			p.mu.Unlock()
			return
		}
		c = p.queue.pop()
		p.mu.Unlock()
	}
}
