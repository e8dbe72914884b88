package certificate_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"millrace/certificate"
)

// made writes a self-signed certificate and its key.
func made(t *testing.T, files certificate.Files, name string, until time.Time) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: until, DNSNames: []string{name}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	text, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	put(t, files.Cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	put(t, files.Key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text}))
}

// put writes a file with a time of its own, so that no two writes look alike.
func put(t *testing.T, name string, text []byte) {
	t.Helper()
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
	stamp := time.Now().Add(time.Duration(len(text)) * time.Nanosecond)
	if err := os.Chtimes(name, stamp, stamp); err != nil {
		t.Fatal(err)
	}
}

// served is the name on the certificate that a handshake shows.
func served(t *testing.T, p *certificate.Pair, version uint16) (string, error) {
	t.Helper()
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	go func() {
		s := tls.Server(a, p.Config())
		_ = s.Handshake() // the client's side is looked at
		_, _ = io.Copy(io.Discard, s)
	}()
	c := tls.Client(b, &tls.Config{InsecureSkipVerify: true, MinVersion: version, MaxVersion: version})
	if err := c.Handshake(); err != nil {
		return "", err
	}
	return c.ConnectionState().PeerCertificates[0].Subject.CommonName, nil
}

func TestPairFollowsItsFiles(t *testing.T) {
	dir := t.TempDir()
	files := certificate.Files{Cert: filepath.Join(dir, "c.pem"), Key: filepath.Join(dir, "k.pem")}
	now := time.Now()
	var log bytes.Buffer
	made(t, files, "one", now.Add(90*24*time.Hour))
	p, err := certificate.Open("broker.tls", files, func() time.Time { return now }, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	want := func(name string) {
		t.Helper()
		if got, err := served(t, p, tls.VersionTLS13); got != name || err != nil {
			t.Fatalf("the handshake shows %q, %v; want %q", got, err, name)
		}
	}
	want("one")
	if log.Len() > 0 {
		t.Errorf("logged: %s", &log)
	}

	made(t, files, "two", now.Add(20*24*time.Hour))
	p.Check() // within the same second
	want("one")
	now = now.Add(2 * time.Second)
	p.Check()
	want("two")
	if got := p.Expires().Sub(now); got > 20*24*time.Hour || got < 19*24*time.Hour {
		t.Errorf("expires in %v", got)
	}
	if n := strings.Count(log.String(), "expires soon"); n != 1 {
		t.Errorf("%d warnings of the end: %s", n, &log)
	}
	for range 23 * 60 {
		now = now.Add(time.Minute)
		p.Check()
	}
	if n := strings.Count(log.String(), "expires soon"); n != 1 {
		t.Errorf("%d warnings on the first day", n)
	}
	now = now.Add(2 * time.Hour)
	p.Check()
	if n := strings.Count(log.String(), "expires soon"); n != 2 {
		t.Errorf("%d warnings after a day", n)
	}

	log.Reset()
	put(t, files.Cert, []byte("half a certif"))
	for range 10 {
		now = now.Add(2 * time.Second)
		p.Check()
	}
	want("two")
	if n := strings.Count(log.String(), "cannot be used"); n != 1 || strings.Count(log.String(), "\n") != 1 {
		t.Errorf("a broken file is complained of %d times: %s", n, &log)
	}
	_ = os.Remove(files.Key)
	now = now.Add(2 * time.Second)
	p.Check()
	want("two")
	made(t, files, "three", now.Add(90*24*time.Hour))
	now = now.Add(2 * time.Second)
	p.Check()
	want("three")
}

func TestVersionsSpoken(t *testing.T) {
	dir := t.TempDir()
	files := certificate.Files{Cert: filepath.Join(dir, "c.pem"), Key: filepath.Join(dir, "k.pem")}
	made(t, files, "one", time.Now().Add(90*24*time.Hour))
	p, err := certificate.Open("broker.tls", files, time.Now, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for version, good := range map[uint16]bool{tls.VersionTLS10: false, tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true} {
		if _, err := served(t, p, version); (err == nil) != good {
			t.Errorf("TLS %x: %v", version, err)
		}
	}
}

func TestFaultsNameTheFile(t *testing.T) {
	dir := t.TempDir()
	good := certificate.Files{Cert: filepath.Join(dir, "c.pem"), Key: filepath.Join(dir, "k.pem")}
	other := certificate.Files{Cert: filepath.Join(dir, "c2.pem"), Key: filepath.Join(dir, "k2.pem")}
	made(t, good, "one", time.Now().Add(90*24*time.Hour))
	made(t, other, "two", time.Now().Add(90*24*time.Hour))
	empty := filepath.Join(dir, "empty.pem")
	put(t, empty, nil)
	for name, tt := range map[string]struct {
		files certificate.Files
		want  string
	}{
		"no certificate":  {certificate.Files{Cert: filepath.Join(dir, "none"), Key: good.Key}, "broker.tls: certFile " + filepath.Join(dir, "none")},
		"another's key":   {certificate.Files{Cert: good.Cert, Key: other.Key}, "belong together"},
		"no authority":    {certificate.Files{Cert: good.Cert, Key: good.Key, ClientCA: filepath.Join(dir, "none")}, "broker.tls.clientCAFile"},
		"empty authority": {certificate.Files{Cert: good.Cert, Key: good.Key, ClientCA: empty}, "holds no certificate"},
	} {
		if _, err := certificate.Open("broker.tls", tt.files, time.Now, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
