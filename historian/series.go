package historian

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cockroachdb/pebble/v2"
)

// CreateSeries reserves the next id. The row joins the open group, so it is durable no later than any sample
// of the series, or within a second. It never waits for the disk. Names must be unique; the caller, who holds the catalog, sees to
// that. Meta is copied.
func (s *Store) CreateSeries(name string, class Class, meta []byte) (Series, error) {
	if int(class) >= classCount {
		return 0, fmt.Errorf("historian: create series %q: no retention class has the number %d", name, class)
	}
	return s.group.bear(seriesRow{
		class: class, classes: 1 << class, created: s.o.Now().UnixNano(),
		name: []byte(name), meta: append([]byte(nil), meta...),
	})
}

// SetSeries replaces class and meta, durably like Append. Samples stored before keep the class they were
// sealed with.
func (s *Store) SetSeries(ctx context.Context, id Series, class Class, meta []byte) error {
	if int(class) >= classCount {
		return fmt.Errorf("historian: set series %d: no retention class has the number %d", id, class)
	}
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
	row.class, row.classes, row.meta = class, row.classes|1<<class, meta
	return s.group.join(nil, nil, &seriesWrite{id: id, row: row})
}

// readSeries gives a committed row, as a copy.
func (s *Store) readSeries(id Series) (seriesRow, error) {
	if err := s.enter(); err != nil {
		return seriesRow{}, err
	}
	defer s.inUse.Done()
	v, closer, err := s.db.Get(appendSeriesKey(nil, id))
	if errors.Is(err, pebble.ErrNotFound) {
		return seriesRow{}, fmt.Errorf("%w %d", ErrUnknownSeries, id)
	}
	if err != nil {
		return seriesRow{}, fmt.Errorf("historian: read series %d: %w", id, err)
	}
	defer closer.Close()
	row, err := readSeriesRow(append([]byte(nil), v...))
	if err != nil {
		return seriesRow{}, fmt.Errorf("historian: series %d: %w", id, err)
	}
	return row, nil
}

// EachSeries calls fn for every committed series, in order of id, until fn returns false. The row's Meta is
// fn's to keep.
func (s *Store) EachSeries(fn func(SeriesRow) bool) error {
	return s.scan(spaceSeries, nil, func(key, value []byte) (bool, error) {
		id, ok := idKey(key)
		row, err := readSeriesRow(value)
		if err != nil || !ok {
			return false, fmt.Errorf("historian: series %d: %w", id, errors.Join(err, errCorrupt))
		}
		return fn(SeriesRow{
			Series: id, Name: string(row.name), Class: row.class, Created: row.created,
			Meta: append([]byte(nil), row.meta...),
		}), nil
	})
}

// Lookup gives the id of a committed series by its name.
func (s *Store) Lookup(name string) (id Series, ok bool, err error) {
	if err := s.enter(); err != nil {
		return 0, false, err
	}
	defer s.inUse.Done()
	v, closer, err := s.db.Get(appendNameKey(nil, name))
	if errors.Is(err, pebble.ErrNotFound) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("historian: look up %q: %w", name, err)
	}
	defer closer.Close()
	id, ok = idKey(append([]byte{spaceName}, v...))
	if !ok {
		return 0, false, fmt.Errorf("historian: look up %q: %w", strings.ToValidUTF8(name, "?"), errCorrupt)
	}
	return id, true, nil
}

// Rows calls fn for every opaque row whose key starts with prefix, in key order, until fn returns false. It
// sees the rows as they were when it began. Key and value are valid during fn only; fn may append, not close.
func (s *Store) Rows(prefix []byte, fn func(key, value []byte) bool) error {
	return s.scan(spaceRow, prefix, func(key, value []byte) (bool, error) {
		return fn(key[1:], value), nil
	})
}

// scan calls fn for the keys of one keyspace, space included.
func (s *Store) scan(space byte, prefix []byte, fn func(key, value []byte) (bool, error)) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.inUse.Done()
	return s.scanDB(append([]byte{space}, prefix...), fn)
}

func (s *Store) scanDB(prefix []byte, fn func(key, value []byte) (bool, error)) error {
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: prefixEnd(prefix)})
	if err != nil {
		return fmt.Errorf("historian: read: %w", err)
	}
	for ok := it.First(); ok; ok = it.Next() {
		v, err := it.ValueAndErr()
		if err == nil {
			ok, err = fn(it.Key(), v)
		}
		if err != nil {
			return errors.Join(err, it.Close())
		}
		if !ok {
			break
		}
	}
	if err := it.Close(); err != nil {
		return fmt.Errorf("historian: read: %w", err)
	}
	return nil
}
