package queue

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are read from the ledgers when they are asked for.
type metrics struct {
	reg prometheus.Registerer
	q   Queue
	now func() time.Time

	pending, inflight, oldest, frames, shed, bytes, lost, stranded *prometheus.Desc
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
		pending:  desc("queue_pending", "Runs that wait in the execution queue.", "lane"),
		inflight: desc("queue_inflight", "Runs in frames that were taken and not acknowledged.", "lane"),
		oldest:   desc("queue_oldest_seconds", "Age of the run that waits longest; 0 when none does.", "lane"),
		frames:   desc("queue_frames", "Frames that wait or are taken and not acknowledged.", "lane"),
		bytes:    desc("queue_bytes", "Octets of what waits in the execution queue."),
		shed:     desc("execution_queue_shed_total", "Waiting runs that were dropped, by cause: size (maxBytes), age (maxAge), store (lost by the store).", "cause"),
		lost:     desc("queue_inflight_lost_total", "Runs under way whose frame the store has lost: a crash would not run them again from there."),
		stranded: desc("deliveries_stranded_total", "Runs handed out again, because their frame was neither acknowledged nor reported on within ackWait."),
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
	for _, d := range []*prometheus.Desc{m.pending, m.inflight, m.oldest, m.frames, m.bytes, m.shed, m.lost, m.stranded} {
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
		gauge(m.pending, float64(s.Pending[l]), l.String())
		gauge(m.inflight, float64(s.InFlight[l]), l.String())
		gauge(m.frames, float64(s.Frames[l]), l.String())
		gauge(m.oldest, age, l.String())
	}
	gauge(m.bytes, float64(s.Bytes))
	count(m.shed, s.ShedSize, causeNames[bySize])
	count(m.shed, s.ShedAge, causeNames[byAge])
	count(m.shed, s.ShedStore, causeNames[byStore])
	count(m.lost, s.LostOut)
	count(m.stranded, s.Redelivered)
}
