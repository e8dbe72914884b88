package uns_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"millrace/historian"
	"millrace/uns"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func (b *box) fill(t testing.TB, paths ...string) {
	t.Helper()
	for _, p := range paths {
		if v, _ := b.send(t, p, `1`); !v.OK() {
			t.Fatalf("%s: %v", p, v)
		}
	}
}

func (b *box) match(filter, after string) (paths []string) {
	b.catalog.Match("main", filter, after, func(t *uns.Topic) bool {
		paths = append(paths, t.Path)
		return true
	})
	return paths
}

func TestCatalogMatch(t *testing.T) {
	b := newBox(t, nil)
	b.fill(t, "line2/temp", "line1 b/x", "line1/temp", "line1", "line1/press/temp", "line10/temp", "line1/Öl")
	for _, c := range []struct{ filter, after, want string }{
		{"#", "", "line1|line1/press/temp|line1/temp|line1/Öl|line1 b/x|line10/temp|line2/temp"},
		{"#", "line1/temp", "line1/Öl|line1 b/x|line10/temp|line2/temp"},
		{"#", "line1/p", "line1/press/temp|line1/temp|line1/Öl|line1 b/x|line10/temp|line2/temp"},
		{"#", "zzz", ""},
		{"line1/#", "", "line1|line1/press/temp|line1/temp|line1/Öl"},
		{"line1/#", "line1/temp", "line1/Öl"},
		{"+/temp", "", "line1/temp|line10/temp|line2/temp"},
		{"line1/+", "", "line1/temp|line1/Öl"},
		{"line1/+/temp", "", "line1/press/temp"},
		{"line1", "", "line1"},
		{"line3/#", "", ""},
		{"mHv1.0/main/+/temp", "line1/temp", "line10/temp|line2/temp"},
		{"mHv1.0/lab/#", "", ""},
		{"line1#", "", ""},
	} {
		if got := strings.Join(b.match(c.filter, c.after), "|"); got != c.want {
			t.Errorf("%s after %q: got %s, want %s", c.filter, c.after, got, c.want)
		}
	}
	n := 0
	b.catalog.Match("main", "#", "", func(*uns.Topic) bool { n++; return n < 2 })
	if n != 2 {
		t.Errorf("fn was called %d times after it said stop at 2", n)
	}
	b.catalog.Match("nope", "#", "", func(*uns.Topic) bool { t.Error("an unknown workspace has topics"); return false })
}

func TestChildren(t *testing.T) {
	b := newBox(t, nil)
	b.fill(t, "line2/temp", "line1 b/x", "line1/temp", "line1", "line1/press/temp", "line1/press/rpm", "line10/a/b/c")
	for _, c := range []struct {
		path, after string
		limit       int
		want        string
		more        bool
	}{
		{"", "", 10, "line1:line1 true 3|line1 b:line1 b false 1|line10:line10 false 1|line2:line2 false 1", false},
		{"mHv1.0/main", "line1", 2, "line1 b:line1 b false 1|line10:line10 false 1", true},
		{"", "line10", 1, "line2:line2 false 1", false},
		{"", "line1 ", 1, "line1 b:line1 b false 1", true},
		{"line1", "", 10, "press:line1/press false 2|temp:line1/temp true 0", false},
		{"mHv1.0/main/line1", "press", 10, "temp:line1/temp true 0", false},
		{"line1/press", "", 10, "rpm:line1/press/rpm true 0|temp:line1/press/temp true 0", false},
		{"line10", "", 10, "a:line10/a false 1", false},
		{"line1/temp", "", 10, "", false},
		{"nowhere", "", 10, "", false},
		{"a//b", "", 10, "", false},
		{"", "", 0, "", true},
	} {
		list, more := b.catalog.Children("main", c.path, c.after, c.limit)
		var got []string
		for _, x := range list {
			got = append(got, fmt.Sprintf("%s:%s %v %d", x.Level, x.Path, x.Topic, x.Children))
		}
		if strings.Join(got, "|") != c.want || more != c.more {
			t.Errorf("%q after %q: got %s %v, want %s %v", c.path, c.after, strings.Join(got, "|"), more, c.want, c.more)
		}
	}
	if list, more := b.catalog.Children("nope", "", "", 10); list != nil || more {
		t.Error("an unknown workspace has topics")
	}
}

