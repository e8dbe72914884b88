package auth_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"millrace/auth"

	"github.com/google/go-cmp/cmp"
)

// Names that would widen a rule are refused by name (F09).
func TestIDs(t *testing.T) {
	for _, tc := range []struct{ name, id, message string }{
		{"plain", "press-01_a.B", ""},
		{"the longest", strings.Repeat("x", 64), ""},
		{"three dots", "...", ""},
		{"digits", "0", ""},
		{"hash", "#", "wildcard"},
		{"plus", "+", "wildcard"},
		{"plus inside", "a+b", "wildcard"},
		{"slash", "a/b", "separates topic levels"},
		{"empty", "", "is empty"},
		{"too long by one", strings.Repeat("x", 65), "65 bytes long, at most 64"},
		{"65,535 bytes", strings.Repeat("x", 65535), "65535 bytes long, at most 64"},
		{"NUL", "a\x00b", "NUL (byte 1)"},
		{"emoji", "oven🔥", "🔥"},
		{"umlaut", "öfen", "'ö' (byte 0)"},
		{"blank", "a b", "' '"},
		{"line end", "a\n", `'\n'`},
		{"not UTF-8", "a\xff", "not UTF-8 at byte 1"},
		{"placeholder", "${client}", "'$'"},
		{"dot", ".", "web address"},
		{"dots", "..", "web address"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := open(t, newRecords())
			added, err := b.AddAll([]auth.NewClient{{ID: tc.id}})
			if err != nil {
				t.Fatal(err)
			}
			if tc.message == "" {
				if added[0].Err != nil {
					t.Fatal(added[0].Err)
				}
				signIn(t, b, tc.id, added[0].Secret)
				return
			}
			fault := faultOf(t, added[0].Err)
			if fault.Field != "id" || !strings.Contains(fault.Message, tc.message) || len(fault.Message) > 300 {
				t.Errorf("%q: %q, want %q in it", fault.Field, fault.Message, tc.message)
			}
			if len(b.Clients()) != 0 || !refused(t, b, tc.id, strings.Repeat("x", 30)) {
				t.Error("a client exists all the same")
			}
		})
	}
}

func TestIDsDifferInCase(t *testing.T) {
	b := open(t, newRecords())
	lower, upper := add(t, b, "press"), add(t, b, "Press")
	if signIn(t, b, "press", lower).ID() != "press" || signIn(t, b, "Press", upper).ID() != "Press" {
		t.Error("the wrong client signed in")
	}
	if !refused(t, b, "Press", lower) || !refused(t, b, "PRESS", upper) {
		t.Error("a secret opens a client of another case")
	}
}

func TestAddRefuses(t *testing.T) {
	for _, tc := range []struct {
		name           string
		in             auth.NewClient
		field, message string
	}{
		{"short secret", auth.NewClient{ID: "a", Secret: strings.Repeat("s", 23)}, "secret", "23 characters, at least 24"},
		{"bytes are not characters", auth.NewClient{ID: "a", Secret: strings.Repeat("é", 23)}, "secret", "23 characters"},
		{"long secret", auth.NewClient{ID: "a", Secret: strings.Repeat("s", 513)}, "secret", "513 bytes"},
		{"secret with a line end", auth.NewClient{ID: "a", Secret: strings.Repeat("s", 24) + "\n"}, "secret", "control character"},
		{"secret not UTF-8", auth.NewClient{ID: "a", Secret: strings.Repeat("\xff", 24)}, "secret", "not UTF-8"},
		{"unknown workspace", auth.NewClient{ID: "a", Workspace: "moon"}, "workspace", `"moon" is unknown: take one of main, lab`},
		{"long description", auth.NewClient{ID: "a", Description: strings.Repeat("d", 1025)}, "description", "at most 1024"},
		{"description with NUL", auth.NewClient{ID: "a", Description: "\x00"}, "description", "control character"},
		{"grant", auth.NewClient{ID: "a", Grants: rules("allow uns publish a#")}, "grants[0].filter", "whole level"},
		{"grant of another workspace", auth.NewClient{ID: "a", Workspace: "lab", Grants: rules("allow uns publish mHv1.0/main/a")}, "grants[0].filter", "one workspace"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := open(t, newRecords(), func(o *auth.Options) { o.Workspaces = []string{"main", "lab"} })
			added, err := b.AddAll([]auth.NewClient{tc.in})
			if err != nil {
				t.Fatal(err)
			}
			fault := faultOf(t, added[0].Err)
			if fault.Field != tc.field || !strings.Contains(fault.Message, tc.message) {
				t.Errorf("%q: %q, want %q with %q", fault.Field, fault.Message, tc.field, tc.message)
			}
			if tc.in.Secret != "" && strings.Contains(fault.Error(), tc.in.Secret[:20]) {
				t.Error("the secret is in the message")
			}
		})
	}
}

