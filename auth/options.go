package auth

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"millrace/historian/kv"

	"github.com/prometheus/client_golang/prometheus"
)

// Bounds of settings.
const (
	minSession = time.Minute
	maxSession = 366 * 24 * time.Hour
	minAudit   = 64 << 10
	maxAudit   = 4 << 30
)

// Records is the store of small records. Get and Scan hand out what the last Apply made durable; Apply is atomic and returns
// after fsync; the slices of Scan are valid during fn only. *kv.Store is one.
type Records interface {
	Get(key []byte) (value []byte, ok bool, err error)
	Apply(ops ...kv.Op) error
	Scan(prefix []byte, fn func(key, value []byte) bool) error
}

// Options of a Book. Take DefaultOptions and change what differs.
type Options struct {
	Namespace  string   `koanf:"-"` // first level of every stored topic (uns.namespace)
	Workspaces []string `koanf:"-"` // known workspaces (uns.workspaces); the first is the default

	// Token is about access tokens.
	Token struct {
		// TTL is how long one lives, at most 24 h.
		TTL time.Duration `koanf:"ttl"`
	} `koanf:"token"`

	// Session is about people who sign in with a password.
	Session struct {
		// Idle ends a session that makes no call for that long.
		Idle time.Duration `koanf:"idle"`
		// MaxAge ends every session.
		MaxAge time.Duration `koanf:"maxAge"`
	} `koanf:"session"`

	// Audit is about the audit log.
	Audit struct {
		// MaxBytes bounds it; above, its oldest entries go.
		MaxBytes int64 `koanf:"maxBytes"`
	} `koanf:"audit"`

	// KeyFile is where the master key is; "": in the data folder. Read by cmd, which opens the Vault.
	KeyFile string `koanf:"keyFile"`
	// Vault seals keys at rest; nil: they are stored as they are.
	Vault *Vault `koanf:"-"`

	// Changed is called after a client's rules, secret or enabled flag changed or the client was deleted, when the change is
	// durable and visible, in the goroutine of the change and outside all locks. It must not block for long. May be nil.
	Changed func(id string) `koanf:"-"`

	Now      func() time.Time      `koanf:"-"`
	Random   func(p []byte)        `koanf:"-"` // fills p with unpredictable bytes; crypto/rand by default
	Log      *slog.Logger          `koanf:"-"`
	Registry prometheus.Registerer `koanf:"-"` // nil: a private registry
}

// DefaultOptions gives the namespace mHv1.0 with the workspace main, the real clock and crypto/rand, and discards the log.
func DefaultOptions() Options {
	o := Options{
		Namespace:  "mHv1.0",
		Workspaces: []string{"main"},
		Now:        time.Now,
		Random:     func(p []byte) { _, _ = rand.Read(p) }, // never fails: crypto/rand ends the program instead
		Log:        slog.New(slog.DiscardHandler),
	}
	o.Token.TTL = time.Hour
	o.Session.Idle, o.Session.MaxAge = 8*time.Hour, 7*24*time.Hour
	o.Audit.MaxBytes = 256 << 20
	return o
}

// Validate reports every fault of the options at once.
func (o *Options) Validate() error {
	var faults []error
	if !oneLevel(o.Namespace) {
		faults = append(faults, fmt.Errorf("uns.namespace: %q is not one topic level", o.Namespace))
	}
	if len(o.Workspaces) == 0 {
		faults = append(faults, errors.New("uns.workspaces: is empty, at least one is needed"))
	}
	for i, w := range o.Workspaces {
		if !oneLevel(w) {
			faults = append(faults, fmt.Errorf("uns.workspaces[%d]: %q is not one topic level", i, w))
		}
		if slices.Index(o.Workspaces, w) != i {
			faults = append(faults, fmt.Errorf("uns.workspaces[%d]: %q is named twice", i, w))
		}
	}
	if o.Token.TTL < minAccessTTL || o.Token.TTL > maxAccessTTL {
		faults = append(faults, fmt.Errorf("auth.token.ttl: %s is not between %s and %s", o.Token.TTL, minAccessTTL, maxAccessTTL))
	}
	if o.Session.Idle < minSession || o.Session.Idle > maxSession {
		faults = append(faults, fmt.Errorf("auth.session.idle: %s is not between %s and %s", o.Session.Idle, minSession, maxSession))
	}
	if o.Session.MaxAge < minSession || o.Session.MaxAge > maxSession {
		faults = append(faults, fmt.Errorf("auth.session.maxAge: %s is not between %s and %s", o.Session.MaxAge, minSession, maxSession))
	}
	if o.Audit.MaxBytes < minAudit || o.Audit.MaxBytes > maxAudit {
		faults = append(faults, fmt.Errorf("auth.audit.maxBytes: %d is not between %d and %d bytes", o.Audit.MaxBytes, minAudit, maxAudit))
	}
	if o.Now == nil {
		faults = append(faults, errors.New("auth: Options.Now is nil, use time.Now"))
	}
	if o.Random == nil {
		faults = append(faults, errors.New("auth: Options.Random is nil, use DefaultOptions"))
	}
	if o.Log == nil {
		faults = append(faults, errors.New("auth: Options.Log is nil, use slog.New(slog.DiscardHandler)"))
	}
	return errors.Join(faults...)
}

// oneLevel reports whether name can stand as one literal level of a topic.
func oneLevel(name string) bool { return name != "" && !strings.ContainsAny(name, "/+#\x00") }
