package historian

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

const (
	// keepEvery is the pace at which what is past its retention is looked for.
	keepEvery = time.Minute
	// keptEvery is the pace at which the clock of retention is written down.
	keptEvery = time.Hour
	// jumpTolerance is how far the wall clock may be ahead of where it should be without being a jump.
	jumpTolerance = time.Hour
	// jumpHolds is how long a clock that jumped ahead must stay there before values are deleted by it.
	jumpHolds = 24 * time.Hour
)

// keepClock is the time by which retention counts. A wall clock that jumps ahead must not delete a year of values: until it
// has stayed there for a day, the time goes on from where it was, at the pace of the machine. A clock that jumps back
// is followed at once, since that deletes nothing.
type keepClock struct {
	now atomic.Int64 // ns

	mu      sync.Mutex
	base    int64         // ns, the last time that was believed
	elapsed time.Duration // of the machine, at base
	ahead   time.Duration // of the machine, when the wall clock was first seen ahead
	jumped  bool
	warned  bool
}

// begin starts at the time that was believed last; 0: there is none.
func (c *keepClock) begin(believed int64, wall time.Time, elapsed time.Duration) {
	if believed == 0 {
		believed = wall.UnixNano()
	}
	c.base, c.elapsed = believed, elapsed
	c.tell(wall, elapsed)
}

// tell shows the clock what the wall clock and the machine say. jumped: the wall clock is not believed for now, and that
// is new.
func (c *keepClock) tell(wall time.Time, elapsed time.Duration) (jumped bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w, due := wall.UnixNano(), c.base+int64(elapsed-c.elapsed)
	switch {
	case w <= due+int64(jumpTolerance):
		c.jumped, c.warned = false, false
		if w >= due-int64(jumpTolerance) {
			c.base, c.elapsed = w, elapsed
		}
		c.now.Store(w)
		return false
	case !c.jumped:
		c.jumped, c.ahead = true, elapsed
	case elapsed-c.ahead >= jumpHolds:
		c.base, c.elapsed, c.jumped, c.warned = w, elapsed, false, false
		c.now.Store(w)
		return false
	}
	c.now.Store(due)
	jumped, c.warned = !c.warned, true
	return jumped
}

// believed is what begin wants after a restart.
func (c *keepClock) believed(elapsed time.Duration) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.base + int64(elapsed-c.elapsed)
}

// horizon is the time before which samples of a class are hidden, and deleted as their tables allow.
func (s *Store) horizon(class Class) int64 {
	keep := class.Duration()
	if s.o.KeepAll || keep == 0 {
		return math.MinInt64
	}
	now := s.keep.now.Load()
	if now < math.MinInt64+int64(keep) {
		return math.MinInt64
	}
	return now - int64(keep)
}

// beginKeeping finds the time by which retention went on before the start: what was written down, or the last receipt.
func (s *Store) beginKeeping() error {
	believed := int64(0)
	v, closer, err := s.db.Get([]byte(metaKept))
	if err == nil {
		if len(v) == 8 {
			believed = int64(binary.BigEndian.Uint64(v))
		}
		err = closer.Close()
	}
	if err != nil && !errors.Is(err, pebble.ErrNotFound) {
		return s.damaged(err)
	}
	for _, stamp := range s.group.stamps {
		believed = max(believed, stamp)
	}
	s.keep.begin(believed, s.o.Now(), s.o.Elapsed())
	return nil
}

// watchRetention keeps the clock, and asks for what is due.
func (s *Store) watchRetention() {
	elapsed := s.o.Elapsed()
	if s.keep.tell(s.o.Now(), elapsed) {
		s.log.Warn("the clock is far ahead of where it should be; until it has stayed there for a day, nothing is deleted by it",
			"dir", s.dir, "clock", s.o.Now().UTC(), "counted", time.Unix(0, s.keep.now.Load()).UTC())
	}
	if elapsed-s.keptLook >= keepEvery || s.keptLook == 0 {
		s.keptLook = elapsed
		signal(s.wakeKeep)
	}
}

