package web_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/auth"
	"millrace/historian"
	"millrace/historian/kv"
	"millrace/uns"
	"millrace/web"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
)

// clock is a clock that moves only when told to.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// box is a whole web on real listeners, with the real auth and uns on memory stores.
type box struct {
	t       testing.TB
	web     *web.Web
	root    string // http://127.0.0.1:port
	socket  string
	clock   *clock
	book    *auth.Book
	catalog *uns.Catalog
	ingress *uns.Ingress
	shelf   *shelf // nil where the real historian stands
	store   store
	reg     *prometheus.Registry
	parts   web.Parts
	logged  *lockedBuffer
	local   *http.Client // through the admin socket
	tokens  map[auth.Role]string
	people  map[string]auth.SignedIn
	doc     declared

	mu    sync.Mutex
	state historian.State
	cut   []string
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (b *box) setState(s historian.State) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.state = s
}

// shortDir is a folder whose path leaves room for a socket address.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "mr")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// store is a historian as uns and web need it.
type store interface {
	uns.Store
	uns.Reader
	web.History
}

// newBox starts a box on the real historian; change may alter the options and parts before it opens.
func newBox(t testing.TB, change ...func(*web.Options, *web.Parts)) *box {
	t.Helper()
	b := blankBox(t)
	o := historian.DefaultOptions()
	o.FS, o.Now, o.Pebble.SyncWrites = vfs.NewMem(), b.clock.Now, false
	o.DefaultRetention = "366d"
	o.Free = func(string) (uint64, error) { return 1 << 40, nil }
	s, err := historian.Open("historian", o)
	must(t, err)
	t.Cleanup(func() { s.Close() })
	b.store = s
	b.start(change)
	return b
}

// newShelfBox starts a box on the historian in memory, whose faults can be switched on.
func newShelfBox(t testing.TB) *box {
	t.Helper()
	b := blankBox(t)
	b.shelf = newShelf(b.clock.Now)
	b.store = b.shelf
	b.start(nil)
	return b
}

func blankBox(t testing.TB) *box {
	return &box{t: t, clock: &clock{at: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)}, reg: prometheus.NewRegistry(), logged: &lockedBuffer{}}
}

func (b *box) start(change []func(*web.Options, *web.Parts)) {
	t := b.t
	t.Helper()
	records, err := kv.Open("kv", kv.Options{FS: vfs.NewMem()})
	must(t, err)
	t.Cleanup(func() { records.Close() })
	ao := auth.DefaultOptions()
	ao.Workspaces, ao.Now = []string{"main", "plant2"}, b.clock.Now
	b.book, err = auth.Open(records, ao)
	must(t, err)
	t.Cleanup(func() { b.book.Close() })
	uo := uns.DefaultOptions()
	uo.Workspaces, uo.Now, uo.Registry = ao.Workspaces, b.clock.Now, b.reg
	uo.Ingress.PerClientRatePerSec = 0
	uo.LateWindow, uo.DefaultClass = "365d", historian.Class366d
	ns := uns.NewNamespace(uo)
	b.catalog, err = uns.OpenCatalog(ns, b.store, b.store, uo)
	must(t, err)
	b.ingress = uns.NewIngress(ns, b.catalog, b.store, nil, uo)
	b.socket = filepath.Join(shortDir(t), "admin.sock")

	o := web.DefaultOptions()
	o.Address = "127.0.0.1:0"
	p := web.Parts{
		Book: b.book, Namespace: ns, Backups: &shelfBackups{}, Catalog: b.catalog, Ingress: b.ingress, History: b.store,
		State: func() historian.State {
			b.mu.Lock()
			defer b.mu.Unlock()
			return b.state
		},
		Sessions: func() []web.Session {
			return []web.Session{{MQTTID: "a/b c", Client: "press1", Version: 5, Since: b.clock.Now()}}
		},
		Cut: func(id string) bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.cut = append(b.cut, id)
			return id == "a/b c"
		},
		Socket: b.socket, Version: "test", Started: b.clock.Now().Add(-time.Hour),
		Gatherer: b.reg, Registry: b.reg, Now: b.clock.Now,
		Log: slog.New(slog.NewTextHandler(b.logged, nil)),
	}
	p.Pipelines = b.pipelines(records, ns)
	for _, c := range change {
		c(&o, &p)
	}
	b.parts = p
	b.web, err = web.Open(o, p)
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- b.web.Serve(ctx) }()
	t.Cleanup(func() {
		b.local.CloseIdleConnections()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	b.root = "http://" + b.web.Addr()
	b.local = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", b.socket)
	}}}
	b.tokens = map[auth.Role]string{}
	for _, role := range []auth.Role{auth.RoleViewer, auth.RoleOperator, auth.RoleDesigner, auth.RoleAdmin} {
		_, b.tokens[role], err = b.book.AddToken(string(role), role, 0)
		must(t, err)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// client makes an API client of the workspace and returns its secret.
func (b *box) client(id, workspace string, grants ...auth.Grant) string {
	b.t.Helper()
	added, err := b.book.AddAll([]auth.NewClient{{ID: id, Workspace: workspace, Grants: grants}})
	must(b.t, err)
	must(b.t, added[0].Err)
	return added[0].Secret
}

func allow(filter string, actions ...auth.Action) auth.Grant {
	return auth.Grant{Effect: "allow", Actions: actions, Filter: filter}
}

// reply is one answer.
type reply struct {
	*http.Response
	text string
}

func (r reply) into(t testing.TB, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(r.text), v); err != nil {
		t.Fatalf("answer %d is not the JSON wanted: %v\n%s", r.StatusCode, err, r.text)
	}
}