// The tree against a plain list, with topics that come between looks.
func TestCatalogModel(t *testing.T) {
	path := rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "a b", "a!", "ä"}), 1, 4).Draw(t, "levels"), "/")
	})
	rapid.Check(t, func(rt *rapid.T) {
		b := newBox(t, nil)
		var all []string
		for range rapid.IntRange(1, 4).Draw(rt, "rounds") {
			for _, p := range rapid.SliceOfN(path, 0, 12).Draw(rt, "paths") {
				b.fill(t, p)
				if !slices.Contains(all, p) {
					all = append(all, p)
				}
			}
			filter := rapid.SampledFrom([]string{"#", "a/#", "+/b", "a b/+/#", "a", "+/+", "a/b/#"}).Draw(rt, "filter")
			after := rapid.SampledFrom([]string{"", "a", "a/b", "a b", "b"}).Draw(rt, "after")
			var want []string
			for _, p := range all {
				if uns.Match(filter, p) && (after == "" || uns.ComparePaths(p, after) > 0) {
					want = append(want, p)
				}
			}
			slices.SortFunc(want, uns.ComparePaths)
			if d := cmp.Diff(want, b.match(filter, after)); d != "" {
				rt.Fatalf("%s after %q: %s", filter, after, d)
			}
			parent := rapid.SampledFrom([]string{"", "a", "a/b", "a b"}).Draw(rt, "parent")
			prefix, counts := "", map[string]int{}
			if parent != "" {
				prefix = parent + "/"
			}
			for _, p := range all {
				if rest, ok := strings.CutPrefix(p, prefix); ok {
					level, deeper, _ := strings.Cut(rest, "/")
					if counts[level] += 0; deeper != "" {
						counts[level]++
					}
				}
			}
			got := map[string]int{}
			list, _ := b.catalog.Children("main", parent, "", 100)
			for _, c := range list {
				got[c.Level] = c.Children
				if c.Topic != slices.Contains(all, c.Path) {
					rt.Fatalf("%+v", c)
				}
			}
			if d := cmp.Diff(counts, got); d != "" {
				rt.Fatalf("children of %q: %s", parent, d)
			}
		}
	})
}

func TestTopicLimit(t *testing.T) {
	b := newBox(t, func(o *uns.Options) { o.Ingress.MaxTopics = 2; o.Workspaces = []string{"main", "lab"} })
	b.fill(t, "a", "b")
	if v, _ := b.send(t, "c", `1`); v.Reason != uns.TopicLimit || v.Detail != "workspace main has 2 topics, which is the most it may have" {
		t.Errorf("got %v", v)
	}
	b.fill(t, "a")
	if v, _ := b.put(t, uns.Message{Workspace: "lab", Path: "c", Payload: []byte(`1`)}); !v.OK() {
		t.Errorf("another workspace: %v", v)
	}
	if _, err := b.catalog.Set(t.Context(), "main", "c", []byte(`{}`)); err == nil || !strings.Contains(err.Error(), "uns.ingress.maxTopics") {
		t.Errorf("set: %v", err)
	}
	if b.catalog.Len("main") != 2 || b.catalog.Len("lab") != 1 || b.catalog.Len("nope") != 0 {
		t.Errorf("%d, %d topics", b.catalog.Len("main"), b.catalog.Len("lab"))
	}
}

// Only a value that is kept makes a topic.
func TestRefusalMakesNoTopic(t *testing.T) {
	b := newBox(t, nil)
	for _, payload := range []string{`ON`, ``, `1e400`, `{"value":1,"timestamp":0}`, `{"value":1,"quality":"x"}`} {
		b.send(t, "a", payload)
	}
	if b.catalog.Len("main") != 0 || len(b.store.rows) != 0 {
		t.Errorf("%d topics, %d rows", b.catalog.Len("main"), len(b.store.rows))
	}
}

