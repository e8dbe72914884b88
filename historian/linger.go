package historian

import (
	"math"
	"runtime"
	"time"
)

const (
	// slowRate is how many values a second make waiting worthwhile: below, a group would gain a value or two.
	slowRate = 5000.0
	// rateMemory is the time constant of the moving rate.
	rateMemory = 100 * time.Millisecond
	// autoWindowSync and autoWindow are how long a group may fill when the window is auto.
	autoWindowSync = 4 * time.Millisecond
	autoWindow     = time.Millisecond
	// lingerTick is how often a filling group is looked at. An idle Go process wakes no finer than about 1 ms.
	lingerTick = time.Millisecond
)

const (
	// quorumProof is how many groups in a row must end with the same callers before their number is trusted.
	quorumProof = 3
	// quorumTrust is how many groups end by quorum before it is proved again.
	quorumTrust = 64
)

// linger decides how long the open group fills before it is committed. It belongs to the committer.
//
// A fixed set of callers that each wait for their answer (a closed loop) gains nothing from waiting once all
// of them are in: after a few groups that fell silent at the same number of callers, that number alone ends
// the wait. Paced callers never fall silent, so for them the window counts.
type linger struct {
	window time.Duration
	auto   bool
	rate   float64 // values a second, moving
	took   time.Time
	timer  *time.Timer

	quiet  int // callers of the last group that fell silent
	streak int // how many fell silent with that many
	trust  int // groups left until the quorum is proved again
	quorum int // callers that end the wait; 0 is off
}

func newLinger(o *PebbleOptions) *linger {
	l := &linger{window: o.CommitWindow, timer: time.NewTimer(time.Hour)}
	if o.CommitWindow == CommitWindowAuto {
		l.auto, l.window = true, autoWindow
		if o.SyncWrites {
			l.window = autoWindowSync
		}
	}
	l.timer.Stop()
	return l
}

// measure counts a group of n values taken now into the rate.
func (l *linger) measure(n int, now time.Time) {
	past := now.Sub(l.took).Seconds() / rateMemory.Seconds()
	l.took = now
	l.rate = l.rate*math.Exp(-past) + float64(n)/rateMemory.Seconds()
}

// wait returns when the open group is to be committed. Stop ends it too, by closing.
func (l *linger) wait(q *groups) {
	if l.window == 0 {
		return
	}
	start := time.Now()
	// The rate is that of the last group; a pause since then made it smaller.
	if l.auto && l.rate*math.Exp(-start.Sub(l.took).Seconds()/rateMemory.Seconds()) < slowRate {
		gather(q)
		return
	}
	// The window runs from the group's first share. A group that filled while the one before it was being
	// written has had part of its window already, or all of it.
	opened := q.opened()
	left := l.window - start.Sub(opened)
	if left <= 0 {
		l.forget(q)
		return
	}
	seen := q.callers()
	l.timer.Reset(min(lingerTick, left))
	defer l.timer.Stop()
	for {
		select {
		case <-q.ripe:
			l.ripened(q)
			return
		case <-l.timer.C:
		}
		now := q.callers()
		spent := time.Since(opened)
		switch {
		case now == seen:
			l.fellSilent(q, now)
			return
		case spent >= l.window:
			l.forget(q)
			return
		}
		seen = now
		l.timer.Reset(min(lingerTick, l.window-spent))
	}
}

// gatherTurns bounds how often gather steps aside.
const gatherTurns = 8

// gather lets callers that were just released and are about to come back run first, as long as some do. It
// costs microseconds and spares a closed loop every second fsync.
func gather(q *groups) {
	quiet := 0
	for seen, turn := q.callers(), 0; turn < gatherTurns && quiet < 2; turn++ {
		runtime.Gosched()
		if now := q.callers(); now != seen {
			seen, quiet = now, 0
		} else {
			quiet++
		}
	}
}

// ripened: the group is full or every caller is in it.
func (l *linger) ripened(q *groups) {
	if l.quorum == 0 {
		return
	}
	if l.trust--; l.trust <= 0 {
		l.quorum, l.streak = 0, quorumProof-1
		q.setQuorum(0)
	}
}

// fellSilent: nobody joined during a whole tick.
func (l *linger) fellSilent(q *groups, callers int) {
	if callers != l.quiet {
		l.forget(q)
		l.quiet = callers
		return
	}
	if l.streak++; l.streak >= quorumProof && l.quorum == 0 {
		l.quorum, l.trust = callers, quorumTrust
		q.setQuorum(callers)
	}
}

// forget drops the quorum: the callers are not a fixed set.
func (l *linger) forget(q *groups) {
	l.quiet, l.streak = 0, 0
	if l.quorum != 0 {
		l.quorum = 0
		q.setQuorum(0)
	}
}

func (q *groups) setQuorum(n int) {
	q.mu.Lock()
	q.quorum = n
	q.mu.Unlock()
}
