package broker

import (
	"bytes"
	"encoding/binary"
	"unicode/utf8"
)

// MQTT 5 property identifiers that this package names.
const (
	propPayloadFormat   = 0x01
	propMessageExpiry   = 0x02
	propContentType     = 0x03
	propResponseTopic   = 0x08
	propCorrelation     = 0x09
	propSubscriptionID  = 0x0B
	propSessionExpiry   = 0x11
	propAuthMethod      = 0x15
	propAuthContent     = 0x16
	propRequestProblem  = 0x17
	propWillDelay       = 0x18
	propRequestResponse = 0x19
	propReasonString    = 0x1F
	propReceiveMaximum  = 0x21
	propAliasMaximum    = 0x22
	propTopicAlias      = 0x23
	propUser            = 0x26
	propMaximumPacket   = 0x27
)

// kind is how a property's value is written.
type kind uint8

const (
	kindNone kind = iota
	kindByte
	kindTwo
	kindFour
	kindVar
	kindText
	kindOctets
	kindPair
)

// propertyKinds holds the properties a client may send, by identifier.
var propertyKinds = [...]kind{
	propPayloadFormat:   kindByte,
	propMessageExpiry:   kindFour,
	propContentType:     kindText,
	propResponseTopic:   kindText,
	propCorrelation:     kindOctets,
	propSubscriptionID:  kindVar,
	propSessionExpiry:   kindFour,
	propAuthMethod:      kindText,
	propAuthContent:     kindOctets,
	propRequestProblem:  kindByte,
	propWillDelay:       kindFour,
	propRequestResponse: kindByte,
	propReasonString:    kindText,
	propReceiveMaximum:  kindTwo,
	propAliasMaximum:    kindTwo,
	propTopicAlias:      kindTwo,
	propUser:            kindPair,
	propMaximumPacket:   kindFour,
}

// propertySet is a set of property identifiers, one bit each.
type propertySet uint64

func setOf(ids ...byte) (s propertySet) {
	for _, id := range ids {
		s |= 1 << id
	}
	return s
}

// nextProperty splits the first property off b. The value of a text or octets property comes without its length,
// a pair with both lengths. ok is false when b is malformed.
func nextProperty(b []byte) (id byte, value, rest []byte, ok bool) {
	id = b[0]
	if int(id) >= len(propertyKinds) {
		return 0, nil, nil, false
	}
	b = b[1:]
	n := 0
	switch propertyKinds[id] {
	case kindNone:
		return 0, nil, nil, false
	case kindByte:
		n = 1
	case kindTwo:
		n = 2
	case kindFour:
		n = 4
	case kindVar:
		if _, n = varint(b); n <= 0 {
			return 0, nil, nil, false
		}
	case kindText, kindOctets:
		if len(b) < 2 {
			return 0, nil, nil, false
		}
		n = int(binary.BigEndian.Uint16(b))
		if b = b[2:]; len(b) < n {
			return 0, nil, nil, false
		}
		value = b[:n]
		if propertyKinds[id] == kindText && !validText(value) {
			return 0, nil, nil, false
		}
		return id, value, b[n:], true
	case kindPair:
		for range 2 {
			t, _, good := cutText(b[n:])
			if !good || !validText(t) {
				return 0, nil, nil, false
			}
			n += 2 + len(t)
		}
	}
	if len(b) < n {
		return 0, nil, nil, false
	}
	return id, b[:n], b[n:], true
}

// checkProperties returns 0 when b is a well-formed list of allowed properties, none but the user property twice. One that its
// packet does not have makes it malformed (MQTT 5, 2.2.2.2); one that only servers may send, or twice, is a protocol error.
func checkProperties(b []byte, allowed propertySet) (seen propertySet, code byte) {
	for len(b) > 0 {
		id, v, rest, ok := nextProperty(b)
		if !ok {
			return seen, codeMalformed
		}
		bit := propertySet(1) << id
		switch {
		case allowed&bit == 0 && id == propSubscriptionID && allowed == publishProperties: // [MQTT-3.3.4-6]
			return seen, codeProtocol
		case allowed&bit == 0:
			return seen, codeMalformed
		case seen&bit != 0 && id != propUser, !plausible(id, v):
			return seen, codeProtocol
		}
		seen |= bit
		b = rest
	}
	return seen, 0
}

// plausible checks the ranges that MQTT 5 sets to single properties.
func plausible(id byte, v []byte) bool {
	switch id {
	case propPayloadFormat, propRequestProblem, propRequestResponse:
		return v[0] <= 1
	case propReceiveMaximum, propMaximumPacket:
		return len(bytes.Trim(v, "\x00")) > 0
	case propSubscriptionID:
		n, _ := varint(v)
		return n > 0
	case propResponseTopic:
		return validTopic(v)
	}
	return true
}

// cutProperties splits a property list with its leading length off b.
func cutProperties(b []byte) (properties, rest []byte, ok bool) {
	n, k := varint(b)
	if k <= 0 || len(b) < k+n {
		return nil, nil, false
	}
	return b[k : k+n], b[k+n:], true
}

// cutText splits a string or binary field with its two length bytes off b.
func cutText(b []byte) (text, rest []byte, ok bool) {
	if len(b) < 2 {
		return nil, nil, false
	}
	n := int(binary.BigEndian.Uint16(b))
	if len(b) < 2+n {
		return nil, nil, false
	}
	return b[2 : 2+n], b[2+n:], true
}

// validText: well-formed UTF-8 without U+0000 [MQTT-1.5.4-1] [MQTT-1.5.4-2].
func validText(b []byte) bool { return bytes.IndexByte(b, 0) < 0 && utf8.Valid(b) }

// validTopic: a topic name, not a filter [MQTT-3.3.2-2] [MQTT-4.7.3-1].
func validTopic(b []byte) bool {
	return len(b) > 0 && bytes.IndexByte(b, '+') < 0 && bytes.IndexByte(b, '#') < 0 && validText(b)
}
