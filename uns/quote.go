package uns

import (
	"strconv"
	"unicode/utf8"
)

const hexDigits = "0123456789abcdef"

// appendQuoted appends s as a JSON string. What is not UTF-8 becomes U+FFFD, so that the answer to a hostile
// topic is still JSON.
func appendQuoted(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			switch {
			case c == '"' || c == '\\':
				dst = append(dst, '\\', c)
			case c == '\n':
				dst = append(dst, '\\', 'n')
			case c == '\t':
				dst = append(dst, '\\', 't')
			case c < 0x20 || c == 0x7f:
				dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
			default:
				dst = append(dst, c)
			}
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		dst = utf8.AppendRune(dst, r)
		i += n
	}
	return append(dst, '"')
}

// clip shows at most 48 bytes of a text in a refusal, quoted, so that a detail stays one short line.
func clip(s []byte) string {
	const most = 48
	if len(s) <= most {
		return strconv.Quote(string(s))
	}
	cut := most
	for cut > most-utf8.UTFMax && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return strconv.Quote(string(s[:cut])) + "…"
}

// clipRaw is clip for JSON tokens, which read better without another pair of quotes.
func clipRaw(s []byte) string {
	const most = 48
	if len(s) <= most {
		return string(s)
	}
	cut := most
	for cut > most-utf8.UTFMax && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return string(s[:cut]) + "…"
}
