package web_test

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"millrace/auth"
	"millrace/web"
)

// cookieOf is the session cookie of an answer.
func cookieOf(t *testing.T, r reply) *http.Cookie {
	t.Helper()
	for _, c := range r.Cookies() {
		if c.Name == "millrace_session" {
			return c
		}
	}
	t.Fatalf("no cookie in %v", r.Header)
	return nil
}

func TestSignInAndOut(t *testing.T) {
	b := newBox(t)
	_, err := b.book.AddUser(context.Background(), auth.NewUser{Name: "Anna", Role: auth.RoleAdmin, Password: goodPassword})
	must(t, err)
	in := func(name, password string) *ask {
		return b.call("", "POST", "/session").json(`{"username":` + strconv.Quote(name) + `,"password":` + strconv.Quote(password) + `}`)
	}
	for _, wrong := range [][2]string{{"anna", "wrong"}, {"nobody", goodPassword}, {"", ""}, {"anna", strings.Repeat("x", 5000)}} {
		in(wrong[0], wrong[1]).do().refused(t, 401, "bad_credentials", "")
	}
	r := in("anna", goodPassword).do().wants(t, 200)
	var got web.SignedIn
	r.into(t, &got)
	cookie := cookieOf(t, r)
	if got.User != "Anna" || got.Role != auth.RoleAdmin || got.CSRF == "" || strings.Contains(r.text, cookie.Value) {
		t.Errorf("answer %s", r.text)
	}
	if !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode || cookie.Secure || cookie.Path != "/" || cookie.MaxAge != 7*24*3600 || cookie.Domain != "" {
		t.Errorf("cookie %+v", cookie)
	}
	if proxied := cookieOf(t, in("anna", goodPassword).with("X-Forwarded-Proto", "https").do()); !proxied.Secure {
		t.Error("the cookie may leave HTTPS")
	}
	s := auth.SignedIn{Cookie: cookie.Value, CSRF: got.CSRF}
	var me web.Me
	b.call("", "GET", "/me").with("Cookie", "millrace_session="+cookie.Value).do().wants(t, 200).into(t, &me)
	if me.User != "Anna" || me.CSRF != got.CSRF || !me.Permissions.Administer {
		t.Errorf("me %+v", me)
	}
	add := func() *ask { return b.call("", "POST", "/clients").json(`{"id":"p1"}`).session(s) }
	for _, bad := range []string{"", "x", got.CSRF + "0"} {
		add().with("X-CSRF-Token", bad).do().refused(t, 403, "csrf", "")
	}
	for _, origin := range []string{"http://evil.example", "null", b.root + "0", "http://127.0.0.1", "https://127.0.0.1"} {
		add().with("Origin", origin).do().refused(t, 403, "foreign_origin", "")
	}
	add().do().wants(t, 201)
	in("anna", goodPassword).with("Origin", "http://evil.example").do().refused(t, 403, "foreign_origin", "")

	out := b.call("", "DELETE", "/session").session(s).do().wants(t, 204)
	if gone := cookieOf(t, out); gone.Value != "" || gone.MaxAge >= 0 {
		t.Errorf("cookie %+v", gone)
	}
	b.call("", "GET", "/me").session(s).do().refused(t, 401, "unauthenticated", "")
	b.call("", "DELETE", "/session").do().wants(t, 204)
}

// Guessing is answered with 429 and the time to wait; the owner, elsewhere, signs in.
func TestGuessingWaits(t *testing.T) {
	b := newBox(t)
	b.signedIn("anna", auth.RoleViewer)
	guess := func() reply {
		return b.call("", "POST", "/session").json(`{"username":"anna","password":"a guess"}`).do()
	}
	for range 5 {
		guess().refused(t, 401, "bad_credentials", "")
	}
	for range 3 {
		r := guess()
		r.refused(t, 429, "too_many_failures", "")
		if r.Header.Get("Retry-After") != "2" {
			t.Errorf("Retry-After %q", r.Header.Get("Retry-After"))
		}
	}
	if _, err := b.book.SignInUser(context.Background(), "anna", goodPassword, "192.0.2.9:1"); err != nil {
		t.Errorf("the owner elsewhere: %v", err)
	}
	b.clock.add(2 * time.Second)
	guess().refused(t, 401, "bad_credentials", "")
}

