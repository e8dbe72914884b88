package queue

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are read from the ledgers when they are asked for. What waits and what was shed is counted by the engine, which
// holds runs of its own beside those here.
type metrics struct {
	reg prometheus.Registerer
	q   Queue
	now func() time.Time

	oldest, frames, bytes, lost *prometheus.Desc
}

func newMetrics(reg prometheus.Registerer, q *JetStream) (*metrics, error) {
	if reg == nil {
		reg = prometheus.NewRegistry()
	}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("millrace_pipeline_"+name, help, labels, nil)
	}
	m := &metrics{
		reg: reg, q: q, now: q.o.Now,
		oldest: desc("queue_oldest_seconds", "Age of the run that waits longest in the execution queue; 0 when none does.", "lane"),
		frames: desc("queue_frames", "Frames that wait in the execution queue or are taken and not acknowledged.", "lane"),
		bytes:  desc("queue_bytes", "Octets of what waits in the execution queue."),
		lost:   desc("queue_lost_runs_total", "Runs whose frame the queue's store has lost, by what they did: waiting, running. Those of values run after the next start.", "state"),
	}
	return m, reg.Register(m)
}

func (m *metrics) close() {
	if m != nil {
		m.reg.Unregister(m)
	}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(c chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.oldest, m.frames, m.bytes, m.lost} {
		c <- d
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(c chan<- prometheus.Metric) {
	s := m.q.Stats()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		c <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	count := func(d *prometheus.Desc, v uint64, labels ...string) {
		c <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	for l := range Lanes {
		age := 0.0
		if !s.Oldest[l].IsZero() {
			age = max(m.now().Sub(s.Oldest[l]).Seconds(), 0)
		}
		gauge(m.frames, float64(s.Frames[l]), l.String())
		gauge(m.oldest, age, l.String())
	}
	gauge(m.bytes, float64(s.Bytes))
	count(m.lost, s.ShedStore, "waiting")
	count(m.lost, s.LostOut, "running")
}
