package web_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"millrace/auth"
)

// Routes beside the REST interface, as their handlers are registered, and who gets in. open: whoever asks.
var besides = map[string]struct {
	path string
	open bool
}{
	`"GET /healthz"`:                  {"/healthz", true},
	`"GET /readyz"`:                   {"/readyz", true},
	`"GET /metrics"`:                  {"/metrics", false},
	`"GET /prometheus/api/v1/"+path`:  {"", false}, // TestPrometheusCallers
	`"POST /prometheus/api/v1/"+path`: {"", false},
	`"POST /oauth/token"`:             {"", false}, // TestTokenEndpoint
	`"GET /.well-known/jwks.json"`:    {"/.well-known/jwks.json", true},
	`"GET "+apiRoot+"/docs"`:          {"/api/v1/docs", true},
	`"GET /docs"`:                     {"/docs", true},
	`"GET "+apiRoot+"/openapi.json"`:  {"/api/v1/openapi.json", true},
	`"GET /{$}"`:                      {"/", true},
	`"GET /assets/"+name`:             {"/assets/status.css", true},
	`"GET "+route.Path`:               {"", false}, // /mqtt: cmd/millrace TestEveryMQTTPathByEveryCaller
}

// Whoever adds a route beside the REST interface says here who may call it.
func TestRoutesBesideREST(t *testing.T) {
	files, err := filepath.Glob("*.go")
	must(t, err)
	seen := map[string]bool{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		must(t, err)
		for _, m := range regexp.MustCompile(`mux\.Handle(?:Func)?\(([^,]+),`).FindAllStringSubmatch(string(text), -1) {
			if _, ok := besides[m[1]]; !ok {
				t.Errorf("%s: the route %s has no row in this table", file, m[1])
			}
			seen[m[1]] = true
		}
	}
	b := newBox(t)
	plain := b.client("plain", "main")
	added, err := b.book.AddAll([]auth.NewClient{{ID: "scraper", Metrics: true}})
	must(t, err)
	b.signedIn("root", auth.RoleAdmin)
	_, metrics, err := b.book.MakeToken(auth.NewToken{Name: "x", Owner: "root", Metrics: true})
	must(t, err)
	_, design, err := b.book.MakeToken(auth.NewToken{Name: "x", Owner: "root", Role: auth.RoleDesigner})
	must(t, err)
	gone, revoked, err := b.book.MakeToken(auth.NewToken{Name: "x", Metrics: true})
	must(t, err)
	must(t, b.book.DeleteToken(gone.ID))
	bearer := func(text string) func(*ask) *ask {
		return func(a *ask) *ask { return a.with("Authorization", "Bearer "+text) }
	}
	for _, k := range []struct {
		name   string
		status int // of /metrics
		as     func(*ask) *ask
	}{
		{"nobody elsewhere", 401, func(a *ask) *ask { return a }},
		{"a page led to 127.0.0.1", 401, func(a *ask) *ask { return a.with("Host", "evil.example") }},
		{"client", 403, func(a *ask) *ask { return a.as("plain", plain) }},
		{"client by access token", 403, bearer(b.accessToken("plain", plain))},
		{"client with metrics", 200, func(a *ask) *ask { return a.as("scraper", added[0].Secret) }},
		{"viewer", 200, bearer(b.tokens[auth.RoleViewer])},
		{"session", 200, func(a *ask) *ask { return a.session(b.signedIn("root", auth.RoleAdmin)) }},
		{"metrics token", 200, bearer(metrics)},
		{"scoped token", 200, bearer(design)},
		{"revoked token", 401, bearer(revoked)},
		{"wrong secret", 401, func(a *ask) *ask { return a.as("scraper", "wrong") }},
	} {
		for pattern, route := range besides {
			if !seen[pattern] {
				t.Errorf("%s is in this table and nowhere else", pattern)
			}
			if route.path == "" {
				continue
			}
			a := b.call("", "GET", "").with("X-Forwarded-For", "192.0.2.1")
			a.path = route.path
			status := k.as(a).do().StatusCode
			if route.open && (status == 401 || status == 403) || !route.open && status != k.status {
				t.Errorf("%s as %s: %d", route.path, k.name, status)
			}
		}
	}
	a := b.call("", "GET", "")
	a.path = "/metrics"
	a.do().wants(t, 200) // on the box itself
}