// What a session may do ends with what is changed about its user, with the very answer that says so.
func TestUserChangesEndSessions(t *testing.T) {
	b := newBox(t)
	b.signedIn("root", auth.RoleAdmin)
	for name, change := range map[string]func(a *ask) *ask{
		"role":     func(a *ask) *ask { a.method = "PATCH"; return a.json(`{"role":"viewer"}`) },
		"enabled":  func(a *ask) *ask { a.method = "PATCH"; return a.json(`{"enabled":false}`) },
		"password": func(a *ask) *ask { a.method = "PATCH"; return a.json(`{"password":"quite another one"}`) },
		"gone":     func(a *ask) *ask { a.method = "DELETE"; return a },
	} {
		s := b.signedIn(name, auth.RoleOperator)
		b.call("", "GET", "/uns/latest").session(s).do().wants(t, 200)
		if r := change(b.call(auth.RoleAdmin, "", "/users/"+name)).do(); r.StatusCode >= 300 {
			t.Fatalf("%s: %d %s", name, r.StatusCode, r.text)
		}
		b.call("", "GET", "/uns/latest").session(s).do().refused(t, 401, "unauthenticated", "")
	}
	b.call(auth.RoleAdmin, "PATCH", "/users/root").json(`{"enabled":false}`).do().refused(t, 409, "last_admin", "")
	b.call(auth.RoleAdmin, "DELETE", "/users/root").do().refused(t, 409, "last_admin", "")
	// One's own password: the old one is asked for, other sessions end, this one goes on.
	s := b.signedIn("bert", auth.RoleViewer)
	other, err := b.book.SignInUser(context.Background(), "bert", goodPassword, "127.0.0.1:2")
	must(t, err)
	b.call("", "POST", "/me/password").json(`{"current":"wrong","password":"quite another one"}`).session(s).do().refused(t, 401, "bad_credentials", "")
	r := b.call("", "POST", "/me/password").json(`{"current":"`+goodPassword+`","password":"quite another one"}`).session(s).do().wants(t, 200)
	b.call("", "GET", "/me").session(s).do().refused(t, 401, "unauthenticated", "")
	b.call("", "GET", "/me").session(other).do().refused(t, 401, "unauthenticated", "")
	b.call("", "GET", "/me").session(auth.SignedIn{Cookie: cookieOf(t, r).Value}).do().wants(t, 200)
	b.call(auth.RoleViewer, "POST", "/me/password").json(`{"current":"x","password":"quite another one"}`).do().refused(t, 409, "no_session", "")
}

func TestSetUpByREST(t *testing.T) {
	b := newBox(t)
	token := b.book.SetUpToken()
	b.call("", "GET", "/setup").do().wants(t, 200)
	b.call("", "POST", "/setup").json(`{"token":"x","password":"`+goodPassword+`","plant":"Mill 3"}`).do().refused(t, 403, "wrong_token", "")
	b.call("", "POST", "/setup").json(`{"token":"`+token+`","password":"12345678","plant":"Mill 3"}`).do().refused(t, 422, "invalid", "password")
	r := b.call("", "POST", "/setup").json(`{"token":"`+token+`","password":"`+goodPassword+`","plant":"Mill 3"}`).do().wants(t, 200)
	var got web.SignedIn
	r.into(t, &got)
	if got.User != "admin" || got.Role != auth.RoleAdmin || got.Plant != "Mill 3" || cookieOf(t, r).Value == "" {
		t.Errorf("answer %s", r.text)
	}
	b.call("", "POST", "/setup").json(`{"token":"`+token+`","password":"`+goodPassword+`","plant":"Mill 3"}`).do().refused(t, 404, "set_up_done", "")
	if text := b.call("", "GET", "/setup").do().wants(t, 200).text; !strings.Contains(text, `"done":true`) {
		t.Errorf("state %s", text)
	}
}

