package broker

import (
	"bytes"
	"errors"
	"fmt"
	"unicode/utf8"

	"millrace/auth"
	"millrace/uns"
)

// The publish hook: all complete PUBLISH frames of one read are one batch. take collects, settle has them stored,
// acknowledges in order in one write, announces, and sends the verdicts that were asked for.

// topicEntry is what a connection remembers of one topic it publishes to.
type topicEntry struct {
	topic   string
	name    uns.Name
	policy  *auth.Policy // the rules that verdict was found under
	verdict uns.Verdict  // OK, or why nothing may be published here
	value   *uns.Topic   // once a value was stored
	match   *match       // ordinary topics: who receives them
}

// ordinary: delivered, not stored.
func (e *topicEntry) ordinary() bool { return e.name.Place == uns.Ordinary && e.verdict.OK() }

// item is one message of the batch, or one step of a QoS 2 exchange, in order of receipt.
type item struct {
	answer      byte        // packet type of the acknowledgement, 0 = none
	code        byte        // of the answer to a step; of messages the verdict decides
	entry       *topicEntry // nil: a step
	at          int         // index in batch.Messages; -1: an ordinary message
	id          uint16
	hash        uint32 // of the frame, for QoS 1
	qos         byte
	fresh       bool // a PUBREC that goes into a row first
	again       bool // a retransmission of what is stored: acknowledged and nothing else
	retain      bool
	properties  []byte
	payload     []byte
	response    []byte
	correlation []byte
	// Of an ordinary message that sessions must get even when the box is killed.
	match   *match
	to      []*receiver
	message *message
	owed    []uint64
}

// answerTo is the packet that acknowledges a publish, by QoS.
var answerTo = [...]byte{0, typePuback, typePubrec}

// take adds a PUBLISH to the batch; code is 0 or why the connection ends.
func (c *conn) take(flags byte, body []byte) (code byte) {
	p := &c.publish
	if code = p.parse(flags, body, c.version); code != 0 {
		return code
	}
	policy := c.principal.Policy()
	if policy == nil {
		return codeNotAuthorized
	}
	hash := uint32(0)
	switch p.qos {
	case 1:
		hash = frameHash(body)
		if p.dup {
			if !c.settle() { // what it repeats may be in this very batch
				return codeUnspecified
			}
			if c.session.seen.has(p.id, hash) {
				c.items = append(c.items, item{answer: typePuback, at: -1, id: p.id, qos: 1, again: true})
				return 0
			}
		}
	case 2:
		again, code := c.exactlyOnce(p.id)
		if code != 0 {
			return code
		}
		if again {
			c.items = append(c.items, item{answer: typePubrec, at: -1, id: p.id, qos: 2, again: true})
			return 0
		}
	}
	e, code := c.entry(p)
	if code != 0 {
		return code
	}
	if e.policy != policy {
		c.check(e, policy)
	}
	return c.collect(e, p, item{entry: e, at: -1, id: p.id, qos: p.qos, hash: hash, answer: answerTo[p.qos]})
}

// entry finds the topic of a PUBLISH: by alias, or by one look-up of its bytes.
func (c *conn) entry(p *publish) (e *topicEntry, code byte) {
	if p.hasAlias && (p.alias == 0 || p.alias > topicAliasMaximum) { // [MQTT-3.3.2-8] [MQTT-3.3.2-9]
		return nil, codeAliasInvalid
	}
	if len(p.topic) == 0 {
		if !p.hasAlias {
			return nil, codeProtocol
		}
		if e = c.aliases[p.alias-1]; e == nil {
			return nil, codeProtocol
		}
		return e, 0
	}
	if e = c.topics.get(p.topic); e == nil {
		if e, code = c.meet(p.topic); code != 0 {
			return nil, code
		}
	}
	if p.hasAlias {
		c.aliases[p.alias-1] = e
	}
	return e, 0
}

// meet parses a topic that is new to the connection.
func (c *conn) meet(topic []byte) (e *topicEntry, code byte) {
	if !validText(topic) {
		return nil, codeMalformed
	}
	e = &topicEntry{topic: string(topic)}
	e.name = c.b.o.Namespace.Parse(e.topic, c.principal.ID())
	if e.name.Place == uns.Ordinary && bytes.ContainsAny(topic, "+#") { // [MQTT-3.3.2-2]
		return nil, codeProtocol
	}
	if n := c.topics.put(e); n > 0 {
		c.b.metrics.forgotten.Add(n)
	}
	return e, 0
}

