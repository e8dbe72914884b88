package historian

import (
	"bytes"
	"encoding/base64"
	"math"
	"strconv"
	"unicode/utf8"
)

// Kind tells how a Value holds what the device sent.
type Kind uint8

// The kinds of value. Their numbers are part of the on-disk format (FORMAT.md).
const (
	// Null is JSON null.
	Null Kind = iota
	// Bool is Mant 0 or 1.
	Bool
	// Decimal is Mant × 10^-Exp, written with exactly Exp digits after the point.
	Decimal
	// Number is a number that Decimal cannot give back digit for digit; Raw holds the JSON number as it was sent.
	Number
	// Text is Raw, UTF-8, unescaped.
	Text
	// Bytes is Raw, any octets.
	Bytes
	// JSON is an object or array: Raw is its text without white space, key order kept.
	JSON
)

// Value is one exact value. The zero Value is null.
type Value struct {
	Kind Kind
	Exp  uint8
	Mant int64
	Raw  []byte
}

// numeric says whether the value is a JSON number.
func (v Value) numeric() bool { return v.Kind == Decimal || v.Kind == Number }

// Equal says whether the two are the same value: text by its characters, octets and structures byte for
// byte, numbers by their digits (1 and 1.0 differ).
func (v Value) Equal(o Value) bool {
	if v.Kind != o.Kind {
		if !v.numeric() || !o.numeric() {
			return false
		}
		var vb, ob [48]byte
		return bytes.Equal(v.AppendJSON(vb[:0]), o.AppendJSON(ob[:0]))
	}
	switch v.Kind {
	case Null:
		return true
	case Bool:
		return (v.Mant != 0) == (o.Mant != 0)
	case Decimal:
		return v.Mant == o.Mant && v.Exp == o.Exp
	}
	return bytes.Equal(v.Raw, o.Raw)
}

// Float is the float64 nearest to a number, and 0 or 1 for a boolean. It is false for text, octets, null
// and structures.
func (v Value) Float() (float64, bool) {
	switch v.Kind {
	case Bool:
		if v.Mant != 0 {
			return 1, true
		}
		return 0, true
	case Decimal:
		// Both operands are exact below these bounds, so the one division rounds once.
		if v.Mant >= -1<<53 && v.Mant <= 1<<53 && v.Exp <= maxExp {
			return float64(v.Mant) / float64(pow10[v.Exp]), true
		}
		var digits [300]byte
		f, err := strconv.ParseFloat(string(appendDecimal(digits[:0], v.Mant, v.Exp)), 64)
		return f, err == nil
	case Number:
		f, err := strconv.ParseFloat(string(v.Raw), 64)
		return f, err == nil && !math.IsInf(f, 0)
	}
	return 0, false
}

// Clone is the value with a Raw of its own.
func (v Value) Clone() Value {
	v.Raw = bytes.Clone(v.Raw)
	return v
}

// AppendJSON appends the value as JSON: digits as sent, structures as they are kept, Bytes as a string of
// standard base64. The answer is valid UTF-8 even if a Text is not.
func (v Value) AppendJSON(dst []byte) []byte {
	switch v.Kind {
	case Bool:
		if v.Mant != 0 {
			return append(dst, "true"...)
		}
		return append(dst, "false"...)
	case Decimal:
		return appendDecimal(dst, v.Mant, v.Exp)
	case Number, JSON:
		return append(dst, v.Raw...)
	case Text:
		return appendString(dst, v.Raw)
	case Bytes:
		dst = append(dst, '"')
		dst = base64.StdEncoding.AppendEncode(dst, v.Raw)
		return append(dst, '"')
	}
	return append(dst, "null"...)
}

// appendString appends a JSON string. Only what RFC 8259 section 7 demands is escaped, so that text keeps
// its bytes.
func appendString(dst, s []byte) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRune(s[i:])
			if r == utf8.RuneError && n == 1 {
				dst = append(dst, s[from:i]...)
				dst = append(dst, "\ufffd"...)
				from = i + 1
			}
			i += n
			continue
		}
		if c >= 0x20 && c != '"' && c != '\\' {
			i++
			continue
		}
		dst = append(dst, s[from:i]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\b':
			dst = append(dst, '\\', 'b')
		case '\t':
			dst = append(dst, '\\', 't')
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\f':
			dst = append(dst, '\\', 'f')
		case '\r':
			dst = append(dst, '\\', 'r')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
		i++
		from = i
	}
	dst = append(dst, s[from:]...)
	return append(dst, '"')
}
