package historian

import (
	"encoding/binary"
	"fmt"
)

const fenceVersion = 1

// span says which times the chunks of one checkpoint and one class cover, both ends included.
type span struct {
	class    Class
	ckpt     uint32
	from, to int64
}

// fence is the value of the last H key. It is ingested together with the chunks and head rows of its
// checkpoint, so one of them is there exactly when all are; what the commit after the ingestion does (span
// rows, dropping the log) can be done again at the next start.
//
// version1, ckpt uvarint, seq uvarint, then per class with chunks: class1, from varint, to varint.
type fence struct {
	ckpt  uint32 // the last checkpoint; 0 before the first
	seq   uint64 // samples up to this one are in chunks or head rows
	spans []span
}

func (f *fence) append(dst []byte) []byte {
	dst = append(dst, fenceVersion)
	dst = binary.AppendUvarint(dst, uint64(f.ckpt))
	dst = binary.AppendUvarint(dst, f.seq)
	for _, s := range f.spans {
		dst = append(dst, byte(s.class))
		dst = appendVarint(dst, s.from)
		dst = appendVarint(dst, s.to)
	}
	return dst
}

func readFence(b []byte) (f fence, err error) {
	o := octets{b: b}
	if v := o.octet(); v != fenceVersion {
		return f, fmt.Errorf("fence: version %d: %w", v, errCorrupt)
	}
	f.ckpt = uint32(o.uvarint())
	f.seq = o.uvarint()
	for len(o.b) > 0 {
		s := span{ckpt: f.ckpt}
		s.class = Class(o.octet())
		s.from, s.to = o.varint(), o.varint()
		if int(s.class) >= classCount {
			o.fail()
		}
		f.spans = append(f.spans, s)
	}
	if o.bad {
		return f, fmt.Errorf("fence: %w", errCorrupt)
	}
	return f, nil
}

// append writes the value of a span row: from varint, to varint.
func (s *span) append(dst []byte) []byte {
	return appendVarint(appendVarint(dst, s.from), s.to)
}

func readSpan(key, value []byte) (s span, err error) {
	class, ckpt, ok := spanKey(key)
	o := octets{b: value}
	s = span{class: class, ckpt: ckpt, from: o.varint(), to: o.varint()}
	if !ok || o.bad || int(class) >= classCount {
		return s, fmt.Errorf("span row: %w", errCorrupt)
	}
	return s, nil
}
