package historian

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"millrace/historian/datadir"
)

// ErrClosed: the store is closed or closing; nothing was stored.
var ErrClosed = errors.New("historian: closed")

// ErrStalled: ctx ended while the store was not taking values (disk low, fsync hanging); nothing was stored.
var ErrStalled = errors.New("historian: stalled")

// ErrUnknownSeries: no series has that id; nothing was stored.
var ErrUnknownSeries = errors.New("historian: unknown series")

// Store keeps samples in a directory of its own. All methods may be called at once from many goroutines.
type Store struct {
	o      Options
	dir    string
	log    *slog.Logger
	claim  *datadir.Claim
	db     *pebble.DB
	report *reporter
	m      *metrics

	keep     keepClock
	viewMu   sync.RWMutex  // held while merged chunks take the place of others, and by whoever begins to look
	keepMu   sync.Mutex    // one expiry or merge at a time
	keptLook time.Duration // of the watch, when it last asked for what is due

	heads heads
	group groups // the open group and what orders it
	list  ckptList
	stall stall
	ring  *ring // nil: none
	tail  tail
	held  held
	// logFrom is the first sequence that the log on the disk still holds, or the next one.
	logFrom atomic.Uint64

	// applyMu is held while a committed group goes into the heads, and while a checkpoint draws its line.
	applyMu   sync.Mutex
	applied   uint64 // the last sequence in the heads
	logBytes  atomic.Int64
	logValues atomic.Int64

	lastSeq, syncedSeq atomic.Uint64
	unsynced           atomic.Int64 // ticks of the oldest commit that no fsync covers; 0 when there is none
	syncing            atomic.Int64 // the same of the fsync under way
	syncMu             sync.Mutex   // held during an fsync of syncLog
	diskBytes          atomic.Uint64
	seriesCount        atomic.Int64

	// cutMu keeps Snapshot from cutting between tables that were put in force and the batch that follows from it.
	cutMu sync.RWMutex

	ckptMu   sync.Mutex // one checkpoint at a time; guards fence and lastCkpt
	fence    fence
	lastCkpt time.Time
	merged   atomic.Bool // there are chunks in the C keyspace
	// mergedUpTo is the last checkpoint that a merge took, raised before its tables are in force.
	mergedUpTo atomic.Uint32

	setMu sync.Mutex // one SetSeries at a time

	readers chan struct{} // a slot for each that reads many hours

	wakeCheckpoint chan struct{}
	wakeSync       chan struct{}
	wakeKeep       chan struct{}
	stop           chan struct{} // closed when the watch, the checkpointer and the syncer are to end
	loops          sync.WaitGroup
	committing     sync.WaitGroup

	useMu  sync.Mutex // guards closed against inUse
	closed bool
	inUse  sync.WaitGroup // calls that use db

	closing  sync.Once
	closeErr error
}

// Open opens or makes the store in dir. It returns when every value acknowledged before can be read again. A
// foreign directory, a newer format, one in use or one that cannot be written is an error of one line saying
// what, where and how to mend it; such a directory is left as it is.
func Open(dir string, o Options) (*Store, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o.settle()
	claim, err := datadir.Take(o.FS, dir, datadir.Kind{Part: "historian", Version: formatVersion})
	if err != nil {
		return nil, err
	}
	s := &Store{
		o: o, dir: dir, log: o.Log, claim: claim,
		report:         newReporter(o.Log, o.Fatal),
		readers:        newReaders(),
		wakeCheckpoint: make(chan struct{}, 1),
		wakeSync:       make(chan struct{}, 1),
		wakeKeep:       make(chan struct{}, 1),
		stop:           make(chan struct{}),
	}
	if err := claim.CheckLogs(o.FS, false); err != nil {
		return nil, errors.Join(err, claim.Release())
	}
	s.stall.init()
	room := s.roomAtOpen()
	po := func() *pebble.Options { return pebbleOptions(o.FS, claim.Lock(), s.report, room) }
	if err := datadir.Settled(dir, po); err != nil {
		return nil, errors.Join(claim.Explain(err), claim.Release())
	}
	if s.db, err = pebble.Open(dir, po()); err != nil {
		return nil, errors.Join(claim.Explain(err), claim.Release())
	}
	if err := s.recoverRing(); err != nil {
		return nil, errors.Join(err, s.db.Close(), claim.Release())
	}
	if err := s.load(); err != nil {
		return nil, errors.Join(err, s.db.Close(), claim.Release())
	}
	if err := s.beginRing(); err != nil {
		return nil, errors.Join(err, s.db.Close(), claim.Release())
	}
	if o.warm && s.roomToWarm() {
		if err := s.warmLog(room); err != nil {
			return nil, errors.Join(err, s.db.Close(), claim.Release())
		}
	}
	if s.m, err = newMetrics(o.Registry, s); err != nil {
		return nil, errors.Join(fmt.Errorf("historian: metrics: %w", err), s.db.Close(), claim.Release())
	}
	s.start()
	return s, nil
}

