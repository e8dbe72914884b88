package history

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"millrace/historian/kv"
)

// Records keeps rows durably: kv.Store.
type Records interface {
	Get(key []byte) (value []byte, ok bool, err error)
	Apply(ops ...kv.Op) error
	Scan(prefix []byte, fn func(key, value []byte) bool) error
	DropRange(from, to []byte) error
}

// Options are what a Store needs from outside.
type Options struct {
	Retention time.Duration         // of rows of runs, by whole hours
	Log       *slog.Logger          // nil = silent
	Now       func() time.Time      // nil = time.Now
	Registry  prometheus.Registerer // nil keeps the metrics to the store
}

// The first octets of keys; FORMAT.md draws them.
const (
	runPrefix    = 'r'
	detailPrefix = 'd'
	rangePrefix  = 'g'
	parkPrefix   = 'p'
	deadPrefix   = 'x'
	cursorKey    = "c"
	markPrefix   = 'm'
)

// flushEvery is how often rows are written; failures do not wait for it, but for each other.
const (
	flushEvery = 500 * time.Millisecond
	flushSoon  = 20 * time.Millisecond
)

// MemTable is what suits the store under the rows: at 1 MiB more than half of the CPU of a row went into merging tables.
const MemTable = 8 << 20

// maxPending is how many rows may wait to be written; above, runs are counted only.
const maxPending = 10_000

// Store keeps runs. Safe for concurrent use.
type Store struct {
	records Records
	o       Options
	log     *slog.Logger
	m       *metrics

	mu      sync.Mutex
	pipes   map[uint32]*tally
	bytes   int // of all rings
	pending []*Run
	writing []*Run // taken from pending and not durable yet
	ranges  map[uint32]*spans
	lost    uint64 // rows not written because the disk did not keep up or refused them

	soon chan struct{} // one token: a row that should not wait

	flushMu sync.Mutex // one flush at a time

	curMu  sync.Mutex // guards what follows
	marks  []markRow
	serial uint32
	cursor uint64
	saved  bool // cursor is what is on disk
}

// Open reads what is needed at the start, and deletes what is past its retention.
func Open(records Records, o Options) (*Store, error) {
	s := &Store{records: records, o: o, log: o.Log, pipes: make(map[uint32]*tally), soon: make(chan struct{}, 1), ranges: make(map[uint32]*spans)}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.log = s.log.With("part", "pipeline")
	if s.o.Now == nil {
		s.o.Now = time.Now
	}
	if err := s.openMarks(); err != nil {
		return nil, fmt.Errorf("history: open: %w", err)
	}
	if err := s.openRanges(); err != nil {
		return nil, fmt.Errorf("history: open: %w", err)
	}
	if err := s.expire(); err != nil {
		return nil, fmt.Errorf("history: open: %w", err)
	}
	s.m = newMetrics(o.Registry, s)
	return s, nil
}

