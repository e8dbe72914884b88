package historian

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// load brings an opened directory back to where it was: format, series, head rows, and the log behind the
// fence. It writes what a stop may have cut off.
func (s *Store) load() error {
	start := time.Now()
	clean, err := s.loadMeta()
	if err != nil {
		return err
	}
	if err := s.sweepBuild(); err != nil {
		return err
	}
	if err := s.loadHold(); err != nil {
		return s.damaged(err)
	}
	if err := s.loadFence(); err != nil {
		return err
	}
	if err := s.loadSeries(); err != nil {
		return err
	}
	if err := s.loadHeads(); err != nil {
		return err
	}
	if err := s.replay(); err != nil {
		return err
	}
	if err := s.beginKeeping(); err != nil {
		return err
	}
	s.log.Info("open", "dir", s.dir, "clean", clean, "series", s.seriesCount.Load(),
		"replayed", s.logValues.Load(), "sequence", s.applied, "took", time.Since(start))
	return nil
}

// loadMeta checks the format and takes the clean mark away.
func (s *Store) loadMeta() (clean bool, err error) {
	version := uint64(0)
	err = s.scanDB([]byte{spaceMeta}, func(key, value []byte) (bool, error) {
		switch string(key) {
		case metaFormat:
			version, _ = binary.Uvarint(value)
		case metaClean:
			clean = true
		}
		return true, nil
	})
	if err != nil {
		return false, s.claim.Explain(err)
	}
	if err := s.claim.CheckVersion(int(version)); err != nil {
		return false, err
	}
	b := s.db.NewBatch()
	defer b.Close()
	if version != formatVersion {
		err = b.Set([]byte(metaFormat), binary.AppendUvarint(nil, formatVersion), nil)
	}
	if clean {
		err = errors.Join(err, b.Delete([]byte(metaClean), nil))
	}
	if err == nil && !b.Empty() {
		err = b.Commit(pebble.Sync)
	}
	if err = errors.Join(err, s.report.failure()); err != nil {
		return false, s.claim.Explain(err)
	}
	return clean, nil
}

// loadFence reads the last checkpoint and does again what follows from it.
func (s *Store) loadFence() error {
	v, closer, err := s.db.Get(appendHeadKey(nil, fenceSeries))
	if err == nil {
		s.fence, err = readFence(v)
		err = errors.Join(err, closer.Close())
	}
	if err != nil && !errors.Is(err, pebble.ErrNotFound) {
		return s.damaged(err)
	}
	err = s.scanDB([]byte(metaSpan), func(key, value []byte) (bool, error) {
		sp, err := readSpan(key, value)
		s.list.spans = append(s.list.spans, sp)
		return true, err
	})
	if err != nil {
		return s.damaged(err)
	}
	s.list.add(s.fence.spans...)
	s.list.sort()
	if s.fence.ckpt == 0 {
		return nil
	}
	stale, err := s.any(appendLogKey(nil, 0), appendLogKey(nil, s.fence.seq+1))
	if pebble.IsCorruptionError(err) {
		stale, err = true, nil // of what is held, which is met by its reader
	}
	if err != nil {
		return s.damaged(err)
	}
	if stale {
		if err := s.closeSegment(); err != nil {
			return s.damaged(err)
		}
		if err := s.finishCheckpoint(); err != nil {
			return s.claim.Explain(err)
		}
	}
	some, err := s.any([]byte{spaceMerged}, []byte{spaceMerged + 1})
	if err != nil {
		return s.damaged(err)
	}
	s.merged.Store(some)
	return nil
}

// any says whether there is a key with from <= key < to.
func (s *Store) any(from, to []byte) (bool, error) {
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: to})
	if err != nil {
		return false, err
	}
	found := it.First()
	return found, it.Close()
}

func (s *Store) loadSeries() error {
	s.group.next = 1
	s.group.stamps = []int64{0}
	err := s.scanDB([]byte{spaceSeries}, func(key, value []byte) (bool, error) {
		id, ok := idKey(key)
		row, err := readSeriesRow(value)
		if err != nil || !ok || id == 0 || id > maxSeries {
			return false, fmt.Errorf("series %d: %w", id, errors.Join(err, errCorrupt))
		}
		s.heads.bear(id, row.class, row.classes, s.fence.ckpt)
		s.group.next = id + 1
		s.seriesCount.Add(1)
		return true, nil
	})
	if err != nil {
		return s.damaged(err)
	}
	if err := s.loadGone(); err != nil {
		return s.damaged(err)
	}
	s.group.stamps = make([]int64, s.group.next)
	return nil
}

