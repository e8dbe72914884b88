package broker

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Session is one session, connected or not, as shown.
type Session struct {
	MQTTID        string
	Client        string // API client
	Connected     bool
	Remote        string // peer's address; the last one while it is offline
	Door          string // tcp, tls or websocket
	Version       int
	Since         time.Time     // of the connection, or of its end
	Expiry        time.Duration // how long the session outlives its connection
	KeepAlive     time.Duration // 0 = none
	Subscriptions int
	Received      uint64
	Sent          uint64
	Queued        int
	QueuedBytes   int64
	Inflight      int
	Dropped       uint64
	DroppedBy     map[string]uint64 // by reason, those that came
	Slow          bool              // it lost messages to a full queue within the last minute, or its queue is half full
}

var doorNames = [doorKinds]string{doorTCP: "tcp", doorTLS: "tls", doorStream: "websocket"}

// slowFor is how long a session is called slow after it lost a message to a full queue.
const slowFor = time.Minute

// Sessions lists every session, by MQTT client identifier.
func (b *Broker) Sessions() []Session {
	live := b.everySession()
	list := make([]Session, 0, len(live))
	for _, s := range live {
		if shown, ok := s.show(); ok {
			list = append(list, shown)
		}
	}
	slices.SortFunc(list, func(x, y Session) int { return cmp.Compare(x.MQTTID, y.MQTTID) })
	return list
}

func (s *session) show() (shown Session, ok bool) {
	l := &s.b.o.Limits
	s.mu.Lock()
	defer s.mu.Unlock()
	shown = Session{MQTTID: s.id, Client: s.owner, Since: s.ended, Expiry: time.Duration(s.expiry) * time.Second, Subscriptions: len(s.subscriptions),
		Queued: s.queue.n, QueuedBytes: s.queue.bytes, Inflight: len(s.flights)}
	if c := s.conn; c != nil {
		shown.Connected, shown.Remote, shown.Door, shown.Version = true, c.raw.RemoteAddr().String(), doorNames[c.door.kind], int(s.version)
		shown.Since, shown.KeepAlive = c.since, time.Duration(c.keepAlive.Load())*2/3
		shown.Received, shown.Sent = c.received.Load(), c.sent.Load()
	}
	shown.Dropped, shown.DroppedBy = s.dropped.shown()
	lost := s.lastLost.Load()
	shown.Slow = lost != 0 && s.b.now().UnixNano()-lost < int64(slowFor) ||
		s.queue.n > l.MaxSubscriberQueue/2 || s.queue.bytes > l.MaxSubscriberQueueBytes/2
	return shown, !s.over
}

// dropCounts counts what was not delivered, by reason.
type dropCounts [dropReasons]atomic.Uint64

func (d *dropCounts) total() (sum uint64) {
	for i := range d {
		sum += d[i].Load()
	}
	return sum
}

func (d *dropCounts) shown() (sum uint64, by map[string]uint64) {
	by = map[string]uint64{}
	for i := range d {
		if n := d[i].Load(); n > 0 {
			by[dropNames[i]] = n
			sum += n
		}
	}
	return sum, by
}

// drop counts messages that this session does not get.
func (s *session) drop(why dropReason, n int) {
	s.dropped[why].Add(uint64(n))
	s.b.metrics.dropped[why].Add(uint64(n))
	s.b.drops.of(s.owner)[why].Add(uint64(n))
}

// tooSlow notes that a full queue loses messages; the first loss of a minute is logged by name.
func (s *session) tooSlow() {
	now := s.b.now().UnixNano()
	if last := s.lastLost.Swap(now); last == 0 || now-last > int64(slowFor) {
		s.b.log.Warn("a subscriber is too slow: its queue is full and loses the oldest", "client", s.owner, "mqtt_id", s.id)
	}
}

// clientDrops keeps the counts of every API client since start: at most one row for each there is.
type clientDrops struct{ rows sync.Map } // client id → *dropCounts

func (d *clientDrops) of(client string) *dropCounts {
	if row, ok := d.rows.Load(client); ok {
		return row.(*dropCounts)
	}
	row, _ := d.rows.LoadOrStore(client, &dropCounts{})
	return row.(*dropCounts)
}

// ClientDrops is what one API client's sessions were not delivered since start, by reason.
type ClientDrops struct {
	Client string
	By     map[string]uint64
}

// Drops tells every message not delivered since start: by reason, and by client, those that lost most first.
func (b *Broker) Drops() (by map[string]uint64, clients []ClientDrops) {
	by = map[string]uint64{}
	for i, name := range dropNames {
		by[name] = b.metrics.dropped[i].Load()
	}
	total := map[string]uint64{}
	b.drops.rows.Range(func(k, v any) bool {
		sum, by := v.(*dropCounts).shown()
		if sum > 0 {
			total[k.(string)] = sum
			clients = append(clients, ClientDrops{k.(string), by})
		}
		return true
	})
	slices.SortFunc(clients, func(x, y ClientDrops) int {
		return cmp.Or(cmp.Compare(total[y.Client], total[x.Client]), cmp.Compare(x.Client, y.Client))
	})
	return by, clients
}
