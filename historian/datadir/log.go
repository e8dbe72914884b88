package datadir

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// The layout of Pebble's write-ahead log (record/record.go of its source): blocks of 32 KiB, chunks that do not cross them.
//
//	crc:4 length:2 encoding:1 log number:4 [synced offset:8] payload
//
// A chunk with a synced offset says that everything before that offset was fsynced when the chunk was written.
const (
	logBlock      = 32 << 10
	plainChunk    = 7
	numberedChunk = 11
	syncedChunk   = 19

	lastPlain    = 4 // the highest encoding without a log number
	lastNumbered = 8
	lastSynced   = 12
	trailer      = 5 // the encoding of the mark that ends a log that was closed, without checksum and payload
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// CheckLogs refuses a store whose write-ahead log is damaged before its end. Pebble takes a log that cannot be read on for
// torn there, as a power cut leaves it, and drops what follows, unless a later block says that the damaged place had been
// fsynced. This looks within the block as well. serial says that each record was fsynced before the next was written, so
// that whatever follows is proof. A torn tail, files reserved in advance and remains of an earlier use are well.
func (c *Claim) CheckLogs(fsys vfs.FS, serial bool) error {
	names, err := fsys.List(c.dir)
	if err != nil {
		return c.Explain(err)
	}
	for _, name := range names {
		stem, isLog := strings.CutSuffix(name, ".log")
		number, err := strconv.ParseUint(stem, 10, 32)
		if !isLog || err != nil {
			continue
		}
		path := fsys.PathJoin(c.dir, name)
		at, damaged, err := checkLog(fsys, path, uint32(number), serial)
		if err != nil {
			return c.Explain(err)
		}
		if damaged {
			return fmt.Errorf("%s: %s is damaged at octet %d, before its end: what was acknowledged after that place would be lost without a word, so nothing is read; "+
				"see whether the disk is well, then restore a backup, or cut the file there (truncate -s %d) to go on without what follows", c.kind.Part, path, at, at)
		}
	}
	return nil
}

// checkLog finds where a log cannot be read on, and whether what follows in that block proves that this is damage.
func checkLog(fsys vfs.FS, path string, number uint32, serial bool) (at int64, damaged bool, err error) {
	f, err := fsys.Open(path)
	if err != nil {
		return 0, false, err
	}
	defer f.Close() // read only
	block := make([]byte, logBlock)
	for base := int64(0); ; base += logBlock {
		n, err := io.ReadFull(f, block)
		switch {
		case errors.Is(err, io.EOF):
			return 0, false, nil
		case err != nil && !errors.Is(err, io.ErrUnexpectedEOF):
			return 0, false, err
		}
		b := block[:n]
		for i := 0; ; {
			size, end := chunkAt(b, i, number)
			if end {
				return 0, false, nil
			}
			if size == 0 && len(b)-i < syncedChunk && restIsZero(b[i:]) {
				break // what no chunk fits into
			}
			if size == 0 {
				at = base + int64(i)
				damaged = provenWhole(b[i:], at, number, serial)
				for serial && !damaged && n == logBlock {
					n, err = io.ReadFull(f, block)
					if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
						return 0, false, err
					}
					damaged = provenWhole(append([]byte{0}, block[:n]...), at, number, serial)
				}
				return at, damaged, nil
			}
			i += size
		}
		if n < logBlock {
			return 0, false, nil
		}
	}
}

// Settled makes a new store once before it is used. The first log of a store is written before Pebble has settled on the
// format that o names, without the synced offsets that damage is told by; from the second on they have them.
func Settled(dir string, o func() *pebble.Options) error {
	seen, err := pebble.Peek(dir, o().FS)
	if err == nil && (!seen.Exists || seen.FormatMajorVersion < pebble.FormatWALSyncChunks) {
		var db *pebble.DB
		if db, err = pebble.Open(dir, o()); err == nil {
			err = db.Close()
		}
	}
	return err
}

// chunkAt is the size of the whole chunk at i, 0 when there is none; end says that it is the end mark.
func chunkAt(b []byte, i int, number uint32) (size int, end bool) {
	if len(b)-i < plainChunk {
		return 0, false
	}
	b = b[i:]
	if isTrailer(b, number) {
		return 0, true
	}
	head := plainChunk
	switch encoding := b[6]; {
	case encoding == 0 || encoding > lastSynced:
		return 0, false
	case encoding > lastNumbered:
		head = syncedChunk
	case encoding > lastPlain:
		head = numberedChunk
	}
	size = head + int(binary.LittleEndian.Uint16(b[4:]))
	if size > len(b) || sum(b[6:size]) != binary.LittleEndian.Uint32(b) {
		return 0, false
	}
	if head > plainChunk && binary.LittleEndian.Uint32(b[7:]) != number {
		return 0, false
	}
	return size, false
}

// isTrailer says whether b begins with the mark that ends log number. Pebble takes any chunk under the next number for it.
func isTrailer(b []byte, number uint32) bool {
	return len(b) >= numberedChunk && restIsZero(b[:6]) && b[6] == trailer && binary.LittleEndian.Uint32(b[7:]) == number+1
}

// provenWhole says whether anything in b behind its first octet, the rest of a block, proves that offset at of the log had
// been fsynced.
func provenWhole(b []byte, at int64, number uint32, serial bool) bool {
	for i := 1; i+numberedChunk <= len(b); i++ {
		encoding := b[i+6]
		if encoding <= lastPlain || encoding > lastSynced {
			continue
		}
		if serial && isTrailer(b[i:], number) {
			return true
		}
		if binary.LittleEndian.Uint32(b[i+7:]) != number {
			continue
		}
		begins := (encoding-1)%4 < 2 // whole, first, middle, last
		synced := encoding > lastNumbered && i+syncedChunk <= len(b) && int64(binary.LittleEndian.Uint64(b[i+11:])) > at
		if !synced && !(serial && begins) {
			continue
		}
		if size, _ := chunkAt(b, i, number); size > 0 {
			return true
		}
	}
	return false
}

// sum is Pebble's checksum, a masked CRC-32C.
func sum(b []byte) uint32 {
	c := crc32.Checksum(b, castagnoli)
	return (c>>15 | c<<17) + 0xa282ead8
}

func restIsZero(b []byte) bool {
	for _, x := range b {
		if x != 0 {
			return false
		}
	}
	return true
}
