package web

import (
	"strconv"
	"time"

	"millrace/certificate"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	seconds  *prometheus.HistogramVec
	inFlight prometheus.Gauge
	panics   prometheus.Counter
	exported prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, pair *certificate.Pair) *metrics {
	if reg == nil {
		reg = prometheus.NewRegistry()
	}
	m := &metrics{
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "millrace_web_requests_seconds",
			Help:    "Time to answer one HTTP request, by route pattern and status code.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, 1, 5},
		}, []string{"route", "code"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "millrace_web_requests_in_flight",
			Help: "HTTP requests being answered now.",
		}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "millrace_web_panics_total",
			Help: "Requests whose handler panicked; each was answered with 500 and logged.",
		}),
	}
	m.exported = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "millrace_web_export_bytes_total",
		Help: "Octets sent by GET /uns/export.",
	})
	reg.MustRegister(m.seconds, m.inFlight, m.panics, m.exported)
	if pair != nil {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "millrace_web_certificate_expires_seconds",
			Help: "End of the web listener's certificate in Unix seconds; absent without one.",
		}, func() float64 { return float64(pair.Expires().Unix()) }))
	}
	return m
}

func (m *metrics) observe(route string, code int, took time.Duration) {
	m.seconds.WithLabelValues(route, strconv.Itoa(code)).Observe(took.Seconds())
}
