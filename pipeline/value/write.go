package value

import (
	"strconv"
	"unicode/utf8"
)

// AppendJSON appends v without white space, keys in their order, digits as they were. A missing value is null, as an item
// of a list; as a field of an object it is left out (JSON.stringify).
func (v Value) AppendJSON(dst []byte) []byte {
	switch v.kind {
	case BoolKind:
		return strconv.AppendBool(dst, v.mant == 1)
	case NumberKind:
		return v.appendDigits(dst)
	case TextKind:
		return AppendQuoted(dst, v.text)
	case ListKind:
		dst = append(dst, '[')
		for i, item := range v.tree.items {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = item.AppendJSON(dst)
		}
		return append(dst, ']')
	case ObjectKind:
		dst = append(dst, '{')
		first := true
		for i := range v.tree.fields {
			f := &v.tree.fields[i]
			if f.Value.kind == Missing {
				continue
			}
			if !first {
				dst = append(dst, ',')
			}
			first = false
			dst = append(AppendQuoted(dst, f.Name), ':')
			dst = f.Value.AppendJSON(dst)
		}
		return append(dst, '}')
	}
	return append(dst, "null"...)
}

// MarshalJSON is AppendJSON for encoding/json.
func (v Value) MarshalJSON() ([]byte, error) { return v.AppendJSON(nil), nil }

// UnmarshalJSON is Parse for encoding/json.
func (v *Value) UnmarshalJSON(b []byte) (err error) {
	*v, err = Parse(b)
	return err
}

// String is how a value stands in a text: a text as it is, a missing one as nothing, all else as JSON.
func (v Value) String() string {
	switch v.kind {
	case Missing:
		return ""
	case TextKind:
		return v.text
	}
	return string(v.AppendJSON(nil))
}

const hex = "0123456789abcdef"

// AppendQuoted appends s as a JSON string. What is not UTF-8 becomes U+FFFD.
func AppendQuoted(dst []byte, s string) []byte {
	dst = append(dst, '"')
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && n == 1 {
				dst = append(append(dst, s[from:i]...), "�"...)
				from = i + 1
			}
			i += n
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
	return append(append(dst, s[from:]...), '"')
}
