package web_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"millrace/auth"
)

func TestClientIsAddedShownChangedRotatedDeleted(t *testing.T) {
	b := newBox(t)
	r := b.call(auth.RoleAdmin, "POST", "/clients").json(`{"id":"press1","grants":[{"effect":"allow","actions":["publish","subscribe"],"filter":"line1/#"}]}`).do().wants(t, 201)
	var made struct{ ClientID, ClientSecret, Workspace string }
	var keys map[string]string
	r.into(t, &keys)
	made.ClientID, made.ClientSecret, made.Workspace = keys["client_id"], keys["client_secret"], keys["workspace"]
	if made.ClientID != "press1" || len(made.ClientSecret) < 22 || made.Workspace != "main" || len(keys) != 3 {
		t.Fatalf("credentials %v", keys)
	}
	if r.Header.Get("Location") != "/api/v1/clients/press1" {
		t.Errorf("Location %q", r.Header.Get("Location"))
	}
	if _, ok := b.book.SignIn("press1", []byte(made.ClientSecret)); !ok {
		t.Error("the secret shown does not sign in")
	}
	if p := b.call(auth.RoleAdmin, "POST", "/clients").json(`{"id":"press1"}`).do().refused(t, 409, "client_exists", ""); !strings.Contains(p.Detail, `"press1"`) {
		t.Errorf("the problem does not name the client: %s", p.Detail)
	}
	b.call(auth.RoleAdmin, "POST", "/clients").json(`{"id":"no spaces"}`).do().refused(t, 422, "invalid", "id")
	b.call(auth.RoleAdmin, "POST", "/clients").json(`{"id":"p2","grants":[{"effect":"allow","actions":["publish"],"filter":"a/#/b"}]}`).do().refused(t, 422, "invalid", "grants[0].filter")
	b.call(auth.RoleAdmin, "POST", "/clients").json(`{"id":"p2","colour":"red"}`).do().refused(t, 422, "invalid", "colour")
	b.call(auth.RoleAdmin, "POST", "/clients").json(`{"id":`).do().refused(t, 400, "malformed", "body")

	shown := b.call(auth.RoleAdmin, "GET", "/clients/press1").do().wants(t, 200)
	tag := shown.Header.Get("ETag")
	if tag == "" || strings.Contains(shown.text, made.ClientSecret) {
		t.Fatalf("ETag %q, body %s", tag, shown.text)
	}
	patched := b.call(auth.RoleAdmin, "PATCH", "/clients/press1").with("If-Match", tag).json(`{"description":"the press"}`).do().wants(t, 200)
	if patched.Header.Get("ETag") == tag {
		t.Error("a change must change the ETag")
	}
	b.call(auth.RoleAdmin, "PATCH", "/clients/press1").with("If-Match", tag).json(`{"enabled":false}`).do().refused(t, 412, "changed_meanwhile", "")
	var c auth.Client
	b.call(auth.RoleAdmin, "PATCH", "/clients/press1").with("If-Match", "*").json(`{"grants":null,"description":null}`).do().wants(t, 200).into(t, &c)
	if len(c.Grants) != 0 || c.Description != "" || !c.Enabled {
		t.Errorf("null must clear, absent must not: %+v", c)
	}
	b.call(auth.RoleAdmin, "PATCH", "/clients/press1").json(`{"id":"other"}`).do().refused(t, 422, "invalid", "id")
	b.call(auth.RoleAdmin, "PATCH", "/clients/press1").json(`{"enabled":null}`).do().refused(t, 422, "invalid", "enabled")
	b.call(auth.RoleAdmin, "PATCH", "/clients/press1").json(`{"enabled":"yes"}`).do().refused(t, 422, "invalid", "enabled")
	b.call(auth.RoleAdmin, "PATCH", "/clients/press1").json(`[1]`).do().refused(t, 400, "malformed", "")

	var rotated map[string]string
	b.call(auth.RoleAdmin, "POST", "/clients/press1/rotate").do().wants(t, 200).into(t, &rotated)
	if _, ok := b.book.SignIn("press1", []byte(made.ClientSecret)); ok {
		t.Error("the old secret still signs in")
	}
	if _, ok := b.book.SignIn("press1", []byte(rotated["client_secret"])); !ok {
		t.Error("the new secret does not sign in")
	}
	own := strings.Repeat("x", 24)
	b.call(auth.RoleAdmin, "POST", "/clients/press1/rotate").json(`{"secret":"`+own+`"}`).do().wants(t, 200).into(t, &rotated)
	if rotated["client_secret"] != own {
		t.Errorf("supplied secret came back as %q", rotated["client_secret"])
	}
	b.call(auth.RoleAdmin, "POST", "/clients/press1/rotate").json(`{"secret":"short"}`).do().refused(t, 422, "invalid", "secret")

	b.call(auth.RoleAdmin, "DELETE", "/clients/press1").do().wants(t, 204)
	for _, call := range []*ask{
		b.call(auth.RoleAdmin, "GET", "/clients/press1"), b.call(auth.RoleAdmin, "DELETE", "/clients/press1"),
		b.call(auth.RoleAdmin, "POST", "/clients/press1/rotate"), b.call(auth.RoleAdmin, "PATCH", "/clients/press1").json(`{"enabled":true}`),
	} {
		call.do().refused(t, 404, "client_not_found", "")
	}
}

