package historian

import "math"

// KeepNow does at once what the watch and the keeper do by themselves: it looks at the clock and deletes what is due.
func (s *Store) KeepNow() error {
	s.keep.tell(s.o.Now(), s.o.Elapsed())
	return s.expire()
}

// KeptNow is the time retention counts by, in ns.
func (s *Store) KeptNow() int64 { return s.keep.now.Load() }

// TableBytes is what the tables in force take, without logs and files that are about to go.
func (s *Store) TableBytes() uint64 { return uint64(s.db.Metrics().Total().TablesSize) }

// MergeNow merges every hour that is over.
func (s *Store) MergeNow() error {
	s.keep.tell(s.o.Now(), s.o.Elapsed())
	return s.mergeDue()
}

// Keys counts the keys of a keyspace.
func (s *Store) Keys(space byte) (n int) {
	err := s.scanDB([]byte{space}, func(_, _ []byte) (bool, error) { n++; return true, nil })
	if err != nil {
		panic(err)
	}
	return n
}

// MergeAll merges every checkpoint, whether its hours are over or not.
func (s *Store) MergeAll() error { return s.mergeBefore(math.MaxInt64) }

// PurgeNow takes deleted series off the disk.
func (s *Store) PurgeNow() error { return s.purgeDue() }

// KeysOf counts the places in which a series has keys of head rows, chunks and tallies.
func (s *Store) KeysOf(id Series) int {
	ranges, err := s.placesOf(id)
	if err != nil {
		panic(err)
	}
	return len(ranges)
}

// Ingested is how many octets of tables were ingested.
func (s *Store) Ingested() (sum uint64) {
	m := s.db.Metrics()
	for i := range m.Levels {
		sum += m.Levels[i].TableBytesIngested
	}
	return sum
}
