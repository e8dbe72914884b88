package historian

import (
	"encoding/binary"
	"fmt"
)

// chunkVersion is the first octet of a chunk.
const chunkVersion = 1

// maxChunkSamples bounds the samples of one chunk, so that a damaged count cannot make a reader ask for
// much memory. Whoever seals a longer run cuts it.
const maxChunkSamples = 1 << 16

// The flags octet of a chunk.
const (
	chunkScale      = 1 << 0 // a scale column follows; otherwise all are milliseconds
	chunkQuality    = 1 << 1 // a quality column follows; otherwise all are good
	chunkStamped    = 1 << 2 // a stamped column and the receipt times follow; otherwise none is stamped
	chunkReceivedNs = 1 << 3 // the receipt times are in ns instead of ms
	chunkSpare      = 0xf0   // 0
)

// stackInts is how many integers of a column fit on the stack.
const stackInts = 1024

// encodeChunk appends the chunk of 1 to maxChunkSamples samples of one series to dst, in the order given.
// Seq is not stored. Nothing of samples is kept.
func encodeChunk(dst []byte, samples []Sample) []byte {
	n := len(samples)
	if n == 0 || n > maxChunkSamples {
		panic(fmt.Sprintf("historian: a chunk of %d samples, want 1 to %d", n, maxChunkSamples))
	}
	from, to := samples[0].Time, samples[0].Time
	first := &samples[0]
	var flags byte
	scales, qualities := first.Scale != 6, first.Quality != Good
	coarse := uint8(maxScale)
	for i := range samples {
		s := &samples[i]
		from, to = min(from, s.Time), max(to, s.Time)
		for s.Time%pow10[coarse] != 0 {
			coarse--
		}
		scales = scales || s.Scale != 6
		qualities = qualities || s.Quality != Good
		if s.Stamped {
			flags |= chunkStamped
			if s.Received%millisecond != 0 {
				flags |= chunkReceivedNs
			}
		}
	}
	if scales {
		flags |= chunkScale
	}
	if qualities {
		flags |= chunkQuality
	}
	unit := pow10[coarse]
	dst = append(dst, chunkVersion, flags, coarse)
	dst = binary.AppendUvarint(dst, uint64(n))
	dst = appendVarint(dst, from/unit)
	dst = binary.AppendUvarint(dst, uint64(to/unit-from/unit))

	var room [stackInts]int64
	column := room[:]
	if n > len(column) {
		column = make([]int64, n)
	}
	column = column[:n]

	for i := range samples {
		column[i] = samples[i].Time/unit - from/unit
	}
	dst = appendInts(dst, column)
	dst = appendValues(dst, samples, column)
	if scales {
		dst = appendRuns(dst, samples, func(s *Sample) byte { return traitsOf(s) >> 2 })
	}
	if qualities {
		dst = appendRuns(dst, samples, func(s *Sample) byte { return traitsOf(s) & 3 })
	}
	if flags&chunkStamped != 0 {
		dst = appendRuns(dst, samples, func(s *Sample) byte {
			if s.Stamped {
				return 1
			}
			return 0
		})
		unit := int64(millisecond)
		if flags&chunkReceivedNs != 0 {
			unit = 1
		}
		column = column[:0]
		for i := range samples {
			if s := &samples[i]; s.Stamped {
				column = append(column, s.Received/unit-floorDiv(s.Time, unit))
			}
		}
		dst = appendInts(dst, column)
	}
	return dst
}

// appendRuns writes a column of octets as runs: the octet, then how often it stands there less one.
func appendRuns(dst []byte, samples []Sample, of func(*Sample) byte) []byte {
	for i := 0; i < len(samples); {
		c, from := of(&samples[i]), i
		for i++; i < len(samples) && of(&samples[i]) == c; i++ {
		}
		dst = binary.AppendUvarint(append(dst, c), uint64(i-from-1))
	}
	return dst
}

// runs reads a column of n octets as runs and calls fn for each.
func (o *octets) runs(n int, most byte, fn func(from, to int, c byte)) {
	for at := 0; at < n; {
		c, more := o.octet(), o.uvarint()
		if o.bad || c > most || more >= uint64(n-at) {
			o.fail()
			return
		}
		to := at + int(more) + 1
		fn(at, to, c)
		at = to
	}
}

