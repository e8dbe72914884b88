package uns

import (
	"sync"
	"sync/atomic"

	"millrace/historian"
)

// Topic is one entry of the catalog. Shared, lives for ever (until deletion); safe for concurrent reads.
type Topic struct {
	Workspace, Path string
	Full            string // the live topic
	Series          historian.Series

	rules atomic.Pointer[rules]
	slot  atomic.Value
	// toggled says whether the retained value is cleared: the number of the change, times two, plus one if so.
	toggled atomic.Uint64
	// newest is the greatest time of a stored sample, in ns; 0 = nobody has asked yet. It is followed for topics that
	// expect values at an interval or whose devices stamp them.
	newest   atomic.Int64
	gone     atomic.Bool // deleted: its path may have another by now
	violated atomic.Pointer[violations]
	// change orders those who write settings; readers take the pointer.
	change sync.Mutex
}

// Settings returns the settings as they are now. What they point to is shared and must not be changed.
func (t *Topic) Settings() Settings { return t.rules.Load().settings }

// Slot is what SetSlot left, nil until then. It is the place of the Live implementation's cached subscriber list.
func (t *Topic) Slot() any { return t.slot.Load() }

// SetSlot keeps v, always of the same concrete type, without a look at what it means.
func (t *Topic) SetSlot(v any) { t.slot.Store(v) }
