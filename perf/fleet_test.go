package perf_test

import (
	"context"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"millrace/perf"
)

// patience bounds every wait of these tests; none of them waits for it to pass.
const patience = 20 * time.Second

func smallFleet(address string) perf.FleetOptions {
	o := perf.DefaultFleetOptions()
	o.Address, o.Devices, o.Tags, o.Inflight, o.ConnectRate, o.VerdictEvery = address, 5, 10, 4, 10000, 10
	return o
}

// drive runs a fleet until the returned stop, which reports how Run ended.
func drive(t *testing.T, o perf.FleetOptions) (*perf.Fleet, func()) {
	t.Helper()
	f, err := perf.NewFleet(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	stopped := false
	stop := func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("fleet: %v", err)
			}
		case <-time.After(patience):
			t.Error("the fleet does not end")
		}
	}
	t.Cleanup(stop)
	if err := f.Connected(t.Context(), o.Devices, patience); err != nil {
		t.Fatal(err)
	}
	return f, stop
}

func first(t *testing.T, f *perf.Fleet, want int) {
	t.Helper()
	if err := f.Set(perf.ModeFirst, 0); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "first contacts", func() bool { return f.Contacts() >= int64(want) })
}

func waitFor(t *testing.T, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	end := time.After(patience)
	for !cond() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("%s: not within %s", what, patience)
		}
	}
}

func drained(t *testing.T, f *perf.Fleet) *perf.Stats {
	t.Helper()
	left, err := f.Drain(t.Context(), patience)
	if err != nil || left != 0 {
		t.Fatalf("drain: %d values open, %v", left, err)
	}
	s, err := f.Take()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestEveryValueAckedOnce holds what the acceptor received against the journal, in both loops and versions.
func TestEveryValueAckedOnce(t *testing.T) {
	for _, tc := range []struct {
		name    string
		mode    perf.Mode
		rate    float64
		version byte
	}{
		{"closed loop, MQTT 5", perf.ModeClosed, 0, 5},
		{"paced, MQTT 5", perf.ModePaced, 5000, 5},
		{"paced, MQTT 3.1.1", perf.ModePaced, 5000, 4},
	} {
		t.Run(tc.name, func(t *testing.T) {
			levels := make(chan byte, 100)
			a := newAcceptor(t, func(a *acceptor) {
				a.verdict = `{"status":"stored","topic":"x"}`
				a.version = func(l byte) { levels <- l }
			})
			o := smallFleet(a.address())
			o.Version = tc.version
			f, stop := drive(t, o)
			if got := <-levels; got != tc.version {
				t.Errorf("CONNECT says level %d, want %d", got, tc.version)
			}
			first(t, f, o.Devices*o.Tags)
			if err := f.Set(tc.mode, tc.rate); err != nil {
				t.Fatal(err)
			}
			waitFor(t, "2,000 publishes", func() bool { a.mu.Lock(); defer a.mu.Unlock(); return a.total >= 2000 })
			s := drained(t, f)
			stop()

			stored := a.stored(t)
			total := 0
			for i, k := range f.Tracks() {
				signal := perf.NewSignal(o.Seed, i/o.Tags, i%o.Tags, false)
				got := stored[k.Path()]
				if len(got) != k.Fresh() || k.Fresh() == 0 {
					t.Fatalf("%s: %d received, %d sent", k.Path(), len(got), k.Fresh())
				}
				for n, text := range got {
					if want := signal.Text(); text != want {
						t.Fatalf("%s value %d: %s, want %s", k.Path(), n, text, want)
					}
				}
				for _, x := range k.Transmissions() {
					if x.Fate() != perf.FateAcked {
						t.Fatalf("%s value %d is not noted as acknowledged", k.Path(), x.Value())
					}
				}
				total += k.Fresh()
			}
			count, p50 := s.AckLatencies()
			if int(s.Acked) != total || int(s.Sent) != total || int(count) != total || p50 <= 0 {
				t.Errorf("acked %d, sent %d, latencies %d (p50 %g ms): all must be %d", s.Acked, s.Sent, count, p50, total)
			}
			if a.most > o.Inflight {
				t.Errorf("%d in flight, the window is %d", a.most, o.Inflight)
			}
			if s.Disconnects+s.Resent+s.Unexpected != 0 {
				t.Errorf("faults in a clean run: %+v", s)
			}
			wantVerdicts := uint64(total / o.VerdictEvery)
			if tc.version == 4 {
				wantVerdicts = 0
			}
			if s.Asked != wantVerdicts || s.Answered != wantVerdicts || uint64(s.VerdictLatencies()) != wantVerdicts || s.Denied != 0 {
				t.Errorf("verdicts: %d asked, %d answered, %d refused, %d timed, want %d", s.Asked, s.Answered, s.Denied, s.VerdictLatencies(), wantVerdicts)
			}
		})
	}
}

// TestWindow lets the acceptor hold acknowledgements back until the window is full: a generator that sends one
// more, or one fewer, is found out.
func TestWindow(t *testing.T) {
	a := newAcceptor(t, func(a *acceptor) { a.hold = 4 })
	o := smallFleet(a.address())
	f, stop := drive(t, o)
	if err := f.Set(perf.ModeClosed, 0); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "1,000 publishes", func() bool { a.mu.Lock(); defer a.mu.Unlock(); return a.total >= 1000 })
	stop()
	a.close()
	if a.most != o.Inflight {
		t.Errorf("at most %d were in flight, the window is %d", a.most, o.Inflight)
	}
}

