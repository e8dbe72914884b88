package broker

import "millrace/uns"

var _ uns.Live = (*Broker)(nil)

// Prepare implements uns.Live.
func (b *Broker) Prepare(*uns.Batch) {}

// Publish implements uns.Live: it owes a stored value to everyone who listens to its topic. It never blocks, and costs
// one comparison when nobody does. Safe for concurrent use, each caller with a batch of its own.
func (b *Broker) Publish(batch *uns.Batch, i int) {
	t, s := batch.Messages[i].Topic, &batch.Samples[batch.Messages[i].At]
	m, _ := t.Slot().(*match)
	if m == nil || m.generation != b.index.generation.Load() {
		m = b.index.match(t.Full, &uns.Name{Place: uns.Value, Workspace: t.Workspace, Path: t.Path})
		t.SetSlot(m)
	}
	var msg *message
	for _, r := range m.receivers {
		if !r.permitted(m) {
			continue
		}
		if msg == nil {
			msg = &message{topic: t.Full, payload: uns.AppendLive(make([]byte, 0, 96), s)}
		}
		if d, ok := r.delivery(msg, byte(b.o.LiveQoS), false, nil); ok {
			r.session.enqueue(d)
		}
	}
}

// deliverOrdinary owes an ordinary message to its subscribers.
func (b *Broker) deliverOrdinary(c *conn, it *item) {
	e := it.entry
	if e.match == nil || e.match.generation != b.index.generation.Load() {
		e.match = b.index.match(e.topic, &e.name)
	}
	var msg *message
	for _, r := range e.match.receivers {
		if !r.permitted(e.match) {
			continue
		}
		if msg == nil {
			kept, expiry := forward(it.properties)
			msg = &message{topic: e.topic, payload: append([]byte(nil), it.payload...), properties: kept}
			if expiry > 0 {
				msg.expires = c.at.Unix() + int64(expiry)
			}
		}
		if d, ok := r.delivery(msg, it.qos, it.retain, c.session); ok {
			r.session.enqueue(d)
		}
	}
}
