package auth_test

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"millrace/auth"
	"millrace/historian/kv"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
)

var _ auth.Records = (*kv.Store)(nil)

func TestEverythingSurvivesReopening(t *testing.T) {
	store, at := newRecords(), newClock()
	with := func(o *auth.Options) { o.Now = at.Now; o.Workspaces = []string{"main", "lab"} }
	b := open(t, store, with)
	plain := add(t, b, "plain", rule("allow uns publish a/${client}/#"), rule("allow mqtt subscribe /tele//#"))
	if _, err := b.AddAll([]auth.NewClient{{ID: "full", Workspace: "lab", Description: "d", Metrics: true, Secret: "a secret of 24 letters!!"}}); err != nil {
		t.Fatal(err)
	}
	rotated := add(t, b, "rotated")
	fresh, err := b.Rotate("rotated", "")
	if err != nil {
		t.Fatal(err)
	}
	off := add(t, b, "off", rule("allow uns publish #"))
	if _, err := b.Patch("off", auth.Patch{Enabled: ptr(false)}); err != nil {
		t.Fatal(err)
	}
	gone := add(t, b, "gone")
	if err := b.Delete("gone"); err != nil {
		t.Fatal(err)
	}
	_, token, err := b.AddToken("anna", auth.RoleDesigner, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	clients, tokens := b.Clients(), b.Tokens()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}

	b = open(t, store, with)
	if diff := cmp.Diff(clients, b.Clients()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(tokens, b.Tokens()); diff != "" {
		t.Error(diff)
	}
	p := signIn(t, b, "plain", plain).Policy()
	if !p.MayPublish(auth.ScopeUNS, "a/plain/x") || !p.MayReceive(auth.ScopeMQTT, "/tele//x") || p.MayPublish(auth.ScopeUNS, "a/full") {
		t.Error("the rules are others after reopening")
	}
	if got := signIn(t, b, "full", "a secret of 24 letters!!"); got.Workspace() != "lab" {
		t.Errorf("workspace %q", got.Workspace())
	}
	signIn(t, b, "rotated", fresh)
	for id, secret := range map[string]string{"rotated": rotated, "off": off, "gone": gone} {
		if !refused(t, b, id, secret) {
			t.Errorf("%s signs in after reopening", id)
		}
	}
	if caller, ok := b.Bearer(token); !ok || caller.Name != "anna" || caller.Role != auth.RoleDesigner {
		t.Errorf("token: %+v, %v", caller, ok)
	}
}

// stored is a store as version 1 wrote it: the key, one client with the secret "a secret of 24 letters!!", one token. It
// pins the format: when this test breaks, the records need a new version and a way from this one.
func stored() *records {
	store := newRecords()
	store.rows = map[string][]byte{
		"auth/key": []byte(`{"version":1,"seal":"","key":"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="}`),
		"auth/client/dev1": []byte(`{"version":1,"id":"dev1","workspace":"main","enabled":true,"grants":[{"effect":"allow","actions":["publish"],` +
			`"filter":"a/#","scope":"uns"}],"created":"2026-11-30T12:00:00Z","revision":7,"hash":"` + storedHash + `"}`),
		"auth/token/abc": []byte(`{"version":1,"id":"abc","name":"anna","role":"admin","created":"2026-11-30T12:00:00Z","hash":"` + storedTokenHash + `"}`),
	}
	return store
}

const (
	storedHash      = "JaJLqn5cKtx/MYODju90QC3TacZliXinNYI4a0ZUnWg="
	storedTokenHash = "YErjUwWntFqRsl/t/T49AJysUV9pbE4YvzOkV0hwCk4="
)

func TestVersionOneOpens(t *testing.T) {
	b := open(t, stored())
	signIn(t, b, "dev1", "a secret of 24 letters!!")
	if caller, ok := b.Bearer("mr_abcdefghijklmnopqrstuvwxyz234567"); !ok || caller.Role != auth.RoleAdmin {
		t.Errorf("token: %+v, %v", caller, ok)
	}
}

func TestOpenRefuses(t *testing.T) {
	client := string(stored().rows["auth/client/dev1"])
	for _, tc := range []struct {
		name, key, value string // value "" deletes
		message          string
	}{
		{"newer client", "auth/client/dev1", strings.Replace(client, `"version":1`, `"version":3`, 1), `"auth/client/dev1" has version 3, this program knows up to 2: start the newer`},
		{"newer token", "auth/token/abc", `{"version":3,"other":[]}`, `"auth/token/abc" has version 3`},
		{"newer key", "auth/key", `{"version":9}`, `"auth/key" has version 9`},
		{"sealed key", "auth/key", `{"version":1,"seal":"file","key":"AAAA"}`, `is sealed by "file"`},
		{"key sealed by a vault", "auth/key", `{"version":1,"seal":"vault","key":"AAAA"}`, `name it with auth.keyFile`},
		{"short key", "auth/key", `{"version":1,"key":"AAAA"}`, "the key has 3 bytes"},
		{"no key but clients", "auth/key", "", `"auth/key" is missing while 2 clients and tokens need it`},
		{"not JSON", "auth/client/dev1", "{", "is damaged"},
		{"no version", "auth/client/dev1", `{"id":"dev1"}`, "it has no version"},
		{"another id", "auth/client/dev2", client, `it names client "dev1"`},
		{"short hash", "auth/client/dev1", strings.Replace(client, storedHash, "AAAA", 1), "its hash has 3 bytes"},
		{"spoilt grant", "auth/client/dev1", strings.Replace(client, "a/#", "a#", 1), "whole level"},
		{"spoilt effect", "auth/client/dev1", strings.Replace(client, "allow", "alow", 1), "neither allow nor deny"},
		{"another key id", "auth/signing/abc", `{"version":1,"kid":"abd","seed":"AAAA"}`, `it names key "abd"`},
		{"short seed", "auth/signing/abc", `{"version":1,"kid":"abc","seed":"AAAA"}`, "its seed has 3 bytes"},
		{"another token id", "auth/token/abd", string(stored().rows["auth/token/abc"]), `it names token "abc"`},
		{"unknown role", "auth/token/abc", strings.Replace(string(stored().rows["auth/token/abc"]), "admin", "root", 1), `role "root" is unknown`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			store := stored()
			store.rows[tc.key] = []byte(tc.value)
			if tc.value == "" {
				delete(store.rows, tc.key)
			}
			before := maps.Clone(store.rows)
			b, err := auth.Open(store, auth.DefaultOptions())
			if err == nil || b != nil || !strings.Contains(err.Error(), tc.message) {
				t.Fatalf("Open: %v, want %q", err, tc.message)
			}
			if !strings.HasPrefix(err.Error(), "auth: ") || strings.Contains(err.Error(), "\n") {
				t.Errorf("not one line of ours: %q", err)
			}
			if diff := cmp.Diff(before, store.rows); diff != "" {
				t.Error("the refused store was written to:", diff)
			}
		})
	}
}

