package broker_test

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"millrace/auth"
	"millrace/broker"
	"millrace/historian"
	"millrace/historian/kv"
	"millrace/uns"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
)

// secret of every client in these tests.
const secret = "0123456789abcdef01234567"

// memory is a store that forgets nothing and may be made to wait or fail.
type memory struct {
	mu      sync.Mutex
	series  historian.Series
	seq     uint64
	samples []historian.Sample
	rows    map[string][]byte
	latest  map[historian.Series]historian.Sample
	failed  atomic.Int64
	clock   atomic.Pointer[clock]                  // of the box; nil: the real one
	append  func(ctx context.Context, n int) error // nil: at once
}

func (m *memory) HasRow([]byte) (bool, error) { return false, nil }

func (m *memory) CreateSeries(string, historian.Class, []byte) (historian.Series, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.series++
	return m.series, nil
}

func (m *memory) SetSeries(context.Context, historian.Series, historian.Class, []byte) error {
	return nil
}

func (m *memory) DeleteSeries(context.Context, historian.Series, bool) error { return nil }

func (m *memory) Append(ctx context.Context, s []historian.Sample, rows []historian.Row) error {
	m.mu.Lock()
	wait := m.append
	m.mu.Unlock()
	if wait != nil {
		if err := wait(ctx, len(s)); err != nil {
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range s {
		m.seq++
		s[i].Seq, s[i].Received = m.seq, m.now().UnixNano()
		if !s[i].Stamped {
			s[i].Time, s[i].Scale = time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC).UnixNano(), 6
		}
		kept := s[i]
		kept.Value.Raw = append([]byte(nil), kept.Value.Raw...)
		m.samples = append(m.samples, kept)
		if m.latest == nil {
			m.latest = map[historian.Series]historian.Sample{}
		}
		m.latest[kept.Series] = kept
	}
	for _, r := range rows {
		switch value := append([]byte{}, r.Value...); {
		case r.Late != nil:
			m.put(r.Key, r.Late(value))
		case r.Value == nil:
			delete(m.rows, string(r.Key))
		default:
			m.put(r.Key, value)
		}
	}
	return nil
}

// now is the time of the box, which a replay of retained values holds the receipt of each against.
func (m *memory) now() time.Time {
	if c := m.clock.Load(); c != nil {
		return c.now()
	}
	return time.Now()
}

func (m *memory) put(key, value []byte) {
	if m.rows == nil {
		m.rows = map[string][]byte{}
	}
	m.rows[string(key)] = value
}

// killed is what a kill -9 at this moment leaves.
func (m *memory) killed() *memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &memory{series: m.series, seq: m.seq, samples: slices.Clone(m.samples), rows: maps.Clone(m.rows)}
}

// count is how many rows of a kind there are.
func (m *memory) count(prefix string) (n int) {
	_ = m.Rows([]byte(prefix), func(_, _ []byte) bool { n++; return true })
	return n
}

func (m *memory) Rows(prefix []byte, fn func(key, value []byte) bool) error {
	rows := map[string][]byte{}
	m.mu.Lock()
	for k, v := range m.rows {
		if strings.HasPrefix(k, string(prefix)) {
			rows[k] = v
		}
	}
	m.mu.Unlock()
	for _, k := range slices.Sorted(maps.Keys(rows)) {
		if !fn([]byte(k), rows[k]) {
			break
		}
	}
	return nil
}

func (m *memory) onAppend(fn func(ctx context.Context, n int) error) {
	m.mu.Lock()
	m.append = fn
	m.mu.Unlock()
}

func (m *memory) stored() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.samples)
}

func (m *memory) EachSeries(func(historian.SeriesRow) bool) error { return nil }

// Latest is the sample that arrived last, which is what the tests send as the newest.
func (m *memory) Latest(id historian.Series) (s historian.Sample, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, ok = m.latest[id]
	return s, ok
}

// ingress is the real one with a door in front.
type ingress struct {
	*uns.Ingress
	accept func(ctx context.Context, b *uns.Batch, real func() error) error
}

func (in *ingress) Accept(ctx context.Context, b *uns.Batch) error {
	if in.accept == nil {
		return in.Ingress.Accept(ctx, b)
	}
	return in.accept(ctx, b, func() error { return in.Ingress.Accept(ctx, b) })
}

// clock is the real time and what a test adds to it, or stands still but for that.
type clock struct{ ahead, stands atomic.Int64 }

func (c *clock) now() time.Time {
	if at := c.stands.Load(); at != 0 {
		return time.Unix(0, at+c.ahead.Load())
	}
	return time.Now().Add(time.Duration(c.ahead.Load()))
}

func (c *clock) advance(d time.Duration) { c.ahead.Add(int64(d)) }

// stand stops the clock.
func (c *clock) stand(at time.Time) { c.ahead.Store(0); c.stands.Store(at.UnixNano()) }

// box is a broker with real sign-in and real ingress over a store in memory.
type box struct {
	*broker.Broker
	t       testing.TB
	store   *memory
	in      *ingress
	catalog *uns.Catalog
	book    *auth.Book
	reg     *prometheus.Registry
	clock   *clock
	stop    func() // stops Serve and waits; idempotent
}

type setting struct {
	store  *memory // nil: an empty one
	disk   shelf   // nil: store
	broker func(*broker.Options)
	uns    func(*uns.Options)
	accept func(ctx context.Context, b *uns.Batch, real func() error) error
	ahead  int64 // of the clock
}

// shelf is what a box needs of a historian.
type shelf interface {
	uns.Store
	uns.Reader
}

