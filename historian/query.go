package historian

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
)

const (
	defaultLimit = 10_000
	maxLimit     = 100_000
)

// Raw appends one page of the samples of a series to dst, in order of time, equal times in order of arrival,
// or with Desc in exactly the reverse order. Next is the cursor for the page after it; nil when the range is
// exhausted. It sees every sample whose Append returned before, none twice, whatever checkpoints do
// meanwhile. The samples own their Raw, which may be shared among them and is to be read only. On an error
// the page is dst as it was. ctx is looked at once per hour of data.
func (s *Store) Raw(ctx context.Context, dst []Sample, q Query) (page []Sample, next *Cursor, err error) {
	if q.Limit < 0 || q.Limit > maxLimit {
		return dst, nil, fmt.Errorf("historian: query: limit %d is not within 0 and %d", q.Limit, maxLimit)
	}
	if q.Limit == 0 {
		q.Limit = defaultLimit
	}
	if err := s.enter(); err != nil {
		return dst, nil, err
	}
	defer s.inUse.Done()
	// The order matters: first the head, which says up to which checkpoint its samples are in chunks; then the
	// list and the tables, which hold at least those.
	v, ok := s.heads.view(q.Series)
	if !ok && s.group.reserved(q.Series) {
		return dst, nil, nil // its row is still on its way to the disk, so nothing is stored in it
	}
	if !ok {
		return dst, nil, fmt.Errorf("%w %d", ErrUnknownSeries, q.Series)
	}
	for {
		r := &reader{q: q, s: s, view: v, page: dst, start: len(dst), lo: q.From, hi: q.To}
		r.clamp()
		r.lo = max(r.lo, s.horizon(v.class))
		if r.lo >= r.hi {
			return dst, nil, nil
		}
		again, err := r.open()
		if again && err == nil {
			v, _ = s.heads.view(q.Series)
			err = r.finder.close()
			if err == nil {
				continue
			}
		}
		if err == nil {
			next, err = r.read(ctx)
		}
		if err = errors.Join(err, r.finder.close()); err != nil {
			return dst, nil, fmt.Errorf("historian: query series %d: %w", q.Series, err)
		}
		return r.page, next, nil
	}
}

// reader answers one query. It goes through the range hour by hour, as chunks are cut, so that a page costs
// what it holds and not what the range holds.
type reader struct {
	q      Query
	s      *Store
	view   headView
	lo, hi int64 // what is left of the range: lo <= t < hi
	spans  []span
	head   []Sample // of the head within the range, by time
	page   []Sample
	start  int // where the page begins
	last   Cursor
	more   bool // the page is full and there is at least one sample behind it

	finder finder
	refs   []chunkRef
	window []Sample
	octets []byte
}

// chunkRef is a chunk that was found, with its span.
type chunkRef struct {
	from, to int64
	order    int // of arrival: chunks by checkpoint, then by key, then the head
	b        []byte
	head     *column  // instead of b, for many series at once
	samples  []Sample // the same
}

// clamp narrows the range to the side of the cursor that is asked for.
func (r *reader) clamp() {
	after := r.q.After
	switch {
	case after == nil:
	case !r.q.Desc:
		r.lo = max(r.lo, after.Time)
	case after.Time < math.MaxInt64:
		r.hi = min(r.hi, after.Time+1)
	}
}

// open finds out where to look. again: the head that was looked at is older than the tables.
func (r *reader) open() (again bool, err error) {
	r.spans = r.s.list.overlapping(nil, r.view.classes, r.view.sealed, r.lo, r.hi)
	if len(r.spans) == 0 && !r.s.merged.Load() {
		return false, nil
	}
	r.finder, err = r.s.openFinder()
	return err == nil && r.s.stale(r.q.Series, &r.view), err
}

