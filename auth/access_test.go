package auth_test

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"millrace/auth"
)

// tokenBox is a Book on a clock that only the test moves, with two clients.
type tokenBox struct {
	*auth.Book
	t       *testing.T
	now     time.Time
	records *records
	secrets map[string]string
}

func openTokens(t *testing.T) *tokenBox {
	t.Helper()
	x := &tokenBox{t: t, now: time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC), records: newRecords(), secrets: map[string]string{}}
	x.open()
	for _, id := range []string{"dev1", "dev2"} {
		x.secrets[id] = add(t, x.Book, id)
	}
	return x
}

func (x *tokenBox) open() {
	x.t.Helper()
	o := auth.DefaultOptions()
	o.Now = func() time.Time { return x.now }
	var err error
	if x.Book, err = auth.Open(x.records, o); err != nil {
		x.t.Fatal(err)
	}
}

func (x *tokenBox) issue(id string) string {
	x.t.Helper()
	p, ok := x.SignIn(id, []byte(x.secrets[id]))
	if !ok {
		x.t.Fatalf("%s cannot sign in", id)
	}
	text, ttl, err := x.Issue(p)
	if err != nil || ttl != time.Hour {
		x.t.Fatal(err, ttl)
	}
	return text
}

// takes says whether a token is good, on both ways in, which must agree.
func (x *tokenBox) takes(id, token string) bool {
	x.t.Helper()
	p, until, ok := x.Admit(id, []byte(token))
	c, bearer := x.Bearer(token)
	if ok != bearer {
		x.t.Fatalf("MQTT says %v, REST says %v", ok, bearer)
	}
	if !ok {
		return false
	}
	if p.ID() != id || c.Principal != p || c.Role != "" || !until.After(x.now) {
		x.t.Fatalf("principal %s, caller %+v, until %v", p.ID(), c, until)
	}
	return true
}

func b64(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }

func part(t *testing.T, token string, i int) map[string]any {
	t.Helper()
	text, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[i])
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(text, &m); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestAccessToken(t *testing.T) {
	x := openTokens(t)
	token := x.issue("dev1")
	if h := part(t, token, 0); h["alg"] != "EdDSA" || h["kid"] != x.PublicKeys()[0].KID {
		t.Errorf("header %v", h)
	}
	claims := part(t, token, 1)
	if claims["sub"] != "dev1" || claims["exp"] != float64(x.now.Add(time.Hour).Unix()) || claims["iss"] != "millrace" {
		t.Errorf("claims %v", claims)
	}
	if text := fmt.Sprint(claims); strings.Contains(text, x.secrets["dev1"]) {
		t.Error("the secret is in the token")
	}
	if !x.takes("dev1", token) {
		t.Fatal("a fresh token is refused")
	}
	_, until, _ := x.Admit("dev1", []byte(token))
	if !until.Equal(x.now.Add(time.Hour)) {
		t.Errorf("until %v", until)
	}
	if _, until, ok := x.Admit("dev1", []byte(x.secrets["dev1"])); !ok || !until.IsZero() {
		t.Errorf("by secret: %v, until %v", ok, until)
	}
	if _, _, ok := x.Admit("dev2", []byte(token)); ok {
		t.Error("another's token signs in")
	}
	x.now = x.now.Add(time.Hour)
	if x.takes("dev1", token) {
		t.Error("an ended token is taken")
	}
}

