package uns

import (
	"unicode/utf8"

	"millrace/historian"
)

// maxUnitBytes bounds a unit: it is shown beside every value.
const maxUnitBytes = 64

// span is a piece of a payload.
type span struct {
	from, to int
	escaped  bool
}

func (s span) set() bool { return s.to > 0 }

// token is one JSON value within a payload, as the scanner saw it.
type token struct {
	span
	spaced bool
	huge   int // place of the first number beyond float64 in it, -1 for none
}

// members are the parts of an envelope, found but not yet judged: only the end of the payload tells whether the
// object has a value and so is an envelope at all.
type members struct {
	value, timestamp, quality, unit token
	// twice names the first of the four keys that came again, and twiceAt its place.
	twice   string
	twiceAt int
}

// reading is what a payload says.
type reading struct {
	value historian.Value
	// timestamp is the number or the text (without quotes, unescaped) that was sent, if the value is stamped.
	timestamp     []byte
	timestampText bool
	stamped       bool
	quality       historian.Quality
	unit          []byte
}

// read parses a payload per contract section 4. What r points to lies in the arena; nothing is allocated once the
// arena is large enough. The Verdict's Reason is Stored when r is filled.
func (b *Batch) read(payload []byte, r *reading) Verdict {
	s := scanner{src: payload, huge: -1}
	var m members
	s.space()
	start := s.pos
	s.spaced = false
	var whole token
	var ok bool
	if s.at('{') {
		whole, ok = s.envelope(&m)
	} else {
		whole, ok = s.token(0)
	}
	if ok {
		s.space()
		if s.pos < len(payload) {
			ok = s.fail(s.pos, "the end of the payload")
		}
	}
	if !ok {
		if start == len(payload) {
			return refuse(PayloadInvalid, "byte %d: expected a JSON value, found the end: the payload holds only white space", s.pos)
		}
		return Verdict{Reason: PayloadInvalid, Detail: s.detail()}
	}
	*r = reading{}
	if !m.value.set() {
		return b.store(payload, whole, r)
	}
	if m.twice != "" {
		return refuse(PayloadInvalid, "byte %d: key %q appears twice in the envelope", m.twiceAt, m.twice)
	}
	if v := b.envelope(payload, &m, r); v.Reason != Stored {
		return v
	}
	return b.store(payload, m.value, r)
}

// token walks one value and keeps its place.
func (s *scanner) token(depth int) (token, bool) {
	spaced, huge := s.spaced, s.huge
	s.spaced, s.huge = false, -1
	t := token{span: span{from: s.pos}}
	if !s.value(depth) {
		return t, false
	}
	t.to, t.spaced, t.huge = s.pos, s.spaced, s.huge
	t.escaped = s.src[t.from] == '"' && s.escaped
	s.spaced = s.spaced || spaced
	if huge >= 0 {
		s.huge = huge
	}
	return t, true
}

// envelope walks the outermost object and keeps the members that an envelope may have.
func (s *scanner) envelope(m *members) (token, bool) {
	whole := token{span: span{from: s.pos}}
	if !s.open(0) {
		return whole, false
	}
	more := !s.at('}')
	if !more {
		s.pos++
	}
	for more {
		at := s.pos
		if !s.key() {
			return whole, false
		}
		slot, name := m.slot(s, at)
		t, ok := s.token(1)
		if !ok {
			return whole, false
		}
		if slot != nil {
			if slot.set() && m.twice == "" {
				m.twice, m.twiceAt = name, at
			}
			*slot = t
		}
		if more, ok = s.next('}'); !ok {
			return whole, false
		}
	}
	whole.to, whole.spaced, whole.huge = s.pos, s.spaced, s.huge
	return whole, true
}

// slot is where the value of the key that starts at from belongs, nil for other keys.
func (m *members) slot(s *scanner, from int) (*token, string) {
	key := s.src[from+1 : s.keyTo]
	if s.escaped {
		// An escaped key is longer than what it says: six bytes a character at most.
		if len(key) > 6*len("timestamp") {
			return nil, ""
		}
		var short [6 * len("timestamp")]byte
		key = appendUnescaped(short[:0], key)
	}
	switch string(key) {
	case "value":
		return &m.value, "value"
	case "timestamp":
		return &m.timestamp, "timestamp"
	case "quality":
		return &m.quality, "quality"
	case "unit":
		return &m.unit, "unit"
	}
	return nil, ""
}

