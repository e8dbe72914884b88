package historian

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// carryBytes keeps a series of few but large samples from being carried again and again.
const carryBytes = 4 << 10

// Checkpoint moves what the heads hold into chunks now and drops the log up to there. Values are taken
// meanwhile. When ctx has ended it does nothing; once begun, it runs to its end.
func (s *Store) Checkpoint(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.enter(); err != nil {
		return err
	}
	defer s.inUse.Done()
	return s.checkpoint()
}

// checkpointLoop makes the checkpoints that the log's size and age ask for.
func (s *Store) checkpointLoop() {
	for {
		select {
		case <-s.stop:
			return
		case <-s.wakeCheckpoint:
		}
		if err := s.checkpoint(); err != nil {
			s.m.checkpointFailures.Inc()
			s.log.Error("checkpoint failed; the log keeps growing until one succeeds", "dir", s.dir, "error", err)
		}
	}
}

// checkpoint is one at a time: it draws a line behind the last applied group, writes what lies before the line
// into tables, ingests those with the fence, and drops the log up to the line.
func (s *Store) checkpoint() error {
	s.ckptMu.Lock()
	defer s.ckptMu.Unlock()
	if err := s.report.failure(); err != nil {
		return err
	}
	start := time.Now()
	s.lastCkpt = s.o.Now()

	s.applyMu.Lock()
	line := s.applied
	if line == s.fence.seq {
		s.applyMu.Unlock()
		return nil
	}
	s.heads.gen.Add(1)
	bytes, values := s.logBytes.Load(), s.logValues.Load()
	s.applyMu.Unlock()

	s.cutMu.RLock()
	defer s.cutMu.RUnlock()
	w := newSealWriter(s, fence{ckpt: s.fence.ckpt + 1, seq: line})
	moved, err := s.move(w)
	if err != nil {
		w.abandon()
		for _, m := range moved {
			s.heads.carry(m.id, true)
		}
		return fmt.Errorf("historian: checkpoint %d of %s: %w", w.fence.ckpt, s.dir, err)
	}
	s.held.segments = append(s.held.segments, segment{from: s.fence.seq + 1, to: line, bytes: bytes})
	// First the list, then the heads: a query that no longer finds samples in a head finds them in a chunk.
	s.fence = w.fence
	s.list.add(w.fence.spans...)
	for _, m := range moved {
		if m.sealed {
			s.heads.seal(m.id, w.fence.ckpt)
		} else {
			s.heads.carry(m.id, false)
		}
	}
	s.logBytes.Add(-bytes)
	s.logValues.Add(-values)
	if err := s.finishCheckpoint(); err != nil {
		return fmt.Errorf("historian: checkpoint %d of %s: drop the log: %w", w.fence.ckpt, s.dir, err)
	}
	s.m.checkpoints.Inc()
	s.m.checkpointSeconds.Observe(time.Since(start).Seconds())
	s.log.Debug("checkpoint", "number", w.fence.ckpt, "series", len(moved), "values", values, "took", time.Since(start))
	return nil
}

// movedSeries is a series whose sealing the running checkpoint holds.
type movedSeries struct {
	id     Series
	sealed bool // its samples went into chunks; otherwise they are carried
}

// move writes and ingests the tables of a checkpoint. What it returns has to be sealed or carried, also when
// it failed.
func (s *Store) move(w *sealWriter) (moved []movedSeries, err error) {
	s.group.mu.Lock()
	next := s.group.next
	s.group.mu.Unlock()
	for id := Series(1); id < next; id++ {
		set, class := s.heads.forSealing(id)
		if set == nil {
			continue
		}
		few := set.samples.count() < s.o.Checkpoint.CarryBelow && set.samples.size() < carryBytes
		moved = append(moved, movedSeries{id, !few})
		if err := w.add(id, class, set, few); err != nil {
			return moved, err
		}
	}
	// Chunks must not outlive a power cut that takes the row of their series or the samples before them.
	if !s.o.Pebble.SyncWrites {
		if err := s.db.LogData(nil, pebble.Sync); err != nil {
			return moved, err
		}
	}
	paths, err := w.finish()
	if err != nil {
		return moved, err
	}
	if err := s.report.failure(); err != nil {
		return moved, err
	}
	if err := s.db.Ingest(context.Background(), paths); err != nil {
		return moved, err
	}
	return moved, s.report.failure()
}

// finishCheckpoint does what follows from the fence. A start does it again, since a stop may have come
// between the two. It is fsynced, because the next checkpoint replaces the fence: were the span rows of this one
// lost after that, nothing would lead to its chunks.
func (s *Store) finishCheckpoint() error {
	b := s.db.NewBatch()
	defer b.Close()
	var key, value []byte
	for _, sp := range s.fence.spans {
		key = appendSpanKey(key[:0], sp.class, sp.ckpt)
		value = sp.append(value[:0])
		if err := b.Set(key, value, nil); err != nil {
			return err
		}
	}
	from, err := s.cut()
	if err != nil {
		return err
	}
	if err := s.addCut(b, from); err != nil {
		return err
	}
	if err := b.Commit(pebble.Sync); err != nil {
		return err
	}
	return s.report.failure()
}

// sortSamples puts samples in order of time, equal times in order of arrival.
func sortSamples(samples []Sample) {
	byTime := func(a, b Sample) int {
		switch {
		case a.Time < b.Time:
			return -1
		case a.Time > b.Time:
			return 1
		}
		return 0
	}
	if !slices.IsSortedFunc(samples, byTime) {
		slices.SortStableFunc(samples, byTime)
	}
}
