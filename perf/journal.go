package perf

// track remembers what one device sent on one topic and what became of it, in about one bit per value: values
// are replayed from the signal's seed, and transmissions are runs of consecutive value numbers.
// Only the fleet's thread writes it; read it when the fleet has stopped or inside Fleet.call.
type track struct {
	device, tag int
	path        string

	runs    []run
	sent    uint32 // transmissions, resends included
	fresh   uint32 // number of the next value never sent
	acked   []uint64
	refused map[uint32]byte // transmission → reason code
}

// run is count transmissions of the values first, first+1, …
type run struct{ first, count uint32 }

// add notes the transmission of value number n and returns the transmission's number.
func (t *track) add(n uint32) uint32 {
	if last := len(t.runs) - 1; last >= 0 && t.runs[last].first+t.runs[last].count == n {
		t.runs[last].count++
	} else {
		t.runs = append(t.runs, run{first: n, count: 1})
	}
	at := t.sent
	t.sent++
	if int(at/64) == len(t.acked) {
		t.acked = append(t.acked, 0)
	}
	return at
}

func (t *track) ack(at uint32, code byte) {
	if code >= 0x80 {
		if t.refused == nil {
			t.refused = map[uint32]byte{}
		}
		t.refused[at] = code
		return
	}
	t.acked[at/64] |= 1 << (at % 64)
}

func (t *track) isAcked(at uint32) bool { return t.acked[at/64]&(1<<(at%64)) != 0 }

// transmission is one publish as the read-back sees it.
type transmission struct {
	value uint32 // which value of the topic, counted from 0
	state fate
}

type fate uint8

const (
	fateOpen    fate = iota // never acknowledged: may be stored or not
	fateAcked               // acknowledged as stored: must be there
	fateRefused             // acknowledged with a refusal: must not be there
)

// transmissions appends what was sent on the topic to dst, in order of sending.
func (t *track) transmissions(dst []transmission) []transmission {
	at := uint32(0)
	for _, r := range t.runs {
		for n := r.first; n < r.first+r.count; n++ {
			f := fateOpen
			if t.isAcked(at) {
				f = fateAcked
			} else if _, ok := t.refused[at]; ok {
				f = fateRefused
			}
			dst = append(dst, transmission{value: n, state: f})
			at++
		}
	}
	return dst
}