// TestGoesOnFromFirstUnacknowledged cuts connections under load. Everything acknowledged must be there, and what
// was stored without its acknowledgement is sent again: stored twice, and counted apart.
func TestGoesOnFromFirstUnacknowledged(t *testing.T) {
	a := newAcceptor(t, func(a *acceptor) {
		a.hold = 3 // so that something is stored and not acknowledged when the line is cut
		a.cut = func(total int) bool { return total%211 == 0 && total < 1500 }
	})
	o := smallFleet(a.address())
	o.Serial = true
	f, stop := drive(t, o)
	if err := f.Set(perf.ModeClosed, 0); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "3,000 publishes", func() bool { a.mu.Lock(); defer a.mu.Unlock(); return a.total >= 3000 })
	if err := f.Set(perf.ModeIdle, 0); err != nil {
		t.Fatal(err)
	}
	a.mu.Lock()
	a.hold = 0
	a.mu.Unlock()
	s, err := f.Take()
	if err != nil {
		t.Fatal(err)
	}
	stop()
	if s.Disconnects == 0 || s.Resent == 0 {
		t.Fatalf("%d disconnects, %d resent: the cuts did nothing", s.Disconnects, s.Resent)
	}
	back, err := perf.CompareAll(t.Context(), historyOf(a.stored(t)), o.Seed, true, f.Tracks(), time.Time{}, time.Time{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if back.Lost+back.Doubled+back.Different != 0 || back.Acked == 0 || back.Unasked == 0 {
		t.Errorf("read-back: %+v", back)
	}
}

// TestRefusals counts refusals by code and keeps them out of what must be stored.
func TestRefusals(t *testing.T) {
	a := newAcceptor(t, func(a *acceptor) {
		a.code = func(topic string) byte {
			if strings.HasSuffix(topic, "/flow") {
				return 0x97
			}
			return 0
		}
	})
	o := smallFleet(a.address())
	f, stop := drive(t, o)
	first(t, f, o.Devices*o.Tags)
	s := drained(t, f)
	stop()
	if got := s.Refused[0x97]; got != 5 || s.Acked != 45 {
		t.Errorf("%d refused with 0x97 and %d acknowledged, want 5 and 45", got, s.Acked)
	}
	for _, k := range f.Tracks() {
		want := perf.FateAcked
		if strings.HasSuffix(k.Path(), "/flow") {
			want = perf.FateRefused
		}
		if got := k.Transmissions()[0].Fate(); got != want {
			t.Errorf("%s: fate %d, want %d", k.Path(), got, want)
		}
	}
}

// TestBrokers runs the fleet against mosquitto and the baseline, with a subscriber that must get everything.
func TestBrokers(t *testing.T) {
	for _, tc := range []struct {
		name  string
		start func(t *testing.T) string
	}{{"mosquitto", startMosquitto}, {"bare mochi", startBareMochi}} {
		t.Run(tc.name, func(t *testing.T) {
			o := smallFleet(tc.start(t))
			o.Devices, o.Inflight = 20, 16
			f, stop := drive(t, o)
			if err := f.Subscribe("sub", "", "mHv1.0/main/#"); err != nil {
				t.Fatal(err)
			}
			if err := f.Connected(t.Context(), o.Devices+1, patience); err != nil {
				t.Fatal(err)
			}
			first(t, f, o.Devices*o.Tags)
			if err := f.Set(perf.ModePaced, 5000); err != nil {
				t.Fatal(err)
			}
			sent := uint64(0)
			var total perf.Stats
			gather := func() {
				s, err := f.Take()
				if err != nil {
					t.Fatal(err)
				}
				sent += s.Sent
				total.Acked += s.Acked
				total.Delivered += s.Delivered
				total.Disconnects += s.Disconnects + s.Unexpected
			}
			waitFor(t, "1,000 values", func() bool { gather(); return sent >= 1000 })
			if left, err := f.Drain(t.Context(), patience); left != 0 || err != nil {
				t.Fatalf("%d open, %v", left, err)
			}
			waitFor(t, "deliveries", func() bool { gather(); return total.Delivered >= sent })
			stop()
			if total.Acked != sent || total.Delivered != sent || total.Disconnects != 0 {
				t.Errorf("%d sent, %d acknowledged, %d delivered, %d faults", sent, total.Acked, total.Delivered, total.Disconnects)
			}
		})
	}
}

func startMosquitto(t *testing.T) string {
	path, err := exec.LookPath("mosquitto")
	if err != nil {
		if path, err = exec.LookPath("/usr/sbin/mosquitto"); err != nil {
			t.Skip("mosquitto is not installed (Debian package mosquitto; `make test` installs it)")
		}
	}
	port := freePort(t)
	cmd := exec.Command(path, "-p", port)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return "127.0.0.1:" + port // the fleet dials until it listens
}

func startBareMochi(t *testing.T) string {
	dir := t.TempDir()
	binary := filepath.Join(dir, "baremochi")
	if text, err := exec.Command("go", "build", "-o", binary, "millrace/perf/baremochi").CombinedOutput(); err != nil {
		t.Fatalf("build: %v: %s", err, text)
	}
	b, err := perf.StartBare(t.Context(), "bare", binary, dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Abandon)
	if _, resident, err := b.Read(t.Context()); err != nil || resident < 1<<20 {
		t.Errorf("meter on the baseline: %d bytes resident, %v", resident, err)
	}
	return b.MQTT()
}

func TestFleetOptionsReportEveryFault(t *testing.T) {
	o := perf.DefaultFleetOptions()
	if err := o.Validate(); err != nil {
		t.Fatalf("defaults: %v", err)
	}
	o.Devices, o.Inflight, o.Version, o.KeepAlive = 0, 70000, 3, 0
	err := o.Validate()
	for _, want := range []string{"perf.devices: 0", "perf.inflight: 70000", "perf.version: 3", "perf.keepAlive: 0s"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %q", err, want)
		}
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}
