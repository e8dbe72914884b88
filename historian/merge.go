package historian

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

const (
	// mergeSlack is how long after its end an hour is merged: values may be a little late.
	mergeSlack = 2 * time.Minute
	// mergeBytes and mergePlaces bound the checkpoints of one merge, which holds what it makes of them in memory.
	mergeBytes  = 64 << 20
	mergePlaces = 64
)

// mergeDue merges, one group after the other, the checkpoints of hours that are over, until none is left or the store
// ends.
func (s *Store) mergeDue() error {
	return s.mergeBefore(hourOf(s.keep.now.Load() - int64(mergeSlack)))
}

// mergeBefore merges the checkpoints whose newest sample lies before closed.
func (s *Store) mergeBefore(closed int64) error {
	s.keepMu.Lock()
	defer s.keepMu.Unlock()
	for class := range Class(classCount) {
		for {
			select {
			case <-s.stop:
				return nil
			default:
			}
			group, err := s.mergeGroup(class, closed)
			if err != nil || len(group) == 0 {
				if err != nil {
					return err
				}
				break
			}
			if err := s.merge(class, group); err != nil {
				s.m.mergeFailures.Inc()
				return fmt.Errorf("historian: merge checkpoints %d to %d of %s: %w", group[0].ckpt, group[len(group)-1].ckpt, s.dir, err)
			}
		}
	}
	return nil
}

// mergeGroup is the oldest checkpoints of a class, all of them before closed. Oldest first and without a gap, so that what is merged
// arrived before what is not.
func (s *Store) mergeGroup(class Class, closed int64) (group []span, err error) {
	size := uint64(0)
	for _, sp := range s.list.of(class) {
		if sp.to >= closed || len(group) == mergePlaces {
			break
		}
		n, err := s.db.EstimateDiskUsage(appendPlace(nil, spacePartial, class, sp.ckpt), placeEnd(spacePartial, class, sp.ckpt))
		if err != nil {
			return nil, err
		}
		if size += n; len(group) > 0 && size > mergeBytes {
			break
		}
		group = append(group, sp)
	}
	return group, nil
}

// merge turns the chunks of a run of checkpoints into one run of chunks per hour and series, with what the hour amounts to.
func (s *Store) merge(class Class, group []span) (err error) {
	start := time.Now()
	m := &merger{s: s, class: class, ckpt: group[len(group)-1].ckpt, group: group}
	defer func() {
		if err != nil {
			m.abandon()
		}
	}()
	if err := m.gather(); err != nil {
		return err
	}
	paths, err := m.write()
	if err != nil {
		return err
	}
	// Queries that look at the tables from here on have to make sure that their heads are as new as what is merged.
	for {
		up := s.mergedUpTo.Load()
		if up >= m.ckpt || s.mergedUpTo.CompareAndSwap(up, m.ckpt) {
			break
		}
	}
	s.merged.Store(true)
	s.cutMu.RLock()
	defer s.cutMu.RUnlock()
	if len(paths) > 0 {
		old := pebble.KeyRange{Start: appendPlace(nil, spacePartial, class, group[0].ckpt), End: placeEnd(spacePartial, class, m.ckpt)}
		// Pebble puts the new tables in force before it raises the sequence that iterators read at: one that begins in between
		// sees neither the old chunks nor the new.
		s.viewMu.Lock()
		_, err := s.db.IngestAndExcise(context.Background(), paths, nil, nil, old)
		s.viewMu.Unlock()
		if err != nil {
			return err
		}
	}
	if err := s.report.failure(); err != nil {
		return err
	}
	s.list.take(func(sp span) bool { return sp.class == class && sp.ckpt <= m.ckpt })
	if err := s.forgetSpans(group); err != nil {
		return err
	}
	s.m.merged.Add(float64(m.samples))
	s.m.mergeSeconds.Observe(time.Since(start).Seconds())
	s.log.Debug("merged", "class", class, "checkpoints", len(group), "values", m.samples, "octets", m.octets, "took", time.Since(start))
	return nil
}

// merger makes the tables of one merge.
type merger struct {
	s     *Store
	class Class
	ckpt  uint32 // of what it makes: the last one of the group
	group []span

	entries []mergedEntry
	arena   []byte
	key     []byte
	value   []byte
	samples int
	octets  int
	tables  []*table
	window  []Sample
	check   []Sample
	t       tally
}

// mergedEntry is a chunk or a tally with its key. C and A sort apart.
type mergedEntry struct {
	key        []byte
	value      []byte
	hour       int64
	series     Series
	aggregated bool
}

