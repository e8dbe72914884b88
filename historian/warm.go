package historian

import (
	"fmt"
	"math"

	"github.com/cockroachdb/pebble/v2"
)

// warmLogBytes is a little more than the log of one full memtable; warmLogs of them are kept ready: one to
// write into, one whose memtable is being flushed, and one left over by the growing of the memtable.
const (
	warmLogBytes = 17 << 20
	warmLogs     = 3
	warmPiece    = 1 << 20
)

// roomAtOpen is the free space that sizes the memtable; all there is where the disk does not tell.
func (s *Store) roomAtOpen() uint64 {
	free, err := s.o.Free(s.dir)
	if err != nil {
		return math.MaxUint64
	}
	return free
}

// roomToWarm says whether the disk is far from its watermark; a small or full one has better uses for its space.
func (s *Store) roomToWarm() bool {
	free, err := s.o.Free(s.dir)
	return err == nil && free >= uint64(s.o.MinFreeSpace)+8*warmLogs*warmLogBytes
}

// warmLog makes log files that have been written once, for Pebble to use again. An fsync into such a file
// writes its pages and nothing else. One into a file that grows, or whose blocks were only reserved, also
// commits the file system's journal: measured on ext4 at 20,000 values/s, 2.0 ms and 350 bytes of the disk per
// value against 0.7 ms and 60. Pebble reuses logs by itself, but the first of a process are new, which at that
// rate is the first minutes. What is written here leaves no keys, so a crash meanwhile costs nothing.
//
// Pebble's first memtable is small and each one after it twice as large, and each takes another log. A burst
// right after the start would run through several before the first log is free again, and go on in new files.
// The start therefore ends with a memtable of full size.
func (s *Store) warmLog(free uint64) error {
	if err := s.writeWarmLogs(memTable(free)); err != nil {
		return fmt.Errorf("historian: preparing the log in %s: %w", s.dir, err)
	}
	return nil
}

func (s *Store) writeWarmLogs(memTable uint64) error {
	if err := s.growMemTable(memTable); err != nil {
		return err
	}
	filler := make([]byte, warmPiece)
	for range warmLogs {
		// The first flush also frees the two logs of the growing, which are filled in the next rounds.
		if err := s.db.Flush(); err != nil {
			return err
		}
		for range warmLogBytes / warmPiece {
			if err := s.db.LogData(filler, pebble.NoSync); err != nil {
				return err
			}
		}
	}
	return s.db.Flush()
}

// growMemTable fills a memtable of at least half the full size, with a row that its own batch deletes, so that the
// one after it has the full size.
func (s *Store) growMemTable(memTable uint64) error {
	b := s.db.NewBatch()
	defer b.Close()
	key := []byte(metaFiller)
	// A batch of half a memtable would pass it by.
	if err := b.Set(key, make([]byte, memTable/2-(64<<10)), nil); err != nil {
		return err
	}
	if err := b.Delete(key, nil); err != nil {
		return err
	}
	return b.Commit(pebble.NoSync)
}
