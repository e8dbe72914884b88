package pipeline

import (
	"encoding/binary"
	"fmt"
	"sync"

	"millrace/historian/kv"
	"millrace/pipeline/history"
)

// maxAttempts is after how many attempts that ended with the process a run is given up.
const maxAttempts = 3

// Records keeps small records durably: kv.Store.
type Records interface {
	Apply(ops ...kv.Op) error
	Scan(prefix []byte, fn func(key, value []byte) bool) error
}

// attempts counts, durably, how often a run was begun that may have run before. Runs that end give their mark back; what
// is left at a start ended with the process. First attempts are not marked: only a run that a start finds unfinished can
// have brought the process down.
//
// One row a run: "pa", its kind, number, pipeline and trigger node, big-endian; the value is the count.
type attempts struct {
	records Records

	mu    sync.Mutex
	count map[history.RunID]uint8 // as it was at the start, and as it is marked since
	over  []history.RunID         // ended since the last sweep
}

const attemptPrefix = "pa"

func attemptKey(id history.RunID) []byte {
	k := append([]byte(attemptPrefix), id.Kind)
	k = binary.BigEndian.AppendUint64(k, id.N)
	k = binary.BigEndian.AppendUint32(k, id.Pipeline)
	return binary.BigEndian.AppendUint16(k, id.Node)
}

func (a *attempts) load() error {
	a.count = make(map[history.RunID]uint8)
	return a.records.Scan([]byte(attemptPrefix), func(key, value []byte) bool {
		if k := key[len(attemptPrefix):]; len(k) == 15 && len(value) == 1 {
			id := history.RunID{Kind: k[0], N: binary.BigEndian.Uint64(k[1:]), Pipeline: binary.BigEndian.Uint32(k[9:]), Node: binary.BigEndian.Uint16(k[13:])}
			a.count[id] = value[0]
		}
		return true
	})
}

// before is how many attempts of a run ended with the process, as far as they were marked.
func (a *attempts) before(id history.RunID) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return int(a.count[id])
}

// mark counts one more attempt of each run; durable when it returns.
func (a *attempts) mark(ids []history.RunID) error {
	if len(ids) == 0 {
		return nil
	}
	ops := make([]kv.Op, len(ids))
	a.mu.Lock()
	for i, id := range ids {
		n := min(a.count[id]+1, 250)
		a.count[id] = n
		ops[i] = kv.Op{Key: attemptKey(id), Value: []byte{n}}
	}
	a.mu.Unlock()
	if err := a.records.Apply(ops...); err != nil {
		return fmt.Errorf("pipeline: mark attempts of %d runs: %w", len(ids), err)
	}
	return nil
}

// ended gives the mark of a run back, with the next sweep.
func (a *attempts) ended(id history.RunID) {
	a.mu.Lock()
	if _, ok := a.count[id]; ok {
		delete(a.count, id)
		a.over = append(a.over, id)
	}
	a.mu.Unlock()
}

// sweep deletes the rows of runs that have ended.
func (a *attempts) sweep() error {
	a.mu.Lock()
	over := a.over
	a.over = nil
	a.mu.Unlock()
	if len(over) == 0 {
		return nil
	}
	ops := make([]kv.Op, len(over))
	for i, id := range over {
		ops[i] = kv.Op{Key: attemptKey(id)}
	}
	if err := a.records.Apply(ops...); err != nil {
		a.mu.Lock()
		a.over = append(a.over, over...)
		a.mu.Unlock()
		return fmt.Errorf("pipeline: take back the marks of %d runs: %w", len(over), err)
	}
	return nil
}
