package pipeline

import (
	"context"
	"fmt"

	"millrace/pipeline/history"
	"millrace/pipeline/node"
	"millrace/pipeline/queue"
)

// load reads what was finished when the process ended last.
func (e *Engine) load(survivors []queue.Survivor) error {
	b := &e.before
	cursor, marks, err := e.history.LoadCursor()
	if err != nil {
		return fmt.Errorf("pipeline: load the cursor: %w", err)
	}
	if b.lastSeq = e.values.LastSeq(); cursor == 0 {
		// There never was one. It is written down before the first value comes: after a kill within the first second there
		// would be none again.
		cursor = b.lastSeq + 1
		if err := e.history.SaveCursor(cursor, nil); err != nil {
			return fmt.Errorf("pipeline: save the first cursor: %w", err)
		}
	}
	// A store that does not wait for the disk may have lost sequences that are remembered here; they must not be given to others.
	b.lastSeq = max(b.lastSeq, cursor-1)
	for _, m := range marks {
		b.lastSeq = max(b.lastSeq, m.Seq)
	}
	for _, s := range survivors {
		b.lastSeq = max(b.lastSeq, s.Seq)
	}
	e.values.SkipTo(b.lastSeq)
	e.values.Hold(cursor)
	b.saved.Store(cursor)
	e.forgotten = cursor
	b.marks = make(map[history.Mark]struct{}, len(marks))
	for _, m := range marks {
		b.marks[m] = struct{}{}
	}
	rows, err := e.history.ParkedRows()
	if err != nil {
		return fmt.Errorf("pipeline: load the parked runs: %w", err)
	}
	e.rows = rows
	b.rows = make(map[history.RunID]struct{}, len(rows))
	for _, r := range rows {
		b.rows[r.ID] = struct{}{}
	}
	b.queue = make(map[history.Mark]struct{}, len(survivors))
	for _, s := range survivors {
		for _, ref := range s.Refs {
			id := history.RunID{Kind: 'v', Pipeline: ref.Pipeline, N: s.Seq, Node: ref.Node}
			if s.Seq == 0 || b.over(id) {
				continue
			}
			b.queue[history.Mark{Seq: s.Seq, Pipeline: ref.Pipeline, Node: ref.Node}] = struct{}{}
			e.byKind['v'].begin(s.Seq, 1)
		}
	}
	return e.attempts.load()
}

// Cursor is the sequence from which the follower has to read: the lowest one with a run that is not finished.
func (e *Engine) Cursor() uint64 { return e.before.saved.Load() }

// Shed counts runs as finished that the queue had to drop.
func (e *Engine) Shed(entries []queue.Entry) {
	for i := range entries {
		for _, ref := range entries[i].Refs {
			e.close(runID(&entries[i], ref))
		}
	}
}

// try begins runs that may have run before, with a mark each. Those that were under way when the process ended go one at a
// time, so that the one that ends it again is known; the third time it is given up. The order of runs is kept.
func (e *Engine) try(ctx context.Context, runs []*run) {
	var batch []*run
	var ids []history.RunID
	flush := func() bool {
		if len(batch) == 0 {
			return true
		}
		if err := e.attempts.mark(ids); err != nil {
			e.log.Error("attempts could not be counted", "error", err)
		}
		e.begin(batch)
		batch, ids = nil, nil
		return ctx.Err() == nil
	}
	for _, r := range runs {
		n := r.attempt - 1
		switch {
		case n >= maxAttempts:
			if !flush() {
				return
			}
			e.bury(r, n)
		case n > 0:
			if !flush() {
				return
			}
			batch, ids = append(batch, r), append(ids, r.id)
			if !flush() {
				return
			}
			select {
			case <-r.solo:
			case <-ctx.Done():
				return
			}
		default:
			batch = append(batch, r)
			if r.suspect {
				ids = append(ids, r.id)
			}
		}
	}
	flush()
}

// bury ends a run that has brought the process down too often, and leaves a dead letter.
func (e *Engine) bury(r *run, n int) {
	f := &node.Failure{Message: fmt.Sprintf("given up: the process ended during each of %d attempts", n), Permanent: true}
	r.pipe.track(r)
	r.mu.Lock()
	r.stop(history.Failed, f, -1)
	r.dead = true
	e.finish(r)
}
