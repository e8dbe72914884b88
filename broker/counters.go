package broker

import (
	"sync/atomic"
	"time"

	"millrace/uns"

	"github.com/prometheus/client_golang/prometheus"
)

// dropReason is why a message was not delivered.
type dropReason int

const (
	dropQueueFull dropReason = iota
	dropTooLarge
	dropExpired
	dropSessionEnded
	dropVerdictNotPermitted
	dropOffline
	dropNotPermitted
	dropLost
	dropReasons // count
)

var dropNames = [dropReasons]string{"queue_full", "too_large", "expired", "session_ended", "verdict_not_permitted", "offline", "not_permitted", "lost"}

// endNames are the reasons with which the box ends sessions; the last takes all others.
var endNames = [...]struct {
	code byte
	name string
}{{codeMalformed, "malformed_packet"}, {codeProtocol, "protocol_error"}, {codeNotAuthorized, "not_authorized"}, {codeShuttingDown, "shutting_down"},
	{codeKeepAlive, "keep_alive"}, {codeTakenOver, "taken_over"}, {codeAliasInvalid, "topic_alias"}, {codeTooLarge, "packet_too_large"},
	{codeQuota, "store_stalled"}, {codeAdministrative, "administrative"}, {codeQoSNotSupported, "qos_not_supported"}, {codeUnspecified, "other"}}

// end counts a session that the box ends.
func (m *metrics) end(code byte) { m.ended[endIndex(code)].Add(1) }

func endIndex(code byte) (i int) {
	for i < len(endNames)-1 && endNames[i].code != code {
		i++
	}
	return i
}

func endName(code byte) string { return endNames[endIndex(code)].name }

// storedBounds are the buckets of publish-to-stored, in seconds.
var storedBounds = [...]float64{0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30}

// shard holds the counters of some of the connections; several of them keep cores off each other's cache lines.
type shard struct {
	bytesIn, bytesOut       atomic.Uint64
	messagesIn, messagesOut atomic.Uint64
	storedNs                atomic.Uint64
	buckets                 [len(storedBounds) + 1]atomic.Uint64
	_                       [64]byte
}

// settled notes how long the stored messages of a batch took.
func (s *shard) settled(batch []uns.Message, took time.Duration) {
	n := uint64(0)
	for i := range batch {
		if batch[i].Verdict.OK() {
			n++
		}
	}
	if n == 0 {
		return
	}
	i, sec := 0, took.Seconds()
	for i < len(storedBounds) && sec > storedBounds[i] {
		i++
	}
	s.buckets[i].Add(n)
	s.storedNs.Add(n * uint64(max(took, 0)))
}

// metrics is everything the broker counts. It is its own collector: the hot path touches plain atomics only.
type metrics struct {
	shards     [8]shard
	turn       atomic.Uint32
	dropped    [dropReasons]atomic.Uint64
	ended      [len(endNames)]atomic.Uint64
	duplicates atomic.Uint64
	panics     atomic.Uint64
	leaks      atomic.Uint64
	held       atomic.Uint64 // readers that waited for their client to read its answers
	forgotten  atomic.Uint64 // entries that left a topic cache

	b    *Broker
	desc struct {
		connections, received, sent, bytesIn, bytesOut, dropped, stored *prometheus.Desc
		ended, panics, leaks, duplicates                                *prometheus.Desc
		storing, queued, inflight, subscriptions, held, forgotten       *prometheus.Desc
	}
}

