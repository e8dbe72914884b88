package uns

import (
	"fmt"
	"sync/atomic"
)

// Source is whoever sends: its rate bucket and its counters. One per client id, shared by its sessions; lives as long
// as the Ingress. Safe for concurrent use.
type Source struct {
	Client string

	bucket bucket
	// over is the refusal of a value above the rate, made once: a flood of them must cost nothing.
	over   Verdict
	counts [reasons]atomic.Uint64
	// What does not show in verdicts.
	late, duplicate, gaps, gapNS atomic.Uint64
}

func newSource(client string, perSec int) *Source {
	s := &Source{Client: client}
	s.bucket.set(perSec)
	s.over = Verdict{RateLimited, fmt.Sprintf("client %s sends more than %d values a second", clip([]byte(client)), perSec)}
	return s
}

// Refused returns how many messages of this source were refused, by reason, since start. Reasons that never came are
// left out. The map is the caller's.
func (s *Source) Refused() map[string]uint64 {
	m := make(map[string]uint64)
	for r := Cleared + 1; r < reasons; r++ {
		if n := s.counts[r].Load(); n > 0 {
			m[r.String()] = n
		}
	}
	return m
}

// Duplicate notes a message that was stored before and sent again: it never reaches Accept.
func (s *Source) Duplicate() { s.duplicate.Add(1) }

// Accepted returns how many messages of this source were stored since start.
func (s *Source) Accepted() uint64 { return s.counts[Stored].Load() }
