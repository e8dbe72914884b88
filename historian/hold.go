package historian

import (
	"encoding/binary"
	"fmt"
	"math"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
)

// NoHold is the sequence that holds nothing.
const NoHold = math.MaxUint64

// The M rows of the log that is kept although its samples are in chunks: what is held, and one per checkpoint.
const (
	metaHold    = "Mhold" // seq8
	metaSegment = "Mlog"  // + seq8, the last one of the segment -> from uvarint, octets uvarint
)

// segment is what one checkpoint left in the log.
type segment struct {
	from, to uint64
	bytes    int64
}

// held is the part of the log that lies behind the fence and is kept for a reader. Its lists are guarded by ckptMu.
type held struct {
	seq      atomic.Uint64 // what Hold said; NoHold
	stored   uint64        // what the M row says
	bytes    atomic.Int64
	shed     atomic.Uint64 // sequences that went although they were held
	segments []segment
}

// Hold keeps the log from seq on, whatever checkpoints do, so that ReadLog can read it: up to Options.MaxLogBytes, beyond
// which the oldest go and are counted. The hold survives a restart, at most as far back as it was at the last checkpoint; NoHold ends
// it. It does not bring back what is gone. Call it as often as you like: only the first call waits for the disk.
func (s *Store) Hold(seq uint64) {
	if was := s.held.seq.Swap(seq); was != NoHold && seq >= was {
		return
	}
	if err := s.enter(); err != nil {
		return
	}
	defer s.inUse.Done()
	s.ckptMu.Lock()
	defer s.ckptMu.Unlock()
	// A start must know of it, or it would finish a checkpoint that was cut off by dropping what is held.
	if seq = s.held.seq.Load(); seq < s.held.stored {
		if err := s.db.Set([]byte(metaHold), binary.BigEndian.AppendUint64(nil, seq), pebble.Sync); err != nil {
			s.report.fail(fmt.Errorf("historian: hold the log of %s: %w", s.dir, err))
			return
		}
		s.held.stored = seq
	}
}

// loadHold reads what was held when the store was last open.
func (s *Store) loadHold() error {
	s.held.seq.Store(NoHold)
	s.held.stored = NoHold
	return s.scanDB([]byte{spaceMeta}, func(key, value []byte) (bool, error) {
		switch {
		case string(key) == metaHold && len(value) == 8:
			s.held.stored = binary.BigEndian.Uint64(value)
			s.held.seq.Store(s.held.stored)
		case len(key) == len(metaSegment)+8 && string(key[:len(metaSegment)]) == metaSegment:
			o := octets{b: value}
			seg := segment{to: binary.BigEndian.Uint64(key[len(metaSegment):])}
			seg.from, seg.bytes = o.uvarint(), int64(o.uvarint())
			if o.bad || seg.from > seg.to || seg.bytes < 0 {
				return false, fmt.Errorf("log segment to %d: %w", seg.to, errCorrupt)
			}
			s.held.segments = append(s.held.segments, seg)
		}
		return true, nil
	})
}

func appendSegmentKey(dst []byte, to uint64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, metaSegment...), to)
}

// closeSegment does for a checkpoint that a stop cut off what the checkpoint would have done.
func (s *Store) closeSegment() error {
	if err := s.beginLog(); err != nil {
		return err
	}
	from := s.logFrom.Load()
	if n := len(s.held.segments); n > 0 {
		from = s.held.segments[n-1].to + 1
	}
	if from > s.fence.seq || s.held.seq.Load() == NoHold {
		return nil
	}
	bytes, err := s.measureSegment(from, s.fence.seq)
	s.held.segments = append(s.held.segments, segment{from, s.fence.seq, bytes})
	return err
}

// beginLog finds where the log begins.
func (s *Store) beginLog() error {
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: appendLogKey(nil, 0), UpperBound: []byte{spaceLog + 1}})
	if err != nil {
		return err
	}
	s.logFrom.Store(s.fence.seq + 1)
	if it.First() {
		seq, _ := logKeySeq(it.Key())
		s.logFrom.Store(min(seq, s.fence.seq+1))
	} else if it.Error() != nil && len(s.held.segments) > 0 {
		s.logFrom.Store(s.held.segments[0].from)
	}
	return closeHeld(it)
}

// closeHeld closes an iterator over the log. Damage in what is held is met by its reader, who goes on behind it; it must stop neither a start
// nor a checkpoint.
func closeHeld(it *pebble.Iterator) error {
	if err := it.Close(); err != nil && !pebble.IsCorruptionError(err) {
		return err
	}
	return nil
}