// Add counts a run and keeps it: in the ring always; as a row if it failed, had errors, was cancelled or was not started by a
// value or a schedule, else at most one a second, which stands for the others. It takes r over and does not block on the
// disk.
func (s *Store) Add(run Run) {
	r := &run
	if r.Counted == 0 {
		r.Counted = 1
	}
	r.Sum, r.Longest = r.Duration, r.Duration
	now := s.o.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pipes[r.ID.Pipeline]
	if p == nil {
		p = &tally{}
		s.pipes[r.ID.Pipeline] = p
	}
	p.counts[r.Status]++
	p.total += r.Duration
	p.most = max(p.most, r.Duration)
	p.spread.add(r.Duration)
	p.rate.add(now)
	s.bytes += p.remember(r, min(ringBytes, allBytes/len(s.pipes)))
	if r.Status != Completed || r.ID.Kind == Fresh || r.Replay {
		s.queue(r)
		if r.Status != Completed {
			signal(s.soon)
		}
		return
	}
	second := now.Unix()
	if p.kept != nil && p.second == second {
		p.kept.Counted++
		p.kept.Sum += r.Duration
		p.kept.Longest = max(p.kept.Longest, r.Duration)
		return
	}
	if p.kept != nil {
		s.queue(p.kept)
	}
	p.kept, p.second = r, second
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// queue has a row written. The lock is held.
func (s *Store) queue(r *Run) {
	if len(s.pending) >= maxPending {
		s.lost++ // the disk does not keep up; the run is counted
		return
	}
	s.pending = append(s.pending, r)
	if len(s.pending) == maxPending/2 {
		signal(s.soon)
	}
}

// Run writes rows until ctx ends, then once more, and deletes what is past its retention.
func (s *Store) Run(ctx context.Context) error {
	defer s.m.close()
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	expire := time.NewTicker(time.Minute)
	defer expire.Stop()
	for {
		select {
		case <-ctx.Done():
			s.settle(true)
			return s.Flush()
		case <-tick.C:
		case <-s.soon:
			select {
			case <-time.After(flushSoon):
			case <-ctx.Done():
			}
		case <-expire.C:
			if err := s.expire(); err != nil {
				s.log.Error("runs past their retention could not be deleted", "error", err)
			}
			continue
		}
		s.settle(false)
		if err := s.Flush(); err != nil {
			s.log.Error("rows of runs could not be written", "error", err)
		}
	}
}

// settle queues the kept successes whose second is over.
func (s *Store) settle(all bool) {
	now := s.o.Now().Unix()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.pipes {
		if p.kept != nil && (all || p.second != now) {
			s.queue(p.kept)
			p.kept = nil
		}
	}
}

// Flush writes what waits; it is durable then.
func (s *Store) Flush() error {
	s.flushMu.Lock()
	defer s.flushMu.Unlock()
	s.mu.Lock()
	if len(s.pending) == 0 {
		s.mu.Unlock()
		return nil
	}
	s.writing, s.pending = s.pending, nil
	ops := make([]kv.Op, 0, len(s.writing)+8)
	touched := make(map[uint32]struct{}, 2)
	for _, r := range s.writing { // under the lock: a kept run still counts
		ops = appendOps(ops, r)
		hour, _ := place(r.Started)
		if s.span(hour).add(r.ID) {
			touched[hour] = struct{}{}
		}
	}
	for hour := range touched {
		ops = append(ops, kv.Op{Key: hourKey(rangePrefix, hour), Value: s.ranges[hour].append(nil)})
	}
	s.mu.Unlock()
	err := s.records.Apply(ops...)
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.writing)
	s.writing = nil
	if err != nil {
		s.lost += uint64(n)
		return fmt.Errorf("history: write %d rows: %w", n, err)
	}
	s.m.rows.Add(float64(n))
	return nil
}

func appendOps(ops []kv.Op, r *Run) []kv.Op {
	ops = append(ops, kv.Op{Key: runKey(r.Started, r.ID), Value: appendRow(nil, r)})
	if r.Detail == Full || r.Status != Completed || r.ID.Kind == Fresh || r.Replay {
		hour, _ := place(r.Started)
		ops = append(ops, kv.Op{Key: appendID(hourKey(detailPrefix, hour), r.ID), Value: appendDetail(r, r.Detail == Full || r.ID.Kind == Fresh)})
	}
	return ops
}

// place is the hour of a time since 1970 and how many microseconds of it have passed.
func place(t time.Time) (hour, offset uint32) {
	us := max(micros(t), 0)
	const perHour = int64(time.Hour / time.Microsecond)
	return uint32(us / perHour), uint32(us % perHour)
}

func hourKey(prefix byte, hour uint32) []byte {
	return binary.BigEndian.AppendUint32(append(make([]byte, 0, runKeyLen), prefix), hour)
}

// runKey sorts the rows of an hour and a pipeline newest first.
func runKey(started time.Time, id RunID) []byte {
	hour, offset := place(started)
	k := binary.BigEndian.AppendUint32(hourKey(runPrefix, hour), id.Pipeline)
	k = binary.BigEndian.AppendUint32(k, ^offset)
	k = append(k, id.Kind)
	k = binary.BigEndian.AppendUint64(k, ^id.N)
	return binary.BigEndian.AppendUint16(k, id.Node)
}

const runKeyLen = 1 + 4 + 4 + 4 + 1 + 8 + 2

// readRunKey is the reverse; false for a key that is none.
func readRunKey(k []byte) (id RunID, started time.Time, ok bool) {
	if len(k) != runKeyLen {
		return RunID{}, time.Time{}, false
	}
	id = RunID{Pipeline: binary.BigEndian.Uint32(k[5:]), Kind: k[13], N: ^binary.BigEndian.Uint64(k[14:]), Node: binary.BigEndian.Uint16(k[22:])}
	us := int64(binary.BigEndian.Uint32(k[1:]))*int64(time.Hour/time.Microsecond) + int64(^binary.BigEndian.Uint32(k[9:]))
	return id, time.UnixMicro(us).UTC(), true
}

// Lost is how many rows could not be written since the start.
func (s *Store) Lost() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost
}
