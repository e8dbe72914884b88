package perf

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

func (f *Fleet) begin(s *session, t int64) {
	fd, err := dial(f.address)
	if err != nil {
		f.drop(s, t, err)
		return
	}
	s.fd, s.step, s.until = fd, stepDialing, t+handshakeTime
	s.epoch++
	f.dialing++
	e := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLOUT, Fd: s.index, Pad: s.epoch}
	if err := unix.EpollCtl(f.poll, unix.EPOLL_CTL_ADD, fd, &e); err != nil {
		f.drop(s, t, err)
	}
}

// interest tells epoll whether room to write matters.
func (f *Fleet) interest(s *session, write bool) {
	e := unix.EpollEvent{Events: unix.EPOLLIN, Fd: s.index, Pad: s.epoch}
	if write {
		e.Events |= unix.EPOLLOUT
	}
	_ = unix.EpollCtl(f.poll, unix.EPOLL_CTL_MOD, s.fd, &e)
}

func (f *Fleet) serve(s *session, events uint32) {
	t := now()
	if s.step == stepDialing {
		if err := dialled(s.fd); err != nil {
			f.drop(s, t, err)
			return
		}
		user := ""
		if s.secret != "" {
			user = s.client
		}
		s.out = appendConnect(s.out[:0], f.o.Version, s.client, user, s.secret, uint16(f.o.KeepAlive/time.Second))
		s.step = stepSigningIn
		f.interest(s, false)
		f.flush(s, t)
		return
	}
	if events&unix.EPOLLOUT != 0 {
		f.flush(s, t)
	}
	if s.fd >= 0 && events&(unix.EPOLLIN|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
		f.read(s)
	}
	if s.step == stepReady {
		f.pump(s, now())
	}
}

// read takes what has arrived, packet by packet.
func (f *Fleet) read(s *session) {
	for s.fd >= 0 {
		n, err := unix.Read(s.fd, f.buffer)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if errors.Is(err, unix.EAGAIN) {
			return
		}
		t := now()
		if err != nil || n == 0 {
			if err == nil {
				err = errors.New("closed by the server")
			}
			f.drop(s, t, err)
			return
		}
		b := f.buffer[:n]
		if len(s.rest) > 0 {
			b = append(s.rest, b...)
		}
		used := 0
		for s.fd >= 0 {
			first, body, size, err := nextPacket(b[used:])
			if err == nil && size > 0 {
				err = f.packet(s, first, body, t)
			}
			if err != nil {
				f.drop(s, t, err)
				return
			}
			if size == 0 {
				break
			}
			used += size
		}
		s.rest = append(s.rest[:0], b[used:]...)
		if n < len(f.buffer) {
			return
		}
	}
}

func (f *Fleet) packet(s *session, first byte, body []byte, t int64) error {
	switch first >> 4 {
	case typePuback:
		return f.acked(s, body, t)
	case typePublish:
		d, err := parsePublish(f.o.Version, first, body)
		if err != nil {
			return err
		}
		if d.id != 0 {
			s.out = appendPuback(s.out, d.id)
		}
		if s.device != nil {
			f.verdict(s.device, d, t)
		} else {
			f.stats.Delivered++
		}
	case typeConnack:
		c, err := parseConnack(f.o.Version, body)
		if err != nil {
			return err
		}
		if c.code != 0 {
			return fmt.Errorf("sign-in of %s refused with code %#02x %s", s.client, c.code, c.reason)
		}
		if s.device != nil {
			s.device.refill(min(f.o.Inflight, c.receiveMaximum))
		}
		if len(s.filters) == 0 {
			f.arrive(s)
			return nil
		}
		s.step = stepSubscribing
		s.out = appendSubscribe(s.out, f.o.Version, 0xffff, s.qos, s.filters...)
		f.flush(s, t)
	case typeSuback:
		if !subscribed(body, len(s.filters)) {
			return fmt.Errorf("subscription of %s to %s refused", s.client, strings.Join(s.filters, ", "))
		}
		f.arrive(s)
	case typeDisconnect:
		code := byte(0)
		if len(body) > 0 {
			code = body[0]
		}
		return fmt.Errorf("the server ended the session with code %#02x", code)
	case typePingresp:
	default:
		return errMalformed
	}
	return nil
}

func (f *Fleet) arrive(s *session) {
	if s.step == stepReady {
		return
	}
	s.step, s.tries = stepReady, 0
	f.dialing--
	f.ready.Add(1)
}

