package historian

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// slowFsync is a commit worth telling of.
	slowFsync = 50 * time.Millisecond
	// slowShown is how long one stays visible in State.
	slowShown = 10 * time.Second
	// hungFsync is a commit that gates appends: the disk hangs, and callers had better keep their values.
	hungFsync = time.Second
	// watchEvery is the pace of the watch.
	watchEvery = 250 * time.Millisecond
)

// The words of State.Why.
const (
	whyDiskLow = "disk_low"
	whyFsync   = "fsync"
)

// stall knows whether the store takes values. The watch and the committer change it; appends look at gate.
type stall struct {
	gate        atomic.Pointer[gate] // nil when values are taken
	commitStart atomic.Int64         // of the commit under way, by ticks; 0 when there is none
	free        atomic.Uint64
	spent       atomic.Uint64 // what commits since the last look at free may have used of it
	writeNanos  atomic.Int64  // spent in stalls that are over

	started time.Time // what ticks counts from

	mu        sync.Mutex
	disk      bool
	hung      bool
	diskSince time.Time
	slowSince time.Time // begin of the last slow commit
	slowUntil time.Time // until when State shows it
}

func (st *stall) init() { st.started = time.Now() }

// ticks is the time on a clock that nobody sets; never 0.
func (st *stall) ticks() int64 { return int64(time.Since(st.started)) + 1 }

// gate holds appends back until open is closed.
type gate struct{ open chan struct{} }

// pass waits while the store is stalled. Append calls it before anything is in a group.
func (st *stall) pass(ctx context.Context, s *Store) error {
	for {
		g := st.gate.Load()
		if g == nil {
			return nil
		}
		select {
		case <-g.open:
		case <-ctx.Done():
			return fmt.Errorf("%w (%s): %w", ErrStalled, st.state().Why, ctx.Err())
		case <-s.group.closing:
			return ErrClosed
		case <-s.report.dead:
			return s.report.failure()
		}
	}
}

// regate opens or shuts the gate after a change. The lock is held.
func (st *stall) regate() {
	g := st.gate.Load()
	switch stalled := st.disk || st.hung; {
	case stalled && g == nil:
		st.gate.Store(&gate{open: make(chan struct{})})
	case !stalled && g != nil:
		st.gate.Store(nil)
		close(g.open)
	}
}

func (st *stall) commitBegins() { st.commitStart.Store(st.ticks()) }

func (st *stall) commitEnds(s *Store, start time.Time, took time.Duration) {
	st.commitStart.Store(0)
	if took > slowFsync || st.gate.Load() != nil {
		st.slow(s, start, took)
	}
}

// slow notes an fsync if it took long, and ends the gating if it had come to that.
func (st *stall) slow(s *Store, start time.Time, took time.Duration) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.hung {
		st.hung = false
		st.regate()
	}
	if took <= slowFsync {
		return
	}
	st.writeNanos.Add(int64(took))
	if start.After(st.slowUntil) {
		s.log.Warn("an fsync was slow; every acknowledgement waits for it", "dir", s.dir, "took", took)
		st.slowSince = start
	}
	st.slowUntil = start.Add(took + slowShown)
}

// seconds is the time spent in stalls so far, the one under way included.
func (st *stall) seconds() float64 {
	total := st.writeNanos.Load()
	if start := st.commitStart.Load(); start != 0 {
		if age := st.ticks() - start; age > int64(slowFsync) {
			total += age
		}
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.disk {
		total += int64(time.Since(st.diskSince))
	}
	return time.Duration(total).Seconds()
}

func (st *stall) state() State {
	now := time.Now()
	age := time.Duration(0)
	if start := st.commitStart.Load(); start != 0 {
		age = time.Duration(st.ticks() - start)
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	out := State{Stalled: st.disk || st.hung, FreeBytes: st.free.Load()}
	switch {
	case st.disk:
		out.Why, out.Since = whyDiskLow, st.diskSince
	case age > slowFsync:
		out.Why, out.Since = whyFsync, now.Add(-age)
	case now.Before(st.slowUntil):
		out.Why, out.Since = whyFsync, st.slowSince
	}
	return out
}

// watchLoop looks after what no append would notice in time.
func (s *Store) watchLoop() {
	tick := s.o.Tick
	if tick == nil {
		t := time.NewTicker(watchEvery)
		defer t.Stop()
		tick = t.C
	}
	for n := 1; ; n++ {
		select {
		case <-s.stop:
			return
		case <-tick:
		}
		s.watchSpace()
		s.watchCommit()
		s.watchAge()
		s.watchRetention()
		if err := s.dropHeld(); err != nil {
			s.log.Error("log that nobody needs any more could not be dropped; the next checkpoint does it", "dir", s.dir, "error", err)
		}
		s.group.nudge()
		if n%4 == 0 {
			s.measureDisk()
		}
	}
}

// watchSpace stalls the store before the disk is full: Pebble cannot go on after a write that finds no room.
// It resumes with a tenth more, so that it does not flutter.
func (s *Store) watchSpace() {
	st := &s.stall
	st.spent.Store(0) // before the look: what is committed meanwhile counts twice rather than not at all
	free, err := s.o.Free(s.dir)
	if err != nil {
		return // the file system cannot tell; nothing to hold back for
	}
	st.free.Store(free)
	low := uint64(s.o.MinFreeSpace)
	st.mu.Lock()
	defer st.mu.Unlock()
	switch {
	case !st.disk && free < low:
		st.disk, st.diskSince = true, time.Now()
		s.log.Warn("the disk is low; no value is taken until there is room again", "dir", s.dir, "free", free, "wanted", low)
	case st.disk && free >= low+low/10:
		st.disk = false
		st.writeNanos.Add(int64(time.Since(st.diskSince)))
		s.log.Info("the disk has room again", "dir", s.dir, "free", free)
	}
	st.regate()
}

// spaceFactor is how much of the disk a committed octet may take at once: in the log, and again in the table that
// its memtable becomes, with room for the pages of small writes.
const spaceFactor = 3

// wrote counts a commit of n octets against the free space seen last, so that large values cannot run past the
// watermark between two looks.
func (st *stall) wrote(s *Store, n int) {
	spent, free, low := st.spent.Add(uint64(n)*spaceFactor), st.free.Load(), uint64(s.o.MinFreeSpace)
	if low == 0 || free == 0 || free >= low+spent || st.gate.Load() != nil {
		return
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if !st.disk {
		st.disk, st.diskSince = true, time.Now()
		s.log.Warn("the disk may be low; no value is taken until it was looked at again", "dir", s.dir, "free", free, "wanted", low)
		st.regate()
	}
}

// watchCommit stalls the store while an fsync hangs.
func (s *Store) watchCommit() {
	st := &s.stall
	start := st.commitStart.Load()
	if start == 0 || st.ticks()-start < int64(hungFsync) {
		return
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	// Looked at again under the lock: a commit that has just ended must not leave the gate shut.
	if st.commitStart.Load() == start && !st.hung {
		st.hung = true
		s.log.Error("an fsync hangs; no value is taken until it returns", "dir", s.dir)
		st.regate()
	}
}

// watchAge asks for a checkpoint when the last one is long ago.
func (s *Store) watchAge() {
	if !s.ckptMu.TryLock() {
		return // one is running
	}
	due := s.o.Now().Sub(s.lastCkpt) >= s.o.Checkpoint.Every && s.lastSeq.Load() > s.fence.seq
	s.ckptMu.Unlock()
	if due {
		signal(s.wakeCheckpoint)
	}
}