// open starts a box with three clients: dev may do everything, line only line1/# and ordinary plain/#, sub listens to all.
func open(t testing.TB, s setting) *box {
	t.Helper()
	if s.store == nil {
		s.store = &memory{}
	}
	if s.disk == nil {
		s.disk = s.store
	}
	x := &box{t: t, store: s.store, reg: prometheus.NewRegistry(), clock: &clock{}}
	x.clock.ahead.Store(s.ahead)

	s.store.clock.Store(x.clock)
	uo := uns.DefaultOptions()
	uo.Now = x.clock.now
	uo.Ingress.PerClientRatePerSec = 0
	if s.uns != nil {
		s.uns(&uo)
	}
	ns := uns.NewNamespace(uo)
	var err error
	if x.catalog, err = uns.OpenCatalog(ns, s.disk, s.disk, uo); err != nil {
		t.Fatal(err)
	}
	x.in = &ingress{Ingress: uns.NewIngress(ns, x.catalog, s.disk, nil, uo), accept: s.accept}

	records, err := kv.Open("kv", kv.Options{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	if x.book, err = auth.Open(records, auth.DefaultOptions()); err != nil {
		t.Fatal(err)
	}
	x.add("dev", "allow publish,subscribe uns #", "allow publish,subscribe mqtt #")
	x.add("line", "allow publish,subscribe uns line1/#", "deny publish uns line1/locked", "allow publish,subscribe mqtt plain/#")
	x.add("sub", "allow subscribe uns #", "allow subscribe mqtt #")

	o := broker.DefaultOptions()
	o.Address = "127.0.0.1:0"
	o.Values = x.catalog
	o.Namespace, o.Registry, o.Now = ns, x.reg, x.clock.now
	o.Limits.ConnectRatePerSec, o.Limits.FlappingLimit, o.Limits.SignInFailures = 0, 0, 0 // their tests set them
	if s.broker != nil {
		s.broker(&o)
	}
	if x.Broker, err = broker.Open(o, x.in, x.book, s.disk); err != nil {
		t.Fatal(err)
	}
	x.in.SetLive(x.Broker)
	x.SetLinger(100 * time.Millisecond) // the clients of most tests leave a DISCONNECT unanswered
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- x.Serve(ctx) }()
	var once sync.Once
	x.stop = func() {
		once.Do(func() {
			cancel()
			select {
			case err := <-served:
				if err != nil {
					t.Errorf("Serve: %v", err)
				}
			case <-time.After(20 * time.Second):
				stacks := make([]byte, 1<<20)
				t.Errorf("Serve did not return\n%s", stacks[:runtime.Stack(stacks, true)])
			}
		})
	}
	t.Cleanup(func() {
		x.stop()
		if n := x.metric("millrace_broker_leaked_packets_total", ""); n != 0 {
			t.Errorf("%v message packets reached the control plane", n)
		}
		_ = x.book.Close()
		_ = records.Close()
	})
	return x
}

// add makes a client; a grant is "effect actions scope filter".
func (x *box) add(id string, grants ...string) {
	x.t.Helper()
	added, err := x.book.AddAll([]auth.NewClient{{ID: id, Secret: secret, Workspace: "main", Grants: parseGrants(grants)}})
	if err != nil || added[0].Err != nil {
		x.t.Fatal(err, added)
	}
}

func (x *box) grant(id string, grants ...string) {
	x.t.Helper()
	g := parseGrants(grants)
	if _, err := x.book.Patch(id, auth.Patch{Grants: &g}); err != nil {
		x.t.Fatal(err)
	}
}

func parseGrants(list []string) (grants []auth.Grant) {
	for _, g := range list {
		f := strings.SplitN(g, " ", 4)
		var actions []auth.Action
		for a := range strings.SplitSeq(f[1], ",") {
			actions = append(actions, auth.Action(a))
		}
		grants = append(grants, auth.Grant{Effect: auth.Effect(f[0]), Actions: actions, Scope: auth.Scope(f[2]), Filter: f[3]})
	}
	return grants
}

// metric sums the series of a name whose first label has the given value; "" takes all.
func (x *box) metric(name, label string) (sum float64) {
	families, err := x.reg.Gather()
	if err != nil {
		x.t.Fatal(err)
	}
	found := false
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.Metric {
			if label != "" && m.GetLabel()[0].GetValue() != label {
				continue
			}
			found = true
			switch {
			case m.Histogram != nil:
				sum += float64(m.Histogram.GetSampleCount())
			case m.Gauge != nil:
				sum += m.Gauge.GetValue()
			default:
				sum += m.Counter.GetValue()
			}
		}
	}
	if !found {
		x.t.Fatalf("no metric %s{%s}", name, label)
	}
	return sum
}

// eventually waits until ok holds; the condition, not the time, is what is tested.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(2 * time.Millisecond) {
		if ok() {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("never came true: %s", what)
		}
	}
}

// leakCheck fails the test when goroutines of this package outlive it.
func leakCheck(t testing.TB) {
	t.Helper()
	t.Cleanup(func() {
		var left string
		for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
			stacks := make([]byte, 4<<20)
			stacks = stacks[:runtime.Stack(stacks, true)]
			left = ""
			for g := range strings.SplitSeq(string(stacks), "\n\n") {
				if strings.Contains(g, "millrace/broker.(") || strings.Contains(g, "mochi-mqtt") {
					left += g + "\n\n"
				}
			}
			if left == "" {
				return
			}
		}
		t.Errorf("goroutines left:\n%s", left)
	})
}

func full(path string) string { return "mHv1.0/main/" + path }

func values(n int) string { return fmt.Sprintf(`{"value":%d}`, n) }
