package web_test

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"millrace/historian"
)

// shelf is a historian in memory: what web and uns need of one, and switches for its faults.
type shelf struct {
	mu      sync.Mutex
	rows    []historian.SeriesRow
	samples map[historian.Series][]historian.Sample // by time, then arrival
	finest  map[historian.Series]uint8
	seq     uint64
	now     func() time.Time

	stalled atomic.Bool           // appends wait for their context
	broken  atomic.Pointer[error] // reads fail with it
	entered chan struct{}         // a token per Raw call, when set
	release chan struct{}         // Raw waits for it, when set
}

func newShelf(now func() time.Time) *shelf {
	return &shelf{samples: map[historian.Series][]historian.Sample{}, finest: map[historian.Series]uint8{}, now: now}
}

func (h *shelf) CreateSeries(name string, class historian.Class, meta []byte) (historian.Series, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	id := historian.Series(len(h.rows) + 1)
	h.rows = append(h.rows, historian.SeriesRow{Series: id, Name: name, Class: class, Meta: slices.Clone(meta)})
	return id, nil
}

func (h *shelf) SetSeries(_ context.Context, id historian.Series, class historian.Class, meta []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rows[id-1].Class, h.rows[id-1].Meta = class, slices.Clone(meta)
	return nil
}

func (h *shelf) DeleteSeries(_ context.Context, id historian.Series, _ bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.samples, id)
	return nil
}

func (h *shelf) EachSeries(fn func(historian.SeriesRow) bool) error {
	for _, row := range h.rows {
		if !fn(row) {
			break
		}
	}
	return nil
}

func (h *shelf) HasRow([]byte) (bool, error) { return false, nil }

// Rows: no test of this package keeps any.
func (h *shelf) Rows([]byte, func(key, value []byte) bool) error { return nil }

func (h *shelf) Append(ctx context.Context, samples []historian.Sample, _ []historian.Row) error {
	if h.stalled.Load() {
		<-ctx.Done()
		return historian.ErrStalled
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range samples {
		s := &samples[i]
		h.seq++
		s.Seq, s.Received = h.seq, h.now().UnixNano()
		if !s.Stamped {
			s.Time, s.Scale = s.Received/1e6*1e6, 6
		}
		kept := *s
		kept.Value.Raw = slices.Clone(s.Value.Raw)
		if finest, ok := h.finest[s.Series]; !ok || s.Scale < finest {
			h.finest[s.Series] = s.Scale
		}
		list := h.samples[s.Series]
		at, _ := slices.BinarySearchFunc(list, kept, func(x, y historian.Sample) int {
			return cmp.Or(cmp.Compare(x.Time, y.Time), cmp.Compare(x.Seq, y.Seq))
		})
		h.samples[s.Series] = slices.Insert(list, at, kept)
	}
	return nil
}

func (h *shelf) Latest(id historian.Series) (historian.Sample, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := h.samples[id]
	if len(list) == 0 {
		return historian.Sample{}, false
	}
	return list[len(list)-1], true
}

func (h *shelf) FinestScale(id historian.Series) uint8 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if finest, ok := h.finest[id]; ok {
		return finest
	}
	return 6
}

func (h *shelf) Raw(ctx context.Context, dst []historian.Sample, q historian.Query) ([]historian.Sample, *historian.Cursor, error) {
	if h.entered != nil {
		h.entered <- struct{}{}
	}
	if h.release != nil {
		select {
		case <-h.release:
		case <-ctx.Done():
			return dst, nil, ctx.Err()
		}
	}
	if err := h.broken.Load(); err != nil {
		return dst, nil, *err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	type placed struct {
		historian.Sample
		ord uint32
	}
	var in []placed
	var ord uint32
	list := h.samples[q.Series]
	for i, s := range list {
		if i > 0 && list[i-1].Time == s.Time {
			ord++
		} else {
			ord = 0
		}
		if s.Time >= q.From && s.Time < q.To {
			in = append(in, placed{s, ord})
		}
	}
	if q.Desc {
		slices.Reverse(in)
	}
	if q.After != nil {
		in = slices.DeleteFunc(in, func(p placed) bool {
			by := cmp.Or(cmp.Compare(p.Time, q.After.Time), cmp.Compare(p.ord, q.After.Ord))
			return by == 0 || q.Desc == (by > 0)
		})
	}
	var next *historian.Cursor
	if len(in) > q.Limit {
		in = in[:q.Limit]
		next = &historian.Cursor{Time: in[q.Limit-1].Time, Ord: in[q.Limit-1].ord}
	}
	for _, p := range in {
		s := p.Sample
		s.Seq = 0
		dst = append(dst, s)
	}
	return dst, next, nil
}

// Aggregate: no test of this package asks the historian in memory for any.
func (h *shelf) Aggregate(context.Context, historian.Aggregation, func(int, *historian.Bucket) bool) error {
	if err := h.broken.Load(); err != nil {
		return *err
	}
	return nil
}
