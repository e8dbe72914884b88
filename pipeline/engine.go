package pipeline

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"millrace/pipeline/definition"
	"millrace/pipeline/history"
	"millrace/pipeline/queue"
)

// Plans gives compiled plans: definition.Shelf.
type Plans interface {
	// Plan is a version, from a cache; nil when the pipeline was deleted.
	Plan(number, version uint32) *definition.Plan
	// Forget drops a version from the cache.
	Forget(number, version uint32)
}

// Values is what the engine asks of the historian.
type Values interface {
	// LastSeq is the sequence of the last stored value.
	LastSeq() uint64
	// SkipTo has stored values get sequences above seq from now on.
	SkipTo(seq uint64)
	// Hold keeps the log from seq on.
	Hold(seq uint64)
	// DropRows forgets publish keys: rows with from <= key < to.
	DropRows(ctx context.Context, from, to []byte) error
}

// Paths turns a topic as a node names it into a path of a workspace: uns.Namespace.
type Paths interface {
	Path(workspace, topic string) (path, fault string)
	Root() string
}

// Parts are what an engine is wired to.
type Parts struct {
	Plans   Plans
	Queue   queue.Queue
	Ingress Ingress
	Values  Values
	Paths   Paths
	History History
	Parked  Parked
	Records Records
	// Survivors are the entries of frames that outlived the last stop, for which the queue hands out the frames again.
	Survivors []queue.Survivor
	// Position is the sequence up to which the follower has queued what it wants; nil while there is none.
	Position func() uint64
}

// Engine runs what is deployed. Its methods may be called at once from many goroutines.
type Engine struct {
	o        Options
	log      *slog.Logger
	now      func() time.Time
	random   func() float64
	plans    Plans
	queue    queue.Queue
	values   Values
	paths    Paths
	history  History
	root     string
	position func() uint64

	lanes      *lanes
	waits      *waits
	io         *io
	publishers []*publisher
	flights    flights
	metrics    *metrics
	workers    int
	resting    atomic.Int64
	logShed    atomic.Uint64 // values whose triggers the historian's log no longer holds

	parking parking
	// forgotten is up to where publish keys are dropped; keep's own.
	forgotten   uint64
	forgottenBy map[byte]uint64
	issues      issues
	schedules   schedules
	hooks       hooks
	fresh       fresh
	running     atomic.Pointer[map[uint32]uint32] // versions by pipeline
	attempts    attempts
	asked       asked
	rows        []history.Parked // of the last process, until Run
	saveFailed  atomic.Bool

	byKind map[byte]*ledger
	before before

	mu    sync.RWMutex
	pipes map[uint32]*pipe
}

// Open wires an engine and reads how far it had come; nothing runs before Run. o must be valid.
func Open(p Parts, o Options) (*Engine, error) {
	cores := o.Cores
	if cores == 0 {
		cores = runtime.GOMAXPROCS(0)
	}
	e := &Engine{o: o, log: o.Log, now: o.Now, random: o.Random, plans: p.Plans, queue: p.Queue, values: p.Values, paths: p.Paths, history: p.History,
		pipes: make(map[uint32]*pipe), forgottenBy: make(map[byte]uint64), workers: 2 * cores,
		byKind: map[byte]*ledger{'v': newLedger(), 's': newLedger(), 'x': newLedger()}}
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	e.log = e.log.With("part", "pipeline")
	if e.now == nil {
		e.now = time.Now
	}
	if e.random == nil {
		e.random = rand.Float64
	}
	e.position = p.Position
	e.root = p.Paths.Root() + "/"
	e.lanes = newLanes(o.ExecutionQueue.Scheduler.MaxAckPending, o.ExecutionQueue.Scheduler.StarvationThreshold, cores)
	began := time.Now()
	e.waits = newWaits(func() time.Duration { return time.Since(began) })
	e.io = &io{eng: e}
	for range max(2, cores) {
		e.publishers = append(e.publishers, &publisher{eng: e, ingress: p.Ingress, log: e.log, wake: make(chan struct{}, 1)})
	}
	e.parking = parking{eng: e, rows: p.Parked, runs: make(map[history.RunID]*parked), wake: make(chan struct{}, 1)}
	e.schedules = schedules{eng: e, armed: make(map[scheduled]*timetable), fire: make(chan due, maxDue)}
	e.metrics = newMetrics(o.Registry, e)
	e.attempts.records = p.Records
	e.running.Store(new(map[uint32]uint32))
	return e, e.load(p.Survivors)
}

