package web_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"millrace/auth"
	"millrace/historian"
	"millrace/web"

	"github.com/prometheus/client_golang/prometheus"
)

// TestMain also holds every test to leaving no goroutine of ours behind.
func TestMain(m *testing.M) {
	code := m.Run()
	http.DefaultClient.CloseIdleConnections()
	deadline := time.Now().Add(5 * time.Second)
	for code == 0 {
		buf := make([]byte, 1<<20)
		stacks := string(buf[:runtime.Stack(buf, true)])
		if !strings.Contains(stacks, "millrace/web.") {
			break
		}
		if time.Now().After(deadline) {
			fmt.Fprintln(os.Stderr, "goroutines left behind:\n"+stacks)
			code = 1
		}
		runtime.Gosched()
	}
	os.Exit(code)
}

func (b *box) outside(path string) *ask {
	a := b.call("", "GET", "")
	a.path = path
	return a
}

func TestOptionsNameEveryFault(t *testing.T) {
	for _, address := range []string{"", "8080", "host:", "host:x", ":70000", ":-1"} {
		o := web.Options{Address: address}
		if err := o.Validate(); err == nil || !strings.HasPrefix(err.Error(), "web.address: ") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v", address, err)
		}
	}
	o := web.DefaultOptions()
	if err := o.Validate(); err != nil || o.Address != ":8080" || !o.UI || !o.Metrics {
		t.Errorf("defaults %+v: %v", o, err)
	}
}

