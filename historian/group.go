package historian

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// A group is committed early when it holds this much.
const (
	fullValues = 512
	fullBytes  = 64 << 10
)

// group is what one commit stores: what callers handed in while the group before it was on its way. Its
// callers wait, so their slices stay theirs and are read in place.
type group struct {
	rec      recordWriter
	firstSeq uint64
	lastSeq  uint64
	bytes    int // of rows and series, on top of rec
	entries  []entry
	series   []seriesWrite
	out      *outcome
	ripe     bool      // the committer was told not to wait any longer
	opened   time.Time // when the first share came
}

// entry is one caller's share.
type entry struct {
	samples []Sample
	rows    []Row
}

// seriesWrite is a row of a series that was born or changed.
type seriesWrite struct {
	id   Series
	row  seriesRow
	born bool
	gone bool
	// purge: what it leaves is to be taken off the disk.
	purge bool
}

// outcome is what the callers of one group wait for. It is made per group, because a caller may look at it
// long after the group is in use again.
type outcome struct {
	done chan struct{}
	err  error // set before done is closed
}

func (g *group) reset() {
	g.rec.reset()
	clear(g.entries)
	clear(g.series)
	*g = group{rec: g.rec, entries: g.entries[:0], series: g.series[:0], out: &outcome{done: make(chan struct{})}}
}

func (g *group) empty() bool { return len(g.entries) == 0 && len(g.series) == 0 }

func (g *group) full() bool {
	return g.rec.count() >= fullValues || g.rec.len()+g.bytes >= fullBytes
}

// groups orders what is appended. There are two groups, one filling and one being committed; what they hold
// is bounded by the number of callers, each of which waits, times the size of what each hands in.
type groups struct {
	store *Store
	wake  chan struct{} // somebody waits for the open group
	ripe  chan struct{} // the open group is worth no more waiting
	// closing is closed when no more is taken.
	closing chan struct{}

	mu     sync.Mutex
	open   *group
	spare  *group // reset, or nil while it is being committed
	closed bool
	seq    uint64              // the last one given
	next   Series              // the next id given
	dead   map[Series]struct{} // ids of series that were deleted; nil while there are none
	stamps []int64
	quorum int // callers at which the open group is ripe; 0 is off
}

// init follows load, which sets seq, next and stamps.
func (q *groups) init(s *Store) {
	q.store = s
	q.wake = make(chan struct{}, 1)
	q.ripe = make(chan struct{}, 1)
	q.closing = make(chan struct{})
	q.open, q.spare = new(group), new(group)
	q.open.reset()
	q.spare.reset()
}

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// Append stores samples and rows in one commit and returns when that is done, fsynced with SyncWrites. The
// order of the slice is the order of Seq; samples with equal times keep it. It fills in Seq, Received and,
// where Stamped is false, Time and Scale. Either all is stored or nothing. The slices are the caller's again
// when it returns.
//
// While the store is stalled Append waits; when ctx ends meanwhile it returns ErrStalled. Once handed to a
// commit, ctx no longer counts: the answer is that of the disk.
func (s *Store) Append(ctx context.Context, samples []Sample, rows []Row) error {
	if len(samples) == 0 && len(rows) == 0 {
		return nil
	}
	if err := s.stall.pass(ctx, s); err != nil {
		return err
	}
	return s.group.join(samples, rows, nil)
}

// join puts one caller's share into the open group and waits for its commit.
func (q *groups) join(samples []Sample, rows []Row, change *seriesWrite) error {
	now := q.store.o.Now().UnixMilli() * millisecond
	q.mu.Lock()
	if err := q.check(samples); err != nil {
		q.mu.Unlock()
		return err
	}
	g := q.open
	first := len(g.entries) == 0
	q.number(g, samples, now)
	for i := range rows {
		g.bytes += len(rows[i].Key) + len(rows[i].Value)
	}
	if change != nil {
		g.addSeries(*change)
	}
	g.entries = append(g.entries, entry{samples, rows})
	out := g.out
	q.announce(g, first)
	q.mu.Unlock()

	<-out.done
	return out.err
}

