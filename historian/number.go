package historian

import (
	"math"
	"strconv"
)

// maxExp is the most digits after the point that a Decimal takes from a token: 10^18 still fits an int64.
const maxExp = 18

// pow10 holds the powers of ten that fit an int64.
var pow10 = [19]int64{
	1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18,
}

// ParseNumber takes a JSON number token as it stands (RFC 8259 section 6, no white space around it).
//
// The answer is a Decimal when that gives back exactly the digits of the token, else a Number whose Raw is
// b itself, not a copy. ok is false when b is no JSON number or its magnitude is not finite as a float64;
// a magnitude too small for a float64 is kept, digits and all. A Decimal costs no allocation.
func ParseNumber(b []byte) (v Value, ok bool) {
	i, neg := 0, false
	if len(b) > 0 && b[0] == '-' {
		i, neg = 1, true
	}
	if i == len(b) {
		return Value{}, false
	}
	var mant uint64
	fits := true
	switch c := b[i]; {
	case c == '0':
		i++
	case c >= '1' && c <= '9':
		for ; i < len(b) && b[i]-'0' <= 9; i++ {
			mant, fits = pushDigit(mant, b[i]-'0', fits)
		}
	default:
		return Value{}, false
	}
	exp := 0
	if i < len(b) && b[i] == '.' {
		i++
		from := i
		for ; i < len(b) && b[i]-'0' <= 9; i++ {
			mant, fits = pushDigit(mant, b[i]-'0', fits)
		}
		exp = i - from
		if exp == 0 {
			return Value{}, false
		}
	}
	if i == len(b) {
		if fits && exp <= maxExp {
			if !neg && mant <= math.MaxInt64 {
				return Value{Kind: Decimal, Exp: uint8(exp), Mant: int64(mant)}, true
			}
			// A negative zero has no mantissa that would print its sign.
			if neg && mant != 0 && mant <= 1<<63 {
				return Value{Kind: Decimal, Exp: uint8(exp), Mant: int64(-mant)}, true
			}
		}
	} else if !isExponent(b[i:]) {
		return Value{}, false
	}
	if f, err := strconv.ParseFloat(string(b), 64); err != nil && math.IsInf(f, 0) {
		return Value{}, false
	}
	return Value{Kind: Number, Raw: b}, true
}

// pushDigit appends one digit to a mantissa while it fits.
func pushDigit(mant uint64, digit byte, fits bool) (uint64, bool) {
	if !fits || mant > (math.MaxUint64-9)/10 {
		return mant, false
	}
	return mant*10 + uint64(digit), true
}

// isExponent says whether b is the exponent part of a JSON number, whole.
func isExponent(b []byte) bool {
	if b[0] != 'e' && b[0] != 'E' {
		return false
	}
	b = b[1:]
	if len(b) > 0 && (b[0] == '+' || b[0] == '-') {
		b = b[1:]
	}
	for _, c := range b {
		if c-'0' > 9 {
			return false
		}
	}
	return len(b) > 0
}

// appendDecimal writes mant × 10^-exp with exactly exp digits after the point.
func appendDecimal(dst []byte, mant int64, exp uint8) []byte {
	if exp == 0 {
		return strconv.AppendInt(dst, mant, 10)
	}
	u := uint64(mant)
	if mant < 0 {
		dst = append(dst, '-')
		u = -u
	}
	var room [20]byte
	digits := strconv.AppendUint(room[:0], u, 10)
	whole := len(digits) - int(exp)
	if whole > 0 {
		dst = append(dst, digits[:whole]...)
		dst = append(dst, '.')
		return append(dst, digits[whole:]...)
	}
	dst = append(dst, '0', '.')
	for ; whole < 0; whole++ {
		dst = append(dst, '0')
	}
	return append(dst, digits...)
}