// measureSegment counts the octets of the log between two sequences, for a checkpoint that a stop cut off.
func (s *Store) measureSegment(from, to uint64) (n int64, err error) {
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: appendLogKey(nil, from), UpperBound: appendLogKey(nil, to+1)})
	if err != nil {
		return 0, err
	}
	for ok := it.First(); ok; ok = it.Next() {
		v := it.LazyValue()
		n += int64(v.Len())
	}
	return n, closeHeld(it)
}

// cut says where the log begins from now on, and how much of it lies behind the fence: what is held, or nothing. The last
// segment is the one that the fence has just closed. ckptMu is held.
func (s *Store) cut() (from uint64, err error) {
	h, hold := &s.held, s.held.seq.Load()
	want := min(hold, s.fence.seq+1)
	for len(h.segments) > 0 && h.segments[0].to < want {
		h.segments = h.segments[1:]
	}
	if want, err = s.groupOf(want); err != nil {
		return 0, err
	}
	h.trim(want)
	// The log in front of the fence needs room as well.
	keep := s.o.MaxLogBytes - s.o.Checkpoint.LogBytes
	for len(h.segments) > 0 && h.sum() > keep {
		gone := h.segments[0]
		h.segments = h.segments[1:]
		h.shed.Add(gone.to + 1 - min(gone.to+1, max(gone.from, hold, s.logFrom.Load())))
		want = gone.to + 1
		s.log.Warn("the log is full; what the pipelines had not seen of it starts no runs", "dir", s.dir,
			"from", gone.from, "to", gone.to, "remedy", "raise historian.maxLogBytes, or find what holds the pipelines up")
	}
	h.bytes.Store(h.sum())
	return want, nil
}

// trim leaves of the first segment what begins at from, its octets in proportion.
func (h *held) trim(from uint64) {
	if len(h.segments) == 0 || h.segments[0].from >= from {
		return
	}
	seg := &h.segments[0]
	seg.bytes = int64(float64(seg.bytes) * float64(seg.to-from+1) / float64(seg.to-seg.from+1))
	seg.from = from
}

func (h *held) sum() (n int64) {
	for _, seg := range h.segments {
		n += seg.bytes
	}
	return n
}

// groupOf is the key's sequence of the group that holds seq.
func (s *Store) groupOf(seq uint64) (uint64, error) {
	if seq > s.fence.seq {
		return seq, nil
	}
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: appendLogKey(nil, 0), UpperBound: []byte{spaceLog + 1}})
	if err != nil {
		return 0, err
	}
	if it.SeekLT(appendLogKey(nil, seq+1)) {
		seq, _ = logKeySeq(it.Key())
	} else if it.Error() != nil && len(s.held.segments) > 0 {
		seq = min(seq, s.held.segments[0].from)
	}
	return seq, closeHeld(it)
}

// addCut puts the end of the log before from into a batch. ckptMu is held; known are the segments before.
func (s *Store) addCut(b *pebble.Batch, from uint64) error {
	// Readers look at it after they have taken their view.
	s.logFrom.Store(max(s.logFrom.Load(), from))
	if err := b.DeleteRange(appendLogKey(nil, 0), appendLogKey(nil, from), nil); err != nil {
		return err
	}
	if err := b.DeleteRange([]byte(metaSegment), appendSegmentKey(nil, math.MaxUint64), nil); err != nil {
		return err
	}
	var key, value []byte
	for _, seg := range s.held.segments {
		key = appendSegmentKey(key[:0], seg.to)
		value = binary.AppendUvarint(binary.AppendUvarint(value[:0], seg.from), uint64(seg.bytes))
		if err := b.Set(key, value, nil); err != nil {
			return err
		}
	}
	seq := s.held.seq.Load()
	if seq == s.held.stored {
		return nil
	}
	s.held.stored = seq
	if seq == NoHold {
		return b.Delete([]byte(metaHold), nil)
	}
	return b.Set([]byte(metaHold), binary.BigEndian.AppendUint64(nil, seq), nil)
}

// dropHeld takes segments away that are no longer held; the watch asks for it.
func (s *Store) dropHeld() error {
	if s.held.bytes.Load() == 0 || !s.ckptMu.TryLock() {
		return nil
	}
	defer s.ckptMu.Unlock()
	if len(s.held.segments) == 0 || s.held.segments[0].to >= s.held.seq.Load() {
		return nil
	}
	from, err := s.cut()
	if err != nil {
		return err
	}
	b := s.db.NewBatch()
	defer b.Close()
	if err := s.addCut(b, from); err != nil {
		return err
	}
	if err := b.Commit(pebble.NoSync); err != nil {
		return err
	}
	return s.report.failure()
}
