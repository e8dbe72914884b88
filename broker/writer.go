package broker

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// writer is the way out of a connection: the library's packets, our acks and our deliveries in one order, the order
// in which they were appended. At most one goroutine writes to the socket at a time: the reader, with acks when nobody
// else does, or a flusher, which exists only while there is something to send. Nobody waits for another connection's
// socket; only the reader waits, for its own.
type writer struct {
	c     *conn
	mu    sync.Mutex // a leaf: nothing else is locked under it
	room  *sync.Cond // signalled when pend was taken or the writer closes
	pend  []byte     // to be written next
	spare []byte
	// deliveries are the flusher's; they follow pend.
	deliveries []byte
	flushing   bool // somebody writes
	due        bool // look again for deliveries before stopping
	greeted    bool // the client may have its CONNACK: only from then on may it get a DISCONNECT
	closing    bool // nothing may be appended any more
	linger     bool // the last packet says why: half-close and drain, a reset would eat it
	broken     bool
	armed      bool // the timer will start a flusher
	timer      *time.Timer
	lastLive   time.Time
	closed     chan struct{} // the socket is closed
	once       atOnce

	direct  atomic.Uint64 // writes of acks by the reader itself, begun and ended: odd while one is under way
	looked  uint64        // direct, when the watchdog looked last
	counted uint64        // direct of the write that was counted last
}

const (
	maxPending    = 256 << 10 // bytes of acks and answers a client may leave unread before it is no longer read
	maxFlush      = 64 << 10  // bytes of deliveries in one write
	bulkFlush     = 16 << 10  // a write as large as this is followed by the next at once
	keptBuffer    = 32 << 10
	coalesce      = time.Millisecond
	closeTimeout  = time.Second
	lingerTimeout = 2 * time.Second
)

func (w *writer) init(c *conn) {
	w.c = c
	w.room = sync.NewCond(&w.mu)
	w.closed = make(chan struct{})
	w.once.init(c.raw)
}

// append queues a packet; last: nothing may follow it.
func (w *writer) append(p []byte, last bool) {
	w.mu.Lock()
	if !w.closing {
		w.pend = append(w.pend, p...)
		if last {
			w.linger = true
			w.closeLocked()
		}
		w.startLocked()
	}
	w.mu.Unlock()
}

// greet notes that a CONNACK is about to be queued.
func (w *writer) greet() {
	w.mu.Lock()
	w.greeted = true
	w.mu.Unlock()
}

// disconnect queues a DISCONNECT where the protocol has one, and closes.
func (w *writer) disconnect(code byte) {
	w.mu.Lock()
	if !w.closing {
		if w.greeted && w.c.version == 5 {
			w.pend = appendDisconnect(w.pend, code)
			w.linger = true
		}
		w.closeLocked()
		w.startLocked()
	}
	w.mu.Unlock()
}

func (w *writer) close() {
	w.mu.Lock()
	if !w.closing {
		w.closeLocked()
		w.startLocked()
	}
	w.mu.Unlock()
}

func (w *writer) closeLocked() {
	w.closing = true
	_ = w.c.raw.SetReadDeadline(time.Unix(1, 0))
	_ = w.c.raw.SetWriteDeadline(time.Now().Add(closeTimeout))
	w.room.Broadcast()
}

// interrupt wakes the reader if it waits for bytes.
func (w *writer) interrupt() {
	w.mu.Lock()
	_ = w.c.raw.SetReadDeadline(time.Unix(1, 0))
	w.mu.Unlock()
}

// patient lifts the CONNECT deadline, unless somebody has interrupted the reader meanwhile.
func (w *writer) patient() {
	w.mu.Lock()
	if !w.closing && w.c.kick.Load() == 0 {
		_ = w.c.raw.SetDeadline(time.Time{})
	}
	w.mu.Unlock()
}

// wait holds the reader back while its client leaves too much unread.
func (w *writer) wait() {
	w.mu.Lock()
	w.roomLocked()
	w.mu.Unlock()
}