func TestAddShowsWhatWasMade(t *testing.T) {
	at := newClock()
	b := open(t, newRecords(), func(o *auth.Options) { o.Workspaces = []string{"main", "lab"}; o.Now = at.Now })
	const secret = "a secret of 24 letters!!"
	added, err := b.AddAll([]auth.NewClient{
		{ID: "b", Secret: secret, Workspace: "lab", Description: "the press", Metrics: true, Grants: rules("allow uns publish mHv1.0/lab/a/#")},
		{ID: "a"},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []auth.Client{
		{ID: "b", Workspace: "lab", Description: "the press", Enabled: true, Metrics: true, Created: at.Now(), Revision: 1, Grants: rules("allow uns publish a/#")},
		{ID: "a", Workspace: "main", Enabled: true, Grants: []auth.Grant{}, Created: at.Now(), Revision: 1},
	}
	if diff := cmp.Diff(want, []auth.Client{added[0].Client, added[1].Client}); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]auth.Client{want[1], want[0]}, b.Clients()); diff != "" {
		t.Error("listed:", diff)
	}
	if added[0].Secret != secret || signIn(t, b, "b", secret).Workspace() != "lab" {
		t.Error("the supplied secret is not the one in force")
	}
	if len(added[1].Secret) != 32 || added[1].Secret == mustSecret(t, b) {
		t.Errorf("generated secret %q: want 32 letters, other each time", added[1].Secret)
	}
	p := signIn(t, b, "a", added[1].Secret).Policy()
	if p == nil || p.MayPublish(auth.ScopeUNS, "a") || p.CouldReceive(auth.ScopeUNS, "#") || !p.MayReceive(auth.ScopeUNS, "_verdict/a/x") {
		t.Error("a client without grants may do other than read its verdicts")
	}
}

func mustSecret(t testing.TB, b *auth.Book) string { t.Helper(); return add(t, b, "another") }

// What is handed out is the caller's: writing to it changes nothing in the Book.
func TestClientsAreCopies(t *testing.T) {
	b := open(t, newRecords())
	given := rules("allow uns publish,subscribe a/#")
	added, err := b.AddAll([]auth.NewClient{{ID: "a", Grants: given}})
	if err != nil {
		t.Fatal(err)
	}
	one, err := b.Client("a")
	if err != nil {
		t.Fatal(err)
	}
	for _, grants := range [][]auth.Grant{given, added[0].Client.Grants, one.Grants, b.Clients()[0].Grants} {
		grants[0].Filter, grants[0].Actions[0] = "#", "spoilt"
	}
	got, _ := b.Client("a")
	if diff := cmp.Diff(rules("allow uns publish,subscribe a/#"), got.Grants); diff != "" {
		t.Error(diff)
	}
}

func TestAddAllIsAllOrNone(t *testing.T) {
	store := newRecords()
	b := open(t, store)
	add(t, b, "old")
	before := store.applies
	added, err := b.AddAll([]auth.NewClient{
		{ID: "good"}, {ID: "bad#"}, {ID: "old"}, {ID: "good"}, {ID: "short", Secret: "x"}, {ID: "good2"},
	})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i, a := range added {
		if a.Secret != "" || a.Client.Revision != 0 {
			t.Errorf("result %d shows a client that was not made: %+v", i, a.Client)
		}
		got = append(got, fmt.Sprint(a.Client.ID, " ", a.Err != nil))
	}
	if diff := cmp.Diff([]string{"good false", "bad# true", "old true", "good true", "short true", "good2 false"}, got); diff != "" {
		t.Error(diff)
	}
	if !errors.Is(added[2].Err, auth.ErrExists) {
		t.Errorf("an id that is taken: %v, want ErrExists", added[2].Err)
	}
	if fault := faultOf(t, added[3].Err); fault.Field != "id" || !strings.Contains(fault.Message, "entry 1 of the same list") {
		t.Errorf("an id twice in the list: %v", fault)
	}
	if store.applies != before || len(b.Clients()) != 1 {
		t.Error("something was stored")
	}
	if added, err := b.AddAll(nil); err != nil || len(added) != 0 || store.applies != before {
		t.Errorf("an empty list: %v, %v", added, err)
	}
}

func TestAddAllFailsWhenTheStoreDoes(t *testing.T) {
	store := newRecords()
	b := open(t, store)
	store.fail = errors.New("disk full")
	added, err := b.AddAll([]auth.NewClient{{ID: "a", Secret: "a secret of 24 letters!!"}})
	if !errors.Is(err, store.fail) || added != nil {
		t.Errorf("AddAll: %v, %v", added, err)
	}
	if !refused(t, b, "a", "a secret of 24 letters!!") {
		t.Error("a client that was not stored signs in")
	}
}

func TestAddAllInBulk(t *testing.T) {
	store := newRecords()
	b := open(t, store)
	list := make([]auth.NewClient, 1000)
	for i := range list {
		list[i] = auth.NewClient{ID: fmt.Sprintf("device-%04d", i), Grants: rules("allow uns publish fleet/${client}/#")}
	}
	before := store.applies
	added, err := b.AddAll(list)
	if err != nil {
		t.Fatal(err)
	}
	if store.applies != before+1 {
		t.Errorf("%d writes, want one", store.applies-before)
	}
	secrets := map[string]bool{}
	for i, a := range added {
		if a.Err != nil || a.Client.ID != list[i].ID {
			t.Fatalf("result %d: %v", i, a)
		}
		secrets[a.Secret] = true
	}
	if len(secrets) != 1000 {
		t.Errorf("%d different secrets, want 1000", len(secrets))
	}
	p := signIn(t, b, "device-0500", added[500].Secret).Policy()
	if !p.MayPublish(auth.ScopeUNS, "fleet/device-0500/a") || p.MayPublish(auth.ScopeUNS, "fleet/device-0501/a") {
		t.Error("the rule of one device is not its own")
	}
}

func BenchmarkAddAll1000(b *testing.B) {
	list := make([]auth.NewClient, 1000)
	for i := range list {
		list[i] = auth.NewClient{ID: fmt.Sprintf("device-%04d", i), Grants: rules("allow uns publish fleet/${client}/#")}
	}
	b.ReportAllocs()
	for b.Loop() {
		book := open(b, newRecords(), func(o *auth.Options) { o.Now = time.Now })
		if added, err := book.AddAll(list); err != nil || added[999].Err != nil {
			b.Fatal(err)
		}
	}
}