// chunkHead is what stands before the columns of a chunk.
type chunkHead struct {
	flags    byte
	unit     int64
	count    int
	from, to int64 // ns
}

func (o *octets) chunkHead() (h chunkHead, err error) {
	if v := o.octet(); v != chunkVersion {
		return h, fmt.Errorf("chunk: version %d: %w", v, errCorrupt)
	}
	h.flags = o.octet()
	scale := o.octet()
	count := o.uvarint()
	from := o.varint()
	span := o.uvarint()
	if o.bad || h.flags&chunkSpare != 0 || scale > maxScale || count == 0 || count > maxChunkSamples {
		return h, fmt.Errorf("chunk: head: %w", errCorrupt)
	}
	h.count = int(count)
	h.unit = pow10[scale]
	var ok, ok2 bool
	h.from, ok = mulTime(from, h.unit)
	h.to, ok2 = mulTime(from+int64(span), h.unit)
	if !ok || !ok2 || h.to < h.from {
		return h, fmt.Errorf("chunk: span: %w", errCorrupt)
	}
	return h, nil
}

// chunkSpan reads a chunk's head: how many samples it holds and the earliest and latest Time, both inclusive.
func chunkSpan(b []byte) (count int, from, to int64, err error) {
	o := octets{b: b}
	h, err := o.chunkHead()
	return h.count, h.from, h.to, err
}

// decodeChunk appends the samples of a chunk to dst, in the order they were encoded, as of that series and
// with Seq 0. Raw is copied out of b; samples with the same Raw may share it: it is to be read only. On an
// error dst comes back as it was.
func decodeChunk(b []byte, series Series, dst []Sample) ([]Sample, error) {
	o := octets{b: b}
	h, err := o.chunkHead()
	if err != nil {
		return dst, err
	}
	var room [stackInts]int64
	column := room[:]
	if h.count > len(column) {
		column = make([]int64, h.count)
	}
	column = column[:h.count]
	o.ints(column)
	if o.bad {
		return dst, fmt.Errorf("chunk: times: %w", errCorrupt)
	}
	start := len(dst)
	base, span := h.from/h.unit, h.to/h.unit-h.from/h.unit
	for _, t := range column {
		if uint64(t) > uint64(span) {
			return dst[:start], fmt.Errorf("chunk: times: %w", errCorrupt)
		}
		ns := (base + t) * h.unit
		dst = append(dst, Sample{Series: series, Scale: 6, Time: ns, Received: ns})
	}
	samples := dst[start:]
	o.values(samples, column)
	if o.bad {
		return dst[:start], fmt.Errorf("chunk: values: %w", errCorrupt)
	}
	if h.flags&chunkScale != 0 {
		o.runs(h.count, maxScale, func(from, to int, c byte) {
			for i := from; i < to; i++ {
				samples[i].Scale = c
			}
		})
	}
	if h.flags&chunkQuality != 0 {
		o.runs(h.count, byte(Bad), func(from, to int, c byte) {
			for i := from; i < to; i++ {
				samples[i].Quality = Quality(c)
			}
		})
	}
	if h.flags&chunkStamped != 0 {
		o.received(samples, column, h.flags)
	}
	if o.bad || len(o.b) != 0 {
		return dst[:start], fmt.Errorf("chunk: traits: %w", errCorrupt)
	}
	return dst, nil
}

// received reads which samples are stamped and when those were received.
func (o *octets) received(samples []Sample, column []int64, flags byte) {
	stamped := 0
	o.runs(len(samples), 1, func(from, to int, c byte) {
		if c == 1 {
			stamped += to - from
			for i := from; i < to; i++ {
				samples[i].Stamped = true
			}
		}
	})
	if o.bad || stamped == 0 {
		o.fail()
		return
	}
	unit := int64(millisecond)
	if flags&chunkReceivedNs != 0 {
		unit = 1
	}
	column = column[:stamped]
	o.ints(column)
	for i := range samples {
		if s := &samples[i]; s.Stamped {
			ns, ok := mulTime(floorDiv(s.Time, unit)+column[0], unit)
			if !ok {
				o.fail()
				return
			}
			s.Received = ns
			column = column[1:]
		}
	}
}
