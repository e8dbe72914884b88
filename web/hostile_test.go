package web_test

import (
	"net/http"
	"strings"
	"testing"

	"millrace/auth"
)

// Whatever comes as a body, every operation that takes one answers with a problem that the document declares.
func TestBadBodiesAreDeclaredProblems(t *testing.T) {
	b := newBox(t)
	b.put("main", "a", "1")
	b.client("nobody", "main")
	asked := 0
	for _, route := range access {
		if route.body == "" && route.path != "/clients/{id}/rotate" {
			continue
		}
		path := strings.Replace(route.path, "{id}", "nobody", 1)
		send := func(kind, body string) reply {
			asked++
			a := b.call(auth.RoleAdmin, route.method, path)
			a.body = body
			if kind != "" {
				a.with("Content-Type", kind)
			}
			return a.do()
		}
		for _, kind := range []string{"text/plain", "application/x-www-form-urlencoded", "text/xml", "multipart/form-data; boundary=x", "no type; at all"} {
			send(kind, "{}").refused(t, http.StatusUnsupportedMediaType, "unsupported_media_type", send(kind, "{}").field(t))
		}
		for _, body := range []string{"{", "\x00", "\xff\xfe", `{"a":1}}`, strings.Repeat("[", 20_000), `{"a":`, "NaN"} {
			r := send("application/json", body)
			if r.StatusCode != 400 && r.StatusCode != 422 {
				t.Errorf("%s %s with %.20q: %d %s", route.method, route.path, body, r.StatusCode, r.text)
			}
		}
		if route.path != "/clients/bulk" {
			if r := send("application/json", strings.Repeat(" ", 1<<20+1)); r.StatusCode != http.StatusRequestEntityTooLarge {
				t.Errorf("%s %s with a large body: %d", route.method, route.path, r.StatusCode)
			}
		}
	}
	if asked == 0 {
		t.Error("no operation takes a body")
	}
}

// field is the field a problem names.
func (r reply) field(t testing.TB) string {
	t.Helper()
	var p problem
	r.into(t, &p)
	return p.Field
}
