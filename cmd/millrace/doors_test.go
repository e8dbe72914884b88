package main

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

// issued writes a self-signed certificate for 127.0.0.1 and gives its files and who trusts it.
func issued(t *testing.T) (cert, key string, trust *tls.Config) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "box"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(90 * 24 * time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	text, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "box.pem"), filepath.Join(dir, "box.key")
	certText := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	write(t, cert, string(certText))
	write(t, key, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text})))
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(certText)
	return cert, key, &tls.Config{RootCAs: pool}
}

// overWS is a client's side of MQTT over WebSocket as a net.Conn; each Write is cut into messages of cut octets, 0 = one.
type overWS struct {
	*websocket.Conn
	cut int
	in  io.Reader
}

func (w *overWS) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		k := len(p)
		if w.cut > 0 && k > w.cut {
			k = w.cut
		}
		if err := w.WriteMessage(websocket.BinaryMessage, p[:k]); err != nil {
			return 0, err
		}
		p = p[k:]
	}
	return n, nil
}

func (w *overWS) Read(p []byte) (int, error) {
	for {
		if w.in == nil {
			kind, in, err := w.NextReader()
			if err != nil {
				return 0, err
			}
			if kind != websocket.BinaryMessage {
				return 0, errors.New("a message that is not binary")
			}
			w.in = in
		}
		n, err := w.in.Read(p)
		if errors.Is(err, io.EOF) {
			w.in, err = nil, nil
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}

func (w *overWS) SetDeadline(t time.Time) error {
	return errors.Join(w.SetReadDeadline(t), w.SetWriteDeadline(t))
}

func dialWS(t testing.TB, url string, trust *tls.Config, cut int) net.Conn {
	t.Helper()
	d := websocket.Dialer{Subprotocols: []string{"mqtt"}, TLSClientConfig: trust, HandshakeTimeout: 10 * time.Second}
	c, _, err := d.Dial(url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &overWS{Conn: c, cut: cut}
}

// TestDoors takes the same walk through every door: sign in, subscribe, publish, be acknowledged, hear it live, be told
// why at the end.
func TestDoors(t *testing.T) {
	cert, key, trust := issued(t)
	plain := start(t, t.TempDir(), nil)
	secured := start(t, t.TempDir(), func(c *Config) {
		c.Broker.TLS.Address, c.Broker.TLS.CertFile, c.Broker.TLS.KeyFile = "127.0.0.1:0", cert, key
		c.Web.TLS.CertFile, c.Web.TLS.KeyFile = cert, key
	})
	for _, tt := range []struct {
		name string
		box  *running
		dial func(*testing.T) net.Conn
	}{
		{"tls", secured, func(t *testing.T) net.Conn {
			c, err := tls.Dial("tcp", secured.box.broker.TLSAddr(), trust)
			if err != nil {
				t.Fatal(err)
			}
			return c
		}},
		{"ws", plain, func(t *testing.T) net.Conn { return dialWS(t, "ws://"+plain.box.web.Addr()+"/mqtt", nil, 0) }},
		{"ws, an octet a message", plain, func(t *testing.T) net.Conn { return dialWS(t, "ws://"+plain.box.web.Addr()+"/mqtt", nil, 1) }},
		{"wss", secured, func(t *testing.T) net.Conn { return dialWS(t, "wss://"+secured.box.web.Addr()+"/mqtt", trust, 0) }},
	} {
		for _, version := range []byte{4, 5} {
			id := "dev" + string('0'+version) + strings.Map(func(r rune) rune {
				if r < 'a' || r > 'z' {
					return -1
				}
				return r
			}, tt.name)
			t.Run(tt.name, func(t *testing.T) {
				secret := tt.box.client(id)
				conn := tt.dial(t)
				t.Cleanup(func() { conn.Close() })
				d, code := greet(t, conn, version, id, id, secret)
				if code != 0 {
					t.Fatalf("CONNACK %#x", code)
				}
				if code := d.subscribe(root+id+"/#", 0); code != 0 {
					t.Fatalf("SUBACK %#x", code)
				}
				// Several packets in one write, one of them larger than any buffer on the way.
				large := `"` + strings.Repeat("x", 100_000) + `"`
				d.write(append(append(d.publishFrame(root+id+"/a", []byte("1"), 1, nil), d.publishFrame(root+id+"/a", []byte(large), 2, nil)...), 0xC0, 0))
				var acks, lives, pings int
				for acks < 2 || lives < 2 || pings < 1 {
					switch p := d.read(); p.kind {
					case pubackKind:
						acks++
					case publishKind:
						lives++
					case pingresp:
						pings++
					default:
						t.Fatalf("kind %d", p.kind)
					}
				}
				if !tt.box.box.broker.Disconnect(id) {
					t.Fatal("no such session")
				}
				if version == 5 {
					if p := d.read(); p.kind != disconnect || p.body[0] != 0x98 {
						t.Fatalf("the end: %+v", p)
					}
				}
				_, err := d.tryRead(10 * time.Second)
				var closed *websocket.CloseError
				if strings.HasPrefix(tt.name, "ws") && (!errors.As(err, &closed) || closed.Code != 1000) {
					t.Errorf("the closing frame: %v", err)
				}
				if err == nil {
					t.Error("open after its end")
				}
			})
		}
	}
	if v := secured.metricOver(trust, "millrace_web_certificate_expires_seconds"); !strings.HasPrefix(v, "1.") {
		t.Errorf("end of the web's certificate: %q", v)
	}
}

// TestStreamLimits: a stream has the limits a connection has, and its end is the broker's.
func TestStreamLimits(t *testing.T) {
	r := start(t, t.TempDir(), func(c *Config) { c.Broker.Limits.ConnectTimeout = 300 * time.Millisecond })
	secret := r.client("dev1")
	url := "ws://" + r.box.web.Addr() + "/mqtt"
	silent := dialWS(t, url, nil, 0)
	defer silent.Close()
	began := time.Now()
	_ = silent.SetReadDeadline(began.Add(10 * time.Second))
	if _, err := silent.Read(make([]byte, 1)); err == nil || time.Since(began) > 8*time.Second {
		t.Errorf("a silent stream: %v after %v", err, time.Since(began))
	}
	huge := dialWS(t, url, nil, 0)
	defer huge.Close()
	_, _ = huge.Write([]byte{0x10, 0xFF, 0xFF, 0xFF, 0x7F})
	_ = huge.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := huge.Read(make([]byte, 1)); err == nil {
		t.Error("a CONNECT of 268 MB is waited for")
	}
	conn := dialWS(t, url, nil, 0)
	defer conn.Close()
	d, code := greet(t, conn, 5, "c", "dev1", secret)
	if code != 0 {
		t.Fatalf("CONNACK %#x", code)
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		r.stop()
	}()
	defer func() { <-stopped }()
	if p := d.read(); p.kind != disconnect || p.body[0] != 0x8B {
		t.Errorf("the end of the box: %+v", p)
	}
}

// TestServeTellsEveryListener reads the lines of `serve`.
func TestServeTellsEveryListener(t *testing.T) {
	cert, key, _ := issued(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	out, in := io.Pipe()
	var stderr strings.Builder
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"serve", "--data", t.TempDir()}, console{in: strings.NewReader(""), out: in, err: &stderr, env: []string{
			"MILLRACE_BROKER_ADDRESS=", "MILLRACE_BROKER_TLS_ADDRESS=127.0.0.1:0", "MILLRACE_BROKER_TLS_CERTFILE=" + cert, "MILLRACE_BROKER_TLS_KEYFILE=" + key,
			"MILLRACE_WEB_ADDRESS=127.0.0.1:0", "MILLRACE_WEB_TLS_CERTFILE=" + cert, "MILLRACE_WEB_TLS_KEYFILE=" + key,
			"MILLRACE_HISTORIAN_MINFREESPACE=0"}})
		in.Close()
	}()
	var lines []string
	for s := bufio.NewScanner(out); s.Scan(); {
		lines = append(lines, s.Text())
		if s.Text() == "ready" {
			stop()
		}
	}
	if code := <-ended; code != 0 {
		t.Fatalf("exit %d: %s", code, stderr.String())
	}
	if len(lines) != 4 || !strings.HasPrefix(lines[3], "set-up: open https://127.0.0.1:") || !strings.HasPrefix(lines[0], "listening mqtt tls://127.0.0.1:") || !strings.HasPrefix(lines[1], "listening web https://127.0.0.1:") {
		t.Errorf("printed %q", lines)
	}
}

// metricOver is metric over HTTPS.
func (r *running) metricOver(trust *tls.Config, name string) string {
	r.t.Helper()
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: trust}}
	defer c.CloseIdleConnections()
	res, err := c.Get("https://" + r.box.web.Addr() + "/metrics")
	if err != nil {
		r.t.Fatal(err)
	}
	defer res.Body.Close()
	for s := bufio.NewScanner(res.Body); s.Scan(); {
		if v, ok := strings.CutPrefix(s.Text(), name+" "); ok {
			return v
		}
	}
	return ""
}
