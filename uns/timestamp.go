package uns

import (
	"fmt"
	"math"
	"math/bits"
	"time"
)

// timeUnit is the power of ten of nanoseconds that one unit of a numeric timestamp stands for.
type timeUnit int8

// The units a topic may declare. byMagnitude is the rule of contract 4 where none is declared.
const (
	byMagnitude  timeUnit = -1
	nanoseconds  timeUnit = 0
	microseconds timeUnit = 3
	milliseconds timeUnit = 6
	seconds      timeUnit = 9
)

// instant is a device's timestamp: a multiple of 10^scale nanoseconds. twice says that the local time it was given
// as happened twice and that the first was taken.
type instant struct {
	ns    int64
	scale uint8
	twice bool
}

// timestamp reads what the device sent as its time. loc is the zone declared for texts without one, nil for none.
func timestamp(raw []byte, text bool, unit timeUnit, loc *time.Location) (instant, Verdict) {
	if text {
		return textTime(raw, loc)
	}
	return numberTime(raw, unit)
}

var powers = func() (p [20]uint64) {
	p[0] = 1
	for i := 1; i < len(p); i++ {
		p[i] = p[i-1] * 10
	}
	return p
}()

// numberTime reads a JSON number exactly: no float is involved.
func numberTime(raw []byte, unit timeUnit) (instant, Verdict) {
	d := decimalOf(raw)
	digits := d.len()
	if digits == 0 {
		if unit == byMagnitude {
			unit = seconds
		}
		return instant{scale: scaleOf(unit, d.frac)}, Verdict{}
	}
	if unit == byMagnitude {
		// |n| < 10^k exactly when its first digit stands before the k-th place.
		switch k := digits + d.exp; {
		case k <= 11:
			unit = seconds
		case k <= 14:
			unit = milliseconds
		case k <= 17:
			unit = microseconds
		default:
			unit = nanoseconds
		}
	}
	shift := d.exp + int(unit)
	if digits+shift > 19 {
		return instant{}, outsideTime(raw, d.neg)
	}
	if shift < 0 {
		return instant{}, refuse(TimestampInvalid, "timestamp: %s is finer than a nanosecond, which is what can be stored", clipRaw(raw))
	}
	var mant uint64
	for i := range digits {
		mant = mant*10 + uint64(d.digit(i)-'0')
	}
	hi, ns := bits.Mul64(mant, powers[shift])
	if hi != 0 || ns > math.MaxInt64 {
		return instant{}, outsideTime(raw, d.neg)
	}
	at := instant{ns: int64(ns), scale: scaleOf(unit, d.frac)}
	if d.neg {
		at.ns = -at.ns
	}
	return at, Verdict{}
}

// scaleOf is the precision of a number in units with frac digits behind its point.
func scaleOf(unit timeUnit, frac int) uint8 {
	return uint8(max(0, int(unit)-frac))
}

// outsideTime refuses a time that int64 nanoseconds cannot hold by the side it lies on, so that a device whose clock is
// a thousand years off hears the same reason as one that is ten years off.
func outsideTime(raw []byte, past bool) Verdict {
	if past {
		return refuse(TimestampTooOld, "timestamp: %s lies before the year 1678, the first that can be stored", clipRaw(raw))
	}
	return refuse(TimestampFuture, "timestamp: %s lies after the year 2261, the last that can be stored", clipRaw(raw))
}

// textTime reads RFC 3339 section 5.6 with up to nine digits of fraction; T and Z may be lower case.
func textTime(raw []byte, loc *time.Location) (instant, Verdict) {
	invalid := func(format string, args ...any) (instant, Verdict) {
		return instant{}, refuse(TimestampInvalid, "timestamp: %s %s", clip(raw), fmt.Sprintf(format, args...))
	}
	c := clock{src: raw}
	year, month, day := c.number(4, 0, 9999, '-'), c.number(2, 1, 12, '-'), c.number(2, 1, 31, 0)
	if !c.bad && c.pos < len(raw) && raw[c.pos]|0x20 != 't' {
		return invalid("is not RFC 3339: wanted T between date and time, found %q", raw[c.pos])
	}
	c.pos++
	hour, minute, second := c.number(2, 0, 23, ':'), c.number(2, 0, 59, ':'), c.number(2, 0, 59, 0)
	if c.bad {
		if numeric(raw) {
			return invalid("is a number sent as text: send it without quotes")
		}
		if len(raw) >= 19 && string(raw[17:19]) == "60" {
			return invalid("is a leap second, which cannot be stored: send second 59 or the next 00")
		}
		return invalid("is not RFC 3339, like 2026-09-21T14:13:20.250Z")
	}
	if day > daysIn(year, month) {
		return invalid("names a day that month %d of %d does not have", month, year)
	}
	nanos, digits := c.fraction()
	if digits < 0 {
		return invalid("is not RFC 3339: wanted 1 to 9 digits behind the point")
	}
	local := daysSince1970(year, month, day)*86400 + int64(hour*3600+minute*60+second)
	at := instant{scale: uint8(9 - digits)}
	zone := raw[c.pos:]
	switch {
	case len(zone) == 0 && loc == nil:
		return invalid("has no zone: send Z or an offset, or declare timeZone on the topic")
	case len(zone) == 0:
		first, times := inZone(local, loc)
		if times == 0 {
			return invalid("does not exist in %s: the clocks were put forward over it", loc)
		}
		local, at.twice = first, times == 2
	case len(zone) == 1 && zone[0]|0x20 == 'z':
	default:
		offset, ok := zoneOffset(zone)
		if !ok {
			return invalid("is not RFC 3339: wanted Z or an offset like +02:00 at its end, found %s", clip(zone))
		}
		local -= offset
	}
	hi, lo := bits.Mul64(uint64(abs(local)), 1e9)
	if hi != 0 || lo > math.MaxInt64-1e9 {
		return instant{}, outsideTime(raw, local < 0)
	}
	at.ns = int64(lo)
	if local < 0 {
		at.ns = -at.ns
	}
	at.ns += nanos
	return at, Verdict{}
}

