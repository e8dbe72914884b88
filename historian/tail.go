package historian

import "sync"

const (
	// tailBytes is how much of the log is kept in memory for readers that are near its end: seconds at full rate.
	tailBytes = 512 << 10
	// tailGroups bounds how many groups that is.
	tailGroups = 1 << 13
	// tailLargest is the largest record that is kept; readers find larger ones on the disk.
	tailLargest = tailBytes / 4
)

// tail is the newest part of the log in memory: records of committed groups, in order, without a hole up to last. The
// committer adds to it after it has answered the callers and never waits for a reader; who is too slow reads from the disk.
type tail struct {
	mu     sync.Mutex
	buf    []byte // used as a ring; a record lies in it whole
	groups []tailGroup
	first  int // of groups, as a ring
	n      int
	at     int // where the next record goes
	// last is the last sequence that readers may see. All up to it can be read from the disk.
	last    uint64
	readers int
	// wake is closed when last grows; nil while nobody waits.
	wake chan struct{}
}

// tailGroup is one record and where it lies.
type tailGroup struct {
	first, last uint64
	from, size  int
}

// begin says how far the log went when the store was opened. Memory of the ring is taken page by page as it is written to.
func (t *tail) begin(last uint64) {
	t.last = last
	t.buf = make([]byte, tailBytes)
	t.groups = make([]tailGroup, tailGroups)
}

// put adds the record of a group that is committed and in the heads. rec is copied.
func (t *tail) put(first, last uint64, rec []byte) {
	t.mu.Lock()
	if t.readers == 0 || len(rec) > tailLargest {
		t.n, t.at = 0, 0
	} else {
		t.keep(tailGroup{first, last, 0, len(rec)}, rec)
	}
	t.last = last
	wake := t.wake
	t.wake = nil
	t.mu.Unlock()
	if wake != nil {
		close(wake)
	}
}

// keep copies a record over the oldest ones. The lock is held.
func (t *tail) keep(g tailGroup, rec []byte) {
	if t.n == len(t.groups) {
		t.drop()
	}
	if t.at+g.size > len(t.buf) {
		// The rest of the buffer stays empty; the oldest records lie there.
		for t.n > 0 && t.groups[t.first].from >= t.at {
			t.drop()
		}
		t.at = 0
	}
	for t.n > 0 && t.groups[t.first].from >= t.at && t.groups[t.first].from < t.at+g.size {
		t.drop()
	}
	g.from = t.at
	t.at += copy(t.buf[t.at:], rec)
	t.groups[(t.first+t.n)%len(t.groups)] = g
	t.n++
}

func (t *tail) drop() {
	t.first = (t.first + 1) % len(t.groups)
	t.n--
}

// The answers of tail.next.
const (
	tailRead   = iota // a record was copied
	tailBehind        // the sequence is on the disk alone
	tailWait          // it is not there yet: wait for the channel
)

// next copies the record that holds sequence at, or the first one behind it, into dst.
func (t *tail) next(at uint64, dst []byte) (rec []byte, g tailGroup, wait chan struct{}, how int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if at > t.last {
		if t.wake == nil {
			t.wake = make(chan struct{})
		}
		return nil, g, t.wake, tailWait
	}
	if t.n == 0 || at < t.groups[t.first].first {
		return nil, g, nil, tailBehind
	}
	lo, hi := 0, t.n-1
	for lo < hi {
		if mid := (lo + hi) / 2; t.groups[(t.first+mid)%len(t.groups)].last < at {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	g = t.groups[(t.first+lo)%len(t.groups)]
	return append(dst, t.buf[g.from:g.from+g.size]...), g, nil, tailRead
}

// join and leave count the readers; without any, nothing is copied.
func (t *tail) join()  { t.count(1) }
func (t *tail) leave() { t.count(-1) }

func (t *tail) count(n int) {
	t.mu.Lock()
	t.readers += n
	t.mu.Unlock()
}

// seen is the last sequence that readers may see.
func (t *tail) seen() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last
}
