package historian

import (
	"runtime"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// pebbleFormat is pinned: Pebble's own "newest" moves with its version, and a directory never goes back.
const pebbleFormat = pebble.FormatValueSeparation

// memTable is 16 MiB, and less on a disk with little room: its log is reserved at once, and up to five used logs are
// kept for use again, so that a large one could run a small disk past its watermark by itself.
func memTable(free uint64) uint64 {
	return min(max(free/64, 1<<20), 16<<20)
}

// pebbleOptions are the settings of DESIGN.md, decision 8.
func pebbleOptions(fsys vfs.FS, lock *pebble.Lock, r *reporter, free uint64) *pebble.Options {
	o := &pebble.Options{
		FS:                          logFS{fsys},
		Lock:                        lock,
		Logger:                      r,
		EventListener:               &pebble.EventListener{DataCorruption: r.corrupt},
		FormatMajorVersion:          pebbleFormat,
		MemTableSize:                memTable(free),
		MemTableStopWritesThreshold: 4,
		CacheSize:                   32 << 20,
		L0CompactionThreshold:       4,
		L0StopWritesThreshold:       24,
		BytesPerSync:                1 << 20,
		WALBytesPerSync:             512 << 10,
		FlushDelayDeleteRange:       10 * time.Second,
		CompactionConcurrencyRange:  func() (int, int) { return 1, max(1, runtime.GOMAXPROCS(0)/4) },
	}
	o.TargetFileSizes[0] = 16 << 20
	for i := range o.Levels {
		o.Levels[i].BlockSize = 16 << 10
	}
	o.ApplyCompressionSettings(func() pebble.DBCompressionSettings {
		return pebble.UniformDBCompressionSettings(sstable.ZstdCompression)
	})
	// No table holds log and anything else: what the log leaves behind goes away by whole files.
	o.Experimental.SpanPolicyFunc = func(start []byte) (pebble.SpanPolicy, []byte, error) {
		switch {
		case start[0] < spaceLog:
			return pebble.SpanPolicy{}, []byte{spaceLog}, nil
		case start[0] == spaceLog:
			return pebble.SpanPolicy{PreferFastCompression: true}, []byte{spaceLog + 1}, nil
		}
		return pebble.SpanPolicy{}, nil, nil
	}
	return o
}
