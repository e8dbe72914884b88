package historian

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"strconv"
)

// tally is what a run of samples of one series amounts to: everything the aggregates need and nothing that depends on
// how the run was cut. Samples come in order of (time, arrival). Bad ones count and do no more; uncertain ones count
// like good ones; booleans are the numbers 0 and 1; text, octets, structures and null have a first and a last only.
// The zero tally is that of no samples.
type tally struct {
	count, good, numeric uint64
	worst                Quality
	valued               bool // there is a first and a last: a sample that is not bad
	elided               bool // what first and last held was too long to be kept: only their times are known
	first, last          mark // among all that are not bad
	firstNum, lastNum    mark // among the numbers of those
	min, max             Value
	sum                  exact
	area                 exact // of each number times the ns to the next, from firstNum to lastNum
}

// mark is a value at a time. It owns its Raw.
type mark struct {
	time  int64
	value Value
}

func (m *mark) set(time int64, v Value) {
	raw := m.value.Raw[:0]
	m.time, m.value = time, v
	m.value.Raw = nil
	if v.Kind >= Number {
		m.value.Raw = append(raw, v.Raw...)
	}
}

// add takes the next sample and keeps nothing of it.
func (t *tally) add(s *Sample) {
	t.count++
	t.worst = max(t.worst, s.Quality)
	switch s.Quality {
	case Bad:
		return
	case Good:
		t.good++
	}
	if !t.valued {
		t.valued = true
		t.first.set(s.Time, s.Value)
	}
	t.last.set(s.Time, s.Value)
	if n, ok := s.Value.number(); ok {
		t.addNumber(s.Time, n)
	}
}

// addNumber takes the number of a sample that was counted.
func (t *tally) addNumber(time int64, n Value) {
	if t.numeric == 0 {
		t.firstNum.set(time, n)
		t.min, t.max = n.Clone(), n.Clone()
	} else {
		t.area.addValue(t.lastNum.value, uint64(time-t.lastNum.time))
		if compareNumbers(n, t.min) < 0 {
			t.min = n.Clone()
		}
		// Of equal numbers the same one is kept on both sides.
		if byValue, whole := compareBoth(n, t.max); byValue > 0 || byValue == 0 && whole < 0 {
			t.max = n.Clone()
		}
	}
	t.numeric++
	t.lastNum.set(time, n)
	t.sum.addValue(n, 1)
}

// merge takes the samples of another run, all of which come after those of t, and keeps nothing of it.
func (t *tally) merge(later *tally) {
	t.count += later.count
	t.good += later.good
	t.worst = max(t.worst, later.worst)
	if later.valued {
		if !t.valued {
			t.valued = true
			t.first.set(later.first.time, later.first.value)
		}
		t.last.set(later.last.time, later.last.value)
		t.elided = t.elided || later.elided
	}
	if later.numeric == 0 {
		return
	}
	if t.numeric == 0 {
		t.firstNum.set(later.firstNum.time, later.firstNum.value)
		t.min, t.max = later.min.Clone(), later.max.Clone()
	} else {
		t.area.addValue(t.lastNum.value, uint64(later.firstNum.time-t.lastNum.time))
		if compareNumbers(later.min, t.min) < 0 {
			t.min = later.min.Clone()
		}
		if byValue, whole := compareBoth(later.max, t.max); byValue > 0 || byValue == 0 && whole < 0 {
			t.max = later.max.Clone()
		}
	}
	t.numeric += later.numeric
	t.lastNum.set(later.lastNum.time, later.lastNum.value)
	t.sum.addExact(&later.sum)
	t.area.addExact(&later.area)
}

// before says whether everything of t that has a value lies at earlier times than that of later, so that the two can be
// merged. Otherwise only the samples tell the area.
func (t *tally) before(later *tally) bool {
	return !t.valued || !later.valued || t.last.time < later.first.time
}

// reset makes t the tally of no samples and keeps its room.
func (t *tally) reset() {
	was := *t
	*t = tally{}
	for _, m := range []struct{ to, from *mark }{{&t.first, &was.first}, {&t.last, &was.last}, {&t.firstNum, &was.firstNum}, {&t.lastNum, &was.lastNum}} {
		m.to.value.Raw = m.from.value.Raw[:0]
	}
	t.sum.terms, t.area.terms = was.sum.terms[:0], was.area.terms[:0]
}

