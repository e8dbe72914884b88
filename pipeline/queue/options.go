package queue

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Options are the config section `pipeline.executionQueue` (koanf tags) and what is injected. Injected fields may stay
// zero.
type Options struct {
	// MaxBytes bounds the frames that wait, as they are stored. Frames that are out do not count.
	MaxBytes int64 `koanf:"maxBytes"`
	// MaxAge is how long a run may wait to be taken; 0 is for ever.
	MaxAge time.Duration `koanf:"maxAge"`
	// DiscardNewOnFull makes Put wait while the queue is full; otherwise the oldest that wait are dropped, and counted.
	DiscardNewOnFull bool      `koanf:"discardNewOnFull"`
	Scheduler        Scheduler `koanf:"scheduler"`

	// Shed is told of entries that were dropped and will not be taken; valid during the call only. It may be called from
	// any goroutine and must not call the queue.
	Shed func(entries []Entry) `koanf:"-"`
	// Now is the wall clock that ages are told by; nil is the real one.
	Now func() time.Time `koanf:"-"`
	// Log gets life cycle and faults, never values; nil is silent.
	Log *slog.Logger `koanf:"-"`
	// Registry gets the metrics until Close; nil keeps them to the queue.
	Registry prometheus.Registerer `koanf:"-"`
}

// Scheduler are the settings of how runs are handed out.
type Scheduler struct {
	// MaxAckPending is how many runs of a lane may execute at once: its slots, which the runner holds.
	MaxAckPending int `koanf:"maxAckPending"`
	// AckWait is how long a frame may be out without Ack or Progress before it is handed out again.
	AckWait time.Duration `koanf:"ackWait"`
	// StarvationThreshold is how often in a row a lane with work may be passed over; see Turn.
	StarvationThreshold int `koanf:"starvationThreshold"`
}

// DefaultOptions are those of the contract.
func DefaultOptions() Options {
	return Options{
		MaxBytes: 64 << 20, MaxAge: time.Hour,
		Scheduler: Scheduler{MaxAckPending: 256, AckWait: 5 * time.Minute, StarvationThreshold: 100},
	}
}

// Validate says what is out of bounds, with the key and the bounds.
func (o Options) Validate() error {
	const key = "pipeline.executionQueue."
	s := o.Scheduler
	switch {
	case o.MaxBytes < 1<<20 || o.MaxBytes > 64<<30:
		return fmt.Errorf("%smaxBytes is %d; it must lie between 1MiB and 64GiB", key, o.MaxBytes)
	case o.MaxAge != 0 && (o.MaxAge < time.Second || o.MaxAge > 365*24*time.Hour):
		return fmt.Errorf("%smaxAge is %v; it must be 0 (no bound) or lie between 1s and 8760h", key, o.MaxAge)
	case s.MaxAckPending < 1 || s.MaxAckPending > 100_000:
		return fmt.Errorf("%sscheduler.maxAckPending is %d; it must lie between 1 and 100000", key, s.MaxAckPending)
	case s.AckWait < time.Second || s.AckWait > 24*time.Hour:
		return fmt.Errorf("%sscheduler.ackWait is %v; it must lie between 1s and 24h", key, s.AckWait)
	case s.StarvationThreshold < 1 || s.StarvationThreshold > 1_000_000:
		return fmt.Errorf("%sscheduler.starvationThreshold is %d; it must lie between 1 and 1000000", key, s.StarvationThreshold)
	}
	return nil
}

// filled replaces what is missing; tests leave most of it out.
func (o Options) filled() Options {
	d := DefaultOptions()
	if o.MaxBytes == 0 {
		o.MaxBytes = d.MaxBytes
	}
	if o.Scheduler.AckWait == 0 {
		o.Scheduler.AckWait = d.Scheduler.AckWait
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}
