package perf

import (
	"encoding/binary"
	"errors"
	"slices"
)

// MQTT control packet types, the high nibble of the first byte. [MQTT-2.1.2]
const (
	typeConnect    = 1
	typeConnack    = 2
	typePublish    = 3
	typePuback     = 4
	typeSubscribe  = 8
	typeSuback     = 9
	typePingreq    = 12
	typePingresp   = 13
	typeDisconnect = 14
)

const (
	version311 = 4
	version5   = 5
)

const (
	propResponseTopic   = 0x08
	propCorrelation     = 0x09
	propReceiveMaximum  = 0x21
	propSubscriptionID  = 0x0B
	propContentType     = 0x03
	propPayloadFormat   = 0x01
	propMessageExpiry   = 0x02
	propTopicAlias      = 0x23
	propUserProperty    = 0x26
	propSessionExpiry   = 0x11
	propAssignedClient  = 0x12
	propServerKeepAlive = 0x13
	propAuthMethod      = 0x15
	propAuthContent     = 0x16
	propResponseInfo    = 0x1A
	propServerReference = 0x1C
	propReasonString    = 0x1F
	propAliasMaximum    = 0x22
	propMaximumQoS      = 0x24
	propRetainAvailable = 0x25
	propMaximumPacket   = 0x27
	propWildcard        = 0x28
	propSubscriptionIDs = 0x29
	propShared          = 0x2A
)

var errMalformed = errors.New("perf: malformed packet from the server")

func appendString[T string | []byte](b []byte, s T) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(len(s)))
	return append(b, s...)
}

func appendVarint(b []byte, n int) []byte {
	for n >= 0x80 {
		b = append(b, byte(n)|0x80)
		n >>= 7
	}
	return append(b, byte(n))
}

func varintSize(n int) int {
	switch {
	case n < 1<<7:
		return 1
	case n < 1<<14:
		return 2
	case n < 1<<21:
		return 3
	}
	return 4
}

// appendConnect encodes a CONNECT with a clean session and no will.
func appendConnect(b []byte, version byte, clientID, user, password string, keepAlive uint16) []byte {
	return appendConnectWindow(b, version, clientID, user, password, keepAlive, 0)
}

// appendConnectWindow is appendConnect with a Receive Maximum, which only MQTT 5 has; 0 names none.
func appendConnectWindow(b []byte, version byte, clientID, user, password string, keepAlive, window uint16) []byte {
	n := 10 + 2 + len(clientID)
	flags := byte(0x02)
	if user != "" {
		flags |= 0x80
		n += 2 + len(user)
	}
	if password != "" {
		flags |= 0x40
		n += 2 + len(password)
	}
	props := 0
	if version == version5 {
		if window > 0 {
			props = 3
		}
		n += 1 + props
	}
	b = append(b, typeConnect<<4)
	b = appendVarint(b, n)
	b = appendString(b, "MQTT")
	b = append(b, version, flags)
	b = binary.BigEndian.AppendUint16(b, keepAlive)
	if version == version5 {
		b = append(b, byte(props))
		if props > 0 {
			b = append(b, propReceiveMaximum, byte(window>>8), byte(window))
		}
	}
	b = appendString(b, clientID)
	if user != "" {
		b = appendString(b, user)
	}
	if password != "" {
		b = appendString(b, password)
	}
	return b
}

// appendSubscribe encodes a SUBSCRIBE for filters, all at qos.
func appendSubscribe(b []byte, version byte, id uint16, qos byte, filters ...string) []byte {
	n := 2
	for _, f := range filters {
		n += 2 + len(f) + 1
	}
	if version == version5 {
		n++
	}
	b = append(b, typeSubscribe<<4|0x02)
	b = appendVarint(b, n)
	b = binary.BigEndian.AppendUint16(b, id)
	if version == version5 {
		b = append(b, 0)
	}
	for _, f := range filters {
		b = append(appendString(b, f), qos)
	}
	return b
}

// subscribed says whether a SUBACK grants each of n filters.
func subscribed(body []byte, n int) bool {
	return len(body) >= 2+n && !slices.ContainsFunc(body[len(body)-n:], func(code byte) bool { return code > 2 })
}

// appendPublish encodes a QoS 1 PUBLISH. A response topic is sent only in MQTT 5; correlation goes with it.
func appendPublish(b []byte, version byte, topic []byte, id uint16, responseTopic string, correlation uint64, payload []byte) []byte {
	n := 2 + len(topic) + 2 + len(payload)
	props := 0
	if version == version5 {
		if responseTopic != "" {
			props = 3 + len(responseTopic) + 3 + 8
		}
		n += varintSize(props) + props
	}
	b = append(b, typePublish<<4|1<<1)
	b = appendVarint(b, n)
	b = appendString(b, topic)
	b = binary.BigEndian.AppendUint16(b, id)
	if version == version5 {
		b = appendVarint(b, props)
		if props > 0 {
			b = append(b, propResponseTopic)
			b = appendString(b, responseTopic)
			b = append(b, propCorrelation, 0, 8)
			b = binary.BigEndian.AppendUint64(b, correlation)
		}
	}
	return append(b, payload...)
}

