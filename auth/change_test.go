package auth_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"millrace/auth"

	"github.com/google/go-cmp/cmp"
)

// What a running session sees of each change, at once, through the Principal it holds.
func TestChangesAreVisibleAtOnce(t *testing.T) {
	const fresh = "another secret of 24 letters"
	for _, tc := range []struct {
		name   string
		change func(b *auth.Book) error
		nil    bool // the held Principal may do nothing any more
		again  bool // the old secret still signs in
		may    bool // publish a/x, through whichever Principal is alive
	}{
		{"narrower grants", func(b *auth.Book) error {
			_, err := b.Patch("dev1", auth.Patch{Grants: ptr(rules("allow uns publish b/#"))})
			return err
		}, false, true, false},
		{"a deny more", func(b *auth.Book) error {
			_, err := b.Patch("dev1", auth.Patch{Grants: ptr(rules("allow uns publish a/#", "deny uns publish a/x"))})
			return err
		}, false, true, false},
		{"no grants", func(b *auth.Book) error {
			_, err := b.Patch("dev1", auth.Patch{Grants: new([]auth.Grant)})
			return err
		}, false, true, false},
		{"disable", func(b *auth.Book) error {
			_, err := b.Patch("dev1", auth.Patch{Enabled: ptr(false)})
			return err
		}, true, false, false},
		{"disable and enable", func(b *auth.Book) error {
			_, err := b.Patch("dev1", auth.Patch{Enabled: ptr(false)})
			if err == nil {
				_, err = b.Patch("dev1", auth.Patch{Enabled: ptr(true)})
			}
			return err
		}, false, true, true},
		{"rotate", func(b *auth.Book) error { _, err := b.Rotate("dev1", fresh); return err }, true, false, true},
		{"rotate to the same secret", func(b *auth.Book) error { _, err := b.Rotate("dev1", "a secret of 24 letters!!"); return err }, true, true, true},
		{"delete", func(b *auth.Book) error { return b.Delete("dev1") }, true, false, false},
		{"delete and add again", func(b *auth.Book) error {
			err := b.Delete("dev1")
			if err == nil {
				_, err = b.AddAll([]auth.NewClient{{ID: "dev1", Secret: fresh, Grants: rules("allow uns publish a/#")}})
			}
			return err
		}, true, false, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var told []string
			var b *auth.Book
			b = open(t, newRecords(), func(o *auth.Options) {
				o.Changed = func(id string) {
					told = append(told, id)
					_, _ = b.Client(id)                                  // deadlocks if a lock is held
					_, _ = b.Patch("bystander", auth.Patch{Revision: 9}) // so does this
				}
			})
			const secret = "a secret of 24 letters!!"
			add(t, b, "bystander")
			if _, err := b.AddAll([]auth.NewClient{{ID: "dev1", Secret: secret, Grants: rules("allow uns publish a/#")}}); err != nil {
				t.Fatal(err)
			}
			p := signIn(t, b, "dev1", secret)
			if same := signIn(t, b, "dev1", secret); same != p {
				t.Error("two sessions of one client hold different Principals")
			}
			before := p.Policy()
			if !before.MayPublish(auth.ScopeUNS, "a/x") {
				t.Fatal("refused before the change")
			}
			if len(told) != 0 {
				t.Errorf("told %v before any change", told)
			}
			if err := tc.change(b); err != nil {
				t.Fatal(err)
			}
			if p.Policy() == before {
				t.Error("the pointer has not changed")
			}
			if (p.Policy() == nil) != tc.nil {
				t.Errorf("policy is %v, nil wanted: %v", p.Policy(), tc.nil)
			}
			if !slices.Contains(told, "dev1") {
				t.Errorf("the hook heard %v", told)
			}
			if again := !refused(t, b, "dev1", secret); again != tc.again {
				t.Errorf("the old secret signs in: %v, want %v", again, tc.again)
			}
			alive := p
			for _, s := range []string{secret, fresh} {
				if q, ok := b.SignIn("dev1", []byte(s)); ok {
					alive = q
				}
			}
			if may := alive.Policy().MayPublish(auth.ScopeUNS, "a/x"); may != tc.may {
				t.Errorf("may publish: %v, want %v", may, tc.may)
			}
		})
	}
}

