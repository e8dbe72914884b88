package broker

import (
	"bytes"
	"encoding/binary"
)

// The control frames are checked here before the MQTT library sees them: it panics on some malformed ones and accepts
// others. Each check returns 0 or the reason code with which the connection ends.

var (
	connectProperties = setOf(propSessionExpiry, propReceiveMaximum, propMaximumPacket, propAliasMaximum,
		propRequestResponse, propRequestProblem, propUser, propAuthMethod, propAuthContent)
	willProperties = setOf(propWillDelay, propPayloadFormat, propMessageExpiry, propContentType, propResponseTopic,
		propCorrelation, propUser)
	subscribeProperties   = setOf(propSubscriptionID, propUser)
	unsubscribeProperties = setOf(propUser)
	disconnectProperties  = setOf(propSessionExpiry, propReasonString, propUser)
	ackProperties         = setOf(propReasonString, propUser)
)

// checkConnect also tells the protocol version, 0 when the frame ends before it.
func checkConnect(b []byte) (version, code byte) {
	name, b, ok := cutText(b)
	if !ok || len(b) < 4 {
		return 0, codeMalformed
	}
	version, flags := b[0], b[1]
	switch {
	case string(name) == "MQTT" && (version == 4 || version == 5), string(name) == "MQIsdp" && version == 3:
	case string(name) == "MQTT" || string(name) == "MQIsdp":
		return version, codeVersion
	default:
		return 0, codeProtocol
	}
	will, willQoS, willRetain := flags&4 != 0, flags>>3&3, flags&0x20 != 0
	user, password := flags&0x80 != 0, flags&0x40 != 0
	switch {
	case flags&1 != 0, willQoS == 3, !will && (willQoS != 0 || willRetain): // [MQTT-3.1.2-3] [MQTT-3.1.2-11] [MQTT-3.1.2-12]
		return version, codeMalformed
	case version < 5 && password && !user: // [MQTT-3.1.2-22] of 3.1.1
		return version, codeMalformed
	}
	b = b[4:]
	if version == 5 {
		list, _, _ := cutProperties(b)
		if b, code = checkPropertyList(b, connectProperties); code != 0 {
			return version, code
		}
		seen, _ := checkProperties(list, connectProperties)
		if seen&setOf(propAuthContent) != 0 && seen&setOf(propAuthMethod) == 0 { // MQTT 5, 3.1.2.11.10
			return version, codeProtocol
		}
	}
	if b, ok = cutValidText(b); !ok { // client identifier
		return version, codeMalformed
	}
	if will {
		if version == 5 {
			if b, code = checkPropertyList(b, willProperties); code != 0 {
				return version, code
			}
		}
		topic, rest, ok := cutText(b)
		if !ok || !validTopic(topic) {
			return version, codeMalformed
		}
		if _, b, ok = cutText(rest); !ok {
			return version, codeMalformed
		}
	}
	if user {
		if b, ok = cutValidText(b); !ok {
			return version, codeMalformed
		}
	}
	if password {
		if _, b, ok = cutText(b); !ok {
			return version, codeMalformed
		}
	}
	if len(b) > 0 {
		return version, codeMalformed
	}
	return version, 0
}

func checkSubscribe(b []byte, version byte) (code byte) {
	if b, code = checkPacketID(b); code != 0 {
		return code
	}
	if version == 5 {
		if b, code = checkPropertyList(b, subscribeProperties); code != 0 {
			return code
		}
	}
	if len(b) == 0 { // [MQTT-3.8.3-2]
		return codeProtocol
	}
	for len(b) > 0 {
		filter, rest, ok := cutText(b)
		if b = rest; !ok || !validText(filter) || len(b) == 0 {
			return codeMalformed
		}
		o := b[0]
		if o&4 != 0 && version == 5 && bytes.HasPrefix(filter, []byte("$share/")) { // [MQTT-3.8.3-4]
			return codeProtocol
		}
		if o&3 == 3 || (version < 5 && o > 2) || o&0xC0 != 0 || o>>4&3 == 3 { // [MQTT-3.8.3-4] [MQTT-3.8.3-5]
			return codeProtocol
		}
		b = b[1:]
	}
	return 0
}

func checkUnsubscribe(b []byte, version byte) (code byte) {
	if b, code = checkPacketID(b); code != 0 {
		return code
	}
	if version == 5 {
		if b, code = checkPropertyList(b, unsubscribeProperties); code != 0 {
			return code
		}
	}
	if len(b) == 0 { // [MQTT-3.10.3-2]
		return codeProtocol
	}
	for len(b) > 0 {
		var ok bool
		if b, ok = cutValidText(b); !ok {
			return codeMalformed
		}
	}
	return 0
}

// checkAck also returns the packet identifier of a PUBACK.
func checkAck(b []byte, version byte) (id uint16, code byte) {
	if len(b) < 2 || (version < 5 && len(b) != 2) {
		return 0, codeMalformed
	}
	if version == 5 && len(b) > 3 {
		rest, code := checkPropertyList(b[3:], ackProperties)
		if code != 0 {
			return 0, code
		}
		if len(rest) > 0 {
			return 0, codeMalformed
		}
	}
	return binary.BigEndian.Uint16(b), 0
}

func checkDisconnect(b []byte, version byte) (code byte) {
	if len(b) == 0 {
		return 0
	}
	if version < 5 {
		return codeMalformed
	}
	if len(b) == 1 {
		return 0
	}
	rest, code := checkPropertyList(b[1:], disconnectProperties)
	if code == 0 && len(rest) > 0 {
		return codeMalformed
	}
	return code
}

func checkPacketID(b []byte) (rest []byte, code byte) {
	if len(b) < 2 {
		return nil, codeMalformed
	}
	if b[0] == 0 && b[1] == 0 { // [MQTT-2.2.1-3]
		return nil, codeProtocol
	}
	return b[2:], 0
}

func checkPropertyList(b []byte, allowed propertySet) (rest []byte, code byte) {
	list, rest, ok := cutProperties(b)
	if !ok {
		return nil, codeMalformed
	}
	_, code = checkProperties(list, allowed)
	return rest, code
}

func cutValidText(b []byte) (rest []byte, ok bool) {
	t, rest, ok := cutText(b)
	return rest, ok && validText(t)
}
