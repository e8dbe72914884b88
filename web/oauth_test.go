package web_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"millrace/auth"
	"millrace/web"
)

// failures bans after three.
type failures struct{ n map[string]int }

func (f *failures) SignInBanned(_, client string) bool { return f.n[client] >= 3 }
func (f *failures) SignInFailed(_, client string)      { f.n[client]++ }

type tokenAnswer struct {
	AccessToken string `json:"access_token"`
	TokenType   string `json:"token_type"`
	ExpiresIn   int64  `json:"expires_in"`
	Error       string `json:"error"`
	status      int
	header      http.Header
}

func (b *box) token(t *testing.T, user, password string, form url.Values) tokenAnswer {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, b.root+"/oauth/token", strings.NewReader(form.Encode()))
	must(t, err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if user != "" {
		req.SetBasicAuth(user, password)
	}
	res, err := http.DefaultClient.Do(req)
	must(t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	must(t, err)
	a := tokenAnswer{status: res.StatusCode, header: res.Header}
	if err := json.Unmarshal(text, &a); err != nil {
		t.Fatalf("%d %s", res.StatusCode, text)
	}
	if res.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("Cache-Control %q", res.Header.Get("Cache-Control"))
	}
	return a
}

func TestTokenEndpoint(t *testing.T) {
	guard := &failures{n: map[string]int{}}
	b := newBox(t, func(_ *web.Options, p *web.Parts) { p.SignIns = guard })
	secret := b.client("press1", "main", allow("line1/#", "publish", "subscribe"))
	odd := "a secret with % and + and ü!" // form-encoding changes it
	added, err := b.book.AddAll([]auth.NewClient{{ID: "odd", Secret: odd}})
	if err != nil || added[0].Err != nil {
		t.Fatal(err, added)
	}
	grant := url.Values{"grant_type": {"client_credentials"}}
	with := func(pairs ...string) url.Values {
		v := url.Values{"grant_type": {"client_credentials"}}
		for i := 0; i < len(pairs); i += 2 {
			v.Add(pairs[i], pairs[i+1])
		}
		return v
	}
	for _, tt := range []struct {
		name, user, password string
		form                 url.Values
		status               int
		fault                string
	}{
		{"basic", "press1", secret, grant, 200, ""},
		{"form", "", "", with("client_id", "press1", "client_secret", secret), 200, ""},
		{"basic and the same id in the form", "press1", secret, with("client_id", "press1"), 200, ""},
		{"a scope is let pass", "press1", secret, with("scope", "uns"), 200, ""},
		{"odd secret, plain", "odd", odd, grant, 200, ""},
		{"odd secret, form-encoded", "odd", url.QueryEscape(odd), grant, 200, ""},
		{"both", "press1", secret, with("client_secret", secret), 400, "invalid_request"},
		{"two ids", "press1", secret, with("client_id", "odd"), 400, "invalid_request"},
		{"a parameter twice", "press1", secret, with("scope", "a", "scope", "b"), 400, "invalid_request"},
		{"no grant type", "press1", secret, url.Values{}, 400, "invalid_request"},
		{"another grant type", "press1", secret, url.Values{"grant_type": {"password"}}, 400, "unsupported_grant_type"},
		{"wrong secret", "press1", "wrong", grant, 401, "invalid_client"},
		{"nobody", "", "", grant, 401, "invalid_client"},
		{"unknown", "nobody", secret, grant, 401, "invalid_client"},
		{"huge form", "press1", secret, with("x", strings.Repeat("y", 20<<10)), 400, "invalid_request"},
	} {
		a := b.token(t, tt.user, tt.password, tt.form)
		if a.status != tt.status || a.Error != tt.fault {
			t.Errorf("%s: %d %q, want %d %q", tt.name, a.status, a.Error, tt.status, tt.fault)
		}
		if tt.status == 200 && (a.AccessToken == "" || a.TokenType != "Bearer" || a.ExpiresIn != 3600) {
			t.Errorf("%s: %+v", tt.name, a)
		}
		if tt.status == 401 && (tt.user != "") != (a.header.Get("WWW-Authenticate") != "") {
			t.Errorf("%s: WWW-Authenticate %q", tt.name, a.header.Get("WWW-Authenticate"))
		}
	}

	// The token reads and publishes within the client's grants, and does nothing else.
	token := b.token(t, "press1", secret, grant).AccessToken
	bearer := func(method, path, body string) *ask {
		a := b.call("", method, path).with("Authorization", "Bearer "+token)
		a.body = body
		return a
	}
	if text := bearer("POST", "/uns/publish", `{"topic":"line1/a","value":1}`).do().wants(t, 200).text; !strings.Contains(text, "stored") {
		t.Errorf("publish: %s", text)
	}
	if text := bearer("POST", "/uns/publish", `{"topic":"line2/a","value":1}`).do().wants(t, 200).text; !strings.Contains(text, "not_authorized") {
		t.Errorf("publish elsewhere: %s", text)
	}
	bearer("GET", "/uns/latest", "").do().wants(t, 200)
	bearer("GET", "/clients", "").do().refused(t, 403, "not_authorized", "")
	bearer("GET", "/broker/sessions", "").do().refused(t, 403, "not_authorized", "")
	// It gets no further token.
	if a := b.token(t, "press1", token, grant); a.status != 401 {
		t.Errorf("a token for a token: %d", a.status)
	}

	// Guessing ends, here and for Basic.
	for range 5 {
		b.token(t, "press1", "guess", grant)
	}
	if a := b.token(t, "press1", secret, grant); a.status != 429 || a.header.Get("Retry-After") != "60" {
		t.Errorf("after the guesses: %d, Retry-After %q", a.status, a.header.Get("Retry-After"))
	}
	req, _ := http.NewRequest(http.MethodGet, b.root+"/api/v1/uns/latest", nil)
	req.SetBasicAuth("press1", secret)
	res, err := http.DefaultClient.Do(req)
	must(t, err)
	res.Body.Close()
	if res.StatusCode != 429 {
		t.Errorf("Basic after the guesses: %d", res.StatusCode)
	}
}

// What the key set shows verifies what the box signs, with nothing of ours in between.
func TestKeySet(t *testing.T) {
	b := newBox(t)
	secret := b.client("press1", "main")
	token := b.token(t, "press1", secret, url.Values{"grant_type": {"client_credentials"}}).AccessToken
	res, err := http.Get(b.root + "/.well-known/jwks.json")
	must(t, err)
	defer res.Body.Close()
	var set struct{ Keys []map[string]string }
	must(t, json.NewDecoder(res.Body).Decode(&set))
	if len(set.Keys) != 1 || set.Keys[0]["kty"] != "OKP" || set.Keys[0]["crv"] != "Ed25519" || set.Keys[0]["alg"] != "EdDSA" || len(set.Keys[0]) != 6 {
		t.Fatalf("keys %v", set.Keys)
	}
	x, err := base64.RawURLEncoding.DecodeString(set.Keys[0]["x"])
	must(t, err)
	at := strings.LastIndexByte(token, '.')
	signature, err := base64.RawURLEncoding.DecodeString(token[at+1:])
	must(t, err)
	if !ed25519.Verify(x, []byte(token[:at]), signature) {
		t.Error("the token does not verify by the key shown")
	}
}