func TestConcurrentCreation(t *testing.T) {
	b := newBox(t, nil)
	const clients, paths = 5, 400
	seen := make([][]*uns.Topic, clients)
	var group sync.WaitGroup
	for c := range clients {
		group.Add(1)
		go func() {
			defer group.Done()
			batch := &uns.Batch{}
			for p := range paths {
				batch.Reset()
				batch.Messages = append(batch.Messages, uns.Message{Source: b.Source(fmt.Sprint("c", c)), Workspace: "main", Path: fmt.Sprintf("line/%d/x", p), Payload: []byte(`{"value":1,"unit":"bar"}`)})
				if err := b.Accept(t.Context(), batch); err != nil {
					t.Error(err)
				}
				seen[c] = append(seen[c], batch.Messages[0].Topic)
				if p%50 == 0 {
					b.catalog.Children("main", "line", "", 10)
				}
			}
		}()
	}
	group.Wait()
	for c := range clients {
		if !slices.Equal(seen[0], seen[c]) {
			t.Fatalf("client %d got other topics than client 0", c)
		}
	}
	if len(b.store.rows) != paths || b.catalog.Len("main") != paths || len(b.match("#", "")) != paths || len(b.store.samples) != clients*paths {
		t.Errorf("%d series, %d topics, %d in the tree, %d samples", len(b.store.rows), b.catalog.Len("main"), len(b.match("#", "")), len(b.store.samples))
	}
}

func TestOpenCatalog(t *testing.T) {
	store := &memory{rows: []historian.SeriesRow{
		{Series: 1, Name: "main/a/b", Class: historian.Class7d},
		{Series: 2, Name: "gone/x", Class: historian.Class1d},
		{Series: 3, Name: "main/c", Class: historian.Class1d, Meta: []byte(`{"schema":{"type":"number"},"retention":""}`)},
	}}
	b := boxOn(t, store, nil)
	a := b.catalog.Lookup("main", "a/b")
	if a == nil || a.Series != 1 || a.Full != "mHv1.0/main/a/b" || a.Workspace != "main" || a.Settings().Retention != "7d" {
		t.Errorf("got %+v", a)
	}
	if b.catalog.Len("main") != 2 || b.catalog.Lookup("gone", "x") != nil {
		t.Error("the topic of an unknown workspace is in reach")
	}
	if v, _ := b.send(t, "c", `"x"`); v.Reason != uns.TypeMismatch {
		t.Errorf("got %v", v)
	}
	if s, ok := b.catalog.Latest(a); ok {
		t.Errorf("latest of an empty topic: %+v", s)
	}
	b.fill(t, "a/b")
	if s, ok := b.catalog.Latest(a); !ok || s.Value.Mant != 1 {
		t.Errorf("latest: %+v %v", s, ok)
	}

	store.rows[2].Meta = []byte(`{"schema":{"type":"quaternion"}}`)
	o := options(nil)
	if _, err := uns.OpenCatalog(uns.NewNamespace(o), store, store, o); err == nil || !strings.Contains(err.Error(), `topic "main/c" (series 3): schema.type`) {
		t.Errorf("got %v", err)
	}
}

func TestSlot(t *testing.T) {
	b := newBox(t, nil)
	topic := b.set(t, "a", `{}`)
	if topic.Slot() != nil {
		t.Error("a new topic has something in its slot")
	}
	topic.SetSlot([]int{1})
	topic.SetSlot([]int{2})
	if got := topic.Slot().([]int); got[0] != 2 {
		t.Errorf("got %v", got)
	}
}

func BenchmarkCreate(b *testing.B) {
	box := newBox(b, func(o *uns.Options) { o.Ingress.MaxTopics = 100_000_000 })
	b.ReportAllocs()
	batch := &uns.Batch{}
	n := 0
	for b.Loop() {
		batch.Reset()
		batch.Messages = append(batch.Messages, uns.Message{Workspace: "main", Path: fmt.Sprintf("line/%d/temp", n), Payload: []byte(`1`)})
		if err := box.Accept(b.Context(), batch); err != nil {
			b.Fatal(err)
		}
		n++
	}
}