func TestOpenErrorsAreOneLineWithTheRemedy(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer taken.Close()
	o := web.DefaultOptions()
	o.Address = taken.Addr().String()
	dir := shortDir(t)
	_, err = web.Open(o, web.Parts{Socket: filepath.Join(dir, "admin.sock")})
	if err == nil || !strings.Contains(err.Error(), o.Address) || !strings.Contains(err.Error(), "web.address") || strings.Contains(err.Error(), "\n") {
		t.Errorf("port in use: %v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	o.Address = "127.0.0.1:0"
	file := filepath.Join(dir, "file")
	must(t, os.WriteFile(file, []byte("mine"), 0o600))
	if _, err = web.Open(o, web.Parts{Socket: file}); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("a file in the socket's place: %v", err)
	}
	if text, _ := os.ReadFile(file); string(text) != "mine" {
		t.Error("the file was touched")
	}
}

func TestStaleSocketIsReplacedALiveOneIsNot(t *testing.T) {
	b := newBox(t)
	o := web.DefaultOptions()
	o.Address = "127.0.0.1:0"
	if _, err := web.Open(o, web.Parts{Socket: b.socket}); err == nil || !strings.Contains(err.Error(), "running box") {
		t.Errorf("a second box on the socket: %v", err)
	}
	if _, err := os.Lstat(b.socket); err != nil {
		t.Error("the running box's socket was removed")
	}
	dead := filepath.Join(shortDir(t), "admin.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: dead, Net: "unix"})
	must(t, err)
	l.SetUnlinkOnClose(false)
	l.Close()
	again := newBox(t, func(_ *web.Options, p *web.Parts) { p.Socket = dead })
	again.socket = dead
	a := again.call("", "GET", "/status")
	a.client = again.local
	a.do().wants(t, 200)
}

func TestCloseWithoutServe(t *testing.T) {
	socket := filepath.Join(shortDir(t), "admin.sock")
	o := web.DefaultOptions()
	o.Address = "127.0.0.1:0"
	w, err := web.Open(o, web.Parts{Socket: socket, State: func() historian.State { return historian.State{} }})
	must(t, err)
	must(t, w.Close())
	must(t, w.Close())
	if _, err := os.Lstat(socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket stays: %v", err)
	}
	l, err := net.Listen("tcp", w.Addr())
	must(t, err)
	l.Close()
	must(t, w.Serve(context.Background()))
}

// A request in hand when the box is told to stop gets its answer; new ones are not taken.
func TestStopFinishesRequestsInHand(t *testing.T) {
	entered, release := make(chan struct{}, 1), make(chan struct{})
	b := newShelfBox(t)
	b.put("main", "a", at(noon-1, "42"))
	b.shelf.entered, b.shelf.release = entered, release

	socket := filepath.Join(shortDir(t), "admin.sock")
	o := web.DefaultOptions()
	o.Address = "127.0.0.1:0"
	p := b.parts
	p.Socket, p.Registry = socket, nil
	w, err := web.Open(o, p)
	must(t, err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Serve(ctx) }()
	got := make(chan reply, 1)
	go func() {
		a := b.call(auth.RoleViewer, "GET", "/uns/history", "topic", "a")
		a.root = "http://" + w.Addr()
		r, err := a.try()
		if err != nil {
			t.Error(err)
		}
		got <- r
	}()
	<-entered
	stop()
	for {
		c, err := net.Dial("tcp", w.Addr())
		if err != nil {
			break
		}
		c.Close()
	}
	close(release)
	if r := <-got; r.Response == nil || r.StatusCode != 200 || !strings.Contains(r.text, `"v":[42]`) {
		t.Errorf("answer %q", r.text)
	}
	if err := <-ended; err != nil {
		t.Errorf("Serve: %v", err)
	}
}

func TestHealthAndReadiness(t *testing.T) {
	b := newBox(t)
	b.outside("/healthz").do().wants(t, 200)
	if r := b.outside("/readyz").do().wants(t, 503); !strings.Contains(r.text, `"reasons":["starting"]`) {
		t.Errorf("readyz %s", r.text)
	}
	b.web.SetReady(true)
	b.outside("/readyz").do().wants(t, 200)
	b.setState(historian.State{Stalled: true, Why: "disk_low"})
	if r := b.outside("/readyz").do().wants(t, 503); !strings.Contains(r.text, "disk_low") {
		t.Errorf("readyz %s", r.text)
	}
	b.outside("/healthz").do().wants(t, 200)
	var s web.Status
	b.get("/status").wants(t, 200).into(t, &s)
	if s.State != "not_taking_values" || s.Historian.Why != "disk_low" {
		t.Errorf("status %+v", s)
	}
	b.web.SetReady(false)
	b.setState(historian.State{})
	b.outside("/readyz").do().wants(t, 503)
}

func TestMetricsAreOpenOnTheBoxOnly(t *testing.T) {
	b := newBox(t)
	plain := b.client("dev", "main")
	added, err := b.book.AddAll([]auth.NewClient{{ID: "scraper", Metrics: true}})
	must(t, err)
	b.get("/uns/latest").wants(t, 200)
	text := b.outside("/metrics").do().wants(t, 200).text
	for _, part := range []string{`millrace_web_requests_seconds_count{code="200",route="/api/v1/uns/latest"} 1`, "millrace_web_requests_in_flight 1"} {
		if !strings.Contains(text, part) {
			t.Errorf("%s is missing", part)
		}
	}
	b.outside("/metrics").with("X-Forwarded-For", "10.0.0.7").do().refused(t, 401, "unauthenticated", "")
	b.outside("/metrics").with("Host", "evil.example").do().refused(t, 401, "unauthenticated", "")
	b.outside("/metrics").with("Host", "localhost:8080").do().wants(t, 200)
	b.outside("/metrics").with("X-Forwarded-For", "10.0.0.7").with("Authorization", "Bearer "+b.tokens[auth.RoleViewer]).do().wants(t, 200)
	b.outside("/metrics").as("dev", plain).do().refused(t, 403, "not_authorized", "")
	b.outside("/metrics").as("scraper", added[0].Secret).do().wants(t, 200)
	b.call("", "GET", "/status").with("Forwarded", "for=10.0.0.7").do().refused(t, 401, "unauthenticated", "")
}

func TestMissesAreProblems(t *testing.T) {
	b := newBox(t)
	for _, path := range []string{"/nope", "/api/v1/nope", "/api/v1/", "/assets/nope.js", "/index.html"} {
		b.outside(path).do().refused(t, 404, "not_found", "")
	}
	r := b.call(auth.RoleAdmin, "DELETE", "/uns/history").do()
	r.refused(t, 405, "method_not_allowed", "")
	if !strings.Contains(r.Header.Get("Allow"), "GET") {
		t.Errorf("Allow %q", r.Header.Get("Allow"))
	}
	for _, h := range []string{"X-Content-Type-Options", "Referrer-Policy", "Cache-Control"} {
		if r.Header.Get(h) == "" {
			t.Errorf("no %s", h)
		}
	}
}

func TestBodiesAreBounded(t *testing.T) {
	b := newBox(t)
	big := `{"topic":"a","value":"` + strings.Repeat("x", 1<<20) + `"}`
	b.call(auth.RoleOperator, "POST", "/uns/publish").json(big).do().refused(t, 413, "too_large", "")
	b.call(auth.RoleAdmin, "POST", "/clients").json(big).do().refused(t, 413, "too_large", "")
	bulk := b.call(auth.RoleAdmin, "POST", "/clients/bulk")
	bulk.body = strings.Repeat("x", 16<<20+2)
	r, err := bulk.try()
	if err == nil {
		r.refused(t, 413, "too_large", "")
	}
}

// What is left of a body that was too large must never be read as a request of its own: behind a proxy that shares
// connections it would be one that somebody else pays for.
func TestRestOfARefusedBodyIsNoRequest(t *testing.T) {
	b := newBox(t)
	for _, path := range []string{"/clients", "/clients/bulk", "/me/tokens"} {
		c, err := net.Dial("tcp", b.web.Addr())
		must(t, err)
		request := "\r\nDELETE /api/v1/clients/x HTTP/1.1\r\nHost: box\r\n\r\n"
		body := strings.Repeat(request, 20<<20/len(request)) // far enough beyond every limit that the rest is not read
		written := make(chan struct{})
		go func() {
			defer close(written)
			// An error is the box's right: it need not read what it refuses.
			_, _ = fmt.Fprintf(c, "POST /api/v1%s HTTP/1.1\r\nHost: box\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
				path, b.tokens[auth.RoleAdmin], len(body), body)
		}()
		text, _ := io.ReadAll(c) // the box closes the connection, perhaps before it has read all
		c.Close()
		<-written
		if n := strings.Count(string(text), "HTTP/1.1 "); n > 1 || n == 1 && !strings.HasPrefix(string(text), "HTTP/1.1 413 ") {
			t.Errorf("%s: %d answers to one request:\n%.600s", path, n, text)
		}
	}
}

func TestPanicsStayInTheirRequest(t *testing.T) {
	s := httptest.NewServer(web.Explode(false))
	defer s.Close()
	res, err := http.Get(s.URL)
	must(t, err)
	text, _ := io.ReadAll(res.Body)
	res.Body.Close()
	if res.StatusCode != 500 || !strings.Contains(string(text), `"code":"internal"`) || strings.Contains(string(text), "boom") {
		t.Errorf("%d %s", res.StatusCode, text)
	}
	half := httptest.NewServer(web.Explode(true))
	defer half.Close()
	if res, err := http.Get(half.URL); err == nil {
		if _, err := io.ReadAll(res.Body); err == nil {
			t.Error("a broken answer looks whole")
		}
		res.Body.Close()
	}
}

func TestErrorTable(t *testing.T) {
	tests := []struct {
		err    error
		status int
		code   string
		retry  bool
	}{
		{auth.ErrNotFound, 404, "client_not_found", false},
		{auth.ErrExists, 409, "client_exists", false},
		{auth.ErrChanged, 412, "changed_meanwhile", false},
		{&auth.Fault{Field: "id"}, 422, "invalid", false},
		{fmt.Errorf("wrapped: %w", historian.ErrStalled), 503, "storage_stalled", true},
		{historian.ErrClosed, 503, "stopping", true},
		{auth.ErrClosed, 503, "stopping", true},
		{context.DeadlineExceeded, 503, "timeout", true},
		{errors.New("odd"), 500, "internal", false},
	}
	for _, test := range tests {
		status, code, retry := web.ProblemOf(test.err)
		if status != test.status || code != test.code || (retry != "") != test.retry {
			t.Errorf("%v: %d %s Retry-After %q", test.err, status, code, retry)
		}
	}
}

func TestStatusFigures(t *testing.T) {
	b := newBox(t)
	stored := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "millrace_broker_publish_to_stored_seconds", Buckets: []float64{.001, .002, .004}})
	connections := prometheus.NewGauge(prometheus.GaugeOpts{Name: "millrace_broker_connections"})
	b.reg.MustRegister(stored, connections)
	connections.Set(7)
	b.web.SetReady(true)
	b.setState(historian.State{Series: 3, FreeBytes: 5e9, LastSeq: 9})
	read := func() (s web.Status) {
		b.call("", "GET", "/status").do().wants(t, 200).into(t, &s)
		return s
	}
	s := read()
	if s.State != "ready" || s.Broker.Connections != 7 || s.UptimeS != 3600 || s.Topics != 3 || s.Version != "test" || s.Ingress.PerSecond != nil || s.WindowS != 0 {
		t.Errorf("first %+v", s)
	}
	b.put("main", "a", "1", "2", "3", "4")
	b.call(auth.RoleOperator, "POST", "/uns/publish").json(`{"topic":"a//b","value":1}`).do().wants(t, 200)
	stored.Observe(.0015)
	b.clock.add(2 * time.Second)
	s = read()
	if s.Ingress.Accepted != 4 || s.Ingress.Refused != 1 || s.Refused["topic_invalid"] != 1 || len(s.Refused) != 1 {
		t.Errorf("counts %+v %v", s.Ingress, s.Refused)
	}
	if s.WindowS != 2 || s.Ingress.PerSecond == nil || *s.Ingress.PerSecond != 2 || *s.Ingress.RefusedPS != .5 {
		t.Errorf("rates %+v over %v s", s.Ingress, s.WindowS)
	}
	if s.WriteP99MS == nil || *s.WriteP99MS <= 1 || *s.WriteP99MS > 2 {
		t.Errorf("p99 %v", s.WriteP99MS)
	}
	for range 30 {
		b.clock.add(2 * time.Second)
		s = read()
	}
	if *s.Ingress.PerSecond != 0 || s.WriteP99MS != nil || s.WindowS < 10 || s.WindowS > 20 {
		t.Errorf("after a quiet minute: %+v over %v s, p99 %v", s.Ingress, s.WindowS, s.WriteP99MS)
	}
}