// A token is worth what its client is worth now.
func TestAccessTokenEndsWithItsSecret(t *testing.T) {
	off, on := false, true
	for name, end := range map[string]func(*tokenBox) error{
		"rotated":  func(x *tokenBox) error { _, err := x.Rotate("dev1", ""); return err },
		"disabled": func(x *tokenBox) error { _, err := x.Patch("dev1", auth.Patch{Enabled: &off}); return err },
		"deleted":  func(x *tokenBox) error { return x.Delete("dev1") },
		"deleted and made anew": func(x *tokenBox) error {
			if err := x.Delete("dev1"); err != nil {
				return err
			}
			_, err := x.AddAll([]auth.NewClient{{ID: "dev1"}})
			return err
		},
		"key removed": func(x *tokenBox) error { return x.RemoveSigning(x.PublicKeys()[0].KID) },
		"closed":      func(x *tokenBox) error { return x.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			x := openTokens(t)
			token := x.issue("dev1")
			if err := end(x); err != nil {
				t.Fatal(err)
			}
			if x.takes("dev1", token) {
				t.Error("the token is still taken")
			}
			if name != "closed" {
				x.open()
				if x.takes("dev1", token) {
					t.Error("taken after a restart")
				}
			}
			if name == "disabled" {
				if _, err := x.Patch("dev1", auth.Patch{Enabled: &on}); err != nil || !x.takes("dev1", token) {
					t.Error("enabled again, the token should be good again")
				}
			}
		})
	}
	x := openTokens(t)
	p, _ := x.SignIn("dev1", []byte(x.secrets["dev1"]))
	if _, err := x.Rotate("dev1", ""); err != nil {
		t.Fatal(err)
	}
	if _, _, err := x.Issue(p); err == nil {
		t.Error("a token for a sign-in that has ended")
	}
}

func TestSigningKeysOverlap(t *testing.T) {
	x := openTokens(t)
	first := x.issue("dev1")
	x.open()
	if !x.takes("dev1", first) {
		t.Fatal("a restart voids tokens")
	}
	if err := x.RotateSigning(); err != nil {
		t.Fatal(err)
	}
	second := x.issue("dev1")
	if part(t, first, 0)["kid"] == part(t, second, 0)["kid"] {
		t.Fatal("the old key still signs")
	}
	if !x.takes("dev1", first) || !x.takes("dev1", second) || len(x.PublicKeys()) != 2 {
		t.Error("no overlap")
	}
	if keys := x.PublicKeys(); len(keys[0].Key) != ed25519.PublicKeySize || keys[0].Signs == keys[1].Signs {
		t.Errorf("keys %+v", keys)
	}
	x.now = x.now.Add(25 * time.Hour)
	if n := len(x.PublicKeys()); n != 1 {
		t.Errorf("%d keys after the overlap", n)
	}
	x.now = x.now.Add(31 * 24 * time.Hour) // due: the next token brings a new key, and what is over is cleared out
	x.issue("dev1")
	if n := len(x.PublicKeys()); n != 2 {
		t.Errorf("%d keys after a month", n)
	}
	x.open()
	if n := len(x.PublicKeys()); n != 2 {
		t.Errorf("%d keys after a restart", n)
	}
}

