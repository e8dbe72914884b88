package broker

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// refusalNames are the reasons of refused CONNECTs by CONNACK code, as metrics show them; the last takes all others.
var refusalNames = [...]struct {
	code byte
	name string
}{{codeBadPassword, "bad_credentials"}, {codeNotAuthorized, "not_authorized"}, {codeBanned, "banned"}, {codeConnectRate, "connect_rate"},
	{codeBusy, "busy"}, {codeClientID, "client_identifier"}, {codeBadMethod, "authentication_method"}, {codeShuttingDown, "shutting_down"},
	{codeUnspecified, "other"}}

// doorMetrics count what happens at the doors, before there is a session. Nothing here is on a message's way.
type doorMetrics struct {
	refused                   [len(refusalNames)]prometheus.Counter
	turnedFull, turnedTooFast prometheus.Counter
	handshakes                prometheus.Counter // TLS, failed
}

func newDoorMetrics(reg prometheus.Registerer, b *Broker) (*doorMetrics, error) {
	if reg == nil {
		reg = prometheus.NewRegistry()
	}
	m := &doorMetrics{}
	refused := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "millrace_broker_connects_refused_total",
		Help: "CONNECT packets refused, by reason."}, []string{"reason"})
	for i := range refusalNames {
		m.refused[i] = refused.WithLabelValues(refusalNames[i].name)
	}
	turned := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "millrace_broker_connections_turned_away_total",
		Help: "Connections closed before their CONNECT was read, by reason: too many are open (full), or too many came in a second (rate)."}, []string{"reason"})
	m.turnedFull, m.turnedTooFast = turned.WithLabelValues("full"), turned.WithLabelValues("rate")
	m.handshakes = prometheus.NewCounter(prometheus.CounterOpts{Name: "millrace_broker_tls_handshakes_failed_total",
		Help: "Connections to the TLS listener that ended in their handshake."})
	faults := []error{reg.Register(refused), reg.Register(turned), reg.Register(m.handshakes), reg.Register(tallyCollector{&b.limits, newTallyDescs()})}
	if d := b.listener.doors[doorTLS]; d != nil {
		faults = append(faults, reg.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "millrace_broker_certificate_expires_seconds",
			Help: "End of the TLS listener's certificate in Unix seconds; absent without one."}, func() float64 { return float64(d.pair.Expires().Unix()) })))
	}
	return m, errors.Join(faults...)
}

// refuse counts a CONNACK that says no.
func (m *doorMetrics) refuse(code byte) {
	i := 0
	for i < len(refusalNames)-1 && refusalNames[i].code != code {
		i++
	}
	m.refused[i].Inc()
}

// tallyCollector shows the tables of limits.
type tallyCollector struct {
	limits *limits
	tallyDescs
}

type tallyDescs struct{ begun, banned, rows, displaced *prometheus.Desc }

func newTallyDescs() tallyDescs {
	d := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, []string{"cause"}, nil)
	}
	return tallyDescs{
		d("millrace_broker_bans_total", "Bans of a minute begun: flapping (a client identifier), sign_in (a source guessing as one client)."),
		d("millrace_broker_bans", "Bans in force."),
		d("millrace_broker_tallies", "Keys being counted towards a ban; at most 16384 of each cause."),
		d("millrace_broker_tallies_displaced_total", "Keys that left a full table for newer ones; bans never do."),
	}
}

// Describe implements prometheus.Collector.
func (c tallyCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.begun, c.banned, c.rows, c.displaced} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c tallyCollector) Collect(ch chan<- prometheus.Metric) {
	for _, t := range []struct {
		cause string
		table *tallies
	}{{"flapping", &c.limits.flapping}, {"sign_in", &c.limits.signIn}} {
		f := t.table.figures()
		ch <- prometheus.MustNewConstMetric(c.begun, prometheus.CounterValue, float64(f.begun), t.cause)
		ch <- prometheus.MustNewConstMetric(c.banned, prometheus.GaugeValue, float64(f.bans), t.cause)
		ch <- prometheus.MustNewConstMetric(c.rows, prometheus.GaugeValue, float64(f.rows), t.cause)
		ch <- prometheus.MustNewConstMetric(c.displaced, prometheus.CounterValue, float64(f.displaced), t.cause)
	}
}