// number is the value as a number: itself, or 0 or 1 for a boolean. Raw stays shared.
func (v Value) number() (Value, bool) {
	switch v.Kind {
	case Decimal:
		return v, true
	case Bool:
		n := Value{Kind: Decimal}
		if v.Mant != 0 {
			n.Mant = 1
		}
		return n, true
	case Number:
		f, ok := v.Float()
		return v, ok && !math.IsNaN(f)
	}
	return Value{}, false
}

// compareNumbers orders numbers by value, and equal ones so that the one of fewer digits comes first: which of 1, 1.0
// and 1e0 is kept must not depend on which came first.
func compareNumbers(a, b Value) int {
	byValue, whole := compareBoth(a, b)
	if byValue != 0 {
		return byValue
	}
	return whole
}

// compareBoth compares by value, and how the two are written.
func compareBoth(a, b Value) (byValue, whole int) {
	if a.Kind == Decimal && b.Kind == Decimal && a.Exp == b.Exp {
		switch {
		case a.Mant < b.Mant:
			return -1, -1
		case a.Mant > b.Mant:
			return 1, 1
		}
		return 0, 0
	}
	f, _ := a.Float()
	g, _ := b.Float()
	switch {
	case f < g:
		return -1, -1
	case f > g:
		return 1, 1
	}
	// The nearest float64 keeps the order of two numbers but may make them one.
	if c := exactRat(a).Cmp(exactRat(b)); c != 0 {
		return c, c
	}
	if a.Kind != b.Kind {
		return 0, int(a.Kind) - int(b.Kind)
	}
	if a.Kind == Decimal {
		return 0, int(a.Exp) - int(b.Exp)
	}
	return 0, bytes.Compare(a.Raw, b.Raw)
}

// exactRat is a number as a fraction. An exponent far beyond float64 stands for 0: its nearest float64 is that.
func exactRat(v Value) *big.Rat {
	if v.Kind == Decimal {
		ten := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(v.Exp)), nil)
		return new(big.Rat).SetFrac(big.NewInt(v.Mant), ten)
	}
	if i := bytes.IndexAny(v.Raw, "eE"); i >= 0 {
		if exp, err := strconv.Atoi(string(v.Raw[i+1:])); err != nil || exp < -2000 || exp > 2000 {
			return new(big.Rat)
		}
	}
	if r, ok := new(big.Rat).SetString(string(v.Raw)); ok {
		return r
	}
	return new(big.Rat)
}

// floatValue is the number that prints as the shortest decimal that means f.
func floatValue(f float64) (v Value, ok bool) {
	if math.IsInf(f, 0) || math.IsNaN(f) {
		return Value{}, false
	}
	v, ok = ParseNumber(strconv.AppendFloat(nil, f, 'g', -1, 64))
	if !ok { // 1e+06 is JSON, so this does not happen
		return Value{}, false
	}
	return v, true
}

// tallyVersion is the first octet of a stored tally.
const tallyVersion = 1

// maxTallyRaw is the longest text, structure or run of octets that a stored tally keeps as first or last.
const maxTallyRaw = 1024

// The flags of a stored tally.
const (
	tallyValued   = 1 << 0
	tallyNumeric  = 1 << 1 // numbers follow
	tallyPure     = 1 << 2 // first and last are the first and last number
	tallyElided   = 1 << 3
	tallyWorst    = 4 // two bits
	tallySpare    = 0xc0
	maxTallyWorst = uint8(Bad)
)

