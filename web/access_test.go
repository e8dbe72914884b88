package web_test

import (
	"context"
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"millrace/auth"
	"millrace/web"
)

// access is the table of route × least role, and of who else may call it. A route of the OpenAPI document that has no row here
// fails TestOpenAPIListsEveryRoute. {setup} in a body is the token of the set-up link.
var access = []struct {
	method, path, body string
	role               auth.Role
	clients            bool // API clients may call it
	loopback           bool // nobody on the box may
	anyone             bool // nobody anywhere may
}{
	{"GET", "/setup", "", "", false, false, true},
	{"POST", "/setup", `{"token":"{setup}","password":"seven blue presses","plant":"Mill 3"}`, "", false, false, true},
	{"POST", "/session", `{"username":"anna","password":"seven blue presses"}`, "", false, false, true},
	{"DELETE", "/session", "", "", false, false, true},
	{"GET", "/me", "", auth.RoleViewer, true, false, false},
	{"POST", "/me/password", `{"current":"seven blue presses","password":"seven blue presses"}`, auth.RoleViewer, false, false, false},
	{"GET", "/me/tokens", "", auth.RoleViewer, false, false, false},
	{"POST", "/me/tokens", `{"name":"x"}`, auth.RoleViewer, false, false, false},
	{"DELETE", "/me/tokens/{id}", "", auth.RoleViewer, false, false, false},
	{"GET", "/users", "", auth.RoleAdmin, false, false, false},
	{"POST", "/users", `{"name":"p7","role":"viewer","password":"seven blue presses"}`, auth.RoleAdmin, false, false, false},
	{"GET", "/users/{name}", "", auth.RoleAdmin, false, false, false},
	{"PATCH", "/users/{name}", `{}`, auth.RoleAdmin, false, false, false},
	{"DELETE", "/users/{name}", "", auth.RoleAdmin, false, false, false},
	{"GET", "/audit", "", auth.RoleAdmin, false, false, false},
	{"GET", "/audit/verify", "", auth.RoleAdmin, false, false, false},
	{"GET", "/keys", "", auth.RoleAdmin, false, false, false},
	{"POST", "/keys/rotate", `{"key":"signing"}`, auth.RoleAdmin, false, false, false},
	{"DELETE", "/keys/signing/{kid}", "", auth.RoleAdmin, false, false, false},
	{"GET", "/clients", "", auth.RoleAdmin, false, false, false},
	{"POST", "/clients", `{"id":"p9"}`, auth.RoleAdmin, false, false, false},
	{"POST", "/clients/bulk", `{"id":"p8"}`, auth.RoleAdmin, false, false, false},
	{"GET", "/clients/{id}", "", auth.RoleAdmin, false, false, false},
	{"PATCH", "/clients/{id}", `{}`, auth.RoleAdmin, false, false, false},
	{"DELETE", "/clients/{id}", "", auth.RoleAdmin, false, false, false},
	{"POST", "/clients/{id}/rotate", "", auth.RoleAdmin, false, false, false},
	{"POST", "/clients/{id}/check", `{"topic":"a","action":"publish"}`, auth.RoleAdmin, false, false, false},
	{"GET", "/broker/sessions", "", auth.RoleViewer, false, false, false},
	{"GET", "/broker/sessions/{id}", "", auth.RoleViewer, false, false, false},
	{"GET", "/broker/drops", "", auth.RoleViewer, false, false, false},
	{"GET", "/clients/{id}/figures", "", auth.RoleViewer, false, false, false},
	{"GET", "/clients/{id}/ledger", "", auth.RoleViewer, false, false, false},
	{"GET", "/uns/violations", "", auth.RoleViewer, true, false, false},
	{"POST", "/broker/sessions/{id}/disconnect", "", auth.RoleAdmin, false, false, false},
	{"GET", "/uns/children", "", auth.RoleViewer, true, false, false},
	{"GET", "/uns/search?q=a", "", auth.RoleViewer, true, false, false},
	{"GET", "/uns/topic?topic=a", "", auth.RoleViewer, true, false, false},
	{"PUT", "/uns/topic?topic=a", `{}`, auth.RoleDesigner, false, false, false},
	{"DELETE", "/uns/topic?topic=a", "", auth.RoleDesigner, false, false, false},
	{"GET", "/uns/latest", "", auth.RoleViewer, true, false, false},
	{"GET", "/uns/history?topic=a", "", auth.RoleViewer, true, false, false},
	{"GET", "/uns/export?topic=a", "", auth.RoleViewer, true, false, false},
	{"POST", "/uns/publish", `{"topic":"a","value":1}`, auth.RoleOperator, true, false, false},
	{"GET", "/pipelines", "", auth.RoleViewer, false, false, false},
	{"POST", "/pipelines", `{"id":"p1","nodes":[{"id":"in","type":"trigger.manual"}]}`, auth.RoleDesigner, false, false, false},
	{"GET", "/pipelines/{id}", "", auth.RoleViewer, false, false, false},
	{"PUT", "/pipelines/{id}", `{"id":"{id}","nodes":[{"id":"in","type":"trigger.manual"}]}`, auth.RoleDesigner, false, false, false},
	{"PUT", "/pipelines/{id}/draft", `{"id":"{id}","nodes":[{"id":"in","type":"trigger.manual"}]}`, auth.RoleDesigner, false, false, false},
	{"DELETE", "/pipelines/{id}", "", auth.RoleDesigner, false, false, false},
	{"POST", "/pipelines/validate", `{"id":"{id}","nodes":[{"id":"in","type":"trigger.manual"}]}`, auth.RoleViewer, false, false, false},
	{"POST", "/pipelines/{id}/deploy", "", auth.RoleDesigner, false, false, false},
	{"POST", "/pipelines/{id}/start", "", auth.RoleDesigner, false, false, false},
	{"POST", "/pipelines/{id}/stop", "", auth.RoleDesigner, false, false, false},
	{"GET", "/pipelines/{id}/active", "", auth.RoleViewer, false, false, false},
	{"POST", "/pipelines/{id}/pause", "", auth.RoleDesigner, false, false, false},
	{"POST", "/pipelines/{id}/resume", "", auth.RoleDesigner, false, false, false},
	{"POST", "/pipelines/{id}/replay", `{"from":"-1h"}`, auth.RoleDesigner, false, false, false},
	{"POST", "/pipelines/{id}/rollback", `{"version":1}`, auth.RoleDesigner, false, false, false},
	{"POST", "/pipelines/{id}/test", "", auth.RoleDesigner, false, false, false},
	{"GET", "/pipelines/{id}/versions", "", auth.RoleViewer, false, false, false},
	{"GET", "/pipelines/{id}/versions/{version}", "", auth.RoleViewer, false, false, false},
	{"GET", "/pipelines/{id}/versions/{a}/diff/{b}", "", auth.RoleViewer, false, false, false},
	{"GET", "/pipelines/{id}/runs", "", auth.RoleViewer, false, false, false},
	{"GET", "/pipelines/{id}/stats", "", auth.RoleViewer, false, false, false},
	{"GET", "/pipelines/{id}/samples", "", auth.RoleViewer, false, false, false},
	{"POST", "/pipelines/{id}/run", "", auth.RoleDesigner, false, false, false},
	{"GET", "/runs/{id}", "", auth.RoleViewer, false, false, false},
	{"POST", "/runs/{id}/replay", "", auth.RoleDesigner, false, false, false},
	{"POST", "/runs/{id}/cancel", "", auth.RoleDesigner, false, false, false},
	{"POST", "/hooks/{id}/{path}", `{"a":1}`, "", false, false, true},
	{"GET", "/node-types", "", auth.RoleViewer, false, false, false},
	{"GET", "/backup", "", auth.RoleAdmin, false, false, false},
	{"POST", "/backup", `{"dir":"x"}`, auth.RoleAdmin, false, false, false},
	{"DELETE", "/backup", "", auth.RoleAdmin, false, false, false},
	{"GET", "/status", "", auth.RoleViewer, false, true, false},
}