// check finds whether the client may publish to the topic, under the rules in force.
func (c *conn) check(e *topicEntry, policy *auth.Policy) {
	e.policy, e.verdict = policy, uns.Verdict{}
	refuse := func(r uns.Reason, detail string) { e.verdict = uns.Verdict{Reason: r, Detail: detail} }
	n := &e.name
	switch n.Place {
	case uns.Value:
		switch {
		case n.Workspace != c.principal.Workspace():
			refuse(uns.NotAuthorized, "the client belongs to another workspace than "+n.Workspace)
		case !policy.MayPublish(auth.ScopeUNS, n.Path):
			refuse(uns.NotAuthorized, "no grant to publish "+n.Path)
		}
	case uns.Ordinary:
		if e.topic[0] == '$' || !policy.MayPublish(auth.ScopeMQTT, e.topic) {
			refuse(uns.NotAuthorized, "no mqtt grant to publish "+e.topic)
		}
	case uns.ForeignInbox:
		refuse(uns.NotAuthorized, "the inbox of another client")
	case uns.VerdictTopic:
		refuse(uns.NotAuthorized, "verdicts are published by the box only")
	case uns.Reserved:
		refuse(uns.TopicInvalid, "a first level that starts with _ or $ is reserved")
	default:
		refuse(uns.TopicInvalid, n.Fault)
	}
}

// settle brings the batch to its end. false: the connection ends, and nothing of the batch was acknowledged.
func (c *conn) settle() bool {
	if len(c.items) == 0 {
		return true
	}
	c.prepare()
	if len(c.batch.Messages)+len(c.batch.Rows) > 0 {
		c.pending.Store(c.at.UnixNano())
		err := c.b.in.Accept(c.ctx, &c.batch)
		c.pending.Store(0)
		if err != nil {
			c.unsettled(err)
			return false
		}
		c.settleRetained(true)
		took := c.b.now().Sub(c.at)
		c.acknowledge()
		c.counters.settled(c.batch.Messages, took)
	} else {
		c.acknowledge()
	}
	c.announce()
	n := uint64(len(c.items))
	c.counters.messagesIn.Add(n)
	c.received.Add(n)
	c.reset()
	return true
}

// prepare adds the rows that must be in the commit of the batch.
func (c *conn) prepare() {
	durable := c.b.persistent.Load() != 0
	kept := c.session.num != 0
	if !durable && !kept {
		return
	}
	remember := false
	for i := range c.items {
		it := &c.items[i]
		switch {
		case it.again || it.entry == nil:
			continue
		case it.at < 0:
			c.prepareOrdinary(it)
		case durable && it.qos > 0:
			if m := &c.batch.Messages[it.at]; m.Retain && len(m.Payload) == 0 {
				owed, _ := c.batch.Owed.(*owedBatch)
				if owed == nil {
					owed = &owedBatch{}
					c.batch.Owed = owed
				}
				owed.clears = append(owed.clears, clearing{at: it.at, qos: it.qos})
			}
		}
		switch it.answer {
		case typePuback:
			remember = true
		case typePubrec:
			if kept {
				c.batch.Rows = append(c.batch.Rows, c.inboundRow(*it))
			}
		}
	}
	if kept && remember {
		c.batch.Rows = append(c.batch.Rows, c.seenRow())
	}
}

// unsettled ends a connection whose batch could not be stored: no word about any of its messages.
func (c *conn) unsettled(err error) {
	c.undo()
	c.reset()
	code := byte(codeUnspecified)
	if k := c.kick.Load(); k != 0 {
		code = byte(k)
	} else {
		c.b.metrics.end(code)
		c.b.log.Warn("values were not stored; the session ends without acknowledging them", "client", c.principal.ID(),
			"mqtt_id", c.session.id, "error", err)
	}
	c.end = errors.Join(errEnded, err)
	c.out.disconnect(code)
}

