package broker

import (
	"millrace/auth"
	"millrace/uns"
)

var _ uns.Live = (*Broker)(nil)

// owedBatch is what Prepare leaves for Publish: the durable deliveries of a batch, by message; and what a connection tells
// Prepare, the QoS of publishes that may clear a retained value.
type owedBatch struct {
	list   []owedMessage
	next   int
	clears []clearing
}

type clearing struct {
	at   int
	qos  byte
	owed owedMessage // filled in by Prepare
}

// owedMessage is one message with the row numbers of its durable deliveries, one per receiver, 0 = none.
type owedMessage struct {
	at int
	m  *match
	to []*receiver
	ns []uint64
}

// Prepare implements uns.Live: messages that sessions must get even when the box is killed put their rows into the
// commit of the values. Without such sessions it costs one comparison a batch.
func (b *Broker) Prepare(batch *uns.Batch) {
	if b.persistent.Load() == 0 {
		return
	}
	owed, _ := batch.Owed.(*owedBatch)
	if owed != nil {
		b.prepareCleared(batch, owed)
	}
	for i := range batch.Messages {
		msg := &batch.Messages[i]
		if !msg.Verdict.OK() || msg.At < 0 {
			continue
		}
		m := b.matchOf(msg.Topic)
		if !m.durable {
			continue
		}
		s := &batch.Samples[msg.At]
		origin, _ := msg.Origin.(*session)
		to := m.to()
		ns := b.oweDurably(m, to, byte(b.o.LiveQoS), msg.Retain, origin, &batch.Rows, &message{topic: msg.Topic.Full},
			func(dst []byte) []byte { return uns.AppendLive(dst, s) })
		if ns == nil && len(m.groups) == 0 { // whose turn it is in a group is decided here
			continue
		}
		if owed == nil {
			owed = &owedBatch{}
			batch.Owed = owed
		}
		owed.list = append(owed.list, owedMessage{i, m, to, ns})
	}
}

// oweDurably adds a row for every receiver of m that must get msg even when the box is killed; nil: there is none. late
// gives the payload when it is known inside the commit only.
func (b *Broker) oweDurably(m *match, to []*receiver, qos byte, retain bool, origin *session, rows *[]uns.Row, msg *message, late func(dst []byte) []byte) (ns []uint64) {
	for i, r := range to {
		if r.session.num == 0 {
			continue
		}
		policy, ok := r.permitted(m)
		if !ok {
			continue
		}
		d, ok := r.delivery(msg, policy, qos, retain, origin)
		if !ok || d.qos == 0 {
			continue
		}
		if ns == nil {
			ns = make([]uint64, len(to))
		}
		ns[i] = r.session.lastN.Add(1)
		row := uns.Row{Key: queuedKey(r.session.num, ns[i]), Value: appendQueued(nil, &d, msg.topic, msg.properties, msg.expires), Late: late}
		if late == nil {
			row.Value = append(row.Value, msg.payload...)
		}
		*rows = append(*rows, row)
	}
	return ns
}

// matchOf is who listens to a stored topic.
func (b *Broker) matchOf(t *uns.Topic) *match {
	m, _ := t.Slot().(*match)
	if m == nil || m.generation != b.index.generation.Load() {
		m = b.index.match(t.Full, &uns.Name{Place: uns.Value, Workspace: t.Workspace, Path: t.Path})
		t.SetSlot(m)
	}
	return m
}

// Publish implements uns.Live: it owes a stored value to everyone who listens to its topic. It never blocks, and costs
// one comparison when nobody does. Safe for concurrent use, each caller with a batch of its own.
func (b *Broker) Publish(batch *uns.Batch, i int) {
	t := batch.Messages[i].Topic
	m := b.matchOf(t)
	var ns []uint64
	var to []*receiver
	if o, _ := batch.Owed.(*owedBatch); o != nil && o.next < len(o.list) && o.list[o.next].at == i {
		// Whom Prepare found gets it: the rows are there.
		m, to, ns = o.list[o.next].m, o.list[o.next].to, o.list[o.next].ns
		o.next++
	} else {
		to = m.to()
	}
	if len(to) == 0 {
		return
	}
	in := &batch.Messages[i]
	origin, _ := in.Origin.(*session)
	s := &batch.Samples[in.At]
	var msg *message
	for k, r := range to {
		policy, ok := r.permitted(m)
		if msg == nil && ok {
			msg = &message{topic: t.Full, payload: uns.AppendLive(make([]byte, 0, 96), s)}
		}
		r.owe(msg, policy, ok, byte(b.o.LiveQoS), in.Retain, origin, numberOf(ns, k), len(to) > maxAtOnce)
	}
}

