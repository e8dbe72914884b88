package broker

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"millrace/uns"
)

// Bounds of the retained messages of ordinary topics. Stored topics need none: their retained message is their last value.
const (
	maxRetained      = 100_000
	maxRetainedBytes = 64 << 20 // of topics, payloads and properties
)

// retained holds the retained messages of ordinary topics in memory; their rows ("br" and the topic, FORMAT.md) are
// written in the commit of the batch that brings them, before its acknowledgement.
//
// A topic is claimed by the batch that changes it until that batch is settled, so that disk and memory see the changes of
// a topic in one order. mu is a leaf.
type retained struct {
	mu      sync.Mutex
	topics  map[string]*keptMessage
	order   []*keptMessage // by topic
	bytes   int64
	changes map[*uns.Batch]*change
	claimed map[string]*change
	most    int // bounds
	room    int64
}

// keptMessage is one retained message. Immutable.
type keptMessage struct {
	*message
	qos byte
}

// change is what one batch does to retained messages.
type change struct {
	puts  []put
	count int   // messages reserved
	bytes int64 // octets reserved
	over  chan struct{}
}

type put struct {
	topic string
	kept  *keptMessage // nil: cleared
}

func newRetained() *retained {
	return &retained{topics: map[string]*keptMessage{}, changes: map[*uns.Batch]*change{}, claimed: map[string]*change{},
		most: maxRetained, room: maxRetainedBytes}
}

// claim gives the topic to the batch; else wait is closed when whoever has it is done.
func (r *retained) claim(owner *uns.Batch, topic string) (wait <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ch := r.changes[owner]
	if by := r.claimed[topic]; by != nil && by != ch {
		return by.over
	}
	if ch == nil {
		ch = &change{over: make(chan struct{})}
		r.changes[owner] = ch
	}
	r.claimed[topic] = ch
	return nil
}

// stage adds a change of a claimed topic to the batch's commit, or says why there is no room for it.
func (r *retained) stage(owner *uns.Batch, topic string, kept *keptMessage, now int64) (fault string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ch := r.changes[owner]
	if kept != nil {
		count, size := 1, kept.size()
		if r.topics[topic] != nil {
			count = 0
		}
		if !r.fits(count, size) {
			r.expireLocked(owner, ch, now)
		}
		if !r.fits(count, size) {
			return fmt.Sprintf("the box keeps at most %d retained messages of ordinary topics and %d MiB; clear some", r.most, r.room>>20)
		}
		ch.count += count
		ch.bytes += size
	}
	ch.puts = append(ch.puts, put{topic, kept})
	row := uns.Row{Key: retainedKey(topic)}
	if kept != nil {
		row.Value = encodeKept(kept)
	}
	owner.Rows = append(owner.Rows, row)
	return ""
}

// fits says whether there is room beside what is kept and what other batches have reserved.
func (r *retained) fits(count int, size int64) bool {
	n, bytes := len(r.topics)+count, r.bytes+size
	for _, ch := range r.changes {
		n += ch.count
		bytes += ch.bytes
	}
	return n <= r.most && bytes <= r.room
}

// expireLocked makes room: what has expired goes with the batch's commit.
func (r *retained) expireLocked(owner *uns.Batch, ch *change, now int64) {
	for _, k := range slices.Clone(r.order) {
		if k.expires == 0 || k.expires > now || r.claimed[k.topic] != nil {
			continue
		}
		r.claimed[k.topic] = ch
		r.setLocked(k.topic, nil)
		owner.Rows = append(owner.Rows, uns.Row{Key: retainedKey(k.topic)})
		ch.puts = append(ch.puts, put{k.topic, nil})
	}
}

// settle ends a batch's claims; stored says whether its changes are durable and so in force.
func (r *retained) settle(owner *uns.Batch, stored bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ch := r.changes[owner]
	if ch == nil {
		return
	}
	delete(r.changes, owner)
	for topic, by := range r.claimed {
		if by == ch {
			delete(r.claimed, topic)
		}
	}
	if stored {
		for _, p := range ch.puts {
			r.setLocked(p.topic, p.kept)
		}
	}
	close(ch.over)
}

func (r *retained) setLocked(topic string, kept *keptMessage) {
	at, found := slices.BinarySearchFunc(r.order, topic, func(k *keptMessage, t string) int { return strings.Compare(k.topic, t) })
	switch {
	case found:
		r.bytes -= r.order[at].size()
		if kept == nil {
			r.order = slices.Delete(r.order, at, at+1)
			delete(r.topics, topic)
			return
		}
		r.order[at] = kept
	case kept == nil:
		return
	default:
		r.order = slices.Insert(r.order, at, kept)
	}
	r.topics[topic] = kept
	r.bytes += kept.size()
}

// get is the retained message of a topic as it is now, nil when there is none.
func (r *retained) get(topic string, now int64) *keptMessage {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.topics[topic]
	if k == nil || k.expires > 0 && k.expires <= now { // [MQTT-3.3.2-5]
		return nil
	}
	return k
}

