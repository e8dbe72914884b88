package pipeline

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"millrace/pipeline/queue"

	"github.com/prometheus/client_golang/prometheus"
)

// Options: config section `pipeline` plus what is injected.
type Options struct {
	ExecutionQueue queue.Options `koanf:"executionQueue"`
	History        struct {
		Retention time.Duration `koanf:"retention"` // of runs
	} `koanf:"history"`
	// DrainTimeout is how long runs under way may go on when the box stops.
	DrainTimeout time.Duration `koanf:"drainTimeout"`

	Log      *slog.Logger          `koanf:"-"` // nil = silent
	Registry prometheus.Registerer `koanf:"-"` // nil = a private one
	Now      func() time.Time      `koanf:"-"` // nil = time.Now
	Random   func() float64        `koanf:"-"` // in [0, 1); nil = math/rand
	// Cores is how many scripts compute at once; 0 = GOMAXPROCS.
	Cores int `koanf:"-"`
}

// DefaultOptions are the defaults of contract section 2.
func DefaultOptions() Options {
	var o Options
	o.ExecutionQueue = queue.DefaultOptions()
	o.History.Retention = 24 * time.Hour
	o.DrainTimeout = 10 * time.Second
	return o
}

// Validate reports every fault, each with its config key, the value and the bound.
func (o *Options) Validate() error {
	faults := []error{o.ExecutionQueue.Validate()}
	between := func(key string, n, lo, hi int64, text func(int64) string) {
		if n < lo {
			faults = append(faults, fmt.Errorf("pipeline.%s: %s is below %s", key, text(n), text(lo)))
		} else if n > hi {
			faults = append(faults, fmt.Errorf("pipeline.%s: %s is above %s", key, text(n), text(hi)))
		}
	}
	span := func(n int64) string { return time.Duration(n).String() }
	between("history.retention", int64(o.History.Retention), int64(time.Hour), int64(366*24*time.Hour), span)
	between("drainTimeout", int64(o.DrainTimeout), 0, int64(time.Hour), span)
	return errors.Join(faults...)
}

// Bounds that are no settings, as the design states them.
const (
	waitingPerLane = 8_192
	maxParked      = 100_000
)

func (o *Options) maxWaiting() int { return lanesCount*waitingPerLane + maxParked }