func TestBulkAddsAllOrNone(t *testing.T) {
	b := newBox(t)
	var lines strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&lines, `{"id":"dev%d","grants":[{"effect":"allow","actions":["publish"],"filter":"d/%d/#"}]}`+"\n", i, i)
	}
	r := b.call(auth.RoleAdmin, "POST", "/clients/bulk").with("Content-Type", "application/x-ndjson")
	r.body = lines.String()
	got := r.do().wants(t, 200)
	scan := bufio.NewScanner(strings.NewReader(got.text))
	n := 0
	for ; scan.Scan(); n++ {
		var c map[string]string
		must(t, json.Unmarshal(scan.Bytes(), &c))
		if c["client_id"] != fmt.Sprintf("dev%d", n) {
			t.Fatalf("line %d is of %s", n+1, c["client_id"])
		}
		if _, ok := b.book.SignIn(c["client_id"], []byte(c["client_secret"])); !ok {
			t.Fatalf("secret of %s does not sign in", c["client_id"])
		}
	}
	if n != 1000 || got.Header.Get("Content-Type") != "application/x-ndjson" {
		t.Fatalf("%d results, type %s", n, got.Header.Get("Content-Type"))
	}

	bad := b.call(auth.RoleAdmin, "POST", "/clients/bulk")
	bad.body = `{"id":"new1"}` + "\n\n" + `{"id":"dev7"}` + "\n" + `{"id":"bad id"}` + "\n"
	p := bad.do().refused(t, 422, "bulk_refused", "")
	if len(p.Lines) != 2 || p.Lines[0].Line != 3 || p.Lines[0].Code != "client_exists" || p.Lines[1].Line != 4 || p.Lines[1].Field != "id" {
		t.Fatalf("lines %+v", p.Lines)
	}
	if _, err := b.book.Client("new1"); err == nil {
		t.Error("a refused request created a client")
	}
	broken := b.call(auth.RoleAdmin, "POST", "/clients/bulk")
	broken.body = `{"id":"new1"}` + "\n" + `{"id":` + "\n" + `{"id":"x","nope":1}`
	if p := broken.do().refused(t, 422, "bulk_refused", ""); len(p.Lines) != 2 || p.Lines[0].Line != 2 || p.Lines[1].Line != 3 {
		t.Fatalf("lines %+v", p.Lines)
	}
	every := b.call(auth.RoleAdmin, "POST", "/clients/bulk")
	every.body = strings.Join([]string{`{"id":"new1"}`, `{"id":`, `{"id":"x","nope":1}`, `{"id":"dev7"}`, `{"id":"new1"}`, `{"id":"bad id"}`, `{"id":"y","id":"z"}`, `{"id":"q"}}`, "\xff", `[]`}, "\n")
	var named []int
	for _, l := range every.do().refused(t, 422, "bulk_refused", "").Lines {
		named = append(named, l.Line)
	}
	if fmt.Sprint(named) != "[2 3 4 5 6 7 8 9 10]" {
		t.Errorf("lines at fault: %v", named)
	}
	if _, err := b.book.Client("new1"); err == nil {
		t.Error("a refused request created a client")
	}
	array := b.call(auth.RoleAdmin, "POST", "/clients/bulk").json(`[{"id":"new1"},{"id":"new2"}]`).do().wants(t, 200)
	if strings.Count(array.text, "\n") != 2 {
		t.Errorf("array answer %q", array.text)
	}
	b.call(auth.RoleAdmin, "POST", "/clients/bulk").json(` `).do().refused(t, 422, "invalid", "body")
}

