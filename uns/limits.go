package uns

import (
	"sync/atomic"
	"time"
)

// bucket lets a number of values through a second, with a burst of one second's worth. It keeps one number: when the
// bucket would be full again if nothing more came. Safe for concurrent use, without a lock; the zero bucket is off.
type bucket struct {
	width time.Duration // time one value takes at the allowed rate; 0 = off
	full  atomic.Int64
}

func (b *bucket) set(perSec int) {
	if perSec > 0 {
		b.width = time.Second / time.Duration(perSec)
	}
}

// allow takes one value out at now, which is a time since some fixed point.
func (b *bucket) allow(now time.Duration) bool {
	if b.width == 0 {
		return true
	}
	for {
		was := b.full.Load()
		full := time.Duration(was)
		if full < now || full > now+time.Second {
			// Beyond a second ahead only after a clock that went back: waiting for it to catch up could take hours.
			full = now
		}
		if full += b.width; full > now+time.Second {
			return false
		}
		if b.full.CompareAndSwap(was, int64(full)) {
			return true
		}
	}
}