// askFor is a call of a row by nobody, on something that is not there.
func (b *box) askFor(method, path, body string) *ask {
	a := b.call("", method, strings.NewReplacer("{id}", "nobody", "{name}", "nobody", "{kid}", "nobody", "{version}", "1", "{a}", "1", "{b}", "draft", "{path}", "in").Replace(path))
	a.body = strings.NewReplacer("{setup}", b.book.SetUpToken(), "{id}", "nobody").Replace(body)
	return a
}

// signedIn makes a user, if need be, and signs them in, unless they are.
func (b *box) signedIn(name string, role auth.Role) auth.SignedIn {
	b.t.Helper()
	if s, ok := b.people[name]; ok {
		if _, on := b.book.Session(s.Cookie); on {
			return s
		}
	}
	if _, err := b.book.User(name); err != nil {
		_, err := b.book.AddUser(context.Background(), auth.NewUser{Name: name, Role: role, Password: goodPassword})
		must(b.t, err)
	}
	s, err := b.book.SignInUser(context.Background(), name, goodPassword, "127.0.0.1:1")
	must(b.t, err)
	if b.people == nil {
		b.people = map[string]auth.SignedIn{}
	}
	b.people[name] = s
	return s
}

const goodPassword = "seven blue presses"

// session makes a call as a browser does.
func (a *ask) session(s auth.SignedIn) *ask {
	return a.with("Cookie", "millrace_session="+s.Cookie).with("X-CSRF-Token", s.CSRF).with("Origin", a.root)
}

