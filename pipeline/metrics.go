package pipeline

import (
	"sync/atomic"

	"millrace/pipeline/history"
	"millrace/pipeline/queue"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are counters that runs add to; the registry reads them at scrape.
type metrics struct {
	waited [lanesCount]prometheus.Histogram
	loops  atomic.Uint64
	missed atomic.Uint64
}

// laneNames are the words of settings and labels.
var laneNames = [lanesCount]string{"high", "normal", "low"}

func newMetrics(reg prometheus.Registerer, e *Engine) *metrics {
	if reg == nil {
		reg = prometheus.NewRegistry()
	}
	m := &metrics{}
	for lane, name := range laneNames {
		m.waited[lane] = prometheus.NewHistogram(prometheus.HistogramOpts{Name: "millrace_pipeline_queue_wait_seconds",
			Help: "Time from a trigger's entry into the queue until a worker may have it.", ConstLabels: prometheus.Labels{"lane": name},
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 60, 600}})
		reg.MustRegister(m.waited[lane])
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "millrace_pipeline_queue_inflight",
			Help: "Runs that execute, by lane: those that hold a slot.", ConstLabels: prometheus.Labels{"lane": name}},
			func() float64 { n, _ := e.lanes.load(queue.Lane(lane)); return float64(n) }))
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "millrace_pipeline_queue_pending",
			Help: "Runs that wait to execute, by lane.", ConstLabels: prometheus.Labels{"lane": name}},
			func() float64 {
				_, n := e.lanes.load(queue.Lane(lane))
				return float64(n + e.queue.Stats().Pending[lane])
			}))
	}
	reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "millrace_pipeline_deliveries_stranded_total",
		Help: "Runs handed out again, because nothing was heard of their frame for ackWait."}, func() float64 { return float64(e.queue.Stats().Redelivered) }))
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "millrace_pipeline_cursor_lag_values",
		Help: "Stored values from the lowest one with a run that has not ended to the newest."}, func() float64 {
		return max(0, float64(e.values.LastSeq())+1-float64(e.before.saved.Load()))
	}))
	reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "millrace_pipeline_loops_stopped_total",
		Help: "Values not published because they had been derived from derived values 16 times."}, func() float64 { return float64(m.loops.Load()) }))
	reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "millrace_pipeline_schedules_missed_total",
		Help: "Planned runs left out because the queue did not take them."}, func() float64 { return float64(m.missed.Load()) }))
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "millrace_pipeline_runs_waiting",
		Help: "Runs that rest without a slot: waits and back-off."}, func() float64 { return float64(e.resting.Load()) }))
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "millrace_pipeline_runs_parked",
		Help: "Runs with a row of their own, which outlives a restart."}, func() float64 { return float64(e.parking.len()) }))
	for cause, count := range map[string]func() uint64{
		"size": func() uint64 { return e.queue.Stats().ShedSize },
		"age":  func() uint64 { return e.queue.Stats().ShedAge },
		"log":  func() uint64 { return e.logShed.Load() },
	} {
		reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "millrace_pipeline_execution_queue_shed_total",
			Help: "Runs, of cause log stored values, that were dropped before they ran.", ConstLabels: prometheus.Labels{"cause": cause}},
			func() float64 { return float64(count()) }))
	}
	reg.MustRegister(&perPipeline{e})
	return m
}

// perPipeline is what is counted for each pipeline, read at scrape.
type perPipeline struct{ e *Engine }

var (
	cpuDesc  = prometheus.NewDesc("millrace_pipeline_cpu_seconds_total", "Time spent in nodes on compute workers, by pipeline.", []string{"pipeline"}, nil)
	runsDesc = prometheus.NewDesc("millrace_pipeline_runs_total", "Runs that ended, by status.", []string{"status"}, nil)
)

// Describe implements prometheus.Collector.
func (*perPipeline) Describe(ch chan<- *prometheus.Desc) { ch <- cpuDesc; ch <- runsDesc }

// Collect implements prometheus.Collector.
func (c *perPipeline) Collect(ch chan<- prometheus.Metric) {
	var sum [statuses]uint64
	c.e.mu.RLock()
	defer c.e.mu.RUnlock()
	for _, p := range c.e.pipes {
		ch <- prometheus.MustNewConstMetric(cpuDesc, prometheus.CounterValue, float64(p.cpu.Load())/1e9, p.id)
		for s := range sum {
			sum[s] += p.counts[s].Load()
		}
	}
	for s, n := range sum {
		ch <- prometheus.MustNewConstMetric(runsDesc, prometheus.CounterValue, float64(n), history.Status(s).String())
	}
}
