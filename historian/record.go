package historian

import (
	"encoding/binary"
	"fmt"
)

// The first octet of a log record. The second version differs by hops, and is written where a sample has some.
const (
	recordVersion     = 1
	recordVersionHops = 2
)

// The flags octet of a sample: its form in the low four bits, and these.
const (
	recordSameTime = 1 << 4 // Time is that of the sample before it in the record
	recordStamped  = 1 << 5 // the device's own Time; Received follows
	recordTraits   = 1 << 6 // a traits octet follows; otherwise good, milliseconds
	recordHops     = 1 << 7 // an octet of hops follows, not 0; only in version 2
	recordForm     = 0x0f
)

// The traits octet: quality in bits 0 and 1, Scale in bits 2 to 5, and these.
const (
	traitFineTime     = 1 << 6 // the time delta is in ns, because Time is no multiple of its own scale
	traitFineReceived = 1 << 7 // the Received delta is in ns instead of ms
	traitPlain        = 6 << 2 // what a missing traits octet stands for
)

// The forms of a value. Common decimals need no octet of their own for the exponent.
const (
	formNull = iota
	formFalse
	formTrue
	formDecimal0 // + exponent, up to 3
	formDecimal1
	formDecimal2
	formDecimal3
	formDecimal // an exponent octet first
	formNumber
	formText
	formBytes
	formJSON
	formEnd
)

const millisecond = 1_000_000

// recordWriter encodes the samples of one group, in order of Seq, into one log value. The zero recordWriter
// is ready for use; reset keeps its memory. Not for concurrent use.
type recordWriter struct {
	b       []byte
	n       int
	series  Series
	time    int64
	refUnit int64 // time in milliseconds, so that the usual sample needs one division, not two
}

// reset drops what was added. What bytes gave out before is overwritten by the next add.
func (w *recordWriter) reset() {
	*w = recordWriter{b: w.b[:0]}
}

// len is the size in octets, 0 when nothing was added.
func (w *recordWriter) len() int { return len(w.b) }

// count is the number of samples added.
func (w *recordWriter) count() int { return w.n }

// bytes is the record, valid until the next add or reset. It is empty when nothing was added.
func (w *recordWriter) bytes() []byte { return w.b }

// add appends a sample and keeps nothing of it. Scale is at most 9 and Quality one of the three; what is
// beyond counts as 0 and Bad, so that no caller can make a record unreadable.
func (w *recordWriter) add(s *Sample) {
	b := w.b
	if w.n == 0 {
		b = append(b, recordVersion)
		b = appendVarint(b, s.Time)
		w.time = s.Time
		w.refUnit = floorDiv(s.Time, millisecond)
	}
	w.n++

	// The flags octet comes first and is patched in once the rest is known.
	at := len(b)
	b = append(b, 0)
	flags := formOf(&s.Value)
	traits := traitsOf(s)

	unit := pow10[traits>>2]
	ref, units := w.refUnit, floorDiv(s.Time, millisecond)
	if unit != millisecond || units*millisecond != s.Time {
		w.refUnit = units
		units = floorDiv(s.Time, unit)
		if units*unit != s.Time {
			traits |= traitFineTime
			unit, units = 1, s.Time
		}
		ref = floorDiv(w.time, unit)
	} else {
		w.refUnit = units
	}
	same := s.Time == w.time
	w.time = s.Time

	delta := s.Received - s.Time
	if s.Stamped {
		flags |= recordStamped
		ms := floorDiv(s.Received, millisecond)
		if ms*millisecond == s.Received {
			delta = ms - w.refUnit
		} else {
			traits |= traitFineReceived
		}
	}
	if traits != traitPlain {
		flags |= recordTraits
		b = append(b, traits)
	}
	if s.Hops != 0 {
		flags |= recordHops
		b = append(b, s.Hops)
		b[0] = recordVersionHops
	}
	b = appendVarint(b, int64(s.Series)-int64(w.series))
	w.series = s.Series
	if same {
		flags |= recordSameTime
	} else {
		b = appendVarint(b, units-ref)
	}
	if s.Stamped {
		b = appendVarint(b, delta)
	}
	b[at] = flags
	w.b = appendForm(b, flags&recordForm, &s.Value)
}

// traitsOf is the traits octet without the marks for fine times.
func traitsOf(s *Sample) byte {
	scale := s.Scale
	if scale > maxScale {
		scale = 0
	}
	return byte(min(s.Quality, Bad)) | scale<<2
}