// acknowledge writes the acks of the batch, in order of receipt [MQTT-4.6.0-2].
func (c *conn) acknowledge() {
	for i := range c.items {
		it := &c.items[i]
		verdict := uns.Verdict{}
		if it.at >= 0 {
			m := &c.batch.Messages[it.at]
			if verdict = m.Verdict; verdict.OK() { // a topic that was deleted is another one now
				it.entry.value = m.Topic
			}
		}
		switch {
		case it.answer == 0:
		case it.entry == nil && !it.again: // a step
			c.acks = appendAck(c.acks, it.answer, it.id, it.code, c.version)
		default:
			if it.again {
				c.b.metrics.duplicates.Add(1)
				c.source.Duplicate()
			} else {
				c.remember(it, verdict.OK())
			}
			c.acks = c.appendVerdictAck(c.acks, it.answer, it.id, verdict)
		}
	}
	if len(c.acks) > 0 {
		c.out.acks(c.acks)
		c.acks = c.acks[:0]
	}
}

// remember notes a publish that is done, for the retransmission that may follow.
func (c *conn) remember(it *item, stored bool) {
	switch it.qos {
	case 1:
		if stored {
			c.session.seen.add(it.id, it.hash, c.b.o.Limits.ReceiveMaximum)
		}
	case 2:
		// A refusal on MQTT 5 ends the exchange; on 3.1.1 the client cannot know and goes on [MQTT-4.3.3-2].
		if stored || c.version < 5 {
			c.session.admit(it.id)
		}
	}
}

// announce delivers: values first through uns, then ordinary messages, then verdicts.
func (c *conn) announce() {
	if len(c.batch.Messages) > 0 {
		c.b.in.Announce(&c.batch)
	}
	for i := range c.items {
		it := &c.items[i]
		if it.again || it.entry == nil {
			continue
		}
		if it.at < 0 {
			c.b.deliverOrdinary(c, it)
			continue
		}
		if c.batch.Messages[it.at].Verdict.Reason == uns.Cleared {
			c.b.deliverCleared(&c.batch, it.at, &it.entry.name, c.session, it.qos)
		}
		if it.response != nil {
			c.reply(it)
		}
	}
}

// reset forgets the batch. Slices of the read buffer must not outlive it.
func (c *conn) reset() {
	c.settleRetained(false)
	clear(c.items)
	c.items, c.exactly = c.items[:0], 0
	c.batch.Reset()
	if cap(c.items) > 4096 {
		c.items = nil
	}
	if cap(c.acks) > keptBuffer {
		c.acks = nil
	}
}

// collect puts a message that was looked at into the batch; code is 0 or why the connection ends.
func (c *conn) collect(e *topicEntry, p *publish, it item) (code byte) {
	verdict := e.verdict
	if p.text && verdict.OK() {
		verdict = textVerdict(p.payload)
	}
	if p.retain && e.ordinary() && verdict.OK() {
		var ended bool
		if verdict, ended = c.retain(e, p); ended {
			return codeUnspecified
		}
	}
	if it.answer == typePubrec {
		c.exactly++
	}
	if verdict.OK() && e.ordinary() {
		it.retain, it.properties, it.payload = p.retain, p.properties, p.payload
	} else {
		it.at, it.response, it.correlation = len(c.batch.Messages), p.response, p.correlation
		c.batch.Messages = append(c.batch.Messages, uns.Message{Source: c.source, Workspace: e.name.Workspace, Path: e.name.Path,
			Topic: e.value, Payload: p.payload, Retain: p.retain, Origin: c.session, Verdict: verdict})
	}
	c.items = append(c.items, it)
	return 0
}

// textVerdict refuses a payload that its Payload Format Indicator calls UTF-8 text and that is none (MQTT 5, 3.3.2.3.2).
func textVerdict(payload []byte) uns.Verdict {
	for at := 0; at < len(payload); {
		r, n := utf8.DecodeRune(payload[at:])
		if r == utf8.RuneError && n <= 1 {
			return uns.Verdict{Reason: uns.PayloadInvalid, Detail: fmt.Sprintf("byte %d: not UTF-8, which the payload format indicator promises", at)}
		}
		at += n
	}
	return uns.Verdict{}
}