// roomLocked waits until the client has read enough of its answers.
func (w *writer) roomLocked() {
	if len(w.pend) > maxPending && !w.closing {
		w.c.b.metrics.held.Add(1)
	}
	for len(w.pend) > maxPending && !w.closing {
		w.room.Wait()
	}
}

// inspect counts a reader that is stuck in its own write of acks since the last look, once. Of the watchdog alone.
func (w *writer) inspect() {
	n := w.direct.Load()
	if n&1 == 1 && n == w.looked && n != w.counted {
		w.counted = n
		w.c.b.metrics.held.Add(1)
	}
	w.looked = n
}

// acks writes the reader's acks: itself, when nobody else writes, which saves a change of goroutine per read.
func (w *writer) acks(p []byte) {
	w.mu.Lock()
	w.roomLocked()
	if w.closing { // nothing may follow a DISCONNECT; the device sends again
		w.mu.Unlock()
		return
	}
	if w.flushing || len(w.pend) > 0 {
		w.pend = append(w.pend, p...)
		w.startLocked()
		w.mu.Unlock()
		return
	}
	w.flushing = true
	w.mu.Unlock()
	w.direct.Add(1)
	n, err := w.c.raw.Write(p)
	w.direct.Add(1)
	w.c.counters.bytesOut.Add(uint64(n))
	w.mu.Lock()
	if err != nil {
		w.broken = true
		if !w.closing {
			w.closeLocked()
		}
	}
	if len(w.pend) > 0 || w.due || w.closing {
		go w.flush()
	} else {
		w.flushing = false
	}
	w.mu.Unlock()
}

// wake has deliveries looked for now.
func (w *writer) wake() {
	w.mu.Lock()
	w.startLocked()
	w.mu.Unlock()
}

// wakeLive has deliveries looked for, at the latest a coalescing interval after the last ones were written. atOnce: by the
// caller, if nobody has to wait for that.
func (w *writer) wakeLive(atOnce bool) {
	w.mu.Lock()
	switch {
	case w.flushing:
		w.due = true
	case w.armed:
	default:
		if left := coalesce - time.Since(w.lastLive); left > 0 && !w.closing {
			w.armLocked(left)
		} else if atOnce && len(w.pend) == 0 && !w.closing && !w.isClosed() {
			w.flushing = true
			w.mu.Unlock()
			if !w.sendAtOnce() {
				go w.flush()
			}
			return
		} else {
			w.startLocked()
		}
	}
	w.mu.Unlock()
}

func (w *writer) armLocked(d time.Duration) {
	w.armed = true
	if w.timer == nil {
		w.timer = time.AfterFunc(d, w.expire)
	} else {
		w.timer.Reset(d)
	}
}

// expire runs in the timer's goroutine, which becomes the flusher.
func (w *writer) expire() {
	w.mu.Lock()
	w.armed = false
	if w.flushing || w.isClosed() {
		w.due = true
		w.mu.Unlock()
		return
	}
	w.flushing = true
	w.mu.Unlock()
	w.flush()
}

func (w *writer) startLocked() {
	switch {
	case w.flushing:
		w.due = true
	case !w.isClosed():
		w.flushing = true
		go w.flush()
	}
}

func (w *writer) isClosed() bool {
	select {
	case <-w.closed:
		return true
	default:
		return false
	}
}

