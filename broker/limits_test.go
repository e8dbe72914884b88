package broker_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"millrace/broker"
)

// stopped is a clock that only a test moves.
type stopped struct {
	start time.Time
	ahead atomic.Int64
}

func (s *stopped) now() time.Time          { return s.start.Add(time.Duration(s.ahead.Load())) }
func (s *stopped) advance(d time.Duration) { s.ahead.Add(int64(d)) }

// limited opens a box on a stopped clock.
func limited(t testing.TB, change func(*broker.Options)) (*box, *stopped) {
	t.Helper()
	clock := &stopped{start: time.Now()}
	return open(t, setting{broker: func(o *broker.Options) {
		o.Now = clock.now
		change(o)
	}}), clock
}

// codes of a CONNACK that refuses, on MQTT 5 and 3.1.1.
func wantRefused(t *testing.T, x *box, h hello, v5, v3 byte) {
	t.Helper()
	for version, want := range map[byte]byte{5: v5, 4: v3} {
		h.version = version
		c, p := dialAny(t, x.Addr(), h)
		if p.body[1] != want {
			t.Errorf("v%d: CONNACK %v, want %02x", version, p, want)
		}
		if want != 0 {
			c.ended()
		} else {
			c.write(frame(0xE0))
			c.ended()
		}
	}
}

func TestConnectRate(t *testing.T) {
	leakCheck(t)
	const rate = 4
	x, clock := limited(t, func(o *broker.Options) { o.Limits.ConnectRatePerSec = rate })
	for round := range 2 {
		for i := range rate {
			dial(t, x.Addr(), hello{id: fmt.Sprint("c", round, "-", i), user: "dev"})
		}
		wantRefused(t, x, hello{id: "more", user: "dev"}, 0x9F, 3)
		wantRefused(t, x, hello{id: "more", user: "dev", password: "wrong"}, 0x9F, 3) // nobody was asked for the secret
		clock.advance(time.Second)
	}
	if n := x.metric("millrace_broker_connects_refused_total", "connect_rate"); n != 8 {
		t.Errorf("%v refusals", n)
	}
	// A storm beyond what can be told: closed at once, and it costs nobody else anything.
	for range 300 {
		dialRaw(t, x.Addr())
	}
	eventually(t, "the storm is turned away", func() bool {
		return x.metric("millrace_broker_connections_turned_away_total", "rate") >= 300-rate-100
	})
	clock.advance(time.Second)
	dial(t, x.Addr(), hello{id: "later", user: "dev"}).alive()
}

// A TLS connection beyond the rate costs no handshake.
func TestConnectRateOfTLS(t *testing.T) {
	leakCheck(t)
	a := newAuthority(t)
	clock := &stopped{start: time.Now()}
	x := a.box(setting{broker: func(o *broker.Options) { o.Now, o.Limits.ConnectRatePerSec = clock.now, 1 }}, false)
	c, _ := dialTLS(t, x, a.trust(), hello{id: "c", user: "dev"})
	d := dialRaw(t, x.TLSAddr())
	d.ended()
	if n := x.metric("millrace_broker_connections_turned_away_total", "rate"); n != 1 {
		t.Errorf("%v turned away", n)
	}
	// The plain door has a rate of its own.
	dial(t, x.Addr(), hello{id: "d", user: "dev"})
	c.alive()
}

func TestFlappingByTakeOvers(t *testing.T) {
	leakCheck(t)
	const limit = 5
	x, clock := limited(t, func(o *broker.Options) { o.Limits.FlappingLimit = limit })
	// Orderly ends and lost connections are no take-overs, however many.
	for i := range 4 * limit {
		c := dial(t, x.Addr(), hello{id: "c", user: "dev"})
		if i%2 == 0 {
			c.write(frame(0xE0))
		}
		_ = c.conn.Close()
		eventually(t, "the session is gone", func() bool { return x.metric("millrace_broker_connections", "") == 0 })
	}
	holder := dial(t, x.Addr(), hello{id: "c", user: "dev"})
	for range limit {
		next := dial(t, x.Addr(), hello{id: "c", user: "dev"})
		holder.disconnected(0x8E)
		holder = next
	}
	wantRefused(t, x, hello{id: "c", user: "dev"}, 0x8A, 5)
	holder.alive() // who holds it keeps it
	dial(t, x.Addr(), hello{id: "c2", user: "dev"}).alive()
	if n := x.metric("millrace_broker_bans", "flapping"); n != 1 {
		t.Errorf("%v bans", n)
	}
	_ = holder.conn.Close()
	eventually(t, "the holder is gone", func() bool { return len(x.Sessions()) == 1 })
	// The ban is of this client with this identifier: another client may use it.
	other := dial(t, x.Addr(), hello{id: "c", user: "line"})
	_ = other.conn.Close()
	eventually(t, "it is gone", func() bool { return len(x.Sessions()) == 1 })
	clock.advance(59 * time.Second)
	wantRefused(t, x, hello{id: "c", user: "dev"}, 0x8A, 5)
	clock.advance(2 * time.Second)
	wantRefused(t, x, hello{id: "c", user: "dev"}, 0, 0)
	if n := x.metric("millrace_broker_bans", "flapping"); n != 0 {
		t.Errorf("%v bans after a minute", n)
	}
}