// Every route by every kind of caller there is: what a call is allowed follows from its row and its caller, and from nothing else.
func TestEveryRouteByEveryCaller(t *testing.T) {
	b := newBox(t)
	b.put("main", "a", "1")
	secret := b.client("dev", "main", allow("#", "publish", "subscribe"))
	off := b.client("off", "main")
	no := false
	_, err := b.book.Patch("off", auth.Patch{Enabled: &no})
	must(t, err)
	access1 := b.accessToken("dev", secret)
	b.client("rotated", "main")
	ended := b.accessToken("rotated", b.rotate("rotated"))
	b.rotate("rotated")

	token := func(n auth.NewToken) string {
		n.Name = "x"
		_, text, err := b.book.MakeToken(n)
		must(t, err)
		return text
	}
	bearer := func(text string) func(*ask) *ask {
		return func(a *ask) *ask { return a.with("Authorization", "Bearer "+text) }
	}
	type kind struct {
		name   string
		role   auth.Role // what the caller comes to
		client bool
		local  bool
		bad    string // the code of a refusal whatever the route, unless anyone may call it
		status int
		as     func(a *ask) *ask
	}
	kinds := []kind{
		{name: "nobody on the box", local: true, as: func(a *ask) *ask { return a }},
		{name: "nobody elsewhere", as: func(a *ask) *ask { return a.with("X-Forwarded-For", "192.0.2.1") }},
		{name: "client by secret", client: true, as: func(a *ask) *ask { return a.as("dev", secret) }},
		{name: "client by access token", client: true, as: bearer(access1)},
		{name: "client by a wrong secret", bad: "bad_credentials", status: 401, as: func(a *ask) *ask { return a.as("dev", "wrong") }},
		{name: "disabled client", bad: "bad_credentials", status: 401, as: func(a *ask) *ask { return a.as("off", off) }},
		{name: "access token of a rotated secret", bad: "bad_credentials", status: 401, as: bearer(ended)},
		{name: "user by Basic", bad: "bad_credentials", status: 401, as: func(a *ask) *ask { return a.as("anna", goodPassword) }},
		{name: "no such token", bad: "bad_credentials", status: 401, as: bearer("mr_wrong")},
		{name: "another scheme", bad: "bad_credentials", status: 401, as: func(a *ask) *ask { return a.with("Authorization", "Digest x") }},
		{name: "cookie of nobody", local: true, as: func(a *ask) *ask { return a.with("Cookie", "millrace_session=x") }},
	}
	for _, role := range []auth.Role{auth.RoleViewer, auth.RoleOperator, auth.RoleDesigner, auth.RoleAdmin} {
		name := "u-" + string(role)
		kinds = append(kinds,
			kind{name: "token of nobody's, " + string(role), role: role, as: bearer(b.tokens[role])},
			kind{name: "session, " + string(role), role: role, as: func(a *ask) *ask { return a.session(b.signedIn(name, role)) }})
		b.signedIn(name, role)
		kinds = append(kinds, kind{name: "token of a user, " + string(role), role: role, as: bearer(token(auth.NewToken{Owner: name, Role: role}))})
	}
	b.signedIn("demoted", auth.RoleAdmin)
	b.signedIn("gone", auth.RoleAdmin)
	b.signedIn("anna", auth.RoleViewer)
	kinds = append(kinds,
		kind{name: "admin's token of a user who is viewer now", role: auth.RoleViewer, as: bearer(token(auth.NewToken{Owner: "demoted", Role: auth.RoleAdmin}))},
		kind{name: "token of a disabled user", bad: "bad_credentials", status: 401, as: bearer(token(auth.NewToken{Owner: "gone", Role: auth.RoleAdmin}))},
		kind{name: "an admin's token scoped to viewer", role: auth.RoleViewer, as: bearer(token(auth.NewToken{Owner: "u-admin", Role: auth.RoleViewer}))},
		kind{name: "metrics token", bad: "not_authorized", status: 403, as: bearer(token(auth.NewToken{Owner: "u-admin", Metrics: true}))},
		kind{name: "expired token", bad: "bad_credentials", status: 401, as: bearer(token(auth.NewToken{Role: auth.RoleAdmin, TTL: time.Second}))},
	)
	made, revoked, err := b.book.MakeToken(auth.NewToken{Name: "x", Role: auth.RoleAdmin})
	must(t, err)
	must(t, b.book.DeleteToken(made.ID))
	kinds = append(kinds, kind{name: "revoked token", bad: "bad_credentials", status: 401, as: bearer(revoked)})
	viewer := auth.RoleViewer
	_, err = b.book.PatchUser(context.Background(), "demoted", auth.UserPatch{Role: &viewer})
	must(t, err)
	_, err = b.book.PatchUser(context.Background(), "gone", auth.UserPatch{Enabled: &no})
	must(t, err)
	b.clock.add(time.Second)

	order := []auth.Role{"", auth.RoleViewer, auth.RoleOperator, auth.RoleDesigner, auth.RoleAdmin}
	asked := 0
	for _, route := range access {
		for _, k := range kinds {
			what := route.method + " " + route.path + " as " + k.name
			want, code := 0, "" // 0: allowed
			tokenKind := strings.Contains(k.name, "token") && k.role != "" && k.role != auth.RoleAdmin
			switch {
			case k.bad != "" && !(route.anyone && k.status == 403):
				want, code = k.status, k.bad
			case route.anyone, k.local && route.loopback, k.client && route.clients:
			case k.client:
				want, code = 403, "not_authorized"
			case k.role == "":
				want, code = 401, "unauthenticated"
			case slices.Index(order, k.role) < slices.Index(order, route.role),
				tokenKind && route.method == "POST" && route.path == "/me/tokens": // a token makes no token
				want, code = 403, "not_authorized"
			}
			r := k.as(b.askFor(route.method, route.path, route.body)).do()
			asked++
			var p problem
			if r.StatusCode >= 400 {
				r.into(t, &p)
			}
			switch {
			case want == 0 && (r.StatusCode == 401 || r.StatusCode == 403 || r.StatusCode >= 500):
				t.Errorf("%s: %d %s", what, r.StatusCode, r.text)
			case want != 0 && (r.StatusCode != want || p.Code != code || p.Remedy == ""):
				t.Errorf("%s: %d %s, want %d %s", what, r.StatusCode, r.text, want, code)
			case want == 401 && !strings.HasPrefix(r.Header.Get("WWW-Authenticate"), "Bearer"):
				t.Errorf("%s: 401 without a challenge", what)
			}
		}
		// What a browser is made to send by somebody else's page.
		if route.method != "GET" {
			s := b.signedIn("u-admin", auth.RoleAdmin)
			b.askFor(route.method, route.path, route.body).session(s).with("X-CSRF-Token", "x").do().refused(t, 403, "csrf", "")
			for name, value := range map[string]string{"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"} {
				a := b.askFor(route.method, route.path, route.body).session(s)
				a.header.Del("Origin")
				a.with(name, value).do().refused(t, 403, "foreign_origin", "")
			}
		}
		local := b.askFor(route.method, route.path, route.body)
		local.client = b.local
		if r := local.do(); r.StatusCode == 401 || r.StatusCode == 403 || r.StatusCode >= 500 {
			t.Errorf("%s %s through the admin socket: %d %s", route.method, route.path, r.StatusCode, r.text)
		}
	}
	if asked != len(access)*len(kinds) || len(kinds) < 25 {
		t.Errorf("%d calls of %d kinds", asked, len(kinds))
	}
	if v, err := b.book.Verify(); err != nil || !v.OK {
		t.Errorf("the audit log after all this: %+v, %v", v, err)
	}
}