// problem is the part of a problem that tests look at.
type problem struct {
	Type, Title, Code, Detail, Field, Remedy string
	Status                                   int
	Lines                                    []web.LineFault
}

// wants holds an answer to a status.
func (r reply) wants(t testing.TB, status int) reply {
	t.Helper()
	if r.StatusCode != status {
		t.Fatalf("%s %s: status %d, want %d\n%s", r.Request.Method, r.Request.URL, r.StatusCode, status, r.text)
	}
	return r
}

// refused holds an answer to a whole problem with status, code and field.
func (r reply) refused(t testing.TB, status int, code, field string) problem {
	t.Helper()
	r.wants(t, status)
	if ct := r.Header.Get("Content-Type"); ct != "application/problem+json" {
		t.Errorf("%s: Content-Type %q", r.Request.URL, ct)
	}
	var p problem
	r.into(t, &p)
	if p.Code != code || p.Field != field || p.Status != status || p.Title == "" || p.Detail == "" || p.Type != "urn:millrace:problem:"+code {
		t.Fatalf("%s %s: problem %+v, want status %d code %q field %q", r.Request.Method, r.Request.URL, p, status, code, field)
	}
	return p
}

// ask is one request being put together.
type ask struct {
	b            *box
	method, path string
	body         string
	header       http.Header
	client       *http.Client
	root         string
}

// call starts a request as a person with a role; "" = nobody.
func (b *box) call(role auth.Role, method, path string, query ...string) *ask {
	a := &ask{b: b, method: method, path: "/api/v1" + path, header: http.Header{}, client: http.DefaultClient, root: b.root}
	if role != "" {
		a.header.Set("Authorization", "Bearer "+b.tokens[role])
	}
	if len(query) > 0 {
		values := url.Values{}
		for i := 0; i < len(query); i += 2 {
			values.Add(query[i], query[i+1])
		}
		a.path += "?" + values.Encode()
	}
	return a
}

// get is a read as a viewer.
func (b *box) get(path string, query ...string) reply {
	return b.call(auth.RoleViewer, "GET", path, query...).do()
}

func (a *ask) as(id, secret string) *ask {
	r := http.Request{Header: a.header}
	r.SetBasicAuth(id, secret)
	return a
}

func (a *ask) with(name, value string) *ask { a.header.Set(name, value); return a }

func (a *ask) json(body string) *ask {
	a.body = body
	a.header.Set("Content-Type", "application/json")
	return a
}

func (a *ask) do() reply {
	a.b.t.Helper()
	r, err := a.try()
	must(a.b.t, err)
	return r
}

func (a *ask) try() (reply, error) {
	root := a.root
	if a.client == a.b.local {
		root = "http://box"
	}
	req, err := http.NewRequest(a.method, root+a.path, strings.NewReader(a.body))
	if err != nil {
		return reply{}, err
	}
	req.Header = a.header
	if host := a.header.Get("Host"); host != "" {
		req.Host = host
	}
	res, err := a.client.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil {
		a.b.doc.load(a.b.t, a.b.root)
		if fault := a.b.doc.fault(res, string(text)); fault != "" {
			a.b.t.Errorf("%s %s: %d is missing from the OpenAPI document: %s\n%s", a.method, a.path, res.StatusCode, fault, text)
		}
	}
	return reply{res, string(text)}, err
}

// put stores values on a path through the real ingress; each is a payload as a device sends it.
func (b *box) put(workspace, path string, payloads ...string) {
	b.t.Helper()
	batch := &uns.Batch{}
	for _, p := range payloads {
		batch.Messages = append(batch.Messages, uns.Message{Source: b.ingress.Source("device"), Workspace: workspace, Path: path, Payload: []byte(p)})
	}
	must(b.t, b.ingress.Write(context.Background(), batch))
	for i, m := range batch.Messages {
		if m.Verdict.Reason != uns.Stored {
			b.t.Fatalf("%s: %s was refused: %v", path, payloads[i], m.Verdict)
		}
	}
}

// at is a payload with a value and a time in ms.
func at(ms int64, value string) string { return fmt.Sprintf(`{"value":%s,"timestamp":%d}`, value, ms) }
