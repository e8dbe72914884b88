package historian

import (
	"encoding/binary"
	"math"
	"math/big"
	"math/bits"
)

// exact is a sum without rounding, so that it does not depend on the order or the grouping in which its parts came.
// Decimals of up to maxExp digits are summed by exponent in 128 bits, which 2^64 of them cannot leave; every other
// number counts as the float64 nearest to it, and those are summed as integers of 2^-1074. The zero exact is 0. A copy
// shares what the original holds: only one of the two may go on.
type exact struct {
	terms []term   // by exponent, ascending
	float *big.Int // of units of 2^-1074; nil: none was added
}

// term is hi × 2^64 + lo of 10^-exp.
type term struct {
	exp uint8
	hi  int64
	lo  uint64
}

// floatUnit is the exponent of two of the least float64 above 0.
const floatUnit = 1074

// add adds hi × 2^64 + lo of 10^-exp; exp is at most maxExp.
func (e *exact) add(exp uint8, hi int64, lo uint64) {
	i := 0
	for i < len(e.terms) && e.terms[i].exp < exp {
		i++
	}
	if i == len(e.terms) || e.terms[i].exp != exp {
		e.terms = append(e.terms, term{})
		copy(e.terms[i+1:], e.terms[i:])
		e.terms[i] = term{exp: exp}
	}
	t := &e.terms[i]
	sum, carry := bits.Add64(t.lo, lo, 0)
	t.lo, t.hi = sum, t.hi+hi+int64(carry)
}

// addValue adds a number times a count or a length of time.
func (e *exact) addValue(v Value, times uint64) {
	if v.Kind == Decimal && v.Exp <= maxExp {
		hi, lo := mulTimes(v.Mant, times)
		e.add(v.Exp, hi, lo)
		return
	}
	f, _ := v.Float()
	if f == 0 || times == 0 {
		return
	}
	fraction, exp := math.Frexp(f)
	// A float64 has 53 bits; the least ones of a subnormal are 0 after Frexp.
	n := big.NewInt(int64(math.Ldexp(fraction, 53)))
	if shift := exp - 53 + floatUnit; shift >= 0 {
		n.Lsh(n, uint(shift))
	} else {
		n.Rsh(n, uint(-shift))
	}
	if times != 1 {
		n.Mul(n, new(big.Int).SetUint64(times))
	}
	if e.float == nil {
		e.float = new(big.Int)
	}
	e.float.Add(e.float, n)
}

// addExact adds another sum and keeps nothing of it.
func (e *exact) addExact(o *exact) {
	for _, t := range o.terms {
		e.add(t.exp, t.hi, t.lo)
	}
	if o.float != nil {
		if e.float == nil {
			e.float = new(big.Int)
		}
		e.float.Add(e.float, o.float)
	}
}

// small gives the sum as mant × 10^-exp when that fits and no float64 is part of it.
func (e *exact) small() (mant int64, exp uint8, ok bool) {
	if e.float != nil {
		return 0, 0, false
	}
	for i := len(e.terms) - 1; i >= 0; i-- {
		t := e.terms[i]
		if t.hi != int64(t.lo)>>63 {
			return 0, 0, false
		}
		m := int64(t.lo)
		if i == len(e.terms)-1 {
			mant, exp = m, t.exp
			continue
		}
		up := pow10[exp-t.exp]
		m *= up
		sum := mant + m
		if m/up != int64(t.lo) || (mant >= 0) == (m >= 0) && (sum >= 0) != (mant >= 0) {
			return 0, 0, false
		}
		mant = sum
	}
	return mant, exp, true
}

// decimals gives the part that is decimals as mant × 10^-exp.
func (e *exact) decimals() (mant *big.Int, exp uint8) {
	mant = new(big.Int)
	for _, t := range e.terms {
		mant.Mul(mant, big.NewInt(pow10[t.exp-exp]))
		exp = t.exp
		mant.Add(mant, t.big())
	}
	return mant, exp
}

func (t term) big() *big.Int {
	n := big.NewInt(t.hi)
	return n.Add(n.Lsh(n, 64), new(big.Int).SetUint64(t.lo))
}

// rat is the sum as a fraction.
func (e *exact) rat() *big.Rat {
	mant, exp := e.decimals()
	r := new(big.Rat).SetFrac(mant, big.NewInt(pow10[exp]))
	if e.float != nil {
		r.Add(r, new(big.Rat).SetFrac(e.float, new(big.Int).Lsh(big.NewInt(1), floatUnit)))
	}
	return r
}

// value is the sum as a number: exact and without ending zeros after the point when all parts are decimals, else the
// float64 nearest to it. ok is false when that is not finite.
func (e *exact) value() (v Value, ok bool) {
	if mant, exp, ok := e.small(); ok {
		return trimZeros(Value{Kind: Decimal, Mant: mant, Exp: exp}), true
	}
	if e.float != nil {
		f, _ := e.rat().Float64()
		return floatValue(f)
	}
	mant, exp := e.decimals()
	ten, rest := big.NewInt(10), new(big.Int)
	for exp > 0 {
		next, r := new(big.Int).QuoRem(mant, ten, rest)
		if r.Sign() != 0 {
			break
		}
		mant = next
		exp--
	}
	if mant.IsInt64() {
		return Value{Kind: Decimal, Mant: mant.Int64(), Exp: exp}, true
	}
	text := mant.String()
	if exp > 0 {
		sign := ""
		if text[0] == '-' {
			sign, text = "-", text[1:]
		}
		for len(text) <= int(exp) {
			text = "0" + text
		}
		at := len(text) - int(exp)
		text = sign + text[:at] + "." + text[at:]
	}
	return Value{Kind: Number, Raw: []byte(text)}, true
}

