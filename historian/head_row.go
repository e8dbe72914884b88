package historian

import (
	"encoding/binary"
	"fmt"
)

const headRowVersion = 1

// The flags of a head row.
const (
	headHasLast     = 1 << 0
	headLastCarried = 1 << 1 // the last sample is the last of those carried
)

// headRow is the value of an H key, what must outlive a checkpoint of a series besides its chunks:
// version1, flags1, scale1, stamp varint, [length of a chunk of one and that chunk: the last sample,] a chunk
// of the samples carried, to the end.
type headRow struct {
	stamp   int64 // the last receipt stamp; 0 when there was none
	scale   uint8 // the finest of any sample
	hasLast bool
	last    Sample   // the greatest in (Time, order of arrival)
	carried []Sample // by Time, equal times in order of arrival
}

func (r *headRow) append(dst []byte) []byte {
	flags := byte(0)
	if r.hasLast {
		flags |= headHasLast
	}
	// Carried samples are newer than all that went before, so of equal times the carried one is the last.
	if n := len(r.carried); n > 0 && r.hasLast && r.carried[n-1].Time >= r.last.Time {
		flags |= headLastCarried
	}
	dst = append(dst, headRowVersion, flags, r.scale)
	dst = appendVarint(dst, r.stamp)
	if flags == headHasLast {
		var room [256]byte
		last := encodeChunk(room[:0], []Sample{r.last})
		dst = binary.AppendUvarint(dst, uint64(len(last)))
		dst = append(dst, last...)
	}
	if len(r.carried) > 0 {
		dst = encodeChunk(dst, r.carried)
	}
	return dst
}

// read fills r from b, reusing the room of r.carried. Nothing of b is kept.
func (r *headRow) read(b []byte, id Series) error {
	o := octets{b: b}
	if v := o.octet(); v != headRowVersion {
		return fmt.Errorf("head row of series %d: version %d: %w", id, v, errCorrupt)
	}
	flags := o.octet()
	r.scale = o.octet()
	r.stamp = o.varint()
	r.carried = r.carried[:0]
	r.hasLast = flags&headHasLast != 0
	if flags == headHasLast {
		one, err := decodeChunk(o.take(o.uvarint()), id, nil)
		if err != nil || len(one) != 1 {
			return fmt.Errorf("head row of series %d: last sample: %w", id, errCorrupt)
		}
		r.last = one[0]
	}
	if o.bad || r.scale > maxScale {
		return fmt.Errorf("head row of series %d: %w", id, errCorrupt)
	}
	if len(o.b) == 0 {
		if flags&headLastCarried != 0 {
			return fmt.Errorf("head row of series %d: nothing carried: %w", id, errCorrupt)
		}
		return nil
	}
	var err error
	if r.carried, err = decodeChunk(o.b, id, r.carried); err != nil {
		return fmt.Errorf("head row of series %d: %w", id, err)
	}
	if flags&headLastCarried != 0 {
		r.last = r.carried[len(r.carried)-1]
	}
	return nil
}