// accessToken is what POST /oauth/token gives.
func (b *box) accessToken(id, secret string) string {
	b.t.Helper()
	p, ok := b.book.SignIn(id, []byte(secret))
	if !ok {
		b.t.Fatalf("%s cannot sign in", id)
	}
	text, _, err := b.book.Issue(p)
	must(b.t, err)
	return text
}

// The document must be 3.1, list exactly the routes there are, and describe every one.
func TestOpenAPIListsEveryRoute(t *testing.T) {
	b := newBox(t)
	r := b.call("", "GET", "/openapi.json").do().wants(t, 200)
	var doc struct {
		OpenAPI string
		Servers []struct{ URL string }
		Paths   map[string]map[string]struct {
			OperationID string
			Summary     string
			Tags        []string
			Responses   map[string]struct{ Content map[string]json.RawMessage }
		}
		Components struct{ Schemas map[string]json.RawMessage }
	}
	r.into(t, &doc)
	if !strings.HasPrefix(doc.OpenAPI, "3.1") || len(doc.Servers) != 1 || doc.Servers[0].URL != "/api/v1" {
		t.Errorf("version %q, servers %v", doc.OpenAPI, doc.Servers)
	}
	listed, ids := map[string]bool{}, map[string]bool{}
	for path, methods := range doc.Paths {
		for method, op := range methods {
			name := strings.ToUpper(method) + " " + path
			listed[name] = true
			if ids[op.OperationID] {
				t.Errorf("operationId %q twice", op.OperationID)
			}
			ids[op.OperationID] = true
			if op.Summary == "" || len(op.Tags) != 1 {
				t.Errorf("%s: summary %q tags %v", name, op.Summary, op.Tags)
			}
			for status, response := range op.Responses {
				if status >= "4" {
					if _, ok := response.Content["application/problem+json"]; !ok {
						t.Errorf("%s %s is not a problem", name, status)
					}
				}
			}
		}
	}
	wanted := map[string]bool{}
	for _, route := range access {
		path, _, _ := strings.Cut(route.path, "?")
		wanted[route.method+" "+path] = true
	}
	if !maps.Equal(listed, wanted) {
		t.Errorf("listed %v\nwanted %v", slices.Sorted(maps.Keys(listed)), slices.Sorted(maps.Keys(wanted)))
	}
	for _, ref := range regexp.MustCompile(`#/components/schemas/([A-Za-z0-9]+)`).FindAllStringSubmatch(r.text, -1) {
		if _, ok := doc.Components.Schemas[ref[1]]; !ok {
			t.Errorf("schema %s is missing", ref[1])
		}
	}
	again := b.call("", "GET", "/openapi.json").with("If-None-Match", r.Header.Get("ETag")).do()
	if again.StatusCode != 304 || again.text != "" {
		t.Errorf("the same document again: %d", again.StatusCode)
	}
}

