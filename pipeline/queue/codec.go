package queue

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"time"
)

// The octets of a frame are drawn in FORMAT.md.
const (
	frameVersion = 1
	headerSize   = 28
	sumSize      = 4
	minEntry     = 10 // what the smallest entry takes
	minRef       = 3
	maxFrame     = 32 << 20 // larger ones are never written, so they are not read
)

var (
	castagnoli   = crc32.MakeTable(crc32.Castagnoli)
	errFrame     = errors.New("queue: damaged frame")
	errNewFormat = errors.New("queue: the frame was written by a newer program")
)

// place is a workspace and a topic, which a frame holds once.
type place struct{ workspace, topic string }

// builder gathers the octets of one frame.
type builder struct {
	buf     []byte
	places  map[place]uint64
	entries int
	runs    int
	seq     uint64
	time    int64
	created time.Time
}

func newBuilder(l Lane, boot uint64, created time.Time) *builder {
	b := &builder{buf: make([]byte, headerSize, 1024), created: created}
	b.buf[0], b.buf[1], b.buf[2], b.buf[3] = 'm', 'q', frameVersion, byte(l)
	binary.BigEndian.PutUint64(b.buf[12:], uint64(created.UnixMilli()))
	binary.BigEndian.PutUint64(b.buf[20:], boot)
	return b
}

// add appends an entry and keeps none of its slices.
func (b *builder) add(e *Entry) {
	buf := append(b.buf, e.Kind, e.Quality, e.Scale, e.Hops)
	buf = binary.AppendVarint(buf, int64(e.Seq-b.seq))
	buf = binary.AppendUvarint(buf, e.ID)
	buf = binary.AppendVarint(buf, e.Time-b.time)
	b.seq, b.time = e.Seq, e.Time
	at := place{e.Workspace, e.Topic}
	if n, known := b.places[at]; known {
		buf = binary.AppendUvarint(buf, n)
	} else {
		if b.places == nil {
			b.places = make(map[place]uint64, 8)
		}
		b.places[at] = uint64(len(b.places)) + 1
		buf = append(buf, 0)
		buf = append(binary.AppendUvarint(buf, uint64(len(e.Workspace))), e.Workspace...)
		buf = append(binary.AppendUvarint(buf, uint64(len(e.Topic))), e.Topic...)
	}
	buf = append(binary.AppendUvarint(buf, uint64(len(e.Value))), e.Value...)
	buf = binary.AppendUvarint(buf, uint64(len(e.Refs)))
	for _, r := range e.Refs {
		buf = binary.AppendUvarint(buf, uint64(r.Pipeline))
		buf = binary.AppendUvarint(buf, uint64(r.Version))
		buf = binary.AppendUvarint(buf, uint64(r.Node))
	}
	b.buf = buf
	b.entries++
	b.runs += len(e.Refs)
}

// full says that the frame should take no more.
func (b *builder) full() bool { return b.runs >= maxFrameRuns || len(b.buf) >= maxFrameBytes }

// room says whether an entry of that many runs and octets still belongs in; the first one always does.
func (b *builder) room(e *Entry) bool {
	return b.entries == 0 || b.runs+len(e.Refs) <= maxFrameRuns && len(b.buf)+int(e.size()) <= maxFrameBytes
}

// frame finishes the octets. Nothing may be added afterwards.
func (b *builder) frame() []byte {
	binary.BigEndian.PutUint32(b.buf[4:], uint32(b.entries))
	binary.BigEndian.PutUint32(b.buf[8:], uint32(b.runs))
	b.buf = binary.BigEndian.AppendUint32(b.buf, crc32.Checksum(b.buf, castagnoli))
	return b.buf
}

// reader walks through octets; after the first fault it gives zeros.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) octets(n uint64) []byte {
	if n > uint64(len(r.b)) {
		r.bad, r.b = true, nil
		return nil
	}
	v := r.b[:n:n]
	r.b = r.b[n:]
	return v
}

func (r *reader) upTo(limit uint64) uint64 {
	v := r.uvarint()
	if v > limit {
		r.bad = true
		return 0
	}
	return v
}

// header is what can be told of a frame without reading its entries.
type header struct {
	lane          Lane
	entries, runs int
	created       time.Time
	boot          uint64
}

// readHeader checks version, sum and counts.
func readHeader(b []byte) (header, error) {
	if len(b) < headerSize+sumSize || len(b) > maxFrame || b[0] != 'm' || b[1] != 'q' {
		return header{}, errFrame
	}
	body := b[:len(b)-sumSize]
	if crc32.Checksum(body, castagnoli) != binary.BigEndian.Uint32(b[len(body):]) {
		return header{}, errFrame
	}
	if b[2] > frameVersion {
		return header{}, errNewFormat
	}
	h := header{
		lane:    Lane(b[3]),
		entries: int(binary.BigEndian.Uint32(b[4:])),
		runs:    int(binary.BigEndian.Uint32(b[8:])),
		created: time.UnixMilli(int64(binary.BigEndian.Uint64(b[12:]))),
		boot:    binary.BigEndian.Uint64(b[20:]),
	}
	if rest := len(body) - headerSize; b[2] == 0 || h.lane >= Lanes || h.entries > rest/minEntry || h.runs > rest/minRef {
		return header{}, errFrame
	}
	return h, nil
}

// decode reads the entries of a frame. Their values lie in b, which is theirs from then on.
func decode(b []byte) (header, []Entry, error) {
	h, err := readHeader(b)
	if err != nil {
		return header{}, nil, err
	}
	r := reader{b: b[headerSize : len(b)-sumSize]}
	entries := make([]Entry, h.entries)
	refs := make([]Ref, 0, h.runs)
	var places []place
	var seq uint64
	var at int64
	for i := range entries {
		e := &entries[i]
		fixed := r.octets(4)
		if fixed == nil {
			return header{}, nil, errFrame
		}
		e.Kind, e.Quality, e.Scale, e.Hops = fixed[0], fixed[1], fixed[2], fixed[3]
		seq += uint64(r.varint())
		e.Seq = seq
		e.ID = r.uvarint()
		at += r.varint()
		e.Time = at
		switch n := r.uvarint(); {
		case r.bad || n > uint64(len(places)):
			return header{}, nil, errFrame
		case n == 0:
			p := place{string(r.octets(r.uvarint())), string(r.octets(r.uvarint()))}
			places = append(places, p)
			e.Workspace, e.Topic = p.workspace, p.topic
		default:
			e.Workspace, e.Topic = places[n-1].workspace, places[n-1].topic
		}
		e.Value = r.octets(r.uvarint())
		n := r.uvarint()
		if r.bad || n > uint64(h.runs-len(refs)) || e.Kind > Resume {
			return header{}, nil, errFrame
		}
		from := len(refs)
		for range n {
			refs = append(refs, Ref{
				Pipeline: uint32(r.upTo(math.MaxUint32)),
				Version:  uint32(r.upTo(math.MaxUint32)),
				Node:     uint16(r.upTo(math.MaxUint16)),
			})
		}
		e.Refs = refs[from:len(refs):len(refs)]
	}
	if r.bad || len(r.b) > 0 || len(refs) != h.runs {
		return header{}, nil, fmt.Errorf("%w: its counts do not fit", errFrame)
	}
	return h, entries, nil
}
