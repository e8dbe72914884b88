package web

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"millrace/auth"
	"millrace/certificate"
	"millrace/historian"
	"millrace/uns"

	"github.com/danielgtaylor/huma/v2"
	"github.com/prometheus/client_golang/prometheus"
)

const (
	headerTimeout = 5 * time.Second
	readTimeout   = 30 * time.Second
	writeTimeout  = 2 * time.Minute
	idleTimeout   = 2 * time.Minute
	// drainTime is how long requests in hand may go on once Serve is told to end.
	drainTime = 5 * time.Second
	// maxConnections bounds the TCP listener; the admin socket has a bound of its own, so that a crowd on the
	// network cannot lock out the person at the box.
	maxConnections = 512
	// diskEvery is the distance of two readings behind status.disk.days_left.
	diskEvery = time.Minute
)

// Options is the config section `web`.
type Options struct {
	// Address is host:port of REST, metrics and pages; an empty host means every interface, port 0 any free one.
	Address string `koanf:"address"`
	// UI turns the page at / on.
	UI bool `koanf:"ui"`
	// Metrics turns /metrics on.
	Metrics bool `koanf:"metrics"`
	// TLS makes Address speak HTTPS; both files or none.
	TLS struct {
		CertFile string `koanf:"certFile"`
		KeyFile  string `koanf:"keyFile"`
	} `koanf:"tls"`
}

// DefaultOptions returns the defaults of the configuration contract.
func DefaultOptions() Options {
	return Options{Address: ":8080", UI: true, Metrics: true}
}

// Validate reports every fault; each names its key, the value and what is wanted.
func (o *Options) Validate() error {
	var faults []error
	_, port, err := net.SplitHostPort(o.Address)
	if err != nil {
		faults = append(faults, fmt.Errorf("web.address: %q is not host:port, as in :8080 or 127.0.0.1:8080", o.Address))
	} else if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		faults = append(faults, fmt.Errorf("web.address: port %q is not a number from 0 to 65535", port))
	}
	if (o.TLS.CertFile == "") != (o.TLS.KeyFile == "") {
		faults = append(faults, fmt.Errorf("web.tls: certFile %q and keyFile %q; name both for HTTPS, or neither", o.TLS.CertFile, o.TLS.KeyFile))
	}
	return errors.Join(faults...)
}

// History is the historian as web reads it.
type History interface {
	// Raw appends one page of q to dst; next is nil when the range is exhausted. The samples own their Raw.
	Raw(ctx context.Context, dst []historian.Sample, q historian.Query) ([]historian.Sample, *historian.Cursor, error)
	// Latest is the newest sample of the series by time, then arrival.
	Latest(id historian.Series) (historian.Sample, bool)
	// Aggregate hands out the buckets of many series; calls for different series may come at once.
	Aggregate(ctx context.Context, q historian.Aggregation, each func(i int, b *historian.Bucket) bool) error
	// FinestScale is the finest precision ever stored in the series.
	FinestScale(id historian.Series) uint8
}

// Parts is what cmd hands in. Book, Namespace, Catalog, Ingress, History, State and Backups are required; the rest may
// be left zero.
type Parts struct {
	Book      *auth.Book
	Namespace *uns.Namespace
	Catalog   *uns.Catalog
	Ingress   *uns.Ingress
	History   History
	State     func() historian.State
	Sessions  func() []Session         // broker sessions; nil = none
	Cut       func(mqttID string) bool // disconnects a session; false = no such session
	// Drops tells what subscribers did not get, by reason and by client; nil = nothing known.
	Drops   func() (by map[string]uint64, clients []ClientDrops)
	Ledger  Ledger // nil = nothing is kept
	Backups Backups
	// Pipelines keep and run pipelines.
	Pipelines Pipelines
	// SignIns are the limits on failed sign-ins; nil = none.
	SignIns  SignIns
	Stream   *StreamRoute // WebSocket connections handed on; nil = none
	Socket   string       // path of the admin socket; "" = none
	Version  string
	Warnings []string // what is out of the ordinary about this box for as long as it runs, for /readyz and the status
	Started  time.Time
	Gatherer prometheus.Gatherer   // what /metrics shows; nil = nothing
	Registry prometheus.Registerer // where web's own metrics go; nil = a private registry
	Log      *slog.Logger
	Now      func() time.Time
}

// Web serves REST, metrics, health and the pages on a TCP listener and on the admin socket.
type Web struct {
	parts   Parts
	options Options
	log     *slog.Logger
	now     func() time.Time
	metrics *metrics

	tcp    net.Listener
	pair   *certificate.Pair // nil: plain HTTP
	socket *adminSocket      // nil without one
	server *http.Server
	// work is the context of all requests: it outlives the end of Serve's by drainTime.
	work   context.Context
	cancel context.CancelFunc

	api     huma.API
	openapi page
	ready   atomic.Bool
	reads   gate
	exports chan struct{} // a slot for each export that runs
	status  statusBoard
	young   young
	closed  sync.Once
}

