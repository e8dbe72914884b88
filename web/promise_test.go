package web_test

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"millrace/auth"
)

// Every operation is called in every way that a caller can get wrong. Each status that comes back must be in the
// document (ask sees to that), and each status in the document must have come back, so that it promises
// neither too little nor too much. Left out are those that need a fault of ours or a slow peer.
func TestDocumentNamesEveryStatus(t *testing.T) {
	b := newBox(t)
	b.put("main", "a", "1")
	b.client("there", "main")
	b.client("dev", "main")
	for _, route := range access {
		path, query, _ := strings.Cut(route.path, "?")
		target := func(id string) string {
			p := strings.NewReplacer("{id}", id, "{name}", id, "{kid}", id, "{version}", "1", "{a}", "1", "{b}", "draft", "{path}", "in").Replace(path)
			if query != "" {
				p += "?" + query
			}
			return p
		}
		good := func(id string) *ask {
			a := b.call(auth.RoleAdmin, route.method, target(id))
			a.body = strings.NewReplacer("{setup}", b.book.SetUpToken(), "{id}", id).Replace(route.body)
			return a
		}
		if path != "/setup" { // admin comes with set-up
			b.signedIn("admin", auth.RoleAdmin)
			b.signedIn("anna", auth.RoleViewer)
			b.signedIn("there", auth.RoleViewer)
		}
		unknown := good("there")
		if unknown.path += "?nonsense=1"; query != "" {
			unknown.path = strings.Replace(unknown.path, "?nonsense", "&nonsense", 1)
		}
		outside := good("there").with("X-Forwarded-For", "10.0.0.7")
		outside.header.Del("Authorization")
		calls := []*ask{
			outside,
			good("there").with("Authorization", "Bearer mr_wrong"),
			good("there").with("Accept", "image/png"),
			unknown,
			good("nobody"), good("%00"), good("a%2Fb"), good("%ff"), good(strings.Repeat("x", 65)), good(strings.Repeat("x", 4000)),
		}
		if !route.clients {
			a := b.call("", route.method, target("there"))
			a.body = route.body
			calls = append(calls, a.as("dev", b.rotate("dev")))
		}
		for _, body := range []string{
			"", " ", "null", "[]", "{}", "1", `"`, `{"`, `{"id":`, "\xff", "{\"description\":\"\xff\"}", "{\"name\":\"\xff\"}", `{"id":"x","id":"y"}`, `{"schema":{"min":1,"min":2}}`,
			`{"name":"x","role":"emperor"}`, `{"topic":""}`, `{"secret":"short"}`, `{"secret":"s","secret":"t"}`, `{"id":"no spaces"}`, `{"id":"there"}`, `{"retention":"8d"}`, `{"enabled":null}`,
			`{"username":"admin","password":"wrong"}`, `{"token":"x","password":"seven blue presses"}`, `{"name":"admin","role":"viewer","password":"seven blue presses"}`,
			`{"name":"short","role":"viewer","password":"short"}`, `{"dir":"busy"}`, `{"dir":"full"}`, `{"key":"master"}`, `{"unheard-of":1}`, strings.Repeat("[", 20_000), `{"description":"` + strings.Repeat("x", 17<<20) + `"}`,
		} {
			if route.body == "" && route.method == http.MethodGet {
				break
			}
			for _, kind := range []string{"", "application/json"} {
				a := good("there")
				if a.body = body; kind != "" {
					a.with("Content-Type", kind)
				}
				calls = append(calls, a)
			}
		}
		if strings.HasPrefix(path, "/pipelines") || strings.HasPrefix(path, "/runs") {
			b.pipeline("there", true)
			b.pipeline("fresh", false)
			calls = append(calls, good("fresh").with("If-Match", `"999"`), good("nowhere").with("If-Match", `"999"`), good("fresh"))
			for id, body := range map[string]string{"there": `{"trigger":"none"}`, "fresh": `{"version":"current"}`} {
				a := good(id).with("Content-Type", "application/json")
				a.body = body
				calls = append(calls, a)
			}
		}
		if route.body != "" || slices.ContainsFunc([]string{"rotate", "test", "deploy", "run", "replay"}, func(end string) bool { return strings.HasSuffix(route.path, "/"+end) }) {
			for _, kind := range []string{"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ";", "application/json; charset"} {
				a := good("there").with("Content-Type", kind)
				if a.body == "" {
					a.body = "{}"
				}
				calls = append(calls, a)
			}
		}
		if route.method == http.MethodPatch {
			calls = append(calls, good("there").with("If-Match", `"999"`))
		}
		if strings.HasPrefix(path, "/hooks") {
			b.call(auth.RoleDesigner, "PUT", "/pipelines/hooked").json(`{"id":"hooked","nodes":[{"id":"in","type":"trigger.webhook","params":{"secret":"a-secret-of-24-characters"}}]}`).do().wants(t, 200)
			b.call(auth.RoleDesigner, "POST", "/pipelines/hooked/deploy").do().wants(t, 200)
			calls = append(calls, good("hooked").with("X-Webhook-Secret", "a-secret-of-24-characters"))
		}
		if route.anyone {
			calls = append(calls, good("there").with("Origin", "http://evil.example"))
		}
		if strings.HasPrefix(path, "/users/") {
			a := good("admin")
			a.body = `{"enabled":false}`
			calls = append(calls, a)
		}
		if path == "/me/password" {
			for _, body := range []string{`{"current":"wrong","password":"seven blue presses"}`, `{"current":"seven blue presses","password":"short"}`, route.body} {
				a := b.call("", route.method, path).session(b.signedIn("there", auth.RoleViewer))
				a.body = body
				calls = append(calls, a)
			}
		}
		if path == "/uns/topic" || path == "/uns/history" || path == "/uns/export" {
			calls = append(calls, b.call(auth.RoleAdmin, http.MethodGet, path, "topic", "not/there"))
		}
		if route.clients { // a client of a workspace must not look into another
			a := b.call("", route.method, target("there")+map[bool]string{true: "&", false: "?"}[query != ""]+"workspace=plant2").as("dev", b.rotate("dev"))
			a.body = route.body
			calls = append(calls, a)
		}
		last := "there"
		switch {
		case strings.HasPrefix(path, "/me/tokens"):
			id, _, err := b.book.AddToken("spare", auth.RoleViewer, 0)
			must(t, err)
			last = id
		case strings.HasPrefix(path, "/keys/signing/"):
			must(t, b.book.RotateSigning())
			last = b.book.PublicKeys()[0].KID
		case strings.HasPrefix(path, "/broker"):
			last = "a%2Fb%20c"
		case strings.HasPrefix(path, "/runs"):
			last = b.aRun("there", strings.HasSuffix(path, "/cancel"))
			for _, body := range []string{"{", `{"version":99}`} {
				a := good(last)
				a.body = body
				calls = append(calls, a)
			}
		}
		calls = append(calls, good(last))
		if path == "/setup" {
			calls = append(calls, good(last))
		}
		for _, call := range calls {
			r, err := call.try()
			if err != nil { // a body far beyond the limit may end with the connection
				if len(call.body) < 1<<20 {
					t.Errorf("%s: %v", route.path, err)
				}
				continue
			}
			if r.StatusCode >= 500 && r.StatusCode != http.StatusNotImplemented {
				t.Errorf("%s %s %.60q: %d %s", call.method, call.path, call.body, r.StatusCode, r.text)
			}
			if r.StatusCode >= 400 && r.Header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("%s %s %.40q (%d bytes): %d is no problem+json but %s: %s", call.method, call.path, call.body, len(call.body), r.StatusCode, r.Header.Get("Content-Type"), r.text)
			}
		}
		if _, err := b.book.Client("there"); err != nil { // deleted on the way
			b.client("there", "main")
		}
		if b.catalog.Lookup("main", "a") == nil {
			b.put("main", "a", "1")
		}
	}
	unreachable := []string{"500", "503", "408", "429"} // 429: guessing of secrets, which has a test of its own
	excused := map[string]string{
		"412 POST /me/password":      "an administrator's change while the new password is hashed",
		"409 POST /runs/{id}/replay": "the version of the run went between the look at the run and its replay",
		"403 GET /me":                "a client disabled between its sign-in and the call",
	}
	for i := range b.doc.ops {
		o := &b.doc.ops[i]
		for _, status := range slices.Sorted(maps.Keys(o.answers)) {
			name := status + " " + o.method + " " + strings.Join(o.path, "/")
			switch {
			case o.met[status] && excused[name] != "":
				t.Errorf("%s is produced and excused all the same", name)
			case !o.met[status] && excused[name] == "" && !slices.Contains(unreachable, status):
				t.Errorf("the document promises %s, which nothing produced; met: %v", name, slices.Sorted(maps.Keys(o.met)))
			}
		}
	}
}

// rotate gives a client a new secret.
func (b *box) rotate(id string) string {
	b.t.Helper()
	secret, err := b.book.Rotate(id, "")
	must(b.t, err)
	return secret
}
