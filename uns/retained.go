package uns

import (
	"encoding/binary"
	"fmt"
	"sync"

	"millrace/historian"
)

// A topic's retained message is its last value, unless an empty retained payload has cleared it. Clearing and restoring
// are numbered, and the higher number holds, on disk as in memory: two connections that clear and publish one topic at
// the same moment may reach the store in either order, and what a restart finds is still what was in force before.
//
// One change is one row: "uc", the series and the number, both big-endian, with a value of 1 for cleared and 0 for
// restored. A change deletes the row of the one before; what a race or a kill leaves behind goes at the next start.

// toggle is one such change on its way to the store.
type toggle struct {
	topic   *Topic
	n       uint64
	before  uint64 // the change whose row goes in the same commit, 0 = none
	cleared bool
}

const toggleKeyLen = 2 + 4 + 8

func toggleKey(id historian.Series, n uint64) []byte {
	k := make([]byte, 0, toggleKeyLen)
	k = binary.BigEndian.AppendUint32(append(k, 'u', 'c'), uint32(id))
	return binary.BigEndian.AppendUint64(k, n)
}

// cleared tells whether the topic's last value is not to be handed to new subscribers.
func (t *Topic) cleared() bool { return t.toggled.Load()&1 != 0 }

// Retained is the sample that a new subscriber to the topic gets: the newest, unless it was cleared. It owns its bytes.
func (c *Catalog) Retained(t *Topic) (Sample, bool) {
	if t.cleared() {
		return Sample{}, false
	}
	return c.reader.Latest(t.Series)
}

// toggle puts the clearing or restoring of a topic into the batch's commit, unless it changes nothing.
func (b *Batch) toggle(c *Catalog, t *Topic, cleared bool) {
	was := t.toggled.Load()
	for i := len(b.toggles) - 1; i >= 0; i-- {
		if o := &b.toggles[i]; o.topic == t {
			was = o.n << 1
			if o.cleared {
				was |= 1
			}
			break
		}
	}
	if (was&1 != 0) == cleared {
		return
	}
	b.Rows = c.stale.take(b.Rows)
	n, before := c.toggles.Add(1), was>>1
	b.toggles = append(b.toggles, toggle{t, n, before, cleared})
	value := []byte{0}
	if cleared {
		value[0] = 1
	}
	if before > 0 {
		b.Rows = append(b.Rows, historian.Row{Key: toggleKey(t.Series, before)})
	}
	b.Rows = append(b.Rows, historian.Row{Key: toggleKey(t.Series, n), Value: value})
}

// settleToggles puts what is durable now in force.
func (b *Batch) settleToggles(c *Catalog) {
	for _, o := range b.toggles {
		next := o.n << 1
		if o.cleared {
			next |= 1
		}
		for {
			was := o.topic.toggled.Load()
			if was>>1 > o.n { // a later one was faster
				c.stale.add(toggleKey(o.topic.Series, o.n))
				break
			}
			if o.topic.toggled.CompareAndSwap(was, next) {
				if n := was >> 1; n > 0 && n != o.before {
					c.stale.add(toggleKey(o.topic.Series, n))
				}
				break
			}
		}
	}
}

// toggled is what the store says of one series.
type toggled struct {
	n       uint64
	cleared bool
}

// loadToggles reads which series were cleared before the start, and what rows no longer mean anything.
func (c *Catalog) loadToggles() (map[historian.Series]toggled, error) {
	newest := map[historian.Series]toggled{}
	last, damaged := uint64(0), 0
	err := c.reader.Rows([]byte("uc"), func(key, value []byte) bool {
		if len(key) != toggleKeyLen || len(value) != 1 {
			damaged++
			return true
		}
		id, n := historian.Series(binary.BigEndian.Uint32(key[2:])), binary.BigEndian.Uint64(key[6:])
		last = max(last, n)
		if before, ok := newest[id]; ok { // the rows of a series come in the order of their numbers
			c.stale.add(toggleKey(id, before.n))
		}
		newest[id] = toggled{n, value[0] != 0}
		return true
	})
	if err != nil {
		return nil, fmt.Errorf("uns: read which retained values were cleared: %w", err)
	}
	if damaged > 0 {
		c.log.Warn("rows of cleared retained values cannot be read and are passed over", "rows", damaged)
	}
	for id, t := range newest {
		if !t.cleared {
			c.stale.add(toggleKey(id, t.n))
			delete(newest, id)
		}
	}
	c.toggles.Store(last)
	return newest, nil
}

// staleRows are rows that say nothing any more. The next change of any topic deletes them.
type staleRows struct {
	mu   sync.Mutex
	keys [][]byte
}

func (s *staleRows) add(key []byte) {
	s.mu.Lock()
	s.keys = append(s.keys, key)
	s.mu.Unlock()
}

// take appends the deletion of all of them to rows.
func (s *staleRows) take(rows []historian.Row) []historian.Row {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.keys {
		rows = append(rows, historian.Row{Key: k})
	}
	s.keys = nil
	return rows
}
