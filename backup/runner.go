package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"millrace/historian/kv"

	"github.com/prometheus/client_golang/prometheus"
)

// ErrRunning: a backup is being made already.
var ErrRunning = errors.New("backup: running")

// ErrClosed: the box is stopping.
var ErrClosed = errors.New("backup: closed")

// State is what became of the last backup, or how far the one under way has come.
type State struct {
	State    string // none, running, done, failed, cancelled
	Dir      string
	Previous string
	Started  time.Time // when it was asked for
	Ended    time.Time // zero while it runs
	Progress Progress
	Taken    time.Time // of a finished one: when it was cut
	Sequence uint64
	Error    string
	// LastSuccess is when the newest whole backup was cut, also before a restart; zero when there was none.
	LastSuccess time.Time
	LastDir     string
}

// lastKey holds the newest whole backup among the records.
const lastKey = "backup/last"

type last struct {
	Version int       `json:"version"`
	Taken   time.Time `json:"taken"`
	Dir     string    `json:"dir"`
}

// Records is the store that outlives a restart.
type Records interface {
	Get(key []byte) (value []byte, ok bool, err error)
	Apply(ops ...kv.Op) error
}

// Runner makes the backups of a running box, one at a time. All methods may be called at once from many goroutines.
type Runner struct {
	box     Box
	records Records
	now     func() time.Time
	log     *slog.Logger
	metrics *metrics

	mu     sync.Mutex
	closed bool
	state  State
	cancel context.CancelFunc // nil when none runs
	// running has one member while a backup is made.
	running sync.WaitGroup
}

// NewRunner is for a box whose stores are open. It clears what a killed process left of a snapshot. now and log may be nil, and
// so may reg.
func NewRunner(box Box, records Records, now func() time.Time, log *slog.Logger, reg prometheus.Registerer) (*Runner, error) {
	if now == nil {
		now = time.Now
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	r := &Runner{box: box, records: records, now: now, log: log.With("part", "backup"), state: State{State: "none"}}
	if err := os.RemoveAll(filepath.Join(box.Data, SnapshotDir)); err != nil {
		return nil, fmt.Errorf("backup: clear an old snapshot: %w", err)
	}
	text, ok, err := records.Get([]byte(lastKey))
	if err != nil {
		return nil, fmt.Errorf("backup: %w", err)
	}
	if ok {
		var l last
		if err := json.Unmarshal(text, &l); err != nil || l.Version > 1 {
			return nil, fmt.Errorf("backup: the record %s cannot be read (version %d): run a newer millrace", lastKey, l.Version)
		}
		r.state.LastSuccess, r.state.LastDir = l.Taken, l.Dir
	}
	r.metrics, err = newMetrics(reg, r.State)
	return r, err
}

// Begin starts a backup and returns; State tells of it. ErrRunning when one is being made, else the target's fault.
func (r *Runner) Begin(to Target) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		return ErrClosed
	case r.cancel != nil:
		return refuse(ErrRunning, "a backup into %s is being made: wait for its end", r.state.Dir)
	}
	c := creation{box: r.box, to: to}
	if err := c.prepare(); err != nil { // what the caller can mend is told to the caller
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	r.state = State{State: "running", Dir: c.to.Dir, Previous: c.to.Previous, Started: r.now(), Progress: Progress{Phase: "snapshot"},
		LastSuccess: r.state.LastSuccess, LastDir: r.state.LastDir}
	r.running.Go(func() { r.run(ctx, c.to) })
	return nil
}

func (r *Runner) run(ctx context.Context, to Target) {
	m, err := Create(ctx, r.box, to, r.now, func(p Progress) {
		r.mu.Lock()
		r.state.Progress = p
		r.mu.Unlock()
	})
	if err == nil {
		if err := r.remember(m, to); err != nil {
			r.log.Error("the backup is whole, but when it was taken could not be kept", "error", err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cancel()
	r.cancel = nil
	r.state.Ended = r.now()
	switch {
	case err == nil:
		r.state.State, r.state.Taken, r.state.Sequence = "done", m.Taken, m.Sequence
		r.state.LastSuccess, r.state.LastDir = m.Taken, to.Dir
		r.log.Info("backup made", "dir", to.Dir, "bytes", m.Bytes, "linked", m.Linked, "files", len(m.Files), "took", r.state.Ended.Sub(r.state.Started))
	case ctx.Err() != nil:
		r.state.State = "cancelled"
		r.log.Warn("backup given up", "dir", to.Dir)
	default:
		r.state.State, r.state.Error = "failed", err.Error()
		r.log.Error("backup failed", "dir", to.Dir, "error", err)
	}
	r.metrics.runs.WithLabelValues(r.state.State).Inc()
}

// remember keeps when the newest whole backup was cut.
func (r *Runner) remember(m Manifest, to Target) error {
	text, err := json.Marshal(last{Version: 1, Taken: m.Taken, Dir: to.Dir})
	if err != nil {
		return err
	}
	return r.records.Apply(kv.Op{Key: []byte(lastKey), Value: text})
}

// State tells of the backup under way, or the last one.
func (r *Runner) State() State {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state
}

// Cancel gives up the backup under way; false when there is none. State tells when it has ended.
func (r *Runner) Cancel() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cancel == nil {
		return false
	}
	r.cancel()
	return true
}

// Close gives up the backup under way and returns when it has ended; before the stores close.
func (r *Runner) Close() error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.Cancel()
	r.running.Wait()
	r.metrics.unregister()
	return nil
}
