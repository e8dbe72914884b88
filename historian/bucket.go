package historian

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Step says how a range of time is cut into buckets. The zero Step makes one bucket of the whole range.
//
// Lengths are counted on the clock on the wall of Zone, so that a day is a day where it has 23 or 25 hours, and a shift
// from 22:00 to 06:00 is 9 hours long in the night that has an hour twice. Buckets of up to an hour follow each other
// without regard to how often the wall shows an hour: there are 25 buckets of an hour on such a day. Where the wall
// leaves out the beginning of a bucket, it begins with the first moment after the gap.
type Step struct {
	// Every is the length: whole milliseconds up to a day, or whole days. Days are counted from a Monday, so that 7 of
	// them are a week from Monday to Sunday.
	Every time.Duration
	// Months is the length instead of Every, 1 to 12, counted from January.
	Months int
	// Offset moves every beginning: 8 hours with an offset of 6 begin at 06:00, 14:00 and 22:00. It is shorter than
	// the length.
	Offset time.Duration
	// Zone is whose wall it is; nil is UTC.
	Zone *time.Location
}

const maxDays = 366

// Validate says what is wrong with the step.
func (s Step) Validate() error {
	every := s.Every
	switch {
	case s.Every != 0 && s.Months != 0:
		return errors.New("a bucket is either months or a duration long")
	case s.Months < 0 || s.Months > 12:
		return fmt.Errorf("%d months are not within 1 and 12", s.Months)
	case s.Months > 0:
		every = time.Duration(s.Months) * 28 * day
	case s.Every < 0 || s.Every > maxDays*day:
		return fmt.Errorf("%v is not within 1ms and %d days", s.Every, maxDays)
	case s.Every%time.Millisecond != 0:
		return fmt.Errorf("%v is not a number of whole milliseconds", s.Every)
	case s.Every > day && s.Every%day != 0:
		return fmt.Errorf("%v is longer than a day and no number of whole days", s.Every)
	case s.Every == 0 && s.Offset != 0:
		return errors.New("one bucket of the whole range has no offset")
	}
	if s.Offset%time.Millisecond != 0 {
		return fmt.Errorf("the offset %v is not a number of whole milliseconds", s.Offset)
	}
	if s.Offset <= -every && every != 0 || s.Offset >= every && every != 0 {
		return fmt.Errorf("the offset %v is not shorter than a bucket", s.Offset)
	}
	return nil
}

// whole says that there is one bucket only.
func (s Step) whole() bool { return s.Every == 0 && s.Months == 0 }

// wallEdge bounds the times that buckets are counted for, about the years 1684 to 2255. What lies beyond falls into
// one bucket on either side: arithmetic there would leave int64.
const wallEdge = int64(9e18)

// monday is the wall time that durations are counted from, 1970-01-05.
const monday = 4 * int64(day)

// buckets cuts time by a step. It remembers the offset of the zone it was in last. One goroutine at a time.
type buckets struct {
	step    Step
	utc     bool
	period  period // the last one that was asked for
	fetched bool
}

// period is a time from..to, to exclusive, in which the wall is offset ns ahead of UTC.
type period struct{ from, to, offset int64 }

func newBuckets(s Step) *buckets {
	return &buckets{step: s, utc: s.Zone == nil || s.Zone == time.UTC}
}

// at is the bucket a time lies in: from <= t < to.
func (b *buckets) at(t int64) (from, to int64) {
	switch {
	case b.step.whole():
		return math.MinInt64, math.MaxInt64
	case t < -wallEdge:
		from, _ = b.cut(-wallEdge)
		if t < from {
			return math.MinInt64, from
		}
		return b.cut(-wallEdge)
	case t >= wallEdge:
		_, to = b.cut(wallEdge - 1)
		if t >= to {
			return to, math.MaxInt64
		}
		return b.cut(wallEdge - 1)
	}
	return b.cut(t)
}

