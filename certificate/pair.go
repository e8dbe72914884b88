package certificate

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// checkEvery is the least distance of two looks at the files.
	checkEvery = time.Second
	// warnBefore is how long before its end a certificate is warned of, and warnEvery how often then.
	warnBefore = 30 * 24 * time.Hour
	warnEvery  = 24 * time.Hour
)

// Files are the paths of PEM files. ClientCA "" = clients need no certificate.
type Files struct{ Cert, Key, ClientCA string }

// Pair is a certificate and its key in their present state. Safe for concurrent use.
type Pair struct {
	files Files
	part  string // config path, for error texts
	now   func() time.Time
	log   *slog.Logger

	current atomic.Pointer[state]

	mu      sync.Mutex
	looked  time.Time
	warned  time.Time
	refused [3]stamp // the files that could not be used, so that they are complained of once
}

// state is one reading of the files.
type state struct {
	config  *tls.Config
	stamps  [3]stamp
	expires time.Time
	name    string
}

// stamp says whether a file is still the one that was read.
type stamp struct {
	size int64
	at   time.Time
	gone bool
}

// Open reads the files. part is the configuration path that names them, such as broker.tls.
func Open(part string, files Files, now func() time.Time, log *slog.Logger) (*Pair, error) {
	p := &Pair{files: files, part: part, now: now, log: log}
	s, err := p.read(p.stamps())
	if err != nil {
		return nil, err
	}
	p.current.Store(s)
	p.looked = now()
	p.warn(s)
	return p, nil
}

// Config is for tls.NewListener: TLS 1.2 and 1.3, each handshake with the certificate of that moment. protocols are the
// ALPN names offered; none: whatever a client asks for is ignored.
func (p *Pair) Config(protocols ...string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: protocols,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			c := p.current.Load().config
			if len(protocols) > 0 {
				c = c.Clone()
				c.NextProtos = protocols
			}
			return c, nil
		},
	}
}

// Expires is the end of the present certificate.
func (p *Pair) Expires() time.Time { return p.current.Load().expires }

// Check looks whether the files have changed, at most once a second, and takes the new ones for the handshakes to come.
// Connections that exist are not touched. Files that cannot be used are logged once and change nothing.
func (p *Pair) Check() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	if since := now.Sub(p.looked); since >= 0 && since < checkEvery {
		return
	}
	p.looked = now
	old := p.current.Load()
	stamps := p.stamps()
	if stamps == old.stamps || stamps == p.refused {
		p.warn(old)
		return
	}
	s, err := p.read(stamps)
	if err != nil {
		p.refused = stamps
		p.log.Warn("the changed certificate cannot be used; the old one stays", "error", err)
		return
	}
	p.current.Store(s)
	p.refused, p.warned = [3]stamp{}, time.Time{}
	p.log.Info("certificate read anew", "key", p.part, "subject", s.name, "expires", s.expires)
	p.warn(s)
}

// warn tells, once a day, of a certificate that ends soon or has ended. The caller holds mu or is alone.
func (p *Pair) warn(s *state) {
	now := p.now()
	left := s.expires.Sub(now)
	if left > warnBefore || (!p.warned.IsZero() && now.Sub(p.warned) < warnEvery) {
		return
	}
	p.warned = now
	if left <= 0 {
		p.log.Warn("the certificate has expired: clients refuse it; replace the files, the box takes them at once", "key", p.part, "subject", s.name, "expired", s.expires)
		return
	}
	p.log.Warn("the certificate expires soon; replace the files, the box takes them at once", "key", p.part, "subject", s.name,
		"expires", s.expires, "days_left", int(left.Hours()/24))
}

func (p *Pair) stamps() (list [3]stamp) {
	for i, name := range []string{p.files.Cert, p.files.Key, p.files.ClientCA} {
		if name == "" {
			continue
		}
		info, err := os.Stat(name)
		if err != nil {
			list[i].gone = true
			continue
		}
		list[i] = stamp{size: info.Size(), at: info.ModTime()}
	}
	return list
}

func (p *Pair) read(stamps [3]stamp) (*state, error) {
	pair, err := tls.LoadX509KeyPair(p.files.Cert, p.files.Key)
	if err != nil {
		return nil, fmt.Errorf("%s: certFile %s with keyFile %s: %w; both must be PEM and belong together", p.part, p.files.Cert, p.files.Key, plain(err))
	}
	s := &state{stamps: stamps, expires: pair.Leaf.NotAfter, name: pair.Leaf.Subject.String()}
	s.config = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
	if p.files.ClientCA == "" {
		return s, nil
	}
	text, err := os.ReadFile(p.files.ClientCA)
	if err != nil {
		return nil, fmt.Errorf("%s.clientCAFile: %s: %w; name a PEM file of certificate authorities", p.part, p.files.ClientCA, plain(err))
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s.clientCAFile: %s holds no certificate; name a PEM file of certificate authorities", p.part, p.files.ClientCA)
	}
	s.config.ClientCAs, s.config.ClientAuth = pool, tls.RequireAndVerifyClientCert
	// A resumed session would bring a certificate that the authorities of today have not seen.
	s.config.SessionTicketsDisabled = true
	return s, nil
}

// plain leaves out the path an fs error repeats.
func plain(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}
