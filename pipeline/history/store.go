package history

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

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
	Retention time.Duration // of rows of runs
	Log       *slog.Logger  // nil = silent
	Now       func() time.Time
}

// The rows. Numbers in keys are big-endian, so that a scan gives their order.
//
//	r hour pipeline ^started id  a run
//	d id                         what its nodes got and gave, and its input
//	i id                         where its row lies: hour, started
//	p id                         a parked run
//	x id                         a dead letter
//	c                            the cursor
//	m seq pipeline node          finished above the cursor
const (
	runPrefix    = 'r'
	detailPrefix = 'd'
	indexPrefix  = 'i'
	parkPrefix   = 'p'
	deadPrefix   = 'x'
	cursorKey    = "c"
	markPrefix   = 'm'
)

// flushEvery is how often rows are written.
const flushEvery = 500 * time.Millisecond

// ringSize is how many runs of a pipeline are kept in memory with everything their nodes got and gave.
const ringSize = 20

// maxPending is how many rows may wait to be written; a failure that finds no room is written at once.
const maxPending = 10_000

// Store keeps runs. Safe for concurrent use.
type Store struct {
	records Records
	o       Options
	log     *slog.Logger

	mu      sync.Mutex
	pipes   map[uint32]*tally
	pending []Run
	full    chan struct{}
	lost    uint64 // rows not written because the disk refused them

	marks map[Mark]struct{} // on disk; of SaveCursor and LoadCursor only
	curMu sync.Mutex
}

// tally is what is kept of one pipeline in memory.
type tally struct {
	ring   [ringSize]*Run
	next   int
	counts [statuses]uint64
	total  time.Duration
	most   time.Duration
	// second is that of the successful run that is kept, held until its second is over.
	second int64
	kept   *Run
}

// Open reads what is needed at the start.
func Open(records Records, o Options) (*Store, error) {
	s := &Store{records: records, o: o, log: o.Log, pipes: make(map[uint32]*tally), full: make(chan struct{}, 1), marks: make(map[Mark]struct{})}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.log = s.log.With("part", "pipeline")
	if s.o.Now == nil {
		s.o.Now = time.Now
	}
	err := records.Scan([]byte{markPrefix}, func(key, _ []byte) bool {
		if len(key) == 15 {
			s.marks[Mark{binary.BigEndian.Uint64(key[1:]), binary.BigEndian.Uint32(key[9:]), binary.BigEndian.Uint16(key[13:])}] = struct{}{}
		}
		return true
	})
	return s, err
}

// Add counts a run and keeps it: in the ring always; as a row if it failed, was cancelled or was not triggered by a value,
// else at most one a second. It takes r over and does not block on the disk.
func (s *Store) Add(r Run) {
	if r.Counted == 0 {
		r.Counted = 1
	}
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
	kept := r
	p.ring[p.next] = &kept
	p.next = (p.next + 1) % ringSize
	if r.Status == Completed && r.ID.Kind == ByValue {
		if second := r.Started.Unix(); p.kept != nil && p.second == second {
			p.kept.Counted++
			return
		} else if p.kept != nil {
			s.queue(*p.kept)
			p.kept, p.second = &kept, second
			return
		} else {
			p.kept, p.second = &kept, second
			return
		}
	}
	s.queue(r)
}

// queue has a row written. The lock is held.
func (s *Store) queue(r Run) {
	if len(s.pending) >= maxPending {
		s.lost++ // the disk does not keep up; the run is counted
		return
	}
	s.pending = append(s.pending, r)
	if len(s.pending) == maxPending/2 {
		select {
		case s.full <- struct{}{}:
		default:
		}
	}
}

// Run writes rows until ctx ends, then once more, and deletes what is past its retention.
func (s *Store) Run(ctx context.Context) error {
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
		case <-s.full:
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
		if p.kept != nil && (all || p.second < now) {
			s.queue(*p.kept)
			p.kept = nil
		}
	}
}