// pipe is what is kept of a pipeline, made when it is first asked for.
func (e *Engine) pipe(number uint32, id string) *pipe {
	e.mu.RLock()
	p := e.pipes[number]
	e.mu.RUnlock()
	if p != nil {
		return p
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if p = e.pipes[number]; p == nil {
		p = newPipe(number, id)
		e.pipes[number] = p
	}
	return p
}

// program is a version ready to run. pipe is nil when nothing is known of the pipeline, program when the version is gone.
func (e *Engine) program(number, version uint32) (*pipe, *program) {
	e.mu.RLock()
	p := e.pipes[number]
	e.mu.RUnlock()
	if p == nil {
		plan := e.plans.Plan(number, version)
		if plan == nil {
			return nil, nil
		}
		p = e.pipe(number, plan.ID)
	}
	return p, p.program(version, func() *definition.Plan { return e.plans.Plan(number, version) })
}

// path is the path of a topic that a node named, which may be a whole topic.
func (e *Engine) path(workspace, topic string) string {
	if len(topic) > len(e.root) && topic[:len(e.root)] == e.root {
		if path, fault := e.paths.Path(workspace, topic); fault == "" {
			return path
		}
	}
	return topic // refused with its reason, if it is no path
}

// Run executes runs until ctx ends, then lets those under way end, within the drain timeout. What has not ended by then
// begins anew, or goes on from its row, after the next start.
func (e *Engine) Run(ctx context.Context) error {
	base := context.WithoutCancel(ctx)
	reading, stopReading := context.WithCancelCause(base)
	storing, stopStoring := context.WithCancel(base)
	keeping, stopKeeping := context.WithCancel(base)
	defer stopReading(nil)
	defer stopStoring()
	defer stopKeeping()

	var readers, workers, others sync.WaitGroup
	for range e.workers {
		workers.Go(func() { e.worker() })
	}
	for _, p := range e.publishers {
		others.Go(func() { p.run(storing) })
	}
	others.Go(func() { e.waits.run(keeping) })
	others.Go(func() { e.keep(keeping) })
	others.Go(func() { e.parking.run(keeping) })
	e.rearm(e.rows)
	e.rows = nil
	readers.Go(func() { e.schedules.run(reading) })
	for lane := range queue.Lane(lanesCount) {
		readers.Go(func() {
			if err := e.read(reading, lane); err != nil {
				stopReading(err)
			}
		})
	}
	select {
	case <-ctx.Done():
	case <-reading.Done():
	}
	failure := context.Cause(reading)
	e.schedules.end()
	stopReading(nil)
	readers.Wait()
	e.settleDown()
	workers.Wait()
	e.io.wg.Wait()
	stopStoring()
	stopKeeping()
	others.Wait()
	e.parking.flush()
	e.save()
	if errors.Is(failure, context.Canceled) {
		failure = nil
	}
	return failure
}

// worker takes what the lanes give until they are closed.
func (e *Engine) worker() {
	s := e.newScratch()
	for {
		it, ok := e.lanes.take()
		if !ok {
			return
		}
		if it.box != nil {
			e.drain(it.box, s)
			continue
		}
		r := it.run
		if it.slot {
			r.mu.Lock()
			taken := !r.done && !r.slot
			if taken {
				r.slot = true
			}
			r.mu.Unlock()
			if !taken {
				e.lanes.release(r.lane)
			}
		}
		e.work(r, s, it.permit)
	}
}

// open counts a run as unfinished, if its trigger was not counted when it was queued.
func (e *Engine) open(id history.RunID) {
	if l := e.byKind[id.Kind]; !l.knows(id.N) {
		l.begin(id.N, 1)
	}
}

// close counts a run as finished.
func (e *Engine) close(id history.RunID) {
	e.byKind[id.Kind].finish(id.N, history.Mark{Seq: id.N, Pipeline: id.Pipeline, Node: id.Node})
}

// LogShed counts values that went from the historian's log before the follower had read them.
func (e *Engine) LogShed(values uint64) { e.logShed.Add(values) }

// Put queues an entry with runs to come; the sink of the follower. It waits while the queue is full.
func (e *Engine) Put(ctx context.Context, lane queue.Lane, x queue.Entry) error {
	l := e.byKind[kindOf(x.Kind)]
	n := runID(&x, queue.Ref{}).N
	l.begin(n, len(x.Refs))
	if err := e.queue.Put(ctx, lane, x); err != nil {
		for range x.Refs {
			l.drop(n)
		}
		return err
	}
	return nil
}

func kindOf(kind uint8) byte {
	return runID(&queue.Entry{Kind: kind}, queue.Ref{}).Kind
}
