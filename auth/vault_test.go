package auth_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace/auth"
)

// keyFile is a key file in memory.
type keyFile struct {
	text []byte
	fail error
}

func (f *keyFile) String() string { return "KEYS" }

func (f *keyFile) Read() ([]byte, error) {
	if f.text == nil {
		return nil, fs.ErrNotExist
	}
	return bytes.Clone(f.text), nil
}

func (f *keyFile) Write(text []byte) error {
	if f.fail != nil {
		return f.fail
	}
	f.text = bytes.Clone(text)
	return nil
}

func random(p []byte) { auth.DefaultOptions().Random(p) }

// sealed opens a Book with a vault.
func sealed(t testing.TB, store *records, file auth.KeyFile) *auth.Book {
	t.Helper()
	v, err := auth.OpenVault(store, file, random)
	if err != nil {
		t.Fatal(err)
	}
	return open(t, store, func(o *auth.Options) { o.Vault = v })
}

func TestVault(t *testing.T) {
	store, file := newRecords(), &keyFile{}
	v, err := auth.OpenVault(store, file, random)
	if err != nil {
		t.Fatal(err)
	}
	secret := []byte("the password of a database")
	blob, err := v.Seal("connector/a", secret)
	if err != nil {
		t.Fatal(err)
	}
	again, err := v.Seal("connector/a", secret)
	if err != nil || bytes.Equal(blob, again) || bytes.Contains(blob, secret) {
		t.Errorf("sealed twice alike, or plain: %v", err)
	}
	if got, err := v.Open("connector/a", blob); err != nil || !bytes.Equal(got, secret) {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := v.Open("connector/b", blob); !errors.Is(err, auth.ErrSealed) {
		t.Errorf("moved to another use: %v", err)
	}
	for i := range blob {
		bad := bytes.Clone(blob)
		bad[i] ^= 1
		if _, err := v.Open("connector/a", bad); !errors.Is(err, auth.ErrSealed) {
			t.Fatalf("byte %d changed: %v", i, err)
		}
		if _, err := v.Open("connector/a", blob[:i]); !errors.Is(err, auth.ErrSealed) {
			t.Fatalf("cut to %d bytes: %v", i, err)
		}
	}
	other, err := auth.OpenVault(newRecords(), &keyFile{}, random)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Open("connector/a", blob); !errors.Is(err, auth.ErrSealed) {
		t.Errorf("in another box: %v", err)
	}
	empty, err := v.Seal("x", nil)
	if got, openErr := v.Open("x", empty); err != nil || openErr != nil || len(got) != 0 {
		t.Errorf("nothing: %q, %v %v", got, err, openErr)
	}
}

// A wrong, missing or damaged key file is said so, in one line, and nothing is written.
func TestVaultRefuses(t *testing.T) {
	store, file := newRecords(), &keyFile{}
	sealed(t, store, file)
	foreign := &keyFile{}
	if _, err := auth.OpenVault(newRecords(), foreign, random); err != nil {
		t.Fatal(err)
	}
	id := strings.Fields(string(file.text[bytes.Index(file.text, []byte("millrace-key-1")):]))[1]
	foreignKey := strings.Fields(string(foreign.text[bytes.Index(foreign.text, []byte("millrace-key-1")):]))[2]
	for name, tc := range map[string]struct {
		text    []byte
		message string
	}{
		"missing":         {nil, "key file KEYS is missing"},
		"another box's":   {foreign.text, "key file KEYS holds the key "},
		"same id":         {[]byte("millrace-key-1 " + id + " " + foreignKey + "\n"), "does not open the data key 1"},
		"empty":           {[]byte{}, "it holds no key"},
		"cut off":         {file.text[:len(file.text)-5], "is not 32 bytes"},
		"something else":  {[]byte("-----BEGIN PRIVATE KEY-----\n"), "line 1 is not `millrace-key-1"},
		"too large a key": {[]byte("millrace-key-1 x " + strings.Repeat("A", 400) + "\n"), "is not 32 bytes"},
	} {
		before := maps.Clone(store.rows)
		bad := &keyFile{text: tc.text}
		v, err := auth.OpenVault(store, bad, random)
		if err == nil || v != nil || !strings.Contains(err.Error(), tc.message) || strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), foreignKey) {
			t.Errorf("%s: %v", name, err)
		}
		if !maps.EqualFunc(before, store.rows, bytes.Equal) || !bytes.Equal(bad.text, tc.text) {
			t.Errorf("%s: something was written", name)
		}
	}
	if _, err := auth.Open(store, auth.DefaultOptions()); err == nil || !strings.Contains(err.Error(), "auth.keyFile") {
		t.Errorf("without a vault: %v", err)
	}
	sealed(t, store, file) // and with the right one it opens
	file = &keyFile{fail: errors.New("read-only file system")}
	if _, err := auth.OpenVault(newRecords(), file, random); err == nil || !strings.Contains(err.Error(), "cannot be written") {
		t.Errorf("%v", err)
	}
}