// Fault table 25: what has fooled others.
func TestTokenAttacks(t *testing.T) {
	x := openTokens(t)
	good := x.issue("dev1")
	parts := strings.Split(good, ".")
	key := x.PublicKeys()[0]
	header := func(alg, kid string) string { return b64(fmt.Sprintf(`{"alg":%q,"typ":"JWT","kid":%q}`, alg, kid)) }
	hs256 := func(secret []byte) string {
		text := header("HS256", key.KID) + "." + parts[1]
		mac := hmac.New(sha256.New, secret)
		mac.Write([]byte(text))
		return text + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
	}
	_, stranger, _ := ed25519.GenerateKey(nil)
	signed := func(private ed25519.PrivateKey, header, claims string) string {
		text := header + "." + claims
		return text + "." + base64.RawURLEncoding.EncodeToString(ed25519.Sign(private, []byte(text)))
	}
	claims := part(t, good, 1)
	changed := func(name string, value any) string {
		m := map[string]any{}
		for k, v := range claims {
			m[k] = v
		}
		if m[name] = value; value == nil {
			delete(m, name)
		}
		text, _ := json.Marshal(m)
		return b64(string(text))
	}
	// The box's own key, as somebody would have it who read the records: what is signed well must still say the right things.
	own := x.records.signing(t)
	if !x.takes("dev1", signed(own, parts[0], parts[1])) {
		t.Fatal("the test does not sign as the box does")
	}
	for name, token := range map[string]string{
		"none":                         header("none", key.KID) + "." + parts[1] + ".",
		"None":                         header("None", key.KID) + "." + parts[1] + ".",
		"none with the signature":      header("none", key.KID) + "." + parts[1] + "." + parts[2],
		"HS256 with the public key":    hs256(key.Key),
		"HS256 with the key as text":   hs256([]byte(base64.RawURLEncoding.EncodeToString(key.Key))),
		"RS256 in name":                header("RS256", key.KID) + "." + parts[1] + "." + parts[2],
		"a stranger's key":             signed(stranger, parts[0], parts[1]),
		"an unknown kid":               signed(own, header("EdDSA", "nobody"), parts[1]),
		"no kid":                       signed(own, b64(`{"alg":"EdDSA"}`), parts[1]),
		"kid of another type":          signed(own, b64(`{"alg":"EdDSA","kid":["a"]}`), parts[1]),
		"another's name":               parts[0] + "." + changed("sub", "dev2") + "." + parts[2],
		"another's name, signed":       signed(own, parts[0], changed("sub", "dev2")),
		"another issuer":               signed(own, parts[0], changed("iss", "other")),
		"another audience":             signed(own, parts[0], changed("aud", "other")),
		"no audience":                  signed(own, parts[0], changed("aud", nil)),
		"no end":                       signed(own, parts[0], changed("exp", nil)),
		"an end that has been":         signed(own, parts[0], changed("exp", x.now.Add(-time.Second).Unix())),
		"an end that is text":          signed(own, parts[0], changed("exp", "never")),
		"not before tomorrow":          signed(own, parts[0], changed("nbf", x.now.Add(24*time.Hour).Unix())),
		"no generation":                signed(own, parts[0], changed("gen", nil)),
		"a later end, not signed":      parts[0] + "." + changed("exp", x.now.Add(100*time.Hour).Unix()) + "." + parts[2],
		"no signature":                 parts[0] + "." + parts[1] + ".",
		"two parts":                    parts[0] + "." + parts[1],
		"four parts":                   good + ".x",
		"padding":                      good + "=",
		"half a signature":             good[:len(good)-20],
		"no JSON":                      signed(own, parts[0], b64("{")),
		"a million dots":               "eyJ" + strings.Repeat(".", 1_000_000),
		"8 KiB and one":                good + strings.Repeat("A", 8<<10+1-len(good)),
		"huge":                         "eyJ" + strings.Repeat("A", 10<<20) + ".a.b",
		"empty":                        "",
		"nothing but dots":             "..",
		"a personal token's beginning": "mr_" + good,
	} {
		if x.takes("dev1", token) {
			t.Errorf("%s: taken", name)
		}
		if x.takes("dev2", token) {
			t.Errorf("%s: taken for dev2", name)
		}
	}
	if !x.takes("dev1", good) {
		t.Error("the good one is refused")
	}
}

func FuzzAccessToken(f *testing.F) {
	f.Add("eyJhbGciOiJFZERTQSJ9.e30.AAAA")
	f.Add("eyJhbGciOiJub25lIn0.e30.")
	f.Add("a.b.c")
	records := newRecords()
	b, err := auth.Open(records, auth.DefaultOptions())
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if _, ok := b.Bearer(text); ok {
			t.Errorf("%q is taken by a box that has issued nothing", text)
		}
		if _, _, ok := b.Admit("dev1", []byte(text)); ok {
			t.Errorf("%q signs in", text)
		}
	})
}

// signing is the private key of the only signing record.
func (r *records) signing(t *testing.T) ed25519.PrivateKey {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, value := range r.rows {
		if strings.HasPrefix(key, "auth/signing/") {
			var record struct{ Seed []byte }
			if err := json.Unmarshal(value, &record); err != nil {
				t.Fatal(err)
			}
			return ed25519.NewKeyFromSeed(record.Seed)
		}
	}
	t.Fatal("no signing key is stored")
	return nil
}
