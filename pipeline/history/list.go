package history

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"time"
)

// Query asks for runs of a pipeline with From <= started < To, newest first.
type Query struct {
	Pipeline uint32
	Status   []Status // empty = any
	From, To time.Time
	// After leaves out everything up to and including that run; zero begins with the newest. It stays valid while runs come.
	After After
	Limit int // 1 to 1000, else 100
}

// After is where a page ended.
type After struct {
	Started time.Time
	ID      RunID
}

// List gives rows, newest first, without what their nodes got and gave; and whether there may be more. A success that
// stands for others may still grow while its second lasts.
func (s *Store) List(q Query) (list []Run, more bool, err error) {
	s.show(q.Pipeline)
	if err := s.Flush(); err != nil {
		return nil, false, err
	}
	if q.Limit <= 0 || q.Limit > 1000 {
		q.Limit = 100
	}
	var after []byte
	last := uint32(1<<32 - 1)
	if !q.After.Started.IsZero() {
		after = runKey(q.After.Started, q.After.ID)
		last = binary.BigEndian.Uint32(after[1:])
	}
	for _, hour := range s.hours() {
		if hour > last {
			continue
		}
		if begin := time.Unix(int64(hour)*3600, 0); !q.To.IsZero() && !begin.Before(q.To) || begin.Add(time.Hour).Before(q.From) || begin.Add(time.Hour).Equal(q.From) {
			continue
		}
		var fault error
		err := s.records.Scan(binary.BigEndian.AppendUint32(hourKey(runPrefix, hour), q.Pipeline), func(key, value []byte) bool {
			if after != nil && bytes.Compare(key, after) <= 0 && hour == last {
				return true
			}
			id, started, ok := readRunKey(key)
			if !ok {
				fault = errRow
				return false
			}
			if started.Before(q.From) {
				return false
			}
			if !q.To.IsZero() && !started.Before(q.To) {
				return true
			}
			// The status stands in the second octet; most rows need not be unpacked to be left out.
			if len(value) > 1 && len(q.Status) > 0 && !slices.Contains(q.Status, Status(value[1]&3)) {
				return true
			}
			r, err := readRow(id, started, value)
			if err != nil {
				fault = err
				return false
			}
			list = append(list, *r)
			return len(list) <= q.Limit
		})
		if err = errors.Join(err, fault); err != nil {
			return nil, false, err
		}
		if len(list) > q.Limit {
			return list[:q.Limit], true, nil
		}
	}
	return list, false, nil
}

// hours are those that have rows, the newest first.
func (s *Store) hours() []uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]uint32, 0, len(s.ranges))
	for hour := range s.ranges {
		list = append(list, hour)
	}
	slices.SortFunc(list, func(a, b uint32) int { return int(int64(b) - int64(a)) })
	return list
}

// show queues the kept success of a pipeline as it is, so that a list shows it; it is written again when its second is over.
func (s *Store) show(pipeline uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.pipes[pipeline]; p != nil && p.kept != nil && len(s.pending) < maxPending {
		s.queue(p.kept)
	}
}

// Get is a kept run with all that is kept of it; false when there is none.
func (s *Store) Get(id RunID) (*Run, bool, error) {
	if r := s.inMemory(id); r != nil {
		return r, true, nil
	}
	for _, hour := range s.hours() {
		s.mu.Lock()
		maybe := s.ranges[hour] != nil && s.ranges[hour].holds(id)
		s.mu.Unlock()
		if !maybe {
			continue
		}
		tail := runKey(time.Time{}, id)[13:]
		var r *Run
		var fault error
		err := s.records.Scan(binary.BigEndian.AppendUint32(hourKey(runPrefix, hour), id.Pipeline), func(key, value []byte) bool {
			if !bytes.HasSuffix(key, tail) {
				return true
			}
			_, started, ok := readRunKey(key)
			if r, fault = readRow(id, started, value); !ok {
				fault = errRow
			}
			return false
		})
		if err = errors.Join(err, fault); err != nil {
			return nil, false, err
		}
		if r == nil {
			continue
		}
		d, ok, err := s.records.Get(appendID(hourKey(detailPrefix, hour), id))
		if err == nil && ok {
			err = r.addDetail(d)
		}
		return r, err == nil, err
	}
	return nil, false, nil
}

// inMemory looks among the last runs and those that are not written yet.
func (s *Store) inMemory(id RunID) (found *Run) {
	look := func(r *Run) bool {
		if r != nil && r.ID == id {
			c := *r
			found = &c
		}
		return found == nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.pipes[id.Pipeline]; p != nil {
		p.last(look)
		if found == nil {
			look(p.kept)
		}
	}
	for _, list := range [][]*Run{s.pending, s.writing} {
		for i := 0; i < len(list) && found == nil; i++ {
			look(list[i])
		}
	}
	return found
}
