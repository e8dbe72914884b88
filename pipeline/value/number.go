package value

import (
	"math"
	"math/big"
	"strconv"
	"strings"
)

// Int is a whole number.
func Int(i int64) Value { return Value{kind: NumberKind, mant: i} }

// Decimal is mant × 10^-exp, written with exactly exp digits after the point.
func Decimal(mant int64, exp uint8) Value { return Value{kind: NumberKind, exp: exp, mant: mant} }

// Float is f in the fewest digits that give it back; null when it is not finite, as JSON.stringify has it.
func Float(f float64) Value {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return Null()
	}
	if f == math.Trunc(f) && math.Abs(f) < 1<<53 {
		return Int(int64(f)) // minus zero is 0, as JSON.stringify has it
	}
	var room [32]byte
	v, _ := number(appendFloat(room[:0], f))
	return v
}

// appendFloat writes f as JavaScript's Number.prototype.toString does (ECMA-262, Number::toString).
func appendFloat(dst []byte, f float64) []byte {
	if abs := math.Abs(f); abs >= 1e-6 && abs < 1e21 {
		return strconv.AppendFloat(dst, f, 'f', -1, 64)
	}
	dst = strconv.AppendFloat(dst, f, 'e', -1, 64)
	// Go writes at least two digits of exponent.
	if n := len(dst); n >= 4 && dst[n-2] == '0' && (dst[n-3] == '-' || dst[n-3] == '+') {
		dst[n-2] = dst[n-1]
		dst = dst[:n-1]
	}
	return dst
}

// Number takes a JSON number token (RFC 8259 section 6) and keeps its digits. ok is false when digits is none, or is not
// finite as a float64.
func Number(digits string) (v Value, ok bool) {
	var room [64]byte
	return number(append(room[:0], digits...))
}

// number keeps nothing of b.
func number(b []byte) (v Value, ok bool) {
	n := numberLen(b)
	if n != len(b) || n == 0 {
		return Value{}, false
	}
	if v, ok := decimal(b); ok {
		return v, true
	}
	text := string(b)
	if f, err := strconv.ParseFloat(text, 64); err != nil && math.IsInf(f, 0) {
		return Value{}, false
	}
	return Value{kind: NumberKind, text: text}, true
}