func TestCheckNamesTheGrantThatDecides(t *testing.T) {
	b := newBox(t)
	deny := auth.Grant{Effect: "deny", Actions: []auth.Action{"publish"}, Filter: "line1/secret/#"}
	plain := auth.Grant{Effect: "allow", Actions: []auth.Action{"subscribe"}, Filter: "plain/#", Scope: "mqtt"}
	b.client("dev", "main", allow("line1/#", "publish", "subscribe"), deny, plain, allow("own/${client}", "publish"))
	for _, test := range []struct{ body, filter, why string }{
		{`{"topic":"line1/temp","action":"publish"}`, "+line1/#", "allowed by line1/#"},
		{`{"topic":"mHv1.0/main/line1/temp","action":"subscribe"}`, "+line1/#", "allowed by"},
		{`{"topic":"mHv1.0/main/_ingress/dev/line1/temp","action":"publish"}`, "+line1/#", "allowed by"},
		{`{"topic":"mHv1.0/main/_ingress/other/line1/temp","action":"publish"}`, "", "belongs to client"},
		{`{"topic":"mHv1.0/plant2/line1/temp","action":"publish"}`, "", "workspace"},
		{`{"topic":"mHv1.0/main/_verdict/dev/x","action":"subscribe"}`, "+", "own verdicts"},
		{`{"topic":"mHv1.0/main/_verdict/dev/x","action":"publish"}`, "", "only the box"},
		{`{"topic":"line1/secret/a","action":"publish"}`, "-line1/secret/#", "denied by line1/secret/#"},
		{`{"topic":"line1/secret/a","action":"subscribe"}`, "+line1/#", "allowed by"},
		{`{"topic":"line2","action":"publish"}`, "", "no grant covers"},
		{`{"topic":"plain/x","action":"subscribe"}`, "", "no grant covers"},
		{`{"topic":"plain/x","action":"subscribe","scope":"mqtt"}`, "+plain/#", "allowed by plain/#"},
		{`{"topic":"plain/#","action":"subscribe","scope":"mqtt"}`, "", "not a topic name"},
		{`{"topic":"own/dev","action":"publish"}`, "+own/${client}", "allowed by"},
		{`{"topic":"own/other","action":"publish"}`, "", "no grant covers"},
	} {
		var a struct {
			Allowed bool
			Grant   *auth.Grant
			Why     string
		}
		b.call(auth.RoleAdmin, "POST", "/clients/dev/check").json(test.body).do().wants(t, 200).into(t, &a)
		got := ""
		if a.Grant != nil {
			got = a.Grant.Filter
		}
		if a.Allowed != strings.HasPrefix(test.filter, "+") || got != strings.TrimLeft(test.filter, "+-") || !strings.Contains(a.Why, test.why) {
			t.Errorf("%s: allowed %v by %q, %s", test.body, a.Allowed, got, a.Why)
		}
	}
	b.call(auth.RoleAdmin, "POST", "/clients/dev/check").json(`{"topic":"a","action":"fly"}`).do().refused(t, 422, "invalid", "action")
	off := false
	_, err := b.book.Patch("dev", auth.Patch{Enabled: &off})
	must(t, err)
	if got := b.call(auth.RoleAdmin, "POST", "/clients/dev/check").json(`{"topic":"line1/temp","action":"publish"}`).do().wants(t, 200).text; !strings.Contains(got, `"allowed":false`) || !strings.Contains(got, "disabled") {
		t.Errorf("a disabled client: %s", got)
	}
}

func TestMe(t *testing.T) {
	b := newBox(t)
	secret := b.client("dev", "plant2", allow("a", "publish"))
	if got := b.get("/me").wants(t, 200).text; !strings.Contains(got, `"user":"viewer"`) || !strings.Contains(got, `"role":"viewer"`) {
		t.Errorf("a person: %s", got)
	}
	if got := b.call("", "GET", "/me").as("dev", secret).do().wants(t, 200).text; !strings.Contains(got, `"client":"dev"`) || !strings.Contains(got, `"workspace":"plant2"`) || strings.Contains(got, `"role"`) {
		t.Errorf("a client: %s", got)
	}
}

// Of many who change what they have read, one wins and the others are told; no change is lost.
func TestOneOfManyPatchesWithTheSameETagWins(t *testing.T) {
	b := newBox(t)
	b.client("there", "main")
	tag := b.call(auth.RoleAdmin, "GET", "/clients/there").do().wants(t, 200).Header.Get("ETag")
	var all sync.WaitGroup
	var won, lost atomic.Int64
	patch := func(match string, i int) int {
		r, err := b.call(auth.RoleAdmin, "PATCH", "/clients/there").with("If-Match", match).json(fmt.Sprintf(`{"description":"%s %d"}`, strings.Trim(match, `"`), i)).try()
		if err != nil {
			t.Error(err)
			return 0
		}
		return r.StatusCode
	}
	for i := range 24 {
		all.Go(func() {
			switch patch(tag, i) {
			case 200:
				won.Add(1)
			case 412:
				lost.Add(1)
			}
		})
	}
	all.Wait()
	if won.Load() != 1 || lost.Load() != 23 {
		t.Errorf("%d won, %d were told", won.Load(), lost.Load())
	}
	for i := range 24 { // * asks only that the client be there; often enough that two meet between reading and writing
		all.Go(func() {
			for n := range 40 {
				if status := patch("*", 100*i+n); status != 200 {
					t.Errorf("If-Match: * answered %d", status)
				}
			}
		})
	}
	all.Wait()
	b.call(auth.RoleAdmin, "PATCH", "/clients/there").with("If-Match", `W/"1"`).json(`{}`).do().refused(t, 412, "changed_meanwhile", "")
}
