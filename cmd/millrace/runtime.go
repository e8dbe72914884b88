package main

import (
	"math"
	"os"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// runtimeMetrics tells how well the process gets to run: how long a goroutine that could run waited, and how much
// of the time something on this machine waited for a CPU (Linux pressure stall information).
type runtimeMetrics struct {
	latency, pressure *prometheus.Desc
	pressureFile      string

	mu   sync.Mutex
	last []uint64 // counts of the scheduling histogram at the scrape before
}

const schedLatencies = "/sched/latencies:seconds"

func newRuntimeMetrics() *runtimeMetrics {
	return &runtimeMetrics{
		latency:      prometheus.NewDesc("millrace_runtime_sched_latency_p99_seconds", "99th percentile, since the scrape before, of the time a goroutine that could run waited.", nil, nil),
		pressure:     prometheus.NewDesc("millrace_runtime_cpu_pressure_percent", "Share of the last 10 s in which some task on this machine waited for a CPU; absent where the kernel does not tell.", nil, nil),
		pressureFile: "/proc/pressure/cpu",
	}
}

// Describe implements prometheus.Collector.
func (r *runtimeMetrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- r.latency
	ch <- r.pressure
}

// Collect implements prometheus.Collector.
func (r *runtimeMetrics) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.MustNewConstMetric(r.latency, prometheus.GaugeValue, r.p99())
	if v, ok := pressure(r.pressureFile); ok {
		ch <- prometheus.MustNewConstMetric(r.pressure, prometheus.GaugeValue, v)
	}
}

func (r *runtimeMetrics) p99() float64 {
	sample := []metrics.Sample{{Name: schedLatencies}}
	metrics.Read(sample)
	if sample[0].Value.Kind() != metrics.KindFloat64Histogram {
		return 0
	}
	h := sample[0].Value.Float64Histogram()
	r.mu.Lock()
	defer r.mu.Unlock()
	fresh := make([]uint64, len(h.Counts))
	for i, n := range h.Counts {
		fresh[i] = n
		if i < len(r.last) {
			fresh[i] -= r.last[i]
		}
	}
	r.last = append(r.last[:0], h.Counts...)
	return quantile(fresh, h.Buckets, 0.99)
}

// quantile gives the upper edge of the bucket that holds the quantile; the last finite edge for the open one.
func quantile(counts []uint64, edges []float64, q float64) float64 {
	var all uint64
	for _, n := range counts {
		all += n
	}
	want, seen := uint64(math.Ceil(q*float64(all))), uint64(0)
	for i, n := range counts {
		if seen += n; n > 0 && seen >= want {
			if edge := edges[i+1]; !math.IsInf(edge, 1) {
				return edge
			}
			return edges[i]
		}
	}
	return 0
}

// pressure reads avg10 of the line "some".
func pressure(file string) (float64, bool) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	_, rest, ok := strings.Cut(string(text), "some avg10=")
	if !ok {
		return 0, false
	}
	number, _, _ := strings.Cut(rest, " ")
	v, err := strconv.ParseFloat(number, 64)
	return v, err == nil
}
