package auth_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/auth"

	"github.com/google/go-cmp/cmp"
)

const goodPassword = "seven blue presses"

// user makes one or ends the test.
func user(t testing.TB, b *auth.Book, name string, role auth.Role) auth.User {
	t.Helper()
	u, err := b.AddUser(context.Background(), auth.NewUser{Name: name, Role: role, Password: goodPassword})
	if err != nil {
		t.Fatalf("AddUser(%q): %v", name, err)
	}
	return u
}

// signInUser signs a person in or ends the test.
func signInUser(t testing.TB, b *auth.Book, name, password string) auth.SignedIn {
	t.Helper()
	s, err := b.SignInUser(context.Background(), name, password, "192.0.2.7:4711")
	if err != nil {
		t.Fatalf("SignInUser(%q): %v", name, err)
	}
	return s
}

func TestPasswordRules(t *testing.T) {
	for _, tc := range []struct{ name, password, message string }{
		{"seven", "abcdefg", "has 7 characters"},
		{"eight", "abcdefgq", ""},
		{"eight of two bytes", "äöüßäöüx", ""},
		{"spaces", "  a b  c  ", ""},
		{"128", strings.Repeat("long ", 25) + "abc", ""},
		{"256", strings.Repeat("ab", 128), ""},
		{"257", strings.Repeat("a", 256) + "b", "at most 256"},
		{"a common one", "Password123", "tried first"},
		{"the first of the list", "00000000", "tried first"},
		{"the last of the list", "zzzzzzzz", "tried first"},
		{"one letter", "%%%%%%%%%", "tried first"},
		{"the name", "Anna.Smith", "user's name"},
		{"a line end", "a good one\n", "control character"},
		{"not UTF-8", "a good one\xff", "not UTF-8"},
		{"no rules of composition", "aaaabbbb", ""},
	} {
		b := open(t, newRecords())
		_, err := b.AddUser(context.Background(), auth.NewUser{Name: "anna.smith", Role: auth.RoleViewer, Password: tc.password})
		if tc.message == "" {
			if err != nil {
				t.Errorf("%s: %v", tc.name, err)
			}
			continue
		}
		if f := faultOf(t, err); f.Field != "password" || !strings.Contains(f.Message, tc.message) || strings.Contains(f.Message, tc.password) {
			t.Errorf("%s: %v", tc.name, f)
		}
	}
}