// gather reads the chunks series by series, those of one series in the order of their checkpoints, which is the order in which
// their samples arrived.
func (m *merger) gather() (err error) {
	if err := m.s.enter(); err != nil {
		return err
	}
	defer m.s.inUse.Done()
	var its []*pebble.Iterator
	defer func() {
		for _, it := range its {
			err = errors.Join(err, it.Close())
		}
	}()
	for _, sp := range m.group {
		it, err := m.s.db.NewIter(&pebble.IterOptions{
			LowerBound: appendPlace(nil, spacePartial, m.class, sp.ckpt), UpperBound: placeEnd(spacePartial, m.class, sp.ckpt)})
		if err != nil {
			return err
		}
		its = append(its, it)
		it.First()
	}
	pace := newPace(m.s.stop)
	for {
		pace.rest()
		next, any := Series(0), false
		for _, it := range its {
			if err := it.Error(); err != nil {
				return err
			}
			if !it.Valid() {
				continue
			}
			id, ok := chunkKeySeries(it.Key())
			if !ok {
				return fmt.Errorf("chunk key %x: %w", it.Key(), errCorrupt)
			}
			if !any || id < next {
				next, any = id, true
			}
		}
		if !any {
			return nil
		}
		if err := m.gatherSeries(its, next); err != nil {
			return fmt.Errorf("series %d: %w", next, err)
		}
	}
}

func (m *merger) gatherSeries(its []*pebble.Iterator, id Series) error {
	m.window = m.window[:0]
	gone := m.s.group.gone(id)
	for _, it := range its {
		for ; it.Valid(); it.Next() {
			if got, _ := chunkKeySeries(it.Key()); got != id {
				break
			}
			if gone {
				continue
			}
			value, err := it.ValueAndErr()
			if err != nil {
				return err
			}
			if m.window, err = decodeChunk(value, id, m.window); err != nil {
				return fmt.Errorf("chunk %x: %w", it.Key(), err)
			}
		}
		if err := it.Error(); err != nil {
			return err
		}
	}
	sortSamples(m.window)
	m.samples += len(m.window)
	return m.cutSeries(id, m.window)
}

// cutSeries makes the chunks and tallies of one series. Each chunk is read back and held against what it was made of before
// anything is deleted.
func (m *merger) cutSeries(id Series, rest []Sample) (err error) {
	for len(rest) > 0 {
		hour := hourOf(rest[0].Time)
		m.t.reset()
		part, first := uint16(0), rest[0].Time
		for len(rest) > 0 && hourOf(rest[0].Time) == hour {
			if rest[0].Time != first {
				part, first = 0, rest[0].Time
			}
			n := chunkEnd(rest)
			m.key = appendMergedKey(m.key[:0], m.class, hour, id, m.ckpt, rest[0].Time, part)
			m.value = encodeChunk(m.value[:0], rest[:n])
			if m.check, err = decodeChunk(m.value, id, m.check[:0]); err != nil || !slices.EqualFunc(m.check, rest[:n], sameSample) {
				return fmt.Errorf("a merged chunk does not read back as it was written: %w", errors.Join(err, errCorrupt))
			}
			m.keep(m.key, m.value, hour, id, false)
			for i := range rest[:n] {
				m.t.add(&rest[i])
			}
			part++
			rest = rest[n:]
		}
		m.key = appendTallyKey(m.key[:0], m.class, hour, id, m.ckpt)
		m.value = m.t.appendTo(m.value[:0])
		m.keep(m.key, m.value, hour, id, true)
	}
	return nil
}

// keep notes an entry, whose key and value it copies.
func (m *merger) keep(key, value []byte, hour int64, id Series, aggregated bool) {
	m.octets += len(value)
	m.entries = append(m.entries, mergedEntry{key: m.own(key), value: m.own(value), hour: hour, series: id, aggregated: aggregated})
}

// own copies into large blocks, since there may be a million of small entries.
func (m *merger) own(b []byte) []byte {
	const block = 1 << 20
	if len(b) > block/4 {
		return slices.Clone(b)
	}
	if cap(m.arena)-len(m.arena) < len(b) {
		m.arena = make([]byte, 0, block)
	}
	at := len(m.arena)
	m.arena = append(m.arena, b...)
	return m.arena[at:len(m.arena):len(m.arena)]
}

// write makes the tables, one of chunks and one of tallies.
func (m *merger) write() (paths []string, err error) {
	slices.SortFunc(m.entries, func(a, b mergedEntry) int {
		if a.aggregated != b.aggregated {
			if a.aggregated { // A before C
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(a.hour, b.hour), cmp.Compare(a.series, b.series), slices.Compare(a.key, b.key))
	})
	var t *table
	for i := range m.entries {
		e := &m.entries[i]
		if i == 0 || e.aggregated != m.entries[i-1].aggregated {
			name := "hours"
			if e.aggregated {
				name = "tallies"
			}
			if t, err = m.s.createTable(fmt.Sprintf("%08d-%s-%s", m.ckpt, m.class, name), 6, e.aggregated); err != nil {
				return nil, err
			}
			m.tables = append(m.tables, t)
		}
		if err := t.w.Set(e.key, e.value); err != nil {
			return nil, err
		}
	}
	for _, t := range m.tables {
		if err := t.finish(); err != nil {
			return nil, err
		}
		paths = append(paths, t.path)
	}
	return paths, nil
}

func (m *merger) abandon() { m.s.abandonTables(m.tables) }

// sameSample says whether two samples read alike. Seq is not stored in chunks.
func sameSample(a, b Sample) bool {
	return a.Series == b.Series && a.Time == b.Time && a.Scale == b.Scale && a.Quality == b.Quality && a.Stamped == b.Stamped &&
		a.Received == b.Received && a.Value.Kind == b.Value.Kind && a.Value.Equal(b.Value)
}
