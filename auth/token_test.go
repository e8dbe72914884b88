package auth_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"millrace/auth"

	"github.com/google/go-cmp/cmp"
)

func TestTokens(t *testing.T) {
	store, at := newRecords(), newClock()
	b := open(t, store, func(o *auth.Options) { o.Now = at.Now })
	start := at.Now()
	id1, short, err := b.AddToken("anna", auth.RoleDesigner, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	at.Advance(time.Second)
	id2, endless, err := b.AddToken("anna", auth.RoleViewer, 0)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(short, "mr_") || len(short) != 35 || short == endless || id1 == id2 || strings.Contains(short, id1) {
		t.Errorf("tokens %q %q with ids %q %q", short, endless, id1, id2)
	}
	want := []auth.Token{
		{ID: id1, Name: "anna", Role: auth.RoleDesigner, Metrics: true, Created: start, Expires: ptr(start.Add(time.Hour))},
		{ID: id2, Name: "anna", Role: auth.RoleViewer, Metrics: true, Created: start.Add(time.Second)},
	}
	if diff := cmp.Diff(want, b.Tokens()); diff != "" {
		t.Error(diff)
	}
	*b.Tokens()[0].Expires = time.Time{} // a copy
	caller, ok := b.Bearer(short)
	if diff := cmp.Diff(auth.Caller{Name: "anna", Role: auth.RoleDesigner, Metrics: true, Token: id1}, caller); !ok || diff != "" {
		t.Error(ok, diff)
	}

	at.Advance(time.Hour - time.Second - time.Nanosecond)
	if _, ok := b.Bearer(short); !ok {
		t.Error("the token ends before its time")
	}
	at.Advance(time.Nanosecond)
	if _, ok := b.Bearer(short); ok {
		t.Error("the token outlives its time")
	}
	if _, ok := b.Bearer(endless); !ok {
		t.Error("the token without an end has ended")
	}
	// The next change clears the expired one out, in memory and in the store.
	if _, _, err := b.AddToken("bert", auth.RoleAdmin, 0); err != nil {
		t.Fatal(err)
	}
	if _, kept := store.rows["auth/token/"+id1]; kept || len(b.Tokens()) != 2 {
		t.Errorf("the expired token is kept: %v", b.Tokens())
	}
	if err := b.DeleteToken(id2); err != nil {
		t.Fatal(err)
	}
	if _, ok := b.Bearer(endless); ok {
		t.Error("a deleted token works")
	}
	for _, id := range []string{id1, id2, "", "x"} {
		if err := b.DeleteToken(id); !errors.Is(err, auth.ErrNoToken) {
			t.Errorf("DeleteToken(%q): %v, want ErrNoToken", id, err)
		}
	}
}

func TestTokensRefused(t *testing.T) {
	store := newRecords()
	b := open(t, store)
	for _, tc := range []struct {
		name  string
		who   string
		role  auth.Role
		ttl   time.Duration
		field string
	}{
		{"no name", "", auth.RoleViewer, 0, "name"},
		{"long name", strings.Repeat("n", 129), auth.RoleViewer, 0, "name"},
		{"line end in the name", "a\nb", auth.RoleViewer, 0, "name"},
		{"not UTF-8", "\xff", auth.RoleViewer, 0, "name"},
		{"no role", "a", "", 0, "role"},
		{"unknown role", "a", "root", 0, "role"},
		{"negative", "a", auth.RoleViewer, -time.Second, "ttl"},
		{"beyond reason", "a", auth.RoleViewer, 1 << 62, "ttl"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			id, text, err := b.AddToken(tc.who, tc.role, tc.ttl)
			if fault := faultOf(t, err); fault.Field != tc.field || id != "" || text != "" {
				t.Errorf("%v, %q, %q", fault, id, text)
			}
		})
	}
	store.fail = errors.New("disk full")
	if _, text, err := b.AddToken("a", auth.RoleViewer, 0); !errors.Is(err, store.fail) || text != "" || len(b.Tokens()) != 0 {
		t.Errorf("a failing store: %q, %v", text, err)
	}
}

func TestBearerRefuses(t *testing.T) {
	b := open(t, newRecords())
	secret := add(t, b, "dev1")
	_, token, err := b.AddToken("anna", auth.RoleAdmin, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		"", "mr_", token[3:], token[:34], token + "a", strings.ToUpper(token), "mr_" + secret, secret, " " + token,
		token + strings.Repeat("a", 8<<10), "mr_" + strings.Repeat("a", 1<<20),
	} {
		if caller, ok := b.Bearer(text); ok || caller != (auth.Caller{}) {
			t.Errorf("%.50q: %+v, %v", text, caller, ok)
		}
	}
}

func TestRoles(t *testing.T) {
	order := []auth.Role{auth.RoleViewer, auth.RoleOperator, auth.RoleDesigner, auth.RoleAdmin}
	for i, have := range order {
		for j, need := range order {
			if got := have.Allows(need); got != (i >= j) {
				t.Errorf("%s allows %s: %v", have, need, got)
			}
			if got := (auth.Caller{Role: have}).Allows(need); got != (i >= j) {
				t.Errorf("a caller with %s allows %s: %v", have, need, got)
			}
		}
		for _, odd := range []auth.Role{"", "root", "Admin"} {
			if have.Allows(odd) || odd.Allows(have) || odd.Allows(odd) {
				t.Errorf("role %q counts", odd)
			}
		}
		if (auth.Caller{Role: have, Principal: &auth.Principal{}}).Allows(auth.RoleViewer) {
			t.Error("an API client has a role")
		}
	}
}
