package broker

import (
	"errors"
	"net"
	"runtime/debug"
	"sync"
	"time"
)

// listener accepts connections and runs each whole life, from accept to the closed socket, in one goroutine.
type listener struct {
	b     *Broker
	ln    net.Listener
	mu    sync.Mutex
	conns map[*conn]struct{}
	stop  bool
	wg    sync.WaitGroup
}

// extraConnections may be open beyond maxClients, to be told at CONNECT that the box is busy.
const extraConnections = 64

func listen(b *Broker, address string) (*listener, error) {
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	return &listener{b: b, ln: ln, conns: map[*conn]struct{}{}}, nil
}

// serve accepts until the listener is closed. It rests when the system is out of file descriptors or memory.
func (l *listener) serve() error {
	rest := 5 * time.Millisecond
	for {
		raw, err := l.ln.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return nil
		case err != nil && rest > 5*time.Second:
			return err
		case err != nil:
			l.b.log.Warn("accept failed; resting", "error", err)
			time.Sleep(rest)
			rest *= 2
			continue
		}
		rest = 5 * time.Millisecond
		c := l.register(raw)
		if c == nil {
			l.b.metrics.turnedAway.Add(1)
			_ = raw.Close()
			continue
		}
		go l.run(c)
	}
}

func (l *listener) register(raw net.Conn) *conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stop || len(l.conns) >= l.b.o.Limits.MaxClients+extraConnections {
		return nil
	}
	_ = raw.SetDeadline(time.Now().Add(l.b.o.Limits.ConnectTimeout))
	c := newConn(raw, l.b)
	l.conns[c] = struct{}{}
	l.wg.Add(1)
	return c
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
	err := l.b.library.EstablishConnection("mqtt", c)
	if c.established {
		l.b.log.Debug("session ended", "client", c.session.principal.ID(), "mqtt_id", c.session.id, "cause", err)
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

// close takes no more connections and ejects those there are.
func (l *listener) close() {
	_ = l.ln.Close()
	l.mu.Lock()
	l.stop = true
	l.mu.Unlock()
	l.each(func(c *conn) { c.eject(codeShuttingDown) })
}
