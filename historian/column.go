package historian

import (
	"bytes"
	"encoding/binary"
)

// The lowest bits of the number that leads every sample of a column; above them stands the zigzag change of
// the time delta, in units of the scale.
const (
	columnNewForm   = 1 << 0 // flags and traits octets follow: the sample differs in form from the one before it
	columnSameValue = 1 << 1 // no value follows: it is that of the sample before it
	columnBits      = 2
)

// columnFarTime, in the flags octet of a column, marks a time of 8 octets in ns that no change of delta can
// express.
const columnFarTime = 1 << 7

// column is the open run of one series: samples in order of arrival, encoded as they come. The octets only
// grow, so a copy of the struct stays a valid snapshot while add goes on with the original. The zero column
// is ready for use. One writer at a time; reading a copy needs no lock.
type column struct {
	b        []byte
	n        int
	time     int64 // of the last sample
	delta    int64 // before it, in units of its scale
	mant     int64
	min, max int64
	rawAt    int // where the last Raw lies in b
	rawLen   int
	series   Series
	flags    byte // form and stamped mark of the last sample
	traits   byte
	exp      uint8
}

// count is the number of samples.
func (c *column) count() int { return c.n }

// size is the number of octets the samples take.
func (c *column) size() int { return len(c.b) }

// minTime and maxTime are the earliest and latest Time; 0 when the column is empty.
func (c *column) minTime() int64 { return c.min }
func (c *column) maxTime() int64 { return c.max }

// add appends a sample of the column's one series and keeps nothing of it.
func (c *column) add(s *Sample) {
	if c.n == 0 {
		c.series = s.Series
		c.min, c.max = s.Time, s.Time
		c.flags = formEnd
		c.traits = traitPlain
	}
	c.min, c.max = min(c.min, s.Time), max(c.max, s.Time)
	c.n++

	form := formOf(&s.Value)
	flags, traits := form, traitsOf(s)
	unit := pow10[traits>>2]
	units := floorDiv(s.Time, unit)
	if units*unit != s.Time {
		traits |= traitFineTime
		unit, units = 1, s.Time
	}
	received := s.Received - s.Time
	if s.Stamped {
		flags |= recordStamped
		ms := floorDiv(s.Received, millisecond)
		if ms*millisecond == s.Received {
			received = ms - floorDiv(s.Time, millisecond)
		} else {
			traits |= traitFineReceived
		}
	}

	var head uint64
	if flags != c.flags || traits != c.traits {
		head = columnNewForm
		if (traits^c.traits)&(traitFineTime|15<<2) != 0 {
			c.delta = 0
		}
	} else if c.sameValue(form, &s.Value) {
		head = columnSameValue
	}
	delta := units - floorDiv(c.time, unit)
	change := zigzag(delta - c.delta)
	far := change >= 1<<(64-columnBits)
	b := c.b
	if far {
		delta = 0
		b = binary.AppendUvarint(b, columnNewForm)
		b = append(b, flags|columnFarTime, traits)
		b = binary.BigEndian.AppendUint64(b, uint64(s.Time))
		head = columnNewForm
	} else {
		b = binary.AppendUvarint(b, change<<columnBits|head)
		if head&columnNewForm != 0 {
			b = append(b, flags, traits)
		}
	}
	if c.n == 1 {
		delta = 0 // the way from 0 to the first time foretells nothing
	}
	c.time, c.delta = s.Time, delta
	c.flags, c.traits = flags, traits
	if s.Stamped {
		b = appendVarint(b, received)
	}
	if head&columnSameValue == 0 {
		b = c.appendValue(b, form, &s.Value)
	}
	c.b = b
}

// sameValue says whether v is the last value; the forms are equal.
func (c *column) sameValue(form byte, v *Value) bool {
	switch form {
	case formDecimal0, formDecimal1, formDecimal2, formDecimal3:
		return v.Mant == c.mant
	case formDecimal:
		return v.Mant == c.mant && v.Exp == c.exp
	case formNumber, formText, formBytes, formJSON:
		return bytes.Equal(v.Raw, c.b[c.rawAt:c.rawAt+c.rawLen])
	}
	return true
}

func (c *column) appendValue(b []byte, form byte, v *Value) []byte {
	switch form {
	case formDecimal:
		b = append(b, v.Exp)
		c.exp = v.Exp
		fallthrough
	case formDecimal0, formDecimal1, formDecimal2, formDecimal3:
		b = appendVarint(b, v.Mant-c.mant)
		c.mant = v.Mant
	case formNumber, formText, formBytes, formJSON:
		b = binary.AppendUvarint(b, uint64(len(v.Raw)))
		c.rawAt, c.rawLen = len(b), len(v.Raw)
		b = append(b, v.Raw...)
	}
	return b
}

// appendSamples appends all samples to dst in order of arrival, with Raw copied and Seq 0. Samples with the
// same Raw may share it: it is to be read only.
func (c *column) appendSamples(dst []Sample) []Sample {
	if c.n == 0 {
		return dst
	}
	o := octets{b: c.b}
	var keep arena
	s := Sample{Series: c.series}
	flags, traits := byte(formEnd), byte(traitPlain)
	var delta, mant int64
	for i := range c.n {
		head := o.uvarint()
		far := false
		if head&columnNewForm != 0 {
			was := traits
			flags, traits = o.octet(), o.octet()
			far = flags&columnFarTime != 0
			flags &^= columnFarTime
			if (traits^was)&(traitFineTime|15<<2) != 0 {
				delta = 0
			}
		}
		s.Quality, s.Scale = Quality(traits&3), traits>>2&15
		if far {
			s.Time, delta = int64(o.uint64()), 0
		} else {
			unit := int64(1)
			if traits&traitFineTime == 0 {
				unit = pow10[s.Scale]
			}
			delta += unzigzag(head >> columnBits)
			s.Time = (floorDiv(s.Time, unit) + delta) * unit
		}
		if i == 0 {
			delta = 0
		}
		s.Stamped = flags&recordStamped != 0
		s.Received = s.Time
		if s.Stamped {
			if r := o.varint(); traits&traitFineReceived != 0 {
				s.Received += r
			} else {
				s.Received = (floorDiv(s.Time, millisecond) + r) * millisecond
			}
		}
		if head&columnSameValue == 0 {
			s.Value = o.form(flags & recordForm)
			switch s.Value.Kind {
			case Decimal:
				s.Value.Mant += mant
				mant = s.Value.Mant
			case Number, Text, Bytes, JSON:
				s.Value.Raw = keep.copy(s.Value.Raw)
			}
		}
		dst = append(dst, s)
	}
	return dst
}

// arena copies octets into few allocations. Its copies never move and cannot grow into each other.
type arena struct{ free []byte }

const arenaBlock = 4096

func (a *arena) copy(b []byte) []byte {
	if len(b) > arenaBlock/4 {
		return bytes.Clone(b)
	}
	if len(b) > len(a.free) {
		a.free = make([]byte, arenaBlock)
	}
	n := copy(a.free, b)
	kept := a.free[:n:n]
	a.free = a.free[n:]
	return kept
}