// What an earlier version stored in the open is sealed at the start, and everything goes on: secrets, tokens, signed tokens.
func TestOldStoresAreSealed(t *testing.T) {
	store := newRecords()
	b := open(t, store)
	secret := add(t, b, "dev1")
	text, _, err := b.Issue(signIn(t, b, "dev1", secret))
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	plain := []string{jsonField(store.rows["auth/key"], `"key":"`)}
	for key, value := range store.rows {
		if strings.HasPrefix(key, "auth/signing/") {
			plain = append(plain, jsonField(value, `"seed":"`))
		}
	}
	file := &keyFile{}
	for range 2 {
		b = sealed(t, store, file)
		signIn(t, b, "dev1", secret)
		if _, ok := b.Bearer(text); !ok {
			t.Error("a signed token is void")
		}
		for key, value := range store.rows {
			for _, p := range plain {
				if strings.Contains(string(value), p) {
					t.Errorf("%s holds a key in the open: %s", key, value)
				}
			}
		}
	}
	list := entries(t, b)
	if n := countOf(list, "seal"); n != 1 || len(plain) != 2 {
		t.Errorf("%d entries of sealing, %d keys", n, len(plain))
	}
}

func jsonField(value []byte, name string) string {
	_, rest, _ := strings.Cut(string(value), name)
	text, _, _ := strings.Cut(rest, `"`)
	return text
}

func countOf(list []auth.Entry, action string) (n int) {
	for _, e := range list {
		if e.Action == action {
			n++
		}
	}
	return n
}

// After a rotation the old master key opens nothing that is stored now; what was sealed before is still read. A kill between the
// two writes leaves a box that opens.
func TestRotateMaster(t *testing.T) {
	store, file := newRecords(), &keyFile{}
	b := sealed(t, store, file)
	secret := add(t, b, "dev1")
	text, _, err := b.Issue(signIn(t, b, "dev1", secret))
	if err != nil {
		t.Fatal(err)
	}
	blob, err := b.Vault().Seal("connector", []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	first := &keyFile{text: bytes.Clone(file.text)}
	oldRows := maps.Clone(store.rows)
	before, _ := b.Vault().Master()
	rotate := func() error { return b.As(auth.Actor{Kind: auth.ByLocal}).RotateMaster() }
	if err := rotate(); err != nil {
		t.Fatal(err)
	}
	if after, _ := b.Vault().Master(); after == before {
		t.Error("the key is the same")
	}
	check := func(what string) {
		t.Helper()
		signIn(t, b, "dev1", secret)
		if _, ok := b.Bearer(text); !ok {
			t.Errorf("%s: a signed token is void", what)
		}
		if got, err := b.Vault().Open("connector", blob); err != nil || string(got) != "x" {
			t.Errorf("%s: %q, %v", what, got, err)
		}
	}
	check("rotated")
	b = sealed(t, store, file)
	check("and opened")
	if _, err := auth.OpenVault(store, first, random); err == nil || !strings.Contains(err.Error(), "holds the key") {
		t.Errorf("the old file opens the new records: %v", err)
	}
	// The file was written and the records were not.
	if _, err := auth.OpenVault(&records{rows: oldRows}, file, random); err != nil {
		t.Errorf("killed between the two: %v", err)
	}
	// Two rotations later the first key is gone from the file.
	if err := rotate(); err != nil {
		t.Fatal(err)
	}
	b = sealed(t, store, file)
	check("rotated twice")
	if strings.Contains(string(file.text), before) || bytes.Count(file.text, []byte("millrace-key-1")) != 2 {
		t.Errorf("the file: %s", file.text)
	}
	// A file that cannot be written, or records, change nothing.
	now, _ := b.Vault().Master()
	file.fail = errors.New("read-only file system")
	if err := rotate(); faultOf(t, err).Field != "key" {
		t.Error(err)
	}
	file.fail, store.fail = nil, errors.New("disk full")
	if err := rotate(); err == nil {
		t.Error("rotated without a record")
	}
	store.fail = nil
	if after, _ := b.Vault().Master(); after != now {
		t.Error("a failed rotation counts")
	}
	b = sealed(t, store, file)
	check("after failures")
	if err := open(t, newRecords()).As(auth.Actor{}).RotateMaster(); !errors.Is(err, auth.ErrNoVault) {
		t.Error(err)
	}
}

func TestKeyFileOnDisk(t *testing.T) {
	f := &auth.FileKeys{Path: filepath.Join(t.TempDir(), "secrets", "key")}
	if _, err := f.Read(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	for i := range 2 {
		if err := f.Write(fmt.Append(nil, "text ", i)); err != nil {
			t.Fatal(err)
		}
		text, err := f.Read()
		info, statErr := os.Stat(f.Path)
		if string(text) != fmt.Sprint("text ", i) || err != nil || statErr != nil || info.Mode().Perm() != 0o600 || f.Loose() {
			t.Errorf("%q, %v, %v", text, err, info)
		}
	}
	folder, err := os.ReadDir(filepath.Dir(f.Path))
	if info, statErr := os.Stat(filepath.Dir(f.Path)); err != nil || len(folder) != 1 || statErr != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("folder %v %v", folder, info)
	}
	if err := os.Chmod(f.Path, 0o644); err != nil || !f.Loose() {
		t.Error("everybody may read it, and it is not said")
	}
}
