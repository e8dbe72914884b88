package broker

import "encoding/binary"

// Packet types of the first nibble.
const (
	typeConnect     = 1
	typeConnack     = 2
	typePublish     = 3
	typePuback      = 4
	typePubrec      = 5
	typePubrel      = 6
	typePubcomp     = 7
	typeSubscribe   = 8
	typeUnsubscribe = 10
	typePingreq     = 12
	typeDisconnect  = 14
)

// Reason codes this package sends; on MQTT 3.1.1 a code means an end of the connection without words.
const (
	codeSuccess         = 0x00
	codeNoSubscription  = 0x11
	codeUnspecified     = 0x80
	codeMalformed       = 0x81
	codeProtocol        = 0x82
	codeUnable          = 0x83 // implementation specific error
	codeVersion         = 0x84
	codeClientID        = 0x85
	codeBadPassword     = 0x86
	codeNotAuthorized   = 0x87
	codeBusy            = 0x89
	codeBanned          = 0x8A
	codeShuttingDown    = 0x8B
	codeBadMethod       = 0x8C
	codeKeepAlive       = 0x8D
	codeTakenOver       = 0x8E
	codeFilterInvalid   = 0x8F
	codeTopicInvalid    = 0x90
	codeNoPacketID      = 0x92 // packet identifier not found
	codeTooMany         = 0x93 // Receive Maximum exceeded
	codeAliasInvalid    = 0x94
	codeTooLarge        = 0x95
	codeQuota           = 0x97
	codeAdministrative  = 0x98
	codePayloadInvalid  = 0x99
	codeQoSNotSupported = 0x9B
	codeConnectRate     = 0x9F
)

// varint reads a variable byte integer. n is its length, 0 when b is too short, -1 when it is malformed.
func varint(b []byte) (v, n int) {
	for i := 0; i < 4; i++ {
		if i >= len(b) {
			return 0, 0
		}
		v |= int(b[i]&0x7F) << (7 * i)
		if b[i] < 0x80 {
			return v, i + 1
		}
	}
	return 0, -1
}

func varintLen(v int) int {
	switch {
	case v < 1<<7:
		return 1
	case v < 1<<14:
		return 2
	case v < 1<<21:
		return 3
	}
	return 4
}

func appendVarint(b []byte, v int) []byte {
	for v >= 0x80 {
		b = append(b, byte(v)|0x80)
		v >>= 7
	}
	return append(b, byte(v))
}

func appendText[T string | []byte](b []byte, s T) []byte {
	b = append(b, byte(len(s)>>8), byte(len(s)))
	return append(b, s...)
}

// header reads a fixed header: the size of the whole frame and of the header itself.
// size 0: more bytes are needed; -1: the length is malformed [MQTT-1.5.5-1].
func header(b []byte) (size, head int) {
	if len(b) < 2 {
		return 0, 0
	}
	n, k := varint(b[1:])
	if k <= 0 {
		return k, 0
	}
	return 1 + k + n, 1 + k
}

// publish is a parsed inbound PUBLISH. Its slices point into the read buffer.
type publish struct {
	dup         bool
	qos         byte
	retain      bool
	hasAlias    bool
	alias       uint16
	id          uint16
	topic       []byte
	properties  []byte // all of them, as sent
	response    []byte // Response Topic
	correlation []byte
	text        bool // the payload is said to be text
	payload     []byte
}

// actedOn are the properties of a PUBLISH that mean something to the box.
var actedOn = setOf(propPayloadFormat, propTopicAlias, propResponseTopic, propCorrelation)

// publishProperties a client may send with PUBLISH; a subscription identifier is none of them [MQTT-3.3.4-6].
var publishProperties = setOf(propPayloadFormat, propMessageExpiry, propContentType, propResponseTopic, propCorrelation,
	propTopicAlias, propUser)

// parse reads the body of a PUBLISH; code is 0 or why the connection ends. The topic's characters are not checked here:
// a topic that was met before has been checked then.
func (p *publish) parse(flags byte, b []byte, version byte) (code byte) {
	*p = publish{qos: flags >> 1 & 3, retain: flags&1 != 0, dup: flags&8 != 0}
	if p.qos == 3 || (p.qos == 0 && flags&8 != 0) { // [MQTT-3.3.1-4] [MQTT-3.3.1-2]
		return codeMalformed
	}
	var ok bool
	if p.topic, b, ok = cutText(b); !ok {
		return codeMalformed
	}
	if p.qos > 0 {
		if len(b) < 2 {
			return codeMalformed
		}
		if p.id = binary.BigEndian.Uint16(b); p.id == 0 { // [MQTT-2.2.1-3]
			return codeProtocol
		}
		b = b[2:]
	}
	if version == 5 {
		if p.properties, b, ok = cutProperties(b); !ok {
			return codeMalformed
		}
		if len(p.properties) > 0 {
			seen, code := checkProperties(p.properties, publishProperties)
			if code != 0 {
				return code
			}
			if seen&actedOn != 0 {
				p.take()
			}
		}
	}
	p.payload = b
	return 0
}

// take picks out the properties the box acts on; they have been checked.
func (p *publish) take() {
	for b := p.properties; len(b) > 0; {
		id, v, rest, ok := nextProperty(b)
		if !ok {
			return
		}
		switch id {
		case propTopicAlias:
			p.hasAlias, p.alias = true, binary.BigEndian.Uint16(v)
		case propResponseTopic:
			p.response = v
		case propCorrelation:
			p.correlation = v
		case propPayloadFormat:
			p.text = v[0] == 1
		}
		b = rest
	}
}

// appendAck appends a PUBACK. MQTT 5 leaves a success code out, 3.1.1 has none.
func appendAck(b []byte, typ byte, id uint16, code, version byte) []byte {
	first := typ << 4
	if typ == typePubrel {
		first |= 2 // [MQTT-3.6.1-1]
	}
	if version == 5 && code != codeSuccess {
		return append(b, first, 3, byte(id>>8), byte(id), code)
	}
	return append(b, first, 2, byte(id>>8), byte(id))
}

// appendDisconnect appends an MQTT 5 DISCONNECT with a reason.
func appendDisconnect(b []byte, code byte) []byte { return append(b, typeDisconnect<<4, 1, code) }
