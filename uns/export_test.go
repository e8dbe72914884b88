package uns

import (
	"context"
	"strconv"
	"strings"
	"time"

	"millrace/historian"
)

// Read parses one payload; offset is the byte a syntax fault names, -1 for none.
func Read(payload []byte) (v Verdict, value historian.Value, offset int) {
	var b Batch
	var r reading
	v = b.read(payload, &r)
	offset = -1
	if rest, ok := strings.CutPrefix(v.Detail, "byte "); ok && !strings.Contains(v.Detail, "appears twice") {
		n, _, _ := strings.Cut(rest, ":")
		offset, _ = strconv.Atoi(n)
	}
	return v, r.value, offset
}

// Compare is the exact order of two JSON numbers.
func Compare(a, b string) int {
	x, _ := historian.ParseNumber([]byte(a))
	y, _ := historian.ParseNumber([]byte(b))
	return compareNumbers(&x, &y)
}

// TextTime reads RFC 3339.
func TextTime(s string) (ns int64, v Verdict) {
	at, v := textTime([]byte(s), nil)
	return at.ns, v
}

// Bucket is a rate for tests.
type Bucket struct{ b bucket }

// NewBucket lets perSec values a second through.
func NewBucket(perSec int) *Bucket {
	b := &Bucket{}
	b.b.set(perSec)
	return b
}

// Allow takes one out.
func (b *Bucket) Allow(now time.Duration) bool { return b.b.allow(now) }

// ComparePaths is path order.
func ComparePaths(a, b string) int { return comparePaths(a, b) }

// Tick is what Run does once a second.
func (l *Ledger) Tick(ctx context.Context, now time.Time) { l.tick(ctx, now) }

// Flush is what Run does before it returns.
func (l *Ledger) Flush(ctx context.Context, now time.Time) error {
	l.look(now)
	return l.write(ctx)
}

// HourRow and ParseHour are the row of an hour.
func HourRow(h Hour) []byte { return h.append(nil) }

// ParseHour reads what HourRow wrote.
func ParseHour(b []byte) (Hour, error) { return parseHour(b) }
