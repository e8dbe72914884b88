package web_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"millrace/web"

	"github.com/gorilla/websocket"
)

// echo answers every octet of a stream with itself.
type echo struct {
	closed  atomic.Bool
	running atomic.Int64
	ended   chan error // of each stream's reading
}

func (e *echo) Welcome() bool { return !e.closed.Load() }

func (e *echo) TakeStream(conn net.Conn) {
	e.running.Add(1)
	go func() {
		defer e.running.Add(-1)
		defer conn.Close()
		buf := make([]byte, 7) // small, so that messages are read in pieces
		for {
			n, err := conn.Read(buf)
			if err != nil {
				e.ended <- err
				return
			}
			if _, err := conn.Write(buf[:n]); err != nil {
				e.ended <- err
				return
			}
		}
	}()
}

func streaming(t *testing.T) (*box, *echo) {
	t.Helper()
	e := &echo{ended: make(chan error, 1000)}
	x := newBox(t, func(_ *web.Options, p *web.Parts) {
		p.Stream = &web.StreamRoute{Path: "/mqtt", Subprotocols: []string{"mqtt", "mqttv3.1"}, MaxMessage: 1000, To: e}
	})
	return x, e
}

func (x *box) ws(t *testing.T, header http.Header, protocols ...string) (*websocket.Conn, *http.Response, error) {
	t.Helper()
	d := websocket.Dialer{Subprotocols: protocols, HandshakeTimeout: 10 * time.Second}
	c, res, err := d.Dial("ws://"+x.web.Addr()+"/mqtt", header)
	if err == nil {
		t.Cleanup(func() { c.Close() })
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	}
	return c, res, err
}

// Who offers mqtt gets it [MQTT-6.0.0-4], who does not is refused [MQTT-6.0.0-3].
func TestStreamHandshake(t *testing.T) {
	x, e := streaming(t)
	host := x.web.Addr()
	for _, tt := range []struct {
		name      string
		origin    string
		protocols []string
		full      bool
		status    int
	}{
		{"mqtt", "", []string{"mqtt"}, false, 101},
		{"the name of MQTT 3.1", "", []string{"mqttv3.1"}, false, 101},
		{"one of several", "", []string{"chat", "mqtt"}, false, 101},
		{"none offered", "", nil, false, 400},
		{"none that is spoken", "", []string{"amqp"}, false, 400},
		{"own origin", "http://" + host, []string{"mqtt"}, false, 101},
		{"own host, another port", "http://127.0.0.1:3000", []string{"mqtt"}, false, 101},
		{"foreign origin", "http://plant.example", []string{"mqtt"}, false, 403},
		{"no host in the origin", "null", []string{"mqtt"}, false, 403},
		{"full", "", []string{"mqtt"}, true, 503},
	} {
		e.closed.Store(tt.full)
		header := http.Header{}
		if tt.origin != "" {
			header.Set("Origin", tt.origin)
		}
		_, res, err := x.ws(t, header, tt.protocols...)
		if res == nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		if res.StatusCode != tt.status {
			t.Errorf("%s: %d, want %d", tt.name, res.StatusCode, tt.status)
		}
		if got := res.Header.Get("Sec-WebSocket-Protocol"); tt.status == 101 && (got == "" || strings.HasPrefix(got, "chat")) {
			t.Errorf("%s: subprotocol %q", tt.name, got)
		}
		if got := res.Header.Get("Sec-WebSocket-Extensions"); got != "" {
			t.Errorf("%s: extensions %q", tt.name, got)
		}
	}
	res, err := http.Get("http://" + host + "/mqtt")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusUpgradeRequired || res.Header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("a plain GET: %d %s", res.StatusCode, res.Header.Get("Content-Type"))
	}
}

