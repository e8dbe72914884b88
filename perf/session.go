package perf

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"golang.org/x/sys/unix"
)

// step is how far a session's connection has come.
type step uint8

const (
	stepOffline step = iota // waits for its turn to connect
	stepDialing
	stepSigningIn
	stepSubscribing
	stepReady
	stepGone // ended on purpose
)

// session is one MQTT connection of the generator, a device's or a subscriber's.
type session struct {
	index   int32
	epoch   int32 // counts connections, so that events of a closed socket are recognised
	fd      int
	step    step
	client  string
	secret  string
	filters []string // subscribed after sign-in
	qos     byte     // of them
	device  *device
	rest    []byte // start of a packet not yet whole
	out     []byte // not yet taken by the socket
	blocked bool
	tries   int
	retryAt int64 // ns; when offline
	until   int64 // ns; when the handshake is given up
	lastTx  int64
}

// device is the publishing half of a session.
type device struct {
	tracks  []track
	signals []signal
	topics  [][]byte
	next    int      // tag whose turn it is
	slots   []slot   // by packet id − 1
	free    []uint16 // packet ids
	again   []slot   // unacknowledged when the connection was lost, oldest first
	owed    int      // values due and not yet sent
	first   int      // first contacts still to send
	asked   map[uint64]int64
}

// slot is one publish in flight.
type slot struct {
	at    int64 // ns of sending; 0 = free
	order uint64
	x     int64  // scaled value
	value uint32 // its number
	sent  uint32 // its transmission's number
	tag   uint16
}

// dial opens a non-blocking socket towards address.
func dial(address *net.TCPAddr) (int, error) {
	family := unix.AF_INET
	var to unix.Sockaddr
	if ip := address.IP.To4(); ip != nil {
		to = &unix.SockaddrInet4{Port: address.Port, Addr: [4]byte(ip)}
	} else {
		family = unix.AF_INET6
		to = &unix.SockaddrInet6{Port: address.Port, Addr: [16]byte(address.IP.To16())}
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err == nil {
		err = unix.Connect(fd, to)
	}
	if err != nil && !errors.Is(err, unix.EINPROGRESS) {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// dialled reports how a non-blocking connect ended.
func dialled(fd int) error {
	code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && code != 0 {
		err = unix.Errno(code)
	}
	return err
}

// resolve turns a listener address (`tcp://host:port`, `mqtt://…` or host:port) into a TCP address.
func resolve(address string) (*net.TCPAddr, error) {
	_, rest, found := strings.Cut(address, "://")
	if !found {
		rest = address
	}
	to, err := net.ResolveTCPAddr("tcp", rest)
	if err != nil {
		return nil, fmt.Errorf("perf: mqtt address %q: %w", address, err)
	}
	if len(to.IP) == 0 || to.IP.IsUnspecified() {
		to.IP = net.IPv4(127, 0, 0, 1)
	}
	return to, nil
}
