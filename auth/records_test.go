package auth_test

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/auth"
	"millrace/historian/kv"
)

// records is a record store in a map.
type records struct {
	mu      sync.Mutex
	rows    map[string][]byte
	applies int
	fail    error  // what Apply answers, if set
	during  func() // runs inside Apply before anything is stored, if set
}

func newRecords() *records { return &records{rows: map[string][]byte{}} }

func (r *records) Get(key []byte) ([]byte, bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	value, ok := r.rows[string(key)]
	return bytes.Clone(value), ok, nil
}

func (r *records) Apply(ops ...kv.Op) error {
	if r.during != nil {
		r.during()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.applies++
	if r.fail != nil {
		return r.fail
	}
	for _, op := range ops {
		if op.Value == nil {
			delete(r.rows, string(op.Key))
			continue
		}
		r.rows[string(op.Key)] = bytes.Clone(op.Value)
	}
	return nil
}

// Scan lends out buffers that are void after fn, as the real store may.
func (r *records) Scan(prefix []byte, fn func(key, value []byte) bool) error {
	r.mu.Lock()
	rows := maps.Clone(r.rows)
	r.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(rows)) {
		if !strings.HasPrefix(key, string(prefix)) {
			continue
		}
		k, v := []byte(key), bytes.Clone(rows[key])
		more := fn(k, v)
		clear(k)
		clear(v)
		if !more {
			return nil
		}
	}
	return nil
}

// clock is a clock that stands until it is moved.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// open opens a Book on store; change adapts its options.
func open(t testing.TB, store auth.Records, change ...func(*auth.Options)) *auth.Book {
	t.Helper()
	o := auth.DefaultOptions()
	o.Now = newClock().Now
	for _, fn := range change {
		fn(&o)
	}
	b, err := auth.Open(store, o)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// add creates one client and gives its secret.
func add(t testing.TB, b *auth.Book, id string, grants ...auth.Grant) string {
	t.Helper()
	added, err := b.AddAll([]auth.NewClient{{ID: id, Grants: grants}})
	if err != nil || added[0].Err != nil {
		t.Fatalf("AddAll(%q): %v, %v", id, err, added)
	}
	return added[0].Secret
}

// signIn signs in or ends the test.
func signIn(t testing.TB, b *auth.Book, id, secret string) *auth.Principal {
	t.Helper()
	p, ok := b.SignIn(id, []byte(secret))
	if !ok {
		t.Fatalf("SignIn(%q) was refused", id)
	}
	return p
}

// refused reports whether SignIn says no, and ends the test when it hands a Principal out all the same.
func refused(t testing.TB, b *auth.Book, id, secret string) bool {
	t.Helper()
	p, ok := b.SignIn(id, []byte(secret))
	if !ok && p != nil {
		t.Fatalf("SignIn(%q) says no but hands out a Principal", id)
	}
	return !ok
}

// rule writes a grant in one line: "allow uns publish,subscribe line1/#".
func rule(text string) auth.Grant {
	f := strings.SplitN(text, " ", 4)
	g := auth.Grant{Effect: auth.Effect(f[0]), Scope: auth.Scope(f[1]), Filter: f[3]}
	for a := range strings.SplitSeq(f[2], ",") {
		g.Actions = append(g.Actions, auth.Action(a))
	}
	return g
}

func rules(texts ...string) []auth.Grant {
	var list []auth.Grant
	for _, text := range texts {
		list = append(list, rule(text))
	}
	return list
}

// policy compiles rules for client dev1.
func policy(t testing.TB, texts ...string) *auth.Policy {
	t.Helper()
	p, fault := auth.CompileGrants("dev1", rules(texts...)...)
	if fault != nil {
		t.Fatalf("%v: %v", texts, fault)
	}
	return p
}

// faultOf gives the *Fault in err, or ends the test.
func faultOf(t testing.TB, err error) *auth.Fault {
	t.Helper()
	var fault *auth.Fault
	if !errors.As(err, &fault) {
		t.Fatalf("error is %v (%T), want a *Fault", err, err)
	}
	return fault
}

func ptr[T any](v T) *T { return &v }
