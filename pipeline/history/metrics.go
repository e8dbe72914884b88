package history

import "github.com/prometheus/client_golang/prometheus"

// metrics are what the history tells of itself; runs are counted by the engine.
type metrics struct {
	rows prometheus.Counter
	reg  prometheus.Registerer
	all  []prometheus.Collector
}

func newMetrics(reg prometheus.Registerer, s *Store) *metrics {
	if reg == nil {
		reg = prometheus.NewRegistry()
	}
	m := &metrics{reg: reg, rows: prometheus.NewCounter(prometheus.CounterOpts{Name: "millrace_pipeline_history_rows_total", Help: "Rows of runs written."})}
	m.all = []prometheus.Collector{
		m.rows,
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "millrace_pipeline_history_lost_rows_total",
			Help: "Rows of runs not written, because the disk did not keep up or refused them. The runs are counted."}, func() float64 { return float64(s.Lost()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "millrace_pipeline_history_ring_bytes",
			Help: "Octets that the last runs of all pipelines hold in memory."}, func() float64 {
			s.mu.Lock()
			defer s.mu.Unlock()
			return float64(s.bytes)
		}),
	}
	m.reg.MustRegister(m.all...)
	return m
}

func (m *metrics) close() {
	for _, c := range m.all {
		m.reg.Unregister(c)
	}
}
