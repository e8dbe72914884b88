package broker

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// registerKept shows how much the box keeps for clients that are still to come.
func (b *Broker) registerKept(reg prometheus.Registerer) error {
	if reg == nil {
		return nil
	}
	gauge := func(name, help string, fn func() float64) error {
		return reg.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, fn))
	}
	return errors.Join(
		gauge("millrace_broker_sessions_kept", "Sessions that outlive their connection, connected or not.", func() float64 { return float64(b.persistent.Load()) }),
		gauge("millrace_broker_retained_messages", "Retained messages of ordinary topics.", func() float64 {
			n, _ := b.retained.size()
			return float64(n)
		}),
		gauge("millrace_broker_retained_bytes", "Topics, properties and payloads of the retained messages of ordinary topics.", func() float64 {
			_, n := b.retained.size()
			return float64(n)
		}))
}