// list returns topics behind after that match the filter, in order, at most limit. It looks at a bounded number of topics;
// last is where to go on, "" at the end.
func (r *retained) list(filter, after string, limit int) (topics []string, last string) {
	const looks = 4096
	prefix := filter
	if i := strings.IndexAny(filter, "+#"); i >= 0 {
		prefix = strings.TrimSuffix(filter[:i], "/")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	from := max(prefix, after)
	at, found := slices.BinarySearchFunc(r.order, from, func(k *keptMessage, t string) int { return strings.Compare(k.topic, t) })
	if found && from == after {
		at++
	}
	for n := 0; at < len(r.order); at++ {
		topic := r.order[at].topic
		if !strings.HasPrefix(topic, prefix) {
			return topics, ""
		}
		if n++; uns.Match(filter, topic) {
			topics = append(topics, topic)
		}
		if n == looks || len(topics) == limit {
			return topics, topic
		}
	}
	return topics, ""
}

// size tells how much is kept.
func (r *retained) size() (messages int, bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.order), r.bytes
}

// load reads what was kept before the start.
func (r *retained) load(rows Rows, log *slog.Logger) error {
	damaged := 0
	err := rows.Rows([]byte(retainedPrefix), func(key, value []byte) bool {
		k, ok := decodeKept(string(key[len(retainedPrefix):]), value)
		if !ok {
			damaged++
			return true
		}
		r.topics[k.topic] = k
		r.order = append(r.order, k) // keys come in order
		r.bytes += k.size()
		return true
	})
	if damaged > 0 {
		log.Warn("rows of retained messages cannot be read and are passed over", "rows", damaged)
	}
	if err != nil {
		return fmt.Errorf("broker: read the retained messages: %w", err)
	}
	return nil
}

const (
	retainedPrefix  = "br"
	retainedVersion = 2 // 1 had its expiry in seconds
)

func retainedKey(topic string) []byte { return append([]byte(retainedPrefix), topic...) }

// encodeKept: version:1 | QoS:1 | expiry, Unix ms:8 | length:4 of the properties | properties | payload.
func encodeKept(k *keptMessage) []byte {
	b := make([]byte, 0, 14+len(k.properties)+len(k.payload))
	b = binary.BigEndian.AppendUint64(append(b, retainedVersion, k.qos), uint64(k.expires))
	b = binary.BigEndian.AppendUint32(b, uint32(len(k.properties)))
	return append(append(b, k.properties...), k.payload...)
}

func decodeKept(topic string, b []byte) (*keptMessage, bool) {
	if len(b) < 14 || b[0] < 1 || b[0] > retainedVersion || b[1] > 2 {
		return nil, false
	}
	n := binary.BigEndian.Uint32(b[10:])
	if uint64(n) > uint64(len(b)-14) {
		return nil, false
	}
	expires := int64(binary.BigEndian.Uint64(b[2:]))
	if b[0] == 1 {
		expires *= 1000
	}
	own := append([]byte(nil), b[14:]...)
	return &keptMessage{message: &message{topic: topic, expires: expires, properties: own[:n:n], payload: own[n:]}, qos: b[1]}, true
}

// retain stages the retained message of an ordinary PUBLISH [MQTT-3.3.1-5]; an empty payload clears [MQTT-3.3.1-6] [MQTT-3.3.1-7].
// ended says that the connection is to end.
func (c *conn) retain(e *topicEntry, p *publish) (verdict uns.Verdict, ended bool) {
	for {
		wait := c.b.retained.claim(&c.batch, e.topic)
		if wait == nil {
			break
		}
		if !c.settle() { // gives up what this batch holds, so that no two wait for each other
			return verdict, true
		}
		select {
		case <-wait:
		case <-c.ctx.Done():
			return verdict, true
		}
	}
	c.keeps = true
	var kept *keptMessage
	if len(p.payload) > 0 {
		kept = keptOf(e.topic, p.payload, p.properties, p.qos, c.at)
	}
	if fault := c.b.retained.stage(&c.batch, e.topic, kept, c.at.UnixMilli()); fault != "" {
		return uns.Verdict{Reason: uns.TopicLimit, Detail: fault}, false
	}
	return verdict, false
}

// settleRetained ends the batch's changes of retained messages.
func (c *conn) settleRetained(stored bool) {
	if c.keeps {
		c.keeps = false
		c.b.retained.settle(&c.batch, stored)
	}
}

func keptOf(topic string, payload, properties []byte, qos byte, at time.Time) *keptMessage {
	return &keptMessage{message: newMessage(topic, payload, properties, at), qos: qos}
}

// newMessage copies what the publisher sent.
func newMessage(topic string, payload, properties []byte, at time.Time) *message {
	kept, expiry, expires := forward(properties)
	m := &message{topic: topic, payload: append([]byte(nil), payload...), properties: kept}
	if expires {
		m.expires = max(at.UnixMilli(), 1) + 1000*int64(expiry)
	}
	return m
}
