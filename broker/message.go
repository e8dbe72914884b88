package broker

import (
	"encoding/binary"

	"millrace/auth"
)

// message is one published message, encoded once and shared by everyone who receives it. Immutable.
type message struct {
	topic      string
	payload    []byte
	properties []byte // as the publisher sent them, without alias and expiry; empty for live values
	expires    int64  // Unix ms, 0 = never
}

func (m *message) size() int64 { return int64(len(m.topic) + len(m.payload) + len(m.properties)) }

// delivery is one message owed to one session.
type delivery struct {
	*message // nil: it is left to its row
	qos      byte
	retain   bool
	lost     bool         // its row could not be read
	wide     bool         // it goes to many receivers
	ids      []byte       // the subscription identifiers, encoded as properties
	n        uint64       // of its row, 0 = none
	weight   int64        // of the message, in bytes
	group    string       // the filter of the shared subscription by whose turn it came
	policy   *auth.Policy // the rules under which it was permitted
}

// spill leaves the message to its row.
func (d *delivery) spill() {
	if d.n != 0 {
		d.message, d.ids, d.policy = nil, nil, nil
	}
}

// appendMessage appends the frame of a delivery, with or for a topic alias where that is worth it. false: it is larger than
// the client takes [MQTT-3.1.2-24], and nothing was appended. The lock is held.
func (s *session) appendMessage(b []byte, d *delivery, id uint16, now int64) ([]byte, bool) {
	at := len(b)
	if s.aliases == nil {
		b = appendPublish(b, d, s.version, id, now, 0, false)
		if s.maxPacket > 0 && len(b)-at > int(s.maxPacket) {
			return b[:at], false
		}
		return b, true
	}
	alias, known := s.aliases.choose(d.topic)
	b = appendPublish(b, d, s.version, id, now, alias, known)
	if s.maxPacket > 0 && len(b)-at > int(s.maxPacket) && alias > 0 && !known {
		alias, b = 0, appendPublish(b[:at], d, s.version, id, now, 0, false)
	}
	if s.maxPacket > 0 && len(b)-at > int(s.maxPacket) {
		return b[:at], false
	}
	if alias > 0 && !known {
		s.aliases.learned(d.topic, alias)
	}
	return b, true
}

// appendPublish appends the frame of a delivery. now is in Unix ms. An alias that is known takes the topic's place.
func appendPublish(b []byte, d *delivery, version byte, id uint16, now int64, alias uint16, known bool) []byte {
	topic := d.topic
	if known {
		topic = ""
	}
	first := byte(typePublish<<4) | d.qos<<1
	if d.retain {
		first |= 1
	}
	n := 2 + len(topic) + len(d.payload)
	if d.qos > 0 {
		n += 2
	}
	list := 0
	if version == 5 {
		if list = len(d.properties) + len(d.ids); d.expires > 0 {
			list += 5
		}
		if alias > 0 {
			list += 3
		}
		n += varintLen(list) + list
	}
	b = appendVarint(append(b, first), n)
	b = appendText(b, topic)
	if d.qos > 0 {
		b = append(b, byte(id>>8), byte(id))
	}
	if version == 5 {
		b = appendVarint(b, list)
		if alias > 0 {
			b = append(b, propTopicAlias, byte(alias>>8), byte(alias))
		}
		if d.expires > 0 { // [MQTT-3.3.2-6]
			b = binary.BigEndian.AppendUint32(append(b, propMessageExpiry), uint32(max((d.expires-now+999)/1000, 1)))
		}
		b = append(b, d.properties...)
		b = append(b, d.ids...)
	}
	return append(b, d.payload...)
}

// forward copies the properties that go on to subscribers, unaltered and in order [MQTT-3.3.2-17], and tells the expiry.
func forward(properties []byte) (kept []byte, expiry uint32, expires bool) {
	for b := properties; len(b) > 0; {
		id, v, rest, ok := nextProperty(b)
		if !ok {
			break
		}
		switch id {
		case propMessageExpiry:
			expiry, expires = binary.BigEndian.Uint32(v), true
		case propTopicAlias:
		default:
			kept = append(kept, b[:len(b)-len(rest)]...)
		}
		b = rest
	}
	return kept, expiry, expires
}