// appendTo writes the tally as FORMAT.md draws it.
func (t *tally) appendTo(dst []byte) []byte {
	elided := t.elided || t.valued && (len(t.first.value.Raw) > maxTallyRaw || len(t.last.value.Raw) > maxTallyRaw)
	pure := t.numeric > 0 && !elided && t.first.same(&t.firstNum) && t.last.same(&t.lastNum)
	flags := byte(t.worst) << tallyWorst
	for _, f := range []struct {
		on  bool
		bit byte
	}{{t.valued, tallyValued}, {t.numeric > 0, tallyNumeric}, {pure, tallyPure}, {elided, tallyElided}} {
		if f.on {
			flags |= f.bit
		}
	}
	dst = append(dst, tallyVersion, flags)
	dst = binary.AppendUvarint(dst, t.count)
	dst = binary.AppendUvarint(dst, t.good)
	if !t.valued {
		return dst
	}
	scale := uint8(maxScale)
	times := []int64{t.first.time, t.last.time, t.first.time, t.last.time}
	if t.numeric > 0 {
		times[2], times[3] = t.firstNum.time, t.lastNum.time
	}
	for _, at := range times {
		for at%pow10[scale] != 0 {
			scale--
		}
	}
	unit := pow10[scale]
	dst = appendVarint(append(dst, scale), t.first.time/unit)
	dst = binary.AppendUvarint(dst, uint64(t.last.time/unit-t.first.time/unit))
	if !pure && !elided {
		dst = appendFormed(appendFormed(dst, &t.first.value), &t.last.value)
	}
	if t.numeric == 0 {
		return dst
	}
	dst = binary.AppendUvarint(dst, t.numeric)
	if !pure {
		dst = binary.AppendUvarint(dst, uint64(t.firstNum.time/unit-t.first.time/unit))
		dst = binary.AppendUvarint(dst, uint64(t.last.time/unit-t.lastNum.time/unit))
	}
	for _, v := range []*Value{&t.firstNum.value, &t.lastNum.value, &t.min, &t.max} {
		dst = appendFormed(dst, v)
	}
	return t.area.append(t.sum.append(dst))
}

func (m *mark) same(o *mark) bool {
	return m.time == o.time && m.value.Kind == o.value.Kind && m.value.Equal(o.value)
}

func appendFormed(dst []byte, v *Value) []byte {
	form := formOf(v)
	return appendForm(append(dst, form), form, v)
}

// readTally reads what appendTo wrote, nothing behind it. Nothing of b is kept.
func readTally(b []byte) (t tally, err error) {
	o := octets{b: b}
	if v := o.octet(); v != tallyVersion {
		return t, fmt.Errorf("tally: version %d: %w", v, errCorrupt)
	}
	flags := o.octet()
	worst := flags >> tallyWorst & 3
	t.worst, t.valued, t.elided = Quality(worst), flags&tallyValued != 0, flags&tallyElided != 0
	t.count, t.good = o.uvarint(), o.uvarint()
	numbers, pure := flags&tallyNumeric != 0, flags&tallyPure != 0
	if o.bad || flags&tallySpare != 0 || worst > maxTallyWorst || t.good > t.count || t.valued && t.count == 0 ||
		!t.valued && flags&(tallyNumeric|tallyPure|tallyElided) != 0 || pure && (!numbers || t.elided) {
		return tally{}, fmt.Errorf("tally: head: %w", errCorrupt)
	}
	if t.valued {
		o.tallied(&t, numbers, pure)
	}
	if o.bad || len(o.b) != 0 {
		return tally{}, fmt.Errorf("tally: %w", errCorrupt)
	}
	return t, nil
}

// tallied reads what is there of a tally with values.
func (o *octets) tallied(t *tally, numbers, pure bool) {
	scale := o.octet()
	first, span := o.varint(), o.uvarint()
	if o.bad || scale > maxScale {
		o.fail()
		return
	}
	at := func(units int64) (ns int64) {
		ns, ok := mulTime(units, pow10[scale])
		if !ok {
			o.fail()
		}
		return ns
	}
	last := first + int64(span)
	t.first.time, t.last.time = at(first), at(last)
	if !pure && !t.elided {
		t.first.value, t.last.value = o.formed(), o.formed()
	}
	if t.last.time < t.first.time {
		o.fail()
	}
	if !numbers || o.bad {
		return
	}
	t.numeric = o.uvarint()
	t.firstNum.time, t.lastNum.time = t.first.time, t.last.time
	if !pure {
		after, before := o.uvarint(), o.uvarint()
		if after > span || before > span {
			o.fail()
			return
		}
		t.firstNum.time, t.lastNum.time = at(first+int64(after)), at(last-int64(before))
	}
	for _, v := range []*Value{&t.firstNum.value, &t.lastNum.value, &t.min, &t.max} {
		*v = o.formed()
		if n, ok := v.number(); !ok || n.Kind != v.Kind {
			o.fail()
		}
	}
	if pure {
		t.first.value, t.last.value = t.firstNum.value.Clone(), t.lastNum.value.Clone()
	}
	t.sum, t.area = o.exact(), o.exact()
	if t.numeric == 0 || t.numeric > t.count || t.lastNum.time < t.firstNum.time {
		o.fail()
	}
}

// formed reads a value with its form and owns its Raw.
func (o *octets) formed() Value {
	v := o.form(o.octet())
	return v.Clone()
}