// start begins the goroutines of an open store.
func (s *Store) start() {
	s.lastCkpt = s.o.Now()
	s.group.init(s)
	s.watchSpace()
	s.measureDisk()
	s.committing.Go(s.commitLoop)
	s.loops.Go(s.watchLoop)
	s.loops.Go(s.checkpointLoop)
	if !s.o.KeepAll {
		s.loops.Go(s.keepLoop)
	}
	if !s.o.Pebble.SyncWrites {
		s.loops.Go(s.syncLoop)
	}
}

// Close takes no more values, commits what is open, checkpoints and closes. An append under way either
// succeeds or returns ErrClosed, and then nothing of it was stored. Calling it again gives the same answer.
// After a failed write it leaves the directory locked: Pebble can no longer be stopped in an orderly way.
func (s *Store) Close() error {
	s.closing.Do(func() { s.closeErr = s.shut() })
	return s.closeErr
}

func (s *Store) shut() error {
	s.group.close()
	s.committing.Wait()
	close(s.stop)
	s.loops.Wait()
	s.useMu.Lock()
	s.closed = true
	s.useMu.Unlock()
	s.inUse.Wait()
	defer s.m.unregister()
	if err := s.report.failure(); err != nil {
		return err
	}
	err := s.settleDown()
	if failure := s.report.failure(); failure != nil {
		return failure
	}
	wal := s.db.Metrics().WAL
	if err := s.db.Close(); err != nil {
		return fmt.Errorf("historian: close %s: %w", s.dir, err)
	}
	if err == nil && wal.PhysicalSize+wal.ObsoletePhysicalSize > restLogBytes {
		err = s.dropLogFiles()
	}
	return errors.Join(err, s.endRing(), s.claim.Release())
}

// restLogBytes is how large write-ahead log files without content may be at rest.
const restLogBytes = 1 << 20

// dropLogFiles removes the write-ahead log files that Pebble keeps for reuse, up to 5 of 16 MB each. They are
// empty after the flush; Pebble removes them at a start and at no other time.
func (s *Store) dropLogFiles() error {
	db, err := pebble.Open(s.dir, pebbleOptions(s.o.FS, s.claim.Lock(), s.report, s.roomAtOpen()))
	if err == nil {
		err = db.Close()
	}
	if err != nil {
		return fmt.Errorf("historian: drop the log files in %s: %w", s.dir, err)
	}
	return s.report.failure()
}

// settleDown leaves a directory that opens fast and takes little room.
func (s *Store) settleDown() error {
	if err := s.checkpoint(); err != nil {
		return err
	}
	if err := s.writeKept(s.o.Elapsed()); err != nil {
		return fmt.Errorf("historian: write down the clock of %s: %w", s.dir, err)
	}
	if err := s.db.Set([]byte(metaClean), nil, pebble.Sync); err != nil {
		return fmt.Errorf("historian: mark the clean stop in %s: %w", s.dir, err)
	}
	if err := s.db.Flush(); err != nil {
		return fmt.Errorf("historian: flush %s: %w", s.dir, err)
	}
	// The log lies in tables of its own, all of them deleted: this drops them without reading.
	if s.held.bytes.Load() > 0 {
		return nil // not all of them
	}
	if err := s.db.Compact(context.Background(), []byte{spaceLog}, []byte{spaceLog + 1}, false); err != nil {
		return fmt.Errorf("historian: drop the log in %s: %w", s.dir, err)
	}
	return nil
}

// enter holds db open for one call, which ends with s.inUse.Done.
func (s *Store) enter() error {
	if err := s.report.failure(); err != nil {
		return err
	}
	s.useMu.Lock()
	defer s.useMu.Unlock()
	if s.closed {
		return ErrClosed
	}
	s.inUse.Add(1)
	return nil
}

// State is what readiness, the Overview and the broker look at.
type State struct {
	// Stalled says that appends wait: the disk is low, or an fsync has hung for a second.
	Stalled bool
	// Why is disk_low, fsync (one takes, or within 10 s took, more than 50 ms) or empty.
	Why string
	// Since is when that began.
	Since              time.Time
	FreeBytes          uint64
	DiskBytes          uint64
	LogBytes           int64
	Series             int
	LastSeq, SyncedSeq uint64
	// LogFrom is the first sequence that ReadLog can still give. HeldBytes of the log are kept for a reader alone.
	LogFrom   uint64
	HeldBytes int64
	// LogShed counts samples that were held for a reader and went, because the log was full.
	LogShed uint64
}

// State tells how the store is. It never waits for the disk.
func (s *Store) State() State {
	st := s.stall.state()
	st.DiskBytes = s.diskBytes.Load()
	st.LogBytes = s.logBytes.Load()
	st.Series = int(s.seriesCount.Load())
	st.LastSeq = s.lastSeq.Load()
	st.SyncedSeq = s.syncedSeq.Load()
	st.LogFrom, st.HeldBytes, st.LogShed = s.logFrom.Load(), s.held.bytes.Load(), s.held.shed.Load()
	return st
}

func (s *Store) measureDisk() {
	s.diskBytes.Store(s.db.Metrics().DiskSpaceUsage())
}