// clock reads the fixed-width fields of RFC 3339.
type clock struct {
	src []byte
	pos int
	bad bool
}

// number reads width digits between lo and hi and the byte after them, if one is wanted.
func (c *clock) number(width, lo, hi int, after byte) int {
	if c.bad || c.pos+width > len(c.src) {
		c.bad = true
		return 0
	}
	n := 0
	for _, d := range c.src[c.pos : c.pos+width] {
		if d < '0' || d > '9' {
			c.bad = true
			return 0
		}
		n = n*10 + int(d-'0')
	}
	c.pos += width
	if after != 0 {
		if c.pos >= len(c.src) || c.src[c.pos] != after {
			c.bad = true
			return 0
		}
		c.pos++
	}
	if n < lo || n > hi {
		c.bad = true
	}
	return n
}

// fraction reads the digits behind the point: digits is 0 without a point and -1 when it is faulty.
func (c *clock) fraction() (nanos int64, digits int) {
	if c.pos >= len(c.src) || c.src[c.pos] != '.' {
		return 0, 0
	}
	c.pos++
	for c.pos < len(c.src) && c.src[c.pos]-'0' <= 9 {
		if digits++; digits > 9 {
			return 0, -1
		}
		nanos = nanos*10 + int64(c.src[c.pos]-'0')
		c.pos++
	}
	if digits == 0 {
		return 0, -1
	}
	return nanos * int64(powers[9-digits]), digits
}

// zoneOffset reads ±hh:mm in seconds.
func zoneOffset(zone []byte) (int64, bool) {
	if len(zone) != 6 || zone[0] != '+' && zone[0] != '-' {
		return 0, false
	}
	c := clock{src: zone, pos: 1}
	h, m := c.number(2, 0, 23, ':'), c.number(2, 0, 59, 0)
	offset := int64(h*3600 + m*60)
	if zone[0] == '-' {
		offset = -offset
	}
	return offset, !c.bad
}

// inZone finds the instant of a wall-clock time, both in seconds since 1970, and how often it happens there: not at
// all while clocks are put forward, twice while they are put back; then first is the earlier.
func inZone(local int64, loc *time.Location) (first int64, times int) {
	before := offsetAt(local-86400, loc)
	after := offsetAt(local+86400, loc)
	early, late := local-before, local-after
	earlyOK, lateOK := offsetAt(early, loc) == before, offsetAt(late, loc) == after
	switch {
	case earlyOK && lateOK && early != late:
		return min(early, late), 2
	case earlyOK:
		return early, 1
	case lateOK:
		return late, 1
	}
	return 0, 0
}

func offsetAt(unix int64, loc *time.Location) int64 {
	_, offset := time.Unix(unix, 0).In(loc).Zone()
	return int64(offset)
}

// numeric tells whether a text is a number, which is the one wrong timestamp worth a word of its own.
func numeric(raw []byte) bool {
	for _, c := range raw {
		if (c < '0' || c > '9') && c != '.' && c != '-' {
			return false
		}
	}
	return len(raw) > 0
}

func daysIn(year, month int) int {
	switch month {
	case 2:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	case 4, 6, 9, 11:
		return 30
	}
	return 31
}

// daysSince1970 counts in the Gregorian calendar, with years that begin in March so that the leap day is the last.
func daysSince1970(year, month, day int) int64 {
	y, m := int64(year), int64(month)
	if m <= 2 {
		y--
		m += 12
	}
	// Years are never negative here but for January and February of year 0.
	era := y / 400
	if y < 0 {
		era = -1
	}
	yoe := y - era*400
	doy := (153*(m-3)+2)/5 + int64(day) - 1
	return era*146097 + yoe*365 + yoe/4 - yoe/100 + doy - 719468
}

func abs(n int64) int64 {
	if n < 0 {
		return -n
	}
	return n
}

// AppendTime appends RFC 3339 UTC with the digits of scale, at least ms.
func AppendTime(dst []byte, ns int64, scale uint8) []byte {
	t := time.Unix(0, ns).UTC()
	year, month, day := t.Date()
	hour, minute, second := t.Clock()
	dst = appendPadded(dst, year, 4)
	dst = append(dst, '-')
	dst = appendPadded(dst, int(month), 2)
	dst = append(dst, '-')
	dst = appendPadded(dst, day, 2)
	dst = append(dst, 'T')
	dst = appendPadded(dst, hour, 2)
	dst = append(dst, ':')
	dst = appendPadded(dst, minute, 2)
	dst = append(dst, ':')
	dst = appendPadded(dst, second, 2)
	digits := max(3, 9-int(min(scale, 9)))
	dst = append(dst, '.')
	dst = appendPadded(dst, t.Nanosecond()/int(powers[9-digits]), digits)
	return append(dst, 'Z')
}

func appendPadded(dst []byte, n, width int) []byte {
	for i := width - 1; i >= 0; i-- {
		dst = append(dst, byte('0'+n/int(powers[i])%10))
	}
	return dst
}