// A token's scopes bound it; whoever makes one gives no more than they have; people see and end their own.
func TestTokenScopes(t *testing.T) {
	b := newBox(t)
	anna, bert := b.signedIn("anna", auth.RoleOperator), b.signedIn("bert", auth.RoleDesigner)
	makes := func(s auth.SignedIn, body string) *ask {
		return b.call("", "POST", "/me/tokens").json(body).session(s)
	}
	for _, tc := range []struct {
		body   string
		role   auth.Role
		scopes string
	}{
		{`{"name":"x"}`, auth.RoleViewer, "read"},
		{`{"name":"x","scopes":["operate"]}`, auth.RoleOperator, "read operate"},
		{`{"name":"x","scopes":["read","metrics"]}`, auth.RoleViewer, "read metrics"},
		{`{"name":"x","scopes":["metrics"],"ttl":"90d"}`, "", "metrics"},
		{`{"name":"x","scopes":["viewer"]}`, auth.RoleViewer, "read"},
	} {
		var made web.NewToken
		makes(anna, tc.body).do().wants(t, 201).into(t, &made)
		if made.Role != tc.role || strings.Join(made.Scopes, " ") != tc.scopes || made.User != "anna" || made.Token == "" {
			t.Errorf("%s: %+v", tc.body, made)
		}
		status := 200
		if tc.role == "" {
			status = 403
		}
		b.call("", "GET", "/uns/latest").with("Authorization", "Bearer "+made.Token).do().wants(t, status)
		scrape := b.call("", "GET", "").with("Authorization", "Bearer "+made.Token).with("X-Forwarded-For", "192.0.2.1")
		scrape.path = "/metrics"
		scrape.do().wants(t, 200) // a viewer reads everything
		b.call(auth.RoleAdmin, "DELETE", "/me/tokens/"+made.ID).do().wants(t, 204)
		b.call("", "GET", "/uns/latest").with("Authorization", "Bearer "+made.Token).do().refused(t, 401, "bad_credentials", "")
	}
	makes(anna, `{"name":"x","scopes":["design"]}`).do().refused(t, 422, "invalid", "scopes")
	makes(anna, `{"name":"x","role":"admin"}`).do().refused(t, 422, "invalid", "role")
	makes(anna, `{"name":"x","scopes":["everything"]}`).do().refused(t, 422, "invalid", "scopes")
	makes(anna, `{"name":"x","role":"viewer","scopes":["read"]}`).do().refused(t, 422, "invalid", "role")
	var his web.NewToken
	makes(bert, `{"name":"his","scopes":["design"]}`).do().wants(t, 201).into(t, &his)
	list := func(a *ask) string { return a.do().wants(t, 200).text }
	if text := list(b.call("", "GET", "/me/tokens").session(anna)); strings.Contains(text, his.ID) {
		t.Errorf("anna sees %s", text)
	}
	b.call("", "DELETE", "/me/tokens/"+his.ID).session(anna).do().refused(t, 404, "token_not_found", "")
	if text := list(b.call("", "GET", "/me/tokens").session(bert)); !strings.Contains(text, his.ID) || strings.Contains(text, his.Token) {
		t.Errorf("bert sees %s", text)
	}
	if text := list(b.call(auth.RoleAdmin, "GET", "/me/tokens", "all", "true")); !strings.Contains(text, his.ID) {
		t.Errorf("an administrator sees %s", text)
	}
	b.call("", "POST", "/me/tokens").json(`{"name":"x"}`).with("Authorization", "Bearer "+his.Token).do().refused(t, 403, "not_authorized", "")
	b.call("", "DELETE", "/me/tokens/"+his.ID).session(bert).do().wants(t, 204)
}

