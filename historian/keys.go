package historian

import (
	"encoding/binary"
	"math"
)

// Every key starts with its keyspace. Numbers are big-endian, so that keys sort by number; times have their
// sign bit turned over, so that they sort from the far past to the far future. FORMAT.md draws the layouts.
//
//	A class1 hour4 series4 ckpt4          what an hour of a series amounts to, of the checkpoints merged up to one; see tally.go
//	C class1 hour4 series4 ckpt4 first8 part2   a chunk of one hour, of the same checkpoints; see merge.go
//	H series4                             what one series carries over a checkpoint, see head_row.go
//	H 0xffffffff                          the fence of the last checkpoint, see fence.go
//	I series4                             a series row, see series_row.go
//	K …                                   publish keys of pipelines (reserved)
//	L seq8                                a group of samples, keyed by the sequence of its first one; see record.go
//	M format                              the format version, uvarint
//	M clean                               present after a clean stop, empty
//	M kept                                the time retention has come to, ns8
//	M span class1 ckpt4                   from and to of a checkpoint's chunks of a class, see fence.go
//	N …                                   opaque rows of the callers
//	P class1 ckpt4 series4 first8 part2   a chunk of one checkpoint and one hour, see chunk.go
//	Q …                                   queues of offline sessions (reserved)
//	T name                                series4
//	X series4                             a series that was deleted, see delete.go
//
// H, P, C and A are written by ingestion only and the rest by commits only. No memtable ever holds a key of the
// former, so an ingestion never has to flush one.
const (
	spaceTally   = 'A'
	spaceMerged  = 'C'
	spaceHead    = 'H'
	spaceSeries  = 'I'
	spaceLog     = 'L'
	spaceMeta    = 'M'
	spaceRow     = 'N'
	spacePartial = 'P'
	spaceName    = 'T'
	spaceGone    = 'X'
)

// formatVersion is the newest layout of keys and values this code reads and the one it writes.
const formatVersion = 1

// The keys of the M keyspace.
const (
	metaFormat = "Mformat"
	metaClean  = "Mclean"
	metaSpan   = "Mspan"
	metaKept   = "Mkept" // the clock of retention, see retention.go
	metaFiller = "Mw"    // only ever deleted, see warm.go
)

// fenceSeries is the id that no series gets: its head row is the fence of the last checkpoint.
const fenceSeries = Series(1<<32 - 1)

// maxSeries is the highest id given out.
const maxSeries = fenceSeries - 1

const signBit = 1 << 63

func appendTime(dst []byte, ns int64) []byte {
	return binary.BigEndian.AppendUint64(dst, uint64(ns)^signBit)
}

func appendLogKey(dst []byte, seq uint64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, spaceLog), seq)
}

func logKeySeq(key []byte) (seq uint64, ok bool) {
	if len(key) != 9 {
		return 0, false
	}
	return binary.BigEndian.Uint64(key[1:]), true
}

func appendSeriesKey(dst []byte, id Series) []byte {
	return binary.BigEndian.AppendUint32(append(dst, spaceSeries), uint32(id))
}

func appendHeadKey(dst []byte, id Series) []byte {
	return binary.BigEndian.AppendUint32(append(dst, spaceHead), uint32(id))
}

// idKey reads the series of an I or H key.
func idKey(key []byte) (id Series, ok bool) {
	if len(key) != 5 {
		return 0, false
	}
	return Series(binary.BigEndian.Uint32(key[1:])), true
}

func appendNameKey(dst []byte, name string) []byte {
	return append(append(dst, spaceName), name...)
}

func appendSpanKey(dst []byte, class Class, ckpt uint32) []byte {
	return binary.BigEndian.AppendUint32(append(append(dst, metaSpan...), byte(class)), ckpt)
}

func spanKey(key []byte) (class Class, ckpt uint32, ok bool) {
	if len(key) != len(metaSpan)+5 {
		return 0, 0, false
	}
	key = key[len(metaSpan):]
	return Class(key[0]), binary.BigEndian.Uint32(key[1:]), true
}

// chunkKeyPrefix is what the chunks of one series in one checkpoint or merged hour have in common.
const chunkKeyPrefix = 10

// chunkKeyLen is the length of a P key.
const chunkKeyLen = chunkKeyPrefix + 8 + 2