func TestUsers(t *testing.T) {
	store, ctx := newRecords(), context.Background()
	b := open(t, store)
	anna := user(t, b, "Anna", auth.RoleAdmin)
	for _, tc := range []struct {
		n     auth.NewUser
		field string
	}{
		{auth.NewUser{Name: "", Role: auth.RoleViewer, Password: goodPassword}, "name"},
		{auth.NewUser{Name: "a b", Role: auth.RoleViewer, Password: goodPassword}, "name"},
		{auth.NewUser{Name: "..", Role: auth.RoleViewer, Password: goodPassword}, "name"},
		{auth.NewUser{Name: strings.Repeat("a", 65), Role: auth.RoleViewer, Password: goodPassword}, "name"},
		{auth.NewUser{Name: "x", Role: "root", Password: goodPassword}, "role"},
	} {
		if _, err := b.AddUser(ctx, tc.n); faultOf(t, err).Field != tc.field {
			t.Errorf("%v: %v", tc.n, err)
		}
	}
	if _, err := b.AddUser(ctx, auth.NewUser{Name: "aNNa", Role: auth.RoleViewer, Password: goodPassword}); !errors.Is(err, auth.ErrUserExists) {
		t.Errorf("a second anna: %v", err)
	}
	user(t, b, "bert@plant.example", auth.RoleViewer)
	if got, err := b.User("ANNA"); err != nil || got != anna {
		t.Errorf("%+v, %v", got, err)
	}

	// The last administrator stays one.
	viewer := auth.RoleViewer
	for _, p := range []auth.UserPatch{{Enabled: ptr(false)}, {Role: &viewer}} {
		if _, err := b.PatchUser(ctx, "anna", p); !errors.Is(err, auth.ErrLastAdmin) {
			t.Errorf("%+v: %v", p, err)
		}
	}
	if err := b.DeleteUser("anna"); !errors.Is(err, auth.ErrLastAdmin) {
		t.Errorf("delete: %v", err)
	}
	admin := auth.RoleAdmin
	if _, err := b.PatchUser(ctx, "bert@plant.example", auth.UserPatch{Role: &admin, Enabled: ptr(false)}); err != nil {
		t.Fatal(err)
	}
	if err := b.DeleteUser("anna"); !errors.Is(err, auth.ErrLastAdmin) {
		t.Errorf("a disabled administrator counts: %v", err)
	}
	if _, err := b.PatchUser(ctx, "bert@plant.example", auth.UserPatch{Enabled: ptr(true)}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.PatchUser(ctx, "anna", auth.UserPatch{Role: &viewer, Revision: anna.Revision + 1}); !errors.Is(err, auth.ErrUserChanged) {
		t.Errorf("If-Match: %v", err)
	}
	if u, err := b.PatchUser(ctx, "anna", auth.UserPatch{Role: &viewer, Revision: anna.Revision}); err != nil || u.Role != viewer || u.Revision != anna.Revision+1 {
		t.Errorf("%+v, %v", u, err)
	}
	if _, err := b.PatchUser(ctx, "nobody", auth.UserPatch{Role: &viewer}); !errors.Is(err, auth.ErrNoUser) {
		t.Errorf("patch of nobody: %v", err)
	}

	list := b.Users()
	b = open(t, store)
	if diff := cmp.Diff(list, b.Users()); diff != "" || len(list) != 2 {
		t.Error(diff, list)
	}
	signInUser(t, b, "anna", goodPassword)
	for key, value := range store.rows {
		if strings.Contains(string(value), goodPassword) {
			t.Errorf("%s holds the password", key)
		}
	}
	if text := string(store.rows["auth/user/anna"]); !strings.Contains(text, "$argon2id$v=19$m=19456,t=2,p=1$") {
		t.Errorf("stored: %s", text)
	}
}

// A change of password, role or flag, and deleting, end the user's sessions before the call returns, and no other's.
func TestChangesEndSessions(t *testing.T) {
	ctx, viewer := context.Background(), auth.RoleViewer
	fresh := "quite another one"
	for name, change := range map[string]func(b *auth.Book) error{
		"password": func(b *auth.Book) error {
			_, err := b.PatchUser(ctx, "anna", auth.UserPatch{Password: &fresh})
			return err
		},
		"role": func(b *auth.Book) error {
			_, err := b.PatchUser(ctx, "anna", auth.UserPatch{Role: &viewer})
			return err
		},
		"disable": func(b *auth.Book) error {
			_, err := b.PatchUser(ctx, "anna", auth.UserPatch{Enabled: ptr(false)})
			return err
		},
		"delete": func(b *auth.Book) error { return b.DeleteUser("anna") },
	} {
		store := newRecords()
		b := open(t, store)
		user(t, b, "root", auth.RoleAdmin)
		user(t, b, "anna", auth.RoleOperator)
		hers, other := signInUser(t, b, "anna", goodPassword), signInUser(t, b, "root", goodPassword)
		_, token, err := b.MakeToken(auth.NewToken{Name: "script", Owner: "anna", Role: auth.RoleOperator})
		if err != nil {
			t.Fatal(err)
		}
		if c, ok := b.Session(hers.Cookie); !ok || c.User != "anna" || c.Role != auth.RoleOperator || !c.Session {
			t.Fatalf("%s: before: %+v, %v", name, c, ok)
		}
		if err := change(b); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, ok := b.Session(hers.Cookie); ok {
				t.Errorf("%s: the session goes on", name)
			}
			if _, ok := b.Session(other.Cookie); !ok {
				t.Errorf("%s: another's session has ended", name)
			}
			c, ok := b.Bearer(token)
			if want := map[string]auth.Role{"password": auth.RoleOperator, "role": viewer}[name]; ok != (want != "") || c.Role != want {
				t.Errorf("%s: the token is %+v, %v", name, c, ok)
			}
			b = open(t, store) // and still after a restart
		}
	}
}

