package perf

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// FleetOptions describes the simulated devices.
type FleetOptions struct {
	Address      string // host:port or tcp://host:port
	Namespace    string // first topic level
	Workspace    string
	Devices      int
	Tags         int    // topics per device
	Inflight     int    // unacknowledged publishes per device
	Burst        int    // paced values a device sends together when its turn comes
	Version      byte   // 4 or 5
	VerdictEvery int    // 1 in so many asks for a verdict on a response topic; 0 = none
	Seed         uint64 // of the values
	Serial       bool   // every value of a topic unlike every other
	ConnectRate  int    // connections begun per second
	KeepAlive    time.Duration
	Secret       func(client string) string // password per client; nil = no sign-in
	Recall       bool                       // remember the acknowledgements of the last second, for the crash run
	Retry        bool                       // reconnect after a lost connection and go on from the first unacknowledged value
}

// DefaultFleetOptions is the fleet of the reference workload: 1,000 devices × 10 tags, 16 in flight.
func DefaultFleetOptions() FleetOptions {
	return FleetOptions{Namespace: "mHv1.0", Workspace: "main", Devices: 1000, Tags: 10, Inflight: 16, Burst: 1, Version: version5,
		VerdictEvery: 100, Seed: 1, ConnectRate: 800, KeepAlive: time.Minute, Retry: true}
}

// Validate reports every fault.
func (o *FleetOptions) Validate() error {
	var faults []error
	within := func(key string, value, low, high int) {
		if value < low || value > high {
			faults = append(faults, fmt.Errorf("perf.%s: %d is outside %d to %d", key, value, low, high))
		}
	}
	within("devices", o.Devices, 1, 50000)
	within("tags", o.Tags, 1, 10000)
	within("inflight", o.Inflight, 1, 65535)
	within("burst", o.Burst, 1, owedLimit)
	within("connectRate", o.ConnectRate, 1, 1000000)
	within("verdictEvery", o.VerdictEvery, 0, 1<<30)
	if o.Version != version311 && o.Version != version5 {
		faults = append(faults, fmt.Errorf("perf.version: %d is neither 4 nor 5", o.Version))
	}
	if o.KeepAlive < time.Second || o.KeepAlive > 65535*time.Second {
		faults = append(faults, fmt.Errorf("perf.keepAlive: %s is outside 1s to 65535s", o.KeepAlive))
	}
	return errors.Join(faults...)
}

// mode is what the devices do.
type mode uint8

const (
	modeIdle   mode = iota // acknowledgements are taken, nothing new is sent
	modeFirst              // every topic once, as fast as the windows allow
	modePaced              // values evenly spread at a rate
	modeClosed             // every window kept full
)

const (
	owedLimit     = 256 // values a device buffers while its window is full or its line is down
	handshakes    = 128 // connections being made at once
	handshakeTime = int64(15 * time.Second)
)

// Fleet drives every device and subscriber from one thread with epoll, so that it costs little beside the
// server on the same machine. All state belongs to the thread inside Run; others reach it by call.
type Fleet struct {
	o        FleetOptions
	address  *net.TCPAddr
	sessions []*session // devices first, then subscribers
	calls    chan func()
	ended    chan struct{}

	ready    atomic.Int64 // sessions signed in
	pending  atomic.Int64 // values sent or to be sent again, not acknowledged
	contacts atomic.Int64 // first contacts acknowledged
	backlog  atomic.Int64 // values due and not sent
	fault    atomic.Pointer[error]

	poll       int
	mode       mode
	rate       float64
	burst      int
	due        float64
	turn       int
	paceAt     int64
	dials      float64
	dialing    int
	order      uint64
	verdicts   int
	stats      *stats
	delivered0 uint64 // of earlier stats
	recent     []acknowledgement
	buffer     []byte
	payload    []byte
}

// acknowledgement is one value whose storing was confirmed at a moment.
type acknowledgement struct {
	at    int64
	track *track
	value uint32
}

// NewFleet prepares the sessions; Run connects them.
func NewFleet(o FleetOptions) (*Fleet, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	address, err := resolve(o.Address)
	if err != nil {
		return nil, err
	}
	f := &Fleet{o: o, burst: o.Burst, address: address, calls: make(chan func()), ended: make(chan struct{}), stats: newStats(), buffer: make([]byte, 256<<10)}
	for i := range o.Devices {
		f.sessions = append(f.sessions, f.newDevice(i))
	}
	return f, nil
}

