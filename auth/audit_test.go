package auth_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"millrace/auth"
)

// entries lists the whole log, oldest first, as "category action id result".
func entries(t *testing.T, b *auth.Book) (list []auth.Entry) {
	t.Helper()
	for before := uint64(0); ; {
		page, next, err := b.Audit(auth.AuditQuery{Before: before, Limit: 7})
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, page...)
		if before = next; next == 0 {
			break
		}
	}
	for i, j := 0, len(list)-1; i < j; i, j = i+1, j-1 {
		list[i], list[j] = list[j], list[i]
	}
	return list
}

func verified(t *testing.T, b *auth.Book) auth.Verified {
	t.Helper()
	v, err := b.Verify()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// Every change, sign-in and refusal is in the log, by whom and from where, with what was and what is, and without any secret.
func TestAuditTellsEverything(t *testing.T) {
	store, ctx := newRecords(), context.Background()
	b := open(t, store)
	anna := b.As(auth.Actor{Kind: auth.ByUser, Name: "anna", Address: "192.0.2.1:4711"})
	secrets := []string{goodPassword, "a secret of 24 letters!!", "another secret of 24 letters", "quite another one"}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := anna.AddAll([]auth.NewClient{{ID: "dev1", Secret: secrets[1]}})
	must(err)
	_, err = anna.Patch("dev1", auth.Patch{Grants: ptr(rules("allow uns publish a/#"))})
	must(err)
	_, err = anna.Rotate("dev1", secrets[2])
	must(err)
	must(anna.Delete("dev1"))
	_, err = anna.AddUser(ctx, auth.NewUser{Name: "root", Role: auth.RoleAdmin, Password: goodPassword})
	must(err)
	_, err = anna.AddUser(ctx, auth.NewUser{Name: "bert", Role: auth.RoleViewer, Password: goodPassword})
	must(err)
	_, err = anna.PatchUser(ctx, "bert", auth.UserPatch{Password: &secrets[3]})
	must(err)
	in := signInUser(t, b, "bert", secrets[3])
	if _, err := b.SignInUser(ctx, "bert", "wrong", "192.0.2.9:1"); !errors.Is(err, auth.ErrCredentials) {
		t.Fatal(err)
	}
	must(b.EndSession(in.Cookie, "192.0.2.7:1"))
	token, text, err := anna.MakeToken(auth.NewToken{Name: "script", Owner: "bert", Role: auth.RoleViewer})
	must(err)
	must(anna.DeleteToken(token.ID))
	must(anna.DeleteUser("bert"))
	must(anna.RotateSigning())
	must(anna.RemoveSigning(b.PublicKeys()[0].KID))
	must(anna.Note(auth.Event{Category: "topic", Action: "put", ID: "line1/temp", After: map[string]any{"unit": "K"}}))
	must(anna.SetPlant("Mill 3"))
	b.SignIn("nobody", []byte("x"))
	b.SignIn("nobody", []byte("x"))
	if _, err := b.SignInUser(ctx, "stranger", "x", "192.0.2.9:1"); !errors.Is(err, auth.ErrCredentials) {
		t.Fatal(err)
	}
	must(b.Tidy())

	want := []string{
		"client add dev1 ok", "client patch dev1 ok", "client rotate dev1 ok", "client delete dev1 ok",
		"user add root ok", "user add bert ok", "user password bert ok",
		"session sign_in bert ok", "session sign_in bert refused", "session sign_out bert ok",
		"token add " + token.ID + " ok", "token delete " + token.ID + " ok", "user delete bert ok",
		"key rotate_signing * ok", "key remove_signing * ok", "topic put line1/temp ok", "setting plant  ok",
		"session sign_in nobody refused", "session sign_in stranger refused",
	}
	list := entries(t, b)
	for i, e := range list {
		id := e.ID
		if e.Category == "key" {
			id = "*"
		}
		got := strings.Join([]string{e.Category, e.Action, id, e.Result}, " ")
		if i >= len(want) || got != want[i] {
			t.Errorf("entry %d is %q", i, got)
		}
		if e.Seq != uint64(i+1) || e.Hash == "" || e.Time.IsZero() {
			t.Errorf("entry %d: %+v", i, e)
		}
		if e.Category != "session" && e.By != (auth.Actor{Kind: "user", Name: "anna", Address: "192.0.2.1:4711"}) {
			t.Errorf("entry %d is by %+v", i, e.By)
		}
	}
	if len(list) != len(want) {
		t.Fatalf("%d entries, want %d", len(list), len(want))
	}
	if !strings.Contains(string(list[1].After), `"a/#"`) || strings.Contains(string(list[1].Before), "a/#") || list[8].By.Address != "192.0.2.9:1" ||
		list[17].Detail != "unknown, 2 times within a minute" {
		t.Errorf("before %s, after %s, by %+v, %q", list[1].Before, list[1].After, list[8].By, list[17].Detail)
	}
	all, err := json.Marshal(list)
	must(err)
	for _, secret := range append(secrets, text, in.Cookie, "argon2id") {
		if strings.Contains(string(all), secret) {
			t.Errorf("the log holds %q", secret)
		}
	}
	for _, tc := range []struct {
		q    auth.AuditQuery
		want int
	}{
		{auth.AuditQuery{Category: "user"}, 4}, {auth.AuditQuery{ID: "bert"}, 6}, {auth.AuditQuery{Result: auth.ResultRefused}, 3},
		{auth.AuditQuery{Actor: "anna", Category: "token"}, 2}, {auth.AuditQuery{From: list[0].Time.Add(time.Second)}, 0},
		{auth.AuditQuery{To: list[0].Time}, 0}, {auth.AuditQuery{Before: 4}, 3},
	} {
		if got, _, err := b.Audit(tc.q); err != nil || len(got) != tc.want {
			t.Errorf("%+v: %d entries, %v", tc.q, len(got), err)
		}
	}
	if v := verified(t, b); !v.OK || v.Entries != uint64(len(want)) {
		t.Errorf("%+v", v)
	}
	// It goes on where it was after a restart.
	b = open(t, store)
	add(t, b, "dev2")
	if v := verified(t, b); !v.OK || v.Last != uint64(len(want)+1) {
		t.Errorf("after a restart: %+v", v)
	}
}

// Whatever is done to the records, Verify names the first entry that does not fit.
func TestAuditShowsTampering(t *testing.T) {
	store := newRecords()
	b := open(t, store)
	for i := range 10 {
		add(t, b, fmt.Sprintf("dev%d", i))
	}
	whole := maps.Clone(store.rows)
	key := func(seq int) string { return fmt.Sprintf("auth/audit/%016x", seq) }
	for name, tc := range map[string]struct {
		change func()
		at     uint64
	}{
		"untouched":        {func() {}, 0},
		"a word changed":   {func() { store.rows[key(4)] = []byte(strings.Replace(string(whole[key(4)]), "dev3", "dev9", 1)) }, 4},
		"an entry missing": {func() { delete(store.rows, key(5)) }, 5},
		"the first":        {func() { delete(store.rows, key(1)) }, 1},
		"the last":         {func() { delete(store.rows, key(10)) }, 10},
		"two exchanged":    {func() { store.rows[key(6)], store.rows[key(7)] = whole[key(7)], whole[key(6)] }, 6},
		"rubbish":          {func() { store.rows[key(8)] = []byte("{") }, 8},
		"changed with a hash that fits": {func() {
			other := newRecords()
			c := open(t, other)
			for i := range 3 {
				add(t, c, fmt.Sprintf("rogue%d", i))
			}
			store.rows[key(3)] = other.rows[key(3)]
		}, 3},
	} {
		store.rows = maps.Clone(whole)
		tc.change()
		if v := verified(t, b); v.BrokenAt != tc.at || v.OK != (tc.at == 0) || (v.Why == "") != v.OK {
			t.Errorf("%s: %+v, want %d", name, v, tc.at)
		}
	}
	// What was noted elsewhere shows that the end was cut off and written anew.
	store.rows = maps.Clone(whole)
	now := verified(t, b)
	for _, tc := range []struct {
		seq  uint64
		hash string
		at   uint64
	}{{now.Last, now.Hash, 0}, {now.Last + 3, now.Hash, now.Last + 1}, {4, now.Hash, 4}} {
		if v, err := b.VerifyAgainst(tc.seq, tc.hash); err != nil || v.BrokenAt != tc.at || v.OK != (tc.at == 0) {
			t.Errorf("against %d: %+v, %v", tc.seq, v, err)
		}
	}
	// Without its head the log goes on all the same.
	store.rows = maps.Clone(whole)
	delete(store.rows, "auth/audit-head")
	b = open(t, store)
	add(t, b, "dev10")
	if v := verified(t, b); !v.OK || v.Last != 11 {
		t.Errorf("without a head: %+v", v)
	}
}

// The log is bounded; what is kept still holds on to what was let go.
func TestAuditIsBounded(t *testing.T) {
	store := newRecords()
	with := func(o *auth.Options) { o.Audit.MaxBytes = 64 << 10 }
	b := open(t, store, with)
	const n = 400
	for i := range n {
		if err := b.As(auth.Actor{Kind: auth.ByLocal}).Note(auth.Event{Category: "topic", Action: "put", ID: fmt.Sprint(i), After: strings.Repeat("x", 300)}); err != nil {
			t.Fatal(err)
		}
	}
	size, kept := 0, 0
	for key, value := range store.rows {
		if strings.HasPrefix(key, "auth/audit/") {
			size, kept = size+len(value), kept+1
		}
	}
	v := verified(t, b)
	if size > 64<<10 || size < 60<<10 || !v.OK || v.Last != n || v.First != uint64(n-kept+1) || v.Entries != uint64(kept) {
		t.Errorf("%d bytes in %d entries, %+v", size, kept, v)
	}
	if list := entries(t, b); len(list) != kept {
		t.Errorf("%d entries listed, %d kept", len(list), kept)
	}
	delete(store.rows, fmt.Sprintf("auth/audit/%016x", v.First))
	if v := verified(t, open(t, store, with)); v.OK || v.BrokenAt != v.First {
		t.Errorf("the first is missing: %+v", v)
	}
	// One entry of any size does not grow without bound.
	if err := b.As(auth.Actor{}).Note(auth.Event{Category: "topic", Action: "put", ID: strings.Repeat("i", 5000), After: strings.Repeat("x", 1<<20)}); err != nil {
		t.Fatal(err)
	}
	list, _, err := b.Audit(auth.AuditQuery{Limit: 1})
	if err != nil || len(list[0].ID) > 600 || !strings.Contains(string(list[0].After), `"sha256"`) {
		t.Errorf("%v %v", list, err)
	}
}

// A change and its entry are one write: with whatever the store has when it fails, there are both or neither.
func TestAuditAndChangeAreOneWrite(t *testing.T) {
	store := newRecords()
	b := open(t, store)
	add(t, b, "dev1")
	store.fail = errors.New("disk full")
	if _, err := b.Patch("dev1", auth.Patch{Enabled: ptr(false)}); err == nil {
		t.Fatal("the change was taken")
	}
	store.fail = nil
	if list := entries(t, b); len(list) != 1 {
		t.Errorf("%d entries", len(list))
	}
	writes := store.applies
	if _, err := b.Patch("dev1", auth.Patch{Enabled: ptr(false)}); err != nil {
		t.Fatal(err)
	}
	if store.applies != writes+1 {
		t.Errorf("%d writes for one change", store.applies-writes)
	}
	if v := verified(t, b); !v.OK || v.Entries != 2 {
		t.Errorf("%+v", v)
	}
}

// Whoever can reach a listener must not be able to fill the log with made-up names, nor make a minute cost more than one write.
func TestStormsAreCountedTogether(t *testing.T) {
	store := newRecords()
	b := open(t, store)
	const n = 5000
	for i := range n {
		b.SignInFrom(fmt.Sprintf("192.0.2.%d:1", i%250), fmt.Sprint("made-up-", i), []byte("x"))
	}
	writes := store.applies
	if err := b.Tidy(); err != nil {
		t.Fatal(err)
	}
	list := entries(t, b)
	if store.applies != writes+1 || len(list) > 70 || len(list) < 60 {
		t.Errorf("%d writes, %d entries", store.applies-writes, len(list))
	}
	sum, nameless := 0, 0
	for _, e := range list {
		if e.Result != auth.ResultRefused || e.By.Kind != auth.ByClient {
			t.Errorf("entry %+v", e)
		}
		times := 1
		if e.ID == "" {
			if _, err := fmt.Sscanf(e.Detail, "unknown, %d times", &times); err != nil {
				t.Errorf("%q: %v", e.Detail, err)
			}
			nameless++
		}
		sum += times
	}
	if sum != n || nameless != 1 || !verified(t, b).OK {
		t.Errorf("%d of %d attempts are in the log, %d entries without a name", sum, n, nameless)
	}
}
