package auth_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"millrace/auth"
)

func TestSignInRefuses(t *testing.T) {
	b := open(t, newRecords())
	secret := add(t, b, "dev1")
	other := add(t, b, "dev2")
	longest := strings.Repeat("s", 512)
	if added, err := b.AddAll([]auth.NewClient{{ID: "longest", Secret: longest}}); err != nil || added[0].Err != nil {
		t.Fatal(err, added)
	}
	signIn(t, b, "longest", longest)
	for _, tc := range []struct{ name, id, secret string }{
		{"empty secret", "dev1", ""},
		{"empty id", "", secret},
		{"nothing", "", ""},
		{"another's secret", "dev1", other},
		{"one letter less", "dev1", secret[:31]},
		{"one letter more", "dev1", secret + "a"},
		{"other case", "dev1", strings.ToUpper(secret)},
		{"NUL behind", "dev1", secret + "\x00"},
		{"id and secret shifted", "dev1\x00" + secret[:1], secret[1:]},
		{"wildcard", "#", secret},
		{"plus", "+", secret},
		{"unknown", "dev3", secret},
		{"huge id", strings.Repeat("x", 65535), secret},
		{"huge secret", "dev1", strings.Repeat("x", 65535)},
		{"longer than the longest", "longest", longest + "s"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if !refused(t, b, tc.id, tc.secret) {
				t.Error("signed in")
			}
		})
	}
	signIn(t, b, "dev1", secret)
}

// Sign-in does the same work whether the id is known or not, and no more than that for a peer's 64 KiB; the benchmark shows
// the times.
func TestSignInWorkIsTheSame(t *testing.T) {
	b := open(t, newRecords())
	secret := add(t, b, "dev1")
	off := add(t, b, "dev2")
	if _, err := b.Patch("dev2", auth.Patch{Enabled: ptr(false)}); err != nil {
		t.Fatal(err)
	}
	const size = len("client") + 1 + len("dev1") + 1 + 32
	for _, tc := range []struct {
		name, id, secret string
		size             int
	}{
		{"right", "dev1", secret, size},
		{"wrong", "dev1", off, size},
		{"disabled", "dev2", off, size},
		{"unknown", "dev9", secret, size},
		{"huge", strings.Repeat("x", 65535), strings.Repeat("x", 65535), size - 36},
	} {
		hashes, size := auth.CountHashes(b, func() { b.SignIn(tc.id, []byte(tc.secret)) })
		if hashes != 1 || size != tc.size {
			t.Errorf("%s: %d hashes over %d bytes, want 1 over %d", tc.name, hashes, size, tc.size)
		}
	}
}

// No secret and no token is in the log, in JSON, in a formatted value or in the clear in the store.
func TestSecretsStayInside(t *testing.T) {
	store := newRecords()
	var log bytes.Buffer
	b := open(t, store, func(o *auth.Options) {
		o.Log = slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	logger := slog.New(slog.NewTextHandler(&log, nil))
	const supplied = "supplied-secret-of-a-device"
	asked := auth.NewClient{ID: "given", Secret: supplied}
	added, err := b.AddAll([]auth.NewClient{{ID: "made"}, asked})
	if err != nil {
		t.Fatal(err)
	}
	rotated, err := b.Rotate("made", "")
	if err != nil {
		t.Fatal(err)
	}
	id, token, err := b.AddToken("anna", auth.RoleViewer, 0)
	if err != nil {
		t.Fatal(err)
	}
	b.SignIn("given", []byte("wrong-"+supplied))
	b.SignIn("given", []byte(supplied))
	b.Bearer(token)
	faulty, err := b.AddAll([]auth.NewClient{{ID: "x", Secret: "short-" + supplied[:10]}, {ID: "given", Secret: supplied}})
	if err != nil {
		t.Fatal(err)
	}
	logger.Info("all of it", "asked", asked, "added", added[0], "faulty", faulty[0], "faults", faulty[0].Err)
	shown, err := json.Marshal(map[string]any{"added": added, "faulty": faulty, "clients": b.Clients(), "tokens": b.Tokens()})
	if err != nil {
		t.Fatal(err)
	}
	var rows strings.Builder
	for key, value := range store.rows {
		fmt.Fprintf(&rows, "%s %s\n", key, value)
	}
	if !strings.Contains(log.String(), "secret rotated") || !strings.Contains(log.String(), `"part":"auth"`) {
		t.Fatalf("the log does not show the life cycle: %s", log.String())
	}
	for place, text := range map[string]string{
		"log": log.String(), "JSON": string(shown), "store": rows.String(),
		"%v": fmt.Sprintf("%v %+v %v %+v", asked, asked, added, added), "token id": id,
	} {
		for name, secret := range map[string]string{
			"generated": added[0].Secret, "supplied": supplied, "short": "short-" + supplied[:10], "rotated": rotated,
			"token": token, "token without its start": token[3:],
		} {
			if strings.Contains(text, secret) {
				t.Errorf("the %s secret is in the %s: %s", name, place, text)
			}
		}
	}
	var hashes []string
	for _, key := range []string{"auth/client/given", "auth/client/made"} {
		var r struct{ Hash string }
		if err := json.Unmarshal(store.rows[key], &r); err != nil || r.Hash == "" {
			t.Fatalf("%s: %v", key, err)
		}
		hashes = append(hashes, r.Hash)
	}
	for _, hash := range hashes {
		if strings.Contains(string(shown), hash) || strings.Contains(log.String(), hash) {
			t.Error("a hash is shown")
		}
	}
}

func BenchmarkSignIn(b *testing.B) {
	book := open(b, newRecords())
	secret := []byte(add(b, book, "dev1", rule("allow uns publish #")))
	wrong := slices.Clone(secret)
	wrong[0] ^= 1
	for _, bc := range []struct {
		name, id string
		secret   []byte
	}{{"ok", "dev1", secret}, {"wrong secret", "dev1", wrong}, {"unknown", "dev9", wrong}, {"huge", "dev1", bytes.Repeat(secret, 2000)}} {
		b.Run(bc.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				book.SignIn(bc.id, bc.secret)
			}
		})
	}
}

// A storm of 5,000 devices that all sign in once, on all cores; the time is that of the whole storm.
func BenchmarkSignInStorm5000(b *testing.B) {
	book := open(b, newRecords())
	list := make([]auth.NewClient, 5000)
	for i := range list {
		list[i] = auth.NewClient{ID: fmt.Sprintf("device-%04d", i), Grants: rules("allow uns publish fleet/${client}/#")}
	}
	added, err := book.AddAll(list)
	if err != nil {
		b.Fatal(err)
	}
	secrets := make([][]byte, len(added))
	for i, a := range added {
		secrets[i] = []byte(a.Secret)
	}
	b.ReportAllocs()
	for b.Loop() {
		var next, failed atomic.Int64
		done := make(chan struct{})
		for range 8 {
			go func() {
				for i := next.Add(1) - 1; i < 5000; i = next.Add(1) - 1 {
					if _, ok := book.SignIn(list[i].ID, secrets[i]); !ok {
						failed.Add(1)
					}
				}
				done <- struct{}{}
			}()
		}
		for range 8 {
			<-done
		}
		if failed.Load() > 0 {
			b.Fatalf("%d refused", failed.Load())
		}
	}
}