func (f *Fleet) acked(s *session, body []byte, t int64) error {
	id, code, err := parsePuback(body)
	if err != nil || s.device == nil {
		return errMalformed
	}
	d := s.device
	if id == 0 || int(id) > len(d.slots) || d.slots[id-1].at == 0 {
		f.stats.Unexpected++
		return nil
	}
	p := &d.slots[id-1]
	d.tracks[p.tag].ack(p.sent, code)
	f.stats.acked(t-p.at, code)
	if p.value == 0 {
		f.contacts.Add(1)
	}
	if f.o.Recall && code < 0x80 {
		f.recent = append(f.recent, acknowledgement{t, &d.tracks[p.tag], p.value})
	}
	p.at = 0
	d.free = append(d.free, id)
	f.pending.Add(-1)
	return nil
}

func (f *Fleet) verdict(d *device, v delivery, t int64) {
	if len(v.correlation) != 8 {
		return
	}
	key := binary.BigEndian.Uint64(v.correlation)
	at, ok := d.asked[key]
	if !ok {
		return
	}
	delete(d.asked, key)
	f.stats.verdict(t-at, v.payload)
}

// pump sends what the mode allows while the window has room.
func (f *Fleet) pump(s *session, t int64) {
	d := s.device
	for d != nil && len(d.free) > 0 && !s.blocked && s.fd >= 0 {
		switch {
		case len(d.again) > 0:
			p := d.again[0]
			d.again = d.again[1:]
			f.stats.Resent++
			f.put(s, p, t)
			continue
		case f.mode == modeFirst && d.first > 0:
			d.first--
		case f.mode == modePaced && d.owed > 0:
			d.owed--
		case f.mode == modeClosed:
		default:
			f.flush(s, t)
			return
		}
		tag := d.next
		if d.next++; d.next == len(d.tracks) {
			d.next = 0
		}
		k := &d.tracks[tag]
		f.order++
		p := slot{order: f.order, tag: uint16(tag), value: k.fresh, x: d.signals[tag].next()}
		k.fresh++
		f.pending.Add(1)
		f.stats.Sent++
		f.put(s, p, t)
	}
	if s.fd >= 0 {
		f.flush(s, t)
	}
}

// put encodes one publish into the session's buffer.
func (f *Fleet) put(s *session, p slot, t int64) {
	d := s.device
	id := d.free[len(d.free)-1]
	d.free = d.free[:len(d.free)-1]
	p.at, p.sent = t, d.tracks[p.tag].add(p.value)
	d.slots[id-1] = p
	ask, key := "", uint64(0)
	if len(s.filters) > 0 {
		if f.verdicts++; f.verdicts >= f.o.VerdictEvery {
			f.verdicts = 0
			ask, key = s.filters[0], p.order
			d.asked[key] = t
			f.stats.Asked++
		}
	}
	f.payload = d.signals[p.tag].kind.appendEnvelope(f.payload[:0], p.x)
	s.out = appendPublish(s.out, f.o.Version, d.topics[p.tag], id, ask, key, f.payload)
}

func (f *Fleet) flush(s *session, t int64) {
	for len(s.out) > 0 {
		n, err := unix.Write(s.fd, s.out)
		switch {
		case n > 0:
			s.lastTx = t
			s.out = s.out[:copy(s.out, s.out[n:])]
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			if !s.blocked {
				s.blocked = true
				f.interest(s, true)
			}
			return
		default:
			f.drop(s, t, err)
			return
		}
	}
	if s.blocked {
		s.blocked = false
		f.interest(s, false)
	}
}

// hangUp closes the socket and puts what was in flight back in line, oldest first.
func (f *Fleet) hangUp(s *session) {
	if s.fd >= 0 {
		_ = unix.Close(s.fd)
		s.fd = -1
	}
	switch s.step {
	case stepReady:
		f.ready.Add(-1)
	case stepDialing, stepSigningIn, stepSubscribing:
		f.dialing--
	case stepOffline, stepGone:
	}
	s.step, s.blocked = stepOffline, false
	s.rest, s.out = s.rest[:0], s.out[:0]
	d := s.device
	if d == nil {
		return
	}
	for i := range d.slots {
		if d.slots[i].at != 0 {
			d.again = append(d.again, d.slots[i])
			d.slots[i].at = 0
		}
	}
	slices.SortFunc(d.again, func(a, b slot) int { return cmp.Compare(a.order, b.order) })
	d.refill(f.o.Inflight)
	clear(d.asked)
}

// drop ends a connection that failed and arranges the next attempt.
func (f *Fleet) drop(s *session, t int64, err error) {
	if s.step == stepReady {
		f.stats.Disconnects++
	}
	f.fault.Store(&err)
	f.hangUp(s)
	if !f.o.Retry {
		s.step = stepGone
		return
	}
	// 50 ms doubling to 1.6 s, spread by the session's number so that a fleet does not return in one instant.
	s.retryAt = t + int64(50*time.Millisecond)<<min(s.tries, 5) + int64(s.index%50)*int64(time.Millisecond)
	s.tries++
}
