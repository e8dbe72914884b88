package uns

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are plain counters that Accept adds to once per batch; the registry reads them at scrape.
type metrics struct {
	counts    [reasons]atomic.Uint64
	soft      atomic.Uint64
	twice     atomic.Uint64
	unitFails atomic.Uint64
	late      atomic.Uint64
	gaps      atomic.Uint64
	twins     atomic.Uint64
}

func newMetrics(reg prometheus.Registerer, c *Catalog, now func() time.Time) *metrics {
	if reg == nil {
		reg = prometheus.NewRegistry()
	}
	m := &metrics{}
	counter := func(name, help string, labels prometheus.Labels, n *atomic.Uint64) {
		reg.MustRegister(prometheus.NewCounterFunc(
			prometheus.CounterOpts{Name: name, Help: help, ConstLabels: labels},
			func() float64 { return float64(n.Load()) }))
	}
	counter("millrace_uns_ingress_accepted_total", "Values stored.", nil, &m.counts[Stored])
	counter("millrace_uns_ingress_cleared_total", "Empty retained payloads, which clear the retained value.", nil, &m.counts[Cleared])
	for r := Cleared + 1; r < reasons; r++ {
		counter("millrace_uns_ingress_rejected_total", "Values refused, by the reason of their verdict.",
			prometheus.Labels{"reason": r.String()}, &m.counts[r])
	}
	counter("millrace_uns_ingress_soft_violations_total", "Values stored with quality uncertain because they left the range or list of a soft schema.", nil, &m.soft)
	counter("millrace_uns_ingress_ambiguous_timestamps_total", "Values stored with quality uncertain because their local time happened twice that day.", nil, &m.twice)
	counter("millrace_uns_ingress_unit_failures_total", "Units named by payloads that could not be kept for their topic.", nil, &m.unitFails)
	counter("millrace_uns_ingress_late_total", "Values stored whose own time lies before that of an earlier value of their topic.", nil, &m.late)
	counter("millrace_uns_ingress_duplicates_total", "Derived values that were stored before a restart and not stored again.", nil, &m.twins)
	counter("millrace_uns_ingress_gaps_total", "Silences of more than three times a topic's expected interval, counted when they end.", nil, &m.gaps)
	reg.MustRegister(prometheus.NewGaugeFunc(
		prometheus.GaugeOpts{Name: "millrace_uns_topics_stale", Help: "Topics whose last value is older than three times their expected interval, all workspaces."},
		func() float64 { return float64(c.StaleTopics(now())) }))
	reg.MustRegister(prometheus.NewGaugeFunc(
		prometheus.GaugeOpts{Name: "millrace_uns_topics", Help: "Topics in the catalog, all workspaces."},
		func() float64 {
			n := 0
			for w := range c.spaces {
				n += c.Len(w)
			}
			return float64(n)
		}))
	return m
}

// tally counts within one batch.
type tally struct {
	counts      [reasons]uint64
	soft, twice uint64
	duplicates  uint64
}

func (m *metrics) add(t *tally) {
	for r, n := range t.counts {
		if n > 0 {
			m.counts[r].Add(n)
		}
	}
	if t.soft > 0 {
		m.soft.Add(t.soft)
	}
	if t.duplicates > 0 {
		m.twins.Add(t.duplicates)
	}
	if t.twice > 0 {
		m.twice.Add(t.twice)
	}
}