// The pages must load nothing from elsewhere and need no inline script or style.
func TestPagesAreSelfContained(t *testing.T) {
	b := newBox(t)
	foreign := regexp.MustCompile(`(src|href)="(https?:)?//|@import|\burl\(|<style|style="|<script>|\son[a-z]+="`)
	link := regexp.MustCompile(`(?:src|href)="(/assets/[^"]+)"`)
	for _, path := range []string{"/", "/api/v1/docs"} {
		a := b.call("", "GET", "")
		a.path = path
		r := a.do().wants(t, 200)
		if !strings.HasPrefix(r.Header.Get("Content-Type"), "text/html") || !strings.Contains(r.Header.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s: headers %v", path, r.Header)
		}
		if found := foreign.FindString(r.text); found != "" {
			t.Errorf("%s holds %q", path, found)
		}
		links := link.FindAllStringSubmatch(r.text, -1)
		if len(links) < 3 {
			t.Errorf("%s links %v", path, links)
		}
		for _, l := range links {
			a.path = l[1]
			if asset := a.do().wants(t, 200); asset.Header.Get("ETag") == "" || foreign.MatchString(asset.text) {
				t.Errorf("%s: ETag %q, foreign %q", l[1], asset.Header.Get("ETag"), foreign.FindString(asset.text))
			}
		}
	}
	off := newBox(t, func(o *web.Options, _ *web.Parts) { o.UI, o.Metrics = false, false })
	for _, path := range []string{"/", "/metrics"} {
		a := off.call("", "GET", "")
		a.path = path
		a.do().refused(t, 404, "not_found", "")
	}
}