// Flush writes what waits.
func (s *Store) Flush() error {
	s.mu.Lock()
	rows := s.pending
	s.pending = nil
	s.mu.Unlock()
	if len(rows) == 0 {
		return nil
	}
	ops := make([]kv.Op, 0, 2*len(rows))
	for i := range rows {
		ops = appendOps(ops, &rows[i])
	}
	if err := s.records.Apply(ops...); err != nil {
		s.mu.Lock()
		s.lost += uint64(len(rows))
		s.mu.Unlock()
		return fmt.Errorf("history: write %d rows: %w", len(rows), err)
	}
	return nil
}

func appendOps(ops []kv.Op, r *Run) []kv.Op {
	hour, started := uint32(r.Started.Unix()/3600), uint64(r.Started.UnixMicro())
	if r.Started.IsZero() {
		hour, started = 0, 0
	}
	id := appendID(nil, r.ID)
	at := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(nil, hour), started)
	ops = append(ops, kv.Op{Key: runKey(hour, r.ID, started), Value: appendRow(nil, r)}, kv.Op{Key: append([]byte{indexPrefix}, id...), Value: at})
	if r.Detail == Full || r.Status != Completed || r.ID.Kind == Fresh {
		ops = append(ops, kv.Op{Key: append([]byte{detailPrefix}, id...), Value: appendDetail(r, r.Detail == Full || r.ID.Kind == Fresh)})
	}
	return ops
}

func runKey(hour uint32, id RunID, started uint64) []byte {
	k := binary.BigEndian.AppendUint32([]byte{runPrefix}, hour)
	k = binary.BigEndian.AppendUint32(k, id.Pipeline)
	k = binary.BigEndian.AppendUint64(k, ^started)
	return appendID(k, id)
}

const runKeyLen = 1 + 4 + 4 + 8 + idLen

// expire deletes the hours that are past the retention, and what belongs to their rows.
func (s *Store) expire() error {
	limit := uint32(s.o.Now().Add(-s.o.Retention).Unix() / 3600)
	var first uint32
	found := false
	err := s.records.Scan([]byte{runPrefix}, func(key, _ []byte) bool {
		if len(key) == runKeyLen {
			first, found = binary.BigEndian.Uint32(key[1:]), true
		}
		return false
	})
	if err != nil || !found || first >= limit {
		return err
	}
	from := binary.BigEndian.AppendUint32([]byte{runPrefix}, first)
	var ops []kv.Op
	err = s.records.Scan(from, func(key, _ []byte) bool {
		id := key[runKeyLen-idLen:]
		ops = append(ops, kv.Op{Key: append([]byte{indexPrefix}, id...)}, kv.Op{Key: append([]byte{detailPrefix}, id...)})
		return true
	})
	if err != nil {
		return err
	}
	for len(ops) > 0 {
		n := min(len(ops), 10_000)
		if err := s.records.Apply(ops[:n]...); err != nil {
			return err
		}
		ops = ops[n:]
	}
	return s.records.DropRange(from, binary.BigEndian.AppendUint32([]byte{runPrefix}, first+1))
}

// Get is a kept run with all that is kept of it; false when there is none.
func (s *Store) Get(id RunID) (*Run, bool, error) {
	s.mu.Lock()
	if p := s.pipes[id.Pipeline]; p != nil {
		for i := range p.ring {
			if r := p.ring[(p.next+ringSize-1-i)%ringSize]; r != nil && r.ID == id {
				c := *r
				s.mu.Unlock()
				return &c, true, nil
			}
		}
	}
	for i := range s.pending {
		if s.pending[i].ID == id {
			c := s.pending[i]
			s.mu.Unlock()
			return &c, true, nil
		}
	}
	s.mu.Unlock()
	key := appendID(nil, id)
	at, ok, err := s.records.Get(append([]byte{indexPrefix}, key...))
	if err != nil || !ok || len(at) != 12 {
		return nil, false, err
	}
	row, ok, err := s.records.Get(runKey(binary.BigEndian.Uint32(at), id, binary.BigEndian.Uint64(at[4:])))
	if err != nil || !ok {
		return nil, false, err
	}
	r, err := readRow(id, row)
	if err != nil {
		return nil, false, err
	}
	d, ok, err := s.records.Get(append([]byte{detailPrefix}, key...))
	if err == nil && ok {
		err = r.addDetail(d)
	}
	return r, err == nil, err
}