func TestSessionsEnd(t *testing.T) {
	store, at := newRecords(), newClock()
	with := func(o *auth.Options) { o.Now, o.Session.Idle, o.Session.MaxAge = at.Now, time.Hour, 3*time.Hour }
	b := open(t, store, with)
	user(t, b, "anna", auth.RoleViewer)
	s := signInUser(t, b, "anna", goodPassword)
	if b.CSRF(s.Cookie) != s.CSRF || s.CSRF == "" || b.CSRF("x") == s.CSRF || strings.Contains(s.CSRF, s.Cookie) {
		t.Errorf("CSRF %q", s.CSRF)
	}
	for range 3 {
		at.Advance(59 * time.Minute)
		if _, ok := b.Session(s.Cookie); !ok {
			t.Fatal("a session in use ends")
		}
	}
	at.Advance(3 * time.Minute)
	if _, ok := b.Session(s.Cookie); ok {
		t.Error("a session outlives its greatest age")
	}
	s = signInUser(t, b, "anna", goodPassword)
	b = open(t, store, with)
	if _, ok := b.Session(s.Cookie); !ok {
		t.Error("a restart signs people out")
	}
	at.Advance(time.Hour)
	if _, ok := b.Session(s.Cookie); ok {
		t.Error("an idle session goes on")
	}
	if err := b.Tidy(); err != nil {
		t.Fatal(err)
	}
	for key := range store.rows {
		if strings.HasPrefix(key, "auth/session/") {
			t.Errorf("%s is kept", key)
		}
	}
	s = signInUser(t, b, "anna", goodPassword)
	if err := b.EndSession(s.Cookie, ""); err != nil {
		t.Fatal(err)
	}
	if _, ok := b.Session(s.Cookie); ok {
		t.Error("signed out, and still in")
	}
	// The seventeenth ends the oldest.
	var cookies []string
	for range 17 {
		cookies = append(cookies, signInUser(t, b, "anna", goodPassword).Cookie)
		at.Advance(time.Second)
	}
	if _, ok := b.Session(cookies[0]); ok {
		t.Error("a user has any number of sessions")
	}
	if _, ok := b.Session(cookies[1]); !ok {
		t.Error("the second oldest ended, too")
	}
}

// Guessing from one source locks that source out, longer and longer; the owner elsewhere does not notice.
func TestLockOut(t *testing.T) {
	at, ctx := newClock(), context.Background()
	b := open(t, newRecords(), func(o *auth.Options) { o.Now = at.Now })
	user(t, b, "anna", auth.RoleAdmin)
	guess := func(from string) error {
		_, err := b.SignInUser(ctx, "anna", "a guess", from)
		return err
	}
	for i := range 5 {
		if err := guess("192.0.2.1:1000"); !errors.Is(err, auth.ErrCredentials) {
			t.Fatalf("guess %d: %v", i, err)
		}
	}
	var locked *auth.LockedError
	if err := guess("192.0.2.1:2000"); !errors.As(err, &locked) || locked.Wait != 2*time.Second {
		t.Fatalf("the sixth: %v", err)
	}
	if _, err := b.SignInUser(ctx, "ANNA", goodPassword, "192.0.2.1:1"); !errors.As(err, &locked) {
		t.Errorf("the right password from the guesser's address: %v", err)
	}
	if _, err := b.SignInUser(ctx, "anna", goodPassword, "192.0.2.2:1"); err != nil {
		t.Errorf("the owner is locked out elsewhere: %v", err)
	}
	at.Advance(2 * time.Second)
	if err := guess("192.0.2.1:1"); !errors.Is(err, auth.ErrCredentials) {
		t.Errorf("after the wait: %v", err)
	}
	if err := guess("192.0.2.1:1"); !errors.As(err, &locked) || locked.Wait != 4*time.Second {
		t.Errorf("it does not double: %v", err)
	}
	for range 20 {
		at.Advance(15 * time.Minute)
		_ = guess("192.0.2.1:1")
	}
	if err := guess("192.0.2.1:1"); !errors.As(err, &locked) || locked.Wait != 15*time.Minute {
		t.Errorf("the longest wait: %v", err)
	}
	at.Advance(15 * time.Minute)
	if _, err := b.SignInUser(ctx, "anna", goodPassword, "192.0.2.1:1"); err != nil {
		t.Errorf("the owner, after the wait: %v", err)
	}
	if err := guess("192.0.2.1:1"); !errors.Is(err, auth.ErrCredentials) {
		t.Errorf("success forgives: %v", err)
	}
	// One source with many names waits as a whole, by its network where the address is IPv6.
	n := 0
	for i := range 60 {
		_, err := b.SignInUser(ctx, "user"+string(rune('A'+i%26))+string(rune('a'+i/26)), "x", "[2001:db8::"+string(rune('1'+i%9))+"]:1")
		if errors.As(err, &locked) {
			n++
		}
	}
	if n != 10 {
		t.Errorf("%d of 60 names were not looked at, want 10", n)
	}
}

