package historian

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"sync"
	"sync/atomic"
	"unsafe"
)

// ring keeps the commits that no fsync covers yet in memory that outlives the process: a file on tmpfs. Without syncWrites
// Pebble holds the newest commits in a buffer of its own, which dies with the process; with the ring a kill loses none of
// them, and only a power cut loses the last 100 ms. Layout: FORMAT.md, "The ring".
//
// The committer puts, the syncer releases; replay happens before either runs.
type ring struct {
	mem   []byte // all of the file, shared with it
	unmap func() error
	done  atomic.Uint64 // the last commit that Pebble has taken

	mu      sync.Mutex
	number  uint64    // the last commit put
	head    uint32    // where the next entry goes, in units, from the start of the entries
	pending []ringEnd // what is put and not released, oldest first
	tail    uint32    // where the oldest of these begins
}

type ringEnd struct {
	number uint64
	end    uint32
}

const (
	ringBytes  = 4 << 20
	ringHeader = 64
	ringUnit   = 8 // entries are aligned to it, and places counted in it
	ringMagic  = "MRring1\n"
	ringLife   = 16
	entryHead  = 16 // length4 crc4 number8
	ringWrap   = ^uint32(0)
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// units are the places of the entries.
func (r *ring) units() uint32 { return uint32(len(r.mem)-ringHeader) / ringUnit }

// mark is the word of the header that says where replay begins: the place of the first entry, and the low half of its number.
// One word, so that a kill finds both or neither.
func (r *ring) mark() *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Pointer(&r.mem[ringMarkAt])) }

const ringMarkAt = 8 + ringLife

// begin empties the ring for a new life. Until it returns a reader finds nothing.
func (r *ring) begin(life []byte) {
	clear(r.mem)
	r.mark().Store(1 << 32)
	copy(r.mem[8:], life)
	copy(r.mem, ringMagic)
	r.number, r.head, r.tail, r.pending = 0, 0, 0, r.pending[:0]
	r.done.Store(0)
}

// put copies a commit into the ring. False when there is no room, and then the commit has to be fsynced instead.
func (r *ring) put(b []byte) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	need := uint32((entryHead + len(b) + ringUnit - 1) / ringUnit)
	if entryHead+len(b) > (len(r.mem)-ringHeader)/2 {
		return false
	}
	at, full := r.head, len(r.pending) > 0
	switch {
	case full && r.head == r.tail:
		return false
	case full && r.head < r.tail:
		if r.tail-r.head < need {
			return false
		}
	case r.units()-r.head < need: // behind the last entry, to the end
		if full && r.tail < need {
			return false
		}
		if r.head < r.units() {
			binary.LittleEndian.PutUint32(r.entry(r.head), ringWrap)
		}
		at = 0
	}
	if !full {
		r.tail = at
		r.mark().Store(uint64(uint32(r.number+1))<<32 | uint64(at))
	}
	e := r.entry(at)
	r.number++
	copy(e[entryHead:], b)
	binary.LittleEndian.PutUint64(e[8:], r.number)
	binary.LittleEndian.PutUint32(e, uint32(len(b)))
	binary.LittleEndian.PutUint32(e[4:], entrySum(e, len(b)))
	r.head = at + need
	r.pending = append(r.pending, ringEnd{r.number, r.head})
	return true
}

func (r *ring) entry(at uint32) []byte { return r.mem[ringHeader+int(at)*ringUnit:] }

// entrySum covers length, number and content.
func entrySum(e []byte, n int) uint32 {
	sum := crc32.Update(0, castagnoli, e[:4])
	return crc32.Update(sum, castagnoli, e[8:entryHead+n])
}

// release forgets the commits up to number, which are fsynced.
func (r *ring) release(number uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for n < len(r.pending) && r.pending[n].number <= number {
		r.tail = r.pending[n].end
		n++
	}
	if n == 0 {
		return
	}
	r.pending = append(r.pending[:0], r.pending[n:]...)
	r.mark().Store(uint64(uint32(number+1))<<32 | uint64(r.tail))
}

// replay hands out, oldest first, the commits of the life that no fsync covered. fn may keep nothing of b. A ring of another
// life is none; an entry that is not whole is one that was not acknowledged.
func (r *ring) replay(life []byte, fn func(b []byte) error) (n int, err error) {
	if string(r.mem[:8]) != ringMagic || string(r.mem[8:8+ringLife]) != string(life) {
		return 0, nil
	}
	mark := r.mark().Load()
	at, low := uint32(mark), uint32(mark>>32)
	for wrapped := false; ; low++ {
		if at == r.units() || at < r.units() && binary.LittleEndian.Uint32(r.entry(at)) == ringWrap {
			if wrapped {
				return n, nil
			}
			at, wrapped = 0, true
		}
		if at > r.units() || len(r.entry(at)) < entryHead {
			return n, nil
		}
		e := r.entry(at)
		size := int(binary.LittleEndian.Uint32(e))
		if size < 0 || size > len(e)-entryHead || uint32(binary.LittleEndian.Uint64(e[8:])) != low || binary.LittleEndian.Uint32(e[4:]) != entrySum(e, size) {
			return n, nil
		}
		if err := fn(e[entryHead : entryHead+size]); err != nil {
			return n, fmt.Errorf("commit %d of the ring: %w", n, err)
		}
		n++
		at += uint32((entryHead + size + ringUnit - 1) / ringUnit)
	}
}
