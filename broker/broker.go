package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"millrace/auth"
	"millrace/uns"

	mqtt "github.com/mochi-mqtt/server/v2"
)

// Ingress is the way in for values, as the broker needs it. *uns.Ingress is one.
type Ingress interface {
	// Source returns the one source of a client id; all its sessions share it.
	Source(client string) *uns.Source
	// Accept gives every message of the batch a verdict and returns when all stored ones are durable. An error means
	// that nothing of the batch may be acknowledged. It may block while the store is stalled, until ctx ends.
	Accept(ctx context.Context, b *uns.Batch) error
	// Announce publishes the stored messages of an accepted batch live.
	Announce(b *uns.Batch)
}

// SignIn says who a device is. *auth.Book is one.
type SignIn interface {
	// AdmitFrom takes a client's secret, or an access token of its own; until is when the session has to end, zero: never.
	// address is the peer's.
	AdmitFrom(address, id string, password []byte) (p *auth.Principal, until time.Time, ok bool)
	// CertifiedFrom signs in the client that a verified certificate names.
	CertifiedFrom(address, id string) (*auth.Principal, bool)
	// Certified is the client of a session that goes on after a restart.
	Certified(id string) (*auth.Principal, bool)
}

// Rows keeps small records in the same durable log as the values. *historian.Store is one.
type Rows interface {
	// Append commits samples and rows together; they are durable when it returns. It may block while the store is
	// stalled, until ctx ends.
	Append(ctx context.Context, samples []uns.Sample, rows []uns.Row) error
	// Rows calls fn for every row whose key starts with prefix, in key order, until fn returns false. Key and value are
	// valid during fn only.
	Rows(prefix []byte, fn func(key, value []byte) bool) error
}

// Broker is the MQTT broker. It implements uns.Live. All methods are safe for concurrent use.
type Broker struct {
	o       Options
	in      Ingress
	users   SignIn
	rows    Rows
	log     *slog.Logger
	now     func() time.Time
	metrics *metrics
	atDoors *doorMetrics
	limits  limits
	drops   clientDrops
	ends    endLog
	swept   atomic.Int64 // ns, when the tables of limits were last swept
	library *mqtt.Server
	ctx     context.Context // parent of every Accept; set by Serve

	linger   time.Duration // lingerTimeout
	listener *listener
	index    index
	claims   claims
	retained *retained
	system   system

	mu       sync.Mutex
	sessions map[string]*session // by MQTT client identifier

	taking chan struct{} // closed when connections are taken

	persistent atomic.Int64  // sessions that outlive their connection
	lastNum    atomic.Uint32 // of session incarnations
	janitor    janitor

	state atomic.Int32
}

const (
	stateOpen = iota
	stateServing
	stateClosed
)

