package broker_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"millrace/broker"

	"github.com/gorilla/websocket"
)

// Every conformance test runs through each door the box has: plain TCP, TLS and WebSocket. What MQTT asks for does not
// depend on the way in.

// rig is a box, one way into it, and a protocol version.
type rig struct {
	*box
	t       *testing.T
	version byte
	knock   func() net.Conn
}

// conform runs fn on a box of its own through every door and in both versions.
func conform(t *testing.T, fn func(r *rig)) { conformWith(t, setting{}, versions, fn) }

// conform5 is conform for what only MQTT 5 has.
func conform5(t *testing.T, fn func(r *rig)) { conformWith(t, setting{}, []byte{5}, fn) }

func conformWith(t *testing.T, s setting, versions []byte, fn func(r *rig)) {
	for _, door := range []string{"tcp", "tls", "websocket"} {
		for _, v := range versions {
			t.Run(fmt.Sprintf("%s/v%d", door, v), func(t *testing.T) {
				r := &rig{t: t, version: v}
				switch door {
				case "tcp":
					r.box = open(t, s)
					r.knock = func() net.Conn { return must(t)(net.Dial("tcp", r.Addr())) }
				case "tls":
					a := newAuthority(t)
					r.box = a.box(s, false)
					r.knock = func() net.Conn { return must(t)(tls.Dial("tcp", r.TLSAddr(), a.trust())) }
				case "websocket":
					r.box = open(t, s)
					url := overWebSocket(t, r.Broker)
					r.knock = func() net.Conn {
						d := websocket.Dialer{Subprotocols: []string{"mqtt"}}
						ws, _, err := d.Dial(url, nil)
						if err != nil {
							t.Fatal(err)
						}
						return must(t)(&webStream{ws: ws}, nil)
					}
				}
				fn(r)
			})
		}
	}
}

