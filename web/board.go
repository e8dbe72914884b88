package web

import (
	"math"
	"sync"
	"time"

	"millrace/historian"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

const (
	// freshFor is how long one gathering of the metrics serves every page that polls.
	freshFor = time.Second
	// windowLength is the least span that rates speak of.
	windowLength = 10 * time.Second
	// diskPoints is one day of readings.
	diskPoints  = 24 * 60
	minDiskSpan = 10 * time.Minute
)

// statusBoard turns counters into figures of the last seconds. It reads the metrics only when somebody asks.
type statusBoard struct {
	mu   sync.Mutex
	last reading
	// older are the starts of windows: older[0] is at least windowLength back once the board is in use.
	older [2]reading
	disk  diskTrend
}

// reading is what the status needs of one gathering.
type reading struct {
	at                    time.Time
	accepted, connections float64
	refused               map[string]float64
	stored                buckets
}

func (r *reading) allRefused() (sum float64) {
	for _, n := range r.refused {
		sum += n
	}
	return sum
}

// read returns the present reading and the one at the start of the window (zero until there is one). A window
// is at least windowLength and, while pages poll, at most twice that.
func (b *statusBoard) read(source prometheus.Gatherer, now time.Time) (last, start reading) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.last.at.IsZero() || now.Sub(b.last.at) >= freshFor || now.Before(b.last.at) {
		b.last = gather(source, now)
		if b.older[1].at.IsZero() || now.Sub(b.older[1].at) >= windowLength || now.Before(b.older[1].at) {
			b.older[0], b.older[1] = b.older[1], b.last
		}
	}
	start = b.older[0]
	if start.at.IsZero() && b.older[1].at.Before(b.last.at) {
		// The first window is still growing.
		start = b.older[1]
	}
	return b.last, start
}

func gather(source prometheus.Gatherer, now time.Time) reading {
	r := reading{at: now, refused: map[string]float64{}}
	if source == nil {
		return r
	}
	// An error still comes with every family that could be gathered.
	families, _ := source.Gather()
	for _, f := range families {
		switch f.GetName() {
		case "millrace_uns_ingress_accepted_total":
			for _, m := range f.GetMetric() {
				r.accepted += m.GetCounter().GetValue()
			}
		case "millrace_uns_ingress_rejected_total":
			for _, m := range f.GetMetric() {
				r.refused[labelOf(m, "reason")] += m.GetCounter().GetValue()
			}
		case "millrace_broker_connections":
			for _, m := range f.GetMetric() {
				r.connections += m.GetGauge().GetValue()
			}
		case "millrace_broker_publish_to_stored_seconds":
			for _, m := range f.GetMetric() {
				r.stored.add(m.GetHistogram())
			}
		}
	}
	return r
}

func labelOf(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// buckets is a histogram: values at or below each bound, bounds rising, the last one infinite.
type buckets struct {
	bounds []float64
	counts []float64
}

func (b *buckets) add(h *dto.Histogram) {
	if h == nil {
		return
	}
	for i, in := range h.GetBucket() {
		b.put(i, in.GetUpperBound(), float64(in.GetCumulativeCount()))
	}
	if n := len(h.GetBucket()); n == 0 || !math.IsInf(h.GetBucket()[n-1].GetUpperBound(), 1) {
		b.put(n, math.Inf(1), float64(h.GetSampleCount()))
	}
}

func (b *buckets) put(i int, bound, count float64) {
	if i == len(b.bounds) {
		b.bounds, b.counts = append(b.bounds, bound), append(b.counts, 0)
	}
	b.counts[i] += count
}

// quantile is that of the values which came after before, by linear interpolation within a bucket; ok is false
// when none came. In the open last bucket it is that bucket's lower bound.
func (b *buckets) quantile(before buckets, q float64) (v float64, ok bool) {
	n := len(b.counts)
	if n == 0 {
		return 0, false
	}
	at := func(i int) float64 {
		if i < len(before.counts) {
			return b.counts[i] - before.counts[i]
		}
		return b.counts[i]
	}
	total := at(n - 1)
	if total <= 0 {
		return 0, false
	}
	rank, below, lower := q*total, 0.0, 0.0
	for i := range n {
		if c := at(i); c >= rank {
			if math.IsInf(b.bounds[i], 1) || c == below {
				return lower, true
			}
			return lower + (b.bounds[i]-lower)*(rank-below)/(c-below), true
		}
		below, lower = at(i), b.bounds[i]
	}
	return lower, true
}

// diskTrend keeps a day of readings of the store's size, a ring of diskPoints.
type diskTrend struct {
	mu     sync.Mutex
	points []diskPoint
	next   int
}

type diskPoint struct {
	at    time.Time
	bytes uint64
}

func (d *diskTrend) add(at time.Time, bytes uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.points) < diskPoints {
		d.points = append(d.points, diskPoint{at, bytes})
		return
	}
	d.points[d.next] = diskPoint{at, bytes}
	d.next = (d.next + 1) % diskPoints
}

// daysLeft is how long the free space lasts at the growth since the oldest reading; nil where that says nothing.
func (d *diskTrend) daysLeft(now time.Time, s historian.State) *float64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.points) == 0 {
		return nil
	}
	first := d.points[0]
	if len(d.points) == diskPoints {
		first = d.points[d.next]
	}
	span := now.Sub(first.at)
	if span < minDiskSpan || s.DiskBytes <= first.bytes {
		return nil
	}
	perDay := float64(s.DiskBytes-first.bytes) / span.Hours() * 24
	days := float64(s.FreeBytes) / perDay
	return &days
}
