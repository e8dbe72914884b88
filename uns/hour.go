package uns

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"time"
)

// Hour is what became of one API client's messages within one hour of UTC.
type Hour struct {
	Start     time.Time
	Accepted  uint64            // stored
	Late      uint64            // of these, those whose own time lay before an earlier value's
	Duplicate uint64            // sent again after they had been stored, and not stored again
	Gaps      uint64            // silences of topics, beyond three times their expected interval, that ended in this hour
	Silent    time.Duration     // how long those silences were, the expected interval taken off
	Refused   map[string]uint64 // by reason; nil when none was
}

// empty: nothing happened.
func (h *Hour) empty() bool {
	return h.Accepted == 0 && h.Late == 0 && h.Duplicate == 0 && h.Gaps == 0 && len(h.Refused) == 0
}

// Add counts o's messages to h's. The hour stays h's.
func (h *Hour) Add(o *Hour) {
	h.Accepted += o.Accepted
	h.Late += o.Late
	h.Duplicate += o.Duplicate
	h.Gaps += o.Gaps
	h.Silent += o.Silent
	for reason, n := range o.Refused {
		if h.Refused == nil {
			h.Refused = map[string]uint64{}
		}
		h.Refused[reason] += n
	}
}

// total is all that a source has counted since start.
func (s *Source) total() Hour {
	return Hour{Accepted: s.Accepted(), Late: s.late.Load(), Duplicate: s.duplicate.Load(), Gaps: s.gaps.Load(),
		Silent: time.Duration(s.gapNS.Load()), Refused: s.Refused()}
}

// less is h without what o had.
func (h Hour) less(o *Hour) Hour {
	d := Hour{Accepted: h.Accepted - o.Accepted, Late: h.Late - o.Late, Duplicate: h.Duplicate - o.Duplicate, Gaps: h.Gaps - o.Gaps, Silent: h.Silent - o.Silent}
	for reason, n := range h.Refused {
		if n > o.Refused[reason] {
			d.Add(&Hour{Refused: map[string]uint64{reason: n - o.Refused[reason]}})
		}
	}
	return d
}

// The row of an hour: key "ul", the client, 0, the hour since 1970 in four octets, big-endian; value a version octet, then
// accepted, late, duplicate, gaps and ms of silence as varints, then for each reason the length of its name, the name, the count.
const ledgerVersion = 1

func ledgerKeys(client string) []byte { return append(append([]byte(ledgerPrefix), client...), 0) }

func ledgerKey(client string, hour time.Time) []byte {
	return binary.BigEndian.AppendUint32(ledgerKeys(client), uint32(hour.Unix()/3600))
}

func parseLedgerKey(key []byte) (client string, hour time.Time, ok bool) {
	at := len(key) - 5
	if at < len(ledgerPrefix) || key[at] != 0 || !strings.HasPrefix(string(key), ledgerPrefix) {
		return "", time.Time{}, false
	}
	return string(key[len(ledgerPrefix):at]), time.Unix(int64(binary.BigEndian.Uint32(key[at+1:]))*3600, 0).UTC(), true
}

func (h *Hour) append(b []byte) []byte {
	b = append(b, ledgerVersion)
	for _, n := range []uint64{h.Accepted, h.Late, h.Duplicate, h.Gaps, uint64(h.Silent / time.Millisecond)} {
		b = binary.AppendUvarint(b, n)
	}
	for r := Cleared + 1; r < reasons; r++ {
		if n := h.Refused[r.String()]; n > 0 {
			b = append(binary.AppendUvarint(b, uint64(len(r.String()))), r.String()...)
			b = binary.AppendUvarint(b, n)
		}
	}
	return b
}

func parseHour(b []byte) (h Hour, err error) {
	if len(b) == 0 || b[0] != ledgerVersion {
		return h, fmt.Errorf("not a row of version %d", ledgerVersion)
	}
	b = b[1:]
	ok := true
	next := func() uint64 {
		n, k := binary.Uvarint(b)
		if k <= 0 {
			ok = false
			return 0
		}
		b = b[k:]
		return n
	}
	h.Accepted, h.Late, h.Duplicate, h.Gaps = next(), next(), next(), next()
	h.Silent = time.Duration(min(next(), math.MaxInt64/uint64(time.Millisecond))) * time.Millisecond
	for ok && len(b) > 0 {
		n := next()
		if !ok || n > uint64(len(b)) {
			return Hour{}, fmt.Errorf("the row is cut short")
		}
		reason := string(b[:n])
		b = b[n:]
		h.Add(&Hour{Refused: map[string]uint64{reason: next()}})
	}
	if !ok {
		return Hour{}, fmt.Errorf("the row is cut short")
	}
	return h, nil
}
