package broker

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"millrace/uns"
)

var errTooManySessions = errors.New("broker: too many sessions outlive their connections")

// maxSessions bounds the sessions that outlive their connections.
func (b *Broker) maxSessions() int { return max(4*b.o.Limits.MaxClients, 1000) }

// begin finds or makes the session of a connection that holds the claim of its identifier. present: an earlier one goes
// on. An error means that what must be durable could not be written.
func (b *Broker) begin(ctx context.Context, c *conn, clean bool, window int, expiry uint32) (present bool, err error) {
	b.mu.Lock()
	old := b.sessions[c.claim.id]
	b.mu.Unlock()
	if old != nil && !clean {
		old.attach(c, c.principal, window, expiry)
		c.session = old
		return true, nil
	}
	var rows []uns.Row
	if old != nil {
		// Were its row still there after a crash, the session would be too.
		if old.num != 0 {
			rows = append(rows, uns.Row{Key: rowKey(rowSession, old.num)})
		}
		b.endSession(old)
	}
	s := &session{b: b, id: c.claim.id, owner: c.principal.ID(), expiry: expiry, conn: c, version: c.version, window: window, maxPacket: c.maxPacket,
		aliases: newAliases(c.aliasMaximum), subscriptions: map[string]*subscription{}}
	s.who.Store(c.principal)
	if expiry > 0 {
		if b.persistent.Load() >= int64(b.maxSessions()) {
			return false, errTooManySessions
		}
		s.num = b.lastNum.Add(1)
		rows = append(rows, s.rowLocked(), uns.Row{Key: []byte(rowNumber), Value: binary.BigEndian.AppendUint32(nil, s.num)})
	}
	if len(rows) > 0 {
		ctx, cancel := context.WithTimeout(ctx, b.o.Limits.ConnectTimeout)
		defer cancel()
		if err := b.rows.Append(ctx, nil, rows); err != nil {
			return false, fmt.Errorf("broker: begin the session of %s: %w", s.id, err)
		}
	}
	if s.num != 0 {
		b.persistent.Add(1)
	}
	c.session = s
	return false, nil
}

// endSession ends a session for ever: its subscriptions, what is owed to it, its rows. The caller holds the claim.
func (b *Broker) endSession(s *session) {
	defer b.publishWill(s.takeWill(b.now(), true))
	subs, left := s.end()
	list := make([]*subscription, 0, len(subs))
	for _, sub := range subs {
		list = append(list, sub)
	}
	b.index.remove(list...)
	b.mu.Lock()
	if b.sessions[s.id] == s {
		delete(b.sessions, s.id)
	}
	b.mu.Unlock()
	if s.num != 0 {
		b.persistent.Add(-1)
	}
	if s.num != 0 || len(left.shared) > 0 {
		b.janitor.discard(left)
	}
}

// remains is what a session that ended leaves behind.
type remains struct {
	num     uint32     // of its rows, 0: it has none
	shared  []delivery // for its groups, without a row
	settled [][]byte   // keys of rows whose messages are done
	sent    []uint64   // QoS 2 messages that may have been sent; their rows may not say so yet
	from    *session   // for its counts; nil after a restart
}

// discard gives what a session was to get for its groups to their other members and deletes every row of it; those of
// messages that are being committed now are orphans until the next start. A message that moves has its row written under
// the new session in the commit that deletes the old one, so that a kill finds it at one of the two.
// It is the janitor's: a stalled store must not hold up a client.
func (b *Broker) discard(ctx context.Context, left remains) {
	var rows []uns.Row
	var moves []moved
	commit := func() bool {
		if len(rows) > 0 {
			if err := b.rows.Append(ctx, nil, rows); err != nil {
				b.log.Warn("rows of an ended session could not be moved and deleted; trying again", "error", err)
				b.janitor.discard(left)
				return false
			}
		}
		for _, to := range moves {
			to.to.enqueue(to.d)
		}
		rows, moves = rows[:0], moves[:0]
		return true
	}
	lost := 0
	for len(left.shared) > 0 {
		n := min(len(left.shared), maxSweep)
		for i := range left.shared[:n] {
			to, more, ok := b.moveTo(&left.shared[i], rows)
			if !ok {
				lost++
				continue
			}
			rows, moves = more, append(moves, to)
		}
		if !commit() {
			return
		}
		left.shared = left.shared[n:]
	}
	if left.num != 0 && !b.discardRows(&left, &rows, &moves, commit, &lost) {
		return
	}
	if lost > 0 && left.from != nil {
		left.from.drop(dropSessionEnded, lost)
	}
}