func (s *Store) loadHeads() error {
	var row headRow
	err := s.scanDB([]byte{spaceHead}, func(key, value []byte) (bool, error) {
		id, ok := idKey(key)
		if !ok {
			return false, errCorrupt
		}
		if id == fenceSeries {
			return false, nil
		}
		if err := row.read(value, id); err != nil {
			return false, err
		}
		if s.group.gone(id) {
			return true, nil
		}
		if !s.heads.restore(id, &row) {
			return false, fmt.Errorf("head row of series %d, which has no row: %w", id, errCorrupt)
		}
		s.group.stamps[id] = row.stamp
		return true, nil
	})
	if err != nil {
		return s.damaged(err)
	}
	return nil
}

// restore fills a head from its row.
func (h *heads) restore(id Series, row *headRow) bool {
	sh := h.shard(id)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	hd := sh.at(id)
	if hd == nil {
		return false
	}
	for i := range row.carried {
		hd.open.add(&row.carried[i])
	}
	hd.hasLast = row.hasLast
	if hd.hasLast {
		hd.last = row.last
		hd.last.Value = hd.last.Value.Clone()
	}
	hd.stamp, hd.scale = row.stamp, row.scale
	return true
}

// replay applies the samples behind the fence.
func (s *Store) replay() error {
	s.applied = s.fence.seq
	if err := s.beginLog(); err != nil {
		return s.damaged(err)
	}
	it, err := s.db.NewIter(&pebble.IterOptions{
		LowerBound: appendLogKey(nil, s.fence.seq+1), UpperBound: []byte{spaceLog + 1},
	})
	if err != nil {
		return s.damaged(err)
	}
	var group []Sample
	collect := func(sample *Sample) error {
		group = append(group, *sample) // Raw stays good as long as the log record does
		return nil
	}
	for ok := it.First(); ok; ok = it.Next() {
		value, err := it.ValueAndErr()
		first, isLog := logKeySeq(it.Key())
		switch {
		case err != nil:
		case !isLog || first <= s.applied:
			err = fmt.Errorf("log key %x behind sequence %d: %w", it.Key(), s.applied, errCorrupt)
		default:
			group = group[:0]
			if err = readRecord(value, first, collect); err == nil {
				err = s.replayGroup(group)
			}
		}
		if err != nil {
			return s.damaged(errors.Join(err, it.Close()))
		}
		s.logBytes.Add(int64(len(value)))
	}
	if err := it.Close(); err != nil {
		return s.damaged(err)
	}
	s.group.seq = s.applied
	s.lastSeq.Store(s.applied)
	s.syncedSeq.Store(s.applied)
	s.tail.begin(s.applied)
	return nil
}

// replayGroup applies the samples of one log record.
func (s *Store) replayGroup(group []Sample) error {
	s.heads.touch(group)
	for i := range group {
		sample := &group[i]
		if _, ok := s.heads.apply(sample); !ok {
			if s.group.gone(sample.Series) {
				continue
			}
			return fmt.Errorf("a sample of series %d, which has no row: %w", sample.Series, errCorrupt)
		}
		if !sample.Stamped {
			s.group.stamps[sample.Series] = sample.Time
		}
	}
	s.applied = group[len(group)-1].Seq
	s.logValues.Add(int64(len(group)))
	return nil
}

// touch reads what apply will need of the heads of samples. Devices take turns, so nearly every sample finds
// its head out of the processor's cache, and waiting for that is most of a replay; reads that do not depend on
// each other wait at the same time. Nobody else may use the heads meanwhile.
func (h *heads) touch(samples []Sample) (sum int64) {
	for i := range samples {
		hd := h.shard(samples[i].Series).at(samples[i].Series)
		if hd == nil {
			continue
		}
		sum += hd.last.Time + hd.stamp + hd.open.time
		if b := hd.open.b; len(b) > 0 {
			sum += int64(b[len(b)-1])
		}
	}
	return sum
}

func (s *Store) damaged(err error) error {
	return fmt.Errorf("historian: what %s holds cannot be read (%w): restore a backup", s.dir, err)
}
