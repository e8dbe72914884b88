package web

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// maxSocketPath is the room a Unix socket address has for its path on Linux; other systems have a little less.
const maxSocketPath = 107

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

// adminSocket is the listener of the admin socket. Close removes the file, if it is still this one.
type adminSocket struct {
	net.Listener
	path string
	made fs.FileInfo
	once sync.Once
}

// listenSocket makes the admin socket at path with mode 0600. The socket is born in a private folder and moved
// into place, so that there is no moment at which another user could open it.
func listenSocket(path string) (*adminSocket, error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("web: admin socket %s: the path has %d bytes, the system allows %d: choose a shorter data directory", path, len(path), maxSocketPath)
	}
	if err := clearStale(path); err != nil {
		return nil, err
	}
	private, err := os.MkdirTemp(filepath.Dir(path), ".s")
	if err != nil {
		return nil, fmt.Errorf("web: admin socket %s: %w: make the data directory writable", path, err)
	}
	defer os.RemoveAll(private)
	born := filepath.Join(private, "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: born, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("web: admin socket %s: %w: choose a data directory on a local disk with a short path", path, err)
	}
	l.SetUnlinkOnClose(false)
	s := &adminSocket{Listener: l, path: path}
	if err = os.Chmod(born, 0o600); err == nil {
		if s.made, err = os.Lstat(born); err == nil {
			err = os.Rename(born, path)
		}
	}
	if err != nil {
		l.Close()
		return nil, fmt.Errorf("web: admin socket %s: %w: make the data directory writable", path, err)
	}
	return s, nil
}

// clearStale removes a socket file that a dead box left behind. Anything else at path is left alone.
func clearStale(path string) error {
	found, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("web: admin socket %s: %w: make the data directory readable", path, err)
	}
	if found.Mode()&fs.ModeSocket == 0 {
		return fmt.Errorf("web: admin socket %s: a file that is not a socket is in its place: move it away", path)
	}
	if c, err := net.DialTimeout("unix", path, time.Second); err == nil {
		c.Close()
		return fmt.Errorf("web: admin socket %s: a running box answers on it: stop that box or use another data directory", path)
	} else if !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("web: admin socket %s: cannot tell whether a box answers on it: %w: stop that box or remove the file", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("web: admin socket %s: cannot remove the stale file: %w", path, err)
	}
	return nil
}

// Close ends the listener and removes the file unless another box has put its own in its place.
func (s *adminSocket) Close() error {
	err := s.Listener.Close()
	s.once.Do(func() {
		if now, statErr := os.Lstat(s.path); statErr == nil && os.SameFile(now, s.made) {
			os.Remove(s.path)
		}
	})
	return err
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
