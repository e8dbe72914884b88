package uns_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"millrace/uns"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// An empty retained payload clears what new subscribers get, durably; latest and history stay; the next value restores
// it. In one batch the order of its messages counts.
func TestClearingAndRestoring(t *testing.T) {
	fs := vfs.NewMem()
	p := openPlant(t, fs)
	const clear = ""
	batch := &uns.Batch{}
	send := func(payloads ...string) {
		t.Helper()
		batch.Reset()
		for _, s := range payloads {
			batch.Messages = append(batch.Messages, uns.Message{Workspace: "main", Path: "a/b", Payload: []byte(s), Retain: true})
		}
		if err := p.Accept(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
		for i := range batch.Messages {
			if m := &batch.Messages[i]; !m.Verdict.OK() || (m.Verdict.Reason == uns.Cleared) != (payloads[i] == clear) {
				t.Fatalf("%q: %v", payloads[i], m.Verdict)
			}
		}
	}
	want := func(retained, latest string) {
		t.Helper()
		for _, when := range []string{"at once", "after a restart"} {
			topic := p.catalog.Lookup("main", "a/b")
			s, ok := p.catalog.Retained(topic)
			if got := string(s.Value.AppendJSON(nil)); ok != (retained != "") || ok && got != retained {
				t.Fatalf("%s: retained %q %v, want %q", when, got, ok, retained)
			}
			if s, _ := p.catalog.Latest(topic); string(s.Value.AppendJSON(nil)) != latest {
				t.Fatalf("%s: latest %s, want %s", when, s.Value.AppendJSON(nil), latest)
			}
			if when == "at once" {
				if err := p.store.Close(); err != nil {
					t.Fatal(err)
				}
				p = openPlant(t, fs)
			}
		}
	}
	send(clear) // of a topic that does not exist: nothing to clear, and no topic comes of it
	if topic := p.catalog.Lookup("main", "a/b"); topic != nil {
		t.Fatal("clearing made a topic")
	}
	send("1")
	want("1", "1")
	send(clear)
	want("", "1")
	send(clear)
	want("", "1")
	send("2")
	want("2", "2")
	send("3", clear)
	want("", "3")
	send(clear, "4")
	want("4", "4")
	send(clear, "5", clear, clear)
	want("", "5")
	send("6", clear, "7")
	want("7", "7")
	_ = p.store.Close()
}

// A batch that could not be stored clears and restores nothing.
func TestClearingNeedsTheStore(t *testing.T) {
	b := newBox(t, nil)
	b.send(t, "a", "1")
	failing := errors.New("no")
	clearIt := func() error {
		return b.Accept(t.Context(), &uns.Batch{Messages: []uns.Message{{Workspace: "main", Path: "a", Retain: true}}})
	}
	b.store.onAppend = func() error { return failing }
	if err := clearIt(); !errors.Is(err, failing) {
		t.Fatal(err)
	}
	topic := b.catalog.Lookup("main", "a")
	if _, ok := b.catalog.Retained(topic); !ok {
		t.Fatal("cleared although the store refused")
	}
	b.store.onAppend = nil
	if err := clearIt(); err != nil {
		t.Fatal(err)
	}
	if _, ok := b.catalog.Retained(topic); ok {
		t.Fatal("not cleared")
	}
}

// However clears and values of many connections cross, a restart finds what was in force.
func TestClearingRaces(t *testing.T) {
	fs := vfs.NewMem()
	p := openPlant(t, fs)
	for round := range 3 {
		var wg sync.WaitGroup
		for g := range 6 {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(uint64(g), uint64(round)))
				batch := &uns.Batch{}
				for range 60 {
					batch.Reset()
					for range 1 + r.IntN(3) {
						m := uns.Message{Workspace: "main", Path: fmt.Sprint("t", r.IntN(4)), Retain: true}
						if r.IntN(2) == 0 {
							m.Payload = []byte("1")
						}
						batch.Messages = append(batch.Messages, m)
					}
					if err := p.Accept(t.Context(), batch); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		before := map[string]bool{}
		for i := range 4 {
			path := fmt.Sprint("t", i)
			_, before[path] = p.catalog.Retained(p.catalog.Lookup("main", path))
		}
		if err := p.store.Close(); err != nil {
			t.Fatal(err)
		}
		p = openPlant(t, fs)
		for path, was := range before {
			if _, is := p.catalog.Retained(p.catalog.Lookup("main", path)); is != was {
				t.Errorf("round %d, %s: retained %v before the restart, %v after", round, path, was, is)
			}
		}
	}
	rows := 0
	_ = p.store.Rows([]byte("uc"), func(_, _ []byte) bool { rows++; return true })
	if rows > 64 {
		t.Errorf("%d rows left of 4 topics", rows)
	}
	_ = p.store.Close()
}
