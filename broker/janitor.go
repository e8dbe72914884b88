package broker

import (
	"context"
	"encoding/binary"
	"sync"
	"sync/atomic"
	"time"

	"millrace/uns"
)

// janitorEvery is how long settled rows may wait to be deleted. A kill before that delivers those messages again.
const janitorEvery = 100 * time.Millisecond

// expireEvery is how often the janitor looks for sessions and wills whose time is over: at all of them.
const expireEvery = time.Second

// maxSweep bounds the rows of one commit of the janitor.
const maxSweep = 4096

// janitor writes what sessions have to keep and need not wait for: rows of settled messages go, flights and the end of
// a connection are noted; and it ends sessions whose time has come. One goroutine, owned by Serve.
type janitor struct {
	mu    sync.Mutex
	dirty []*session
	ended []remains // whose rows go

	looked atomic.Int64 // ns, when it last looked for what is over
}

func (j *janitor) discard(left remains) {
	j.mu.Lock()
	j.ended = append(j.ended, left)
	j.mu.Unlock()
}

func (j *janitor) note(s *session) {
	j.mu.Lock()
	j.dirty = append(j.dirty, s)
	j.mu.Unlock()
}

func (j *janitor) take() (dirty []*session, ended []remains) {
	j.mu.Lock()
	defer j.mu.Unlock()
	dirty, ended, j.dirty, j.ended = j.dirty, j.ended, nil, nil
	return dirty, ended
}

// sweepLoop runs until stop, and once more then.
func (b *Broker) sweepLoop(stop <-chan struct{}) {
	// A stalled store must not hold up the end of the box for long.
	ctx, cancel := context.WithCancel(b.ctx)
	defer cancel()
	var last sync.WaitGroup
	defer last.Wait()
	last.Go(func() {
		select {
		case <-stop:
		case <-ctx.Done():
			return
		}
		select {
		case <-time.After(lastSweep):
			cancel()
		case <-ctx.Done():
		}
	})
	defer cancel()
	t := time.NewTicker(janitorEvery)
	defer t.Stop()
	for {
		select {
		case <-stop:
			b.sweep(ctx)
			return
		case <-t.C:
			b.expire(b.now())
			b.sweep(ctx)
		}
	}
}

// lastSweep is how long the store may take for what is left to write when the box ends.
const lastSweep = 5 * time.Second

// sweep commits what the sessions noted. What cannot be written now is noted again.
func (b *Broker) sweep(ctx context.Context) {
	dirty, ended := b.janitor.take()
	var rows []uns.Row
	from := 0
	for i, s := range dirty {
		if rows = s.sweep(rows); len(rows) < maxSweep && i < len(dirty)-1 {
			continue
		}
		if len(rows) > 0 {
			if err := b.rows.Append(ctx, nil, rows); err != nil {
				b.log.Warn("rows of sessions could not be written; trying again", "error", err)
				for _, s := range dirty[from : i+1] {
					s.unsweep(rows)
				}
			}
		}
		rows, from = rows[:0], i+1
	}
	for _, left := range ended {
		b.discard(ctx, left)
	}
}

// unsweep notes again what of rows is this session's and could not be written.
func (s *session) unsweep(rows []uns.Row) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range rows {
		num, rest, ok := numOf(r.Key)
		switch {
		case !ok || num != s.num:
		case r.Value == nil:
			s.forgotten = append(s.forgotten, r.Key)
		case string(r.Key[:2]) == rowFlight:
			for i := range s.flights {
				if f := &s.flights[i]; f.n == binary.BigEndian.Uint64(rest) {
					f.marked = false
				}
			}
		default:
			s.told = s.conn != nil
		}
	}
	s.touch()
}

// sweep appends the rows that describe what changed.
func (s *session) sweep(rows []uns.Row) []uns.Row {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dirty = false
	for _, key := range s.forgotten {
		rows = append(rows, uns.Row{Key: key})
	}
	s.forgotten = nil
	if s.over {
		return rows
	}
	for i := range s.flights {
		if f := &s.flights[i]; f.n != 0 && !f.marked {
			f.marked = true
			rows = append(rows, f.row(s.num))
		}
	}
	if offline := s.conn == nil; offline != s.told {
		s.told = offline
		rows = append(rows, s.rowLocked())
	}
	return rows
}

func (s *session) rowLocked() uns.Row {
	r := sessionRow{ID: s.id, Owner: s.owner, Expiry: s.expiry}
	if s.conn == nil {
		r.Ended = s.ended.Unix()
	}
	return jsonRow(rowKey(rowSession, s.num), r)
}

func (f *flight) row(num uint32) uns.Row {
	state := byte(0)
	if f.received {
		state = 1
	}
	return uns.Row{Key: flightKey(num, f.n), Value: append(binary.BigEndian.AppendUint16(nil, f.id), state)}
}

// forget has the row of a message deleted that is not owed after all.
func (s *session) forget(n uint64) {
	s.mu.Lock()
	s.settle(&delivery{n: n})
	s.mu.Unlock()
}

// expire ends the sessions whose time without a connection is over, and those whose client is gone, and publishes wills that
// are due; at most once in expireEvery.
func (b *Broker) expire(now time.Time) {
	if since := now.UnixNano() - b.janitor.looked.Load(); since >= 0 && since < int64(expireEvery) {
		return
	}
	b.janitor.looked.Store(now.UnixNano())
	b.publishDueWills(now, false)
	if b.persistent.Load() == 0 {
		return
	}
	for _, s := range b.everySession() {
		s.mu.Lock()
		over := s.conn == nil && !s.over && s.num != 0 && (!now.Before(s.ended.Add(time.Duration(s.expiry)*time.Second)) || s.principal().Policy() == nil && !b.known(s))
		s.mu.Unlock()
		if over {
			b.endOffline(s)
		}
	}
}

// known says whether the API client of an offline session still may sign in; with another secret it is another
// principal, for which the session goes on collecting.
func (b *Broker) known(s *session) bool {
	p, ok := b.users.Certified(s.owner)
	if ok {
		s.who.Store(p)
	}
	return ok
}

// endOffline ends a session that has no connection, unless one is just being given to it.
func (b *Broker) endOffline(s *session) {
	k, ok := b.claimIdle(s.id, s.owner)
	if !ok {
		return
	}
	defer b.releaseClaim(k)
	s.mu.Lock()
	idle := s.conn == nil && !s.over
	s.mu.Unlock()
	if idle {
		b.endSession(s)
	}
}
