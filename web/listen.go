package web

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"syscall"
)

// listenTCP binds address; its errors say what, where and how to mend it in one line.
func listenTCP(address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	switch {
	case err == nil:
		return l, nil
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("web: %s is already in use: stop the other program or set web.address to a free port", address)
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("web: %s needs more rights than this user has: set web.address to a port above 1023", address)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return nil, fmt.Errorf("web: %s is not an address of this machine: correct web.address", address)
	}
	return nil, fmt.Errorf("web: cannot listen on %s: %w: correct web.address", address, err)
}

// localKey marks the context of connections that came through the admin socket.
type localKey struct{}

func markLocal(ctx context.Context, c net.Conn) context.Context {
	if counted, ok := c.(*countedConn); ok {
		c = counted.Conn
	}
	if _, ok := c.(*net.UnixConn); ok {
		return context.WithValue(ctx, localKey{}, true)
	}
	return ctx
}

// limited accepts only while fewer than its bound of connections are open; more wait in the kernel's backlog.
type limited struct {
	net.Listener
	slots chan struct{}
	ended chan struct{}
	once  sync.Once
}

func limitListener(l net.Listener, bound int) net.Listener {
	return &limited{Listener: l, slots: make(chan struct{}, bound), ended: make(chan struct{})}
}

// Accept waits for a free slot, then for a connection.
func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.ended:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	return &countedConn{Conn: c, free: func() { <-l.slots }}, nil
}

// Close ends Accept, also one that waits for a slot.
func (l *limited) Close() error {
	l.once.Do(func() { close(l.ended) })
	return l.Listener.Close()
}

type countedConn struct {
	net.Conn
	free func()
	once sync.Once
}

// Close gives the slot back, once.
func (c *countedConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(c.free)
	return err
}

// CloseWrite shuts this side of the connection down.
func (c *countedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// young holds the connections that have not sent a request yet. Browsers keep such in reserve, and an orderly
// stop would wait for them as if they were work. Bounded by the listeners' slots.
type young struct {
	mu    sync.Mutex
	conns map[net.Conn]struct{}
	ended bool
}

func (y *young) note(c net.Conn, state http.ConnState) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if state != http.StateNew {
		delete(y.conns, c)
		return
	}
	if y.ended {
		c.Close()
		return
	}
	if y.conns == nil {
		y.conns = map[net.Conn]struct{}{}
	}
	y.conns[c] = struct{}{}
}

// end closes them, and from now on every new one.
func (y *young) end() {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.ended = true
	for c := range y.conns {
		c.Close()
	}
	clear(y.conns)
}
