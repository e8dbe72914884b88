package historian

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are what the historian tells of itself. The committer is the only one to count values, so its
// counters are never contended.
type metrics struct {
	writeSeconds       prometheus.Histogram
	groups             prometheus.Counter
	groupValues        prometheus.Histogram
	values             prometheus.Counter
	late               prometheus.Counter
	checkpoints        prometheus.Counter
	checkpointFailures prometheus.Counter
	checkpointSeconds  prometheus.Histogram
	expired            prometheus.Counter
	expireSeconds      prometheus.Histogram
	keepFailures       prometheus.Counter
	merged             prometheus.Counter
	mergeFailures      prometheus.Counter
	mergeSeconds       prometheus.Histogram
	ringFull           prometheus.Counter
	logReaders         prometheus.Gauge
	logDiskReads       prometheus.Counter

	reg prometheus.Registerer
	all []prometheus.Collector
}

func newMetrics(reg prometheus.Registerer, s *Store) (*metrics, error) {
	if reg == nil {
		reg = prometheus.NewRegistry()
	}
	m := &metrics{reg: reg}
	name := func(s string) string { return "millrace_historian_" + s }
	counter := func(n, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name(n), Help: help})
		m.all = append(m.all, c)
		return c
	}
	histogram := func(n, help string, buckets []float64) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name(n), Help: help, Buckets: buckets})
		m.all = append(m.all, h)
		return h
	}
	gauge := func(n, help string, fn func() float64) {
		m.all = append(m.all, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name(n), Help: help}, fn))
	}
	m.writeSeconds = histogram("write_duration_seconds", "Time of one group commit, fsync included.",
		[]float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5})
	m.groups = counter("groups_total", "Group commits.")
	m.groupValues = histogram("group_values", "Values per group commit.", []float64{1, 2, 5, 10, 20, 50, 100, 200, 512, 1024, 4096})
	m.values = counter("values_total", "Values stored.")
	m.late = counter("late_values_total", "Values stored with a time before the last one of their series.")
	m.checkpoints = counter("checkpoints_total", "Checkpoints that moved values from the log into chunks.")
	m.checkpointFailures = counter("checkpoint_failures_total", "Checkpoints that failed and will be tried again.")
	m.checkpointSeconds = histogram("checkpoint_duration_seconds", "Time of one checkpoint.", []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10})
	m.ringFull = counter("ring_full_total", "Commits that were fsynced although syncWrites is off, because the ring for the case of a kill was full.")
	m.expired = counter("expired_checkpoints_total", "Checkpoints of a retention class whose chunks were deleted, all of them past it.")
	m.expireSeconds = histogram("expire_duration_seconds", "Time of deleting what was past its retention, once.", []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .5, 1})
	m.keepFailures = counter("keep_failures_total", "Times that deleting what is past its retention failed and will be tried again.")
	m.merged = counter("merged_values_total", "Values that the hourly merge moved into chunks of whole hours.")
	m.mergeFailures = counter("merge_failures_total", "Merges that failed and will be tried again.")
	m.mergeSeconds = histogram("merge_duration_seconds", "Time of merging one group of checkpoints.", []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10})
	m.all = append(m.all, prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: name("write_stall_seconds_total"),
		Help: "Time in which values waited for a full disk or for commits of more than 50 ms.",
	}, s.stall.seconds))
	m.logReaders = prometheus.NewGauge(prometheus.GaugeOpts{Name: name("log_readers"), Help: "Readers that follow the log."})
	m.all = append(m.all, m.logReaders, prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: name("log_shed_values_total"),
		Help: "Values that went out of the full log before the pipelines had seen them. They are stored.",
	}, func() float64 { return float64(s.held.shed.Load()) }))
	m.logDiskReads = counter("log_disk_reads_total", "Times that a reader of the log was behind and read from the disk.")
	gauge("log_held_bytes", "Log that is kept although its values are in chunks, because the pipelines have not seen it.", func() float64 { return float64(s.held.bytes.Load()) })
	gauge("stalled", "1 while no value is taken.", func() float64 {
		if s.stall.gate.Load() != nil {
			return 1
		}
		return 0
	})
	gauge("synced_lag_seconds", "Age of the oldest acknowledged value that is not fsynced yet.", func() float64 {
		since := s.syncing.Load()
		if since == 0 {
			since = s.unsynced.Load()
		}
		if since == 0 {
			return 0
		}
		return time.Duration(s.stall.ticks() - since).Seconds()
	})
	gauge("disk_bytes", "Space the historian takes on disk.", func() float64 { return float64(s.diskBytes.Load()) })
	gauge("log_bytes", "Log of values that are not in chunks yet.", func() float64 { return float64(s.logBytes.Load()) })
	gauge("free_bytes", "Free space on the historian's disk.", func() float64 { return float64(s.stall.free.Load()) })
	gauge("series", "Series known.", func() float64 { return float64(s.seriesCount.Load()) })
	for i, c := range m.all {
		if err := reg.Register(c); err != nil {
			m.all = m.all[:i]
			m.unregister()
			return nil, err
		}
	}
	return m, nil
}

// unregister lets the next store of the process use the registry.
func (m *metrics) unregister() {
	for _, c := range m.all {
		m.reg.Unregister(c)
	}
}
