package historian

import (
	"slices"
	"sync"
)

// ckptList is what queries know of the checkpoints: which times the chunks of each cover, so that most of
// them need no probe. Oldest first.
type ckptList struct {
	mu    sync.RWMutex
	spans []span
}

func (l *ckptList) add(spans ...span) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.spans = append(l.spans, spans...)
}

// sort puts the spans in order of checkpoint, as they are read by class at a start, and drops doubles.
func (l *ckptList) sort() {
	slices.SortStableFunc(l.spans, func(a, b span) int {
		if a.ckpt != b.ckpt {
			return int(int64(a.ckpt) - int64(b.ckpt))
		}
		return int(a.class) - int(b.class)
	})
	l.spans = slices.CompactFunc(l.spans, func(a, b span) bool { return a.ckpt == b.ckpt && a.class == b.class })
}

// overlapping appends the spans up to a checkpoint, of the classes in the bit set, that touch from <= t < to.
func (l *ckptList) overlapping(dst []span, classes uint8, upTo uint32, from, to int64) []span {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, s := range l.spans {
		if s.ckpt > upTo {
			break
		}
		if classes&(1<<s.class) != 0 && s.from < to && s.to >= from {
			dst = append(dst, s)
		}
	}
	return dst
}