// ClientOf names the API client of device i.
func ClientOf(i int) string { return fmt.Sprintf("dev%05d", i) }

// lineOf is the branch of the plant a device stands in; its grants name it.
func lineOf(i int) string { return fmt.Sprintf("line%02d", i/100+1) }

func (f *Fleet) newDevice(i int) *session {
	d := &device{asked: map[uint64]int64{}, slots: make([]slot, f.o.Inflight)}
	s := &session{index: int32(i), fd: -1, client: ClientOf(i), device: d}
	if f.o.Secret != nil {
		s.secret = f.o.Secret(s.client)
	}
	if f.o.VerdictEvery > 0 && f.o.Version == version5 {
		s.filters, s.qos = []string{f.verdictTopic(s.client)}, 1
	}
	for tag := range f.o.Tags {
		path := lineOf(i) + "/" + s.client + "/" + nameOfTag(tag)
		d.tracks = append(d.tracks, track{device: i, tag: tag, path: path})
		d.signals = append(d.signals, newSignal(f.o.Seed, i, tag, f.o.Serial))
		d.topics = append(d.topics, []byte(f.o.Namespace+"/"+f.o.Workspace+"/_ingress/"+s.client+"/"+path))
	}
	d.refill(f.o.Inflight)
	return s
}

func (f *Fleet) verdictTopic(client string) string {
	return f.o.Namespace + "/" + f.o.Workspace + "/_verdict/" + client + "/r"
}

// refill makes the ids 1 to n free, the lowest next.
func (d *device) refill(n int) {
	d.free = d.free[:0]
	for id := n; id >= 1; id-- {
		d.free = append(d.free, uint16(id))
	}
}

// Run connects the sessions and drives them until ctx ends; every socket is closed when it returns.
func (f *Fleet) Run(ctx context.Context) error {
	defer close(f.ended)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	poll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return fmt.Errorf("perf: epoll: %w", err)
	}
	f.poll = poll
	defer func() {
		for _, s := range f.sessions {
			if s.step == stepReady {
				s.out = appendDisconnect(s.out)
				f.flush(s, now())
			}
			f.hangUp(s)
		}
		_ = unix.Close(poll)
	}()
	events := make([]unix.EpollEvent, 512)
	tick, last := int64(0), now()
	for ctx.Err() == nil {
		select {
		case call := <-f.calls:
			call()
		default:
		}
		t := now()
		f.pace(t)
		if t-tick > int64(5*time.Millisecond) {
			f.attend(t, t-last)
			tick, last = t, t
		}
		n, err := unix.EpollWait(poll, events, 1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("perf: epoll: %w", err)
		}
		for _, e := range events[:max(n, 0)] {
			s := f.sessions[e.Fd]
			if s.epoch != e.Pad || s.fd < 0 {
				continue
			}
			f.serve(s, e.Events)
		}
	}
	return nil
}

func now() int64 { return time.Now().UnixNano() }

// call runs fn on the fleet's thread between two rounds and waits for it.
func (f *Fleet) call(fn func()) error {
	done := make(chan struct{})
	select {
	case f.calls <- func() { fn(); close(done) }:
		<-done
		return nil
	case <-f.ended:
		return errors.New("perf: the fleet has stopped")
	}
}

// set changes what the devices do. rate counts for modePaced, values per second over all devices.
func (f *Fleet) set(m mode, rate float64) error {
	return f.call(func() {
		t := now()
		f.mode, f.rate, f.due, f.paceAt = m, rate, 0, t
		for _, s := range f.sessions {
			if s.device == nil {
				continue
			}
			s.device.owed = 0
			if m == modeFirst {
				s.device.first = f.o.Tags
			}
			if s.step == stepReady {
				f.pump(s, t)
			}
		}
	})
}

// together changes how many paced values a device sends when its turn comes.
func (f *Fleet) together(values int) error { return f.call(func() { f.burst = values }) }

// take returns the counts since the last take.
func (f *Fleet) take() (*stats, error) {
	var s *stats
	err := f.call(func() {
		s = f.stats
		s.end = time.Now()
		f.delivered0 += s.Delivered
		f.stats = newStats()
	})
	return s, err
}

