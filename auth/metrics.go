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

	userSignIns                       *prometheus.CounterVec
	userOK, userRefused, userLocked   prometheus.Counter
	users, sessions                   prometheus.Gauge
	hashTime                          prometheus.Histogram
	hashesRefused, audited, auditLost prometheus.Counter
	auditBytes                        prometheus.Gauge
}

// all are the metrics that are registered.
func (m *metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.signIns, m.clients, m.issued, m.userSignIns, m.users, m.sessions, m.hashTime, m.hashesRefused, m.audited,
		m.auditLost, m.auditBytes}
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

func gauge(name, help string) prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
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
	m.userSignIns = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "millrace_auth_user_sign_ins_total",
		Help: "Sign-ins of people by result: ok, refused, locked (too many failures before, not looked at).",
	}, []string{"result"})
	m.userOK, m.userRefused, m.userLocked = m.userSignIns.WithLabelValues("ok"), m.userSignIns.WithLabelValues("refused"), m.userSignIns.WithLabelValues("locked")
	m.users = gauge("millrace_auth_users", "Users that exist, disabled ones included.")
	m.sessions = gauge("millrace_auth_user_sessions", "Sessions of people, as of the last minute.")
	m.hashTime = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "millrace_auth_password_hash_seconds", Help: "Time to hash one password.", Buckets: []float64{.01, .025, .05, .1, .25, .5, 1},
	})
	m.hashesRefused = counter("millrace_auth_password_hashes_refused_total", "Passwords not looked at because too many were waiting.")
	m.audited = counter("millrace_auth_audit_entries_total", "Entries written to the audit log since start.")
	m.auditLost = counter("millrace_auth_audit_uncounted_total", "Sign-ins that the audit log shows without their names, because too many names came within a minute.")
	m.auditBytes = gauge("millrace_auth_audit_bytes", "Size of the audit log.")
	var faults []error
	for _, c := range m.all() {
		faults = append(faults, reg.Register(c))
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	return m, nil
}

// release lets another Book use the registry.
func (m *metrics) release() {
	for _, c := range m.all() {
		m.reg.Unregister(c)
	}
}