func TestOpenFailsWhenTheStoreDoes(t *testing.T) {
	store := newRecords()
	store.fail = errors.New("disk full")
	if _, err := auth.Open(store, auth.DefaultOptions()); !errors.Is(err, store.fail) {
		t.Errorf("Open: %v, want the store's error", err)
	}
}

func TestKeysDifferByBox(t *testing.T) {
	one, two := newRecords(), newRecords()
	open(t, one)
	open(t, two)
	if string(one.rows["auth/key"]) == string(two.rows["auth/key"]) {
		t.Error("two boxes have one key")
	}
}

// A hash that was copied to another client's record opens nothing there.
func TestHashesAreBoundToTheirClient(t *testing.T) {
	store := stored()
	client := string(store.rows["auth/client/dev1"])
	store.rows["auth/client/dev2"] = []byte(strings.Replace(client, `"id":"dev1"`, `"id":"dev2"`, 1))
	b := open(t, store)
	if !refused(t, b, "dev2", "a secret of 24 letters!!") {
		t.Error("dev1's secret opens dev2")
	}
}

func TestOptionsValidate(t *testing.T) {
	o := auth.DefaultOptions()
	if err := o.Validate(); err != nil {
		t.Error(err)
	}
	o = auth.Options{Namespace: "a/b", Workspaces: []string{"main", "+", "main"}}
	err := o.Validate()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{`uns.namespace: "a/b"`, `uns.workspaces[1]: "+"`, `uns.workspaces[2]: "main" is named twice`, "Options.Now", "Options.Random", "Options.Log"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %q", want, err)
		}
	}
	if _, err := auth.Open(newRecords(), auth.Options{}); err == nil || !strings.Contains(err.Error(), "uns.workspaces: is empty") {
		t.Errorf("Open: %v", err)
	}
}

