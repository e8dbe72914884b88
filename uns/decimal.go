package uns

import (
	"strconv"

	"millrace/historian"
)

// decimal is a number of any size, ± digits × 10^exp. The digits are whole followed by part, without zeros at either
// end; zero has none. They point into the text that was read, so reading one allocates nothing.
type decimal struct {
	neg         bool
	whole, part []byte
	exp         int
	// frac is how many digits behind the point were written, the exponent worked in.
	frac int
}

// maxExponent stands for every exponent beyond it: no value of a payload's length can make up for it.
const maxExponent = 1 << 30

// decimalOf reads a valid JSON number.
func decimalOf(raw []byte) decimal {
	var d decimal
	if len(raw) > 0 && raw[0] == '-' {
		d.neg, raw = true, raw[1:]
	}
	exponent := 0
	for i, c := range raw {
		if c|0x20 == 'e' {
			exponent, raw = exponentOf(raw[i+1:]), raw[:i]
			break
		}
	}
	d.whole = raw
	for i, c := range raw {
		if c == '.' {
			d.whole, d.part = raw[:i], raw[i+1:]
			break
		}
	}
	d.exp = exponent - len(d.part)
	d.frac = max(0, -d.exp)
	for len(d.whole) > 0 && d.whole[0] == '0' {
		d.whole = d.whole[1:]
	}
	for len(d.whole) == 0 && len(d.part) > 0 && d.part[0] == '0' {
		d.part = d.part[1:]
	}
	for n := len(d.part); n > 0 && d.part[n-1] == '0'; n-- {
		d.part = d.part[:n-1]
		d.exp++
	}
	if len(d.part) == 0 {
		for n := len(d.whole); n > 0 && d.whole[n-1] == '0'; n-- {
			d.whole = d.whole[:n-1]
			d.exp++
		}
	}
	return d
}

func exponentOf(raw []byte) int {
	neg := len(raw) > 0 && raw[0] == '-'
	n := 0
	for _, c := range raw {
		if c >= '0' && c <= '9' {
			n = min(n*10+int(c-'0'), maxExponent)
		}
	}
	if neg {
		return -n
	}
	return n
}

// scratch holds the digits of an int64.
type scratch [20]byte

// decimalIn reads a Decimal or Number value; room is where the digits of a Decimal go.
func decimalIn(v *historian.Value, room *scratch) decimal {
	if v.Kind == historian.Number {
		return decimalOf(v.Raw)
	}
	mant := uint64(v.Mant)
	if v.Mant < 0 {
		mant = -mant
	}
	d := decimalOf(strconv.AppendUint(room[:0], mant, 10))
	d.neg = v.Mant < 0
	d.exp -= int(v.Exp)
	return d
}

func (d *decimal) len() int { return len(d.whole) + len(d.part) }

func (d *decimal) digit(i int) byte {
	if i < len(d.whole) {
		return d.whole[i]
	}
	if i -= len(d.whole); i < len(d.part) {
		return d.part[i]
	}
	return '0'
}

// integral tells whether the number has no fraction, however it was written: 1.0 and 1e3 have none.
func (d *decimal) integral() bool { return d.len() == 0 || d.exp >= 0 }

// compare is -1, 0 or +1; −0 equals 0.
func (d *decimal) compare(o *decimal) int {
	n, m := d.len(), o.len()
	switch {
	case n == 0 && m == 0:
		return 0
	case n == 0:
		return -o.sign()
	case m == 0 || d.neg != o.neg:
		return d.sign()
	}
	// Without leading zeros the place of the first digit decides before any digit does.
	if a, b := n+d.exp, m+o.exp; a != b {
		if a > b {
			return d.sign()
		}
		return -d.sign()
	}
	for i := range max(n, m) {
		if a, b := d.digit(i), o.digit(i); a != b {
			if a > b {
				return d.sign()
			}
			return -d.sign()
		}
	}
	return 0
}

func (d *decimal) sign() int {
	if d.neg {
		return -1
	}
	return 1
}

// numericKind tells whether a value is a number.
func numericKind(k historian.Kind) bool { return k == historian.Decimal || k == historian.Number }

// compareNumbers compares two numbers exactly.
func compareNumbers(a, b *historian.Value) int {
	if a.Kind == historian.Decimal && b.Kind == historian.Decimal && a.Exp == b.Exp {
		switch {
		case a.Mant < b.Mant:
			return -1
		case a.Mant > b.Mant:
			return 1
		}
		return 0
	}
	var x, y scratch
	d, o := decimalIn(a, &x), decimalIn(b, &y)
	return d.compare(&o)
}

// integer tells whether a number has no fraction.
func integer(v *historian.Value) bool {
	if v.Kind == historian.Decimal && v.Exp == 0 {
		return true
	}
	var room scratch
	d := decimalIn(v, &room)
	return d.integral()
}
