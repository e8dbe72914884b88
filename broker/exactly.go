package broker

import (
	"encoding/binary"

	"millrace/uns"
)

// QoS 2 of a client's publishes: the identifier is remembered from the publish, in whose commit it is, to its PUBREL,
// and a publish under a remembered identifier is acknowledged and nothing else [MQTT-4.3.3-2].

// exactlyOnce decides about a QoS 2 publish: again says that it is stored already; code is 0 or why the connection ends.
func (c *conn) exactlyOnce(id uint16) (again bool, code byte) {
	if c.inBatch(id) && !c.settle() {
		return false, codeUnspecified
	}
	known, n := c.session.admitted(id)
	if !known && n+c.exactly >= c.b.o.Limits.ReceiveMaximum { // [MQTT-3.3.4-7] [MQTT-3.3.4-8]
		return false, codeTooMany
	}
	return known, 0
}

// inBatch says whether the batch holds a QoS 2 publish under the identifier.
func (c *conn) inBatch(id uint16) bool {
	if c.exactly == 0 {
		return false
	}
	for i := range c.items {
		if it := &c.items[i]; it.qos == 2 && it.id == id {
			return true
		}
	}
	return false
}

// exchange takes a step of a QoS 2 exchange; code is 0 or why the connection ends.
func (c *conn) exchange(typ, flags byte, body []byte) (code byte) {
	want := byte(0)
	if typ == typePubrel {
		want = 2
	}
	if flags != want { // [MQTT-3.6.1-1]
		return codeMalformed
	}
	id, code := checkAck(body, c.version)
	if code != 0 {
		return code
	}
	s := c.session
	switch typ {
	case typePubrel:
		if c.inBatch(id) && !c.settle() {
			return codeUnspecified
		}
		it := item{answer: typePubcomp, at: -1, id: id}
		if !s.unadmit(id) {
			it.code = codeNoPacketID
		} else if s.num != 0 {
			c.batch.Rows = append(c.batch.Rows, uns.Row{Key: idKey(rowInbound, s.num, id)})
		}
		c.items = append(c.items, it)
	case typePubrec:
		reason := byte(0)
		if len(body) > 2 {
			reason = body[2]
		}
		known, wake, row := s.received(id, reason)
		if wake {
			c.out.wakeLive(false)
		}
		if known && reason >= 0x80 {
			return 0
		}
		it := item{answer: typePubrel, at: -1, id: id}
		if !known {
			it.code = codeNoPacketID
		}
		if it.fresh = row.Key != nil; it.fresh {
			c.batch.Rows = append(c.batch.Rows, row)
		}
		c.items = append(c.items, it)
	case typePubcomp:
		if s.completed(id) {
			c.out.wakeLive(false)
		}
	}
	return 0
}

// admitted says whether the identifier is in use, and how many are.
func (s *session) admitted(id uint16) (known bool, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, known = s.inbound[id]
	return known, len(s.inbound)
}

func (s *session) admit(id uint16) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return
	}
	if s.inbound == nil {
		s.inbound = map[uint16]struct{}{}
	}
	s.inbound[id] = struct{}{}
}

// unadmit frees an identifier; known says that it was in use.
func (s *session) unadmit(id uint16) (known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, known = s.inbound[id]
	delete(s.inbound, id)
	return known
}

// inboundRow remembers a QoS 2 publish in its commit: 1, or 0 when it is refused there and the identifier is free again.
func (c *conn) inboundRow(it item) uns.Row {
	return uns.Row{Key: idKey(rowInbound, c.session.num, it.id), Late: func(dst []byte) []byte {
		if it.at >= 0 && c.version == 5 && !c.batch.Messages[it.at].Verdict.OK() {
			return append(dst, 0)
		}
		return append(dst, 1)
	}}
}

// undo puts the identifiers back as they were before a batch that could not be stored: nothing of it was answered.
func (c *conn) undo() {
	for i := range c.items {
		switch it := &c.items[i]; {
		case it.answer == typePubcomp && it.code == codeSuccess:
			c.session.admit(it.id)
		case it.answer == typePubrel && it.fresh:
			c.session.unreceived(it.id)
		}
	}
}

// seenRow remembers the QoS 1 publishes of the batch that are stored, in their commit, so that a retransmission after a
// crash is known as one. It takes the place of the row of Receive Maximum batches ago.
func (c *conn) seenRow() uns.Row {
	s := c.session
	s.turn++
	key := binary.BigEndian.AppendUint16(rowKey(rowSeen, s.num), uint16(s.turn%uint64(c.b.o.Limits.ReceiveMaximum)))
	return uns.Row{Key: key, Value: binary.BigEndian.AppendUint64(nil, s.turn), Late: func(dst []byte) []byte {
		for i := range c.items {
			it := &c.items[i]
			if it.qos != 1 || it.again || it.entry == nil || it.at >= 0 && !c.batch.Messages[it.at].Verdict.OK() {
				continue
			}
			dst = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(dst, it.id), it.hash)
		}
		return dst
	}}
}
