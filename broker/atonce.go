package broker

import (
	"net"
	"syscall"
	"time"
)

// atOnce is the way out for a subscriber that was idle: whoever published writes the delivery himself, if the socket takes it
// without waiting. A flusher for a single message costs a goroutine, and as a rule the waking of a core that sleeps, which
// is more than the write. What does not fit is the flusher's, as ever; so nobody waits for another connection's socket.
type atOnce struct {
	raw   syscall.RawConn // nil: not a plain TCP socket
	write func(fd uintptr) bool
	buf   []byte
	n     int
	err   error
}

// maxAtOnce is how many receivers of one message are written to at once; more are better spread over the cores.
const maxAtOnce = 4

func (a *atOnce) init(c net.Conn) {
	t, ok := c.(*net.TCPConn)
	if !ok {
		return
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return
	}
	a.raw = raw
	a.write = func(fd uintptr) bool {
		for {
			a.n, a.err = syscall.Write(int(fd), a.buf)
			if a.err != syscall.EINTR {
				return true // also when the socket takes nothing now
			}
		}
	}
}

// send writes what the socket takes now; err is an end of the connection.
func (a *atOnce) send(b []byte) (n int, err error) {
	a.buf, a.n, a.err = b, 0, nil
	err = a.raw.Write(a.write)
	a.buf = nil
	if err != nil {
		return 0, err
	}
	if a.err == syscall.EAGAIN {
		return 0, nil
	}
	return max(a.n, 0), a.err
}

// sendAtOnce is entered with flushing set, which it leaves unset when there is nothing more to do. false: nothing was done, and a
// flusher is wanted.
func (w *writer) sendAtOnce() bool {
	c := w.c
	if w.once.raw == nil || !c.live.Load() || c.session.num != 0 {
		return false
	}
	var messages int
	var more bool
	w.deliveries, messages, more = c.session.fill(c, w.deliveries[:0], bulkFlush)
	if messages == 0 {
		return false
	}
	// As in flush: what made the deliveries possible, such as the SUBACK, was queued before them and goes first.
	w.mu.Lock()
	behind := len(w.pend) > 0
	w.mu.Unlock()
	n, err := 0, error(nil)
	if !behind {
		n, err = w.once.send(w.deliveries)
	}
	c.counters.bytesOut.Add(uint64(n))
	c.counters.messagesOut.Add(uint64(messages))
	c.sent.Add(uint64(messages))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lastLive = time.Now()
	if err != nil {
		w.broken = true
		if !w.closing {
			w.closeLocked()
		}
	} else if behind {
		w.pend = append(w.pend, w.deliveries...)
	} else if n < len(w.deliveries) {
		// The rest goes before anything else: half a packet is on its way.
		w.pend = append(append(make([]byte, 0, len(w.deliveries)-n+len(w.pend)), w.deliveries[n:]...), w.pend...)
	}
	w.deliveries = w.deliveries[:0]
	switch {
	case len(w.pend) > 0 || more || w.closing:
		go w.flush()
	case w.due:
		w.due, w.flushing = false, false
		if !w.armed {
			w.armLocked(coalesce)
		}
	default:
		w.flushing = false
	}
	return true
}
