package broker

import (
	"strconv"
	"strings"
	"sync"
	"time"

	"millrace/auth"
	"millrace/uns"
)

// $SYS tells administrators about the broker under the names that dashboards know. It is made up when somebody looks:
// at SUBSCRIBE, as retained messages, and every ten seconds for as long as somebody is subscribed. Nobody can publish there.

const (
	systemRoot  = "$SYS/"
	systemEvery = 10 * time.Second
	systemAge   = time.Second // figures that old are good enough
)

// systemFilter says whether a filter or topic lies in $SYS.
func systemFilter(filter string) bool {
	return filter == "$SYS" || strings.HasPrefix(filter, systemRoot)
}

// maySeeSystem: administrators only.
func maySeeSystem(p *auth.Principal) bool { return p.Role().Allows(auth.RoleAdmin) }

// systemValue is one topic of $SYS with its text.
type systemValue struct{ topic, text string }

// system holds the figures of the last look.
type system struct {
	b     *Broker
	since time.Time

	mu     sync.Mutex
	at     time.Time
	values []systemValue
	told   map[string]string // what subscribers were sent last
	due    time.Time
}

// now gives the figures, at most systemAge old. It looks at every session: none may be locked.
func (y *system) now() []systemValue {
	y.mu.Lock()
	defer y.mu.Unlock()
	if now := y.b.now(); y.values == nil || now.Sub(y.at) >= systemAge || now.Before(y.at) {
		y.at, y.values = now, y.look(now)
	}
	return y.values
}

func (y *system) look(now time.Time) (list []systemValue) {
	b := y.b
	text := func(topic, value string) { list = append(list, systemValue{systemRoot + "broker/" + topic, value}) }
	number := func(topic string, n uint64) { text(topic, strconv.FormatUint(n, 10)) }
	connected := uint64(b.connections())
	sessions := b.everySession()
	offline := uint64(0)
	var waits owed
	for _, s := range sessions {
		s.mu.Lock()
		if s.conn == nil && !s.over {
			offline++
		}
		waits.queued += s.queue.n
		waits.inflight += len(s.flights)
		waits.subscriptions += len(s.subscriptions)
		s.mu.Unlock()
	}
	var in, out, bytesIn, bytesOut, stored uint64
	for i := range b.metrics.shards {
		sh := &b.metrics.shards[i]
		in += sh.messagesIn.Load()
		out += sh.messagesOut.Load()
		bytesIn += sh.bytesIn.Load()
		bytesOut += sh.bytesOut.Load()
		for k := range sh.buckets {
			stored += sh.buckets[k].Load()
		}
	}
	dropped := uint64(0)
	for i := range b.metrics.dropped {
		dropped += b.metrics.dropped[i].Load()
	}
	retained, retainedBytes := b.retained.size()
	text("version", "Millrace "+b.o.Version)
	text("uptime", strconv.FormatInt(int64(now.Sub(y.since)/time.Second), 10)+" seconds")
	text("timestamp", now.UTC().Format(time.RFC3339))
	number("clients/connected", connected)
	number("clients/disconnected", offline)
	number("clients/total", connected+offline)
	number("clients/maximum", uint64(b.o.Limits.MaxClients))
	number("messages/received", in)
	number("messages/sent", out)
	number("messages/stored", stored)
	number("messages/dropped", dropped)
	number("messages/inflight", uint64(waits.inflight))
	number("messages/queued", uint64(waits.queued))
	number("publish/messages/received", in)
	number("publish/messages/sent", out)
	number("publish/messages/dropped", dropped)
	number("bytes/received", bytesIn)
	number("bytes/sent", bytesOut)
	number("subscriptions/count", uint64(waits.subscriptions))
	number("retained messages/count", uint64(retained))
	number("retained messages/bytes", uint64(retainedBytes))
	return list
}

// publishSystem sends what has changed to whoever is subscribed, every systemEvery. The watchdog calls it.
func (b *Broker) publishSystem(now time.Time) {
	y := &b.system
	y.mu.Lock()
	due := !now.Before(y.due) || y.due.Sub(now) > systemEvery
	if due {
		y.due = now.Add(systemEvery)
	}
	y.mu.Unlock()
	if !due {
		return
	}
	if !b.index.listens("$SYS") {
		y.mu.Lock()
		y.told = nil
		y.mu.Unlock()
		return
	}
	values := y.now()
	told := make(map[string]string, len(values))
	for _, v := range values {
		told[v.topic] = v.text
	}
	y.mu.Lock()
	before := y.told
	y.told = told
	y.mu.Unlock()
	for _, v := range values {
		if before[v.topic] == v.text {
			continue
		}
		m := b.index.match(v.topic, &uns.Name{Place: uns.Ordinary})
		var msg *message
		for _, r := range m.to() {
			policy, ok := r.permitted(m)
			if msg == nil && ok {
				msg = &message{topic: v.topic, payload: []byte(v.text)}
			}
			r.owe(msg, policy, ok, 1, false, nil, 0, true)
		}
	}
}

// listens says whether there is a subscription below a first level.
func (x *index) listens(first string) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.root.child(first) != nil
}