// keepLoop deletes what is past its retention.
func (s *Store) keepLoop() {
	written := s.o.Elapsed()
	for {
		select {
		case <-s.stop:
			return
		case <-s.wakeKeep:
		}
		err := errors.Join(s.expire(), s.mergeDue(), s.purgeDue())
		if now := s.o.Elapsed(); err == nil && now-written >= keptEvery {
			written = now
			err = s.writeKept(now)
		}
		if err != nil {
			s.m.keepFailures.Inc()
			s.log.Error("what is past its retention could not be deleted; it is tried again in a minute", "dir", s.dir, "error", err)
		}
	}
}

// writeKept writes the clock down.
func (s *Store) writeKept(elapsed time.Duration) error {
	return s.db.Set([]byte(metaKept), binary.BigEndian.AppendUint64(nil, uint64(s.keep.believed(elapsed))), pebble.Sync)
}

// expire deletes the chunks of every checkpoint whose newest sample is past its class. The tables of a checkpoint hold one
// class each, so they vanish as whole files and the disk is free at once.
func (s *Store) expire() error {
	s.keepMu.Lock()
	defer s.keepMu.Unlock()
	if err := s.expireMerged(); err != nil {
		return fmt.Errorf("historian: expire merged hours of %s: %w", s.dir, err)
	}
	due := s.list.take(func(sp span) bool { return sp.to < s.horizon(sp.class) })
	if len(due) == 0 {
		return nil
	}
	// Queries that begin from here on do not look for these chunks; those under way keep seeing them.
	start := time.Now()
	if err := s.deleteSpans(due); err != nil {
		s.list.restore(due)
		return fmt.Errorf("historian: expire %d checkpoints of %s: %w", len(due), s.dir, err)
	}
	s.m.expired.Add(float64(len(due)))
	s.m.expireSeconds.Observe(time.Since(start).Seconds())
	s.log.Info("values past their retention are deleted", "dir", s.dir, "checkpoints", len(due), "took", time.Since(start))
	return nil
}

// expireMerged deletes the hours of each class that are past it as a whole.
func (s *Store) expireMerged() error {
	if !s.merged.Load() {
		return nil
	}
	for class := range Class(classCount) {
		horizon := s.horizon(class)
		if horizon == math.MinInt64 {
			continue
		}
		for _, space := range []byte{spaceTally, spaceMerged} {
			from, to := []byte{space, byte(class)}, appendPlace(nil, space, class, hourPlace(hourOf(horizon)))
			some, err := s.any(from, to)
			if err != nil {
				return err
			}
			if !some {
				continue
			}
			start := time.Now()
			if err := s.db.Excise(context.Background(), pebble.KeyRange{Start: from, End: to}); err != nil {
				return err
			}
			s.m.expireSeconds.Observe(time.Since(start).Seconds())
		}
	}
	return s.report.failure()
}

// deleteSpans takes chunks out of the store, and then the rows that lead to them: after a stop in between there are rows
// that lead to nothing, and they are due again.
func (s *Store) deleteSpans(due []span) error {
	s.cutMu.RLock()
	defer s.cutMu.RUnlock()
	for i := 0; i < len(due); {
		end := i + 1
		for end < len(due) && due[end].class == due[i].class && due[end].ckpt == due[end-1].ckpt+1 {
			end++
		}
		class, from, to := due[i].class, due[i].ckpt, due[end-1].ckpt
		err := s.db.Excise(context.Background(), pebble.KeyRange{
			Start: appendPlace(nil, spacePartial, class, from), End: placeEnd(spacePartial, class, to)})
		if err != nil {
			return err
		}
		i = end
	}
	return s.forgetSpans(due)
}

// forgetSpans deletes the rows of spans.
func (s *Store) forgetSpans(due []span) error {
	b := s.db.NewBatch()
	defer b.Close()
	for _, sp := range due {
		if err := b.Delete(appendSpanKey(nil, sp.class, sp.ckpt), nil); err != nil {
			return err
		}
	}
	if err := b.Commit(pebble.Sync); err != nil {
		return err
	}
	return s.report.failure()
}
