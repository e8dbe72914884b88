package uns_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"millrace/historian"
	"millrace/uns"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A deleted topic is nowhere any more; a value that comes afterwards, also from a connection that knew the old one, makes it
// anew, with plain settings and without the old history.
func TestDeletedTopic(t *testing.T) {
	fs := vfs.NewMem()
	p := openPlant(t, fs)
	put := func(topic *uns.Topic, payload string, retain bool) (uns.Verdict, *uns.Topic) {
		t.Helper()
		b := &uns.Batch{Messages: []uns.Message{{Source: p.Source("dev"), Workspace: "main", Path: "line1/a", Topic: topic, Payload: []byte(payload), Retain: retain}}}
		if err := p.Accept(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		return b.Messages[0].Verdict, b.Messages[0].Topic
	}
	set := func() *uns.Topic {
		topic, err := p.catalog.Set(t.Context(), "main", "line1/a", []byte(`{"schema":{"type":"number","max":10},"expectedInterval":"10s"}`))
		if err != nil {
			t.Fatal(err)
		}
		return topic
	}
	old := set()
	put(nil, `7`, false)
	put(nil, `11`, false) // a violation
	put(nil, ``, true)    // cleared
	for i := range 10 {
		b := &uns.Batch{Messages: []uns.Message{{Workspace: "main", Path: fmt.Sprint("line1/b", i), Payload: []byte(`1`)}}}
		if err := p.Accept(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	ok, err := p.catalog.Delete(t.Context(), old, false)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	if ok, err := p.catalog.Delete(t.Context(), old, false); ok || err != nil {
		t.Errorf("deleted twice: %v %v", ok, err)
	}
	missing := func(when string) {
		t.Helper()
		if p.catalog.Lookup("main", "line1/a") != nil || p.catalog.Len("main") != 10 {
			t.Errorf("%s: it is there, among %d", when, p.catalog.Len("main"))
		}
		var seen []string
		p.catalog.Match("main", "#", "", func(x *uns.Topic) bool { seen = append(seen, x.Path); return true })
		if len(seen) != 10 || slices.Contains(seen, "line1/a") {
			t.Errorf("%s: %v", when, seen)
		}
	}
	missing("at once")
	if n := p.catalog.StaleTopics(time.Now().Add(time.Hour)); n != 0 {
		t.Errorf("%d topics are overdue", n)
	}
	if err := p.store.Close(); err != nil {
		t.Fatal(err)
	}
	p = openPlant(t, fs)
	missing("after a restart")

	old = set()
	put(nil, `1`, false)
	if _, err := p.catalog.Delete(t.Context(), old, true); err != nil {
		t.Fatal(err)
	}
	v, fresh := put(old, `"ON"`, false) // which the old schema would not take
	if !v.OK() || fresh == old || fresh.Series == old.Series || p.catalog.Lookup("main", "line1/a") != fresh {
		t.Errorf("%v %p %p", v, fresh, old)
	}
	page, _, err := p.store.Raw(t.Context(), nil, historian.Query{Series: fresh.Series, To: 1 << 62})
	if err != nil || len(page) != 1 {
		t.Errorf("the new one has %d values, error %v", len(page), err)
	}
	if _, _, err := p.store.Raw(t.Context(), nil, historian.Query{Series: old.Series, To: 1 << 62}); !errors.Is(err, historian.ErrUnknownSeries) {
		t.Errorf("the old series: %v", err)
	}
}

// Topics that are deleted over and over while devices publish to them: no acknowledged batch fails, and afterwards what is
// there is whole.
func TestDeletingWhileValuesCome(t *testing.T) {
	p := openPlant(t, vfs.NewMem())
	const paths = 3
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			var known [paths]*uns.Topic
			b := &uns.Batch{}
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				b.Reset()
				for i := range paths {
					b.Messages = append(b.Messages, uns.Message{Source: p.Source(fmt.Sprint(w)), Workspace: "main", Path: fmt.Sprint("p", i), Topic: known[i], Payload: fmt.Append(nil, n)})
				}
				if err := p.Accept(t.Context(), b); err != nil {
					t.Errorf("writer %d: %v", w, err)
					return
				}
				for i := range paths {
					if m := &b.Messages[i]; !m.Verdict.OK() || m.At < 0 || b.Samples[m.At].Seq == 0 {
						t.Errorf("writer %d: %+v", w, m.Verdict)
						return
					}
					known[i] = b.Messages[i].Topic
				}
			}
		})
	}
	deleted := 0
	for deadline := time.Now().Add(500 * time.Millisecond); time.Now().Before(deadline); {
		for i := range paths {
			if topic := p.catalog.Lookup("main", fmt.Sprint("p", i)); topic != nil {
				if ok, err := p.catalog.Delete(t.Context(), topic, i == 0); err != nil {
					t.Fatal(err)
				} else if ok {
					deleted++
				}
			}
		}
	}
	close(stop)
	wg.Wait()
	if deleted < 20 {
		t.Errorf("only %d were deleted", deleted)
	}
	if n := p.catalog.Len("main"); n > paths {
		t.Errorf("%d topics", n)
	}
	seen := 0
	p.catalog.Match("main", "#", "", func(*uns.Topic) bool { seen++; return true })
	if seen != p.catalog.Len("main") {
		t.Errorf("%d are listed, %d counted", seen, p.catalog.Len("main"))
	}
}
