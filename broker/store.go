package broker

import (
	"encoding/binary"
	"encoding/json"

	"millrace/uns"
)

// The rows of sessions that outlive their connection (FORMAT.md). num is the number of a session's incarnation: it is
// never used again, so rows that a crash left behind belong to nobody and are deleted at the start.
const (
	rowSession = "bs" // num4                -> sessionRow
	rowFilter  = "bu" // num4 filter         -> filterRow
	rowQueued  = "bq" // num4 n8             -> a message as it will be delivered
	rowFlight  = "bf" // num4 n8             -> id2 state1; a number is never used again, an identifier is
	rowInbound = "bi" // num4 id2            -> nothing: a QoS 2 publish that was stored and not released
	rowSeen    = "bd" // num4 slot2          -> turn8 { id2 hash4 }: publishes of one batch, for retransmissions
	rowNumber  = "bn" //                     -> the highest num given out
)

// sessionRow is what outlives the process of a session.
type sessionRow struct {
	ID     string `json:"id"`    // MQTT client identifier
	Owner  string `json:"owner"` // API client
	Expiry uint32 `json:"expiry"`
	Ended  int64  `json:"ended,omitempty"` // Unix seconds; 0: it had a connection
}

type filterRow struct {
	QoS               byte `json:"qos"`
	NoLocal           bool `json:"noLocal,omitempty"`
	RetainAsPublished bool `json:"retainAsPublished,omitempty"`
	ID                int  `json:"id,omitempty"`
}

func rowKey(kind string, num uint32) []byte {
	return binary.BigEndian.AppendUint32(append(make([]byte, 0, 16), kind...), num)
}

func queuedKey(num uint32, n uint64) []byte {
	return binary.BigEndian.AppendUint64(rowKey(rowQueued, num), n)
}

func flightKey(num uint32, n uint64) []byte {
	return binary.BigEndian.AppendUint64(rowKey(rowFlight, num), n)
}

func idKey(kind string, num uint32, id uint16) []byte {
	return binary.BigEndian.AppendUint16(rowKey(kind, num), id)
}

// queuedN reads the number out of the key of a queued message; 0 is none.
func queuedN(key []byte) uint64 {
	if len(key) != 14 {
		return 0
	}
	return binary.BigEndian.Uint64(key[6:])
}

func filterKey(num uint32, filter string) []byte { return append(rowKey(rowFilter, num), filter...) }

// numOf reads the number out of a key of one of the kinds above.
func numOf(key []byte) (num uint32, rest []byte, ok bool) {
	if len(key) < 6 {
		return 0, nil, false
	}
	return binary.BigEndian.Uint32(key[2:]), key[6:], true
}

func jsonRow(key []byte, v any) uns.Row {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // plain structs
	}
	return uns.Row{Key: key, Value: text}
}

// appendQueued appends a message as a queue row without its payload, which follows to the end.
func appendQueued(b []byte, d *delivery, topic string, properties []byte, expires int64) []byte {
	flags := d.qos << 1
	if d.retain {
		flags |= 1
	}
	version := byte(2) // 1 had its expiry in seconds
	if d.group != "" {
		version = 3 // has the group besides
	}
	b = append(b, version, flags)
	b = binary.AppendUvarint(b, uint64(expires))
	b = append(binary.AppendUvarint(b, uint64(len(topic))), topic...)
	b = append(binary.AppendUvarint(b, uint64(len(properties))), properties...)
	b = append(binary.AppendUvarint(b, uint64(len(d.ids))), d.ids...)
	if version == 3 {
		b = append(binary.AppendUvarint(b, uint64(len(d.group))), d.group...)
	}
	return b
}

// parseQueued reads a queue row; nothing of the result points into b.
func parseQueued(b []byte) (d delivery, ok bool) {
	if len(b) < 2 || b[0] < 1 || b[0] > 3 {
		return d, false
	}
	version := b[0]
	b = append([]byte(nil), b...)
	d.qos, d.retain = b[1]>>1&3, b[1]&1 != 0
	m := &message{}
	b = b[2:]
	expires, k := binary.Uvarint(b)
	if k <= 0 {
		return d, false
	}
	if m.expires, b = int64(expires), b[k:]; version == 1 {
		m.expires *= 1000
	}
	var topic, group []byte
	parts := []*[]byte{&topic, &m.properties, &d.ids, &group}
	if version < 3 {
		parts = parts[:3]
	}
	for _, part := range parts {
		n, k := binary.Uvarint(b)
		if k <= 0 || n > uint64(len(b)-k) {
			return d, false
		}
		*part, b = b[k:k+int(n):k+int(n)], b[k+int(n):]
	}
	m.topic, m.payload, d.group = string(topic), b, string(group)
	d.message, d.weight = m, m.size()
	return d, true
}
