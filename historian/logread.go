package historian

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// Shed says that samples were dropped from the log before a reader had seen them, because the log was full
// (Options.MaxLogBytes). They are stored and can be queried; only the reader missed them.
type Shed struct {
	From, To uint64
	// Damage is set when they cannot be read instead: a block of a table is damaged.
	Damage error
}

func (s *Shed) Error() string {
	if s.Damage != nil {
		return fmt.Sprintf("historian: sequences %d to %d of the log cannot be read (%v): read on from %d", s.From, s.To, s.Damage, s.To+1)
	}
	return fmt.Sprintf("historian: the log no longer holds sequences %d to %d: read on from %d", s.From, s.To, s.To+1)
}

const (
	// readAhead is how much of the log a reader takes from the disk at once. Iterators pin tables, so none is open during fn.
	readAhead = 256 << 10
	// readAheadTime ends a read of the disk early.
	readAheadTime = 100 * time.Millisecond
)

// LastSeq is the sequence of the last sample that was committed, 0 before the first.
func (s *Store) LastSeq() uint64 { return s.lastSeq.Load() }

// SkipTo makes the store give sequences above seq from now on. A store without syncWrites may come back from a power cut
// with fewer samples than another store remembers; sequences must not be given to others meanwhile.
func (s *Store) SkipTo(seq uint64) {
	s.group.mu.Lock()
	s.group.seq = max(s.group.seq, seq)
	s.group.mu.Unlock()
}

// ReadLog calls fn for committed samples in the order of their sequences, beginning with from, one group or a part of it
// at a time: near the end of the log from memory, else from the disk. At the end it waits for the next commit. A sample is
// seen when it is committed (with SyncWrites: fsynced) and in the heads, never before. Nothing that appends ever waits for a reader.
//
// The slice and what it points to are valid during fn only. ReadLog returns the error of fn, the end of ctx, ErrClosed, or
// *Shed when from is no longer in the log.
func (s *Store) ReadLog(ctx context.Context, from uint64, fn func(samples []Sample) error) error {
	r := logReader{s: s, at: max(from, 1)}
	s.m.logReaders.Inc()
	defer s.m.logReaders.Dec()
	s.tail.join()
	defer s.tail.leave()
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		rec, g, wait, how := s.tail.next(r.at, r.rec[:0])
		var err error
		switch how {
		case tailRead:
			r.rec = rec
			err = r.hand(rec, g.first, fn)
		case tailBehind:
			err = r.readDisk(ctx, fn)
		case tailWait:
			select {
			case <-wait:
			case <-ctx.Done():
			case <-s.stop:
				return ErrClosed
			}
		}
		if err != nil {
			return err
		}
		if cap(r.rec) > tailLargest {
			r.rec = nil // a rare large value is not held for ever
		}
	}
}

// logReader is where one reader of the log stands.
type logReader struct {
	s       *Store
	at      uint64 // the next sequence
	rec     []byte
	found   []tailGroup // records in rec, read from the disk
	samples []Sample
}

// hand decodes one record and gives fn what it has not seen of it.
func (r *logReader) hand(rec []byte, first uint64, fn func([]Sample) error) error {
	r.samples = r.samples[:0]
	err := readRecord(rec, first, func(x *Sample) error {
		if x.Seq >= r.at {
			r.samples = append(r.samples, *x)
		}
		return nil
	})
	if err != nil {
		return r.s.damaged(err)
	}
	if len(r.samples) == 0 {
		return nil
	}
	if err := fn(r.samples); err != nil {
		return err
	}
	r.at = r.samples[len(r.samples)-1].Seq + 1
	clear(r.samples)
	return nil
}

// readDisk reads on from the disk, some records at once.
func (r *logReader) readDisk(ctx context.Context, fn func([]Sample) error) error {
	end, before := r.s.tail.seen(), r.at
	if err := r.collect(end); err != nil {
		return err
	}
	r.s.m.logDiskReads.Inc()
	rec := r.rec
	for _, g := range r.found {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := r.hand(rec[g.from:g.from+g.size], g.first, fn); err != nil {
			return err
		}
	}
	if r.at == before {
		// Nothing up to the end: the sequences in between were never given out.
		r.at = end + 1
	}
	return nil
}

// collect copies records from at on, up to sequence end, and closes its iterator again.
func (r *logReader) collect(end uint64) error {
	s := r.s
	if err := s.enter(); err != nil {
		return err
	}
	defer s.inUse.Done()
	r.rec, r.found = r.rec[:0], r.found[:0]
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: appendLogKey(nil, 0), UpperBound: appendLogKey(nil, end+1)})
	if err != nil {
		return fmt.Errorf("historian: read the log: %w", err)
	}
	// Looked at behind the iterator's moment: what was dropped by then it does not see.
	if from := s.logFrom.Load(); r.at < from {
		return errors.Join(&Shed{From: r.at, To: from - 1}, it.Close())
	}
	// The group that holds a sequence is keyed by that of its first sample.
	ok := it.SeekLT(appendLogKey(nil, r.at+1))
	if !ok && it.Error() == nil {
		ok = it.First()
	}
	begun := time.Now()
	// Two at least: the first may end before the sequence wanted.
	for ; ok && (len(r.found) < 2 || len(r.rec) < readAhead && time.Since(begun) < readAheadTime); ok = it.Next() {
		first, isLog := logKeySeq(it.Key())
		v, err := it.ValueAndErr()
		if err == nil && !isLog {
			err = fmt.Errorf("key %x: %w", it.Key(), errCorrupt)
		}
		if err != nil {
			return errors.Join(fmt.Errorf("historian: read the log at sequence %d: %w", first, err), it.Close())
		}
		r.found = append(r.found, tailGroup{first: first, from: len(r.rec), size: len(v)})
		r.rec = append(r.rec, v...)
	}
	if err := it.Error(); err != nil {
		if len(r.found) > 1 || len(r.found) == 1 && r.found[0].first >= r.at {
			return r.shut(it) // first what can be read; the damage is met again
		}
		return r.leap(it, end, err)
	}
	return r.shut(it)
}

// shut closes an iterator whose damage, if any, is known.
func (r *logReader) shut(it *pebble.Iterator) error {
	if err := it.Close(); err != nil && !pebble.IsCorruptionError(err) {
		return fmt.Errorf("historian: read the log: %w", err)
	}
	return nil
}

// leap finds where the log can be read again behind a damaged block.
func (r *logReader) leap(it *pebble.Iterator, end uint64, damage error) error {
	if !pebble.IsCorruptionError(damage) {
		return errors.Join(fmt.Errorf("historian: read the log: %w", damage), it.Close())
	}
	for step := uint64(64); r.at+step <= end; step *= 2 {
		if it.SeekGE(appendLogKey(nil, r.at+step)) {
			first, _ := logKeySeq(it.Key())
			return errors.Join(&Shed{From: r.at, To: first - 1, Damage: damage}, r.shut(it))
		}
		if it.Error() == nil {
			break // nothing behind it
		}
	}
	return errors.Join(&Shed{From: r.at, To: end, Damage: damage}, r.shut(it))
}
