package trigger

import (
	"hash/maphash"
	"math"
	"strconv"

	"millrace/historian"
	"millrace/pipeline/value"
)

// mark is what a gate remembers of the last value of a topic that went through: numbers as they are, all else by a hash of 128 bits.
type mark struct {
	number value.Value
	hash   [2]uint64
	kind   historian.Kind
	// quality is that of the last value seen.
	quality historian.Quality
	known   bool
	started bool
	// turn counts values for sample, passed is when the last one started a run, by its receipt.
	turn   uint32
	passed int64
}

// seeds of the two halves of the hash; a mark is worth something to this process only.
var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

// take remembers a value.
func (m *mark) take(v *historian.Value) {
	m.kind, m.known = v.Kind, true
	m.number, m.hash = value.Value{}, [2]uint64{}
	switch v.Kind {
	case historian.Decimal, historian.Number:
		m.number = numberOf(v)
	case historian.Bool:
		m.hash[0] = uint64(v.Mant)
	default:
		for i := range m.hash {
			m.hash[i] = maphash.Bytes(seeds[i], v.Raw)
		}
	}
}

// same says whether a value is the one remembered, or a number no further from it than band.
func (m *mark) same(v *historian.Value, band value.Value) bool {
	if !m.known {
		return false
	}
	var o mark
	o.take(v)
	if m.number.Kind() == value.NumberKind && o.number.Kind() == value.NumberKind {
		if band.Kind() == value.NumberKind {
			return within(m.number, o.number, band)
		}
		return value.Compare(m.number, o.number) == 0
	}
	return m.kind == o.kind && m.hash == o.hash
}

// numberOf is a stored number as the engine's.
func numberOf(v *historian.Value) value.Value {
	if v.Kind == historian.Decimal && v.Exp <= 30 {
		return value.Decimal(v.Mant, v.Exp)
	}
	n, _ := value.Number(string(v.AppendJSON(nil)))
	return n
}

// bandOf is a deadband, missing for none. A band is written in decimals, so it is meant as those.
func bandOf(f float64) value.Value {
	if !(f > 0) || math.IsInf(f, 0) {
		return value.Value{}
	}
	n, _ := value.Number(strconv.FormatFloat(f, 'f', -1, 64))
	return n
}

// within says whether two numbers are no further apart than band: exactly, where all three fit 18 digits.
func within(a, b, band value.Value) bool {
	x, ex, okX := a.Decimal()
	y, ey, okY := b.Decimal()
	d, ed, okD := band.Decimal()
	exp := max(ex, ey, ed)
	if okX && okY && okD {
		x, okX = scaled(x, exp-ex)
		y, okY = scaled(y, exp-ey)
		d, okD = scaled(d, exp-ed)
		if okX && okY && okD {
			return max(x, y)-min(x, y) <= d
		}
	}
	fx, _ := a.Float()
	fy, _ := b.Float()
	fd, _ := band.Float()
	return math.Abs(fx-fy) <= fd
}

// scaled is m × 10^exp if that is below 2^62, so that a difference of two fits.
func scaled(m int64, exp uint8) (int64, bool) {
	for range exp {
		if m > math.MaxInt64/20 || m < -math.MaxInt64/20 {
			return 0, false
		}
		m *= 10
	}
	return m, m < 1<<62 && m > -1<<62
}