// discardRows moves and deletes the rows of left.num; false: not all of it could be done.
func (b *Broker) discardRows(left *remains, rows *[]uns.Row, moves *[]moved, commit func() bool, lost *int) bool {
	sent := map[uint64]bool{} // [MQTT-4.8.2-5]
	for _, n := range left.sent {
		sent[n] = true
	}
	done := map[string]bool{}
	for _, key := range left.settled {
		done[string(key)] = true
	}
	*rows = append(*rows, uns.Row{Key: rowKey(rowSession, left.num)})
	var queued []delivery
	for _, kind := range []string{rowFilter, rowInbound, rowSeen, rowQueued, rowFlight} {
		err := b.rows.Rows(rowKey(kind, left.num), func(key, value []byte) bool {
			key = append([]byte(nil), key...)
			if kind == rowFlight && len(key) == 14 {
				sent[queuedN(key)] = true
			}
			if kind == rowQueued && !done[string(key)] {
				if d, ok := parseQueued(value); ok && d.group != "" {
					d.n = queuedN(key)
					queued = append(queued, d)
					return true
				}
			}
			*rows = append(*rows, uns.Row{Key: key})
			return true
		})
		if err != nil {
			b.log.Warn("rows of an ended session could not be read; the next start deletes them", "error", err)
			return false
		}
	}
	// Flights last: one whose row is gone before its message's would be taken for one that was not sent.
	flights := len(*rows)
	for flights > 0 && string((*rows)[flights-1].Key[:2]) == rowFlight {
		flights--
	}
	last := append([]uns.Row(nil), (*rows)[flights:]...)
	all := append([]uns.Row(nil), (*rows)[:flights]...)
	*rows = (*rows)[:0]
	for len(all) > 0 {
		n := min(len(all), maxSweep)
		if *rows = append(*rows, all[:n]...); !commit() {
			return false
		}
		all = all[n:]
	}
	for i := range queued {
		d := &queued[i]
		old := uns.Row{Key: queuedKey(left.num, d.n)}
		if d.qos == 1 || !sent[d.n] {
			if to, more, ok := b.moveTo(d, *rows); ok {
				*rows, *moves = more, append(*moves, to)
			} else {
				*lost++
			}
		}
		if *rows = append(*rows, old); len(*rows) >= maxSweep && !commit() {
			return false
		}
	}
	for len(last) > 0 {
		n := min(len(last), maxSweep)
		if *rows = append(*rows, last[:n]...); !commit() {
			return false
		}
		last = last[n:]
	}
	return commit()
}

// restore brings back the sessions that outlived the process. Called by Open.
func (b *Broker) restore() error {
	byNum := map[uint32]*session{}
	orphans := map[uint32]bool{}
	now := b.now()
	each := func(kind string, fn func(s *session, rest, value []byte) error) error {
		var fault error
		err := b.rows.Rows([]byte(kind), func(key, value []byte) bool {
			num, rest, ok := numOf(key)
			if !ok {
				return true
			}
			s := byNum[num]
			if s == nil && kind != rowSession {
				orphans[num] = true
				return true
			}
			if kind == rowSession {
				s = &session{b: b, num: num, subscriptions: map[string]*subscription{}, told: true}
			}
			fault = fn(s, rest, value)
			return fault == nil
		})
		if err == nil {
			err = fault
		}
		return err
	}
	err := each(rowSession, func(s *session, _, value []byte) error {
		var r sessionRow
		if err := json.Unmarshal(value, &r); err != nil {
			return fmt.Errorf("broker: the row of session %d cannot be read: %w", s.num, err)
		}
		p, ok := b.users.Certified(r.Owner)
		if !ok || b.sessions[r.ID] != nil {
			orphans[s.num] = true
			return nil
		}
		s.id, s.owner, s.expiry, s.ended = r.ID, r.Owner, r.Expiry, now
		if r.Ended != 0 {
			s.ended = time.Unix(r.Ended, 0)
		}
		s.who.Store(p)
		byNum[s.num], b.sessions[s.id] = s, s
		b.persistent.Add(1)
		b.lastNum.Store(max(b.lastNum.Load(), s.num))
		return nil
	})
	if err != nil {
		return err
	}
	steps := []struct {
		kind string
		fn   func(s *session, rest, value []byte) error
	}{
		{rowFilter, func(s *session, rest, value []byte) error { return s.restoreFilter(string(rest), value) }},
		{rowFlight, func(s *session, rest, value []byte) error { return s.restoreFlight(rest, value) }},
		{rowQueued, func(s *session, rest, value []byte) error { return s.restoreQueued(rest, value) }},
		{rowSeen, func(s *session, _, value []byte) error { return s.restoreSeen(value) }},
		{rowInbound, func(s *session, rest, value []byte) error { return s.restoreInbound(rest, value) }},
	}
	for _, step := range steps {
		if err := each(step.kind, step.fn); err != nil {
			return err
		}
	}
	err = b.rows.Rows([]byte(rowNumber), func(_, value []byte) bool {
		if len(value) == 4 {
			b.lastNum.Store(max(b.lastNum.Load(), binary.BigEndian.Uint32(value)))
		}
		return true
	})
	if err != nil {
		return err
	}
	for num := range orphans {
		b.janitor.discard(remains{num: num})
	}
	for _, s := range byNum {
		s.restored()
	}
	return nil
}