// subscribe adds a connection that takes every delivery of filter at QoS 1.
func (f *Fleet) subscribe(client, secret, filter string) error {
	return f.call(func() { f.listen(client, secret, 1, filter) })
}

// listen adds a subscriber. Only the fleet's thread may call it.
func (f *Fleet) listen(client, secret string, qos byte, filters ...string) {
	f.sessions = append(f.sessions, &session{index: int32(len(f.sessions)), fd: -1, client: client, secret: secret, filters: filters, qos: qos})
}

// unsubscribe ends the subscribers' connections.
func (f *Fleet) unsubscribe() error {
	return f.call(func() {
		for _, s := range f.sessions {
			if s.device == nil && s.step != stepGone {
				if s.step == stepReady {
					s.out = appendDisconnect(s.out)
					f.flush(s, now())
				}
				f.hangUp(s)
				s.step = stepGone
			}
		}
	})
}

// pace hands the values that have come due to the devices in turn, a burst each.
func (f *Fleet) pace(t int64) {
	if f.mode != modePaced {
		return
	}
	f.due += f.rate * float64(t-f.paceAt) / 1e9
	f.paceAt = t
	for burst := float64(f.burst); f.due >= burst; f.due -= burst {
		s := f.sessions[f.turn]
		if f.turn++; f.turn == f.o.Devices {
			f.turn = 0
		}
		take := min(f.burst, owedLimit-s.device.owed)
		f.stats.Skipped += uint64(f.burst - take)
		s.device.owed += take
		if s.step == stepReady {
			f.pump(s, t)
		}
	}
}

// attend does what is due by the clock: connections to begin or give up, keep-alives.
func (f *Fleet) attend(t, elapsed int64) {
	f.dials = min(f.dials+float64(f.o.ConnectRate)*float64(elapsed)/1e9, float64(f.o.ConnectRate)/10+1)
	owed := 0
	for _, s := range f.sessions {
		switch s.step {
		case stepOffline:
			if s.retryAt <= t && f.dials >= 1 && f.dialing < handshakes {
				f.dials--
				f.begin(s, t)
			}
		case stepDialing, stepSigningIn, stepSubscribing:
			if t > s.until {
				f.drop(s, t, errors.New("no answer within 15s"))
			}
		case stepReady:
			if t-s.lastTx > int64(f.o.KeepAlive)/2 {
				s.out = appendPingreq(s.out)
				f.flush(s, t)
			}
		}
		if s.device != nil {
			owed += s.device.owed
		}
	}
	f.backlog.Store(int64(owed))
	if len(f.recent) > 1<<17 {
		f.recent = slices.Clone(lastSecond(f.recent, t))
	}
}

// lastSecond cuts off what is older than a second at t.
func lastSecond(list []acknowledgement, t int64) []acknowledgement {
	i, _ := slices.BinarySearchFunc(list, t-int64(time.Second), func(a acknowledgement, at int64) int { return cmp.Compare(a.at, at) })
	return list[i:]
}

// recall hands over the acknowledgements of the last second.
func (f *Fleet) recall() (list []acknowledgement, err error) {
	err = f.call(func() {
		list, f.recent = lastSecond(f.recent, now()), nil
	})
	return list, err
}

// lastFault is the latest reason a connection failed or ended.
func (f *Fleet) lastFault() error {
	if p := f.fault.Load(); p != nil {
		return *p
	}
	return nil
}

// await polls until cond holds.
func await(ctx context.Context, limit time.Duration, cond func() bool) bool {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	end := time.NewTimer(limit)
	defer end.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-end.C:
			return cond()
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// connected waits until n sessions are signed in.
func (f *Fleet) connected(ctx context.Context, n int, limit time.Duration) error {
	if await(ctx, limit, func() bool { return f.ready.Load() >= int64(n) }) {
		return nil
	}
	return fmt.Errorf("perf: %d of %d sessions signed in within %s; last fault: %w", f.ready.Load(), n, limit, f.lastFault())
}

// drain stops sending and waits until everything sent is acknowledged; it returns what is not.
func (f *Fleet) drain(ctx context.Context, limit time.Duration) (left int64, err error) {
	if err := f.set(modeIdle, 0); err != nil {
		return 0, err
	}
	await(ctx, limit, func() bool { return f.pending.Load() == 0 })
	return f.pending.Load(), nil
}