func (b *buckets) cut(t int64) (from, to int64) {
	if b.utc {
		wall := b.floor(t)
		return wall, b.next(wall)
	}
	if b.step.Months == 0 && b.step.Every <= time.Hour {
		return b.shortFrom(t), b.shortTo(t)
	}
	p := b.periodAt(t)
	wall := t + p.offset
	if p.from > math.MinInt64 {
		// An hour that the wall shows again belongs to what had begun when it showed it first.
		wall = max(wall, p.from+b.periodAt(p.from-1).offset-1)
	}
	begin := b.floor(wall)
	return b.first(begin), b.first(b.next(begin))
}

// floor is the wall time at which the bucket around a wall time begins.
func (b *buckets) floor(wall int64) int64 {
	offset := int64(b.step.Offset)
	if b.step.Months > 0 {
		return b.month(wall-offset, 0) + offset
	}
	every := int64(b.step.Every)
	return floorDiv(wall-monday-offset, every)*every + monday + offset
}

// next is the wall time at which the bucket after one that begins at that wall time begins.
func (b *buckets) next(begin int64) int64 {
	offset := int64(b.step.Offset)
	if b.step.Months > 0 {
		return b.month(begin-offset, b.step.Months) + offset
	}
	return begin + int64(b.step.Every)
}

// month is the beginning of the months around a wall time, or so many months after that.
func (b *buckets) month(wall int64, later int) int64 {
	t := time.Unix(0, wall).UTC()
	n := int64(t.Year())*12 + int64(t.Month()) - 1
	n = floorDiv(n, int64(b.step.Months))*int64(b.step.Months) + int64(later)
	return time.Date(int(floorDiv(n, 12)), time.Month(n-floorDiv(n, 12)*12+1), 1, 0, 0, 0, 0, time.UTC).UnixNano()
}

// periodAt asks the zone, or the memory, for the period around a time.
func (b *buckets) periodAt(t int64) period {
	if b.fetched && t >= b.period.from && t < b.period.to {
		return b.period
	}
	at := time.Unix(0, t).In(b.step.Zone)
	_, seconds := at.Zone()
	p := period{math.MinInt64, math.MaxInt64, int64(seconds) * int64(time.Second)}
	from, to := at.ZoneBounds()
	if !from.IsZero() && from.Unix() > -wallEdge/1e9 {
		p.from = from.UnixNano()
	}
	if !to.IsZero() && to.Unix() < wallEdge/1e9 {
		p.to = to.UnixNano()
	}
	b.period, b.fetched = p, true
	return p
}

// widest is more than any zone is ahead of or behind UTC.
const widest = 26 * int64(time.Hour)

// first is the first moment at which the wall has reached a time.
func (b *buckets) first(wall int64) int64 {
	p := b.periodAt(wall - widest)
	for {
		switch t := wall - p.offset; {
		case t < p.from:
			return p.from // the wall leaves it out
		case t < p.to:
			return t
		}
		p = b.periodAt(p.to)
	}
}

// shortFrom and shortTo are for buckets of up to an hour: they begin whenever the wall shows a beginning, once more
// where it shows an hour again, and where it leaves one out.
func (b *buckets) shortFrom(t int64) int64 {
	for {
		p := b.periodAt(t)
		begin := b.floor(t + p.offset)
		if begin-p.offset >= p.from || p.from == math.MinInt64 {
			return begin - p.offset
		}
		if begin >= p.from+b.periodAt(p.from-1).offset {
			return p.from
		}
		t = p.from - 1
	}
}

func (b *buckets) shortTo(t int64) int64 {
	p := b.periodAt(t)
	begin := b.next(b.floor(t + p.offset))
	for begin-p.offset >= p.to {
		was := p.to + p.offset
		p = b.periodAt(p.to)
		begin = b.floor(min(was, p.from+p.offset))
		if begin < min(was, p.from+p.offset) {
			begin = b.next(begin)
		}
		if begin-p.offset <= p.from {
			return p.from
		}
	}
	return begin - p.offset
}
