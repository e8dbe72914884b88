package historian

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"sort"
)

// chunkColumns is the room for one chunk taken apart without making samples of it.
type chunkColumns struct {
	times, mants []int64
	traits       []traitRun
}

// traitRun is a run of one quality, up to the index to.
type traitRun struct {
	to int
	q  Quality
}

// run is neighbours of one chunk with one quality: decimals of one exponent, or booleans.
type run struct {
	kind    Kind // Decimal or Bool
	exp     uint8
	trimmed bool // ending zeros of the mantissas are not digits that were sent
	unit    int64
	base    int64 // of times, in units
	times   []int64
	mants   []int64
}

func (r *run) time(i int) int64 { return (r.base + r.times[i]) * r.unit }

func (r *run) value(m int64) Value {
	v := Value{Kind: r.kind, Exp: r.exp, Mant: m}
	if r.trimmed {
		v = trimZeros(v)
	}
	return v
}

func (r *run) number(m int64) Value {
	v := r.value(m)
	v.Kind = Decimal
	return v
}

// read takes a chunk apart. ok is false when it holds what has to be looked at sample by sample.
func (c *chunkColumns) read(octs []byte) (r run, ok bool, err error) {
	o := octets{b: octs}
	h, err := o.chunkHead()
	if err != nil {
		return r, false, err
	}
	c.times = slices.Grow(c.times[:0], h.count)[:h.count]
	c.mants = slices.Grow(c.mants[:0], h.count)[:h.count]
	c.traits = c.traits[:0]
	r = run{kind: Decimal, unit: h.unit, base: h.from / h.unit, times: c.times, mants: c.mants}
	o.ints(c.times)
	if o.bad {
		return r, false, fmt.Errorf("chunk: times: %w", errCorrupt)
	}
	span := h.to/h.unit - r.base
	at := int64(0)
	for _, t := range c.times {
		if t < at || t > span {
			return r, false, nil // not in order: the slow way says whether it is damaged
		}
		at = t
	}
	switch form := o.octet(); form {
	case valuesFixed, valuesTrimmed:
		r.exp, r.trimmed = o.octet(), form == valuesTrimmed
		if r.exp > maxExp {
			return r, false, nil
		}
		o.ints(c.mants)
	case valuesBool:
		r.kind = Bool
		on, left := int64(o.octet()), c.mants
		if on > 1 {
			o.fail()
		}
		for len(left) > 0 {
			n := o.uvarint()
			if n == 0 || n > uint64(len(left)) {
				o.fail()
				break
			}
			for i := range left[:n] {
				left[i] = on
			}
			left, on = left[n:], on^1
		}
	default:
		return r, false, nil
	}
	if h.flags&chunkScale != 0 {
		o.runs(h.count, maxScale, func(int, int, byte) {})
	}
	if h.flags&chunkQuality != 0 {
		o.runs(h.count, byte(Bad), func(_, to int, q byte) { c.traits = append(c.traits, traitRun{to, Quality(q)}) })
	} else {
		c.traits = append(c.traits, traitRun{to: h.count})
	}
	if o.bad {
		return r, false, fmt.Errorf("chunk: values: %w", errCorrupt)
	}
	return r, true, nil
}

// index is the first of the run not before a time that lies between its first and its last.
func (r *run) index(ns int64) int {
	units := floorDiv(ns, r.unit)
	if units*r.unit < ns {
		units++
	}
	units -= r.base
	return sort.Search(len(r.times), func(i int) bool { return r.times[i] >= units })
}

// foldChunk takes the samples of a chunk with lo <= t < hi.
func (b *batch) foldChunk(f *fold, octs []byte, lo, hi int64) (ok bool, err error) {
	r, ok, err := b.columns.read(octs)
	if !ok || err != nil {
		return false, err
	}
	at, end := 0, len(r.times)
	last := r.time(end - 1)
	if lo > last || hi <= r.time(0) {
		return true, nil
	}
	if lo > r.time(0) {
		at = r.index(lo)
	}
	if hi <= last {
		end = r.index(hi)
	}
	traits := b.columns.traits
	for at < end {
		if !b.enter(f, r.time(at)) {
			return true, nil
		}
		stop := end
		if f.to <= last {
			stop = min(end, at+sort.Search(end-at, func(i int) bool { return r.time(at+i) >= f.to }))
		}
		for at < stop {
			for traits[0].to <= at {
				traits = traits[1:]
			}
			to := min(stop, traits[0].to)
			part := r
			part.times, part.mants = r.times[at:to], r.mants[at:to]
			f.t.addRun(&part, traits[0].q, b.q.Weighted)
			at = to
		}
	}
	return true, nil
}

// addRun is add of every sample of the run, but for the area when it is not weighted.
func (t *tally) addRun(r *run, q Quality, weighted bool) {
	n := len(r.mants)
	t.count += uint64(n)
	t.worst = max(t.worst, q)
	switch q {
	case Bad:
		return
	case Good:
		t.good += uint64(n)
	}
	least, most, sum := r.mants[0], r.mants[0], int64(0)
	for _, m := range r.mants {
		least, most = min(least, m), max(most, m)
		sum += m
	}
	size := max(magnitude(least), magnitude(most))
	firstTime, lastTime := r.time(0), r.time(n-1)
	first, last := r.mants[0], r.mants[n-1]
	if !t.valued {
		t.valued = true
		t.first.set(firstTime, r.value(first))
	}
	t.last.set(lastTime, r.value(last))

	low, high := r.number(least), r.number(most)
	if t.numeric == 0 {
		t.firstNum.set(firstTime, r.number(first))
		t.min, t.max = low, high
	} else {
		if weighted {
			t.area.addValue(t.lastNum.value, uint64(firstTime-t.lastNum.time))
		}
		if compareNumbers(low, t.min) < 0 {
			t.min = low
		}
		if byValue, whole := compareBoth(high, t.max); byValue > 0 || byValue == 0 && whole < 0 {
			t.max = high
		}
	}
	t.numeric += uint64(n)
	t.lastNum.set(lastTime, r.number(last))

	if over, fits := bits.Mul64(size, uint64(n)); over == 0 && fits <= math.MaxInt64 {
		t.sum.add(r.exp, sum>>63, uint64(sum))
	} else {
		hi, lo := wideSum(r.mants)
		t.sum.add(r.exp, hi, lo)
	}
	if weighted && n > 1 {
		t.weighRun(r, size)
	}
}

// weighRun adds the area of a run.
func (t *tally) weighRun(r *run, size uint64) {
	n := len(r.mants)
	if over, fits := bits.Mul64(size, uint64(r.times[n-1]-r.times[0])); over == 0 && fits <= math.MaxInt64 {
		area, at := int64(0), r.times[0]
		for i, next := range r.times[1:] {
			area += r.mants[i] * (next - at)
			at = next
		}
		hi, lo := mulTimes(area, uint64(r.unit))
		t.area.add(r.exp, hi, lo)
		return
	}
	for i, next := range r.times[1:] {
		hi, lo := mulTimes(r.mants[i], uint64(next-r.times[i])*uint64(r.unit))
		t.area.add(r.exp, hi, lo)
	}
}

func wideSum(mants []int64) (hi int64, lo uint64) {
	for _, m := range mants {
		sum, carry := bits.Add64(lo, uint64(m), 0)
		lo, hi = sum, hi+m>>63+int64(carry)
	}
	return hi, lo
}

func magnitude(m int64) uint64 {
	if m < 0 {
		return -uint64(m)
	}
	return uint64(m)
}
