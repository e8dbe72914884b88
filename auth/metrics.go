package auth

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics of the package. Children are resolved here, once, so that a sign-in costs one atomic add.
type metrics struct {
	reg                                prometheus.Registerer
	signIns                            *prometheus.CounterVec
	ok, unknown, wrongSecret, disabled prometheus.Counter
	clients                            prometheus.Gauge
	issued                             prometheus.Counter
}

// newMetrics registers with reg; nil: with a registry of its own.
func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	if reg == nil {
		reg = prometheus.NewRegistry()
	}
	m := &metrics{
		reg: reg,
		signIns: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "millrace_auth_sign_ins_total",
			Help: "Sign-ins of API clients by result: ok, unknown (no such client), wrong_secret, disabled.",
		}, []string{"result"}),
		clients: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "millrace_auth_clients",
			Help: "API clients that exist, disabled ones included.",
		}),
	}
	m.issued = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "millrace_auth_access_tokens_total",
		Help: "Access tokens issued.",
	})
	m.ok = m.signIns.WithLabelValues("ok")
	m.unknown = m.signIns.WithLabelValues("unknown")
	m.wrongSecret = m.signIns.WithLabelValues("wrong_secret")
	m.disabled = m.signIns.WithLabelValues("disabled")
	if err := errors.Join(reg.Register(m.signIns), reg.Register(m.clients), reg.Register(m.issued)); err != nil {
		return nil, err
	}
	return m, nil
}

// release lets another Book use the registry.
func (m *metrics) release() {
	m.reg.Unregister(m.signIns)
	m.reg.Unregister(m.clients)
	m.reg.Unregister(m.issued)
}