func must(t testing.TB) func(net.Conn, error) net.Conn {
	return func(c net.Conn, err error) net.Conn {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
}

// raw is a connection that has sent nothing yet.
func (r *rig) raw() *client { return &client{t: r.t, conn: r.knock(), version: r.version} }

// connect sends a CONNECT and returns the CONNACK, whatever it says.
func (r *rig) connect(h hello) (*client, packet) {
	r.t.Helper()
	h = r.ready(h)
	c := r.raw()
	c.write(h.bytes())
	return c, c.want(0x20)
}

// dial wants to be let in. Without a user it is dev, who may do everything; without an identifier it is called c.
func (r *rig) dial(h hello) *client {
	r.t.Helper()
	if h.id == "" {
		h.id = "c"
	}
	c, p := r.connect(h)
	if p.body[1] != 0 {
		r.t.Fatalf("CONNACK %v", p)
	}
	return c
}

func (r *rig) ready(h hello) hello {
	if h.version == 0 {
		h.version = r.version
	}
	if h.user == "" && !h.bare {
		h.user = "dev"
	}
	return h
}

// named dials as an identifier.
func (r *rig) named(id string) *client { r.t.Helper(); return r.dial(hello{id: id}) }

// cut wants the connection to end at once: on MQTT 5 with DISCONNECT and the code, on 3.1.1 without a word.
func (c *client) cut(code byte) {
	c.t.Helper()
	if c.version == 5 {
		if p := c.want(0xE0); len(p.body) < 1 || p.body[0] != code {
			c.t.Fatalf("want DISCONNECT %02x, got %v", code, p)
		}
	}
	c.ended()
}

// shut wants the connection to end without a single packet.
func (c *client) shut() { c.t.Helper(); c.ended() }

// refused wants a CONNECT to be turned down: by a CONNACK with one of the codes, or by a close.
func (c *client) refused(codes ...byte) {
	c.t.Helper()
	p, err := c.read(patience)
	if isTimeout(err) {
		c.t.Fatal("left hanging")
	}
	if err != nil {
		return
	}
	if p.first != 0x20 || p.body[0] != 0 || !strings.Contains(string(codes), string(p.body[1:2])) {
		c.t.Fatalf("got %v, want CONNACK with one of %x", p, codes)
	}
	c.ended()
}

// pubackWith acknowledges with a reason code.
func (c *client) pubackWith(id uint16, code byte) {
	c.write([]byte{0x40, 3, byte(id >> 8), byte(id), code})
}

// send publishes with QoS 1 and wants it acknowledged as success.
func (c *client) send(p pub) {
	c.t.Helper()
	p.qos = 1
	if p.id == 0 {
		p.id = 1
	}
	c.pub(p)
	if code, reason := c.ackOf(p.id); code != 0 {
		c.t.Fatalf("%s: refused %02x %s", p.topic, code, reason)
	}
}

// only wants that the next message is this payload, so nothing else came before it; it is acknowledged.
func (c *client) only(payload string) msg {
	c.t.Helper()
	m := c.wantMsg()
	if m.payload != payload {
		c.t.Fatalf("got %+v, want %q", m, payload)
	}
	if m.qos == 1 {
		c.puback(m.id)
	}
	return m
}

// unsubscribe sends UNSUBSCRIBE and returns the UNSUBACK's codes, none on 3.1.1.
func (c *client) unsubscribe(id uint16, filters ...string) []byte {
	c.t.Helper()
	parts := [][]byte{{byte(id >> 8), byte(id)}, props(c.version, nil)}
	for _, f := range filters {
		parts = append(parts, str(f))
	}
	c.write(frame(0xA2, parts...))
	p := c.want(0xB0)
	if p.body[0] != byte(id>>8) || p.body[1] != byte(id) {
		c.t.Fatalf("UNSUBACK %v, want identifier %d", p, id)
	}
	if c.version < 5 {
		if len(p.body) != 2 {
			c.t.Fatalf("UNSUBACK %v", p)
		}
		return nil
	}
	return p.body[3:]
}

// overWebSocket serves the broker's streams at a web server of the test and returns the URL. The product's own is
// millrace/web, which has tests of the WebSocket side.
func overWebSocket(t testing.TB, b *broker.Broker) string {
	t.Helper()
	up := websocket.Upgrader{Subprotocols: broker.Subprotocols()}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ws, err := up.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		b.TakeStream(&webStream{ws: ws})
	}))
	t.Cleanup(s.Close)
	// Serve has to run before streams are taken.
	probe := dialRaw(t, b.Addr())
	probe.write([]byte{0xC0, 0})
	probe.ended()
	return "ws" + strings.TrimPrefix(s.URL, "http") + "/mqtt"
}

// webStream is a WebSocket connection as a stream of bytes. It cuts what it writes, so that packets and messages do not
// begin and end together [MQTT-6.0.0-2].
type webStream struct {
	ws *websocket.Conn
	in io.Reader
}

func (s *webStream) Read(p []byte) (int, error) {
	for {
		if s.in == nil {
			kind, in, err := s.ws.NextReader()
			if err != nil {
				var closed *websocket.CloseError
				if errors.As(err, &closed) {
					err = io.EOF
				}
				return 0, err
			}
			if kind != websocket.BinaryMessage {
				return 0, fmt.Errorf("message of kind %d", kind)
			}
			s.in = in
		}
		n, err := s.in.Read(p)
		if errors.Is(err, io.EOF) {
			s.in, err = nil, nil
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}

func (s *webStream) Write(p []byte) (int, error) {
	for _, part := range [][]byte{p[:len(p)/2], p[len(p)/2:]} {
		if err := s.ws.WriteMessage(websocket.BinaryMessage, part); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

func (s *webStream) CloseWrite() error {
	return s.ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""), time.Now().Add(time.Second))
}

func (s *webStream) Close() error                      { return s.ws.Close() }
func (s *webStream) LocalAddr() net.Addr               { return s.ws.LocalAddr() }
func (s *webStream) RemoteAddr() net.Addr              { return s.ws.RemoteAddr() }
func (s *webStream) SetReadDeadline(t time.Time) error { return s.ws.SetReadDeadline(t) }
func (s *webStream) SetDeadline(t time.Time) error     { return s.SetReadDeadline(t) }

// SetWriteDeadline does nothing: the library's may not be set while another goroutine writes.
func (s *webStream) SetWriteDeadline(time.Time) error { return nil }