func newMetrics(reg prometheus.Registerer, b *Broker) (*metrics, error) {
	if reg == nil {
		reg = prometheus.NewRegistry()
	}
	m := &metrics{b: b}
	d := prometheus.NewDesc
	m.desc.connections = d("millrace_broker_connections", "Open MQTT connections.", nil, nil)
	m.desc.received = d("millrace_broker_messages_received_total", "Messages received and settled.", nil, nil)
	m.desc.sent = d("millrace_broker_messages_sent_total", "Messages sent to subscribers.", nil, nil)
	m.desc.bytesIn = d("millrace_broker_received_bytes_total", "Bytes read from clients.", nil, nil)
	m.desc.bytesOut = d("millrace_broker_sent_bytes_total", "Bytes written to clients.", nil, nil)
	m.desc.dropped = d("millrace_broker_messages_dropped_total", "Messages not delivered, by reason.", []string{"reason"}, nil)
	m.desc.stored = d("millrace_broker_publish_to_stored_seconds", "From the read of a publish to its value being durable.", nil, nil)
	m.desc.ended = d("millrace_broker_sessions_ended_total", "Sessions ended by the box, by reason.", []string{"reason"}, nil)
	m.desc.duplicates = d("millrace_broker_duplicates_total", "Retransmissions of what was stored already: acknowledged, not stored again.", nil, nil)
	m.desc.panics = d("millrace_broker_contained_panics_total", "Panics on a connection that were contained.", nil, nil)
	m.desc.leaks = d("millrace_broker_leaked_packets_total", "Message packets that reached the control plane; always 0.", nil, nil)
	m.desc.storing = d("millrace_broker_connections_storing", "Connections whose batch of publishes waits for the store.", nil, nil)
	m.desc.queued = d("millrace_broker_deliveries_queued", "Messages that wait for their subscriber's turn, of all sessions.", nil, nil)
	m.desc.inflight = d("millrace_broker_deliveries_inflight", "Messages sent and not yet acknowledged by their subscriber, of all sessions.", nil, nil)
	m.desc.subscriptions = d("millrace_broker_subscriptions", "Subscriptions of all sessions.", nil, nil)
	m.desc.held = d("millrace_broker_reads_held_total", "Times a client was not read because it leaves its answers unread.", nil, nil)
	m.desc.forgotten = d("millrace_broker_topic_cache_evictions_total", "Topics that left the cache of their connection because it was full.", nil, nil)
	return m, reg.Register(m)
}

// shard hands out the shards in turn.
func (m *metrics) shard() *shard { return &m.shards[m.turn.Add(1)%uint32(len(m.shards))] }

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	d := &m.desc
	for _, desc := range []*prometheus.Desc{d.connections, d.received, d.sent, d.bytesIn, d.bytesOut, d.dropped, d.stored,
		d.ended, d.panics, d.leaks, d.duplicates,
		d.storing, d.queued, d.inflight, d.subscriptions, d.held, d.forgotten} {
		ch <- desc
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	var in, out, bytesIn, bytesOut, ns uint64
	var counts [len(storedBounds) + 1]uint64
	for i := range m.shards {
		s := &m.shards[i]
		in += s.messagesIn.Load()
		out += s.messagesOut.Load()
		bytesIn += s.bytesIn.Load()
		bytesOut += s.bytesOut.Load()
		ns += s.storedNs.Load()
		for k := range counts {
			counts[k] += s.buckets[k].Load()
		}
	}
	d := &m.desc
	counter := func(desc *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(v), labels...)
	}
	gauge := func(desc *prometheus.Desc, v int) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(v))
	}
	gauge(d.connections, m.b.connections())
	storing, owed := m.b.waiting()
	gauge(d.storing, storing)
	gauge(d.queued, owed.queued)
	gauge(d.inflight, owed.inflight)
	gauge(d.subscriptions, owed.subscriptions)
	counter(d.held, m.held.Load())
	counter(d.forgotten, m.forgotten.Load())
	counter(d.received, in)
	counter(d.sent, out)
	counter(d.bytesIn, bytesIn)
	counter(d.bytesOut, bytesOut)
	counter(d.duplicates, m.duplicates.Load())
	counter(d.panics, m.panics.Load())
	counter(d.leaks, m.leaks.Load())
	for i, name := range dropNames {
		counter(d.dropped, m.dropped[i].Load(), name)
	}
	for i := range endNames {
		counter(d.ended, m.ended[i].Load(), endNames[i].name)
	}
	total, buckets := uint64(0), map[float64]uint64{}
	for i, bound := range storedBounds {
		total += counts[i]
		buckets[bound] = total
	}
	total += counts[len(storedBounds)]
	ch <- prometheus.MustNewConstHistogram(d.stored, total, float64(ns)/1e9, buckets)
}

func (b *Broker) connections() int {
	b.listener.mu.Lock()
	defer b.listener.mu.Unlock()
	return len(b.listener.conns)
}

// waiting adds up the queues of all connections and sessions, when somebody looks.
func (b *Broker) waiting() (storing int, total owed) {
	b.listener.each(func(c *conn) {
		if c.pending.Load() != 0 {
			storing++
		}
	})
	for _, s := range b.everySession() {
		o := s.owed()
		total.queued += o.queued
		total.inflight += o.inflight
		total.subscriptions += o.subscriptions
	}
	return storing, total
}
