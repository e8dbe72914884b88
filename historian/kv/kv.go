package kv

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/historian/datadir"
)

// ErrClosed: the store is closed; nothing was read or written.
var ErrClosed = errors.New("kv: closed")

// errEmptyKey: Pebble does not seek to one, so none gets in.
var errEmptyKey = errors.New("kv: apply: a key is empty")

// formatVersion is what the mark file of a new directory says.
const formatVersion = 1

const (
	memTableSize = 1 << 20
	cacheSize    = 1 << 20
)

// Options are what a Store needs from outside. Every field may be left zero.
type Options struct {
	// FS is the disk; nil is the real one.
	FS vfs.FS
	// Log gets what Pebble complains about; nil is silent.
	Log *slog.Logger
	// Fatal is called once when the disk refused a write: the process must end. Every later call of the store
	// fails with err. Nil leaves it at that.
	Fatal func(err error)
	// MemTable is how many octets are gathered in memory before they go into a table; 0 is 1 MiB. Much more suits a store
	// that is mostly written.
	MemTable uint64
}

// Op sets Key to Value, or deletes Key when Value is nil.
type Op struct{ Key, Value []byte }

// Store keeps records durably. All methods may be called at once from many goroutines.
type Store struct {
	fs     vfs.FS
	db     *pebble.DB
	claim  *datadir.Claim
	report *reporter

	commit sync.Mutex // held during a commit

	mu     sync.Mutex // guards closed against inUse
	closed bool
	inUse  sync.WaitGroup // calls that use db

	closing  sync.Once
	closeErr error
}

// Open opens or makes the store in dir. A foreign directory, a newer format, one in use or one that cannot
// be written is an error of one line that says how to mend it.
func Open(dir string, o Options) (*Store, error) {
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	claim, err := datadir.Take(o.FS, dir, kind())
	if err != nil {
		return nil, err
	}
	if err := claim.CheckLogs(o.FS, true); err != nil {
		return nil, errors.Join(err, claim.Release())
	}
	r := &reporter{log: o.Log.With("part", "kv"), fatal: o.Fatal}
	po := options(o.FS, claim.Lock(), r)
	if o.MemTable > 0 {
		po.MemTableSize = o.MemTable
	}
	db, err := pebble.Open(dir, po)
	if err != nil {
		return nil, errors.Join(claim.Explain(err), claim.Release())
	}
	return &Store{fs: o.FS, db: db, claim: claim, report: r}, nil
}

func options(fsys vfs.FS, lock *pebble.Lock, r *reporter) *pebble.Options {
	return &pebble.Options{
		FS:                          fsys,
		Lock:                        lock,
		Logger:                      r,
		FormatMajorVersion:          pebble.FormatValueSeparation,
		MemTableSize:                memTableSize,
		MemTableStopWritesThreshold: 4,
		CacheSize:                   cacheSize,
		MaxOpenFiles:                64,
	}
}

// enter holds the store open for one call, which ends with s.inUse.Done.
func (s *Store) enter() error {
	if err := s.report.failure(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	s.inUse.Add(1)
	return nil
}

// Get returns a copy of the value of key; ok is false when there is none.
func (s *Store) Get(key []byte) (value []byte, ok bool, err error) {
	if err := s.enter(); err != nil {
		return nil, false, err
	}
	defer s.inUse.Done()
	v, closer, err := s.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("kv: get: %w", err)
	}
	defer closer.Close()
	// An empty value must stay apart from none.
	return append([]byte{}, v...), true, nil
}

// Apply carries out all ops or none, in order; they are fsynced when it returns nil. It keeps none of the
// slices. A key is at least one octet. After an error the ops may or may not be there.
func (s *Store) Apply(ops ...Op) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.inUse.Done()
	if len(ops) == 0 {
		return nil
	}
	b := s.db.NewBatch()
	defer b.Close()
	for _, op := range ops {
		var err error
		if len(op.Key) == 0 {
			return errEmptyKey
		}
		if op.Value == nil {
			err = b.Delete(op.Key, nil)
		} else {
			err = b.Set(op.Key, op.Value, nil)
		}
		if err != nil {
			return fmt.Errorf("kv: apply: %w", err)
		}
	}
	// One at a time: a record in the log then proves that the one before it had been fsynced, which is how a damaged log
	// is told from a torn one.
	s.commit.Lock()
	err := b.Commit(pebble.Sync)
	s.commit.Unlock()
	if err != nil {
		return fmt.Errorf("kv: apply: %w", err)
	}
	// Pebble reports a failed fsync to its logger and returns nil when that returns.
	return s.report.failure()
}

// DropRange deletes every record with from <= key < to; fsynced when it returns nil.
func (s *Store) DropRange(from, to []byte) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.inUse.Done()
	s.commit.Lock()
	err := s.db.DeleteRange(from, to, pebble.Sync)
	s.commit.Unlock()
	if err != nil {
		return fmt.Errorf("kv: drop range: %w", err)
	}
	return s.report.failure()
}

// Scan calls fn for every record whose key starts with prefix, in key order, until fn returns false. It sees
// the records as they were when it began. Key and value are valid during fn only; fn may call Get and Apply,
// not Close.
func (s *Store) Scan(prefix []byte, fn func(key, value []byte) bool) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.inUse.Done()
	var bounds pebble.IterOptions
	if len(prefix) > 0 {
		bounds = pebble.IterOptions{LowerBound: prefix, UpperBound: prefixEnd(prefix)}
	}
	it, err := s.db.NewIter(&bounds)
	if err != nil {
		return fmt.Errorf("kv: scan: %w", err)
	}
	for ok := it.First(); ok; ok = it.Next() {
		if !fn(it.Key(), it.Value()) {
			break
		}
	}
	if err := it.Close(); err != nil {
		return fmt.Errorf("kv: scan: %w", err)
	}
	return nil
}

// Close closes the store after the calls under way. Calling it again gives the same answer. After a failed
// write it leaves the directory locked, because Pebble can no longer be stopped in an orderly way.
func (s *Store) Close() error {
	s.closing.Do(func() {
		s.mu.Lock()
		s.closed = true
		s.mu.Unlock()
		s.inUse.Wait()
		if s.closeErr = s.report.failure(); s.closeErr != nil {
			return
		}
		if err := s.db.Close(); err != nil {
			s.closeErr = fmt.Errorf("kv: close: %w", err)
		}
		s.closeErr = errors.Join(s.closeErr, s.claim.Release())
	})
	return s.closeErr
}

// prefixEnd is the first key behind every key that starts with prefix; nil when there is none.
func prefixEnd(prefix []byte) []byte {
	end := bytes.Clone(prefix)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i]++; end[i] != 0 {
			return end[:i+1]
		}
	}
	return nil
}