// Query asks for runs of a pipeline with From <= started < To, newest first.
type Query struct {
	Pipeline uint32
	Status   []Status // empty = any
	From, To time.Time
	// After leaves out everything up to and including that run; zero begins with the newest.
	After After
	Limit int
}

// After is where a page ended.
type After struct {
	Started time.Time
	ID      RunID
}

// List gives rows, newest first, without what their nodes got and gave; and whether there may be more.
func (s *Store) List(q Query) (list []Run, more bool, err error) {
	s.settleOne(q.Pipeline)
	if err := s.Flush(); err != nil {
		return nil, false, err
	}
	if q.Limit <= 0 || q.Limit > 1000 {
		q.Limit = 100
	}
	to := q.To
	if to.IsZero() {
		to = s.o.Now().Add(time.Hour)
	}
	if !q.After.Started.IsZero() && q.After.Started.Before(to) {
		to = q.After.Started.Add(time.Microsecond)
	}
	from := q.From
	if oldest := s.o.Now().Add(-s.o.Retention - time.Hour); from.Before(oldest) {
		from = oldest
	}
	var after []byte
	if !q.After.Started.IsZero() {
		after = runKey(uint32(q.After.Started.Unix()/3600), q.After.ID, uint64(q.After.Started.UnixMicro()))
	}
	for hour := to.Unix() / 3600; hour >= from.Unix()/3600 && len(list) <= q.Limit; hour-- {
		prefix := binary.BigEndian.AppendUint32([]byte{runPrefix}, uint32(hour))
		prefix = binary.BigEndian.AppendUint32(prefix, q.Pipeline)
		var fault error
		err := s.records.Scan(prefix, func(key, value []byte) bool {
			if after != nil && string(key) <= string(after) {
				return true
			}
			id, ok := readID(key[runKeyLen-idLen:])
			if !ok {
				return true
			}
			r, err := readRow(id, value)
			if err != nil {
				fault = err
				return false
			}
			if r.Started.Before(from) || !r.Started.Before(to) {
				return true
			}
			for _, want := range q.Status {
				if ok = want == r.Status; ok {
					break
				}
			}
			if ok {
				list = append(list, *r)
			}
			return len(list) <= q.Limit
		})
		if err = errors.Join(err, fault); err != nil {
			return nil, false, err
		}
	}
	if len(list) > q.Limit {
		return list[:q.Limit], true, nil
	}
	return list, false, nil
}

// settleOne queues the kept success of a pipeline, so that a list shows it.
func (s *Store) settleOne(pipeline uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.pipes[pipeline]; p != nil && p.kept != nil {
		s.queue(*p.kept)
	}
}

// Ring gives the last runs of a pipeline, newest first, with all that their nodes got and gave.
func (s *Store) Ring(pipeline uint32) []Run {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pipes[pipeline]
	if p == nil {
		return nil
	}
	list := make([]Run, 0, ringSize)
	for i := range p.ring {
		if r := p.ring[(p.next+ringSize-1-i)%ringSize]; r != nil {
			list = append(list, *r)
		}
	}
	return list
}

// Stats is what a pipeline did since the start.
type Stats struct {
	Runs        map[string]uint64 // by status
	Total, Most time.Duration
}

// Stats counts the runs of a pipeline since the start.
func (s *Store) Stats(pipeline uint32) Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Stats{Runs: make(map[string]uint64, statuses)}
	p := s.pipes[pipeline]
	if p == nil {
		p = &tally{}
	}
	for i, n := range p.counts {
		st.Runs[Status(i).String()] = n
	}
	st.Total, st.Most = p.total, p.most
	return st
}

// Lost is how many rows could not be written since the start.
func (s *Store) Lost() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost
}
