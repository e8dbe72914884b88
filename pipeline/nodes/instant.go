package nodes

import (
	"fmt"
	"math"
	"strings"
	"time"

	"millrace/pipeline/node"
	"millrace/pipeline/value"
)

// instant reads a time as devices may send it (contract 4): RFC 3339 text, or a number whose magnitude tells the unit. Scale
// is the precision: 0 ns, 3 µs, 6 ms, 9 s.
func instant(v value.Value) (ns int64, scale uint8, err error) {
	bad := &node.Failure{Message: fmt.Sprintf("the timestamp is %s, which is neither RFC 3339 nor a number of s, ms, µs or ns since 1970", shown(v)), Permanent: true}
	if v.Kind() == value.TextKind {
		t, err := time.Parse(time.RFC3339Nano, v.Text())
		if err != nil || t.Year() < 1678 || t.Year() > 2261 {
			return 0, 0, bad
		}
		return t.UnixNano(), scaleOf(v.Text()), nil
	}
	f, ok := v.Float()
	if !ok || v.Kind() != value.NumberKind {
		return 0, 0, bad
	}
	unit, scale := int64(1), uint8(0)
	switch abs := math.Abs(f); {
	case abs < 1e11:
		unit, scale = 1e9, 9
	case abs < 1e14:
		unit, scale = 1e6, 6
	case abs < 1e17:
		unit, scale = 1e3, 3
	}
	if i, whole := v.Int(); whole {
		if i > math.MaxInt64/unit || i < math.MinInt64/unit {
			return 0, 0, bad
		}
		return i * unit, scale, nil
	}
	at := f * float64(unit)
	if at >= math.MaxInt64 || at <= math.MinInt64 {
		return 0, 0, bad
	}
	return int64(at), 0, nil // a fraction of the unit: all that a double holds
}

// scaleOf tells the precision of an RFC 3339 text from its digits after the second.
func scaleOf(text string) uint8 {
	dot := strings.IndexByte(text, '.')
	if dot < 0 {
		return 9
	}
	n := 0
	for dot+1+n < len(text) && text[dot+1+n] >= '0' && text[dot+1+n] <= '9' {
		n++
	}
	switch {
	case n <= 3:
		return 6
	case n <= 6:
		return 3
	}
	return 0
}