func TestFlappingByProtocolErrors(t *testing.T) {
	leakCheck(t)
	const limit = 6
	x, clock := limited(t, func(o *broker.Options) { o.Limits.FlappingLimit = limit })
	errs := [][]byte{{0xC0, 1, 0}, {0xF0, 0}, frame(0x31, str("a"), []byte{9})}
	wrong := func(i int) {
		c := dial(t, x.Addr(), hello{id: "c", user: "dev"})
		c.write(errs[i%len(errs)])
		p, err := c.read(patience)
		if err == nil && p.first != 0xE0 {
			t.Fatalf("want DISCONNECT, got %v", p)
		}
		_ = c.conn.Close()
		eventually(t, "the session is gone", func() bool { return len(x.Sessions()) == 0 })
	}
	for i := range limit - 1 {
		wrong(i)
	}
	clock.advance(61 * time.Second) // they leave the window
	for i := range limit {
		wrong(i)
	}
	wantRefused(t, x, hello{id: "c", user: "dev"}, 0x8A, 5)
	// What comes before a sign-in is nobody's fault but the sender's address.
	for range 3 * limit {
		c := dialRaw(t, x.Addr())
		c.write([]byte{0x10, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF})
		c.ended()
	}
	dial(t, x.Addr(), hello{id: "d", user: "dev"}).alive()
}

func dialFrom(t *testing.T, from, addr string, h hello) packet {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	conn, err := d.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	_, p := over(t, conn, h)
	return p
}

func TestSignInFailures(t *testing.T) {
	leakCheck(t)
	const limit = 10
	x, clock := limited(t, func(o *broker.Options) { o.Limits.SignInFailures = limit })
	for range limit {
		if _, p := dialAny(t, x.Addr(), hello{id: "c", user: "dev", password: "guess"}); p.body[1] != 0x86 {
			t.Fatalf("CONNACK %v", p)
		}
	}
	wantRefused(t, x, hello{id: "c", user: "dev"}, 0x8A, 5) // the right secret, too: a guess must not show
	if p := dialFrom(t, "127.0.0.2", x.Addr(), hello{id: "c", user: "dev"}); p.body[1] != 0 {
		t.Errorf("the device itself, at another address, is locked out: %v", p)
	}
	dial(t, x.Addr(), hello{id: "l", user: "line"}).alive() // another device behind the same address
	clock.advance(61 * time.Second)
	wantRefused(t, x, hello{id: "c2", user: "dev"}, 0, 0)
	if n := x.metric("millrace_broker_bans_total", "sign_in"); n != 1 {
		t.Errorf("%v bans", n)
	}
	x.Inspect(clock.now())
	if n := x.metric("millrace_broker_tallies", "sign_in"); n != 0 {
		t.Errorf("%v rows left", n)
	}
}

// The tables are bounded, and bans stay.
func TestTalliesAreBounded(t *testing.T) {
	now := time.Now()
	tab := broker.NewTallies(3)
	for range 3 {
		tab.Note("a", "banned", now)
	}
	for i := range 3 * broker.MaxTallies {
		tab.Note("a", fmt.Sprint(i), now.Add(time.Duration(i)*time.Millisecond))
	}
	rows, bans, displaced := tab.Figures()
	if rows != broker.MaxTallies || bans != 1 || displaced != 2*broker.MaxTallies+1 {
		t.Errorf("%d rows, %d bans, %d displaced", rows, bans, displaced)
	}
	if !tab.Banned("a", "banned", now.Add(50*time.Second)) {
		t.Error("the ban was displaced")
	}
	if tab.Banned("a", "banned", now.Add(-time.Hour)) {
		t.Error("a clock that was set back keeps the ban for an hour")
	}
	tab.Sweep(now.Add(10 * time.Minute))
	if rows, bans, _ = tab.Figures(); rows != 0 || bans != 0 {
		t.Errorf("%d rows, %d bans after ten minutes", rows, bans)
	}
}

// Events count for a minute, to ten seconds.
func TestTallyWindow(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	tab := broker.NewTallies(3)
	for i, at := range []time.Duration{0, 25 * time.Second, 61 * time.Second, 86 * time.Second, 122 * time.Second} {
		if tab.Note("a", "b", now.Add(at)) {
			t.Errorf("banned at event %d: never three in a minute", i)
		}
	}
	if !tab.Note("a", "b", now.Add(123*time.Second)) {
		t.Error("three within 37 s and no ban")
	}
}

