package backup

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	reg  prometheus.Registerer
	runs *prometheus.CounterVec
	all  []prometheus.Collector
}

// newMetrics registers with reg; nil: with a registry of its own.
func newMetrics(reg prometheus.Registerer, state func() State) (*metrics, error) {
	if reg == nil {
		reg = prometheus.NewRegistry()
	}
	m := &metrics{reg: reg, runs: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "millrace_backup_runs_total",
		Help: "Backups that ended, by result: done, failed, cancelled.",
	}, []string{"result"})}
	for _, result := range []string{"done", "failed", "cancelled"} {
		m.runs.WithLabelValues(result)
	}
	m.all = []prometheus.Collector{m.runs,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "millrace_backup_running",
			Help: "1 while a backup is being made.",
		}, func() float64 {
			if state().State == "running" {
				return 1
			}
			return 0
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "millrace_backup_last_success_seconds",
			Help: "When the newest whole backup was taken, in Unix seconds, also before a restart; 0 when there was none.",
		}, func() float64 {
			if at := state().LastSuccess; !at.IsZero() {
				return float64(at.UnixMilli()) / 1000
			}
			return 0
		}),
	}
	var faults []error
	for _, c := range m.all {
		faults = append(faults, reg.Register(c))
	}
	return m, errors.Join(faults...)
}

// unregister lets another Runner use the registry.
func (m *metrics) unregister() {
	for _, c := range m.all {
		m.reg.Unregister(c)
	}
}
