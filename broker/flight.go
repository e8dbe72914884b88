package broker

import (
	"cmp"
	"slices"

	"millrace/uns"
)

// flight is a message that was sent at QoS 1 or 2 and is not done.
type flight struct {
	delivery
	id       uint16
	received bool // QoS 2: the PUBREC has come, and the PUBREL is due
	marked   bool // the flight is in a row: after a crash it is known to have been sent
}

// find returns the place of a flight; the oldest is what is acknowledged most of the time.
func (s *session) find(id uint16) int {
	if _, ok := s.open[id]; !ok {
		return -1
	}
	for i := range s.flights {
		if s.flights[i].id == id {
			return i
		}
	}
	return -1
}

// land ends a flight. wake says that it opened the window for something.
func (s *session) land(i int) (wake bool) {
	full := len(s.flights) >= s.window
	f := &s.flights[i]
	delete(s.open, f.id)
	if f.marked {
		s.forgotten = append(s.forgotten, flightKey(s.num, f.n))
	}
	s.settle(&f.delivery)
	s.flights = append(s.flights[:i], s.flights[i+1:]...)
	if i < s.resend {
		s.resend--
	}
	return full && (s.queue.n > 0 || s.replay.pending() || s.resend < len(s.flights))
}

// acked takes a PUBACK; wake says that it opened the window for something. An identifier that is not open is ignored
// and opens nothing.
func (s *session) acked(id uint16) (wake bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.find(id)
	if i < 0 || s.flights[i].qos != 1 {
		return false
	}
	return s.land(i)
}

// received takes a PUBREC. known: the PUBREL is due; an error code of the client ends the flight [MQTT-4.3.3-4].
func (s *session) received(id uint16, code byte) (known, wake bool, row uns.Row) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.find(id)
	if i < 0 || s.flights[i].qos != 2 {
		return false, false, row
	}
	f := &s.flights[i]
	if code >= 0x80 && !f.received {
		return true, s.land(i), row
	}
	if !f.received {
		f.received = true
		if f.n != 0 {
			f.marked = true
			row = f.row(s.num)
		}
	}
	return true, false, row
}

// unreceived takes back a PUBREC whose row could not be written: its PUBREL was not sent.
func (s *session) unreceived(id uint16) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.find(id); i >= 0 {
		s.flights[i].received = false
	}
}

// completed takes a PUBCOMP.
func (s *session) completed(id uint16) (wake bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.find(id)
	if i < 0 || !s.flights[i].received {
		return false
	}
	return s.land(i)
}

// settle has the row of a message deleted that was delivered or dropped. The lock is held.
func (s *session) settle(d *delivery) {
	if d.n != 0 {
		s.forgotten = append(s.forgotten, queuedKey(s.num, d.n))
		s.touch()
	}
}

// touch tells the janitor that there is something to write. The lock is held.
func (s *session) touch() {
	if s.num != 0 && !s.dirty {
		s.dirty = true
		s.b.janitor.note(s)
	}
}

// nextID finds a packet identifier that is not in use; the window is far smaller than there are identifiers.
func (s *session) nextID() uint16 {
	for {
		if s.lastID++; s.lastID == 0 {
			continue
		}
		if _, used := s.open[s.lastID]; !used {
			return s.lastID
		}
	}
}

// sortFlights puts flights into the order in which their messages came.
func sortFlights(f []flight) {
	slices.SortFunc(f, func(a, b flight) int { return cmp.Compare(a.n, b.n) })
}