// A storm of sign-ins is bounded: those that can neither be hashed nor wait are told so, and none is counted as a failure.
func TestSignInStorm(t *testing.T) {
	b := open(t, newRecords())
	user(t, b, "anna", auth.RoleAdmin)
	var mu sync.Mutex
	var busy, in, other int
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			_, err := b.SignInUser(context.Background(), "anna", goodPassword, "192.0.2."+string(rune('0'+i%10))+string(rune('0'+i/10))+":1")
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				in++
			case errors.Is(err, auth.ErrBusy):
				busy++
			default:
				other++
			}
		})
	}
	wg.Wait()
	if in == 0 || busy == 0 || other > 0 || in+busy != 100 {
		t.Errorf("%d in, %d busy, %d other", in, busy, other)
	}
	signInUser(t, b, "anna", goodPassword)
}

func TestSetUp(t *testing.T) {
	store, ctx := newRecords(), context.Background()
	b := open(t, store)
	token := b.SetUpToken()
	if len(token) != 32 {
		t.Fatalf("token %q", token)
	}
	if again := open(t, store).SetUpToken(); again == token || again == "" {
		t.Errorf("the next start shows %q", again)
	}
	if _, err := b.SetUp(ctx, token+"x", goodPassword, "Plant", "192.0.2.1:1"); !errors.Is(err, auth.ErrSetUpToken) {
		t.Errorf("wrong token: %v", err)
	}
	if _, err := b.SetUp(ctx, token, "short", "Plant", "192.0.2.1:1"); faultOf(t, err).Field != "password" {
		t.Errorf("short password: %v", err)
	}
	if _, err := b.SetUp(ctx, token, goodPassword, "Pl\x00nt", "192.0.2.1:1"); faultOf(t, err).Field != "plant" {
		t.Errorf("plant: %v", err)
	}
	s, err := b.SetUp(ctx, token, goodPassword, "Mill 3, Göteborg", "192.0.2.1:1")
	if err != nil || s.User.Name != "admin" || s.User.Role != auth.RoleAdmin {
		t.Fatalf("%+v, %v", s, err)
	}
	if c, ok := b.Session(s.Cookie); !ok || c.Role != auth.RoleAdmin {
		t.Error("set-up does not sign in")
	}
	if _, err := b.SetUp(ctx, token, goodPassword, "", ""); !errors.Is(err, auth.ErrSetUpDone) || b.SetUpToken() != "" {
		t.Errorf("a second time: %v", err)
	}
	b = open(t, store)
	if b.Plant() != "Mill 3, Göteborg" || b.SetUpToken() != "" {
		t.Errorf("after a restart: plant %q, token %q", b.Plant(), b.SetUpToken())
	}
	if err := b.SetAdminPassword(ctx, "another password"); err != nil {
		t.Error(err)
	}
	signInUser(t, b, "admin", goodPassword) // the first start only

	fresh := open(t, newRecords())
	if err := fresh.SetAdminPassword(ctx, "short"); faultOf(t, err).Field != "password" {
		t.Errorf("short: %v", err)
	}
	if err := fresh.SetAdminPassword(ctx, goodPassword); err != nil || fresh.SetUpToken() != "" {
		t.Errorf("%v, token %q", err, fresh.SetUpToken())
	}
	signInUser(t, fresh, "admin", goodPassword)
}