func (s *session) restoreFilter(filter string, value []byte) error {
	var r filterRow
	if err := json.Unmarshal(value, &r); err != nil {
		return fmt.Errorf("broker: a subscription of session %s cannot be read: %w", s.id, err)
	}
	sub := &subscription{session: s, filter: filter, qos: r.QoS, noLocal: r.NoLocal, retainAsPublished: r.RetainAsPublished, id: r.ID}
	s.subscriptions[filter] = sub
	s.b.index.add(sub)
	return nil
}

func (s *session) restoreFlight(rest, value []byte) error {
	if len(rest) != 8 || len(value) != 3 {
		return fmt.Errorf("broker: a flight of session %s cannot be read", s.id)
	}
	f := flight{id: binary.BigEndian.Uint16(value), received: value[2] == 1, marked: true}
	f.n = binary.BigEndian.Uint64(rest)
	s.flights = append(s.flights, f)
	return nil
}

// restoreQueued puts a message into its flight, or leaves it to its row.
func (s *session) restoreQueued(rest, value []byte) error {
	if len(rest) != 8 {
		return fmt.Errorf("broker: a message of session %s cannot be read", s.id)
	}
	d, ok := parseQueued(value)
	if !ok {
		return fmt.Errorf("broker: a message of session %s cannot be read", s.id)
	}
	d.n = binary.BigEndian.Uint64(rest)
	s.lastN.Store(max(s.lastN.Load(), d.n))
	for i := range s.flights {
		if f := &s.flights[i]; f.n == d.n {
			f.delivery = d
			return nil
		}
	}
	d.spill()
	s.queue.push(d, s.b.o.Limits.MaxSubscriberQueue)
	return nil
}

func (s *session) restoreInbound(rest, value []byte) error {
	if len(rest) != 2 || len(value) != 1 {
		return fmt.Errorf("broker: an identifier of session %s cannot be read", s.id)
	}
	if value[0] == 0 { // it was refused
		return nil
	}
	if s.inbound == nil {
		s.inbound = map[uint16]struct{}{}
	}
	s.inbound[binary.BigEndian.Uint16(rest)] = struct{}{}
	return nil
}

// restoreSeen keeps a row that remembers publishes, until all of them are there.
func (s *session) restoreSeen(value []byte) error {
	if len(value) < 8 || len(value)%6 != 8%6 {
		return fmt.Errorf("broker: the publishes of session %s cannot be read", s.id)
	}
	s.remembered = append(s.remembered, append([]byte(nil), value...))
	return nil
}

// restored puts the flights in order and forgets those whose message is gone.
func (s *session) restored() {
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.SortFunc(s.remembered, bytes.Compare) // by turn
	for _, row := range s.remembered {
		s.turn = binary.BigEndian.Uint64(row)
		for b := row[8:]; len(b) > 0; b = b[6:] {
			s.seen.add(binary.BigEndian.Uint16(b), binary.BigEndian.Uint32(b[2:]), s.b.o.Limits.ReceiveMaximum)
		}
	}
	s.remembered = nil
	s.open = map[uint16]struct{}{}
	kept := s.flights[:0]
	for _, f := range s.flights {
		if f.message == nil && !f.received {
			s.forgotten = append(s.forgotten, flightKey(s.num, f.n))
			continue
		}
		if f.message == nil {
			f.message, f.qos = &message{}, 2
		}
		s.open[f.id] = struct{}{}
		kept = append(kept, f)
	}
	if s.flights = kept; len(s.forgotten) > 0 {
		s.touch()
	}
	sortFlights(s.flights)
	if n := len(s.flights); n > 0 {
		// Not from 1: an identifier must not be used again while a row of its last use may still be there.
		s.lastID = s.flights[n-1].id
	}
	s.resend = 0
}