// envelope judges the members beside the value. null stands for an absent member.
func (b *Batch) envelope(payload []byte, m *members, r *reading) Verdict {
	if t := m.timestamp; t.set() && payload[t.from] != 'n' {
		r.stamped = true
		switch c := payload[t.from]; {
		case c == '"':
			r.timestamp, r.timestampText = b.text(payload, t.span), true
		case c == '-' || c >= '0' && c <= '9':
			r.timestamp = payload[t.from:t.to]
		default:
			return refuse(TimestampInvalid, "timestamp: %s is neither RFC 3339 text nor a number", clipRaw(payload[t.from:t.to]))
		}
	}
	if t := m.quality; t.set() && payload[t.from] != 'n' {
		word := payload[t.from:t.to]
		if payload[t.from] == '"' {
			word = b.text(payload, t.span)
		}
		switch string(word) {
		case "good":
		case "uncertain":
			r.quality = historian.Uncertain
		case "bad":
			r.quality = historian.Bad
		default:
			return refuse(PayloadInvalid, "quality: %s (byte %d) is not one of good, uncertain, bad", clipRaw(payload[t.from:t.to]), t.from)
		}
	}
	if t := m.unit; t.set() && payload[t.from] != 'n' {
		if payload[t.from] != '"' {
			return refuse(PayloadInvalid, "unit: %s (byte %d) is not text", clipRaw(payload[t.from:t.to]), t.from)
		}
		r.unit = b.text(payload, t.span)
		if fault := unitFault(r.unit); fault != "" {
			return refuse(PayloadInvalid, "unit: %s (byte %d)", fault, t.from)
		}
	}
	return Verdict{}
}

// unitFault says what is wrong with a unit, "" for nothing.
func unitFault(unit []byte) string {
	if len(unit) > maxUnitBytes {
		return clip(unit) + " is longer than 64 bytes"
	}
	for i := 0; i < len(unit); {
		r, n := utf8.DecodeRune(unit[i:])
		if r < 0x20 || r >= 0x7f && r < 0xA0 || r == utf8.RuneError && n == 1 {
			return clip(unit) + " holds a control character"
		}
		i += n
	}
	return ""
}

// text copies a string's content into the arena, unescaped.
func (b *Batch) text(payload []byte, t span) []byte {
	mark := len(b.arena)
	inner := payload[t.from+1 : t.to-1]
	if t.escaped {
		b.arena = appendUnescaped(b.arena, inner)
	} else {
		b.arena = append(b.arena, inner...)
	}
	return b.arena[mark:len(b.arena):len(b.arena)]
}

// store turns the chosen token into the value.
func (b *Batch) store(payload []byte, t token, r *reading) Verdict {
	raw := payload[t.from:t.to]
	if t.huge >= 0 {
		return refuse(NumberOutOfRange, "value: %s (byte %d) is beyond what a 64-bit float can hold", clipRaw(payload[t.huge:numberEnd(payload, t.huge)]), t.huge)
	}
	switch raw[0] {
	case '"':
		r.value = historian.Value{Kind: historian.Text, Raw: b.text(payload, t.span)}
	case '{', '[':
		mark := len(b.arena)
		if t.spaced {
			b.arena = appendCompact(b.arena, raw)
		} else {
			b.arena = append(b.arena, raw...)
		}
		r.value = historian.Value{Kind: historian.JSON, Raw: b.arena[mark:len(b.arena):len(b.arena)]}
	case 't':
		r.value = historian.Value{Kind: historian.Bool, Mant: 1}
	case 'f':
		r.value = historian.Value{Kind: historian.Bool}
	case 'n':
		r.value = historian.Value{}
	default:
		v, ok := historian.ParseNumber(raw)
		if !ok {
			return refuse(NumberOutOfRange, "value: %s (byte %d) is beyond what a 64-bit float can hold", clipRaw(raw), t.from)
		}
		if v.Raw != nil {
			mark := len(b.arena)
			b.arena = append(b.arena, v.Raw...)
			v.Raw = b.arena[mark:len(b.arena):len(b.arena)]
		}
		r.value = v
	}
	return Verdict{}
}

// numberEnd is where the number that starts at i ends.
func numberEnd(b []byte, i int) int {
	for i < len(b) {
		switch c := b[i]; {
		case c >= '0' && c <= '9', c == '-', c == '+', c == '.', c|0x20 == 'e':
			i++
		default:
			return i
		}
	}
	return i
}

// appendCompact copies valid JSON without the white space between its tokens.
func appendCompact(dst, src []byte) []byte {
	for i := 0; i < len(src); i++ {
		switch c := src[i]; c {
		case ' ', '\t', '\n', '\r':
		case '"':
			end := i + 1
			for src[end] != '"' {
				if src[end] == '\\' {
					end++
				}
				end++
			}
			dst = append(dst, src[i:end+1]...)
			i = end
		default:
			dst = append(dst, c)
		}
	}
	return dst
}

// appendUnescaped copies the inside of a valid JSON string with its escapes resolved.
func appendUnescaped(dst, src []byte) []byte {
	for i := 0; i < len(src); i++ {
		if src[i] != '\\' {
			dst = append(dst, src[i])
			continue
		}
		i++
		switch src[i] {
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		case 'u':
			r := hex4(src[i+1:])
			i += 4
			if r >= 0xD800 && r < 0xDC00 {
				low := hex4(src[i+3:])
				i += 6
				r = 0x10000 + (r-0xD800)<<10 + (low - 0xDC00)
			}
			dst = utf8.AppendRune(dst, r)
		default:
			dst = append(dst, src[i])
		}
	}
	return dst
}

// hex4 reads four hexadecimal digits that the scanner has seen.
func hex4(b []byte) rune {
	return rune(unhex(b[0]))<<12 | rune(unhex(b[1]))<<8 | rune(unhex(b[2]))<<4 | rune(unhex(b[3]))
}
