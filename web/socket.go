package web

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// maxSocketPath is the room a Unix socket address has for its path on Linux; other systems have a little less.
const maxSocketPath = 107

// nearby gives an address for the socket file at path, however long the path is: where it does not fit into a socket
// address, it leads through the open folder. The address is good until done is called.
func nearby(path string) (address string, done func(), err error) {
	if len(path) <= maxSocketPath {
		return path, func() {}, nil
	}
	if runtime.GOOS != "linux" {
		return "", nil, fmt.Errorf("web: admin socket %s: the path has %d bytes, the system allows %d: choose a shorter data directory", path, len(path), maxSocketPath)
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return "", nil, fmt.Errorf("web: admin socket %s: %w", path, err)
	}
	return "/proc/self/fd/" + strconv.Itoa(int(dir.Fd())) + "/" + filepath.Base(path), func() { dir.Close() }, nil
}

// DialSocket connects to the admin socket at path, which may be longer than a socket address has room for.
func DialSocket(ctx context.Context, path string) (net.Conn, error) {
	address, done, err := nearby(path)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: "unix", Err: err}
	}
	defer done()
	var d net.Dialer
	return d.DialContext(ctx, "unix", address)
}

// bare leaves out the address that a network error repeats, which may be one that only this process understands.
func bare(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
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
	if err := clearStale(path); err != nil {
		return nil, err
	}
	private, err := os.MkdirTemp(filepath.Dir(path), ".s")
	if err != nil {
		return nil, fmt.Errorf("web: admin socket %s: %w: make the data directory writable", path, err)
	}
	defer os.RemoveAll(private)
	born := filepath.Join(private, "s")
	near, done, err := nearby(born)
	if err != nil {
		return nil, err
	}
	defer done()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: near, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("web: admin socket %s: %w: choose a data directory on a local disk", path, bare(err))
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
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if c, err := DialSocket(ctx, path); err == nil {
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
