package uns

import (
	"fmt"

	"millrace/historian"
)

// maxDepth bounds the nesting of a payload. Far deeper than any device sends, far below what would hurt a stack.
const maxDepth = 128

// scanner walks JSON once, from left to right, and stops at the first byte that cannot belong to valid JSON. It copies
// nothing: what it passes is told by positions.
type scanner struct {
	src []byte
	pos int
	// want or note tell what is wrong at pos after a walk returned false.
	want, note string
	// escaped says that the string walked last holds a backslash.
	escaped bool
	// spaced says that white space was passed since it was last set to false.
	spaced bool
	// keyTo is the closing quote of the key walked last.
	keyTo int
	// huge is the place of the first number beyond float64 since it was last set to -1.
	huge int
}

// plain holds the bytes that stand for themselves in a JSON string: printable ASCII and DEL but for " and \.
var plain = func() (t [256]bool) {
	for c := 0x20; c < 0x80; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return t
}()

// fail records that something else was wanted at pos.
func (s *scanner) fail(pos int, want string) bool {
	s.pos, s.want = pos, want
	return false
}

// reject records a fault at pos that "wanted, found" would not explain.
func (s *scanner) reject(pos int, note string) bool {
	s.pos, s.note = pos, note
	return false
}

// detail words the fault: its 0-based byte offset, what was wanted, what was found.
func (s *scanner) detail() string {
	if s.note != "" {
		return fmt.Sprintf("byte %d: %s", s.pos, s.note)
	}
	if s.pos >= len(s.src) {
		return fmt.Sprintf("byte %d: expected %s, found the end", s.pos, s.want)
	}
	c := s.src[s.pos]
	if c > 0x20 && c < 0x7f {
		return fmt.Sprintf("byte %d: expected %s, found '%c'", s.pos, s.want, c)
	}
	return fmt.Sprintf("byte %d: expected %s, found 0x%02X", s.pos, s.want, c)
}

func (s *scanner) at(c byte) bool { return s.pos < len(s.src) && s.src[s.pos] == c }

// space passes white space.
func (s *scanner) space() {
	for s.pos < len(s.src) {
		switch s.src[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
			s.spaced = true
		default:
			return
		}
	}
}

// value walks one JSON value that starts at pos. depth is the number of brackets open around it.
func (s *scanner) value(depth int) bool {
	if s.pos < len(s.src) {
		switch c := s.src[s.pos]; {
		case c == '-' || c >= '0' && c <= '9':
			return s.number()
		case c == '"':
			return s.text()
		case c == '{':
			return s.object(depth)
		case c == '[':
			return s.array(depth)
		case c == 't':
			return s.word("true")
		case c == 'f':
			return s.word("false")
		case c == 'n':
			return s.word("null")
		}
	}
	return s.fail(s.pos, "a JSON value")
}

func (s *scanner) word(w string) bool {
	for i := range len(w) {
		if s.pos+i >= len(s.src) || s.src[s.pos+i] != w[i] {
			return s.fail(s.pos+i, w)
		}
	}
	s.pos += len(w)
	return true
}

// open passes the bracket at pos.
func (s *scanner) open(depth int) bool {
	if depth >= maxDepth {
		return s.reject(s.pos, fmt.Sprintf("nested deeper than %d levels", maxDepth))
	}
	s.pos++
	s.space()
	return true
}

// key walks the key of a member and its colon.
func (s *scanner) key() bool {
	if !s.at('"') {
		return s.fail(s.pos, "a key in double quotes")
	}
	if !s.text() {
		return false
	}
	s.keyTo = s.pos - 1
	s.space()
	if !s.at(':') {
		return s.fail(s.pos, "':'")
	}
	s.pos++
	s.space()
	return true
}

// next passes the comma after a member or element (more) or the closing bracket.
func (s *scanner) next(closing byte) (more, ok bool) {
	s.space()
	switch {
	case s.at(','):
		s.pos++
		s.space()
		return true, true
	case s.at(closing):
		s.pos++
		return false, true
	case closing == '}':
		return false, s.fail(s.pos, "',' or '}'")
	}
	return false, s.fail(s.pos, "',' or ']'")
}

func (s *scanner) object(depth int) bool {
	if !s.open(depth) {
		return false
	}
	if s.at('}') {
		s.pos++
		return true
	}
	for {
		if !s.key() || !s.value(depth+1) {
			return false
		}
		if more, ok := s.next('}'); !more {
			return ok
		}
	}
}

func (s *scanner) array(depth int) bool {
	if !s.open(depth) {
		return false
	}
	if s.at(']') {
		s.pos++
		return true
	}
	for {
		if !s.value(depth + 1) {
			return false
		}
		if more, ok := s.next(']'); !more {
			return ok
		}
	}
}

