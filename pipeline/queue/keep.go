package queue

import (
	"context"
	"time"
)

// causes of shedding.
type cause uint8

const (
	bySize cause = iota
	byAge
	byStore // the stream dropped it by itself; never seen, but it would be counted
	causes
)

// keep drops what is too old or too much, and looks once a second whether the stream has dropped anything by itself.
func (q *JetStream) keep() {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-q.evict:
		case <-tick.C:
			q.compare()
			if q.o.MaxAge > 0 {
				limit := q.o.Now().Add(-q.o.MaxAge)
				for q.dropOldest(byAge, func(p parcel) bool { return p.created.Before(limit) }) {
				}
			}
			for _, n := range q.lanes {
				signal(n.wake) // a lane that was refused tries again
			}
		case <-q.closing.Done():
			return
		}
		for !q.o.DiscardNewOnFull && q.held.Load() > q.o.MaxBytes {
			if !q.dropOldest(bySize, func(parcel) bool { return true }) {
				break
			}
		}
	}
}

// confirmed looks whether there is too much, after a frame has come to wait.
func (q *JetStream) confirmed() {
	q.mu.Lock()
	q.state.Fault, q.pauseTill = "", time.Time{}
	q.mu.Unlock()
	if !q.o.DiscardNewOnFull && q.held.Load() > q.o.MaxBytes {
		signal(q.evict)
	}
	q.freed()
}

// refused notes that the stream takes nothing; the first time it says so.
func (q *JetStream) refused(why string) {
	q.mu.Lock()
	first := q.state.Fault == ""
	q.state.Fault, q.pauseTill = why, time.Now().Add(250*time.Millisecond)
	q.mu.Unlock()
	if first {
		q.o.Log.Error("the execution queue's stream takes no frames; triggers wait in the historian's log until it does: see whether the disk is full or broken", "reason", why)
	}
}

func (q *JetStream) pausing() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return time.Now().Before(q.pauseTill)
}

// dropOldest sheds the frame that waits longest, of all lanes, if it is meant; false when there is none.
func (q *JetStream) dropOldest(why cause, meant func(parcel) bool) bool {
	var pick *lane
	var oldest parcel
	for _, n := range q.lanes {
		n.mu.Lock()
		if list := n.ledger.queue(); len(list) > 0 && (pick == nil || list[0].seq < oldest.seq) && meant(list[0]) {
			pick, oldest = n, list[0]
		}
		n.mu.Unlock()
	}
	if pick == nil {
		return false
	}
	pick.mu.Lock()
	i := pick.ledger.find(oldest.seq)
	if i >= 0 {
		pick.ledger.remove(i)
		pick.pending -= oldest.runs
	}
	pick.mu.Unlock()
	if i < 0 {
		return true // somebody took it meanwhile
	}
	q.held.Add(-oldest.bytes)
	q.drop(oldest, why)
	return true
}

// drop tells whose runs a frame holds, counts them and takes it out of the stream. It is in no ledger any more.
func (q *JetStream) drop(p parcel, why cause) {
	ctx, done := context.WithTimeout(q.closing, 10*time.Second)
	defer done()
	q.mu.Lock()
	q.shed[why] += uint64(p.runs)
	q.mu.Unlock()
	m, err := q.ctl.GetMsg(ctx, p.seq)
	if err == nil {
		var entries []Entry
		if _, entries, err = decode(m.Data); err == nil && q.o.Shed != nil {
			q.o.Shed(entries)
		}
	}
	if err == nil {
		err = q.ctl.DeleteMsg(ctx, p.seq)
	}
	if err != nil && q.closing.Err() == nil {
		q.o.Log.Error("a frame that was dropped from the execution queue could not be read or deleted", "frame", p.seq, "error", err)
	}
	q.freed()
}

// compare looks whether the stream still holds what the ledgers say.
func (q *JetStream) compare() {
	any := false
	for _, n := range q.lanes {
		n.mu.Lock()
		any = any || len(n.ledger.queue()) > 0 || len(n.ledger.out) > 0
		n.mu.Unlock()
	}
	if !any {
		return
	}
	ctx, done := context.WithTimeout(q.closing, 10*time.Second)
	defer done()
	info, err := q.ctl.Info(ctx)
	if err != nil {
		return // the writers see a stream that is gone, and say so
	}
	first := info.State.FirstSeq
	for _, n := range q.lanes {
		n.mu.Lock()
		lost := n.ledger.below(first)
		var runs, out int
		for _, p := range lost {
			runs += p.runs
			q.held.Add(-p.bytes)
		}
		n.pending -= runs
		for seq, d := range n.ledger.out {
			if seq < first && !d.lost {
				d.lost = true
				out += d.runs
			}
		}
		n.mu.Unlock()
		if runs+out > 0 {
			q.mu.Lock()
			q.shed[byStore] += uint64(runs)
			q.lostOut += uint64(out)
			q.mu.Unlock()
			q.o.Log.Error("the execution queue's stream has lost frames", "lane", n.l, "waiting", runs, "out", out)
		}
	}
}

// Stats implements Queue.
func (q *JetStream) Stats() Stats {
	s := Stats{Bytes: q.held.Load()}
	for l, n := range q.lanes {
		n.mu.Lock()
		s.Pending[l] = n.pending
		s.InFlight[l] = n.ledger.outRuns
		s.Frames[l] = len(n.ledger.queue()) + len(n.ledger.out)
		s.Redelivered += n.lapsed
		switch {
		case n.pending == 0: // what is on its way may have been taken before its confirmation was read
		case len(n.ledger.queue()) > 0:
			s.Oldest[l] = n.ledger.queue()[0].created
		case len(n.flying) > 0:
			s.Oldest[l] = n.flying[0].created
		case len(n.ready) > 0:
			s.Oldest[l] = n.ready[0].created
		case n.open != nil:
			s.Oldest[l] = n.open.created
		}
		n.mu.Unlock()
	}
	q.mu.Lock()
	s.ShedSize, s.ShedAge, s.ShedStore, s.LostOut = q.shed[bySize], q.shed[byAge], q.shed[byStore], q.lostOut
	q.mu.Unlock()
	return s
}