// flush writes until there is nothing to write. It is entered with flushing set and leaves it unset, or set for ever
// when it closed the socket.
func (w *writer) flush() {
	w.mu.Lock()
	for {
		w.due = false
		last := w.closing
		w.mu.Unlock()

		messages, more := 0, false
		var err error
		if !last && w.c.live.Load() { // live says that session and version are set
			messages, more, err = w.deliver()
		}

		// The answers are taken after the deliveries and written before them: what made a delivery possible, such as
		// the SUBACK, is then among them.
		w.mu.Lock()
		buf := w.pend
		w.pend, w.spare = w.spare[:0], nil
		last = w.closing
		w.room.Broadcast()
		w.mu.Unlock()
		if !last {
			buf = append(buf, w.deliveries...)
		}
		w.deliveries = w.deliveries[:0]
		if cap(w.deliveries) > keptBuffer {
			w.deliveries = nil
		}
		if len(buf) > 0 && !w.broken && err == nil {
			var n int
			n, err = w.c.raw.Write(buf)
			w.c.counters.bytesOut.Add(uint64(n))
		}
		if messages > 0 {
			w.c.counters.messagesOut.Add(uint64(messages))
			w.c.sent.Add(uint64(messages))
		}

		w.mu.Lock()
		small := len(buf) < bulkFlush
		if cap(buf) <= keptBuffer {
			w.spare = buf[:0]
		}
		if messages > 0 {
			w.lastLive = time.Now()
		}
		if err != nil {
			w.broken = true
			if !w.closing {
				w.closeLocked()
			}
		}
		switch {
		case len(w.pend) > 0 || more || w.closing && !last:
		case w.closing:
			linger := w.linger && !w.broken
			w.mu.Unlock()
			w.shut(linger)
			return
		case w.due && small && messages > 0:
			if !w.armed {
				w.armLocked(coalesce)
			}
			w.flushing = false
			w.mu.Unlock()
			return
		case w.due:
		default:
			w.flushing = false
			w.mu.Unlock()
			return
		}
	}
}

// deliver prepares the deliveries that may go out now. What the store does not give or take back ends the connection, with
// word of it; err is the socket's. It is the flusher's.
func (w *writer) deliver() (messages int, more bool, err error) {
	s := w.c.session
	fault := s.load(w.c)
	if fault == nil {
		s.draw(w.c)
		w.deliveries, messages, more = s.fill(w.c, w.deliveries[:0], maxFlush)
		if s.mustCommit() {
			if err = w.answer(); err != nil { // a CONNACK or a PINGRESP must not wait for the store
				return 0, false, err
			}
			fault = s.commit(w.c)
		}
	}
	if fault == nil {
		return messages, more, nil
	}
	w.deliveries = w.deliveries[:0]
	if w.c.kick.Load() == 0 {
		w.c.b.metrics.end(codeUnspecified)
		w.c.b.log.Warn("deliveries could not be read or noted; the session ends", "client", w.c.principal.ID(), "mqtt_id", s.id, "error", fault)
	}
	w.disconnect(codeUnspecified)
	return 0, false, nil
}

// answer writes what is to be written before deliveries. It is the flusher's.
func (w *writer) answer() (err error) {
	w.mu.Lock()
	buf := w.pend
	w.pend, w.spare = w.spare[:0], nil
	w.room.Broadcast()
	w.mu.Unlock()
	if len(buf) > 0 && !w.broken {
		var n int
		n, err = w.c.raw.Write(buf)
		w.c.counters.bytesOut.Add(uint64(n))
	}
	if cap(buf) <= keptBuffer {
		w.spare = buf[:0]
	}
	return err
}

// shut closes the socket. A close with unread input sends a reset, and the reset eats the packet that says why.
func (w *writer) shut(linger bool) {
	if hc, ok := w.c.raw.(interface{ CloseWrite() error }); ok && linger {
		select { // the reader must be out of Read before the deadline is moved again
		case <-w.c.left:
		case <-time.After(closeTimeout):
		}
		if hc.CloseWrite() == nil {
			_ = w.c.raw.SetReadDeadline(time.Now().Add(w.c.b.linger))
			_, _ = io.Copy(io.Discard, io.LimitReader(rawReader{w.c.raw}, 16<<20))
		}
	}
	_ = w.c.raw.Close()
	w.mu.Lock()
	if w.timer != nil {
		w.timer.Stop()
	}
	close(w.closed)
	w.mu.Unlock()
}

// rawReader hides the connection's ReadFrom and WriteTo, which know no limit.
type rawReader struct{ net.Conn }

func (r rawReader) Read(p []byte) (int, error) { return r.Conn.Read(p) }
