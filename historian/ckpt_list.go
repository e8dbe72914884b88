package historian

import (
	"cmp"
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

// take removes the spans that due names and gives them, by class and checkpoint.
func (l *ckptList) take(due func(span) bool) (out []span) {
	l.mu.Lock()
	defer l.mu.Unlock()
	kept := make([]span, 0, len(l.spans)) // queries hold copies, so the array could be used again; a shorter one is meant
	for _, s := range l.spans {
		if due(s) {
			out = append(out, s)
		} else {
			kept = append(kept, s)
		}
	}
	if len(out) > 0 {
		l.spans = kept
	}
	slices.SortFunc(out, func(a, b span) int { return cmp.Or(cmp.Compare(a.class, b.class), cmp.Compare(a.ckpt, b.ckpt)) })
	return out
}

// of gives the spans of a class, oldest first.
func (l *ckptList) of(class Class) (out []span) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, s := range l.spans {
		if s.class == class {
			out = append(out, s)
		}
	}
	return out
}

// restore puts back what could not be deleted.
func (l *ckptList) restore(spans []span) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.spans = append(l.spans, spans...)
	l.sort()
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