// Open binds web.address and the admin socket. A stale socket file is removed when nobody answers on it. A port
// in use, a socket in use or an address that cannot be bound gives a one-line error; nothing stays bound then.
// Requests are answered once Serve runs.
func Open(o Options, p Parts) (*Web, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if p.Log == nil {
		p.Log = slog.New(slog.DiscardHandler)
	}
	if p.Now == nil {
		p.Now = time.Now
	}
	if p.Started.IsZero() {
		p.Started = p.Now()
	}
	var pair *certificate.Pair
	if o.TLS.CertFile != "" {
		var err error
		files := certificate.Files{Cert: o.TLS.CertFile, Key: o.TLS.KeyFile}
		if pair, err = certificate.Open("web.tls", files, p.Now, p.Log.With("part", "web")); err != nil {
			return nil, fmt.Errorf("web: %w", err)
		}
	}
	tcp, err := listenTCP(o.Address)
	if err != nil {
		return nil, err
	}
	var socket *adminSocket
	if p.Socket != "" {
		if socket, err = listenSocket(p.Socket); err != nil {
			tcp.Close()
			return nil, err
		}
	}
	w := &Web{
		parts: p, options: o,
		log:     p.Log.With("part", "web"),
		now:     p.Now,
		metrics: newMetrics(p.Registry, pair),
		tcp:     limitListener(tcp, maxConnections),
		pair:    pair,
		socket:  socket,
		reads:   newGate(),
		exports: make(chan struct{}, exportSlots),
	}
	if pair != nil {
		// HTTP/1.1 only: WebSocket needs it, and nothing here gains by HTTP/2.
		w.tcp = tls.NewListener(w.tcp, pair.Config("http/1.1"))
	}
	w.work, w.cancel = context.WithCancel(context.Background())
	w.server = &http.Server{
		Handler:           w.handler(),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(w.log.Handler(), slog.LevelDebug),
		BaseContext:       func(net.Listener) context.Context { return w.work },
		ConnContext:       markLocal,
		ConnState:         w.young.note,
	}
	return w, nil
}

// Addr is the address bound, with the real port.
func (w *Web) Addr() string { return w.tcp.Addr().String() }

// Scheme is https when the listener speaks TLS, else http.
func (w *Web) Scheme() string {
	if w.pair != nil {
		return "https"
	}
	return "http"
}

// SetReady turns /readyz to 200 (true) or 503 (false). It starts as false.
func (w *Web) SetReady(ready bool) { w.ready.Store(ready) }

// Serve answers requests until ctx ends, then stops accepting and finishes the requests in hand for at most
// five seconds. It returns when every goroutine it started has ended; nil after an orderly end. Call it once.
func (w *Web) Serve(ctx context.Context) error {
	listeners := []net.Listener{w.tcp}
	if w.socket != nil {
		listeners = append(listeners, limitListener(w.socket, maxConnections))
	}
	ended := make(chan error, len(listeners))
	var running sync.WaitGroup
	for _, l := range listeners {
		running.Go(func() {
			err := w.server.Serve(l)
			if errors.Is(err, http.ErrServerClosed) {
				ended <- nil
				return
			}
			ended <- fmt.Errorf("web: listener %s: %w", l.Addr(), err)
		})
	}
	watch, stopWatch := context.WithCancel(ctx)
	running.Go(func() { w.watchDisk(watch) })
	if w.pair != nil {
		running.Go(func() { w.watchCertificate(watch) })
	}

	var err error
	select {
	case <-ctx.Done():
	case err = <-ended: // a listener broke, or Close came first
	}
	stopWatch()
	w.young.end()
	drain, done := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
	if w.server.Shutdown(drain) != nil {
		w.cancel()
		w.server.Close()
	}
	done()
	running.Wait()
	return errors.Join(err, w.Close())
}

// Close frees the listeners and removes the socket file; requests in hand are cut. Idempotent, legal before and
// after Serve.
func (w *Web) Close() error {
	w.closed.Do(func() {
		w.cancel()
		w.server.Close()
		w.tcp.Close()
		if w.socket != nil {
			w.socket.Close()
		}
	})
	return nil
}

// watchCertificate looks at the files of the certificate once a second until ctx ends.
func (w *Web) watchCertificate(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			w.pair.Check()
		}
	}
}

// watchDisk takes one reading of the disk a minute until ctx ends.
func (w *Web) watchDisk(ctx context.Context) {
	tick := time.NewTicker(diskEvery)
	defer tick.Stop()
	for {
		w.status.disk.add(w.now(), w.parts.State().DiskBytes)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
