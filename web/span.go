package web

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// parseMoment reads a time as REST takes it: RFC 3339, milliseconds since 1970, `now`, or a distance from now
// such as -6h or -7d. The answer is in ns since 1970; moments beyond int64 become its ends.
func parseMoment(s string, now time.Time) (int64, bool) {
	if s == "now" {
		return now.UnixNano(), true
	}
	if ms, err := strconv.ParseInt(s, 10, 64); err == nil {
		return clampMillis(ms), true
	}
	if d, ok := parseDistance(s); ok {
		return now.Add(d).UnixNano(), true
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		// A `+` of a zone that was not percent-encoded arrives as a space.
		if t, err = time.Parse(time.RFC3339Nano, strings.Replace(s, " ", "+", 1)); err != nil {
			return 0, false
		}
	}
	return clampTime(t), true
}

func clampMillis(ms int64) int64 {
	const most = math.MaxInt64 / int64(time.Millisecond)
	switch {
	case ms > most:
		return math.MaxInt64
	case ms < -most:
		return math.MinInt64
	}
	return ms * int64(time.Millisecond)
}

func clampTime(t time.Time) int64 {
	switch {
	case t.After(time.Unix(0, math.MaxInt64)):
		return math.MaxInt64
	case t.Before(time.Unix(0, math.MinInt64)):
		return math.MinInt64
	}
	return t.UnixNano()
}

// parseDistance reads a signed duration that must state its sign: -90m, +1h, -1d12h.
func parseDistance(s string) (time.Duration, bool) {
	if len(s) < 3 || s[0] != '-' && s[0] != '+' {
		return 0, false
	}
	d, ok := parseDuration(s[1:])
	if s[0] == '-' {
		d = -d
	}
	return d, ok
}

// parseDuration reads a Go duration that may begin with whole days: 7d, 1d12h, 90m. No sign.
func parseDuration(s string) (time.Duration, bool) {
	var days time.Duration
	if head, rest, ok := strings.Cut(s, "d"); ok {
		n, err := strconv.ParseUint(head, 10, 16)
		if err != nil {
			return 0, false
		}
		days = time.Duration(n) * 24 * time.Hour
		if rest == "" {
			return days, true
		}
		s = rest
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 || strings.HasPrefix(s, "+") || days+d < 0 {
		return 0, false
	}
	return days + d, true
}
