package web_test

import (
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"millrace/auth"
	"millrace/web"
)

// access is the table of route × least role. clients: API clients may call it. loopback: nobody on the box may.
var access = []struct {
	method, path, body string
	role               auth.Role
	clients, loopback  bool
}{
	{"GET", "/clients", "", auth.RoleAdmin, false, false},
	{"POST", "/clients", `{"id":"p9"}`, auth.RoleAdmin, false, false},
	{"POST", "/clients/bulk", `{"id":"p8"}`, auth.RoleAdmin, false, false},
	{"GET", "/clients/{id}", "", auth.RoleAdmin, false, false},
	{"PATCH", "/clients/{id}", `{}`, auth.RoleAdmin, false, false},
	{"DELETE", "/clients/{id}", "", auth.RoleAdmin, false, false},
	{"POST", "/clients/{id}/rotate", "", auth.RoleAdmin, false, false},
	{"POST", "/clients/{id}/check", `{"topic":"a","action":"publish"}`, auth.RoleAdmin, false, false},
	{"GET", "/me", "", auth.RoleViewer, true, false},
	{"GET", "/me/tokens", "", auth.RoleAdmin, false, false},
	{"POST", "/me/tokens", `{"name":"x"}`, auth.RoleAdmin, false, false},
	{"DELETE", "/me/tokens/{id}", "", auth.RoleAdmin, false, false},
	{"GET", "/broker/sessions", "", auth.RoleViewer, false, false},
	{"GET", "/broker/sessions/{id}", "", auth.RoleViewer, false, false},
	{"GET", "/broker/drops", "", auth.RoleViewer, false, false},
	{"GET", "/clients/{id}/figures", "", auth.RoleViewer, false, false},
	{"GET", "/clients/{id}/ledger", "", auth.RoleViewer, false, false},
	{"GET", "/uns/violations", "", auth.RoleViewer, true, false},
	{"POST", "/broker/sessions/{id}/disconnect", "", auth.RoleAdmin, false, false},
	{"GET", "/uns/children", "", auth.RoleViewer, true, false},
	{"GET", "/uns/search?q=a", "", auth.RoleViewer, true, false},
	{"GET", "/uns/topic?topic=a", "", auth.RoleViewer, true, false},
	{"PUT", "/uns/topic?topic=a", `{}`, auth.RoleDesigner, false, false},
	{"DELETE", "/uns/topic?topic=a", "", auth.RoleDesigner, false, false},
	{"GET", "/uns/latest", "", auth.RoleViewer, true, false},
	{"GET", "/uns/history?topic=a", "", auth.RoleViewer, true, false},
	{"POST", "/uns/publish", `{"topic":"a","value":1}`, auth.RoleOperator, true, false},
	{"GET", "/backup", "", auth.RoleAdmin, false, false},
	{"POST", "/backup", `{"dir":"x"}`, auth.RoleAdmin, false, false},
	{"DELETE", "/backup", "", auth.RoleAdmin, false, false},
	{"GET", "/status", "", auth.RoleViewer, false, true},
}

func TestEveryRouteByEveryCaller(t *testing.T) {
	b := newBox(t)
	b.put("main", "a", "1")
	secret := b.client("dev", "main", allow("#", "publish", "subscribe"))
	order := []auth.Role{"", auth.RoleViewer, auth.RoleOperator, auth.RoleDesigner, auth.RoleAdmin}
	for _, route := range access {
		path := strings.Replace(route.path, "{id}", "nobody", 1)
		call := func(role auth.Role) *ask {
			a := b.call(role, route.method, path)
			a.body = route.body
			return a
		}
		for i, role := range order {
			r := call(role).do()
			switch {
			case role == "" && !route.loopback:
				p := r.refused(t, 401, "unauthenticated", "")
				if p.Remedy == "" || !strings.HasPrefix(r.Header.Get("WWW-Authenticate"), "Bearer") {
					t.Errorf("%s %s: 401 without remedy or challenge", route.method, route.path)
				}
			case role != "" && i < slices.Index(order, route.role):
				r.refused(t, 403, "not_authorized", "")
			case r.StatusCode >= 400 && r.StatusCode != 404 && r.StatusCode != 501:
				t.Errorf("%s %s as %q: %d %s", route.method, route.path, role, r.StatusCode, r.text)
			}
		}
		switch r := call("").as("dev", secret).do(); {
		case !route.clients:
			r.refused(t, 403, "not_authorized", "")
		case r.StatusCode != 200:
			t.Errorf("%s %s as API client: %d %s", route.method, route.path, r.StatusCode, r.text)
		}
		call("").as("dev", "wrong secret").do().refused(t, 401, "bad_credentials", "")
		call("").with("Authorization", "Bearer mr_wrong").do().refused(t, 401, "bad_credentials", "")
		call("").with("Authorization", "Digest x").do().refused(t, 401, "bad_credentials", "")
		local := call("")
		local.client = b.local
		if r := local.do(); r.StatusCode == 401 || r.StatusCode == 403 || r.StatusCode >= 500 && r.StatusCode != 501 {
			t.Errorf("%s %s through the admin socket: %d %s", route.method, route.path, r.StatusCode, r.text)
		}
	}
	off := false
	if _, err := b.book.Patch("dev", auth.Patch{Enabled: &off}); err != nil {
		t.Fatal(err)
	}
	b.call("", "GET", "/uns/latest").as("dev", secret).do().refused(t, 401, "bad_credentials", "")
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
