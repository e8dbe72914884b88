package historian

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"
)

// openTallies opens an iterator over the tallies of merged hours, if there are any, at the moment that the others see.
func (f *finder) openTallies() (err error) {
	if f.merged == nil {
		return nil
	}
	f.tallies, err = f.partial.Clone(pebble.CloneOptions{IterOptions: &pebble.IterOptions{LowerBound: []byte{spaceTally}, UpperBound: []byte{spaceTally + 1}}})
	return err
}

// tallyAfter is the first hour, from that of t on, in which a series from least on has a tally in one of the classes in the
// bit set. Merged chunks and tallies are written together, so these are the hours with merged chunks, too.
func (f *finder) tallyAfter(classes uint8, t int64, least Series) (hour int64, ok bool) {
	if f.tallies == nil {
		return 0, false
	}
	for class := range Class(classCount) {
		if classes&(1<<class) == 0 {
			continue
		}
		f.key = appendChunkPrefix(f.key[:0], spaceTally, class, hourPlace(hourOf(t)), least)
		if f.tallies.SeekGE(f.key) && f.tallies.Key()[1] == byte(class) {
			if h := placeHour(keyPlace(f.tallies.Key())); !ok || h < hour {
				hour, ok = h, true
			}
		}
	}
	return hour, ok
}

// hourTallies reads the tallies of a series in one hour, of the classes in the bit set, into room.
func (f *finder) hourTallies(room []tally, classes uint8, id Series, hour int64) ([]tally, error) {
	room = room[:0]
	if f.tallies == nil {
		return room, nil
	}
	for class := range Class(classCount) {
		if classes&(1<<class) == 0 {
			continue
		}
		f.key = appendChunkPrefix(f.key[:0], spaceTally, class, hourPlace(hour), id)
		// The iterator stands here already where tallyAfter looked for this very series.
		valid := f.tallies.Valid() && bytes.HasPrefix(f.tallies.Key(), f.key)
		if !valid {
			valid = f.tallies.SeekGE(f.key)
		}
		for ; valid && bytes.HasPrefix(f.tallies.Key(), f.key); valid = f.tallies.Next() {
			value, err := f.tallies.ValueAndErr()
			if err != nil {
				return room, err
			}
			t, err := readTally(value)
			if err != nil {
				return room, fmt.Errorf("tally %x: %w", f.tallies.Key(), err)
			}
			room = append(room, t)
		}
		if err := f.tallies.Error(); err != nil {
			return room, err
		}
	}
	return room, nil
}

// foldTallies takes a whole hour from its tallies; false when only the samples tell. Nothing but merged chunks may hold
// samples of it.
func (b *batch) foldTallies(f *fold, from, to int64) (bool, error) {
	if from != hourOf(from) || to-from != nsPerHour || from < f.horizon {
		return false, nil
	}
	if _, end := b.cut.at(from); !b.q.Step.whole() && end < to {
		return false, nil
	}
	var err error
	if b.tallies, err = b.finder.hourTallies(b.tallies, f.view.classes, f.id, from); err != nil || len(b.tallies) == 0 {
		return false, err
	}
	slices.SortFunc(b.tallies, func(a, b tally) int {
		if a.valued != b.valued {
			if b.valued {
				return -1
			}
			return 1
		}
		if a.first.time < b.first.time {
			return -1
		}
		return 1
	})
	for i := range b.tallies {
		t := &b.tallies[i]
		if t.elided || i > 0 && !b.tallies[i-1].before(t) {
			return false, nil
		}
	}
	if !b.enter(f, from) {
		return true, nil
	}
	for i := range b.tallies {
		f.t.merge(&b.tallies[i])
	}
	return true, nil
}
