package value

import (
	"fmt"
	"unicode/utf16"
	"unicode/utf8"
)

// MaxDepth is how deep lists and objects may lie in one another.
const MaxDepth = 128

// SyntaxError says where a text stops being JSON.
type SyntaxError struct {
	Offset  int // 0-based, of the first byte that cannot belong to it
	Message string
}

func (e *SyntaxError) Error() string { return fmt.Sprintf("byte %d: %s", e.Offset, e.Message) }

// Parse reads one JSON text (RFC 8259), white space around it allowed. The error is a *SyntaxError. It keeps nothing of b.
func Parse(b []byte) (Value, error) {
	p := parser{src: b}
	p.space()
	v, err := p.value(0)
	if err != nil {
		return Value{}, err
	}
	if p.space(); p.pos < len(b) {
		return Value{}, p.fault("a value ends here and something follows")
	}
	return v, nil
}

type parser struct {
	src []byte
	pos int
}

func (p *parser) fault(format string, a ...any) error {
	return &SyntaxError{p.pos, fmt.Sprintf(format, a...)}
}

func (p *parser) space() {
	for p.pos < len(p.src) {
		switch p.src[p.pos] {
		case ' ', '\t', '\n', '\r':
			p.pos++
		default:
			return
		}
	}
}

func (p *parser) at(c byte) bool { return p.pos < len(p.src) && p.src[p.pos] == c }

func (p *parser) value(depth int) (Value, error) {
	if p.pos == len(p.src) {
		return Value{}, p.fault("expected a JSON value, found the end")
	}
	switch c := p.src[p.pos]; {
	case c == '{':
		return p.object(depth)
	case c == '[':
		return p.list(depth)
	case c == '"':
		s, err := p.text()
		return Text(s), err
	case c == '-' || isDigit(c):
		n := numberLen(p.src[p.pos:])
		v, ok := number(p.src[p.pos : p.pos+n])
		if !ok {
			return Value{}, p.fault("expected a finite number")
		}
		p.pos += n
		return v, nil
	}
	for _, w := range words {
		if n := len(w.text); len(p.src)-p.pos >= n && string(p.src[p.pos:p.pos+n]) == w.text {
			p.pos += n
			return w.value, nil
		}
	}
	return Value{}, p.fault("expected a JSON value, found %q", p.src[p.pos])
}

var words = [...]struct {
	text  string
	value Value
}{
	{"null", Value{kind: NullKind}}, {"true", Value{kind: BoolKind, mant: 1}}, {"false", Value{kind: BoolKind}},
}

func (p *parser) list(depth int) (Value, error) {
	if depth == MaxDepth {
		return Value{}, p.fault("lists and objects lie more than %d deep", MaxDepth)
	}
	p.pos++
	var items []Value
	for p.space(); !p.at(']'); p.space() {
		if len(items) > 0 {
			if !p.at(',') {
				return Value{}, p.fault("expected , or ]")
			}
			p.pos++
			p.space()
		}
		v, err := p.value(depth + 1)
		if err != nil {
			return Value{}, err
		}
		items = append(items, v)
	}
	p.pos++
	return List(items...), nil
}

func (p *parser) object(depth int) (Value, error) {
	if depth == MaxDepth {
		return Value{}, p.fault("lists and objects lie more than %d deep", MaxDepth)
	}
	p.pos++
	var fields []Field
	for p.space(); !p.at('}'); p.space() {
		if len(fields) > 0 {
			if !p.at(',') {
				return Value{}, p.fault("expected , or }")
			}
			p.pos++
			p.space()
		}
		if !p.at('"') {
			return Value{}, p.fault("expected a name in quotes")
		}
		name, err := p.text()
		if err != nil {
			return Value{}, err
		}
		if p.space(); !p.at(':') {
			return Value{}, p.fault("expected : after the name %q", name)
		}
		p.pos++
		p.space()
		v, err := p.value(depth + 1)
		if err != nil {
			return Value{}, err
		}
		fields = append(fields, Field{name, v})
	}
	p.pos++
	return Object(fields...), nil
}

// text reads a string. Half a surrogate pair becomes U+FFFD.
func (p *parser) text() (string, error) {
	start := p.pos + 1
	i := start
	for i < len(p.src) && p.src[i] != '"' && p.src[i] != '\\' && p.src[i] >= ' ' && p.src[i] < utf8.RuneSelf {
		i++
	}
	if i < len(p.src) && p.src[i] == '"' {
		p.pos = i + 1
		return string(p.src[start:i]), nil
	}
	out := append(make([]byte, 0, 2*(i-start)+16), p.src[start:i]...)
	for p.pos = i; p.pos < len(p.src); {
		switch c := p.src[p.pos]; {
		case c == '"':
			p.pos++
			return string(out), nil
		case c < ' ':
			return "", p.fault("a control character in a string must be escaped")
		case c == '\\':
			r, err := p.escape()
			if err != nil {
				return "", err
			}
			out = utf8.AppendRune(out, r)
		case c < utf8.RuneSelf:
			out = append(out, c)
			p.pos++
		default:
			r, n := utf8.DecodeRune(p.src[p.pos:])
			if r == utf8.RuneError && n == 1 {
				return "", p.fault("not UTF-8")
			}
			out = append(out, p.src[p.pos:p.pos+n]...)
			p.pos += n
		}
	}
	return "", p.fault("a string without an end")
}

const escaped = `"\/bfnrt`
const meant = "\"\\/\b\f\n\r\t"

func (p *parser) escape() (rune, error) {
	if p.pos+1 == len(p.src) {
		return 0, p.fault("a string without an end")
	}
	c := p.src[p.pos+1]
	for i := range len(escaped) {
		if escaped[i] == c {
			p.pos += 2
			return rune(meant[i]), nil
		}
	}
	if c != 'u' {
		return 0, p.fault(`\%c is no escape`, c)
	}
	r, ok := p.unit(p.pos)
	if !ok {
		return 0, p.fault(`\u wants four hexadecimal digits`)
	}
	p.pos += 6
	if !utf16.IsSurrogate(r) {
		return r, nil
	}
	if low, ok := p.unit(p.pos); ok {
		if both := utf16.DecodeRune(r, low); both != utf8.RuneError {
			p.pos += 6
			return both, nil
		}
	}
	return utf8.RuneError, nil
}

// unit reads \uXXXX at i.
func (p *parser) unit(i int) (r rune, ok bool) {
	if len(p.src)-i < 6 || p.src[i] != '\\' || p.src[i+1] != 'u' {
		return 0, false
	}
	for _, c := range p.src[i+2 : i+6] {
		switch {
		case isDigit(c):
			r = r<<4 | rune(c-'0')
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			r = r<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, false
		}
	}
	return r, true
}
