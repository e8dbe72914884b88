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
		for _, body := range []string{"{", "\x00", "\xff\xfe", `{"a":1}}`, strings.Repeat("[", 20_000), `{"a":`, "NaN", strings.ReplaceAll(route.body, "{id}", "nobody") + "}", "{\"\xff\":1}"} {
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

// What could be read in two ways is refused, whatever the operation, and nothing is changed.
func TestAmbiguousBodiesAreRefused(t *testing.T) {
	b := newBox(t)
	b.put("main", "a", "1")
	b.client("dev", "main")
	for _, test := range []struct{ method, path, body string }{
		{"POST", "/clients", `{"id":"p1","id":"p2"}`},
		{"POST", "/clients", `{"id":"p1","grants":[{"effect":"allow","effect":"deny","actions":["publish"],"filter":"a"}]}`},
		{"POST", "/clients", `{"id":"p1"} {"id":"p2"}`},
		{"PATCH", "/clients/dev", `{"description":"a","description":"b"}`},
		{"PATCH", "/clients/dev", `{"description":"a"}}`},
		{"PATCH", "/clients/dev", "{\"description\":\"a\xff\"}"},
		{"POST", "/clients/dev/rotate", `{"secret":"xxxxxxxxxxxxxxxxxxxxxxxx","secret":"yyyyyyyyyyyyyyyyyyyyyyyyyy"}`},
		{"POST", "/me/tokens", `{"name":"x","role":"viewer","role":"admin"}`},
		{"POST", "/me/tokens", "{\"name\":\"x\xff\"}"},
		{"PUT", "/uns/topic?topic=a", `{"retention":"7d","retention":"1d"}`},
		{"POST", "/uns/publish", `{"topic":"a","value":1}}`},
		{"POST", "/uns/publish", "{\"topic\":\"a\xff\",\"value\":1}"},
	} {
		b.call(auth.RoleAdmin, test.method, test.path).json(test.body).do().wants(t, http.StatusBadRequest)
	}
	if len(b.book.Clients()) != 1 || len(b.book.Tokens()) != 4 {
		t.Errorf("%d clients, %d tokens", len(b.book.Clients()), len(b.book.Tokens()))
	}
	if c, err := b.book.Client("dev"); err != nil || c.Description != "" {
		t.Errorf("the client was changed: %+v", c)
	}
}

// Odd ids, parameters and methods meet problems, never failures of ours.
func TestOddRequestsMeetProblems(t *testing.T) {
	b := newBox(t)
	b.put("main", "a", "1", "2")
	for _, id := range []string{"%00", "%ff", "a%2Fb", "..%2F..", "%2e%2e", "a%00b", strings.Repeat("x", 65), "%E2%80%AE"} {
		for _, method := range []string{"GET", "DELETE"} {
			if r := b.call(auth.RoleAdmin, method, "/clients/"+id).do(); r.StatusCode != 404 && r.StatusCode != 422 {
				t.Errorf("%s /clients/%s: %d %s", method, id, r.StatusCode, r.text)
			}
		}
	}
	for _, query := range []string{"limit=-1", "limit=0", "limit=1e9", "limit=99999999999999999999", "limit=x", "cursor=%00", "cursor=AAAA", "nope=1", "from=%00", "from=5&to=4",
		"order=up", "format=parquet", "agg=median", "topic=%00", "topic=%ff", "topic=a%2F%2Fb", "topic=%2B", "workspace=..%2F", "workspace=%00", "filter=a"} {
		r := b.call(auth.RoleViewer, "GET", "/uns/history?topic=a&"+query).do()
		if r.StatusCode != 422 {
			t.Errorf("%s: %d %s", query, r.StatusCode, r.text)
		}
	}
	// A tampered cursor is never taken for another place.
	var page exact
	b.get("/uns/history", "topic", "a", "limit", "1").wants(t, 200).into(t, &page)
	for i := range page.Next {
		torn := []byte(page.Next)
		if torn[i]++; torn[i] == 'Z'+1 || torn[i] == 'z'+1 || torn[i] == '9'+1 {
			torn[i] = 'A'
		}
		b.get("/uns/history", "topic", "a", "limit", "1", "cursor", string(torn)).refused(t, 422, "invalid", "cursor")
	}
	for _, route := range access {
		path, _, _ := strings.Cut(strings.Replace(route.path, "{id}", "nobody", 1), "?")
		r := b.call(auth.RoleAdmin, "OPTIONS", path).do()
		if r.refused(t, 405, "method_not_allowed", ""); !strings.Contains(r.Header.Get("Allow"), route.method) {
			t.Errorf("OPTIONS %s: Allow %q lacks %s", path, r.Header.Get("Allow"), route.method)
		}
	}
	if r := b.call(auth.RoleViewer, "HEAD", "/uns/history", "topic", "a").do().wants(t, 200); r.text != "" {
		t.Errorf("HEAD has a body: %s", r.text)
	}
	docs := b.outside("/docs")
	docs.client = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	if r := docs.do().wants(t, 302); r.Header.Get("Location") != "/api/v1/docs" {
		t.Errorf("/docs leads to %s", r.Header.Get("Location"))
	}
	b.call(auth.RoleDesigner, "DELETE", "/uns/topic", "topic", "a").do().wants(t, 204)
	b.call(auth.RoleDesigner, "DELETE", "/uns/topic", "topic", "a").do().refused(t, 404, "topic_not_found", "topic")
	b.call(auth.RoleDesigner, "DELETE", "/uns/topic", "topic", "b").do().refused(t, 404, "topic_not_found", "topic")
}

// Of many who change what they read at one moment exactly one wins; the others are told.
func TestConcurrentPatchesWithIfMatch(t *testing.T) {
	b := newBox(t)
	b.client("dev", "main")
	tag := b.call(auth.RoleAdmin, "GET", "/clients/dev").do().wants(t, 200).Header.Get("ETag")
	codes := make(chan int, 16)
	for range cap(codes) {
		go func() {
			r, err := b.call(auth.RoleAdmin, "PATCH", "/clients/dev").with("If-Match", tag).json(`{"enabled":false}`).try()
			if err != nil {
				t.Error(err)
				codes <- 0
				return
			}
			codes <- r.StatusCode
		}()
	}
	won := 0
	for range cap(codes) {
		switch code := <-codes; code {
		case 200:
			won++
		case 412:
		default:
			t.Errorf("status %d", code)
		}
	}
	if won != 1 {
		t.Errorf("%d changes won", won)
	}
}
