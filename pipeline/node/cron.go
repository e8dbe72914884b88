package node

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// cron is a five-field cron expression: minute, hour, day of month, month, day of week, each a set of numbers as bits.
type cron struct {
	minute, hour, day, month, weekday uint64
	// anyDay and anyWeekday say that the field is *: when neither is, a day is meant that meets one of the two, as cron
	// has always had it.
	anyDay, anyWeekday bool
	zone               *time.Location
}

// cronNames are the words of months and weekdays.
var cronMonths = []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}
var cronDays = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

// parseCron reads an expression; zone nil is UTC.
func parseCron(text string, zone *time.Location) (*cron, error) {
	f := strings.Fields(text)
	if len(f) != 5 {
		return nil, fmt.Errorf("cron: %q has %d fields, wanted are 5: minute hour day month weekday", text, len(f))
	}
	if zone == nil {
		zone = time.UTC
	}
	c := &cron{zone: zone, anyDay: f[2] == "*", anyWeekday: f[4] == "*"}
	for _, x := range []struct {
		name   string
		text   string
		lo, hi int
		names  []string
		base   int
		into   *uint64
	}{{"minute", f[0], 0, 59, nil, 0, &c.minute}, {"hour", f[1], 0, 23, nil, 0, &c.hour}, {"day", f[2], 1, 31, nil, 0, &c.day},
		{"month", f[3], 1, 12, cronMonths, 1, &c.month}, {"weekday", f[4], 0, 7, cronDays, 0, &c.weekday}} {
		set, err := cronField(x.text, x.lo, x.hi, x.names, x.base)
		if err != nil {
			return nil, fmt.Errorf("cron: %s: %w", x.name, err)
		}
		*x.into = set
	}
	if c.weekday&(1<<7) != 0 {
		c.weekday |= 1 // 7 is Sunday, too
	}
	if c.next(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return nil, fmt.Errorf("cron: %q names a day that no month has", text)
	}
	return c, nil
}

func cronField(text string, lo, hi int, names []string, base int) (set uint64, err error) {
	for part := range strings.SplitSeq(text, ",") {
		span, every, stepped := strings.Cut(part, "/")
		step := 1
		if stepped {
			if step, err = strconv.Atoi(every); err != nil || step < 1 || step > hi {
				return 0, fmt.Errorf("%q is no step between 1 and %d", every, hi)
			}
		}
		from, to := lo, hi
		if span != "*" {
			first, last, ranged := strings.Cut(span, "-")
			if from, err = cronNumber(first, lo, hi, names, base); err != nil {
				return 0, err
			}
			if to = from; ranged {
				if to, err = cronNumber(last, lo, hi, names, base); err != nil {
					return 0, err
				}
			} else if stepped {
				to = hi
			}
			if to < from {
				return 0, fmt.Errorf("%q ends before it begins", span)
			}
		}
		for n := from; n <= to; n += step {
			set |= 1 << n
		}
	}
	return set, nil
}

func cronNumber(text string, lo, hi int, names []string, base int) (int, error) {
	for i, name := range names {
		if strings.EqualFold(text, name) {
			return i + base, nil
		}
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < lo || n > hi {
		return 0, fmt.Errorf("%q is not between %d and %d", text, lo, hi)
	}
	return n, nil
}

// next is the first minute after t that the expression names; zero when there is none within some years. An hour that a
// change of the clocks leaves out is left out; one that happens twice counts once.
func (c *cron) next(t time.Time) time.Time {
	local := t.In(c.zone)
	y, m, d := local.Date()
	for range 366 * 9 { // the 29th of February may be eight years away
		day := time.Date(y, m, d, 12, 0, 0, 0, c.zone)
		if c.month&(1<<int(day.Month())) == 0 || !c.dayMatches(day) {
			d++
			y, m, d = time.Date(y, m, d, 12, 0, 0, 0, c.zone).Date()
			continue
		}
		for h := c.hour; h != 0; h &= h - 1 {
			hour := bits.TrailingZeros64(h)
			for mi := c.minute; mi != 0; mi &= mi - 1 {
				minute := bits.TrailingZeros64(mi)
				at := time.Date(y, m, d, hour, minute, 0, 0, c.zone)
				if at.Hour() == hour && at.Minute() == minute && at.After(t) {
					return at
				}
			}
		}
		y, m, d = time.Date(y, m, d+1, 12, 0, 0, 0, c.zone).Date()
	}
	return time.Time{}
}

func (c *cron) dayMatches(day time.Time) bool {
	of := c.day&(1<<day.Day()) != 0
	week := c.weekday&(1<<int(day.Weekday())) != 0
	switch {
	case c.anyDay:
		return week
	case c.anyWeekday:
		return of
	}
	return of || week
}

// Planner gives the planned times of a schedule.
type Planner struct {
	every time.Duration
	cron  *cron
}

// NewPlanner reads a schedule; the error says what is wrong with its cron expression.
func NewPlanner(s *Schedule) (*Planner, error) {
	if s.Every > 0 {
		return &Planner{every: max(s.Every, time.Millisecond)}, nil
	}
	c, err := parseCron(s.Cron, s.Zone)
	if err != nil {
		return nil, err
	}
	return &Planner{cron: c}, nil
}

// Next is the first planned time after t. Those of an interval are multiples of it since 1970, so that they do not depend
// on when the box was started.
func (p *Planner) Next(t time.Time) time.Time {
	if p.cron != nil {
		return p.cron.next(t)
	}
	every := p.every.Milliseconds()
	return time.UnixMilli((t.UnixMilli()/every + 1) * every)
}