// check refuses a share as a whole, before anything of it is in the group. The lock is held.
func (q *groups) check(samples []Sample) error {
	if q.closed {
		return ErrClosed
	}
	if err := q.store.report.failure(); err != nil {
		return err
	}
	for i := range samples {
		if id := samples[i].Series; id == 0 || id >= q.next {
			return fmt.Errorf("%w %d", ErrUnknownSeries, id)
		}
	}
	for i := range samples {
		if len(q.dead) == 0 {
			break
		}
		if _, dead := q.dead[samples[i].Series]; dead {
			return fmt.Errorf("%w %d, which was deleted", ErrUnknownSeries, samples[i].Series)
		}
	}
	return nil
}

// number gives samples their places and encodes them. The lock is held.
func (q *groups) number(g *group, samples []Sample, now int64) {
	if len(samples) == 0 {
		return
	}
	if g.firstSeq == 0 {
		g.firstSeq = q.seq + 1
	}
	for i := range samples {
		s := &samples[i]
		q.seq++
		s.Seq = q.seq
		s.Received = now
		if !s.Stamped {
			// The wall clock may be set back; the order within a series may not.
			stamp := &q.stamps[s.Series]
			*stamp = max(*stamp, now)
			s.Time, s.Received, s.Scale = *stamp, *stamp, defaultScale
		}
		g.rec.add(s)
	}
	g.lastSeq = q.seq
}

// announce tells the committer of the open group. The lock is held.
func (q *groups) announce(g *group, first bool) {
	if first {
		g.opened = time.Now()
		signal(q.wake)
	}
	if !g.ripe && (g.full() || q.quorum > 0 && len(g.entries) >= q.quorum) {
		g.ripe = true
		signal(q.ripe)
	}
}

func (g *group) addSeries(w seriesWrite) {
	g.series = append(g.series, w)
	g.bytes += 2*len(w.row.name) + len(w.row.meta)
}

// callers is how many wait for the open group.
func (q *groups) callers() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.open.entries)
}

// opened is since when the open group fills.
func (q *groups) opened() time.Time {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.open.opened
}

// take gives the open group to the committer and opens the other. Nil means there is nothing to commit.
func (q *groups) take() *group {
	q.mu.Lock()
	defer q.mu.Unlock()
	// A signal for the group taken here must not end the wait for the next one.
	select {
	case <-q.ripe:
	default:
	}
	if q.open.empty() {
		return nil
	}
	g := q.open
	q.open, q.spare = q.spare, nil
	return g
}

// release answers the callers of a group and makes it the spare one.
func (q *groups) release(g *group, err error) {
	out := g.out
	out.err = err
	g.reset()
	q.mu.Lock()
	q.spare = g
	q.mu.Unlock()
	close(out.done)
}

// nudge has series rows committed that no caller took along.
func (q *groups) nudge() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed && !q.open.empty() {
		signal(q.wake)
	}
}

// close takes no more; what is open is still to be committed.
func (q *groups) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	close(q.closing)
	close(q.wake)
}

// reserved says whether the id was given out.
func (q *groups) reserved(id Series) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, dead := q.dead[id]
	return id != 0 && id < q.next && !dead
}

// bear gives the next id and puts its row into the open group.
func (q *groups) bear(row seriesRow) (Series, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.check(nil); err != nil {
		return 0, err
	}
	if q.next > maxSeries {
		return 0, fmt.Errorf("historian: all %d series ids are taken: start a new data directory", maxSeries)
	}
	id := q.next
	q.next++
	q.stamps = append(q.stamps, 0)
	// Nobody waits for the row: the next caller's commit takes it along, or the watch sees to it.
	q.open.addSeries(seriesWrite{id: id, row: row, born: true})
	return id, nil
}