func TestClose(t *testing.T) {
	registry := prometheus.NewRegistry()
	store := newRecords()
	with := func(o *auth.Options) { o.Registry = registry }
	b := open(t, store, with)
	secret := add(t, b, "dev1")
	_, token, err := b.AddToken("anna", auth.RoleAdmin, 0)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
	_, err1 := b.AddAll([]auth.NewClient{{ID: "dev2"}})
	_, err2 := b.Patch("dev1", auth.Patch{})
	_, err3 := b.Rotate("dev1", "")
	_, _, err5 := b.AddToken("anna", auth.RoleAdmin, 0)
	for i, err := range []error{err1, err2, err3, b.Delete("dev1"), err5, b.DeleteToken("x")} {
		if !errors.Is(err, auth.ErrClosed) {
			t.Errorf("change %d after Close: %v, want ErrClosed", i, err)
		}
	}
	if _, ok := b.Bearer(token); ok || !refused(t, b, "dev1", secret) {
		t.Error("someone signs in after Close")
	}
	signIn(t, open(t, store, with), "dev1", secret) // the registry is free again
}

func TestMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	b := open(t, newRecords(), func(o *auth.Options) { o.Registry = registry })
	secret := add(t, b, "dev1")
	off := add(t, b, "off")
	if _, err := b.Patch("off", auth.Patch{Enabled: ptr(false)}); err != nil {
		t.Fatal(err)
	}
	add(t, b, "gone")
	if err := b.Delete("gone"); err != nil {
		t.Fatal(err)
	}
	b.SignIn("dev1", []byte(secret))
	b.SignIn("dev1", []byte(secret))
	b.SignIn("dev1", []byte(off))
	b.SignIn("off", []byte(off))
	b.SignIn("gone", []byte(secret))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			name := family.GetName()
			for _, label := range m.GetLabel() {
				name += " " + label.GetName() + "=" + label.GetValue()
			}
			got[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	if got["millrace_auth_audit_bytes"] <= 0 {
		t.Error("the audit log has no size")
	}
	delete(got, "millrace_auth_audit_bytes")
	want := map[string]float64{
		"millrace_auth_access_tokens_total":                0,
		"millrace_auth_audit_entries_total":                5,
		"millrace_auth_audit_uncounted_total":              0,
		"millrace_auth_password_hash_seconds":              0,
		"millrace_auth_password_hashes_refused_total":      0,
		"millrace_auth_user_sessions":                      0,
		"millrace_auth_user_sign_ins_total result=locked":  0,
		"millrace_auth_user_sign_ins_total result=ok":      0,
		"millrace_auth_user_sign_ins_total result=refused": 0,
		"millrace_auth_users":                              0,
		"millrace_auth_clients":                            2,
		"millrace_auth_sign_ins_total result=ok":           2,
		"millrace_auth_sign_ins_total result=wrong_secret": 1,
		"millrace_auth_sign_ins_total result=unknown":      1,
		"millrace_auth_sign_ins_total result=disabled":     1,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if _, err := auth.Open(newRecords(), func() auth.Options { o := auth.DefaultOptions(); o.Registry = registry; return o }()); err == nil {
		t.Error("two Books share one registry")
	}
}