// over is the float64 nearest to the sum divided by n, which is not 0.
func (e *exact) over(n uint64) float64 {
	if mant, exp, ok := e.small(); ok {
		// Times of whole milliseconds have six zeros too many on both sides.
		for n%1000 == 0 && mant%1000 == 0 {
			n, mant = n/1000, mant/1000
		}
		// Both operands are exact below these bounds, so the one division rounds once.
		hi, below := bits.Mul64(uint64(pow10[exp]), n)
		if mant >= -1<<53 && mant <= 1<<53 && hi == 0 && below <= 1<<53 {
			return float64(mant) / float64(below)
		}
	}
	r := e.rat()
	f, _ := r.Quo(r, new(big.Rat).SetFrac(new(big.Int).SetUint64(n), big.NewInt(1))).Float64()
	return f
}

// mulTimes is m × times in 128 bits.
func mulTimes(m int64, times uint64) (hi int64, lo uint64) {
	h, lo := bits.Mul64(uint64(m), times)
	if m < 0 {
		h -= times
	}
	return int64(h), lo
}

// trimZeros drops ending zeros after the point.
func trimZeros(v Value) Value {
	for v.Exp > 0 && v.Mant%10 == 0 {
		v.Mant /= 10
		v.Exp--
	}
	return v
}

// append writes the sum for a tally: how many terms, per term its exponent and its 128 bits as a zigzag varint, and
// the length of the float part, its sign and its octets, with 0 for none. Terms of 0 are left out.
func (e *exact) append(dst []byte) []byte {
	n := 0
	for _, t := range e.terms {
		if t.hi != 0 || t.lo != 0 {
			n++
		}
	}
	dst = append(dst, byte(n))
	for _, t := range e.terms {
		if t.hi != 0 || t.lo != 0 {
			dst = appendVarint128(append(dst, t.exp), t.hi, t.lo)
		}
	}
	if e.float == nil {
		return append(dst, 0)
	}
	octets := e.float.Bytes()
	low := len(octets)
	for low > 0 && octets[low-1] == 0 {
		low--
	}
	sign := byte(0)
	if e.float.Sign() < 0 {
		sign = 1
	}
	// One more than there are octets, so that a float part that came to 0 remains one.
	dst = binary.AppendUvarint(dst, uint64(low+1))
	dst = binary.AppendUvarint(append(dst, sign), uint64(len(octets)-low))
	return append(dst, octets[:low]...)
}

// maxFloatOctets bounds the float part: 2,098 bits, and 64 more for each of a count and a length of time.
const maxFloatOctets = 300

func (o *octets) exact() (e exact) {
	n := o.octet()
	if n > maxExp+1 {
		o.fail()
		return e
	}
	for i := range n {
		exp := o.octet()
		hi, lo := o.varint128()
		if o.bad || exp > maxExp || i > 0 && exp <= e.terms[i-1].exp {
			o.fail()
			return exact{}
		}
		e.terms = append(e.terms, term{exp, hi, lo})
	}
	size := o.uvarint()
	if size == 0 {
		return e
	}
	sign, zeros := o.octet(), o.uvarint()
	octets := o.take(size - 1)
	if o.bad || sign > 1 || zeros > maxFloatOctets || uint64(len(octets))+zeros > maxFloatOctets {
		o.fail()
		return exact{}
	}
	e.float = new(big.Int).SetBytes(octets)
	e.float.Lsh(e.float, uint(8*zeros))
	if sign == 1 {
		e.float.Neg(e.float)
	}
	return e
}

// appendVarint128 writes a zigzag varint of up to 19 octets.
func appendVarint128(dst []byte, hi int64, lo uint64) []byte {
	sign := uint64(hi >> 63)
	h, l := (uint64(hi)<<1|lo>>63)^sign, lo<<1^sign
	for h != 0 || l >= 0x80 {
		dst = append(dst, byte(l)|0x80)
		l = l>>7 | h<<57
		h >>= 7
	}
	return append(dst, byte(l))
}

func (o *octets) varint128() (hi int64, lo uint64) {
	var h, l uint64
	for shift := uint(0); ; shift += 7 {
		c := o.octet()
		part := uint64(c & 0x7f)
		if o.bad || shift == 126 && part > 3 {
			o.fail()
			return 0, 0
		}
		if shift < 64 {
			l |= part << shift
		}
		if shift > 57 {
			if shift < 64 {
				h |= part >> (64 - shift)
			} else {
				h |= part << (shift - 64)
			}
		}
		if c < 0x80 {
			break
		}
		if shift == 126 {
			o.fail()
			return 0, 0
		}
	}
	sign := -(l & 1)
	l = l>>1 | h<<63
	h >>= 1
	return int64(h ^ sign), l ^ sign
}