// number walks a number as RFC 8259 section 6 writes it.
func (s *scanner) number() bool {
	start, i := s.pos, s.pos
	if s.src[i] == '-' {
		i++
	}
	digits := s.digits(i)
	if digits == i {
		return s.fail(i, "a digit")
	}
	if s.src[i] == '0' {
		digits = i + 1
	}
	// Without an exponent only hundreds of digits can leave float64.
	suspect := digits-i > 300
	i = digits
	if i < len(s.src) && s.src[i] == '.' {
		i++
		if digits = s.digits(i); digits == i {
			return s.fail(i, "a digit")
		}
		i = digits
	}
	if i < len(s.src) && s.src[i]|0x20 == 'e' {
		suspect = true
		i++
		if i < len(s.src) && (s.src[i] == '+' || s.src[i] == '-') {
			i++
		}
		if digits = s.digits(i); digits == i {
			return s.fail(i, "a digit")
		}
		i = digits
	}
	s.pos = i
	if suspect && s.huge < 0 {
		if _, ok := historian.ParseNumber(s.src[start:i]); !ok {
			s.huge = start
		}
	}
	return true
}

// digits returns the end of the run of digits at i.
func (s *scanner) digits(i int) int {
	for i < len(s.src) && s.src[i]-'0' <= 9 {
		i++
	}
	return i
}

// text walks the string whose opening quote is at pos.
func (s *scanner) text() bool {
	src, i := s.src, s.pos+1
	s.escaped = false
	for i < len(src) {
		c := src[i]
		switch {
		case plain[c]:
			i++
		case c == '"':
			s.pos = i + 1
			return true
		case c == '\\':
			s.escaped = true
			if i = s.escape(i); i < 0 {
				return false
			}
		case c < 0x20:
			return s.reject(i, fmt.Sprintf("control character 0x%02X in a string must be escaped", c))
		default:
			size, bad := runeAt(src[i:])
			if size == 0 {
				return s.rejectUTF8(i + bad)
			}
			i += size
		}
	}
	return s.fail(len(src), "'\"'")
}

func (s *scanner) rejectUTF8(pos int) bool {
	if pos >= len(s.src) {
		return s.reject(pos, "the text ends inside a UTF-8 character")
	}
	return s.reject(pos, fmt.Sprintf("0x%02X is not UTF-8", s.src[pos]))
}

// escape walks the escape whose backslash is at i and returns the place behind it, -1 if it is faulty. A surrogate that
// is not half of a pair is refused: no UTF-8 text can hold it.
func (s *scanner) escape(i int) int {
	i++
	if i >= len(s.src) {
		s.fail(i, "an escape")
		return -1
	}
	switch s.src[i] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 1
	case 'u':
	default:
		s.fail(i, `one of "\/bfnrtu`)
		return -1
	}
	i++
	high := false
	for k := range 4 {
		if i+k >= len(s.src) || unhex(s.src[i+k]) > 15 {
			s.fail(i+k, "a hexadecimal digit")
			return -1
		}
		if k == 1 && s.src[i]|0x20 == 'd' {
			switch h := unhex(s.src[i+1]); {
			case h >= 12:
				s.reject(i+1, "lone low surrogate")
				return -1
			case h >= 8:
				high = true
			}
		}
	}
	i += 4
	if !high {
		return i
	}
	for k := range 6 {
		ok := i+k < len(s.src)
		if ok {
			c := s.src[i+k]
			switch k {
			case 0:
				ok = c == '\\'
			case 1:
				ok = c == 'u'
			case 2:
				ok = c|0x20 == 'd'
			case 3:
				ok = unhex(c) >= 12 && unhex(c) <= 15
			default:
				ok = unhex(c) <= 15
			}
		}
		if !ok {
			s.reject(i+k, "lone high surrogate")
			return -1
		}
	}
	return i + 6
}

// unhex is 16 or more for what is no hexadecimal digit.
func unhex(c byte) byte {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10
	}
	return 255
}

// runeAt checks the UTF-8 sequence at the start of b, whose first byte is above ASCII. size 0 means that byte bad is
// the first that cannot continue it. RFC 3629 section 4.
func runeAt(b []byte) (size, bad int) {
	lo, hi := byte(0x80), byte(0xBF)
	switch c := b[0]; {
	case c < 0xC2:
		return 0, 0
	case c <= 0xDF:
		size = 2
	case c <= 0xEF:
		size = 3
		if c == 0xE0 {
			lo = 0xA0
		} else if c == 0xED {
			hi = 0x9F
		}
	case c <= 0xF4:
		size = 4
		if c == 0xF0 {
			lo = 0x90
		} else if c == 0xF4 {
			hi = 0x8F
		}
	default:
		return 0, 0
	}
	for k := 1; k < size; k++ {
		if k >= len(b) || b[k] < lo || b[k] > hi {
			return 0, k
		}
		lo, hi = 0x80, 0xBF
	}
	return size, 0
}

// invalidUTF8 is the place of the first byte that is not UTF-8, -1 if there is none.
func invalidUTF8(b []byte) int {
	for i := 0; i < len(b); {
		if b[i] < 0x80 {
			i++
			continue
		}
		size, bad := runeAt(b[i:])
		if size == 0 {
			return i + bad
		}
		i += size
	}
	return -1
}