// Open binds the listeners, so that a port in use is told at once, but accepts nothing before Serve.
func Open(o Options, in Ingress, users SignIn, rows Rows) (*Broker, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.Namespace == nil || in == nil || users == nil || rows == nil {
		return nil, errors.New("broker: Open needs Options.Namespace, an Ingress, a SignIn and Rows")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	users = applyProfile(&o, users)
	b := &Broker{o: o, in: in, users: users, rows: rows, log: o.Log.With("part", "broker"), now: o.Now,
		ctx: context.Background(), linger: lingerTimeout, taking: make(chan struct{}), claims: claims{holders: map[string]*claim{}}, sessions: map[string]*session{}}
	b.limits.flapping.init(int(o.Limits.FlappingLimit))
	b.limits.signIn.init(int(o.Limits.SignInFailures))
	b.retained = newRetained()
	b.system.b = b
	b.system.since = o.Now()
	if err := b.retained.load(rows, b.log); err != nil {
		return nil, err
	}
	var err error
	if b.library, err = newLibrary(b); err != nil {
		return nil, fmt.Errorf("broker: set up the mqtt library: %w", err)
	}
	if b.listener, err = listen(b); err != nil {
		return nil, err
	}
	if b.metrics, err = newMetrics(o.Registry, b); err != nil {
		b.listener.shut()
		return nil, fmt.Errorf("broker: register metrics: %w", err)
	}
	if b.atDoors, err = newDoorMetrics(o.Registry, b); err != nil {
		b.listener.shut()
		return nil, fmt.Errorf("broker: register metrics: %w", err)
	}
	if err = b.registerKept(o.Registry); err != nil {
		b.listener.shut()
		return nil, fmt.Errorf("broker: register metrics: %w", err)
	}
	if err = b.restore(); err != nil {
		b.listener.shut()
		return nil, err
	}
	return b, nil
}

// Addr is the real address of the plain listener, "" when there is none.
func (b *Broker) Addr() string { return b.listener.address(doorTCP) }

// TLSAddr is the real address of the TLS listener, "" when there is none.
func (b *Broker) TLSAddr() string { return b.listener.address(doorTLS) }

// Serve accepts until ctx ends, then stops gracefully: batches that were read are settled and acknowledged, MQTT 5
// sessions get 0x8B. It returns when every goroutine of the broker has ended. Serve may be called once.
func (b *Broker) Serve(ctx context.Context) error {
	if !b.state.CompareAndSwap(stateOpen, stateServing) {
		return errors.New("broker: Serve called twice or after Close")
	}
	b.ctx = context.WithoutCancel(ctx) // the end of ctx must not cut off batches that are being stored
	if err := b.library.Serve(); err != nil {
		return fmt.Errorf("broker: start the mqtt library: %w", err)
	}
	for topic := range b.library.Topics.Retained.GetAll() {
		b.library.Topics.Retained.Delete(topic) // $SYS, made once by its Serve
	}
	stop := make(chan struct{})
	var loops sync.WaitGroup
	loops.Go(func() { b.watch(stop) })
	loops.Go(func() { b.sweepLoop(stop) })
	served := make(chan error, 1)
	go func() { served <- b.listener.serve() }()

	var err error
	select {
	case <-ctx.Done():
		b.listener.close()
		err = <-served
	case err = <-served:
		b.listener.close()
	}
	b.listener.wg.Wait()
	b.publishDueWills(b.now(), true) // a box that stops cannot promise to be back in time
	close(stop)
	loops.Wait()
	_ = b.library.Close()
	b.state.Store(stateClosed)
	if err != nil {
		return fmt.Errorf("broker: %w", err)
	}
	return nil
}

// Taking is closed when Serve takes connections, through every door.
func (b *Broker) Taking() <-chan struct{} { return b.taking }

// Close ends an Open that never served. Idempotent; a broker that serves is ended by its context.
func (b *Broker) Close() error {
	if b.state.CompareAndSwap(stateOpen, stateClosed) {
		b.listener.shut()
	}
	return nil
}

// enter makes a session known. Its connection holds the claim, so no other session has the identifier.
func (b *Broker) enter(s *session) {
	b.mu.Lock()
	b.sessions[s.id] = s
	b.mu.Unlock()
	b.log.Debug("session began", "client", s.owner, "mqtt_id", s.id, "version", s.version)
}

// leave is the one end of every connection, and of the sessions that do not outlive it. It runs when the library is
// done with the connection, or has panicked.
func (b *Broker) leave(c *conn) {
	c.live.Store(false)
	if c.claim == nil {
		return
	}
	if s := c.session; s != nil {
		b.library.Clients.Delete(s.id) // still there when the CONNACK failed
		lives := s.outlives()
		w := s.willAfter(c, b.now(), lives)
		if lives {
			s.detach(b.now())
		} else {
			b.endSession(s)
		}
		b.publishWill(w)
	}
	b.releaseClaim(c.claim)
}

func (b *Broker) everySession() []*session {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Values(b.sessions))
}

// Disconnect ends the session of a client identifier with 0x98; false: there is none.
func (b *Broker) Disconnect(mqttID string) bool {
	b.mu.Lock()
	s := b.sessions[mqttID]
	b.mu.Unlock()
	if s == nil {
		return false
	}
	s.mu.Lock()
	c := s.conn
	s.mu.Unlock()
	if c == nil {
		return false
	}
	c.eject(codeAdministrative)
	return true
}
