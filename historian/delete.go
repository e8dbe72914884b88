package historian

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// The value of an X row: version1, flags1.
const (
	goneVersion = 1
	gonePurge   = 1 << 0 // its samples are to be taken off the disk, and have not been yet
)

// DeleteSeries ends a series with all its samples, durably like Append: from then on nobody can read or append to it, and its
// id is never given out again; its name may be. The octets go as the merge and the expiry come by; with purge they are taken
// off the disk within minutes. Samples of the series that are in the same commit are stored and gone.
func (s *Store) DeleteSeries(ctx context.Context, id Series, purge bool) error {
	if err := s.stall.pass(ctx, s); err != nil {
		return err
	}
	s.setMu.Lock()
	defer s.setMu.Unlock()
	if !s.heads.exists(id) {
		// Its row may be in the open group; an empty share waits for that.
		if err := s.group.join(nil, nil, nil); err != nil {
			return err
		}
	}
	row, err := s.readSeries(id)
	if err != nil {
		return err
	}
	s.group.bury(id)
	if err := s.group.join(nil, nil, &seriesWrite{id: id, row: row, gone: true, purge: purge}); err != nil {
		return err
	}
	if purge {
		signal(s.wakeKeep)
	}
	return nil
}

// bury refuses samples of a series from now on.
func (q *groups) bury(id Series) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.dead == nil {
		q.dead = map[Series]struct{}{}
	}
	q.dead[id] = struct{}{}
}

// gone says whether a series was deleted.
func (q *groups) gone(id Series) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, dead := q.dead[id]
	return dead
}

func appendGoneKey(dst []byte, id Series) []byte {
	return binary.BigEndian.AppendUint32(append(dst, spaceGone), uint32(id))
}

// fillGone puts the end of a series into the commit.
func (c *committer) fillGone(g *group, w *seriesWrite) error {
	flags := byte(0)
	if w.purge {
		flags |= gonePurge
	}
	err := errors.Join(
		c.batch.Delete(appendSeriesKey(nil, w.id), nil),
		c.batch.Set(appendGoneKey(nil, w.id), []byte{goneVersion, flags}, nil))
	if taken, fault := c.nameTaken(g, w); fault != nil || taken {
		return errors.Join(err, fault)
	}
	return errors.Join(err, c.batch.Delete(appendNameKey(nil, string(w.row.name)), nil))
}

// nameTaken says whether the name of a series that ends leads to another by now.
func (c *committer) nameTaken(g *group, w *seriesWrite) (bool, error) {
	for i := range g.series {
		if o := &g.series[i]; o.born && bytes.Equal(o.row.name, w.row.name) {
			return true, nil
		}
	}
	v, closer, err := c.s.db.Get(appendNameKey(nil, string(w.row.name)))
	if errors.Is(err, pebble.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	taken := len(v) != 4 || Series(binary.BigEndian.Uint32(v)) != w.id
	return taken, closer.Close()
}

// bury takes the head of a series away.
func (h *heads) bury(id Series) {
	sh := h.shard(id)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if hd := sh.at(id); hd != nil {
		*hd = head{}
	}
}

// loadGone reads which series were deleted.
func (s *Store) loadGone() error {
	return s.scanDB([]byte{spaceGone}, func(key, value []byte) (bool, error) {
		id, ok := idKey(key)
		if !ok || len(value) != 2 || value[0] != goneVersion {
			return false, fmt.Errorf("deleted series %d: %w", id, errCorrupt)
		}
		s.group.bury(id)
		s.group.next = max(s.group.next, id+1)
		return true, nil
	})
}

// purgeDue takes the samples of deleted series off the disk, one series after the other.
func (s *Store) purgeDue() error {
	var due []Series
	err := s.scanDB([]byte{spaceGone}, func(key, value []byte) (bool, error) {
		if id, ok := idKey(key); ok && len(value) == 2 && value[1]&gonePurge != 0 {
			due = append(due, id)
		}
		return true, nil
	})
	for _, id := range due {
		if err == nil {
			err = s.purge(id)
		}
	}
	if err != nil {
		return fmt.Errorf("historian: purge in %s: %w", s.dir, err)
	}
	return nil
}

// purge deletes what is left of a series and rewrites the tables that held it.
func (s *Store) purge(id Series) error {
	s.keepMu.Lock()
	defer s.keepMu.Unlock()
	// What is still on its way into chunks must not come after the deletion.
	if err := s.checkpoint(); err != nil {
		return err
	}
	ranges, err := s.placesOf(id)
	if err != nil {
		return err
	}
	b := s.db.NewBatch()
	defer b.Close()
	for _, r := range ranges {
		if err := b.DeleteRange(r.Start, r.End, nil); err != nil {
			return err
		}
	}
	if err := b.Commit(pebble.Sync); err != nil {
		return err
	}
	for _, r := range ranges {
		select {
		case <-s.stop:
			return nil // the next start goes on
		default:
		}
		if err := s.db.Compact(context.Background(), r.Start, r.End, false); err != nil {
			return err
		}
	}
	s.log.Info("a deleted series is off the disk", "dir", s.dir, "series", id, "places", len(ranges))
	return s.db.Set(appendGoneKey(nil, id), []byte{goneVersion, 0}, pebble.Sync)
}

// placesOf finds where samples of a series lie.
func (s *Store) placesOf(id Series) (out []pebble.KeyRange, err error) {
	it, err := s.db.NewIter(nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	look := func(from []byte) {
		if it.SeekGE(from) && bytes.HasPrefix(it.Key(), from) {
			out = append(out, pebble.KeyRange{Start: from, End: prefixEnd(from)})
		}
	}
	look(appendHeadKey(nil, id))
	for _, space := range []byte{spaceTally, spaceMerged, spacePartial} {
		for class := range Class(classCount) {
			// From place to place: each is sought once, for the series in it.
			at := []byte{space, byte(class)}
			for it.SeekGE(at) && bytes.HasPrefix(it.Key(), []byte{space, byte(class)}) {
				place := keyPlace(it.Key())
				look(appendChunkPrefix(nil, space, class, place, id))
				at = placeEnd(space, class, place)
			}
		}
	}
	return out, it.Error()
}
