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

// pebbleOptions are the settings of DESIGN.md, decision 8.
func pebbleOptions(fsys vfs.FS, lock *pebble.Lock, r *reporter) *pebble.Options {
	o := &pebble.Options{
		FS:                          logFS{fsys},
		Lock:                        lock,
		Logger:                      r,
		FormatMajorVersion:          pebbleFormat,
		MemTableSize:                16 << 20,
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
