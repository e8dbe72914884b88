package web

import (
	"log/slog"
	"net/http"
	"time"

	"millrace/historian"

	"github.com/prometheus/client_golang/prometheus"
)

// Explode adds a route whose handler panics, before or after its answer has begun, for the test of containment.
func Explode(begun bool) http.Handler {
	w := &Web{metrics: newMetrics(nil, nil), now: time.Now}
	w.log = slog.New(slog.DiscardHandler)
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		seen := &answer{ResponseWriter: rw}
		defer w.contain(seen, r)
		if begun {
			seen.Write([]byte("half an ans"))
		}
		panic("boom")
	})
}

// Moment is parseMoment.
func Moment(s string, now time.Time) (int64, bool) { return parseMoment(s, now) }

// ProblemOf gives status, code and Retry-After of an error.
func ProblemOf(err error) (status int, code, retry string) {
	p := problemOf(err)
	return p.Status, p.Code, p.GetHeaders().Get("Retry-After")
}

// OpenCursors runs both cursor parsers.
func OpenCursors(s string) (path string, pathErr error, sealed string, placeErr error) {
	path, pathErr = openPath(s)
	p, placeErr := openPlace(s)
	if placeErr == nil {
		sealed = p.seal()
	}
	return path, pathErr, sealed, placeErr
}

// SealPath makes a listing's cursor.
func SealPath(path string) string { return sealPath(path) }

// SealPlace makes a cursor of history.
func SealPlace(path string, from, to int64, desc bool, after *historian.Cursor) string {
	return place{from: from, to: to, desc: desc, path: path, after: after}.seal()
}

// P99 reads the same histogram twice and gives the 99th percentile of what came between.
func P99(reg prometheus.Gatherer, between func()) (float64, bool) {
	before := gather(reg, time.Now())
	between()
	after := gather(reg, time.Now())
	return after.stored.quantile(before.stored, 0.99)
}

// DaysLeft feeds readings a minute apart and asks after the last.
func DaysLeft(start time.Time, free uint64, sizes ...uint64) *float64 {
	var d diskTrend
	for i, n := range sizes {
		d.add(start.Add(time.Duration(i)*time.Minute), n)
	}
	last := len(sizes) - 1
	return d.daysLeft(start.Add(time.Duration(last)*time.Minute), historian.State{FreeBytes: free, DiskBytes: sizes[last]})
}
