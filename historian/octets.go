package historian

import (
	"encoding/binary"
	"errors"
)

// errCorrupt is what every decoder answers for octets that no encoder of ours writes.
var errCorrupt = errors.New("historian: stored octets are damaged")

// octets reads an encoded value from its front. After the first fault every read gives zero and bad stays
// set, so that a decoder may check once per sample instead of once per field.
type octets struct {
	b   []byte
	bad bool
}

func (o *octets) fail() {
	o.b, o.bad = nil, true
}

func (o *octets) octet() byte {
	if len(o.b) == 0 {
		o.fail()
		return 0
	}
	c := o.b[0]
	o.b = o.b[1:]
	return c
}

func (o *octets) uvarint() uint64 {
	// One octet is by far the most frequent length.
	if len(o.b) > 0 && o.b[0] < 0x80 {
		c := o.b[0]
		o.b = o.b[1:]
		return uint64(c)
	}
	u, n := binary.Uvarint(o.b)
	if n <= 0 {
		o.fail()
		return 0
	}
	o.b = o.b[n:]
	return u
}

func (o *octets) varint() int64 { return unzigzag(o.uvarint()) }

func (o *octets) uint64() uint64 {
	if len(o.b) < 8 {
		o.fail()
		return 0
	}
	u := binary.BigEndian.Uint64(o.b)
	o.b = o.b[8:]
	return u
}

// take is the next n octets, still part of the input.
func (o *octets) take(n uint64) []byte {
	if n > uint64(len(o.b)) {
		o.fail()
		return nil
	}
	t := o.b[:n:n]
	o.b = o.b[n:]
	return t
}

func zigzag(i int64) uint64   { return uint64(i)<<1 ^ uint64(i>>63) }
func unzigzag(u uint64) int64 { return int64(u>>1) ^ -int64(u&1) }

func appendVarint(dst []byte, i int64) []byte { return binary.AppendUvarint(dst, zigzag(i)) }

// maxScale is the coarsest precision of a timestamp: whole seconds.
const maxScale = 9

// floorDiv divides towards minus infinity; d is above 0.
func floorDiv(n, d int64) int64 {
	q := n / d
	if n%d < 0 {
		q--
	}
	return q
}

// mulTime multiplies a time in units back to nanoseconds; false when it leaves the range of an int64.
func mulTime(units, unit int64) (int64, bool) {
	ns := units * unit
	return ns, unit == 1 || ns/unit == units
}
