package historian

// KeepNow does at once what the watch and the keeper do by themselves: it looks at the clock and deletes what is due.
func (s *Store) KeepNow() error {
	s.keep.tell(s.o.Now(), s.o.Elapsed())
	return s.expire()
}

// KeptNow is the time retention counts by, in ns.
func (s *Store) KeptNow() int64 { return s.keep.now.Load() }

// TableBytes is what the tables in force take, without logs and files that are about to go.
func (s *Store) TableBytes() uint64 { return uint64(s.db.Metrics().Total().TablesSize) }
