package broker

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"runtime/debug"
	"sync"
	"time"

	"millrace/certificate"
)

// listener owns the ways in and every connection, whose whole life, from accept to the closed socket, is one goroutine.
type listener struct {
	b       *Broker
	doors   [doorKinds]*door // nil: that way is shut
	stopped chan struct{}
	mu      sync.Mutex
	conns   map[*conn]struct{}
	open    bool // serving
	stop    bool
	wg      sync.WaitGroup
}

// door is one way in.
type door struct {
	kind  doorKind
	ln    net.Listener      // nil: connections are handed over (TakeStream)
	enter *gate             // connections a second
	tell  *gate             // beyond enter: connections a second that are told why
	shake *tls.Config       // nil: plain
	pair  *certificate.Pair // of shake
}

type doorKind int

const (
	doorTCP doorKind = iota
	doorTLS
	doorStream
	doorKinds // count
)

// extraConnections may be open beyond maxClients, to be told at CONNECT that the box is busy.
const extraConnections = 64

// listen opens the doors; on an error none stays open.
func listen(b *Broker) (_ *listener, err error) {
	l := &listener{b: b, conns: map[*conn]struct{}{}, stopped: make(chan struct{})}
	defer func() {
		if err != nil {
			l.shut()
		}
	}()
	o := &b.o
	if o.Address != "" {
		d := newDoor(doorTCP, o.Limits.ConnectRatePerSec)
		if d.ln, err = net.Listen("tcp", o.Address); err != nil {
			return nil, fmt.Errorf("broker: listen on %s: %w; free the port or set broker.address", o.Address, err)
		}
		l.doors[doorTCP] = d
	}
	if o.TLS.Address != "" {
		d := newDoor(doorTLS, o.Limits.ConnectRatePerSec)
		files := certificate.Files{Cert: o.TLS.CertFile, Key: o.TLS.KeyFile, ClientCA: o.TLS.ClientCAFile}
		if d.pair, err = certificate.Open("broker.tls", files, b.now, b.log); err != nil {
			return nil, fmt.Errorf("broker: %w", err)
		}
		d.shake = d.pair.Config()
		if d.ln, err = net.Listen("tcp", o.TLS.Address); err != nil {
			return nil, fmt.Errorf("broker: listen on %s: %w; free the port or set broker.tls.address", o.TLS.Address, err)
		}
		l.doors[doorTLS] = d
	}
	if o.WebSocket {
		l.doors[doorStream] = newDoor(doorStream, o.Limits.ConnectRatePerSec)
	}
	return l, nil
}

func newDoor(kind doorKind, rate int) *door {
	d := &door{kind: kind, enter: newGate(rate)}
	if rate > 0 {
		d.tell = newGate(max(rate, fewestTold))
	}
	return d
}

// address of a door; "" when it is shut or has none.
func (l *listener) address(kind doorKind) string {
	if d := l.doors[kind]; d != nil && d.ln != nil {
		return d.ln.Addr().String()
	}
	return ""
}

// serve accepts at every door until close. A door that breaks ends all.
func (l *listener) serve() error {
	l.mu.Lock()
	l.open = true
	l.mu.Unlock()
	close(l.b.taking)
	ended, open := make(chan error, doorKinds), 0
	for _, d := range l.doors {
		if d != nil && d.ln != nil {
			open++
			go func() { ended <- l.accept(d) }()
		}
	}
	var first error
	for range open {
		if err := <-ended; err != nil && first == nil {
			first = err
			l.shut()
		}
	}
	if open == 0 {
		<-l.stopped
	}
	return first
}

// accept lets connections in until the door is shut. It rests when the system is out of file descriptors or memory.
func (l *listener) accept(d *door) error {
	rest := 5 * time.Millisecond
	for {
		raw, err := d.ln.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return nil
		case err != nil && rest > 5*time.Second:
			return fmt.Errorf("accept on %s: %w", d.ln.Addr(), err)
		case err != nil:
			l.b.log.Warn("accept failed; resting", "error", err)
			time.Sleep(rest)
			rest *= 2
			continue
		}
		rest = 5 * time.Millisecond
		knocked := d.knock(l.b.now())
		if knocked == knockClosed {
			l.b.atDoors.turnedTooFast.Inc()
			_ = raw.Close()
			continue
		}
		if d.shake != nil {
			raw = tls.Server(raw, d.shake)
		}
		c := l.register(raw, d)
		if c == nil {
			l.b.atDoors.turnedFull.Inc()
			_ = raw.Close()
			continue
		}
		c.tooFast = knocked == knockTold
		go l.run(c)
	}
}

// register makes a connection known, and starts the time it has until its CONNECT is complete: TLS and all.
func (l *listener) register(raw net.Conn, d *door) *conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.roomLocked() {
		return nil
	}
	_ = raw.SetDeadline(time.Now().Add(l.b.o.Limits.ConnectTimeout))
	c := newConn(raw, l.b)
	c.door = d
	l.conns[c] = struct{}{}
	l.wg.Add(1)
	return c
}

// takes says whether a connection may be handed over now.
func (l *listener) takes() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open && l.roomLocked()
}

func (l *listener) roomLocked() bool {
	return !l.stop && len(l.conns) < l.b.o.Limits.MaxClients+extraConnections
}

// run is a connection's life. Whatever the library did or left undone, the session ends here.
func (l *listener) run(c *conn) {
	defer l.wg.Done()
	defer func() {
		l.mu.Lock()
		delete(l.conns, c)
		l.mu.Unlock()
	}()
	l.establish(c)
	_ = c.Close()
	close(c.left)
	l.b.leave(c)
	c.cancel()
	<-c.out.closed
}

// establish runs the library on the connection and contains its panics: one client's packet must not end the box.
func (l *listener) establish(c *conn) {
	defer func() {
		if r := recover(); r != nil {
			l.b.metrics.panics.Add(1)
			l.b.log.Error("a connection panicked and was ended", "remote", c.raw.RemoteAddr().String(), "panic", r, "stack", string(debug.Stack()))
			// No DISCONNECT: the library has closed the connection while the panic passed through it.
		}
	}()
	if err := c.secure(); err != nil {
		l.b.atDoors.handshakes.Inc()
		l.b.log.Debug("tls handshake failed", "remote", c.raw.RemoteAddr().String(), "error", err)
		return
	}
	err := l.b.library.EstablishConnection("mqtt", c)
	if c.established {
		l.b.log.Debug("session ended", "client", c.principal.ID(), "mqtt_id", c.session.id, "cause", err)
	}
}

// each calls fn for every connection; fn must not block.
func (l *listener) each(fn func(*conn)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		fn(c)
	}
}

// shut closes the doors.
func (l *listener) shut() {
	for _, d := range l.doors {
		if d != nil && d.ln != nil {
			_ = d.ln.Close()
		}
	}
}

// close takes no more connections and ejects those there are.
func (l *listener) close() {
	l.shut()
	l.mu.Lock()
	if !l.stop {
		close(l.stopped)
	}
	l.stop = true
	l.mu.Unlock()
	l.each(func(c *conn) { c.eject(codeShuttingDown) })
}
