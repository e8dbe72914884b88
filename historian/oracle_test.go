package historian_test

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/historian"
)

// oracle gives the answers of the store in the plainest way there is: one row per sample in a Pebble of its
// own, nothing kept in memory, nothing encoded by the product. A query reads every row of its series.
type oracle struct {
	t  *testing.T
	db *pebble.DB
}

type silent struct{}

func (silent) Infof(string, ...any)  {}
func (silent) Errorf(string, ...any) {}
func (silent) Fatalf(f string, a ...any) {
	panic(f)
}

func newOracle(t *testing.T) *oracle {
	t.Helper()
	db, err := pebble.Open("oracle", &pebble.Options{FS: vfs.NewMem(), Logger: silent{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return &oracle{t: t, db: db}
}

func (o *oracle) set(key []byte, v any) {
	b, err := json.Marshal(v)
	if err == nil {
		err = o.db.Set(key, b, pebble.NoSync)
	}
	if err != nil {
		o.t.Fatal(err)
	}
}

// each calls fn for every row whose key starts with prefix, in key order.
func (o *oracle) each(prefix []byte, fn func(key, value []byte)) {
	it, err := o.db.NewIter(&pebble.IterOptions{LowerBound: prefix})
	if err != nil {
		o.t.Fatal(err)
	}
	for ok := it.First(); ok && len(it.Key()) >= len(prefix) && string(it.Key()[:len(prefix)]) == string(prefix); ok = it.Next() {
		fn(it.Key(), it.Value())
	}
	if err := it.Close(); err != nil {
		o.t.Fatal(err)
	}
}

// add takes samples as the store filled them in.
func (o *oracle) add(samples []historian.Sample) {
	for i := range samples {
		s := samples[i]
		key := binary.BigEndian.AppendUint32([]byte{'s'}, uint32(s.Series))
		key = binary.BigEndian.AppendUint64(key, uint64(s.Time)^1<<63)
		key = binary.BigEndian.AppendUint64(key, s.Seq)
		if err := o.db.Set(key, row(s), pebble.NoSync); err != nil {
			o.t.Fatal(err)
		}
	}
}

// row is a sample at full width.
func row(s historian.Sample) []byte {
	stamped := byte(0)
	if s.Stamped {
		stamped = 1
	}
	b := []byte{byte(s.Quality), stamped, s.Scale, byte(s.Value.Kind), s.Value.Exp}
	b = binary.BigEndian.AppendUint64(b, uint64(s.Received))
	b = binary.BigEndian.AppendUint64(b, uint64(s.Value.Mant))
	return append(b, s.Value.Raw...)
}

// samples are all of a series by time, then by arrival.
func (o *oracle) samples(id historian.Series) []historian.Sample {
	var all []historian.Sample
	o.each(binary.BigEndian.AppendUint32([]byte{'s'}, uint32(id)), func(key, b []byte) {
		s := historian.Sample{
			Series: id, Quality: historian.Quality(b[0]), Stamped: b[1] == 1, Scale: b[2],
			Time:     int64(binary.BigEndian.Uint64(key[5:]) ^ 1<<63),
			Received: int64(binary.BigEndian.Uint64(b[5:])),
			Seq:      binary.BigEndian.Uint64(key[13:]),
			Value:    historian.Value{Kind: historian.Kind(b[3]), Exp: b[4], Mant: int64(binary.BigEndian.Uint64(b[13:]))},
		}
		s.Value.Raw = append(s.Value.Raw, b[21:]...)
		all = append(all, s)
	})
	return all
}

// raw is the page that Store.Raw must give.
func (o *oracle) raw(q historian.Query) (page []historian.Sample, next *historian.Cursor) {
	all := o.samples(q.Series)
	places := make([]historian.Cursor, len(all))
	order := make([]int, len(all))
	for i, s := range all {
		order[i] = i
		places[i].Time = s.Time
		if i > 0 && all[i-1].Time == s.Time {
			places[i].Ord = places[i-1].Ord + 1
		}
	}
	if q.Desc {
		slices.Reverse(order)
	}
	limit := q.Limit
	if limit == 0 {
		limit = 10_000
	}
	limit = min(limit, 100_000)
	for _, i := range order {
		at := places[i]
		if at.Time < q.From || at.Time >= q.To {
			continue
		}
		if a := q.After; a != nil {
			behind := at.Time > a.Time || at.Time == a.Time && at.Ord > a.Ord
			before := at.Time < a.Time || at.Time == a.Time && at.Ord < a.Ord
			if !q.Desc && !behind || q.Desc && !before {
				continue
			}
		}
		if len(page) == limit {
			return page, next
		}
		page = append(page, all[i])
		next = &historian.Cursor{Time: at.Time, Ord: at.Ord}
	}
	return page, nil
}

func (o *oracle) latest(id historian.Series) (historian.Sample, bool) {
	all := o.samples(id)
	if len(all) == 0 {
		return historian.Sample{}, false
	}
	return all[len(all)-1], true
}

// finest is the finest scale among all samples of a series; milliseconds when there is none.
func (o *oracle) finest(id historian.Series) uint8 {
	finest := uint8(9)
	all := o.samples(id)
	for _, s := range all {
		finest = min(finest, s.Scale)
	}
	if len(all) == 0 {
		return 6
	}
	return finest
}

func (o *oracle) setSeries(row historian.SeriesRow) {
	o.set(binary.BigEndian.AppendUint32([]byte{'i'}, uint32(row.Series)), row)
}

func (o *oracle) series() []historian.SeriesRow {
	var all []historian.SeriesRow
	o.each([]byte{'i'}, func(_, value []byte) {
		var row historian.SeriesRow
		if err := json.Unmarshal(value, &row); err != nil {
			o.t.Fatal(err)
		}
		all = append(all, row)
	})
	return all
}

func (o *oracle) setRows(rows []historian.Row) {
	for _, r := range rows {
		key := append([]byte{'r'}, r.Key...)
		if r.Value != nil {
			o.set(key, r.Value)
		} else if err := o.db.Delete(key, pebble.NoSync); err != nil && !errors.Is(err, pebble.ErrNotFound) {
			o.t.Fatal(err)
		}
	}
}

func (o *oracle) rows(prefix []byte) []historian.Row {
	var all []historian.Row
	o.each(append([]byte{'r'}, prefix...), func(key, value []byte) {
		r := historian.Row{Key: slices.Clone(key[1:])}
		if err := json.Unmarshal(value, &r.Value); err != nil {
			o.t.Fatal(err)
		}
		all = append(all, r)
	})
	return all
}
