package history

import (
	"math/bits"
	"time"
)

// ringSize is how many runs of a pipeline are kept in memory with everything their nodes got and gave; ringBytes is how
// much of that a pipeline may hold, allBytes all of them.
const (
	ringSize  = 20
	ringBytes = 256 << 10
	allBytes  = 64 << 20
)

// tally is what is kept of one pipeline in memory.
type tally struct {
	ring  [ringSize]*Run
	sizes [ringSize]int
	next  int
	bytes int

	counts [statuses]uint64
	total  time.Duration
	most   time.Duration
	spread spread
	rate   rate

	// kept is the successful run that stands for those of its second until that is over.
	second int64
	kept   *Run
}

// remember puts a run into the ring and gives how the octets of the ring changed.
func (p *tally) remember(r *Run, limit int) (grown int) {
	before := p.bytes
	size := r.size()
	if size > limit {
		c := *r
		c.strip()
		r, size = &c, 0
	}
	p.bytes += size - p.sizes[p.next]
	p.ring[p.next], p.sizes[p.next] = r, size
	p.next = (p.next + 1) % ringSize
	// The oldest lose their values first; that they ran stays.
	for i := 0; i < ringSize-1 && p.bytes > limit; i++ {
		at := (p.next + i) % ringSize
		if p.sizes[at] == 0 {
			continue
		}
		c := *p.ring[at]
		c.strip()
		p.ring[at] = &c
		p.bytes -= p.sizes[at]
		p.sizes[at] = 0
	}
	return p.bytes - before
}

// last gives the ring, the newest first, until fn returns false.
func (p *tally) last(fn func(r *Run) bool) {
	for i := range p.ring {
		if r := p.ring[(p.next+ringSize-1-i)%ringSize]; r != nil && !fn(r) {
			return
		}
	}
}

// size is about how many octets the values of a run hold.
func (r *Run) size() (n int) {
	of := func(j JSON) int {
		switch v := j.(type) {
		case nil:
			return 0
		case Raw:
			return len(v)
		case interface{ Size() int }:
			return v.Size()
		}
		return 64
	}
	n = of(r.Trigger.Value)
	for i := range r.Nodes {
		n += of(r.Nodes[i].In) + of(r.Nodes[i].Out) + len(r.Nodes[i].Error)
	}
	for i := range r.Lines {
		n += len(r.Lines[i].Text)
	}
	return n
}

// strip drops the values and lines of a run; its nodes become its own.
func (r *Run) strip() {
	r.Cut, r.Lines, r.Trigger.Value = true, nil, nil
	r.Nodes = append([]NodeRun(nil), r.Nodes...)
	for i := range r.Nodes {
		r.Nodes[i].In, r.Nodes[i].Out = nil, nil
	}
}

// spread counts durations in four classes an octave of microseconds, so that a quantile is right within an eighth.
type spread struct{ n [128]uint32 }

func (s *spread) add(d time.Duration) {
	us := uint64(max(d, 0).Microseconds())
	i := int(us)
	if us >= 4 {
		octave := bits.Len64(us) - 1
		i = octave*4 - 4 + int(us>>(octave-2)&3)
	}
	s.n[min(i, len(s.n)-1)]++
}

// quantile is the middle of the class in which the q-th part of all durations lies.
func (s *spread) quantile(q float64) time.Duration {
	var all uint64
	for _, n := range s.n {
		all += uint64(n)
	}
	if all == 0 {
		return 0
	}
	want, sum := uint64(q*float64(all-1)), uint64(0)
	for i, n := range s.n {
		if sum += uint64(n); sum > want {
			if i < 4 {
				return time.Duration(i) * time.Microsecond
			}
			octave := i/4 + 1
			low := (uint64(4) | uint64(i&3)) << (octave - 2)
			return time.Duration(low+(uint64(1)<<(octave-2))/2) * time.Microsecond
		}
	}
	return 0
}

// rate counts runs in spans of ten seconds, for the last minute.
type rate struct {
	n    [7]uint32
	span int64
}

const rateSpan = 10

func (r *rate) at(now time.Time) {
	span := now.Unix() / rateSpan
	if span < r.span || span-r.span >= int64(len(r.n)) {
		*r = rate{span: span}
	}
	for ; r.span < span; r.span++ {
		r.n[(r.span+1)%int64(len(r.n))] = 0
	}
}

func (r *rate) add(now time.Time) {
	r.at(now)
	r.n[r.span%int64(len(r.n))]++
}

// perSecond is over the last whole minute.
func (r *rate) perSecond(now time.Time) float64 {
	r.at(now)
	sum := uint32(0)
	for i, n := range r.n {
		if int64(i) != r.span%int64(len(r.n)) {
			sum += n
		}
	}
	return float64(sum) / (rateSpan * float64(len(r.n)-1))
}

// Stats is what a pipeline did since the start of the box; the rate is over the last minute.
type Stats struct {
	Runs        map[string]uint64 // by status
	Total, Most time.Duration
	P50, P99    time.Duration
	PerSecond   float64
}

// Stats counts the runs of a pipeline since the start.
func (s *Store) Stats(pipeline uint32) Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Stats{Runs: make(map[string]uint64, statuses)}
	p := s.pipes[pipeline]
	if p == nil {
		p = &tally{}
	}
	for i, n := range p.counts {
		st.Runs[Status(i).String()] = n
	}
	st.Total, st.Most = p.total, p.most
	st.P50, st.P99, st.PerSecond = p.spread.quantile(.5), p.spread.quantile(.99), p.rate.perSecond(s.o.Now())
	return st
}

// Ring gives the last runs of a pipeline, newest first, with all that their nodes got and gave.
func (s *Store) Ring(pipeline uint32) []Run {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pipes[pipeline]
	if p == nil {
		return nil
	}
	list := make([]Run, 0, ringSize)
	p.last(func(r *Run) bool { list = append(list, *r); return true })
	return list
}

// Forget drops what memory holds of a pipeline that is deleted; its rows stay until their time.
func (s *Store) Forget(pipeline uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.pipes[pipeline]; p != nil {
		if p.kept != nil {
			s.queue(p.kept)
		}
		s.bytes -= p.bytes
		delete(s.pipes, pipeline)
	}
}
