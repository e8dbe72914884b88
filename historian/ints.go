package historian

import (
	"encoding/binary"
	"math/bits"
)

// The forms of an integer column. Which one a column has is chosen by the size of its residuals.
const (
	intsConst  = iota // value
	intsLinear        // first, step: the values are first + i×step
	intsOffset        // least, then value − least: noise
	intsDelta         // first, then zigzag of the change: drift
	intsStep          // first, least change, then change − least: counters
	intsGrid          // first, last, least residual, then residual − least: jitter around an even pace
	intsRuns          // changes, each with how often the value stands there more: states
)

// intsPacked in the form octet says that what follows the leading numbers is packed.
const intsPacked = 0x80

// runCost is about what the length of a run takes, in bits.
const runCost = 12

// gridSpan bounds the span of a grid column, so that index × span cannot overflow.
const gridSpan = 1 << 46

// appendInts writes a column of at least one and at most maxChunkSamples integers.
func appendInts(dst []byte, v []int64) []byte {
	n := len(v)
	least, most := v[0], v[0]
	linear := true
	var minStep int64
	step := int64(0)
	if n > 1 {
		step = v[1] - v[0]
		minStep = step
	}
	for i := 1; i < n; i++ {
		least, most = min(least, v[i]), max(most, v[i])
		d := v[i] - v[i-1]
		minStep = min(minStep, d)
		linear = linear && d == step
	}
	if least == most {
		return appendVarint(append(dst, intsConst), least)
	}
	if linear {
		dst = appendVarint(append(dst, intsLinear), v[0])
		return appendVarint(dst, step)
	}
	first, last := v[0], v[n-1]
	grid := uint64(last-first)+gridSpan <= 2*gridSpan
	var minGrid int64
	var span int64
	if grid {
		span = last - first
		for i, x := range v {
			minGrid = min(minGrid, x-onGrid(first, span, i, n))
		}
	}
	var offsetBits, deltaBits, stepBits, gridBits int
	runBits := runCost
	for i := 1; i < n; i++ {
		d := v[i] - v[i-1]
		offsetBits += bits.Len64(uint64(v[i] - least))
		deltaBits += bits.Len64(zigzag(d))
		if d != 0 {
			runBits += bits.Len64(zigzag(d)) + runCost
		}
		stepBits += bits.Len64(uint64(d - minStep))
		if grid {
			gridBits += bits.Len64(uint64(v[i] - onGrid(first, span, i, n) - minGrid))
		}
	}
	form, cost := byte(intsDelta), deltaBits
	if stepBits < cost {
		form, cost = intsStep, stepBits
	}
	if offsetBits < cost {
		form, cost = intsOffset, offsetBits
	}
	if grid && gridBits < cost {
		form, cost = intsGrid, gridBits
	}
	if runBits < max(cost, n) {
		form = intsRuns
	}
	at := len(dst)
	dst = append(dst, form)
	from := at
	switch form {
	case intsOffset:
		dst = appendVarint(dst, least)
		from = len(dst)
		for _, x := range v {
			dst = binary.AppendUvarint(dst, uint64(x-least))
		}
	case intsDelta:
		dst = appendVarint(dst, first)
		from = len(dst)
		for i := 1; i < n; i++ {
			dst = appendVarint(dst, v[i]-v[i-1])
		}
	case intsStep:
		dst = appendVarint(dst, first)
		dst = appendVarint(dst, minStep)
		from = len(dst)
		for i := 1; i < n; i++ {
			dst = binary.AppendUvarint(dst, uint64(v[i]-v[i-1]-minStep))
		}
	case intsGrid:
		dst = appendVarint(dst, first)
		dst = appendVarint(dst, last)
		dst = appendVarint(dst, minGrid)
		from = len(dst)
		for i := 1; i < n-1; i++ {
			dst = binary.AppendUvarint(dst, uint64(v[i]-onGrid(first, span, i, n)-minGrid))
		}
	case intsRuns:
		from = len(dst)
		was := int64(0)
		for i := 0; i < n; {
			x, start := v[i], i
			for i++; i < n && v[i] == x; i++ {
			}
			dst = appendVarint(dst, x-was)
			dst = binary.AppendUvarint(dst, uint64(i-start-1))
			was = x
		}
	}
	dst, ok := packed(dst, from)
	if ok {
		dst[at] |= intsPacked
	}
	return dst
}

// onGrid is where the i-th of n values lies on the even pace over span.
func onGrid(first, span int64, i, n int) int64 {
	return first + int64(i)*span/int64(n-1)
}

// ints reads a column of len(v) integers, at least one.
func (o *octets) ints(v []int64) {
	n := len(v)
	form := o.octet()
	var first, second, third int64
	switch form &^ intsPacked {
	case intsConst, intsOffset, intsDelta:
		first = o.varint()
	case intsLinear, intsStep:
		first, second = o.varint(), o.varint()
	case intsGrid:
		first, second, third = o.varint(), o.varint(), o.varint()
		if n < 2 || uint64(second-first)+gridSpan > 2*gridSpan {
			o.fail()
			return
		}
	}
	rest := o
	if form&intsPacked != 0 {
		var room [2 * stackInts]byte
		rest = &octets{b: o.unpack(room[:])}
	}
	switch form &^ intsPacked {
	case intsConst, intsLinear:
		for i := range v {
			v[i] = first
			first += second
		}
	case intsOffset:
		for i := range v {
			v[i] = first + int64(rest.uvarint())
		}
	case intsDelta:
		v[0] = first
		for i := 1; i < n; i++ {
			first += rest.varint()
			v[i] = first
		}
	case intsStep:
		v[0] = first
		for i := 1; i < n; i++ {
			first += second + int64(rest.uvarint())
			v[i] = first
		}
	case intsGrid:
		v[0], v[n-1] = first, second
		for i := 1; i < n-1; i++ {
			v[i] = onGrid(first, second-first, i, n) + third + int64(rest.uvarint())
		}
	case intsRuns:
		for len(v) > 0 {
			first += rest.varint()
			more := rest.uvarint()
			if rest.bad || more >= uint64(len(v)) {
				o.fail()
				return
			}
			for i := range v[:more+1] {
				v[i] = first
			}
			v = v[more+1:]
		}
	default:
		o.fail()
	}
	if rest != o && (rest.bad || len(rest.b) != 0) {
		o.fail()
	}
}