// numberLen is the length of the JSON number at the start of b; 0 when there is none.
func numberLen(b []byte) int {
	i := 0
	if i < len(b) && b[i] == '-' {
		i++
	}
	switch {
	case i < len(b) && b[i] == '0':
		i++
	case i < len(b) && b[i] >= '1' && b[i] <= '9':
		i = digits(b, i)
	default:
		return 0
	}
	if i+1 < len(b) && b[i] == '.' && isDigit(b[i+1]) {
		i = digits(b, i+1)
	}
	if i+1 < len(b) && b[i]|0x20 == 'e' {
		j := i + 1
		if b[j] == '+' || b[j] == '-' {
			j++
		}
		if j < len(b) && isDigit(b[j]) {
			i = digits(b, j)
		}
	}
	return i
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func digits(b []byte, i int) int {
	for i < len(b) && isDigit(b[i]) {
		i++
	}
	return i
}

// decimal reads a number token that mant and exp give back digit for digit.
func decimal(b []byte) (v Value, ok bool) {
	negative := b[0] == '-'
	if negative {
		b = b[1:]
	}
	var mant uint64
	exp, point := 0, false
	for _, c := range b {
		switch {
		case c == '.':
			point = true
		case !isDigit(c):
			return Value{}, false
		case mant > (math.MaxInt64-9)/10:
			return Value{}, false
		default:
			mant = mant*10 + uint64(c-'0')
			if point {
				exp++
			}
		}
	}
	if exp > 30 || negative && mant == 0 { // "-0" keeps its sign as text
		return Value{}, false
	}
	m := int64(mant)
	if negative {
		m = -m
	}
	return Value{kind: NumberKind, exp: uint8(exp), mant: m}, true
}

// Decimal is the number as mant × 10^-exp with the digits it was written with; ok is false when that cannot be.
func (v Value) Decimal() (mant int64, exp uint8, ok bool) {
	return v.mant, v.exp, v.kind == NumberKind && v.text == ""
}

// Digits is the number as it was written, else "".
func (v Value) Digits() string {
	if v.kind != NumberKind {
		return ""
	}
	if v.text != "" {
		return v.text
	}
	var room [48]byte
	return string(v.appendDigits(room[:0]))
}

func (v Value) appendDigits(dst []byte) []byte {
	if v.text != "" {
		return append(dst, v.text...)
	}
	if v.exp == 0 {
		return strconv.AppendInt(dst, v.mant, 10)
	}
	m := v.mant
	if m < 0 {
		dst, m = append(dst, '-'), -m
	}
	from := len(dst)
	dst = strconv.AppendInt(dst, m, 10)
	if short := int(v.exp) + 1 - (len(dst) - from); short > 0 {
		dst = append(dst, "0000000000000000000000000000000000000000"[:short]...)
		copy(dst[from+short:], dst[from:len(dst)-short])
		for i := range short {
			dst[from+i] = '0'
		}
	}
	at := len(dst) - int(v.exp)
	dst = append(dst, 0)
	copy(dst[at+1:], dst[at:])
	dst[at] = '.'
	return dst
}

// Int is the number as an int64; ok is false when it is not whole or does not fit.
func (v Value) Int() (i int64, ok bool) {
	if v.kind != NumberKind {
		return 0, false
	}
	if v.text == "" {
		m := v.mant
		for range v.exp {
			if m%10 != 0 {
				return 0, false
			}
			m /= 10
		}
		return m, true
	}
	r := v.rat()
	if r == nil || !r.IsInt() || !r.Num().IsInt64() {
		return 0, false
	}
	return r.Num().Int64(), true
}

// Float is the float64 nearest to a number, 0 or 1 for a boolean; ok is false for everything else.
func (v Value) Float() (f float64, ok bool) {
	switch {
	case v.kind == BoolKind:
		return float64(v.mant), true
	case v.kind != NumberKind:
		return 0, false
	case v.text != "":
		f, _ := strconv.ParseFloat(v.text, 64) // what is too small is 0
		return f, true
	case v.exp == 0:
		return float64(v.mant), true
	case v.exp <= 22 && v.mant > -1<<53 && v.mant < 1<<53:
		return float64(v.mant) / tens[v.exp], true // both exact, so the quotient is the nearest
	}
	var room [48]byte
	f, _ = strconv.ParseFloat(string(v.appendDigits(room[:0])), 64)
	return f, true
}

var tens = [...]float64{1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22}

// exactAsFloat says that a float64 holds the number without a change.
func (v Value) exactAsFloat() bool {
	if v.text == "" && v.exp == 0 {
		return v.mant >= -1<<53 && v.mant <= 1<<53
	}
	f, _ := v.Float()
	var room [32]byte
	w, ok := number(appendFloat(room[:0], f))
	return ok && compareNumbers(v, w) == 0
}

// FitsFloat says that the number can be a JavaScript number: printed again by JavaScript it is the same number, though not
// always with the same digits (1.0 becomes 1).
func (v Value) FitsFloat() bool { return v.kind == NumberKind && v.exactAsFloat() }

// maxExponent is how far exponents are worked out exactly; JSON numbers that are finite as float64 have none beyond it
// but for digits of no weight.
const maxExponent = 4096

// rat is the exact number; nil when its exponent is out of all bounds.
func (v Value) rat() *big.Rat {
	text := v.Digits()
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		if e, err := strconv.Atoi(text[i+1:]); err != nil || e < -maxExponent || e > maxExponent {
			return nil
		}
	}
	r, ok := new(big.Rat).SetString(text)
	if !ok {
		return nil
	}
	return r
}

// compareNumbers orders two numbers by their exact value.
func compareNumbers(a, b Value) int {
	if a.text == "" && b.text == "" && a.exp == b.exp {
		switch {
		case a.mant < b.mant:
			return -1
		case a.mant > b.mant:
			return 1
		}
		return 0
	}
	ra, rb := a.rat(), b.rat()
	if ra != nil && rb != nil {
		return ra.Cmp(rb)
	}
	fa, _ := a.Float()
	fb, _ := b.Float()
	switch {
	case fa < fb:
		return -1
	case fa > fb:
		return 1
	}
	return 0
}

// Compare orders two numbers by their exact value: -1, 0 or 1.
func Compare(a, b Value) int { return compareNumbers(a, b) }
