package promql

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Error is what is wrong with a query, or beyond what can be answered.
type Error struct {
	At      int // byte of the query; -1 = the whole
	Message string
}

func (e *Error) Error() string {
	if e.At < 0 {
		return e.Message
	}
	return fmt.Sprintf("at byte %d: %s", e.At, e.Message)
}

func faultAt(at int, format string, a ...any) *Error { return &Error{at, fmt.Sprintf(format, a...)} }

type tokenKind uint8

const (
	end tokenKind = iota
	name
	number
	text
	duration
	sign // an operator or a bracket
)

type token struct {
	kind tokenKind
	at   int
	s    string
}

// lex splits a query. Durations are told from numbers by their unit.
func lex(q string) (list []token, err error) {
	for i := 0; i < len(q); {
		c := q[i]
		switch {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			i++
		case c == '#':
			for i < len(q) && q[i] != '\n' {
				i++
			}
		case letter(c):
			j := i
			for j < len(q) && (letter(q[j]) || digit(q[j]) || q[j] == ':') {
				j++
			}
			list, i = append(list, token{name, i, q[i:j]}), j
		case digit(c) || c == '.' && i+1 < len(q) && digit(q[i+1]):
			j := i
			for j < len(q) && (digit(q[j]) || letter(q[j]) || q[j] == '.' || (q[j] == '+' || q[j] == '-') && q[j-1]|0x20 == 'e' && !strings.HasPrefix(q[i:], "0x")) {
				j++
			}
			t := token{number, i, q[i:j]}
			if _, ok := parseDuration(t.s); ok {
				t.kind = duration
			} else if _, err := strconv.ParseFloat(t.s, 64); err != nil {
				return nil, faultAt(i, "%q is neither a number nor a duration", t.s)
			}
			list, i = append(list, t), j
		case c == '"' || c == '\'' || c == '`':
			s, n, err := quoted(q[i:])
			if err != nil {
				return nil, faultAt(i, "%v", err)
			}
			list, i = append(list, token{text, i, s}), i+n
		default:
			s := q[i : i+1]
			if i+1 < len(q) {
				switch q[i : i+2] {
				case "!=", "=~", "!~", "==", ">=", "<=":
					s = q[i : i+2]
				}
			}
			if !strings.Contains("(){}[],=+-*/%^<>!=~@:", s[:1]) {
				r, _ := utf8.DecodeRuneInString(q[i:])
				return nil, faultAt(i, "unexpected %q", r)
			}
			list, i = append(list, token{sign, i, s}), i+len(s)
		}
	}
	return append(list, token{end, len(q), ""}), nil
}

func letter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' || c == '_' }
func digit(c byte) bool  { return c >= '0' && c <= '9' }

// quoted reads a string at the start of q and gives how long it is there.
func quoted(q string) (s string, n int, err error) {
	quote := q[0]
	if quote == '`' {
		end := strings.IndexByte(q[1:], '`')
		if end < 0 {
			return "", 0, fmt.Errorf("a string without an end")
		}
		return q[1 : 1+end], end + 2, nil
	}
	var out strings.Builder
	for rest := q[1:]; rest != ""; {
		if rest[0] == quote {
			return out.String(), len(q) - len(rest) + 1, nil
		}
		r, multi, tail, err := strconv.UnquoteChar(rest, quote)
		if err != nil {
			return "", 0, fmt.Errorf("a string with a wrong escape")
		}
		if r < utf8.RuneSelf || !multi {
			out.WriteByte(byte(r))
		} else {
			out.WriteRune(r)
		}
		rest = tail
	}
	return "", 0, fmt.Errorf("a string without an end")
}

var units = [...]struct {
	text string
	d    time.Duration
}{{"ms", time.Millisecond}, {"s", time.Second}, {"m", time.Minute}, {"h", time.Hour}, {"d", 24 * time.Hour}, {"w", 7 * 24 * time.Hour}, {"y", 365 * 24 * time.Hour}}

// parseDuration reads 5m, 1h30m, 500ms, as Prometheus writes durations.
func parseDuration(s string) (d time.Duration, ok bool) {
	for s != "" {
		i := 0
		for i < len(s) && digit(s[i]) {
			i++
		}
		n, err := strconv.ParseInt(s[:i], 10, 32)
		if err != nil {
			return 0, false
		}
		s, ok = s[i:], false
		for _, u := range units {
			if rest, found := strings.CutPrefix(s, u.text); found && (rest == "" || digit(rest[0])) {
				if d += time.Duration(n) * u.d; d < 0 || d > 200*365*24*time.Hour {
					return 0, false
				}
				s, ok = rest, true
				break
			}
		}
		if !ok {
			return 0, false
		}
	}
	return d, ok
}

// Duration reads a step or a range as the API takes it: seconds, or a duration.
func Duration(s string) (time.Duration, bool) {
	if d, ok := parseDuration(s); ok {
		return d, true
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || !(f > 0 && f < 1e10) {
		return 0, false
	}
	return time.Duration(f * float64(time.Second)), true
}
