package history

import (
	"encoding/binary"
	"math"
)

// spans are the lowest and highest number of runs of an hour, by kind: where a run may lie whose hour nobody knows.
type spans [3]struct{ low, high uint64 }

var spanKinds = [3]byte{ByValue, BySchedule, Fresh}

func newSpans() *spans {
	var s spans
	for i := range s {
		s[i].low = math.MaxUint64
	}
	return &s
}

// add widens the span; false when it held the run already.
func (s *spans) add(id RunID) (grown bool) {
	for i, kind := range spanKinds {
		if kind == id.Kind && (id.N < s[i].low || id.N > s[i].high) {
			s[i].low, s[i].high, grown = min(s[i].low, id.N), max(s[i].high, id.N), true
		}
	}
	return grown
}

func (s *spans) holds(id RunID) bool {
	for i, kind := range spanKinds {
		if kind == id.Kind {
			return id.N >= s[i].low && id.N <= s[i].high
		}
	}
	return false
}

func (s *spans) append(dst []byte) []byte {
	for i := range s {
		dst = binary.BigEndian.AppendUint64(dst, s[i].low)
		dst = binary.BigEndian.AppendUint64(dst, s[i].high)
	}
	return dst
}

// span is that of an hour. The lock is held.
func (s *Store) span(hour uint32) *spans {
	r := s.ranges[hour]
	if r == nil {
		r = newSpans()
		s.ranges[hour] = r
	}
	return r
}

func (s *Store) openRanges() error {
	var fault error
	err := s.records.Scan([]byte{rangePrefix}, func(key, value []byte) bool {
		if len(key) != 5 || len(value) != 48 {
			fault = errRow
			return false
		}
		r := newSpans()
		for i := range r {
			r[i].low, r[i].high = binary.BigEndian.Uint64(value[16*i:]), binary.BigEndian.Uint64(value[16*i+8:])
		}
		s.ranges[binary.BigEndian.Uint32(key[1:])] = r
		return true
	})
	if err != nil {
		return err
	}
	return fault
}

// expire deletes the hours that lie wholly past the retention.
func (s *Store) expire() error {
	limit, _ := place(s.o.Now().Add(-s.o.Retention))
	s.flushMu.Lock() // a row of such an hour is not written meanwhile
	defer s.flushMu.Unlock()
	s.mu.Lock()
	any := false
	for hour := range s.ranges {
		if hour < limit {
			any = true
			delete(s.ranges, hour)
		}
	}
	s.mu.Unlock()
	if !any {
		return nil
	}
	// The spans last: they say that there is something to delete.
	for _, prefix := range []byte{runPrefix, detailPrefix, rangePrefix} {
		if err := s.records.DropRange([]byte{prefix}, hourKey(prefix, limit)); err != nil {
			return err
		}
	}
	return nil
}
