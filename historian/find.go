package historian

import (
	"bytes"
	"errors"
	"fmt"
	"math"

	"github.com/cockroachdb/pebble/v2"
)

// finder finds chunks in the tables. Its iterators see the tables as they were when it was opened; they hold files,
// so nobody keeps one open for longer than a few seconds. One goroutine at a time.
type finder struct {
	partial, merged *pebble.Iterator
	key             []byte
	first, last     int64 // hours of merged chunks, of all classes; first > last when there are none

	// Between left and where the iterator in stands there is no key; left itself was passed, or is none.
	in     *pebble.Iterator
	left   []byte
	passed bool
}

// openFinder opens the iterators. The caller has entered the store.
func (s *Store) openFinder() (f finder, err error) {
	open := func(space byte) *pebble.Iterator {
		it, e := s.db.NewIter(&pebble.IterOptions{LowerBound: []byte{space}, UpperBound: []byte{space + 1}})
		err = errors.Join(err, e)
		return it
	}
	f.first, f.last = math.MaxInt64, math.MinInt64
	f.partial = open(spacePartial)
	if s.merged {
		f.merged = open(spaceMerged)
		if err == nil {
			err = f.boundMerged()
		}
	}
	return f, err
}

func (f *finder) close() (err error) {
	for _, it := range []*pebble.Iterator{f.partial, f.merged} {
		if it != nil {
			err = errors.Join(err, it.Close())
		}
	}
	*f = finder{}
	return err
}

// boundMerged looks up which hours the merged chunks cover, so that a query of all time does not look for one in every
// hour there is.
func (f *finder) boundMerged() error {
	for class := range Class(classCount) {
		prefix := []byte{spaceMerged, byte(class)}
		if f.merged.SeekGE(prefix) && bytes.HasPrefix(f.merged.Key(), prefix) {
			f.first = min(f.first, hourOf(chunkKeyFirst(f.merged.Key())))
		}
		if f.merged.SeekLT(prefixEnd(prefix)) && bytes.HasPrefix(f.merged.Key(), prefix) {
			f.last = max(f.last, hourOf(chunkKeyFirst(f.merged.Key())))
		}
	}
	return f.merged.Error()
}

// mergedHours are the bounds of the times that merged chunks may cover; ok is false when there are none.
func (f *finder) mergedHours() (from, to int64, ok bool) {
	if f.merged == nil || f.first > f.last {
		return 0, 0, false
	}
	if f.last > math.MaxInt64-nsPerHour {
		return f.first, math.MaxInt64, true
	}
	return f.first, f.last + nsPerHour - 1, true
}

// chunks calls fn for the chunks of a series in one checkpoint or merged hour that touch from <= t < to, oldest first;
// octets are valid during fn only. It answers when the first chunk behind those begins, if there is one.
func (f *finder) chunks(it *pebble.Iterator, space byte, class Class, place uint32, id Series, from, to int64, fn func(first, last int64, octets []byte)) (behind int64, ok bool, err error) {
	f.key = appendChunkPrefix(f.key[:0], space, class, place, id)
	// Chunks do not reach over an hour, so none that begins before the hour of from touches it.
	f.key = appendChunkKey(f.key, hourOf(from), 0)
	for valid := f.seek(it); valid && f.ours(it.Key()); valid = it.Next() {
		key := it.Key()
		if first := chunkKeyFirst(key); first >= to {
			return first, true, nil
		}
		f.left, f.passed = append(f.left[:0], key...), true
		value, err := it.ValueAndErr()
		if err != nil {
			return 0, false, err
		}
		_, first, last, err := chunkSpan(value)
		if err != nil {
			return 0, false, fmt.Errorf("chunk %x: %w", key, err)
		}
		if last >= from {
			fn(first, last, value)
		}
	}
	return 0, false, it.Error()
}

// seek moves an iterator to f.key, unless it stands there: looking for many series of which few are in a checkpoint
// costs one seek for each of those few.
func (f *finder) seek(it *pebble.Iterator) bool {
	if f.in == it && it.Valid() && bytes.Compare(it.Key(), f.key) >= 0 {
		if c := bytes.Compare(f.left, f.key); c < 0 || c == 0 && !f.passed {
			return true
		}
	}
	f.in, f.left, f.passed = it, append(f.left[:0], f.key...), false
	return it.SeekGE(f.key)
}

// before answers the end of the hour of the last chunk that begins before the hour of from, in the place that chunks
// looked at last.
func (f *finder) before(it *pebble.Iterator) (end int64, ok bool, err error) {
	f.in = nil
	if !it.SeekLT(f.key) || !f.ours(it.Key()) {
		return 0, false, it.Error()
	}
	// The chunk lies before another hour, so this cannot pass the last time there is.
	return hourOf(chunkKeyFirst(it.Key())) + nsPerHour - 1, true, nil
}

// ours says whether a key is of the checkpoint or hour, class and series of f.key.
func (f *finder) ours(key []byte) bool {
	return len(key) == chunkKeyLen && string(key[:chunkKeyPrefix]) == string(f.key[:chunkKeyPrefix])
}