func TestSourceOf(t *testing.T) {
	for in, want := range map[string]string{
		"10.1.2.3:555": "10.1.2.3", "[::ffff:10.1.2.3]:555": "10.1.2.3", "[2001:db8:1:2:3::4]:1": "2001:db8:1:2::/64",
		"[2001:db8:1:2:ffff::1]:9": "2001:db8:1:2::/64", "[fe80::1%eth0]:1": "fe80::/64", "@": "@",
	} {
		if got := broker.SourceOf(in); got != want {
			t.Errorf("%s counts as %s, want %s", in, got, want)
		}
	}
}

// Fault table 9: a storm of sign-ins, all of them admitted.
func TestSignInStorm(t *testing.T) {
	t.Parallel()
	n := 1000
	if os.Getenv("MILLRACE_LONG") != "" {
		n = 5000
	}
	for _, tt := range []struct {
		name string
		rate int
	}{{"no rate", 0}, {"rate of a fifth a second, clients come back after 100 ms", n / 5}} {
		t.Run(tt.name, func(t *testing.T) {
			x := open(t, setting{broker: func(o *broker.Options) {
				o.Limits.ConnectRatePerSec, o.Limits.MaxClients, o.Limits.ConnectTimeout = tt.rate, n, time.Minute
			}})
			began := time.Now()
			var refused, closed atomic.Int64
			var wg sync.WaitGroup
			gate := make(chan struct{}, 256)
			for i := range n {
				wg.Go(func() {
					for {
						gate <- struct{}{}
						conn, err := net.Dial("tcp", x.Addr())
						if err != nil {
							t.Error(err)
							<-gate
							return
						}
						_, _ = conn.Write(hello{id: fmt.Sprint("s", i), user: "dev"}.bytes())
						_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
						p, err := readPacket(conn)
						<-gate
						switch {
						case err == nil && p.body[1] == 0:
							t.Cleanup(func() { _ = conn.Close() })
							return
						case err == nil && p.body[1] == 0x9F:
							refused.Add(1)
						case err == nil:
							t.Errorf("CONNACK %v", p)
							return
						case isTimeout(err):
							t.Error("no answer for a minute")
							return
						default:
							closed.Add(1)
						}
						_ = conn.Close()
						time.Sleep(100 * time.Millisecond) // the client's own back-off
					}
				})
			}
			wg.Wait()
			if got := len(x.Sessions()); got != n {
				t.Errorf("%d sessions of %d", got, n)
			}
			if tt.rate > 0 && refused.Load()+closed.Load() == 0 {
				t.Error("nobody was held back")
			}
			if n := x.metric("millrace_broker_bans_total", ""); n != 0 {
				t.Errorf("%v bans of clients that did nothing wrong", n)
			}
			t.Logf("%d signed in after %v; told to wait %d times, closed %d times", n, time.Since(began).Round(time.Millisecond), refused.Load(), closed.Load())
		})
	}
}

// Fault table 16: a hundred connections fight for one identifier; one owner is left, the others were told, nothing leaks.
func TestTakeOverRace(t *testing.T) {
	leakCheck(t)
	for _, limit := range []broker.PerMinute{0, 15} {
		x := open(t, setting{broker: func(o *broker.Options) { o.Limits.FlappingLimit = limit }})
		dial(t, x.Addr(), hello{id: "first", user: "dev"}).write(frame(0xE0))
		eventually(t, "the first is gone", func() bool { return x.metric("millrace_broker_connections", "") == 0 })
		base := runtime.NumGoroutine()
		var welcome, takenOver, busy, banned, cut atomic.Int64
		var wg sync.WaitGroup
		start := make(chan struct{})
		ctx, end := context.WithCancel(t.Context())
		for range 100 {
			wg.Go(func() {
				<-start
				conn, err := net.Dial("tcp", x.Addr())
				if err != nil {
					t.Error(err)
					return
				}
				defer conn.Close()
				defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
				_, _ = conn.Write(append(hello{id: "one", user: "dev"}.bytes(), subscribe(5, 1, nil, 0, "#")...))
				for {
					p, err := readPacket(conn)
					switch {
					case err != nil && isTimeout(err): // the owner waits here for its end
						return
					case err != nil:
						cut.Add(1)
						return
					case p.first == 0x20 && p.body[1] == 0:
						welcome.Add(1)
					case p.first == 0x20 && p.body[1] == 0x89:
						busy.Add(1)
					case p.first == 0x20 && p.body[1] == 0x8A:
						banned.Add(1)
					case p.first == 0xE0 && p.body[0] == 0x8E:
						takenOver.Add(1)
					case p.first == 0x90:
					default:
						t.Errorf("got %v", p)
					}
				}
			})
		}
		close(start)
		eventually(t, fmt.Sprintf("all but one have lost (limit %d)", limit), func() bool { return cut.Load() == 99 })
		eventually(t, "all have their answer", func() bool { return welcome.Load()+busy.Load()+banned.Load() == 100 })
		eventually(t, "one session is left", func() bool { return len(x.Sessions()) == 1 })
		if n := takenOver.Load(); n != welcome.Load()-1 {
			t.Errorf("%d were welcome, %d told of their end", welcome.Load(), n)
		}
		if (banned.Load() > 0) != (limit > 0) {
			t.Errorf("limit %d: %d banned", limit, banned.Load())
		}
		end()
		wg.Wait()
		eventually(t, "the goroutines are back to where they were", func() bool { return runtime.NumGoroutine() <= base })
		eventually(t, "the index is empty", func() bool { return x.IndexSize() == 0 })
		t.Logf("limit %d: welcome %d, busy %d, banned %d", limit, welcome.Load(), busy.Load(), banned.Load())
	}
}

