package trigger

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are what the follower tells of itself.
type metrics struct {
	values, matched, entries, runs prometheus.Counter
	skipped, dead, shed            prometheus.Counter
	evicted, early                 prometheus.Counter
	held                           [answers]prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, f *Follower) (*metrics, error) {
	if reg == nil {
		reg = prometheus.NewRegistry()
	}
	var all []prometheus.Collector
	name := func(s string) string { return "millrace_pipeline_trigger_" + s }
	counter := func(n, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name(n), Help: help})
		all = append(all, c)
		return c
	}
	gauge := func(n, help string, fn func() float64) {
		all = append(all, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name(n), Help: help}, fn))
	}
	m := &metrics{}
	m.values = counter("values_total", "Stored values that were held against the triggers.")
	m.matched = counter("matched_values_total", "Stored values whose topic a trigger names.")
	m.entries = counter("entries_total", "Entries put into the queue: a value, once for each lane.")
	m.runs = counter("runs_total", "Runs that entries start.")
	m.skipped = counter("skipped_runs_total", "Runs not started again after a restart, because they had ended or were in the queue.")
	m.dead = counter("dead_runs_total", "Runs not started because their value had come through 16 derivations: pipelines feed each other.")
	m.shed = counter("shed_values_total", "Values that went out of the full log before they were held against the triggers.")
	m.evicted = counter("evicted_marks_total", "Topics that a trigger had to forget; their next value starts a run.")
	m.early = counter("early_values_total", "Debounced values that started a run early, because too many waited.")
	held := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name("held_values_total"), Help: "Values that a trigger's setting held back."}, []string{"setting"})
	all = append(all, held)
	for i := passed + 1; i < answers; i++ {
		m.held[i] = held.WithLabelValues(answerNames[i])
	}
	all = append(all, prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name("walks_total"), Help: "Topics matched anew, the first time or after a deploy."},
		func() float64 { return float64(f.table.walks.Load()) }))
	gauge("triggers", "Triggers in force for stored values.", func() float64 { return float64(len(f.table.Triggers())) })
	gauge("lag_values", "Stored values that were not held against the triggers yet.", func() float64 {
		if last, put := f.o.Log.LastSeq(), f.put.Load(); last > put {
			return float64(last - put)
		}
		return 0
	})
	gauge("pending_values", "Debounced values that wait for their topic to be quiet.", func() float64 { return float64(f.waiting.Load()) })
	gauge("marks", "Topics that triggers remember the last value of.", func() float64 { return float64(f.marks.Load()) })
	var errs []error
	for _, c := range all {
		errs = append(errs, reg.Register(c))
	}
	return m, errors.Join(errs...)
}