func numberOf(ns []uint64, i int) uint64 {
	if ns == nil {
		return 0
	}
	return ns[i]
}

// owe hands a message to the receiver's session, or has the row deleted that was made for it.
func (r *receiver) owe(msg *message, policy *auth.Policy, permitted bool, qos byte, retain bool, origin *session, n uint64, wide bool) {
	if permitted {
		if d, ok := r.delivery(msg, policy, qos, retain, origin); ok {
			d.n, d.wide = n, wide
			r.session.enqueue(d)
			return
		}
	}
	if n != 0 {
		r.session.forget(n)
	}
}

// prepareCleared adds the rows of the empty messages of a batch's clears.
func (b *Broker) prepareCleared(batch *uns.Batch, owed *owedBatch) {
	for i := range owed.clears {
		k := &owed.clears[i]
		in := &batch.Messages[k.at]
		if in.Verdict.Reason != uns.Cleared {
			continue
		}
		origin, _ := in.Origin.(*session)
		m := b.matchCleared(in.Workspace, in.Path)
		to := m.to()
		ns := b.oweDurably(m, to, min(k.qos, byte(b.o.LiveQoS)), true, origin, &batch.Rows, &message{topic: m.topic}, nil)
		k.owed = owedMessage{k.at, m, to, ns}
	}
}

func (b *Broker) matchCleared(workspace, path string) *match {
	n := uns.Name{Place: uns.Value, Workspace: workspace, Path: path}
	full := b.o.Namespace.Full(workspace, path)
	m := b.index.match(full, &n)
	if m.topic == "" { // the empty match is shared
		return &match{generation: m.generation, name: n, topic: full}
	}
	return m
}

// deliverCleared owes the empty message that cleared a topic's retained value to everyone who listens.
func (b *Broker) deliverCleared(batch *uns.Batch, at int, n *uns.Name, origin *session, qos byte) {
	var k owedMessage
	if owed, _ := batch.Owed.(*owedBatch); owed != nil {
		for i := range owed.clears {
			if owed.clears[i].at == at {
				k = owed.clears[i].owed
			}
		}
	}
	if k.m == nil {
		k.m = b.matchCleared(n.Workspace, n.Path)
		k.to = k.m.to()
	}
	msg := &message{topic: k.m.topic}
	for i, r := range k.to {
		policy, ok := r.permitted(k.m)
		r.owe(msg, policy, ok, min(qos, byte(b.o.LiveQoS)), true, origin, numberOf(k.ns, i), true)
	}
}

// deliverOrdinary owes an ordinary message to its subscribers.
func (b *Broker) deliverOrdinary(c *conn, it *item) {
	m, to := it.match, it.to
	if m == nil {
		m = b.matchOrdinary(it.entry)
		to = m.to()
	}
	if len(to) == 0 {
		return
	}
	msg := it.message
	for k, r := range to {
		policy, ok := r.permitted(m)
		if msg == nil && ok {
			msg = c.ordinaryMessage(it)
		}
		r.owe(msg, policy, ok, it.qos, it.retain, c.session, numberOf(it.owed, k), len(to) > maxAtOnce)
	}
}

func (b *Broker) matchOrdinary(e *topicEntry) *match {
	if e.match == nil || e.match.generation != b.index.generation.Load() {
		e.match = b.index.match(e.topic, &e.name)
	}
	return e.match
}

// ordinaryMessage copies a message out of the read buffer.
func (c *conn) ordinaryMessage(it *item) *message {
	return newMessage(it.entry.topic, it.payload, it.properties, c.at)
}

// prepareOrdinary puts the rows of an ordinary message's durable deliveries into the batch.
func (c *conn) prepareOrdinary(it *item) {
	m := c.b.matchOrdinary(it.entry)
	if !m.durable || it.qos == 0 {
		return
	}
	it.match, it.to, it.message = m, m.to(), c.ordinaryMessage(it)
	it.owed = c.b.oweDurably(m, it.to, it.qos, it.retain, c.session, &c.batch.Rows, it.message, nil)
}
