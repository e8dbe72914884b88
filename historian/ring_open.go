package historian

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// metaRing is the key that holds the life whose ring belongs to this directory.
const metaRing = "Mring"

// Where Options.Ring says that the ring lies.
const (
	RingAuto = "auto" // on /dev/shm, if that is tmpfs
	RingOff  = "off"
)

// recoverRing commits what a killed process had acknowledged and Pebble had not written yet. It comes before anything is read of
// the log, since it may add to it. Which commits Pebble has it need not know: they are the newest, in order, and committing
// one again changes nothing.
func (s *Store) recoverRing() error {
	life, closer, err := s.db.Get([]byte(metaRing))
	if errors.Is(err, pebble.ErrNotFound) {
		return nil // never one
	}
	if err != nil {
		return s.damaged(err)
	}
	life = bytes.Clone(life)
	if err := closer.Close(); err != nil {
		return s.damaged(err)
	}
	r, err := s.openRing(false)
	if err != nil || r == nil {
		return err
	}
	n, err := r.replay(life, func(b []byte) error {
		batch := s.db.NewBatch()
		if err := batch.SetRepr(bytes.Clone(b)); err != nil {
			return errors.Join(err, batch.Close())
		}
		return errors.Join(batch.Commit(pebble.NoSync), batch.Close())
	})
	if err == nil && n > 0 {
		err = errors.Join(s.db.LogData(nil, pebble.Sync), s.report.failure())
	}
	if err = errors.Join(err, r.unmap()); err != nil {
		return fmt.Errorf("historian: %s: %w", s.dir, err)
	}
	if n > 0 {
		s.log.Info("the last process was killed; its commits without fsync were in the ring", "dir", s.dir, "commits", n)
	}
	return nil
}

// beginRing makes the ring of this life where there is to be one, or removes one that is not wanted any more. It follows
// recoverRing and load.
func (s *Store) beginRing() error {
	if s.o.Pebble.SyncWrites || s.o.Ring == RingOff {
		s.removeRing()
		return nil
	}
	r, err := s.openRing(true)
	if err != nil || r == nil {
		return err
	}
	life := make([]byte, ringLife)
	if _, err := rand.Read(life); err != nil {
		return errors.Join(err, r.unmap())
	}
	// The ring of the life before has been taken; from here on it must not be taken again.
	if err := errors.Join(s.db.Set([]byte(metaRing), life, pebble.Sync), s.report.failure()); err != nil {
		return errors.Join(fmt.Errorf("historian: begin the ring of %s: %w", s.dir, err), r.unmap())
	}
	r.begin(life)
	s.ring = r
	return nil
}

// endRing gives the ring up, once all is on the disk.
func (s *Store) endRing() error {
	if s.ring == nil {
		return nil
	}
	err := s.ring.unmap()
	s.ring = nil
	s.removeRing()
	return err
}