func appendPuback(b []byte, id uint16) []byte {
	return append(b, typePuback<<4, 2, byte(id>>8), byte(id))
}

func appendPingreq(b []byte) []byte    { return append(b, typePingreq<<4, 0) }
func appendDisconnect(b []byte) []byte { return append(b, typeDisconnect<<4, 0) }

// nextPacket cuts one whole packet off the front of b. It returns size 0 while the packet is incomplete; body
// is a view into b.
func nextPacket(b []byte) (first byte, body []byte, size int, err error) {
	if len(b) < 2 {
		return 0, nil, 0, nil
	}
	n, shift := 0, 0
	for i := 1; i < len(b); i++ {
		n |= int(b[i]&0x7f) << shift
		if b[i] < 0x80 {
			if len(b) < i+1+n {
				return 0, nil, 0, nil
			}
			return b[0], b[i+1 : i+1+n], i + 1 + n, nil
		}
		if shift += 7; shift > 21 {
			return 0, nil, 0, errMalformed
		}
	}
	return 0, nil, 0, nil
}

func readVarint(b []byte) (n, size int, ok bool) {
	for i := 0; i < len(b) && i < 4; i++ {
		n |= int(b[i]&0x7f) << (7 * i)
		if b[i] < 0x80 {
			return n, i + 1, true
		}
	}
	return 0, 0, false
}

// delivery is an incoming PUBLISH; its slices are views into the read buffer.
type delivery struct {
	topic       []byte
	retained    bool
	id          uint16 // 0 at QoS 0
	correlation []byte
	payload     []byte
}

func parsePublish(version, first byte, body []byte) (d delivery, err error) {
	if len(body) < 2 {
		return d, errMalformed
	}
	n := int(binary.BigEndian.Uint16(body))
	if len(body) < 2+n {
		return d, errMalformed
	}
	d.topic, body, d.retained = body[2:2+n], body[2+n:], first&1 != 0
	if first&0x06 != 0 {
		if len(body) < 2 {
			return d, errMalformed
		}
		d.id, body = binary.BigEndian.Uint16(body), body[2:]
	}
	if version == version5 {
		props, size, ok := readVarint(body)
		if !ok || len(body) < size+props {
			return d, errMalformed
		}
		err = eachProperty(body[size:size+props], func(id byte, value []byte) {
			if id == propCorrelation {
				d.correlation = value
			}
		})
		body = body[size+props:]
	}
	d.payload = body
	return d, err
}

// connack is the server's answer to CONNECT.
type connack struct {
	code           byte
	receiveMaximum int // 65535 unless the server names less
	reason         string
}

func parseConnack(version byte, body []byte) (c connack, err error) {
	if len(body) < 2 {
		return c, errMalformed
	}
	c.code, c.receiveMaximum = body[1], 65535
	if version != version5 || len(body) == 2 {
		return c, nil
	}
	props, size, ok := readVarint(body[2:])
	if !ok || len(body) < 2+size+props {
		return c, errMalformed
	}
	err = eachProperty(body[2+size:2+size+props], func(id byte, value []byte) {
		switch id {
		case propReceiveMaximum:
			c.receiveMaximum = int(binary.BigEndian.Uint16(value))
		case propReasonString:
			c.reason = string(value)
		}
	})
	return c, err
}

// parsePuback returns the packet id and the reason code; MQTT 3.1.1 and the short MQTT 5 form mean success.
func parsePuback(body []byte) (id uint16, code byte, err error) {
	if len(body) < 2 {
		return 0, 0, errMalformed
	}
	if len(body) > 2 {
		code = body[2]
	}
	return binary.BigEndian.Uint16(body), code, nil
}

// eachProperty walks an MQTT 5 property list. Values of strings and binary are given without their length.
func eachProperty(b []byte, f func(id byte, value []byte)) error {
	for len(b) > 0 {
		id := b[0]
		b = b[1:]
		n, skip := 0, 0
		switch id {
		case propPayloadFormat, propMaximumQoS, propRetainAvailable, propWildcard, propSubscriptionIDs, propShared:
			n = 1
		case propReceiveMaximum, propTopicAlias, propAliasMaximum, propServerKeepAlive:
			n = 2
		case propMessageExpiry, propSessionExpiry, propMaximumPacket:
			n = 4
		case propSubscriptionID:
			_, size, ok := readVarint(b)
			if !ok {
				return errMalformed
			}
			n = size
		case propContentType, propResponseTopic, propCorrelation, propAssignedClient, propAuthMethod,
			propAuthContent, propResponseInfo, propServerReference, propReasonString:
			if len(b) < 2 {
				return errMalformed
			}
			skip, n = 2, int(binary.BigEndian.Uint16(b))
		case propUserProperty:
			for range 2 {
				if len(b) < 2 || len(b) < 2+int(binary.BigEndian.Uint16(b)) {
					return errMalformed
				}
				b = b[2+int(binary.BigEndian.Uint16(b)):]
			}
			continue
		default:
			return errMalformed
		}
		if len(b) < skip+n {
			return errMalformed
		}
		f(id, b[skip:skip+n])
		b = b[skip+n:]
	}
	return nil
}
