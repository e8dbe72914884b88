package historian

import (
	"bytes"
	"context"
)

// fold gathers the samples of one series, in order of (time, arrival), into buckets.
type fold struct {
	i        int
	id       Series
	view     headView
	horizon  int64    // what is older is hidden
	hours    []int64  // that the head has samples in
	head     []Sample // of the head, by time, if it reaches over several hours
	refs     []chunkRef
	from, to int64 // the bucket in hand, as it is cut
	begun    bool
	done     bool // nobody wants more
	t        tally
	carry    mark // the last number before the bucket
	carried  bool
	prev     Bucket // for FillPrev, with memory of its own
}

// seed looks up what stands before the range.
func (b *batch) seed(ctx context.Context, f *fold) error {
	if !b.q.Weighted && b.q.Fill != FillPrev {
		return nil
	}
	last, number, lastOK, numberOK, err := b.s.before(ctx, f.id, b.q.From)
	if err != nil {
		return err
	}
	f.carry, f.carried = number, numberOK
	if b.q.Fill != FillPrev || !lastOK {
		return nil
	}
	if last.time >= b.q.Origin {
		// A page before this one had a bucket with samples; what it showed carries on.
		from, to := b.cut.at(last.time)
		one := *b.q
		one.Series, one.Fill, one.From, one.To = []Series{f.id}, FillNone, max(from, b.q.Origin), min(to, b.q.From)
		return b.s.aggregateOne(ctx, &one, func(_ int, bucket *Bucket) bool {
			f.remember(bucket)
			return true
		})
	}
	f.prev = Bucket{Valued: true, First: last.value, Last: last.value}
	if n, ok := last.value.number(); ok {
		avg, _ := n.Float()
		f.prev.Numbered, f.prev.Min, f.prev.Max, f.prev.Avg, f.prev.Sum = true, n, n, avg, Value{}
	}
	return nil
}

// aggregateOne is Aggregate of one series by the caller's own turn.
func (s *Store) aggregateOne(ctx context.Context, q *Aggregation, each func(int, *Bucket) bool) error {
	b := &batch{s: s, q: q, each: each, cut: newBuckets(q.Step), lo: q.From, folds: []fold{{id: q.Series[0]}}}
	return b.run(ctx)
}

// remember keeps a bucket for those after it that are empty.
func (f *fold) remember(b *Bucket) {
	was := f.prev
	f.prev = *b
	for _, v := range []struct{ to, room *Value }{
		{&f.prev.First, &was.First}, {&f.prev.Last, &was.Last}, {&f.prev.Sum, &was.Sum}, {&f.prev.Min, &was.Min}, {&f.prev.Max, &was.Max},
	} {
		v.to.Raw = bytes.Clone(v.to.Raw)
	}
	f.prev.Count, f.prev.Good, f.prev.Numeric = 0, 0, 0
}

// enter makes the bucket around a time the one in hand. Times come in order. It is false when the series is done.
func (b *batch) enter(f *fold, at int64) bool {
	if f.begun && at < f.to {
		return true
	}
	next := b.q.From
	if f.begun {
		next = f.to
		if b.flush(f); f.done {
			return false
		}
	}
	if b.q.Fill != FillNone {
		if b.fill(f, next, at); f.done {
			return false
		}
	}
	f.from, f.to = b.cut.at(at)
	f.begun = true
	return true
}

// fill hands out the empty buckets from the one around next up to, not including, the one around at.
func (b *batch) fill(f *fold, next, at int64) {
	for next < b.q.To {
		f.from, f.to = b.cut.at(next)
		if at < f.to {
			return
		}
		if b.flush(f); f.done {
			return
		}
		next = f.to
	}
}

// finish hands out what is left.
func (b *batch) finish(f *fold) {
	next := b.q.From
	if f.begun && !f.done {
		next = f.to
		b.flush(f)
	}
	f.begun = false
	if !f.done && b.q.Fill != FillNone {
		for next < b.q.To && !f.done {
			f.from, f.to = b.cut.at(next)
			next = f.to
			b.flush(f)
		}
	}
	f.done = true
}

// flush hands out the bucket in hand.
func (b *batch) flush(f *fold) {
	t := &f.t
	out := &b.out
	*out = Bucket{From: f.from, To: f.to}
	if b.q.Step.whole() {
		out.From, out.To = b.q.From, b.q.To
	}
	if t.count == 0 && b.q.Fill == FillPrev {
		*out = f.prev
		out.From, out.To, out.Timed = f.from, f.to, false
		if b.q.Step.whole() {
			out.From, out.To = b.q.From, b.q.To
		}
	}
	if t.count > 0 {
		out.Count, out.Good, out.Numeric = t.count, t.good, t.numeric
		if t.valued {
			out.Valued, out.First, out.Last = true, t.first.value, t.last.value
		}
		if t.numeric > 0 {
			out.Min, out.Max = t.min, t.max
			out.Sum, out.Numbered = t.sum.value()
			if out.Numbered {
				out.Avg = t.sum.over(t.numeric)
			}
		}
	}
	if b.q.Weighted {
		b.weigh(f, out)
	}
	if t.numeric > 0 {
		f.carry.set(t.lastNum.time, t.lastNum.value)
		f.carried = true
	}
	if b.q.Fill == FillPrev && t.count > 0 {
		f.remember(out)
	}
	if !b.each(f.i, out) {
		f.done = true
	}
	t.reset()
}

// weigh works out TWA: what was carried in, the area between the numbers, and the last one carried on.
func (b *batch) weigh(f *fold, out *Bucket) {
	t := &f.t
	begin, end := max(f.from, b.q.From), min(f.to, b.q.To)
	if t.numeric == 0 {
		if end = min(end, b.q.Until); f.carried && begin < end {
			out.TWA, out.Timed = f.carry.value.Float()
		}
		return
	}
	end = max(min(end, b.q.Until), t.lastNum.time)
	if !f.carried {
		begin = t.firstNum.time
	}
	if begin >= end {
		// One moment: the number that stands at its end.
		out.TWA, out.Timed = t.lastNum.value.Float()
		return
	}
	if f.carried {
		t.area.addValue(f.carry.value, uint64(t.firstNum.time-begin))
	}
	t.area.addValue(t.lastNum.value, uint64(end-t.lastNum.time))
	out.TWA, out.Timed = t.area.over(uint64(end-begin)), true
}
