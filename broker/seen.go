package broker

import "hash/crc32"

// seenIDs remembers the publishes of a session by packet identifier, so that a retransmission (DUP, the same
// identifier, the same bytes) is not stored a second time (contract section 4). The last Receive Maximum of them are
// kept; a publish without DUP takes the place of its identifier by being newer. One write per publish; the look-up walks
// the ring, and only a DUP pays for it.
type seenIDs struct {
	ring []seenID // grows with what the client has open
	next int
}

type seenID struct {
	id   uint16
	hash uint32 // of the frame behind its fixed header
}

const firstSeen = 16

// add notes a publish that is stored; most is Receive Maximum.
func (s *seenIDs) add(id uint16, hash uint32, most int) {
	if len(s.ring) < most && s.next == len(s.ring) {
		if len(s.ring) == cap(s.ring) {
			grown := make([]seenID, len(s.ring), min(max(firstSeen, 2*cap(s.ring)), most))
			copy(grown, s.ring)
			s.ring = grown
		}
		s.ring = append(s.ring, seenID{id, hash})
		s.next = len(s.ring)
		if s.next == most {
			s.next = 0
		}
		return
	}
	s.ring[s.next] = seenID{id, hash}
	if s.next++; s.next == len(s.ring) {
		s.next = 0
	}
}

// has says whether the newest publish under the identifier had this hash.
func (s *seenIDs) has(id uint16, hash uint32) bool {
	for i, at := 0, s.next; i < len(s.ring); i++ {
		if at--; at < 0 {
			at = len(s.ring) - 1
		}
		if s.ring[at].id == id {
			return s.ring[at].hash == hash
		}
	}
	return false
}

// frameHash is over topic, identifier, properties and payload. It must be the same after a restart.
func frameHash(body []byte) uint32 { return crc32.Checksum(body, castagnoli) }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)
