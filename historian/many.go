package historian

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// sliceTime is how long iterators are kept open.
const sliceTime = 2 * time.Second

// keepHeads is how many samples of heads that reach over several hours a batch keeps decoded; of what is beyond it
// only the hours are kept, and each hour decodes anew.
const keepHeads = 1 << 19

// batch looks through neighbouring series together, hour by hour, so that a block of the tables is decoded once for
// all of them. One goroutine at a time.
type batch struct {
	s    *Store
	q    *Aggregation
	each func(i int, b *Bucket) bool
	cut  *buckets

	folds []fold // by series
	lo    int64  // what is left of the range begins here

	finder  finder
	spans   []span
	kept    int    // samples of heads that are kept decoded
	octets  []byte // of the chunks of the hour in hand
	window  []Sample
	columns chunkColumns
	tallies []tally
	out     Bucket // handed out by flush
	// gathered is a run of samples that came one by one.
	gathered run
}

// run goes through the range in slices, each of which sees the store at one moment.
func (b *batch) run(ctx context.Context) error {
	for i := range b.folds {
		if err := b.seed(ctx, &b.folds[i]); err != nil {
			return err
		}
	}
	for b.lo < b.q.To && !b.done() {
		select {
		case b.s.readers <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
		err := b.slice(ctx)
		<-b.s.readers
		if err != nil {
			return err
		}
	}
	for i := range b.folds {
		b.finish(&b.folds[i])
	}
	return nil
}

func (b *batch) done() bool {
	for i := range b.folds {
		if !b.folds[i].done {
			return false
		}
	}
	return true
}

func (b *batch) slice(ctx context.Context) (err error) {
	if err := b.s.enter(); err != nil {
		return err
	}
	defer b.s.inUse.Done()
	began := time.Now()
	// As in Raw the order matters: heads, list, tables.
	classes, sealed := uint8(0), uint32(0)
	for i := range b.folds {
		f := &b.folds[i]
		v, ok := b.s.heads.view(f.id)
		if !ok && !b.s.group.reserved(f.id) {
			return fmt.Errorf("%w %d", ErrUnknownSeries, f.id)
		}
		f.view, f.horizon = v, b.s.horizon(v.class)
		classes |= v.classes
		sealed = max(sealed, v.sealed)
	}
	b.kept = 0
	for i := range b.folds {
		b.loadHead(&b.folds[i])
	}
	b.spans = b.s.list.overlapping(b.spans[:0], classes, sealed, b.lo, b.q.To)
	if b.finder, err = b.s.openFinder(); err != nil {
		return errors.Join(err, b.finder.close())
	}
	defer func() { err = errors.Join(err, b.finder.close()) }()
	if err := b.finder.openTallies(); err != nil {
		return err
	}
	for i := range b.folds {
		if b.s.stale(b.folds[i].id, &b.folds[i].view) {
			return nil // the next slice looks again
		}
	}
	for {
		from, to, ok := b.nextHour()
		if !ok {
			b.lo = b.q.To
			return b.finder.fault()
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := b.readHour(from, to); err != nil {
			return err
		}
		b.lo = to
		if to == b.q.To || b.done() || time.Since(began) > sliceTime {
			return nil
		}
	}
}

// nextHour is the next part of the range, within one hour, that may hold samples.
func (b *batch) nextHour() (from, to int64, ok bool) {
	at := int64(0)
	see := func(first, last int64) {
		if last < b.lo || first >= b.q.To {
			return
		}
		if t := max(first, b.lo); !ok || t < at {
			at, ok = t, true
		}
	}
	for i := range b.spans {
		see(b.spans[i].from, b.spans[i].to)
	}
	for i := range b.folds {
		f := &b.folds[i]
		for len(f.hours) > 0 && hourEnd(f.hours[0]) < b.lo {
			f.hours = f.hours[1:]
		}
		if len(f.hours) > 0 && !f.done {
			see(f.hours[0], hourEnd(f.hours[0]))
		}
	}
	classes := uint8(0)
	for i := range b.folds {
		classes |= b.folds[i].view.classes
	}
	if hour, some := b.finder.tallyAfter(classes, b.lo, b.folds[0].id); some {
		see(hour, hourEnd(hour))
	}
	if !ok {
		return 0, 0, false
	}
	hour := hourOf(at)
	from, to = max(hour, b.lo), b.q.To
	if hour <= math.MaxInt64-nsPerHour {
		to = min(hour+nsPerHour, b.q.To)
	}
	return from, to, true
}

// readHour folds the samples of from <= t < to, which lie within one hour.
func (b *batch) readHour(from, to int64) error {
	b.octets = b.octets[:0]
	for i := range b.folds {
		b.folds[i].refs = b.folds[i].refs[:0]
	}
	for i := range b.spans {
		if sp := &b.spans[i]; sp.from < to && sp.to >= from {
			if err := b.findPartial(sp, from, to); err != nil {
				return err
			}
		}
	}
	for i := range b.folds {
		f := &b.folds[i]
		if f.done || to <= f.horizon {
			continue
		}
		if err := b.readSeries(f, from, to); err != nil {
			return fmt.Errorf("series %d: %w", f.id, err)
		}
	}
	return nil
}

// readSeries folds what one series has in an hour, whose chunks of checkpoints were found.
func (b *batch) readSeries(f *fold, from, to int64) error {
	b.refHead(f, from, to)
	if len(f.refs) == 0 {
		if ok, err := b.foldTallies(f, from, to); ok || err != nil {
			return err
		}
	}
	if err := b.finder.hour(f.view.classes, f.id, from, to, b.taker(f, orderMerged)); err != nil {
		return err
	}
	if len(f.refs) == 0 {
		return nil
	}
	return b.foldHour(f, max(from, f.horizon), to)
}

// The order of arrival of chunks by where they are: merged ones first, heads last.
const (
	orderMerged  = 0
	orderPartial = 1 << 20
	orderHead    = 1 << 21
)

// loadHead finds out which hours of the range the head of a series has samples in.
func (b *batch) loadHead(f *fold) {
	f.hours, f.head = f.hours[:0], nil
	for _, c := range []*column{&f.view.sealing, &f.view.open} {
		if c.count() == 0 || c.minTime() >= b.q.To || c.maxTime() < b.lo {
			continue
		}
		if hour := hourOf(c.minTime()); hour == hourOf(c.maxTime()) {
			f.hours = append(f.hours, hour)
			continue
		}
		b.window = c.appendSamples(b.window[:0])
		for i := range b.window {
			if hour := hourOf(b.window[i].Time); len(f.hours) == 0 || hour != f.hours[len(f.hours)-1] {
				f.hours = append(f.hours, hour)
			}
		}
	}
	slices.Sort(f.hours)
	f.hours = slices.Compact(f.hours)
	if n := f.view.sealing.count() + f.view.open.count(); len(f.hours) > 1 && b.kept+n <= keepHeads {
		b.kept += n
		f.head = f.view.open.appendSamples(f.view.sealing.appendSamples(nil))
		sortSamples(f.head)
	}
}

// refHead adds what the head has of from <= t < to to the chunks of the hour.
func (b *batch) refHead(f *fold, from, to int64) {
	if len(f.hours) == 0 || f.hours[0] != hourOf(from) {
		return
	}
	if f.head != nil {
		at := func(t int64) int {
			i, _ := slices.BinarySearchFunc(f.head, t, func(s Sample, t int64) int {
				if s.Time < t {
					return -1
				}
				return 1
			})
			return i
		}
		if part := f.head[at(from):at(to)]; len(part) > 0 {
			f.refs = append(f.refs, chunkRef{from: part[0].Time, to: part[len(part)-1].Time, order: orderHead, samples: part})
		}
		return
	}
	for _, c := range []*column{&f.view.sealing, &f.view.open} {
		if c.count() > 0 && c.minTime() < to && c.maxTime() >= from {
			f.refs = append(f.refs, chunkRef{from: max(from, c.minTime()), to: min(to-1, c.maxTime()), order: orderHead + len(f.refs), head: c})
		}
	}
}

func (b *batch) findPartial(sp *span, from, to int64) error {
	behind := int64(math.MaxInt64)
	for i := range b.folds {
		f := &b.folds[i]
		if f.done || f.view.classes&(1<<sp.class) == 0 || f.view.sealed < sp.ckpt {
			continue
		}
		first, ok, err := b.finder.chunks(b.finder.partial, sp.class, sp.ckpt, f.id, from, to, b.taker(f, orderPartial))
		if err != nil {
			return err
		}
		if ok {
			behind = min(behind, first)
		}
	}
	// A span is that of all series and may reach over years for one device with a wrong clock; what is left of it for
	// these series begins at the next chunk of theirs.
	if sp.from = behind; behind == math.MaxInt64 {
		sp.to = math.MinInt64
	}
	return nil
}

// taker keeps the chunks that are found of a series.
func (b *batch) taker(f *fold, order int) func(first, last int64, octets []byte) {
	return func(first, last int64, octets []byte) {
		at := len(b.octets)
		b.octets = append(b.octets, octets...)
		f.refs = append(f.refs, chunkRef{from: first, to: last, order: order + len(f.refs), b: b.octets[at:len(b.octets):len(b.octets)]})
	}
}

// foldHour goes through runs of chunks whose times overlap, as Raw does.
func (b *batch) foldHour(f *fold, from, to int64) error {
	sortRefs(f.refs)
	for rest := f.refs; len(rest) > 0 && !f.done; {
		n := cluster(rest)
		refs := rest[:n]
		rest = rest[n:]
		if n == 1 && refs[0].b != nil {
			ok, err := b.foldChunk(f, refs[0].b, from, to)
			if err != nil {
				return fmt.Errorf("chunk from %d: %w", refs[0].from, err)
			}
			if ok {
				continue
			}
		}
		if err := b.foldSamples(f, refs, from, to); err != nil {
			return err
		}
	}
	return nil
}

// foldSamples takes what has to be put in order first, or is no column of numbers.
func (b *batch) foldSamples(f *fold, refs []chunkRef, from, to int64) (err error) {
	slices.SortFunc(refs, func(a, b chunkRef) int { return a.order - b.order })
	w := b.window[:0]
	for _, ref := range refs {
		switch {
		case ref.samples != nil:
			w = append(w, ref.samples...)
		case ref.head != nil:
			w = ref.head.appendSamples(w)
		default:
			if w, err = decodeChunk(ref.b, f.id, w); err != nil {
				return fmt.Errorf("chunk from %d: %w", ref.from, err)
			}
		}
	}
	b.window = w
	sortSamples(w)
	at := 0
	for at < len(w) && w[at].Time < from {
		at++
	}
	for at < len(w) && w[at].Time < to {
		if !b.enter(f, w[at].Time) {
			return nil
		}
		if n := b.gather(w[at:], min(to, f.to)); n > 0 {
			f.t.addRun(&b.gathered, w[at].Quality, b.q.Weighted)
			at += n
			continue
		}
		f.t.add(&w[at])
		at++
	}
	return nil
}

// gather makes a run of the samples before end that are alike from the first on; none if that is no decimal.
func (b *batch) gather(w []Sample, end int64) (n int) {
	first := &w[0]
	if first.Value.Kind != Decimal || first.Value.Exp > maxExp {
		return 0
	}
	c := &b.columns
	c.times, c.mants = c.times[:0], c.mants[:0]
	// In ms the area of a run fits 64 bits where it would not in ns.
	unit := int64(1)
	if first.Time%millisecond == 0 {
		unit = millisecond
	}
	for i := range w {
		s := &w[i]
		at := s.Time / unit
		if s.Value.Kind != Decimal || s.Value.Exp != first.Value.Exp || s.Quality != first.Quality || s.Time >= end || at*unit != s.Time {
			break
		}
		c.times, c.mants = append(c.times, at), append(c.mants, s.Value.Mant)
	}
	b.gathered = run{kind: Decimal, exp: first.Value.Exp, unit: unit, times: c.times, mants: c.mants}
	return len(c.times)
}
