package trigger

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"millrace/historian"
	"millrace/pipeline/definition"
	"millrace/pipeline/queue"
)

// Log is the historian as the follower needs it; *historian.Store is one.
type Log interface {
	// ReadLog calls fn for committed samples in order, from a sequence on, and waits for more.
	ReadLog(ctx context.Context, from uint64, fn func(samples []historian.Sample) error) error
	// LastSeq is the last committed sequence.
	LastSeq() uint64
}

// Sink takes entries; the engine is one. Put waits while the queue is full. The entry's slices are the caller's again when it returns.
type Sink interface {
	Put(ctx context.Context, lane queue.Lane, e queue.Entry) error
}

// Namespace turns a filter on full topics into one on paths; *uns.Namespace is one. fault "" = fine.
type Namespace interface {
	Filter(workspace, filter string) (paths, fault string)
}

// Versions tells which version of a pipeline held when; *definition.Shelf is one.
type Versions interface {
	List() []definition.Pipeline
	At(number uint32, seq uint64) (version uint32)
	Since(seq uint64) []definition.Change
	Plan(number, version uint32) *definition.Plan
}

// Dead is a value that came through too many derivations and starts nothing: pipelines feed each other in a circle.
type Dead struct {
	Topic string
	Seq   uint64
	Ref   queue.Ref
}

// The limits of the follower.
const (
	// MaxHops is how many derivations in a row start runs.
	MaxHops = 16
	// DefaultMarks is how many topics of triggers the gates remember.
	DefaultMarks = 1_000_000
	// DefaultPending is how many values wait for their topic to be quiet.
	DefaultPending = 100_000
)

// Options are what a Follower needs. Log, Sink, Topics and Versions are required.
type Options struct {
	Log      Log
	Sink     Sink
	Topics   Topics
	Versions Versions
	// Namespace may be nil: filters are on paths then.
	Namespace Namespace
	// From is the cursor: the first sequence that may not be done.
	From uint64
	// Skip says that a run is finished or in a surviving frame. It is asked only for sequences that were stored before the start; nil = nothing is.
	Skip func(seq uint64, pipeline uint32, node uint16) bool
	// Dead and Shed are told of values that start nothing, at most once a second for a pipeline, and of a part of the log that was
	// dropped before it was read. They must not block. Nil is nobody.
	Dead func(Dead)
	Shed func(from, to uint64)

	MaxMarks, MaxPending int // 0 = the defaults

	Now      func() time.Time // nil = time.Now
	Logger   *slog.Logger     // nil is silent
	Registry prometheus.Registerer
	// Tick makes the follower look for debounced values that are due; nil = a timer.
	Tick <-chan time.Time
}

func (o *Options) settle() error {
	if o.Log == nil || o.Sink == nil || o.Topics == nil || o.Versions == nil {
		return errors.New("trigger: Log, Sink, Topics and Versions are required")
	}
	o.From = max(o.From, 1)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Skip == nil {
		o.Skip = func(uint64, uint32, uint16) bool { return false }
	}
	if o.Dead == nil {
		o.Dead = func(Dead) {}
	}
	if o.Shed == nil {
		o.Shed = func(uint64, uint64) {}
	}
	if o.MaxMarks == 0 {
		o.MaxMarks = DefaultMarks
	}
	if o.MaxPending == 0 {
		o.MaxPending = DefaultPending
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Logger = o.Logger.With("part", "pipeline")
	return nil
}