func TestDaysLeft(t *testing.T) {
	start := time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)
	grow := func(minutes int, each uint64) (sizes []uint64) {
		for i := range minutes + 1 {
			sizes = append(sizes, 1e9+uint64(i)*each)
		}
		return sizes
	}
	if d := web.DaysLeft(start, 1e9, grow(9, 1e6)...); d != nil {
		t.Errorf("nine minutes say nothing, got %v", *d)
	}
	if d := web.DaysLeft(start, 1e9, grow(20, 0)...); d != nil {
		t.Errorf("no growth, got %v", *d)
	}
	if d := web.DaysLeft(start, 1440e6, grow(60, 1e6)...); d == nil || math.Abs(*d-1) > 1e-9 {
		t.Errorf("1 MB a minute into 1440 MB is a day, got %v", d)
	}
	if d := web.DaysLeft(start, 1440e6, grow(3000, 1e6)...); d == nil || math.Abs(*d-1) > 1e-9 {
		t.Errorf("the ring turned over, got %v", d)
	}
}

func TestMoments(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	tests := map[string]time.Time{
		"now": now, "-6h": now.Add(-6 * time.Hour), "-7d": now.AddDate(0, 0, -7), "-1d12h": now.Add(-36 * time.Hour), "+5m": now.Add(5 * time.Minute),
		"1796040000000": now, "2026-11-30T12:00:00Z": now, "2026-11-30T13:00:00+01:00": now, "2026-11-30T13:00:00 01:00": now,
		"2026-11-30T12:00:00.000000001Z": now.Add(1), "-1": time.UnixMilli(-1),
	}
	for text, want := range tests {
		if got, ok := web.Moment(text, now); !ok || got != want.UnixNano() {
			t.Errorf("%s: %d %v, want %d", text, got, ok, want.UnixNano())
		}
	}
	for _, text := range []string{"", "6h", "yesterday", "-d", "--6h", "-+6h", "2026-11-30", "-1d-12h", "1e3"} {
		if got, ok := web.Moment(text, now); ok {
			t.Errorf("%q was taken as %d", text, got)
		}
	}
	for text, want := range map[string]int64{"9999-01-01T00:00:00Z": math.MaxInt64, "0001-01-01T00:00:00Z": math.MinInt64, "9223372036854775807": math.MaxInt64} {
		if got, ok := web.Moment(text, now); !ok || got != want {
			t.Errorf("%s: %d %v", text, got, ok)
		}
	}
}

// A cursor either is refused or means exactly what it was sealed from.
func FuzzCursors(f *testing.F) {
	f.Add(web.SealPath("line1/press/temp"))
	f.Add(web.SealPlace("a", -5, 9, true, &historian.Cursor{Time: 7, Ord: 3}))
	f.Add(web.SealPlace("a/b", 1, 2, false, nil))
	f.Add("AAAAAAAA")
	f.Fuzz(func(t *testing.T, s string) {
		path, pathErr, sealed, placeErr := web.OpenCursors(s)
		if pathErr == nil && s != "" && web.SealPath(path) == "" {
			t.Errorf("%q opened as an empty path", s)
		}
		if s != "" && pathErr == nil && placeErr == nil {
			t.Errorf("%q is two kinds at once", s)
		}
		if placeErr == nil {
			if _, _, again, err := web.OpenCursors(sealed); err != nil || again != sealed {
				t.Errorf("%q reseals as %q, %v", sealed, again, err)
			}
		}
	})
}
