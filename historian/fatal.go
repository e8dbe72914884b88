package historian

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
)

// reporter is Pebble's logger. Pebble tells a failed write by Fatalf; when that returns, it carries on as if
// the write had succeeded. So the first failure is kept, and the committer asks for it after every commit and
// before every acknowledgement.
type reporter struct {
	log    *slog.Logger
	fatal  func(error)
	failed atomic.Pointer[error]
	dead   chan struct{} // closed at the first failure

	damaged sync.Map // path of each damaged table that was told of
}

func newReporter(log *slog.Logger, fatal func(error)) *reporter {
	return &reporter{log: log, fatal: fatal, dead: make(chan struct{})}
}

// failure is the first failed write; nil when there was none.
func (r *reporter) failure() error {
	if err := r.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// fail notes a failed write; only the first counts.
func (r *reporter) fail(err error) {
	err = fmt.Errorf("historian: the disk refused a write (%w): see whether it is full or broken", err)
	if !r.failed.CompareAndSwap(nil, &err) {
		return
	}
	close(r.dead)
	r.log.Error("the disk refused a write", "error", err)
	if r.fatal != nil {
		r.fatal(err)
	}
}

// corrupt tells of a table that cannot be read, once a file. Pebble would call Fatalf, which here means a failed
// write; but whoever reads gets the error, and values are taken as before.
func (r *reporter) corrupt(info pebble.DataCorruptionInfo) {
	if _, told := r.damaged.LoadOrStore(info.Path, struct{}{}); told {
		return
	}
	r.log.Error("a table is damaged; what cannot be read of it fails the queries that need it until a backup is restored",
		"path", info.Path, "error", info.Details.Error())
}

// Infof is left out: Pebble tells of every flush and compaction.
func (r *reporter) Infof(string, ...any) {}

func (r *reporter) Errorf(format string, args ...any) {
	r.log.Error("pebble", "error", fmt.Sprintf(format, args...))
}

func (r *reporter) Fatalf(format string, args ...any) {
	r.fail(fmt.Errorf(format, args...))
}