// formOf is the form a value is written in.
func formOf(v *Value) byte {
	switch v.Kind {
	case Bool:
		if v.Mant != 0 {
			return formTrue
		}
		return formFalse
	case Decimal:
		if v.Exp <= 3 {
			return formDecimal0 + v.Exp
		}
		return formDecimal
	case Number:
		return formNumber
	case Text:
		return formText
	case Bytes:
		return formBytes
	case JSON:
		return formJSON
	}
	return formNull
}

// appendForm writes what a form needs besides itself.
func appendForm(b []byte, form byte, v *Value) []byte {
	switch form {
	case formDecimal:
		b = append(b, v.Exp)
		return appendVarint(b, v.Mant)
	case formDecimal0, formDecimal1, formDecimal2, formDecimal3:
		return appendVarint(b, v.Mant)
	case formNumber, formText, formBytes, formJSON:
		b = binary.AppendUvarint(b, uint64(len(v.Raw)))
		return append(b, v.Raw...)
	}
	return b
}

// form reads a value; its Raw is part of the input.
func (o *octets) form(form byte) (v Value) {
	switch form {
	case formNull:
	case formFalse, formTrue:
		v.Kind, v.Mant = Bool, int64(form-formFalse)
	case formDecimal0, formDecimal1, formDecimal2, formDecimal3:
		v.Kind, v.Exp, v.Mant = Decimal, form-formDecimal0, o.varint()
	case formDecimal:
		v.Kind, v.Exp, v.Mant = Decimal, o.octet(), o.varint()
	case formNumber, formText, formBytes, formJSON:
		v.Kind = Number + Kind(form-formNumber)
		v.Raw = o.take(o.uvarint())
	default:
		o.fail()
	}
	return v
}

// readRecord calls fn for every sample of a log record, in order, with Seq counted on from firstSeq. The
// sample is overwritten for the next call and its Raw is part of b: fn copies what it keeps. An error of fn
// ends the reading and is returned as it is. Damaged octets give an error that wraps errCorrupt, after fn
// saw the samples before the damage.
func readRecord(b []byte, firstSeq uint64, fn func(s *Sample) error) error {
	o := octets{b: b}
	v := o.octet()
	if v != recordVersion && v != recordVersionHops {
		return fmt.Errorf("log record at sequence %d: version %d: %w", firstSeq, v, errCorrupt)
	}
	var s Sample
	s.Time = o.varint()
	s.Seq = firstSeq - 1
	series := int64(0)
	for len(o.b) > 0 {
		s.Seq++
		if !o.sample(&s, &series, v) {
			break
		}
		if err := fn(&s); err != nil {
			return err
		}
	}
	if o.bad || s.Seq == firstSeq-1 {
		return fmt.Errorf("log record at sequence %d, sample %d: %w", firstSeq, s.Seq-firstSeq, errCorrupt)
	}
	return nil
}

// sample reads one sample over the one before it.
func (o *octets) sample(s *Sample, series *int64, version byte) bool {
	flags := o.octet()
	traits := byte(traitPlain)
	if flags&recordTraits != 0 {
		traits = o.octet()
	}
	s.Hops = 0
	if flags&recordHops != 0 {
		if s.Hops = o.octet(); s.Hops == 0 || version < recordVersionHops {
			o.fail()
			return false
		}
	}
	s.Quality, s.Scale = Quality(traits&3), traits>>2&15
	if s.Quality > Bad || s.Scale > maxScale {
		o.fail()
		return false
	}
	*series += o.varint()
	if *series < 0 || *series > 1<<32-1 {
		o.fail()
		return false
	}
	s.Series = Series(*series)
	if flags&recordSameTime == 0 {
		unit := int64(1)
		if traits&traitFineTime == 0 {
			unit = pow10[s.Scale]
		}
		t, ok := mulTime(floorDiv(s.Time, unit)+o.varint(), unit)
		if !ok {
			o.fail()
			return false
		}
		s.Time = t
	}
	s.Stamped = flags&recordStamped != 0
	s.Received = s.Time
	if s.Stamped {
		delta := o.varint()
		if traits&traitFineReceived != 0 {
			s.Received += delta
		} else {
			r, ok := mulTime(floorDiv(s.Time, millisecond)+delta, millisecond)
			if !ok {
				o.fail()
				return false
			}
			s.Received = r
		}
	}
	s.Value = o.form(flags & recordForm)
	return !o.bad
}
