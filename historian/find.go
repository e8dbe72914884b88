package historian

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"
)

// finder finds chunks in the tables. Its iterators see the tables as they were when it was opened; they hold files,
// so nobody keeps one open for longer than a few seconds. One goroutine at a time.
type finder struct {
	partial, merged *pebble.Iterator
	tallies         *pebble.Iterator // see openTallies
	key             []byte
	known           knownHour
	found           []mergedChunk
	held            []byte // their octets

	// Between left and where the iterator in stands there is no key; left itself was passed, or is none.
	in     *pebble.Iterator
	left   []byte
	passed bool
}

// openFinder opens the iterators. The caller has entered the store.
func (s *Store) openFinder() (f finder, err error) {
	bounds := func(space byte) *pebble.IterOptions {
		return &pebble.IterOptions{LowerBound: []byte{space}, UpperBound: []byte{space + 1}}
	}
	s.viewMu.RLock()
	f.partial, err = s.db.NewIter(bounds(spacePartial))
	s.viewMu.RUnlock()
	if err != nil {
		return f, err
	}
	// Looked at after the iterator was opened: what it sees merged was announced before. A clone sees the same moment, in
	// which a chunk is either of its checkpoint or merged.
	if s.merged.Load() {
		if f.merged, err = f.partial.Clone(pebble.CloneOptions{IterOptions: bounds(spaceMerged)}); err != nil {
			return f, err
		}
	}
	return f, nil
}

// stale says whether what was merged by the time the finder was opened may hold samples that a head, looked at before, still
// had. It asks for another look then.
func (s *Store) stale(id Series, v *headView) bool {
	if s.mergedUpTo.Load() <= v.sealed {
		return false
	}
	now, ok := s.heads.view(id)
	return ok && now.sealed != v.sealed
}

func (f *finder) close() (err error) {
	for _, it := range []*pebble.Iterator{f.partial, f.merged, f.tallies} {
		if it != nil {
			err = errors.Join(err, it.Close())
		}
	}
	*f = finder{}
	return err
}

// fault is what kept the search for merged hours from finding one.
func (f *finder) fault() error {
	if f.merged == nil {
		return nil
	}
	if f.tallies != nil {
		return errors.Join(f.merged.Error(), f.tallies.Error())
	}
	return f.merged.Error()
}

// mergedAfter is the first hour, from that of t on, with merged chunks of the classes in the bit set, of whatever series; a
// query goes from one such hour to the next and not through every hour there is.
func (f *finder) mergedAfter(classes uint8, t int64) (hour int64, ok bool) {
	if f.merged == nil {
		return 0, false
	}
	if k := &f.known; k.ok && !k.back && k.classes == classes && k.from <= t && (k.none || hourOf(t) <= k.hour) {
		return k.hour, !k.none
	}
	f.in = nil
	for class := range Class(classCount) {
		if classes&(1<<class) == 0 {
			continue
		}
		f.key = appendPlace(f.key[:0], spaceMerged, class, hourPlace(hourOf(t)))
		if f.merged.SeekGE(f.key) && f.merged.Key()[1] == byte(class) {
			if h := placeHour(keyPlace(f.merged.Key())); !ok || h < hour {
				hour, ok = h, true
			}
		}
	}
	f.known = knownHour{ok: true, none: !ok, classes: classes, from: t, hour: hour}
	return hour, ok
}

// mergedBefore is the same for the last such hour up to that of t.
func (f *finder) mergedBefore(classes uint8, t int64) (hour int64, ok bool) {
	if f.merged == nil {
		return 0, false
	}
	if k := &f.known; k.ok && k.back && k.classes == classes && k.from >= t && (k.none || hourOf(t) >= k.hour) {
		return k.hour, !k.none
	}
	f.in = nil
	for class := range Class(classCount) {
		if classes&(1<<class) == 0 {
			continue
		}
		if f.merged.SeekLT(placeEnd(spaceMerged, class, hourPlace(hourOf(t)))) && f.merged.Key()[1] == byte(class) {
			if h := placeHour(keyPlace(f.merged.Key())); !ok || h > hour {
				hour, ok = h, true
			}
		}
	}
	f.known = knownHour{ok: true, none: !ok, back: true, classes: classes, from: t, hour: hour}
	return hour, ok
}

// knownHour is what mergedAfter or mergedBefore answered last: between from and hour there is nothing.
type knownHour struct {
	ok, none, back bool
	classes        uint8
	from, hour     int64
}

// mergedChunk is a merged chunk that was found.
type mergedChunk struct {
	ckpt        uint32
	first, last int64
	octets      []byte
}

// hour calls fn for the merged chunks of a series in one hour, of the classes in the bit set, that touch from <= t < to, in
// the order in which they arrived; octets are valid during fn only.
func (f *finder) hour(classes uint8, id Series, from, to int64, fn func(first, last int64, octets []byte)) error {
	hour := hourOf(from)
	if f.merged == nil {
		return nil
	}
	if err := f.merged.Error(); err != nil { // also of the search for the hour
		return err
	}
	f.found, f.held = f.found[:0], f.held[:0]
	f.in = nil
	for class := range Class(classCount) {
		if classes&(1<<class) == 0 {
			continue
		}
		f.key = appendChunkPrefix(f.key[:0], spaceMerged, class, hourPlace(hour), id)
		for valid := f.merged.SeekGE(f.key); valid && bytes.HasPrefix(f.merged.Key(), f.key); valid = f.merged.Next() {
			key := f.merged.Key()
			value, err := f.merged.ValueAndErr()
			if err != nil {
				return err
			}
			if len(key) != mergedKeyLen {
				return fmt.Errorf("merged chunk %x: %w", key, errCorrupt)
			}
			_, first, last, err := chunkSpan(value)
			if err != nil {
				return fmt.Errorf("merged chunk %x: %w", key, err)
			}
			if last < from || first >= to {
				continue
			}
			at := len(f.held)
			f.held = append(f.held, value...)
			f.found = append(f.found, mergedChunk{keyCkpt(key), first, last, f.held[at:len(f.held):len(f.held)]})
		}
		if err := f.merged.Error(); err != nil {
			return err
		}
	}
	// Keys are in order of checkpoint within a class.
	slices.SortStableFunc(f.found, func(a, b mergedChunk) int { return cmp.Compare(a.ckpt, b.ckpt) })
	for i := range f.found {
		fn(f.found[i].first, f.found[i].last, f.found[i].octets)
	}
	return nil
}

// chunks calls fn for the chunks of a series in one checkpoint that touch from <= t < to, oldest first;
// octets are valid during fn only. It answers when the first chunk behind those begins, if there is one.
func (f *finder) chunks(it *pebble.Iterator, class Class, place uint32, id Series, from, to int64, fn func(first, last int64, octets []byte)) (behind int64, ok bool, err error) {
	f.key = appendChunkPrefix(f.key[:0], spacePartial, class, place, id)
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

// ours says whether a key is of the checkpoint, class and series of f.key.
func (f *finder) ours(key []byte) bool {
	return len(key) == chunkKeyLen && string(key[:chunkKeyPrefix]) == string(f.key[:chunkKeyPrefix])
}