func TestAdminSocketIsPrivate(t *testing.T) {
	b := newBox(t)
	found, err := os.Lstat(b.socket)
	must(t, err)
	if found.Mode()&fs.ModeSocket == 0 || found.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, want a socket of 0600", found.Mode())
	}
	a := b.call("", "POST", "/me/tokens").json(`{"name":"mine","role":"viewer","ttl":"90d"}`)
	a.client = b.local
	var made web.NewToken
	a.do().wants(t, 201).into(t, &made)
	if made.Expires == nil || made.Token == "" {
		t.Fatalf("token %+v", made)
	}
	b.call("", "GET", "/uns/latest").with("Authorization", "Bearer "+made.Token).do().wants(t, 200)
	if list := b.call(auth.RoleAdmin, "GET", "/me/tokens").do().wants(t, 200).text; !strings.Contains(list, made.ID) || strings.Contains(list, made.Token) {
		t.Errorf("tokens %s", list)
	}
	b.call(auth.RoleAdmin, "DELETE", "/me/tokens/"+made.ID).do().wants(t, 204)
	b.call("", "GET", "/uns/latest").with("Authorization", "Bearer "+made.Token).do().refused(t, 401, "bad_credentials", "")
	b.call(auth.RoleAdmin, "DELETE", "/me/tokens/"+made.ID).do().refused(t, 404, "token_not_found", "")
	for _, body := range []string{`{"name":"x","ttl":"soon"}`, `{"name":"x","ttl":"0s"}`} {
		b.call(auth.RoleAdmin, "POST", "/me/tokens").json(body).do().refused(t, 422, "invalid", "ttl")
	}
	b.call(auth.RoleAdmin, "POST", "/me/tokens").json(`{"name":"x","role":"emperor"}`).do().refused(t, 422, "invalid", "role")
}