func TestOwnedTokens(t *testing.T) {
	b := open(t, newRecords())
	user(t, b, "root", auth.RoleAdmin)
	user(t, b, "anna", auth.RoleOperator)
	if _, _, err := b.MakeToken(auth.NewToken{Name: "x", Owner: "anna", Role: auth.RoleDesigner}); faultOf(t, err).Field != "role" {
		t.Errorf("wider than its owner: %v", err)
	}
	if _, _, err := b.MakeToken(auth.NewToken{Name: "x", Owner: "nobody", Role: auth.RoleViewer}); !errors.Is(err, auth.ErrNoUser) {
		t.Errorf("of nobody: %v", err)
	}
	if _, _, err := b.MakeToken(auth.NewToken{Name: "x", Owner: "anna"}); faultOf(t, err).Field != "role" {
		t.Errorf("for nothing: %v", err)
	}
	_, text, err := b.MakeToken(auth.NewToken{Name: "scraper", Owner: "anna", Metrics: true})
	if err != nil {
		t.Fatal(err)
	}
	if c, ok := b.Bearer(text); !ok || !c.Metrics || c.Allows(auth.RoleViewer) || c.User != "anna" {
		t.Errorf("a metrics token is %+v", c)
	}
	_, plain, err := b.MakeToken(auth.NewToken{Name: "reader", Owner: "Anna", Role: auth.RoleViewer})
	if err != nil {
		t.Fatal(err)
	}
	if c, ok := b.Bearer(plain); !ok || c.Metrics || !c.Allows(auth.RoleViewer) || c.Allows(auth.RoleOperator) {
		t.Errorf("a viewer's token is %+v", c)
	}
}

// A person's sessions over MQTT follow the owner of the token: another role cuts them, and the token signs in as what it is now.
func TestPersonFollowsTheOwner(t *testing.T) {
	ctx := context.Background()
	store := newRecords()
	b := open(t, store)
	user(t, b, "root", auth.RoleAdmin)
	user(t, b, "anna", auth.RoleAdmin)
	_, text, err := b.MakeToken(auth.NewToken{Name: "explorer", Owner: "anna", Role: auth.RoleAdmin})
	if err != nil {
		t.Fatal(err)
	}
	_, metrics, err := b.MakeToken(auth.NewToken{Name: "scraper", Owner: "anna", Metrics: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, ok := b.Admit("anybody", []byte(metrics)); ok {
		t.Error("a metrics token signs in over MQTT")
	}
	p, _, ok := b.Admit("anybody", []byte(text))
	if !ok || p.Role() != auth.RoleAdmin {
		t.Fatalf("%+v, %v", p, ok)
	}
	viewer := auth.RoleViewer
	if _, err := b.PatchUser(ctx, "anna", auth.UserPatch{Role: &viewer}); err != nil {
		t.Fatal(err)
	}
	if p.Policy() != nil {
		t.Error("an administrator's session goes on as one")
	}
	for range 2 {
		if p, _, ok = b.Admit("anybody", []byte(text)); !ok || p.Role() != auth.RoleViewer || p.Policy().CouldReceive(auth.ScopeMQTT, "a") {
			t.Errorf("%+v, %v", p, ok)
		}
		b = open(t, store)
	}
	p, _, _ = b.Admit("anybody", []byte(text))
	if _, err := b.PatchUser(ctx, "anna", auth.UserPatch{Enabled: ptr(false)}); err != nil {
		t.Fatal(err)
	}
	if _, _, ok := b.Admit("anybody", []byte(text)); ok || p.Policy() != nil {
		t.Error("the token of a disabled user is good")
	}
	if _, err := b.PatchUser(ctx, "anna", auth.UserPatch{Enabled: ptr(true)}); err != nil {
		t.Fatal(err)
	}
	p, _, ok = b.Admit("anybody", []byte(text))
	if err := b.DeleteUser("anna"); err != nil || !ok || p.Policy() != nil {
		t.Errorf("deleted: %v, before %v", err, ok)
	}
}

// One sign-in of a person: the hash, the session and the entry in the audit log, without the disk.
func BenchmarkSignInUser(b *testing.B) {
	book := open(b, newRecords())
	user(b, book, "anna", auth.RoleViewer)
	b.ReportAllocs()
	for b.Loop() {
		signInUser(b, book, "anna", goodPassword)
	}
}
