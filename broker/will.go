package broker

import (
	"context"
	"encoding/binary"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"
)

// will is the message a client leaves for the case that its connection ends without its word [MQTT-3.1.2-7]. It takes
// the way of every publish: grants, the judgement and the store of values, retained rows, durable deliveries.
type will struct {
	c          *conn // whose it is; its reader has ended when the will is published
	topic      string
	payload    []byte
	properties []byte // of the PUBLISH, in order
	qos        byte
	retain     bool
	text       bool // the payload is said to be text
	delay      time.Duration
	due        time.Time // zero: its connection lives
}

// parseWill takes the will out of a CONNECT that checkConnect has let through; nil: there is none.
func parseWill(b []byte) *will {
	_, b, _ = cutText(b)
	version, flags := b[0], b[1]
	if flags&4 == 0 {
		return nil
	}
	w := &will{qos: flags >> 3 & 3, retain: flags&0x20 != 0}
	b = b[4:]
	if version == 5 {
		_, b, _ = cutProperties(b)
	}
	_, b, _ = cutText(b) // client identifier
	if version == 5 {
		var list []byte
		list, b, _ = cutProperties(b)
		for len(list) > 0 {
			id, v, rest, ok := nextProperty(list)
			if !ok {
				break
			}
			w.text = w.text || id == propPayloadFormat && v[0] == 1
			if id == propWillDelay {
				w.delay = time.Duration(binary.BigEndian.Uint32(v)) * time.Second
			} else {
				w.properties = append(w.properties, list[:len(list)-len(rest)]...)
			}
			list = rest
		}
	}
	topic, b, _ := cutText(b)
	payload, _, _ := cutText(b)
	w.topic, w.payload = string(topic), append([]byte(nil), payload...)
	return w
}

// refuseWill decides about the will at CONNECT: what its client may not publish is refused then, not when it is too late.
func (c *conn) refuseWill() (refusal packets.Code, ok bool) {
	if c.will == nil {
		return refusal, true
	}
	e, code := c.meet([]byte(c.will.topic))
	if code != 0 {
		return packets.Code{Code: codeTopicInvalid, Reason: "the topic of the will is invalid"}, false
	}
	c.check(e, c.principal.Policy())
	verdict := e.verdict
	if verdict.OK() && c.will.text {
		verdict = textVerdict(c.will.payload)
	}
	if verdict.OK() {
		return refusal, true
	}
	return packets.Code{Code: reasonCode(verdict.Reason), Reason: "will: " + verdict.String()}, false
}

// leaveWill gives the session the will of the connection that begins. One that waited for the session to come back is
// gone [MQTT-3.1.3-9].
func (s *session) leaveWill(w *will) {
	s.mu.Lock()
	s.will = w
	s.mu.Unlock()
}

// willAfter says what is to be published now that the connection has ended. One with a delay waits for the end of it or of
// the session, whichever is first.
func (s *session) willAfter(c *conn, now time.Time, lives bool) *will {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.will
	if w == nil || w.c != c {
		return nil
	}
	if c.orderly { // [MQTT-3.1.2-10] [MQTT-3.14.4-3]
		s.will = nil
		return nil
	}
	if lives && w.delay > 0 {
		w.due = now.Add(w.delay)
		return nil
	}
	s.will = nil
	return w
}

// takeWill takes a will whose delay is over by now, or, at the end of the session, any that waits.
func (s *session) takeWill(now time.Time, ending bool) *will {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.will
	if w == nil || w.due.IsZero() || s.conn != nil && !ending || !ending && now.Before(w.due) {
		return nil
	}
	s.will = nil
	return w
}

// publishDueWills publishes those whose delay is over; all: those that wait, too, because the box stops.
func (b *Broker) publishDueWills(now time.Time, all bool) {
	if b.persistent.Load() == 0 {
		return
	}
	for _, s := range b.everySession() {
		b.publishWill(s.takeWill(now, all))
	}
}

// publishWill publishes a will; what refuses it is counted as of its client, like any refusal.
func (b *Broker) publishWill(w *will) {
	if w == nil {
		return
	}
	c := w.c
	ctx, cancel := context.WithTimeout(b.ctx, b.o.Limits.ConnectTimeout)
	defer cancel()
	c.reset()
	c.ctx, c.at = ctx, b.now()
	e, code := c.meet([]byte(w.topic))
	if code != 0 {
		return
	}
	c.check(e, c.principal.Policy())
	p := &publish{qos: w.qos, retain: w.retain, properties: w.properties, payload: w.payload}
	if c.collect(e, p, item{entry: e, at: -1, qos: w.qos}) != 0 || !c.settle() {
		b.log.Warn("a will could not be published", "client", c.principal.ID(), "mqtt_id", c.session.id, "topic_place", int(e.name.Place))
	}
}
