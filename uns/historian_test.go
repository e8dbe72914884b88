package uns_test

import (
	"fmt"
	"testing"
	"time"

	"millrace/historian"
	"millrace/uns"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// plant is the way in on a real historian.
type plant struct {
	*uns.Ingress
	catalog *uns.Catalog
	store   *historian.Store
}

func openPlant(t *testing.T, fs vfs.FS) *plant {
	t.Helper()
	ho := historian.DefaultOptions()
	ho.FS, ho.MinFreeSpace = fs, 0
	store, err := historian.Open("data", ho)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() }) // what it still does would be counted by others
	o := options(nil)
	ns := uns.NewNamespace(o)
	catalog, err := uns.OpenCatalog(ns, store, store, o)
	if err != nil {
		t.Fatal(err)
	}
	return &plant{uns.NewIngress(ns, catalog, store, nil, o), catalog, store}
}

// What was sent is what the historian gives back, before and after a restart; so are topics and their settings.
func TestOnRealHistorian(t *testing.T) {
	fs := vfs.NewMem()
	p := openPlant(t, fs)
	if _, err := p.catalog.Set(t.Context(), "main", "set", []byte(`{"schema":{"type":"number","max":1.50},"retention":"7d"}`)); err != nil {
		t.Fatal(err)
	}
	values := []string{
		`23.5`, `1.0`, `-0.0`, `9007199254740993`, `18446744073709551615`, `1e-400`, `true`, `false`, `null`, `"00123"`, `"Öl \"°C\""`, `""`,
		`{"b":1,"a":[1,2,{"x":1.50}]}`, `[]`,
	}
	batch := &uns.Batch{}
	stamp := time.Now().Add(-time.Minute).UnixMilli()
	for i, v := range values {
		batch.Messages = append(batch.Messages,
			uns.Message{Source: p.Source("c1"), Workspace: "main", Path: fmt.Sprintf("kinds/%d", i), Payload: []byte(v)},
			uns.Message{Source: p.Source("c1"), Workspace: "main", Path: "stamped", Payload: fmt.Appendf(nil, `{"value":%s,"timestamp":%d}`, v, stamp)})
	}
	batch.Messages = append(batch.Messages, uns.Message{Workspace: "main", Path: "set", Payload: []byte(`{"value":1.5,"unit":"bar"}`)})
	if err := p.Accept(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	for _, m := range batch.Messages {
		// An object with a key value would be an envelope; these have none, so each is stored as it stands.
		if !m.Verdict.OK() {
			t.Errorf("%s %s: %v", m.Path, m.Payload, m.Verdict)
		}
	}
	if s := batch.Samples[0]; s.Seq == 0 || s.Time == 0 || s.Time != s.Received || s.Scale != 6 {
		t.Errorf("the historian filled in %+v", s)
	}
	check := func(when string) {
		t.Helper()
		for i, want := range values {
			topic := p.catalog.Lookup("main", fmt.Sprintf("kinds/%d", i))
			if topic == nil {
				t.Fatalf("%s: no topic %d", when, i)
			}
			s, ok := p.catalog.Latest(topic)
			if got := string(s.Value.AppendJSON(nil)); !ok || got != want {
				t.Errorf("%s: got %s, want %s", when, got, want)
			}
		}
		// F18: one timestamp, all kept, in order of arrival.
		page, _, err := p.store.Raw(t.Context(), nil, historian.Query{Series: p.catalog.Lookup("main", "stamped").Series, From: stamp * 1e6, To: stamp*1e6 + 1})
		if err != nil || len(page) != len(values) {
			t.Fatalf("%s: %d samples with one timestamp, want %d: %v", when, len(page), len(values), err)
		}
		for i, want := range values {
			if got := string(page[i].Value.AppendJSON(nil)); got != want || page[i].Scale > 6 {
				t.Errorf("%s: place %d: got %s scale %d, want %s", when, i, got, page[i].Scale, want)
			}
		}
		set := p.catalog.Lookup("main", "set").Settings()
		if set.Schema.Unit != "bar" || set.Retention != "7d" || string(set.Schema.Max.AppendJSON(nil)) != "1.50" {
			t.Errorf("%s: settings %+v", when, set)
		}
	}
	check("at once")
	for _, when := range []string{"after a restart", "after another"} {
		if err := p.store.Close(); err != nil {
			t.Fatal(err)
		}
		p = openPlant(t, fs)
		check(when)
	}
	if err := p.store.Close(); err != nil {
		t.Fatal(err)
	}
	batch.Reset()
	batch.Messages = append(batch.Messages, uns.Message{Workspace: "main", Path: "set", Payload: []byte(`1`)})
	if err := p.Accept(t.Context(), batch); err == nil || batch.Messages[0].Verdict.OK() {
		t.Errorf("a closed store accepted: %v, %v", err, batch.Messages[0].Verdict)
	}
}