// What is sent comes back, whatever the messages and frames it was cut into [MQTT-6.0.0-2].
func TestStreamIgnoresMessageBoundaries(t *testing.T) {
	x, _ := streaming(t)
	c, _, err := x.ws(t, nil, "mqtt")
	if err != nil {
		t.Fatal(err)
	}
	pong := make(chan string, 1)
	c.SetPongHandler(func(text string) error { pong <- text; return nil })
	var sent, got bytes.Buffer
	for i := range 40 {
		w, err := c.NextWriter(websocket.BinaryMessage)
		if err != nil {
			t.Fatal(err)
		}
		for k := range i % 4 {
			part := bytes.Repeat([]byte{byte(i), byte(k)}, i)
			_, _ = w.Write(part)
			sent.Write(part)
		}
		if err := w.Close(); err != nil { // an empty message, too, when i%4 is 0
			t.Fatal(err)
		}
	}
	if err := c.WriteControl(websocket.PingMessage, []byte("are you there"), time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	for got.Len() < sent.Len() {
		kind, p, err := c.ReadMessage()
		if err != nil || kind != websocket.BinaryMessage {
			t.Fatal(kind, err)
		}
		got.Write(p)
	}
	if !bytes.Equal(got.Bytes(), sent.Bytes()) {
		t.Error("what came back is not what was sent")
	}
	_ = c.WriteMessage(websocket.BinaryMessage, []byte("x"))
	_, _, _ = c.ReadMessage()
	if text := <-pong; text != "are you there" {
		t.Errorf("pong %q", text)
	}
}

// Frames written octet by octet: fragments with a ping in between, and what must not come, text for one
// [MQTT-6.0.0-1].
func TestStreamFrames(t *testing.T) {
	const fin, masked = 0x80, 0x80
	raw := func(first byte, payload string) []byte { // masked with zeros
		return append([]byte{first, masked | byte(len(payload)), 0, 0, 0, 0}, payload...)
	}
	long := strings.Repeat("x", 100)
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	for _, tt := range []struct {
		name string
		send []byte
		echo string
		code int // of the closing frame
	}{
		{"fragments with a ping in between", join(raw(2, "ab"), raw(fin|9, "p"), raw(0, "cd"), raw(fin, "ef"), raw(fin|8, "\x03\xe8")), "abcdef", 1000},
		{"text", raw(fin|1, "hello"), "", 1003},
		{"not masked", append([]byte{fin | 2, 2}, "ab"...), "", 1002},
		{"reserved bit, as of compression", raw(fin|0x40|2, "ab"), "", 1002},
		{"a continuation of nothing", raw(fin, "ab"), "", 1002},
		{"a new message inside another", join(raw(2, "ab"), raw(fin|2, "cd")), "ab", 1002},
		{"reserved opcode", raw(fin|3, "ab"), "", 1002},
		{"a fragmented ping", raw(9, "p"), "", 1002},
		{"an oversize message claimed", []byte{fin | 2, masked | 127, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0}, "", 1009},
		{"an oversize message in frames", join(raw(2, long), bytes.Repeat(raw(0, long), 10)), strings.Repeat(long, 10), 1009},
	} {
		t.Run(tt.name, func(t *testing.T) {
			x, e := streaming(t)
			c, _, err := x.ws(t, nil, "mqtt")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.NetConn().Write(tt.send); err != nil {
				t.Fatal(err)
			}
			var got []byte
			for {
				_, p, err := c.ReadMessage()
				if err == nil {
					got = append(got, p...)
					continue
				}
				var closed *websocket.CloseError
				if !errors.As(err, &closed) || closed.Code != tt.code {
					t.Errorf("ended with %v, want code %d", err, tt.code)
				}
				break
			}
			if string(got) != tt.echo {
				t.Errorf("came back: %q, want %q", got, tt.echo)
			}
			if err := <-e.ended; (tt.code == 1000) != errors.Is(err, io.EOF) {
				t.Errorf("the stream's reader was told %v", err)
			}
		})
	}
}

// Streams do not use up the connections of the web server.
func TestStreamsHoldNoSlots(t *testing.T) {
	x, e := streaming(t)
	for range 600 {
		if _, _, err := x.ws(t, nil, "mqtt"); err != nil {
			t.Fatal(err)
		}
	}
	for deadline := time.Now().Add(10 * time.Second); e.running.Load() != 600; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d streams", e.running.Load())
		}
	}
	res, err := http.Get("http://" + x.web.Addr() + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
}