// appendChunkPrefix starts a P key (place = checkpoint) or a C or A key (place = hour).
func appendChunkPrefix(dst []byte, space byte, class Class, place uint32, id Series) []byte {
	dst = append(dst, space, byte(class))
	dst = binary.BigEndian.AppendUint32(dst, place)
	return binary.BigEndian.AppendUint32(dst, uint32(id))
}

// appendPlace is the beginning of all chunk keys of a class in one checkpoint or hour.
func appendPlace(dst []byte, space byte, class Class, place uint32) []byte {
	return binary.BigEndian.AppendUint32(append(dst, space, byte(class)), place)
}

// placeEnd is the first key behind those of a class in a checkpoint or hour.
func placeEnd(space byte, class Class, place uint32) []byte {
	if place == math.MaxUint32 {
		return []byte{space, byte(class) + 1}
	}
	return appendPlace(nil, space, class, place+1)
}

// appendChunkKey ends a key that appendChunkPrefix started. Part numbers the chunks of one hour, from 0.
func appendChunkKey(dst []byte, first int64, part uint16) []byte {
	return binary.BigEndian.AppendUint16(appendTime(dst, first), part)
}

// chunkKeySeries is the series of a P key.
func chunkKeySeries(key []byte) (id Series, ok bool) {
	if len(key) != chunkKeyLen {
		return 0, false
	}
	return Series(binary.BigEndian.Uint32(key[chunkKeyPrefix-4:])), true
}

// The lengths of C and A keys.
const (
	mergedKeyLen = chunkKeyPrefix + 4 + 8 + 2
	tallyKeyLen  = chunkKeyPrefix + 4
)

// hourPlace is an hour as C and A keys have it: hours since 1970 with the sign bit turned over.
func hourPlace(hour int64) uint32 { return uint32(int32(floorDiv(hour, nsPerHour))) ^ 1<<31 }

// placeHour is the start of the hour of a place.
func placeHour(place uint32) int64 {
	if h := int64(int32(place ^ 1<<31)); h > math.MinInt64/nsPerHour {
		return h * nsPerHour
	}
	return math.MinInt64
}

// appendMergedKey writes a C key.
func appendMergedKey(dst []byte, class Class, hour int64, id Series, ckpt uint32, first int64, part uint16) []byte {
	dst = appendChunkPrefix(dst, spaceMerged, class, hourPlace(hour), id)
	dst = binary.BigEndian.AppendUint32(dst, ckpt)
	return binary.BigEndian.AppendUint16(appendTime(dst, first), part)
}

// appendTallyKey writes an A key.
func appendTallyKey(dst []byte, class Class, hour int64, id Series, ckpt uint32) []byte {
	dst = appendChunkPrefix(dst, spaceTally, class, hourPlace(hour), id)
	return binary.BigEndian.AppendUint32(dst, ckpt)
}

// keyPlace is the checkpoint or hour of a P, C or A key; keyCkpt the checkpoint of a C or A key.
func keyPlace(key []byte) uint32 { return binary.BigEndian.Uint32(key[2:]) }
func keyCkpt(key []byte) uint32  { return binary.BigEndian.Uint32(key[chunkKeyPrefix:]) }

// chunkKeyFirst is the time of the first sample of a chunk.
func chunkKeyFirst(key []byte) int64 {
	return int64(binary.BigEndian.Uint64(key[chunkKeyPrefix:]) ^ signBit)
}

// prefixEnd is the first key behind every key that starts with prefix; nil when there is none.
func prefixEnd(prefix []byte) []byte {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] != 0xff {
			end := append([]byte(nil), prefix[:i+1]...)
			end[i]++
			return end
		}
	}
	return nil
}

// nsPerHour is how long the samples of one chunk may span.
const nsPerHour = int64(3600) * 1e9

// hourOf is the start of the hour a time falls in. The first hour of all is cut short.
func hourOf(ns int64) int64 {
	if h := floorDiv(ns, nsPerHour) * nsPerHour; h <= ns {
		return h
	}
	return math.MinInt64
}

// hourEnd is the last moment of the hour around a time.
func hourEnd(ns int64) int64 {
	hour := floorDiv(ns, nsPerHour) * nsPerHour
	switch {
	case hour > ns: // the first hour of all, cut short
		return hour + (nsPerHour - 1)
	case hour > math.MaxInt64-(nsPerHour-1):
		return math.MaxInt64
	}
	return hour + (nsPerHour - 1)
}