func TestPatch(t *testing.T) {
	store := newRecords()
	var told []string
	b := open(t, store, func(o *auth.Options) { o.Changed = func(id string) { told = append(told, id) } })
	secret := add(t, b, "dev1", rule("allow uns publish a"))
	p := signIn(t, b, "dev1", secret)
	before := p.Policy()

	got, err := b.Patch("dev1", auth.Patch{Description: ptr("the press"), Revision: 1})
	if err != nil || got.Revision != 2 || got.Description != "the press" {
		t.Fatalf("description: %+v, %v", got, err)
	}
	if p.Policy() != before || told != nil {
		t.Error("a description changes what a session may do")
	}
	writes := store.applies
	got, err = b.Patch("dev1", auth.Patch{Description: ptr("the press"), Enabled: ptr(true), Grants: ptr(rules("allow uns publish mHv1.0/main/a"))})
	if err != nil || got.Revision != 2 || store.applies != writes || p.Policy() != before {
		t.Errorf("a patch that changes nothing: %+v, %v, %d writes", got, err, store.applies-writes)
	}
	if _, err := b.Patch("dev1", auth.Patch{Enabled: ptr(false), Revision: 1}); !errors.Is(err, auth.ErrChanged) {
		t.Errorf("an old revision: %v, want ErrChanged", err)
	}
	if _, err := b.Patch("dev2", auth.Patch{}); !errors.Is(err, auth.ErrNotFound) {
		t.Errorf("nobody: %v, want ErrNotFound", err)
	}
	_, err = b.Patch("dev1", auth.Patch{Enabled: ptr(false), Grants: ptr(rules("allow uns publish a#"))})
	if fault := faultOf(t, err); fault.Field != "grants[0].filter" {
		t.Error(fault)
	}
	_, err = b.Patch("dev1", auth.Patch{Description: ptr("\x00")})
	if fault := faultOf(t, err); fault.Field != "description" {
		t.Error(fault)
	}
	if p.Policy() != before {
		t.Error("a refused patch was half done")
	}
	store.fail = errors.New("disk full")
	if _, err := b.Patch("dev1", auth.Patch{Enabled: ptr(false)}); !errors.Is(err, store.fail) {
		t.Errorf("a failing store: %v", err)
	}
	if got, _ := b.Client("dev1"); !got.Enabled || got.Revision != 2 || p.Policy() != before || told != nil {
		t.Errorf("a patch that was not stored counts: %+v, told %v", got, told)
	}
}

func TestRotate(t *testing.T) {
	store := newRecords()
	b := open(t, store)
	old := add(t, b, "dev1")
	secret, err := b.Rotate("dev1", "")
	if err != nil || len(secret) != 32 || secret == old {
		t.Fatalf("generated %q, %v", secret, err)
	}
	if !refused(t, b, "dev1", old) {
		t.Error("the old secret signs in")
	}
	p := signIn(t, b, "dev1", secret)
	if got, _ := b.Client("dev1"); got.Revision != 2 {
		t.Errorf("revision %d, want 2", got.Revision)
	}
	_, err = b.Rotate("dev1", "too short")
	if fault := faultOf(t, err); fault.Field != "secret" {
		t.Error(fault)
	}
	if _, err := b.Rotate("dev2", ""); !errors.Is(err, auth.ErrNotFound) {
		t.Errorf("nobody: %v", err)
	}
	store.fail = errors.New("disk full")
	if s, err := b.Rotate("dev1", ""); err == nil || s != "" {
		t.Errorf("a failing store: %q, %v", s, err)
	}
	if p.Policy() == nil || signIn(t, b, "dev1", secret) != p {
		t.Error("a rotation that was not stored counts")
	}
	store.fail = nil
	if _, err := b.Patch("dev1", auth.Patch{Enabled: ptr(false)}); err != nil {
		t.Fatal(err)
	}
	secret, err = b.Rotate("dev1", "")
	if err != nil {
		t.Fatal(err)
	}
	if !refused(t, b, "dev1", secret) {
		t.Error("rotating enables a disabled client")
	}
}

