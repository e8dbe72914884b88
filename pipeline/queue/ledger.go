package queue

import (
	"sort"
	"time"
)

// parcel is one frame in the stream, as the ledger knows it.
type parcel struct {
	seq     uint64 // in the stream, over all lanes
	bytes   int64
	runs    int
	created time.Time
}

// delivery is a frame that is out.
type delivery struct {
	parcel
	since time.Time // when it was handed out or last reported on
	lost  bool      // the stream has it no more: a crash would not run it again
}

// ledger is what a lane holds in the stream. Its owner's lock guards it.
type ledger struct {
	waiting []parcel // by sequence; from head on
	head    int
	acked   uint64              // the highest sequence the stream has confirmed
	early   map[uint64]struct{} // handed out before their confirmation was read
	out     map[uint64]*delivery

	outRuns  int
	outBytes int64
}

func newLedger() ledger {
	return ledger{early: make(map[uint64]struct{}), out: make(map[uint64]*delivery)}
}

func (g *ledger) queue() []parcel { return g.waiting[g.head:] }

// confirm enters a frame that the stream has taken; false when it is out already.
func (g *ledger) confirm(p parcel) bool {
	g.acked = max(g.acked, p.seq)
	if _, was := g.early[p.seq]; was {
		delete(g.early, p.seq)
		return false
	}
	g.waiting = append(g.waiting, p)
	return true
}

// find is the place of a sequence in waiting, -1 when it is not there.
func (g *ledger) find(seq uint64) int {
	list := g.queue()
	i := sort.Search(len(list), func(i int) bool { return list[i].seq >= seq })
	if i == len(list) || list[i].seq != seq {
		return -1
	}
	return g.head + i
}

// remove takes place i out of waiting.
func (g *ledger) remove(i int) parcel {
	p := g.waiting[i]
	if i == g.head {
		g.head++
	} else {
		g.waiting = append(g.waiting[:i], g.waiting[i+1:]...)
	}
	switch {
	case g.head == len(g.waiting):
		g.waiting, g.head = g.waiting[:0], 0
	case g.head >= 1024 && g.head*2 >= len(g.waiting):
		n := copy(g.waiting, g.waiting[g.head:])
		g.waiting, g.head = g.waiting[:n], 0
	}
	return p
}

// hand enters a delivery: fresh says that the frame is to be handed to the taker. again says that it was out before and
// neither acknowledged nor reported on within wait. Neither: it was shed or is in hand.
func (g *ledger) hand(p parcel, now time.Time, wait time.Duration) (fresh, again bool) {
	if d := g.out[p.seq]; d != nil {
		// Copies lie in the client's buffer for as long as nobody takes, so the stream's own clock proves nothing.
		if now.Sub(d.since) < wait-wait/10 {
			return false, false
		}
		d.since = now
		return true, true
	}
	if i := g.find(p.seq); i >= 0 {
		g.remove(i)
	} else if p.seq <= g.acked {
		return false, false
	} else if _, was := g.early[p.seq]; was {
		return false, false // taken and acknowledged, all before its confirmation was read
	} else {
		g.early[p.seq] = struct{}{}
	}
	g.out[p.seq] = &delivery{parcel: p, since: now}
	g.outRuns += p.runs
	g.outBytes += p.bytes
	return true, false
}

// settle ends a delivery; false when it had ended.
func (g *ledger) settle(seq uint64) bool {
	d := g.out[seq]
	if d == nil {
		return false
	}
	delete(g.out, seq)
	g.outRuns -= d.runs
	g.outBytes -= d.bytes
	return true
}

// below takes out everything that waits below a sequence: the stream has lost it.
func (g *ledger) below(seq uint64) (lost []parcel) {
	for list := g.queue(); len(list) > 0 && list[0].seq < seq; list = g.queue() {
		lost = append(lost, g.remove(g.head))
	}
	return lost
}
