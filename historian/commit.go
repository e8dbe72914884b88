package historian

import (
	"bytes"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// maxUnsynced is the most that may be lost to a power cut without syncWrites; to a kill -9 too where there is no ring.
const maxUnsynced = 100 * time.Millisecond

// syncEvery is how long a commit without fsync stays unsynced. With an fsync of up to 50 ms on top it keeps
// the promise of 100 ms.
const syncEvery = 50 * time.Millisecond

// committer turns groups into commits, one at a time, so that the order of commits is that of sequences.
type committer struct {
	s      *Store
	batch  *pebble.Batch
	key    []byte
	value  []byte
	linger *linger
}

// commitLoop ends when the groups are closed and all of them are committed.
func (s *Store) commitLoop() {
	c := &committer{s: s, batch: s.db.NewBatchWithSize(2 * fullBytes), linger: newLinger(&s.o.Pebble)}
	defer c.batch.Close()
	for range s.group.wake {
		c.linger.wait(&s.group)
		c.next()
	}
	c.next() // what joined before the close
}

// next commits what is open.
func (c *committer) next() {
	g := c.s.group.take()
	if g == nil {
		return
	}
	c.linger.measure(g.rec.count(), time.Now())
	err := c.commit(g)
	if err == nil {
		c.s.apply(g)
	}
	// Callers that joined during the commit were not part of the set that fell silent.
	if c.linger.quorum != 0 && c.s.group.callers() > 0 {
		c.linger.forget(&c.s.group)
	}
	// The group's memory is not written to before the next take, which is this goroutine's.
	first, last, rec := g.firstSeq, g.lastSeq, g.rec.bytes()
	c.s.group.release(g, err)
	if err == nil && first != 0 {
		c.s.tail.put(first, last, rec)
	}
}

// commit writes a group as one batch.
func (c *committer) commit(g *group) error {
	s := c.s
	if err := s.report.failure(); err != nil {
		return err
	}
	if err := c.fill(g); err != nil {
		return err
	}
	if c.batch.Empty() {
		c.batch.Reset()
		return nil
	}
	how := pebble.NoSync
	if s.o.Pebble.SyncWrites {
		how = pebble.Sync
	} else if s.ring != nil && !s.ring.put(c.batch.Repr()) {
		how = pebble.Sync // more than the ring holds between two fsyncs
		s.m.ringFull.Inc()
	}
	start := time.Now()
	size := c.batch.Len()
	s.stall.commitBegins()
	err := c.batch.Commit(how)
	s.stall.wrote(s, size)
	if since := s.syncing.Load(); since != 0 && s.stall.ticks()-since > int64(maxUnsynced) {
		// The fsync is slower than the promise allows: these values wait for it.
		s.syncMu.Lock()
		//lint:ignore SA2001 taking the lock is the wait; there is nothing to do under it
		s.syncMu.Unlock() //nolint:staticcheck // only the wait matters
	}
	took := time.Since(start)
	s.stall.commitEnds(s, start, took)
	s.m.writeSeconds.Observe(took.Seconds())
	c.batch.Reset()
	if err != nil {
		s.report.fail(err)
	}
	// Pebble may have met the failure in the background, or reported it and returned nil.
	if err := s.report.failure(); err != nil {
		return err
	}
	if s.ring != nil {
		s.ring.done.Store(s.ring.number)
		if how == pebble.Sync {
			s.ring.release(s.ring.number)
		}
	}
	s.noteCommit(g)
	return nil
}

// fill builds the batch: new series first, so that a reader of the log knows every series it meets.
func (c *committer) fill(g *group) error {
	b := c.batch
	for i := range g.series {
		w := &g.series[i]
		if w.gone {
			if err := c.fillGone(g, w); err != nil {
				return err
			}
			continue
		}
		c.key = appendSeriesKey(c.key[:0], w.id)
		c.value = w.row.append(c.value[:0])
		if err := b.Set(c.key, c.value, nil); err != nil {
			return err
		}
		if w.born {
			c.value = append(c.value[:0], c.key[1:]...)
			c.key = appendNameKey(c.key[:0], string(w.row.name))
			if err := b.Set(c.key, c.value, nil); err != nil {
				return err
			}
		}
	}
	if g.rec.count() > 0 {
		c.key = appendLogKey(c.key[:0], g.firstSeq)
		if err := b.Set(c.key, g.rec.bytes(), nil); err != nil {
			return err
		}
	}
	for i := range g.entries {
		for _, row := range g.entries[i].rows {
			c.key = append(append(c.key[:0], spaceRow), row.Key...)
			var err error
			switch {
			case row.To != nil:
				if bytes.Compare(row.Key, row.To) < 0 { // else there is nothing between them
					err = b.DeleteRange(c.key, append([]byte{spaceRow}, row.To...), nil)
				}
			case row.Late != nil:
				c.value = row.Late(append(c.value[:0], row.Value...))
				err = b.Set(c.key, c.value, nil)
			case row.Value == nil:
				err = b.Delete(c.key, nil)
			default:
				err = b.Set(c.key, row.Value, nil)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// noteCommit publishes how far the log goes.
func (s *Store) noteCommit(g *group) {
	s.m.groups.Inc()
	if n := g.rec.count(); n > 0 {
		s.m.groupValues.Observe(float64(n))
		s.m.values.Add(float64(n))
		s.lastSeq.Store(g.lastSeq)
		s.logBytes.Add(int64(g.rec.len()))
		s.logValues.Add(int64(n))
	}
	if s.o.Pebble.SyncWrites {
		s.syncedSeq.Store(s.lastSeq.Load())
		return
	}
	if s.unsynced.CompareAndSwap(0, s.stall.ticks()) {
		signal(s.wakeSync)
	}
}

// apply puts a committed group into the heads, straight from the slices of the callers, which still wait.
func (s *Store) apply(g *group) {
	s.applyMu.Lock()
	for i := range g.series {
		w := &g.series[i]
		switch {
		case w.born:
			s.heads.bear(w.id, w.row.class, w.row.classes, 0)
		case w.gone:
			s.heads.bury(w.id)
		default:
			s.heads.setClass(w.id, w.row.class)
		}
	}
	late := 0
	for i := range g.entries {
		samples := g.entries[i].samples
		for j := range samples {
			if isLate, _ := s.heads.apply(&samples[j]); isLate {
				late++
			}
		}
	}
	if g.lastSeq != 0 {
		s.applied = g.lastSeq
	}
	s.applyMu.Unlock()
	if late > 0 {
		s.m.late.Add(float64(late))
	}
	for i := range g.series {
		switch {
		case g.series[i].born:
			s.seriesCount.Add(1)
		case g.series[i].gone:
			s.seriesCount.Add(-1)
		}
	}
	if s.logBytes.Load() >= s.o.Checkpoint.LogBytes || s.logValues.Load() >= s.o.Checkpoint.Values {
		signal(s.wakeCheckpoint)
	}
}

// syncLoop bounds how long a commit without fsync may be lost to a power cut.
func (s *Store) syncLoop() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-s.wakeSync:
		}
		timer.Reset(syncEvery)
		select {
		case <-s.stop:
			return
		case <-timer.C:
		}
		s.syncLog()
	}
}

// syncLog fsyncs everything committed before it began.
func (s *Store) syncLog() {
	s.syncMu.Lock()
	defer s.syncMu.Unlock()
	// In this order: what is committed after unsynced is cleared marks it anew.
	s.syncing.Store(s.unsynced.Swap(0))
	defer s.syncing.Store(0)
	seq, commits := s.lastSeq.Load(), uint64(0)
	if s.ring != nil {
		commits = s.ring.done.Load()
	}
	start := time.Now()
	err := s.db.LogData(nil, pebble.Sync)
	if took := time.Since(start); took > slowFsync {
		s.stall.slow(s, start, took)
	}
	if err != nil {
		s.report.fail(err)
	}
	if s.report.failure() == nil {
		if s.ring != nil {
			s.ring.release(commits)
		}
		s.syncedSeq.Store(max(s.syncedSeq.Load(), seq))
	}
}