func TestDelete(t *testing.T) {
	store := newRecords()
	b := open(t, store)
	secret := add(t, b, "dev1")
	p := signIn(t, b, "dev1", secret)
	store.fail = errors.New("disk full")
	if err := b.Delete("dev1"); !errors.Is(err, store.fail) || p.Policy() == nil {
		t.Errorf("a failing store: %v", err)
	}
	store.fail = nil
	if err := b.Delete("dev1"); err != nil {
		t.Fatal(err)
	}
	if err := b.Delete("dev1"); !errors.Is(err, auth.ErrNotFound) {
		t.Errorf("twice: %v", err)
	}
	if _, err := b.Client("dev1"); !errors.Is(err, auth.ErrNotFound) {
		t.Errorf("Client: %v", err)
	}
	add(t, b, "dev1", rule("allow uns publish #"))
	if p.Policy() != nil || !refused(t, b, "dev1", secret) {
		t.Error("the deleted client lives on in its successor")
	}
}

// Nobody waits for the disk of a change: sign-ins go on while one is being stored, under the old rule.
func TestSignInDuringAChange(t *testing.T) {
	store := newRecords()
	b := open(t, store)
	secret := add(t, b, "dev1")
	p := signIn(t, b, "dev1", secret)
	ran := false
	store.during = func() {
		ran = true
		if signIn(t, b, "dev1", secret).Policy() == nil || len(b.Clients()) != 1 {
			t.Error("the change counts before it is durable")
		}
	}
	if err := b.Delete("dev1"); err != nil {
		t.Fatal(err)
	}
	store.during = nil // Close writes, too
	if !ran || p.Policy() != nil {
		t.Errorf("the store was asked: %v", ran)
	}
}

// Readers and writers at once; the race detector and the invariant watch: a policy either allows a/… or b/…, and a nil one
// is final for a deleted client.
func TestConcurrentUse(t *testing.T) {
	b := open(t, newRecords())
	const n = 8
	secrets := make([]string, n)
	ids := make([]string, n)
	for i := range n {
		ids[i] = fmt.Sprintf("dev%d", i)
		secrets[i] = add(t, b, ids[i], rule("allow uns publish a/#"))
	}
	var writers, readers sync.WaitGroup
	stop := make(chan struct{})
	for r := range 3 {
		readers.Go(func() {
			for i := r; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				if p, ok := b.SignIn(ids[i%n], []byte(secrets[i%n])); ok {
					if policy := p.Policy(); policy != nil && policy.MayPublish(auth.ScopeUNS, "a/x") == policy.MayPublish(auth.ScopeUNS, "b/x") {
						t.Error("a policy is half changed")
						return
					}
				}
				_ = b.Clients()
				_ = b.Tokens()
				b.Bearer("mr_x")
			}
		})
	}
	for w := range n {
		writers.Go(func() {
			for i := range 50 {
				grants := rules("allow uns publish " + string("ab"[i%2]) + "/#")
				if _, err := b.Patch(ids[w], auth.Patch{Grants: &grants}); err != nil {
					t.Error(err)
				}
				extra := fmt.Sprintf("extra-%d-%d", w, i)
				if added, err := b.AddAll([]auth.NewClient{{ID: extra}}); err != nil || added[0].Err != nil {
					t.Error(err, added)
				}
				if err := b.Delete(extra); err != nil {
					t.Error(err)
				}
				id, _, err := b.AddToken("t", auth.RoleViewer, 0)
				if err != nil {
					t.Error(err)
				}
				if err := b.DeleteToken(id); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	close(stop)
	readers.Wait()
	var left []string
	for _, c := range b.Clients() {
		left = append(left, c.ID)
	}
	if diff := cmp.Diff(ids, left); diff != "" {
		t.Error(diff)
	}
	for i := range n {
		signIn(t, b, ids[i], secrets[i])
	}
}

// Of many that add one id, one gets it.
func TestOneIDIsGivenOnce(t *testing.T) {
	b := open(t, newRecords())
	var all sync.WaitGroup
	var mu sync.Mutex
	var won []string
	for range 8 {
		all.Go(func() {
			added, err := b.AddAll([]auth.NewClient{{ID: "dev1"}})
			if err != nil {
				t.Error(err)
				return
			}
			if added[0].Err == nil {
				mu.Lock()
				won = append(won, added[0].Secret)
				mu.Unlock()
			} else if !errors.Is(added[0].Err, auth.ErrExists) {
				t.Error(added[0].Err)
			}
		})
	}
	all.Wait()
	if len(won) != 1 {
		t.Fatalf("%d won: %s", len(won), strings.Join(won, " "))
	}
	signIn(t, b, "dev1", won[0])
}
