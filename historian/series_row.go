package historian

import (
	"encoding/binary"
	"fmt"
)

const seriesRowVersion = 1

// seriesRow is the value of an I key: version1, class1, classes1, created varint, name length and octets,
// meta to the end.
type seriesRow struct {
	class   Class
	classes uint8 // bit per class the series ever had: where its chunks may lie
	created int64
	name    []byte
	meta    []byte
}

func (r *seriesRow) append(dst []byte) []byte {
	dst = append(dst, seriesRowVersion, byte(r.class), r.classes)
	dst = appendVarint(dst, r.created)
	dst = binary.AppendUvarint(dst, uint64(len(r.name)))
	dst = append(dst, r.name...)
	return append(dst, r.meta...)
}

// readSeriesRow reads a row; name and meta are part of b.
func readSeriesRow(b []byte) (r seriesRow, err error) {
	o := octets{b: b}
	if v := o.octet(); v != seriesRowVersion {
		return r, fmt.Errorf("series row: version %d: %w", v, errCorrupt)
	}
	r.class = Class(o.octet())
	r.classes = o.octet()
	r.created = o.varint()
	r.name = o.take(o.uvarint())
	r.meta = o.b
	if o.bad || int(r.class) >= classCount {
		return r, fmt.Errorf("series row: %w", errCorrupt)
	}
	return r, nil
}
