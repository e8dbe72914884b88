package kv

import (
	"fmt"
	"log/slog"
	"sync/atomic"
)

// reporter is Pebble's logger. Pebble tells a failed write by Fatalf and then goes on as if all were well
// when it returns, so the first failure is kept and asked for after every commit.
type reporter struct {
	log    *slog.Logger
	fatal  func(error)
	failed atomic.Pointer[error]
}

// failure is the first failed write; nil when there was none.
func (r *reporter) failure() error {
	if err := r.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// Infof is left out: Pebble tells of every flush and compaction.
func (r *reporter) Infof(string, ...any) {}

func (r *reporter) Errorf(format string, args ...any) {
	r.log.Error("pebble", "error", fmt.Sprintf(format, args...))
}

func (r *reporter) Fatalf(format string, args ...any) {
	err := fmt.Errorf("kv: the disk refused a write ("+format+"): see whether it is full or broken", args...)
	if r.failed.CompareAndSwap(nil, &err) && r.fatal != nil {
		r.fatal(err)
	}
}
