package broker_test

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"millrace/auth"
	"millrace/broker"
)

// authority issues the certificates of these tests into a folder.
type authority struct {
	t    testing.TB
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	turn atomic.Int64
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	a.key = newKey(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "plant authority"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(365 * 24 * time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.write("ca.pem", "CERTIFICATE", der)
	return a
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (a *authority) path(name string) string { return filepath.Join(a.dir, name) }

func (a *authority) write(name, kind string, der []byte) {
	a.t.Helper()
	if err := os.WriteFile(a.path(name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
	stamp := time.Now().Add(time.Duration(a.turn.Add(1)) * time.Microsecond) // no two writes look alike
	if err := os.Chtimes(a.path(name), stamp, stamp); err != nil {
		a.t.Fatal(err)
	}
}

// issue writes file.pem and file.key for a common name and returns both as a pair.
func (a *authority) issue(file, name string, until time.Time) tls.Certificate {
	a.t.Helper()
	key := newKey(a.t)
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: until, DNSNames: []string{"box"}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	text, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	a.write(file+".pem", "CERTIFICATE", der)
	a.write(file+".key", "PRIVATE KEY", text)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// trust is a client's configuration.
func (a *authority) trust(own ...tls.Certificate) *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return &tls.Config{RootCAs: pool, ServerName: "box", Certificates: own}
}

// box is one with a TLS listener.
func (a *authority) box(s setting, clientCA bool) *box {
	a.t.Helper()
	a.issue("server", "box", time.Now().Add(90*24*time.Hour))
	change := s.broker
	s.broker = func(o *broker.Options) {
		o.TLS.Address, o.TLS.CertFile, o.TLS.KeyFile = "127.0.0.1:0", a.path("server.pem"), a.path("server.key")
		if clientCA {
			o.TLS.ClientCAFile = a.path("ca.pem")
		}
		if change != nil {
			change(o)
		}
	}
	return open(a.t, s)
}

// over makes an MQTT client of a connection.
func over(t testing.TB, conn net.Conn, h hello) (*client, packet) {
	t.Helper()
	t.Cleanup(func() { _ = conn.Close() })
	c := &client{t: t, conn: conn, version: 5}
	if h.version != 0 {
		c.version = h.version
	}
	c.write(h.bytes())
	return c, c.want(0x20)
}

func dialTLS(t testing.TB, x *box, config *tls.Config, h hello) (*client, packet) {
	t.Helper()
	conn, err := tls.Dial("tcp", x.TLSAddr(), config)
	if err != nil {
		t.Fatal(err)
	}
	return over(t, conn, h)
}

func TestTLSListener(t *testing.T) {
	leakCheck(t)
	a := newAuthority(t)
	x := a.box(setting{}, false)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		config := a.trust()
		config.MinVersion, config.MaxVersion = version, version
		c, p := dialTLS(t, x, config, hello{id: "c", user: "dev"})
		if p.body[1] != 0 {
			t.Fatalf("CONNACK %v", p)
		}
		c.publishes(full("a"), 50, values)
		// The reason of an end arrives over TLS too.
		x.Disconnect("c")
		c.disconnected(0x98)
	}
	config := a.trust()
	config.MaxVersion = tls.VersionTLS11
	config.MinVersion = tls.VersionTLS10
	if conn, err := tls.Dial("tcp", x.TLSAddr(), config); err == nil {
		_ = conn.Close()
		t.Error("TLS 1.1 is spoken")
	}
	eventually(t, "the handshake that failed is counted", func() bool { return x.metric("millrace_broker_tls_handshakes_failed_total", "") == 1 })
	if _, p := dialTLS(t, x, a.trust(), hello{id: "c", user: "dev", password: "wrong"}); p.body[1] != 0x86 {
		t.Errorf("a wrong password over TLS: %v", p)
	}
	end := time.Unix(int64(x.metric("millrace_broker_certificate_expires_seconds", "")), 0)
	if left := time.Until(end); left < 89*24*time.Hour || left > 91*24*time.Hour {
		t.Errorf("the certificate ends in %v", left)
	}
}

// Plain MQTT at the TLS door and TLS at the plain one end without harm.
func TestWrongDoor(t *testing.T) {
	leakCheck(t)
	a := newAuthority(t)
	x := a.box(setting{}, false)
	c := dialRaw(t, x.TLSAddr())
	c.write(hello{id: "c", user: "dev"}.bytes())
	c.ended()
	if conn, err := tls.Dial("tcp", x.Addr(), a.trust()); err == nil {
		_ = conn.Close()
		t.Error("TLS at the plain door")
	}
}

// Fault table 27: a new certificate is shown at once and no session is dropped; a broken one changes nothing.
func TestCertificateIsRenewedUnderLoad(t *testing.T) {
	leakCheck(t)
	a := newAuthority(t)
	x := a.box(setting{}, false)
	c, _ := dialTLS(t, x, a.trust(), hello{id: "c", user: "dev"})
	shown := func() string {
		conn, err := tls.Dial("tcp", x.TLSAddr(), a.trust())
		if err != nil {
			return err.Error()
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].Subject.CommonName
	}
	for i, name := range []string{"second", "third", "fourth"} {
		a.issue("server", name, time.Now().Add(90*24*time.Hour))
		x.clock.advance(2 * time.Second)
		eventually(t, name+" is shown", func() bool { return shown() == name })
		c.publishes(full("a"), 20*(i+1), values)
	}
	a.write("server.pem", "CERTIFICATE", []byte("nonsense"))
	x.clock.advance(2 * time.Second)
	x.Inspect(x.clock.now())
	if name := shown(); name != "fourth" {
		t.Errorf("after a broken file %s is shown", name)
	}
	c.alive()
}

func TestClientCertificates(t *testing.T) {
	leakCheck(t)
	a := newAuthority(t)
	stranger := newAuthority(t)
	x := a.box(setting{}, true)
	until := time.Now().Add(time.Hour)
	dev := a.issue("dev", "dev", until)
	for _, tt := range []struct {
		name string
		h    hello
		want byte
	}{
		{"no user name", hello{id: "m1", bare: true}, 0},
		{"user name equal", hello{id: "m2", user: "dev", password: "not looked at"}, 0},
		{"user name of another", hello{id: "m3", user: "line"}, 0x86},
	} {
		c, p := dialTLS(t, x, a.trust(dev), tt.h)
		if p.body[1] != tt.want {
			t.Errorf("%s: %v", tt.name, p)
		}
		if tt.want == 0 {
			c.publishes(full("a"), 3, values)
		}
	}
	if s := x.Sessions(); len(s) != 2 || s[0].Client != "dev" {
		t.Errorf("sessions %+v", s)
	}
	if _, p := dialTLS(t, x, a.trust(a.issue("x", "nobody", until)), hello{id: "m4", bare: true}); p.body[1] != 0x87 {
		t.Errorf("a certificate for nobody: %v", p)
	}

	// None, a stranger's, and one that has ended never get as far as a CONNECT.
	for name, own := range map[string][]tls.Certificate{"none": nil, "a stranger's": {stranger.issue("dev", "dev", until)},
		"one that has ended": {a.issue("old", "dev", time.Now().Add(-time.Minute))}} {
		conn, err := tls.Dial("tcp", x.TLSAddr(), a.trust(own...))
		if err != nil {
			continue
		}
		_ = conn.SetDeadline(time.Now().Add(patience))
		_, _ = conn.Write(hello{id: "m5", user: "dev"}.bytes())
		if b, err := bufio.NewReader(conn).ReadByte(); err == nil {
			t.Errorf("%s: answered with %02x", name, b)
		}
		_ = conn.Close()
	}

	// Disabled: the session ends, and the certificate opens nothing.
	c, _ := dialTLS(t, x, a.trust(dev), hello{id: "m6", bare: true})
	off := false
	if _, err := x.book.Patch("dev", auth.Patch{Enabled: &off}); err != nil {
		t.Fatal(err)
	}
	c.disconnected(0x87)
	if _, p := dialTLS(t, x, a.trust(dev), hello{id: "m6", bare: true}); p.body[1] != 0x87 {
		t.Errorf("a disabled client's certificate: %v", p)
	}
	if _, p := dialTLS(t, x, a.trust(dev), hello{id: "m6", bare: true, version: 4}); p.body[1] != 5 {
		t.Errorf("a disabled client's certificate, 3.1.1: %v", p)
	}
}

// A handshake that never ends is ended with the time of CONNECT, however it drips.
func TestSlowHandshakes(t *testing.T) {
	leakCheck(t)
	a := newAuthority(t)
	x := a.box(setting{broker: func(o *broker.Options) { o.Limits.ConnectTimeout = 300 * time.Millisecond }}, false)
	for _, drip := range []bool{false, true} {
		c := dialRaw(t, x.TLSAddr())
		began := time.Now()
		_ = c.conn.SetReadDeadline(began.Add(patience))
		stop := make(chan struct{})
		if drip {
			go func() {
				for _, b := range []byte{0x16, 3, 1, 2, 0, 1, 0, 1, 0xFC, 3, 3} {
					select {
					case <-stop:
						return
					case <-time.After(50 * time.Millisecond):
						_, _ = c.conn.Write([]byte{b})
					}
				}
				<-stop
			}()
		}
		if _, err := c.conn.Read(make([]byte, 1)); isTimeout(err) {
			t.Errorf("drip %v: still open after %v", drip, time.Since(began))
		}
		close(stop)
	}
	// After the handshake the same time goes on: a CONNECT that drips gets no more.
	conn, err := tls.Dial("tcp", x.TLSAddr(), a.trust())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = conn.Write([]byte{0x10})
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	if _, err := conn.Read(make([]byte, 1)); isTimeout(err) {
		t.Error("a dripping CONNECT is left open")
	}
	eventually(t, "all are gone", func() bool { return x.metric("millrace_broker_connections", "") == 0 })
}

func TestTLSOptions(t *testing.T) {
	o := broker.DefaultOptions()
	o.Address, o.TLS.Address = "", ":8883"
	if err := o.Validate(); err == nil || !strings.Contains(err.Error(), "broker.tls.certFile") || !strings.Contains(err.Error(), "broker.tls.keyFile") {
		t.Errorf("no files: %v", err)
	}
	o.TLS.CertFile, o.TLS.KeyFile = "c", "k"
	if err := o.Validate(); err != nil {
		t.Errorf("TLS alone: %v", err)
	}
	o.TLS.Address, o.TLS.ClientCAFile = "", "ca"
	if err := o.Validate(); err == nil || !strings.Contains(err.Error(), "broker.address") || !strings.Contains(err.Error(), "broker.tls.clientCAFile") {
		t.Errorf("files without a listener: %v", err)
	}
}
