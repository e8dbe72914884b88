package historian

import (
	"bytes"
	"sync"
	"sync/atomic"
)

// headShards spreads the locks of the heads. Neighbouring series, which one device tends to send together,
// lie in different shards.
const headShards = 64

// head is what memory holds of one series: the samples that are in no chunk yet, and its last value.
type head struct {
	open    column   // samples since the last rotation, before them those the last checkpoint carried over
	sealing *sealing // what the running checkpoint moves out; nil otherwise
	last    Sample   // the greatest in (Time, order of arrival), if hasLast; owns its Raw
	stamp   int64    // the last receipt stamp
	gen     uint32   // of open
	sealed  uint32   // samples of checkpoints up to this one are in chunks, or still in open
	class   Class
	classes uint8 // bit per class the series ever had
	scale   uint8 // the finest of any sample, if hasLast
	born    bool
	hasLast bool
	dirty   bool // the samples changed since the last rotation
}

// sealing is the state of a head at a rotation.
type sealing struct {
	samples column
	last    Sample
	stamp   int64
	scale   uint8
}

// heads holds the head of every series, by id. The zero heads is ready for use.
type heads struct {
	shards [headShards]headShard
	gen    atomic.Uint32 // rises with every rotation; only between two calls of apply
}

type headShard struct {
	mu    sync.RWMutex
	heads []head
	_     [32]byte // keeps the locks of two shards off one cache line
}

func (h *heads) shard(id Series) *headShard { return &h.shards[id%headShards] }

// at is the head of a series; nil when the series does not exist. The shard's lock is held.
func (sh *headShard) at(id Series) *head {
	i := int(id / headShards)
	if i >= len(sh.heads) || !sh.heads[i].born {
		return nil
	}
	return &sh.heads[i]
}

// bear makes the head of a new series.
func (h *heads) bear(id Series, class Class, classes uint8, sealed uint32) {
	sh := h.shard(id)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	i := int(id / headShards)
	if i >= len(sh.heads) {
		sh.heads = append(sh.heads, make([]head, i+1-len(sh.heads))...)
	}
	sh.heads[i] = head{born: true, class: class, classes: classes, sealed: sealed, gen: h.gen.Load(), scale: defaultScale}
}

// setClass changes the class of later chunks.
func (h *heads) setClass(id Series, class Class) {
	sh := h.shard(id)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if hd := sh.at(id); hd != nil {
		hd.class = class
		hd.classes |= 1 << class
	}
}

// apply adds a sample that is in the log. It keeps nothing of s. Late says that the series has a later one.
func (h *heads) apply(s *Sample) (late, ok bool) {
	sh := h.shard(s.Series)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	hd := sh.at(s.Series)
	if hd == nil {
		return false, false
	}
	if gen := h.gen.Load(); hd.gen != gen {
		hd.rotate(gen)
	}
	hd.open.add(s)
	hd.dirty = true
	if !s.Stamped {
		hd.stamp = s.Time
	}
	return !hd.notice(s), true
}

// notice takes s as the last sample if it is; s arrived after all before it.
func (hd *head) notice(s *Sample) bool {
	if !hd.hasLast || s.Scale < hd.scale {
		hd.scale = s.Scale
	}
	if hd.hasLast && s.Time < hd.last.Time {
		return false
	}
	raw := hd.last.Value.Raw[:0]
	if len(s.Value.Raw) > 0 {
		raw = append(raw, s.Value.Raw...)
	}
	hd.last = *s
	hd.last.Value.Raw = raw
	hd.last.Seq, hd.last.Hops = 0, 0
	hd.hasLast = true
	return true
}

// rotate sets aside what the checkpoint that began has to move. The shard's lock is held.
func (hd *head) rotate(gen uint32) {
	hd.gen = gen
	if !hd.dirty {
		return
	}
	hd.dirty = false
	hd.sealing = &sealing{samples: hd.open, last: hd.lastCopy(), stamp: hd.stamp, scale: hd.scale}
	hd.open = column{}
}

// lastCopy is the last sample with a Raw of its own.
func (hd *head) lastCopy() Sample {
	s := hd.last
	if len(s.Value.Raw) == 0 {
		s.Value.Raw = nil // the room kept for the next one
	}
	s.Value.Raw = bytes.Clone(s.Value.Raw)
	return s
}

// forSealing gives the samples of a series that the running checkpoint has to move; nil when it has none.
func (h *heads) forSealing(id Series) (set *sealing, class Class) {
	sh := h.shard(id)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	hd := sh.at(id)
	if hd == nil {
		return nil, 0
	}
	if gen := h.gen.Load(); hd.gen != gen {
		hd.rotate(gen)
	}
	return hd.sealing, hd.class
}

// seal ends the checkpoint for a series whose samples are in its chunks now.
func (h *heads) seal(id Series, ckpt uint32) {
	sh := h.shard(id)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	hd := sh.at(id)
	if hd == nil { // deleted meanwhile
		return
	}
	hd.sealing = nil
	hd.sealed = ckpt
}

// carry ends the checkpoint for a series whose samples stay in its head. When the checkpoint failed, they
// are to be moved by the next one.
func (h *heads) carry(id Series, failed bool) {
	sh := h.shard(id)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	hd := sh.at(id)
	if hd == nil || hd.sealing == nil {
		return
	}
	before := hd.sealing.samples
	hd.sealing = nil
	hd.dirty = hd.dirty || failed
	if hd.open.count() == 0 {
		hd.open = before
		return
	}
	after := hd.open.appendSamples(nil)
	// The octets of before may be in the hands of a query; clipping makes add move to new ones.
	before.b = before.b[:len(before.b):len(before.b)]
	for i := range after {
		before.add(&after[i])
	}
	hd.open = before
}

// headView is what a query needs of a head, unaffected by what comes later.
type headView struct {
	sealing, open column
	class         Class
	classes       uint8
	sealed        uint32
}

// view is false when the series does not exist.
func (h *heads) view(id Series) (v headView, ok bool) {
	sh := h.shard(id)
	sh.mu.RLock()
	defer sh.mu.RUnlock()
	hd := sh.at(id)
	if hd == nil {
		return v, false
	}
	v = headView{open: hd.open, class: hd.class, classes: hd.classes, sealed: hd.sealed}
	if hd.sealing != nil {
		v.sealing = hd.sealing.samples
	}
	return v, true
}

func (h *heads) exists(id Series) bool {
	sh := h.shard(id)
	sh.mu.RLock()
	defer sh.mu.RUnlock()
	return sh.at(id) != nil
}

// Latest is the sample greatest in (Time, order of arrival); its Raw is the caller's, its Seq is 0. It reads
// memory only; ok is false when the series has none.
func (s *Store) Latest(id Series) (sample Sample, ok bool) {
	sh := s.heads.shard(id)
	sh.mu.RLock()
	defer sh.mu.RUnlock()
	hd := sh.at(id)
	if hd == nil || !hd.hasLast {
		return Sample{}, false
	}
	return hd.lastCopy(), true
}

// FinestScale is the finest precision ever stored in the series; 6, milliseconds, when it is empty.
func (s *Store) FinestScale(id Series) uint8 {
	sh := s.heads.shard(id)
	sh.mu.RLock()
	defer sh.mu.RUnlock()
	hd := sh.at(id)
	if hd == nil {
		return defaultScale
	}
	return hd.scale
}

// defaultScale is milliseconds, the precision of receipt stamps.
const defaultScale = 6