func (r *reader) read(ctx context.Context) (*Cursor, error) {
	r.loadHead()
	for !r.more {
		from, to, ok := r.nextHour()
		if !ok {
			return nil, r.finder.fault()
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := r.readHour(from, to); err != nil {
			return nil, err
		}
		if r.q.Desc {
			r.hi = from
		} else {
			r.lo = to
		}
	}
	return &r.last, nil
}

// loadHead decodes what the head holds of the range.
func (r *reader) loadHead() {
	for _, c := range []*column{&r.view.sealing, &r.view.open} {
		if c.count() > 0 && c.minTime() < r.hi && c.maxTime() >= r.lo {
			r.head = c.appendSamples(r.head)
		}
	}
	r.head = slices.DeleteFunc(r.head, func(s Sample) bool { return s.Time < r.lo || s.Time >= r.hi })
	sortSamples(r.head)
}

// nextHour is the next part of the range, within one hour, that may hold samples.
func (r *reader) nextHour() (from, to int64, ok bool) {
	if r.lo >= r.hi {
		return 0, 0, false
	}
	// at is the time nearest to the edge that some source covers.
	at := int64(0)
	see := func(first, last int64) {
		if last < r.lo || first >= r.hi {
			return
		}
		t := max(first, r.lo)
		if r.q.Desc {
			t = min(last, r.hi-1)
		}
		if !ok || (t < at) != r.q.Desc {
			at, ok = t, true
		}
	}
	for i := range r.spans {
		see(r.spans[i].from, r.spans[i].to)
	}
	if n := len(r.head); n > 0 {
		if r.q.Desc {
			if i := r.headFrom(r.hi); i > 0 {
				see(r.head[i-1].Time, r.head[i-1].Time)
			}
		} else if i := r.headFrom(r.lo); i < n {
			see(r.head[i].Time, r.head[i].Time)
		}
	}
	if r.q.Desc {
		if hour, some := r.finder.mergedBefore(r.view.classes, r.hi-1); some {
			see(hour, hourEnd(hour))
		}
	} else if hour, some := r.finder.mergedAfter(r.view.classes, r.lo); some {
		see(hour, hourEnd(hour))
	}
	if !ok {
		return 0, 0, false
	}
	hour := hourOf(at)
	from, to = max(hour, r.lo), r.hi
	if hour <= math.MaxInt64-nsPerHour {
		to = min(hour+nsPerHour, r.hi)
	}
	return from, to, true
}

// headFrom is the index of the first head sample not before t.
func (r *reader) headFrom(t int64) int {
	i, _ := slices.BinarySearchFunc(r.head, t, func(s Sample, t int64) int {
		if s.Time < t {
			return -1
		}
		return 1
	})
	return i
}

// readHour adds the samples of from <= t < to, which lie within one hour, to the page.
func (r *reader) readHour(from, to int64) error {
	r.refs, r.octets = r.refs[:0], r.octets[:0]
	if err := r.finder.hour(r.view.classes, r.q.Series, from, to, r.take); err != nil {
		return err
	}
	for i := range r.spans {
		sp := &r.spans[i]
		if sp.from >= to || sp.to < from {
			continue
		}
		behind, ok, err := r.finder.chunks(r.finder.partial, sp.class, sp.ckpt, r.q.Series, from, to, r.take)
		if err == nil && r.q.Desc {
			behind, ok, err = r.finder.before(r.finder.partial)
		}
		if err != nil {
			return err
		}
		// A span is that of all series and may reach over years for one device with a wrong clock; what is left
		// of it for this series begins, or going back ends, at its next chunk.
		switch {
		case !ok:
			sp.from, sp.to = math.MaxInt64, math.MinInt64
		case r.q.Desc:
			sp.to = min(sp.to, behind)
		default:
			sp.from = behind
		}
	}
	if a, b := r.headFrom(from), r.headFrom(to); a < b {
		r.refs = append(r.refs, chunkRef{from: r.head[a].Time, to: r.head[b-1].Time, order: len(r.refs)})
	}
	sortRefs(r.refs)
	return r.readClusters(from, to)
}

// take keeps a chunk that was found.
func (r *reader) take(first, last int64, octets []byte) {
	at := len(r.octets)
	r.octets = append(r.octets, octets...)
	r.refs = append(r.refs, chunkRef{from: first, to: last, order: len(r.refs), b: r.octets[at:len(r.octets):len(r.octets)]})
}

// readClusters goes through runs of chunks whose times overlap. Runs are apart from each other in time, so
// samples of equal time never lie in two of them.
func (r *reader) readClusters(from, to int64) error {
	clusters := r.clusters()
	if r.q.Desc {
		slices.Reverse(clusters)
	}
	for _, c := range clusters {
		if err := r.readCluster(c, from, to); err != nil || r.more {
			return err
		}
	}
	return nil
}

func (r *reader) clusters() (out [][]chunkRef) {
	for rest := r.refs; len(rest) > 0; {
		n := cluster(rest)
		out = append(out, rest[:n])
		rest = rest[n:]
	}
	return out
}

// sortRefs puts chunks in order of time, those that begin at the same time in order of arrival.
func sortRefs(refs []chunkRef) {
	slices.SortFunc(refs, func(a, b chunkRef) int {
		if a.from < b.from || a.from == b.from && a.order < b.order {
			return -1
		}
		return 1
	})
}

// cluster is how many chunks from the first on overlap each other; refs are sorted.
func cluster(refs []chunkRef) int {
	end, n := refs[0].to, 1
	for n < len(refs) && refs[n].from <= end {
		end = max(end, refs[n].to)
		n++
	}
	return n
}

func (r *reader) readCluster(refs []chunkRef, from, to int64) (err error) {
	slices.SortFunc(refs, func(a, b chunkRef) int { return a.order - b.order })
	w := r.window[:0]
	for _, ref := range refs {
		if ref.b == nil {
			w = append(w, r.head[r.headFrom(from):r.headFrom(to)]...)
		} else if w, err = decodeChunk(ref.b, r.q.Series, w); err != nil {
			return fmt.Errorf("chunk from %d: %w", ref.from, err)
		}
	}
	r.window = w
	sortSamples(w)
	a, b := 0, len(w)
	for a < b && w[a].Time < from {
		a++
	}
	for b > a && w[b-1].Time >= to {
		b--
	}
	r.emit(w[a:b])
	return nil
}

// emit adds samples, which hold all or none of each time, to the page, and says in more whether one was left.
func (r *reader) emit(w []Sample) {
	// a and b bound what the cursor leaves; its time stands at one end of the range.
	a, b := 0, len(w)
	if after := r.q.After; after != nil && r.q.Desc {
		if b > 0 && w[b-1].Time == after.Time {
			first := b - 1 - int(ordOf(w, b-1))
			b = min(b, first+int(after.Ord))
		}
	} else if after != nil {
		for a < b && w[a].Time == after.Time && a <= int(after.Ord) {
			a++
		}
	}
	room := r.q.Limit - (len(r.page) - r.start)
	if b-a > room {
		r.more = true
	}
	n := min(b-a, room)
	if n == 0 {
		return
	}
	last := a + n - 1
	if r.q.Desc {
		last = b - n
		for i := b - 1; i >= last; i-- {
			r.page = append(r.page, w[i])
		}
	} else {
		r.page = append(r.page, w[a:a+n]...)
	}
	r.last = Cursor{Time: w[last].Time, Ord: ordOf(w, last)}
}

// ordOf is the place of w[i] among the samples of its time.
func ordOf(w []Sample, i int) uint32 {
	first := i
	for first > 0 && w[first-1].Time == w[i].Time {
		first--
	}
	return uint32(i - first)
}