// Fault table 13: a thousand sockets that claim 268 MB each, before and after signing in, cost less than 64 MB together.
func TestClaimsOf268MB(t *testing.T) {
	x := open(t, setting{})
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before, most := heap(), uint64(0)
	var conns []net.Conn
	for i := range 1000 {
		conn, err := net.Dial("tcp", x.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conns = append(conns, conn)
		b := []byte{0x10, 0xFF, 0xFF, 0xFF, 0x7F, 0, 4, 'M', 'Q', 'T', 'T', 5}
		switch i % 4 {
		case 1: // within the limit of CONNECT, and the rest does not come
			b = append([]byte{0x10, 0xE8, 0xFB, 3}, make([]byte, 1000)...)
		case 2:
			b = append(hello{id: fmt.Sprint("h", i), user: "dev"}.bytes(), 0x32, 0xFF, 0xFF, 0xFF, 0x7F, 0, 1, 'a')
		case 3: // within the packet limit
			b = append(hello{id: fmt.Sprint("h", i), user: "dev"}.bytes(), 0x32, 0xFF, 0xFF, 0x3E, 0, 1, 'a')
		}
		_, _ = conn.Write(b)
		if i%100 == 99 {
			most = max(most, heap())
		}
	}
	eventually(t, "what is too large is ended", func() bool { return x.metric("millrace_broker_connections", "") == 500 })
	most = max(most, heap())
	if grown := int64(most) - int64(before); grown > 64<<20 {
		t.Errorf("the heap grew by %d MB", grown>>20)
	} else {
		t.Logf("the heap grew by %.1f MB", float64(grown)/(1<<20))
	}
	runtime.KeepAlive(conns)
}

// A CONNECT that drips has the connect timeout, and others are let in meanwhile.
func TestSlowDrip(t *testing.T) {
	x := open(t, setting{broker: func(o *broker.Options) { o.Limits.ConnectTimeout = 400 * time.Millisecond }})
	packet := hello{id: strings.Repeat("x", 100), user: "dev"}.bytes()
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			conn, err := net.Dial("tcp", x.Addr())
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			for _, b := range packet { // 20 ms an octet would take 3 s
				if _, err := conn.Write([]byte{b}); err != nil {
					return
				}
				time.Sleep(20 * time.Millisecond)
			}
			_ = conn.SetReadDeadline(time.Now().Add(patience))
			if _, err := conn.Read(make([]byte, 1)); err == nil || isTimeout(err) {
				t.Errorf("dripped its whole CONNECT: %v", err)
			}
		})
	}
	dial(t, x.Addr(), hello{id: "c", user: "dev"}).alive()
	wg.Wait()
	eventually(t, "all are gone", func() bool { return x.metric("millrace_broker_connections", "") <= 1 })
}

// A keep-alive the box sets is told, and held.
func TestServerKeepAlive(t *testing.T) {
	x := open(t, setting{broker: func(o *broker.Options) { o.ServerKeepAlive = 60 * time.Second }})
	for _, tt := range []struct {
		version byte
		asked   uint16
		told    bool
		silence time.Duration
	}{{5, 120, true, 95 * time.Second}, {5, 0, true, 95 * time.Second}, {5, 30, false, 50 * time.Second}, {4, 120, false, 185 * time.Second}} {
		c, p := dialAny(t, x.Addr(), hello{id: "c", user: "dev", version: tt.version, keepAlive: tt.asked})
		if told := bytes.Contains(p.body[2:], []byte{0x13, 0, 60}); told != tt.told {
			t.Errorf("%+v: CONNACK %v", tt, p)
		}
		c.alive()
		x.Inspect(x.clock.now().Add(tt.silence - 10*time.Second))
		c.alive()
		x.Inspect(x.clock.now().Add(tt.silence))
		c.disconnected(0x8D)
	}
}
