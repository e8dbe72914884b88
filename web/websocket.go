package web

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"
)

// Streams takes connections as plain streams of bytes. *broker.Broker is one.
type Streams interface {
	// Welcome says whether one more stream is taken now. A no is cheap for both sides.
	Welcome() bool
	// TakeStream runs the stream in goroutines of its own and closes it at its end. It returns at once.
	TakeStream(conn net.Conn)
}

// StreamRoute is a path whose WebSocket connections are handed on as streams: what the binary messages hold, one after
// the other, wherever the messages begin and end. web does not know what is in them.
type StreamRoute struct {
	Path         string
	Subprotocols []string // a client has to offer one of them
	MaxMessage   int64    // bytes of one message, all its frames together; it is never held as a whole
	To           Streams
}

// addStreams serves Parts.Stream, if there is one.
func (w *Web) addStreams(mux *http.ServeMux) {
	route := w.parts.Stream
	if route == nil {
		return
	}
	up := websocket.Upgrader{
		Subprotocols: route.Subprotocols, CheckOrigin: sameHost,
		Error: func(rw http.ResponseWriter, _ *http.Request, status int, reason error) {
			writeProblem(rw, problem(status, "no_websocket", strings.TrimPrefix(reason.Error(), "websocket: "), "speak WebSocket, version 13"))
		},
	}
	mux.HandleFunc("GET "+route.Path, func(rw http.ResponseWriter, r *http.Request) {
		switch {
		case !websocket.IsWebSocketUpgrade(r):
			rw.Header().Set("Upgrade", "websocket")
			writeProblem(rw, problem(http.StatusUpgradeRequired, "no_websocket", "this path speaks WebSocket only", "connect with a WebSocket client"))
			return
		case !slices.ContainsFunc(websocket.Subprotocols(r), func(p string) bool { return slices.Contains(route.Subprotocols, p) }):
			writeProblem(rw, problem(http.StatusBadRequest, "no_subprotocol", "no subprotocol in Sec-WebSocket-Protocol that is spoken here",
				"offer one of "+strings.Join(route.Subprotocols, ", ")))
			return
		case !sameHost(r):
			writeProblem(rw, problem(http.StatusForbidden, "foreign_origin", "a page of another host may not connect from a browser",
				"serve the page from this host, any port will do"))
			return
		case !route.To.Welcome():
			p := problem(http.StatusServiceUnavailable, "busy", "no more connections are taken at present", "try again in a few seconds")
			p.retry = 5
			writeProblem(rw, p)
			return
		}
		ws, err := up.Upgrade(rw, r, nil)
		if err != nil {
			return // answered by Error, or the peer is gone
		}
		s := &stream{ws: ws, raw: ws.NetConn().(*hijacked).Conn}
		ws.SetReadLimit(route.MaxMessage)
		release(s.raw)
		route.To.TakeStream(s)
	})
}

// sameHost is the rule for browsers, which send Origin: the page comes from the host it connects to, whatever the port.
// A program sends none and is let through; both have to sign in.
func sameHost(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" {
		return true
	}
	u, err := url.Parse(origin)
	if err != nil || u.Hostname() == "" {
		return false
	}
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return strings.EqualFold(u.Hostname(), strings.Trim(host, "[]"))
}

// Hijack hands the connection over. The library sets write deadlines of its own, which would undo those of whoever takes
// the stream; so it gets a connection that ignores them.
func (a *answer) Hijack() (conn net.Conn, rest *bufio.ReadWriter, err error) {
	conn, rest, err = http.NewResponseController(a.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	a.status = http.StatusSwitchingProtocols
	return &hijacked{conn}, rest, nil
}

type hijacked struct{ net.Conn }

// SetWriteDeadline does nothing.
func (*hijacked) SetWriteDeadline(time.Time) error { return nil }

// stream is a WebSocket connection as a stream. Like any net.Conn it may be read by one goroutine, written by another,
// and have its deadlines set by a third, which acts on a Read or Write that waits.
type stream struct {
	ws    *websocket.Conn
	raw   net.Conn
	in    io.Reader // the message in hand
	said  atomic.Bool
	plain atomic.Bool // the closing frame is sent: what still comes is not looked at
}

var errNotBinary = errors.New("web: a WebSocket message that is not binary")

// Read reads on, over the ends of messages. Control frames are answered on the way.
func (s *stream) Read(p []byte) (int, error) {
	if s.plain.Load() {
		return s.raw.Read(p)
	}
	for {
		if s.in == nil {
			kind, in, err := s.ws.NextReader()
			if err != nil {
				return 0, endOf(err)
			}
			if kind != websocket.BinaryMessage { // [MQTT-6.0.0-1]
				s.sayClose(websocket.CloseUnsupportedData)
				return 0, errNotBinary
			}
			s.in = in
		}
		n, err := s.in.Read(p)
		if errors.Is(err, io.EOF) {
			s.in, err = nil, nil
		}
		if n > 0 || err != nil {
			return n, endOf(err)
		}
	}
}

// endOf makes an orderly end io.EOF.
func endOf(err error) error {
	var closed *websocket.CloseError
	if errors.As(err, &closed) && closed.Code != websocket.CloseAbnormalClosure {
		return io.EOF
	}
	return err
}

// Write sends p as one message.
func (s *stream) Write(p []byte) (int, error) {
	if err := s.ws.WriteMessage(websocket.BinaryMessage, p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// sayClose sends the closing frame, once.
func (s *stream) sayClose(code int) {
	if s.said.CompareAndSwap(false, true) {
		_ = s.ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, ""), time.Now().Add(closeTime)) // best effort
	}
}

// closeTime is how long a closing frame may wait for a write in hand.
const closeTime = time.Second

// CloseWrite says the end and shuts this side down. The reader must have left.
func (s *stream) CloseWrite() error {
	s.sayClose(websocket.CloseNormalClosure)
	s.plain.Store(true)
	if half, ok := s.raw.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// Close says the end, if that is still to be done, and closes the connection.
func (s *stream) Close() error {
	s.sayClose(websocket.CloseNormalClosure)
	return s.raw.Close()
}

func (s *stream) LocalAddr() net.Addr                { return s.raw.LocalAddr() }
func (s *stream) RemoteAddr() net.Addr               { return s.raw.RemoteAddr() }
func (s *stream) SetDeadline(t time.Time) error      { return s.raw.SetDeadline(t) }
func (s *stream) SetReadDeadline(t time.Time) error  { return s.raw.SetReadDeadline(t) }
func (s *stream) SetWriteDeadline(t time.Time) error { return s.raw.SetWriteDeadline(t) }

// release gives the slot of a connection back that is web's no more: who takes streams has a bound of its own.
func release(c net.Conn) {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	if counted, ok := c.(*countedConn); ok {
		counted.once.Do(counted.free)
	}
}
