package history

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
)

// The kinds of runs, by what names them.
const (
	ByValue    byte = 'v' // N is the sequence of the stored value
	BySchedule byte = 's' // N is the planned time in ms
	Fresh      byte = 'x' // N is a number of its own, in the order of time
)

// RunID names a run for ever. Comparable.
type RunID struct {
	Kind     byte
	Pipeline uint32
	N        uint64
	Node     uint16 // step number of the trigger; 0 for Fresh
}

// String is the text form: 7-v123456, 7-s1790000000000-2, 7-x<16 hex digits>. A trigger with number 0 is left out.
func (id RunID) String() string {
	b := strconv.AppendUint(make([]byte, 0, 40), uint64(id.Pipeline), 10)
	b = append(b, '-', id.Kind)
	if id.Kind == Fresh {
		return fmt.Sprintf("%s%016x", b, id.N)
	}
	b = strconv.AppendUint(b, id.N, 10)
	if id.Node > 0 {
		b = strconv.AppendUint(append(b, '-'), uint64(id.Node), 10)
	}
	return string(b)
}

// ParseRunID reads the text form; false when it is none.
func ParseRunID(text string) (id RunID, ok bool) {
	pipeline, rest, ok := strings.Cut(text, "-")
	p, err := strconv.ParseUint(pipeline, 10, 32)
	if !ok || err != nil || len(rest) < 2 {
		return RunID{}, false
	}
	id.Pipeline, id.Kind = uint32(p), rest[0]
	number, node, more := strings.Cut(rest[1:], "-")
	switch id.Kind {
	case ByValue, BySchedule:
		id.N, err = strconv.ParseUint(number, 10, 64)
	case Fresh:
		id.N, err = strconv.ParseUint(number, 16, 64)
	default:
		return RunID{}, false
	}
	if err != nil {
		return RunID{}, false
	}
	if more {
		n, err := strconv.ParseUint(node, 10, 16)
		if err != nil || id.Kind == Fresh {
			return RunID{}, false
		}
		id.Node = uint16(n)
	}
	return id, id.String() == text
}

// idLen is the size of a RunID in keys.
const idLen = 15

func appendID(dst []byte, id RunID) []byte {
	dst = append(dst, id.Kind)
	dst = binary.BigEndian.AppendUint64(dst, id.N)
	dst = binary.BigEndian.AppendUint32(dst, id.Pipeline)
	return binary.BigEndian.AppendUint16(dst, id.Node)
}

func readID(b []byte) (id RunID, ok bool) {
	if len(b) != idLen {
		return id, false
	}
	return RunID{Kind: b[0], N: binary.BigEndian.Uint64(b[1:]), Pipeline: binary.BigEndian.Uint32(b[9:]), Node: binary.BigEndian.Uint16(b[13:])}, true
}

// Mark says that the run of a value from one trigger has ended.
type Mark struct {
	Seq      uint64
	Pipeline uint32
	Node     uint16
}