// Whatever an administrator changes is in the audit log, whichever route it went by: a new route that forgets it fails here.
func TestEveryChangeIsAudited(t *testing.T) {
	b := newBox(t)
	b.put("main", "a", "1")
	b.client("there", "main")
	b.signedIn("there", auth.RoleViewer)
	silent := map[string]string{
		"POST /clients/{id}/check": "changes nothing", "POST /uns/publish": "values are in the history", "POST /setup": "done already",
		"POST /pipelines/validate": "changes nothing", "POST /pipelines/{id}/test": "changes nothing",
		"POST /hooks/{id}/{path}": "runs are in their history",
	}
	for _, route := range access {
		name := route.method + " " + route.path
		if route.method == "GET" {
			continue
		}
		id := "there"
		switch {
		case strings.HasPrefix(route.path, "/me/tokens/"):
			made, _, err := b.book.MakeToken(auth.NewToken{Name: "x", Role: auth.RoleViewer})
			must(t, err)
			id = made.ID
		case strings.HasPrefix(route.path, "/keys/signing/"):
			must(t, b.book.RotateSigning())
			id = b.book.PublicKeys()[0].KID
		case strings.HasPrefix(route.path, "/broker"):
			id = "a%2Fb%20c"
		case strings.HasPrefix(route.path, "/pipelines/"):
			b.pipeline("there", true)
		case strings.HasPrefix(route.path, "/runs/"):
			id = b.aRun("there", strings.HasSuffix(route.path, "/cancel"))
		}
		body := strings.ReplaceAll(route.body, "{id}", id)
		switch route.path {
		case "/clients/{id}":
			body = `{"description":"` + "another" + `"}`
		case "/users/{name}":
			body = `{"role":"operator"}`
		case "/session":
			body = `{"username":"root","password":"` + goodPassword + `"}`
		}
		if route.method == "DELETE" {
			body = ""
		}
		if _, err := b.book.Client("there"); err != nil { // deleted on the way
			b.client("there", "main")
		}
		root := b.signedIn("root", auth.RoleAdmin)
		before, _ := b.book.Verify()
		a := b.call("", route.method, strings.NewReplacer("{id}", id, "{name}", id, "{kid}", id, "{version}", "1", "{a}", "1", "{b}", "draft", "{path}", "in").Replace(route.path)).session(root)
		if a.body = body; body != "" {
			a.with("Content-Type", "application/json")
		}
		r := a.do()
		after, _ := b.book.Verify()
		switch why, ok := silent[name]; {
		case ok && after.Last != before.Last:
			t.Errorf("%s is said to be silent (%s) and is not", name, why)
		case !ok && (after.Last == before.Last || r.StatusCode >= 300):
			t.Errorf("%s: %d, %d entries", name, r.StatusCode, after.Last-before.Last)
		case !ok && strings.HasPrefix(name, "PATCH"):
			text := b.call(auth.RoleAdmin, "GET", "/audit", "limit", "1").do().wants(t, 200).text
			if !strings.Contains(text, `"name":"root"`) || !strings.Contains(text, `"before":`) || !strings.Contains(text, `"address":"127.0.0.1:`) {
				t.Errorf("%s is audited as %s", name, text)
			}
		}
	}
}

func TestAuditByREST(t *testing.T) {
	b := newBox(t)
	for i := range 5 {
		b.call(auth.RoleAdmin, "POST", "/clients").json(`{"id":"p`+strconv.Itoa(i)+`"}`).do().wants(t, 201)
	}
	type page struct {
		Entries []auth.Entry
		Next    string
	}
	seen, cursor := 0, ""
	for {
		var p page
		b.call(auth.RoleAdmin, "GET", "/audit", "limit", "2", "category", "client", "cursor", cursor).do().wants(t, 200).into(t, &p)
		for _, e := range p.Entries {
			if want := "p" + strconv.Itoa(4-seen); e.ID != want || e.By.Kind != auth.ByToken || e.By.Token == "" {
				t.Errorf("entry %+v, want %s", e, want)
			}
			seen++
		}
		if cursor = p.Next; cursor == "" {
			break
		}
	}
	if seen != 5 {
		t.Errorf("%d entries", seen)
	}
	b.call(auth.RoleAdmin, "GET", "/audit", "from", "soon").do().refused(t, 422, "invalid", "from")
	b.call(auth.RoleAdmin, "GET", "/audit", "cursor", "-").do().refused(t, 422, "invalid", "cursor")
	var v auth.Verified
	b.call(auth.RoleAdmin, "GET", "/audit/verify").do().wants(t, 200).into(t, &v)
	if !v.OK || v.Last < 9 || v.Hash == "" { // four tokens of the box, five clients
		t.Errorf("verified %+v", v)
	}
	b.call(auth.RoleAdmin, "GET", "/audit/verify", "expect", strconv.FormatUint(v.Last, 10)+":"+v.Hash).do().wants(t, 200).into(t, &v)
	if !v.OK {
		t.Errorf("verified %+v", v)
	}
	b.call(auth.RoleAdmin, "GET", "/audit/verify", "expect", "x").do().refused(t, 422, "invalid", "expect")
	// Being refused leaves a trace, too.
	b.call(auth.RoleViewer, "GET", "/audit").do().refused(t, 403, "not_authorized", "")
	must(t, b.book.Tidy())
	if text := b.call(auth.RoleAdmin, "GET", "/audit", "category", "access").do().wants(t, 200).text; !strings.Contains(text, `"id":"list-audit","result":"refused"`) {
		t.Errorf("no trace: %s", text)
	}
}