func TestSessions(t *testing.T) {
	b := newBox(t)
	var got struct{ Sessions []web.Session }
	b.call(auth.RoleAdmin, "GET", "/broker/sessions").do().wants(t, 200).into(t, &got)
	if len(got.Sessions) != 1 || got.Sessions[0].MQTTID != "a/b c" || got.Sessions[0].Client != "press1" {
		t.Fatalf("sessions %+v", got)
	}
	b.call(auth.RoleAdmin, "POST", "/broker/sessions/a%2Fb%20c/disconnect").do().wants(t, 204)
	b.call(auth.RoleAdmin, "POST", "/broker/sessions/a%2F%2Fb/disconnect").do().refused(t, 404, "session_not_found", "")
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.Equal(b.cut, []string{"a/b c", "a//b"}) {
		t.Errorf("cut %q", b.cut)
	}
}

// What a phone shows must be all of it: the pages once hid the remedies and let long words push text out of sight.
func TestPagesFitAPhone(t *testing.T) {
	b := newBox(t)
	asset := func(name string) string {
		a := b.call("", "GET", "")
		a.path = "/assets/" + name
		return a.do().wants(t, 200).text
	}
	if css := asset("status.css"); regexp.MustCompile(`#reasons td[^{]*\{ display: none`).MatchString(css) {
		t.Error("status.css hides what to do about a refusal")
	}
	if css := asset("docs.css"); !strings.Contains(css, "main { display: grid; grid-template-columns: minmax(0, 1fr);") || !regexp.MustCompile(`\.card \{[^}]*overflow-x: auto`).MatchString(css) {
		t.Error("docs.css lets a wide table widen the page")
	}
	if js := asset("docs.js"); !strings.Contains(js, "split(\"`\")") {
		t.Error("docs.js shows backticks as they are")
	}
}

// TestSessionFilters: every parameter narrows, and a session is found by an identifier that is any text.
func TestSessionFilters(t *testing.T) {
	b := newBox(t, func(_ *web.Options, p *web.Parts) {
		p.Sessions = func() []web.Session {
			return []web.Session{
				{MQTTID: "..", Client: "press1", Connected: true, Queued: 500, Dropped: 7, DroppedBy: map[string]uint64{"queue_full": 7}, Slow: true},
				{MQTTID: "a//b #+\u00fc", Client: "press1", Connected: true},
				{MQTTID: "c", Client: "press2", Queued: 3},
			}
		}
		p.Drops = func() (map[string]uint64, []web.ClientDrops) {
			return map[string]uint64{"queue_full": 7, "expired": 0}, []web.ClientDrops{{Client: "press1", By: map[string]uint64{"queue_full": 7}}}
		}
	})
	for query, want := range map[string]string{
		"": ".. a//b #+\u00fc c", "?client=press1": ".. a//b #+\u00fc", "?state=offline": "c", "?state=connected": ".. a//b #+\u00fc", "?queued=3": ".. c",
		"?queued=4": "..", "?dropped=1": "..", "?slow=true": "..", "?client=press2&state=connected": "", "?slow=false": ".. a//b #+\u00fc c",
	} {
		var got struct{ Sessions []web.Session }
		b.call(auth.RoleViewer, "GET", "/broker/sessions"+query).do().wants(t, 200).into(t, &got)
		var ids []string
		for _, s := range got.Sessions {
			ids = append(ids, s.MQTTID)
		}
		if strings.Join(ids, " ") != want {
			t.Errorf("%s: %q", query, ids)
		}
	}
	b.call(auth.RoleViewer, "GET", "/broker/sessions?state=asleep").do().refused(t, 422, "invalid", "state")
	for path, id := range map[string]string{"%2E%2E": "..", "a%2F%2Fb%20%23%2B%C3%BC": "a//b #+\u00fc"} {
		var got web.Session
		b.call(auth.RoleViewer, "GET", "/broker/sessions/"+path).do().wants(t, 200).into(t, &got)
		if got.MQTTID != id {
			t.Errorf("%s: %q", path, got.MQTTID)
		}
	}
	b.call(auth.RoleViewer, "GET", "/broker/sessions/d").do().refused(t, 404, "session_not_found", "")
	if text := b.call(auth.RoleViewer, "GET", "/broker/drops").do().wants(t, 200).text; !strings.Contains(text, `{"client":"press1","by_reason":{"queue_full":7}}`) {
		t.Errorf("drops %s", text)
	}
}
