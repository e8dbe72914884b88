package historian

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
)

// CommitWindowAuto lets the store choose how long a group fills, from the rate at which values arrive.
const CommitWindowAuto time.Duration = -1

// maxCommitWindow is the longest window that still makes sense: devices wait that long for every value.
const maxCommitWindow = time.Second

// minLogBytes leaves room for a few groups of the largest values.
const minLogBytes = 1 << 20

// Options are the config section `historian` (koanf tags) and what is injected. Injected fields may stay zero.
type Options struct {
	Pebble PebbleOptions `koanf:"pebble"`
	// MaxLogBytes bounds the log of values that are not in chunks yet or that the trigger follower has not seen.
	MaxLogBytes int64 `koanf:"maxLogBytes"`
	// DefaultRetention is the class of series whose topic names none. The store only checks it; callers of
	// CreateSeries apply it.
	DefaultRetention string `koanf:"defaultRetention"`
	// MinFreeSpace is how many octets must stay free on the disk; below, appends wait. 0 is off.
	MinFreeSpace int64 `koanf:"minFreeSpace"`

	// Ring is where, without SyncWrites, commits that no fsync covers yet are kept for the case of a kill: RingAuto, RingOff, or a
	// folder, which should lie on tmpfs and outlive the process.
	Ring string `koanf:"ring"`

	// Checkpoint says when heads move into chunks. Zero fields take their defaults.
	Checkpoint CheckpointOptions `koanf:"-"`

	// FS is the disk; nil is the real one, whose log files are warmed at Open.
	FS vfs.FS `koanf:"-"`
	// Now is the wall clock that receipt stamps come from; nil is the real one.
	Now func() time.Time `koanf:"-"`
	// Free tells how many octets are free where dir lies; nil asks FS. When it fails, nothing is held back.
	Free func(dir string) (uint64, error) `koanf:"-"`
	// Tick drives the watch over space, stalls and the age of heads; nil is a ticker of 250 ms.
	Tick <-chan time.Time `koanf:"-"`
	// Log gets life cycle and faults, never values; nil is silent.
	Log *slog.Logger `koanf:"-"`
	// Registry gets the metrics until Close; nil keeps them to the store.
	Registry prometheus.Registerer `koanf:"-"`
	// Fatal is called once when the disk refused a write: the process must end. It may be called from any
	// goroutine and should not call the store. Every append since fails with err.
	Fatal func(err error) `koanf:"-"`

	// Elapsed is the time of a clock that nobody sets; nil is the machine's.
	Elapsed func() time.Duration `koanf:"-"`
	// KeepAll hides and deletes nothing, whatever the class.
	KeepAll bool `koanf:"-"`

	warm bool
}

// PebbleOptions are the config section `historian.pebble`.
type PebbleOptions struct {
	// SyncWrites acknowledges after fsync. Without it at most 100 ms of acknowledged values are lost at a
	// power cut, always the newest; at a kill as well, where there is no ring.
	SyncWrites bool `koanf:"syncWrites"`
	// CommitWindow is how long a group fills; 0 commits at once, CommitWindowAuto adapts.
	CommitWindow time.Duration `koanf:"commitWindow"`
}

// CheckpointOptions bound how much of the log has to be read again at a start.
type CheckpointOptions struct {
	LogBytes int64         // 128 MiB
	Values   int64         // 3 million
	Every    time.Duration // 10 min
	// CarryBelow leaves a series with fewer samples in its head, so that slow series make no tiny chunks. 64;
	// -1 carries nothing.
	CarryBelow int
}

// DefaultOptions are the defaults of contract section 2.
func DefaultOptions() Options {
	return Options{
		Pebble:           PebbleOptions{SyncWrites: true, CommitWindow: CommitWindowAuto},
		MaxLogBytes:      4 << 30,
		DefaultRetention: Class1d.String(),
		MinFreeSpace:     1 << 30,
		Ring:             RingAuto,
	}
}

// Validate reports every fault at once; each names the key, the value and the bound.
func (o *Options) Validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if w := o.Pebble.CommitWindow; w != CommitWindowAuto && w < 0 {
		fault("historian.pebble.commitWindow: %v is below 0 and not auto", w)
	} else if w > maxCommitWindow {
		fault("historian.pebble.commitWindow: %v is above %v", w, maxCommitWindow)
	}
	if o.MaxLogBytes < minLogBytes {
		fault("historian.maxLogBytes: %d is below %d", o.MaxLogBytes, minLogBytes)
	}
	if _, ok := ParseClass(o.DefaultRetention); !ok {
		fault("historian.defaultRetention: %q is none of 1d 7d 14d 32d 90d 366d 1830d forever", o.DefaultRetention)
	}
	if o.Ring != "" && o.Ring != RingAuto && o.Ring != RingOff && !filepath.IsAbs(o.Ring) {
		fault("historian.ring: %q is neither auto nor off nor an absolute path", o.Ring)
	}
	if o.MinFreeSpace < 0 {
		fault("historian.minFreeSpace: %d is below 0", o.MinFreeSpace)
	}
	return errors.Join(faults...)
}

// settle fills in what was left zero.
func (o *Options) settle() {
	c := &o.Checkpoint
	setDefault(&c.LogBytes, 128<<20)
	setDefault(&c.Values, 3_000_000)
	setDefault(&c.Every, 10*time.Minute)
	setDefault(&c.CarryBelow, 64)
	if o.MaxLogBytes > 0 {
		// What is held of the log goes by checkpoints.
		c.LogBytes = min(c.LogBytes, o.MaxLogBytes/4)
	}
	o.warm = o.FS == nil
	setDefault(&o.FS, vfs.Default)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Free == nil {
		fsys := o.FS
		o.Free = func(dir string) (uint64, error) {
			u, err := fsys.GetDiskUsage(dir)
			return u.AvailBytes, err
		}
	}
	if o.Elapsed == nil {
		start := time.Now()
		o.Elapsed = func() time.Duration { return time.Since(start) }
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Log = o.Log.With("part", "historian")
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
