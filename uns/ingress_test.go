package uns_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/historian"
	"millrace/uns"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
)

// One batch with a message for every verdict: one Append, the right samples, every reason counted twice over.
func TestEveryVerdict(t *testing.T) {
	registry := prometheus.NewRegistry()
	b := newBox(t, func(o *uns.Options) {
		o.Ingress.PerClientRatePerSec = 100
		o.Ingress.MaxTopics = 3
		o.Ingress.MaxValueSize = 100
		o.Registry = registry
	})
	b.set(t, "n", `{"schema":{"type":"number","max":10}}`)
	b.set(t, "soft", `{"schema":{"max":10,"mode":"soft"},"timeZone":"Europe/Berlin","retention":"forever"}`)
	var live published
	b.SetLive(&live)
	client, slow := b.Source("c1"), b.Source("slow")
	for range 100 { // takes the whole burst
		b.put(t, uns.Message{Source: slow, Workspace: "main", Path: "n", Payload: []byte(`1`)})
	}
	b.store.samples, b.store.appends = nil, 0
	batch := &uns.Batch{Rows: []historian.Row{{Key: []byte("k"), Value: []byte("v")}}}
	add := func(path, payload string, change func(*uns.Message)) {
		m := uns.Message{Source: client, Workspace: "main", Path: path, Payload: []byte(payload), At: 77}
		if change != nil {
			change(&m)
		}
		batch.Messages = append(batch.Messages, m)
	}
	add("n", `7`, nil)
	add("n", ``, func(m *uns.Message) { m.Retain = true })
	add("n", `1`, func(m *uns.Message) { m.Verdict = uns.Verdict{Reason: uns.NotAuthorized, Detail: "no grant"} })
	add("n//x", `1`, nil)
	add("n", `ON`, nil)
	add("n", `"ON"`, nil)
	add("n", `11`, nil)
	add("n", `1e400`, nil)
	add("n", `{"value":1,"timestamp":"now"}`, nil)
	add("n", `{"value":1,"timestamp":"2036-02-07T06:28:16Z"}`, nil)
	add("n", `{"value":1,"timestamp":0}`, nil)
	add("n", `1`, func(m *uns.Message) { m.Source = slow })
	add("n", `"`+strings.Repeat("x", 100)+`"`, nil)
	add("new", `{"value":8}`, nil)
	add("onemore", `9`, nil)
	add("soft", `{"value":11,"timestamp":"2025-10-26T02:30:00"}`, nil)
	add("n", `1`, func(m *uns.Message) { m.Workspace = "nope" })
	add("n", `1`, func(m *uns.Message) { m.Verdict = uns.Verdict{Reason: uns.Internal} })
	if err := b.Write(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range batch.Messages {
		got = append(got, fmt.Sprintf("%d %s", m.At, m.Verdict))
	}
	want := []string{
		`0 stored`,
		`-1 cleared`,
		`-1 not_authorized: no grant`,
		`-1 topic_invalid: level 2 of the path is empty (byte 2): leading, trailing and double slashes are not allowed`,
		`-1 payload_invalid: byte 0: expected a JSON value, found 'O'`,
		`-1 type_mismatch: value: wanted number, found string "ON"`,
		`-1 schema_violation: value: 11 is above max 10`,
		`-1 number_out_of_range: value: 1e400 (byte 0) is beyond what a 64-bit float can hold`,
		`-1 timestamp_invalid: timestamp: "now" is not RFC 3339, like 2026-09-21T14:13:20.250Z`,
		`-1 timestamp_future: timestamp: 2036-02-07T06:28:16.000Z is 3425 days ahead of the box's clock, at most 5m0s are allowed`,
		`-1 timestamp_too_old: timestamp: 1970-01-01T00:00:00.000Z is 20717 days old, but the topic keeps 1d`,
		`-1 rate_limited: client "slow" sends more than 100 values a second`,
		`-1 payload_too_large: payload: 102 bytes, at most 100 are allowed`,
		`1 stored`,
		`-1 topic_limit: workspace main has 3 topics, which is the most it may have`,
		`2 stored`,
		`-1 topic_invalid: unknown workspace "nope", known: main`,
		`-1 internal`,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if b.store.appends != 1 || len(b.store.samples) != 3 || len(b.store.opaque) != 2 { // the caller's, and the clearing
		t.Errorf("%d appends, %d samples, %d rows", b.store.appends, len(b.store.samples), len(b.store.opaque))
	}
	wantLive := []string{
		`mHv1.0/main/n {"value":7,"timestamp":"2026-09-21T14:13:20.250Z","quality":"good"}`,
		`mHv1.0/main/new {"value":8,"timestamp":"2026-09-21T14:13:20.250Z","quality":"good"}`,
		`mHv1.0/main/soft {"value":11,"timestamp":"2025-10-26T00:30:00.000Z","quality":"uncertain"}`,
	}
	if d := cmp.Diff(wantLive, live.list); d != "" {
		t.Error(d)
	}

	refused := map[string]uint64{}
	for _, r := range uns.Reasons()[uns.NotAuthorized:] {
		refused[r.String()] = 1
	}
	delete(refused, "rate_limited")
	refused["topic_invalid"] = 2
	if d := cmp.Diff(refused, client.Refused()); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(map[string]uint64{"rate_limited": 1}, slow.Refused()); d != "" {
		t.Error(d)
	}
	if client.Accepted() != 3 || slow.Accepted() != 100 {
		t.Errorf("accepted %d, %d", client.Accepted(), slow.Accepted())
	}

	refused["rate_limited"] = 1
	metrics := map[string]float64{}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.Metric {
			switch {
			case f.GetName() == "millrace_uns_ingress_rejected_total":
				if got := m.GetCounter().GetValue(); got != float64(refused[m.Label[0].GetValue()]) {
					t.Errorf("%s: %v", m.Label[0].GetValue(), got)
				}
				metrics[f.GetName()]++
			case m.Counter != nil:
				metrics[f.GetName()] = m.GetCounter().GetValue()
			default:
				metrics[f.GetName()] = m.GetGauge().GetValue()
			}
		}
	}
	if d := cmp.Diff(map[string]float64{
		"millrace_uns_ingress_accepted_total":             103,
		"millrace_uns_ingress_cleared_total":              1,
		"millrace_uns_ingress_rejected_total":             13,
		"millrace_uns_ingress_soft_violations_total":      1,
		"millrace_uns_ingress_ambiguous_timestamps_total": 1,
		"millrace_uns_ingress_unit_failures_total":        0,
		"millrace_uns_ingress_late_total":                 0,
		"millrace_uns_ingress_duplicates_total":           0,
		"millrace_uns_ingress_gaps_total":                 0,
		"millrace_uns_topics_stale":                       0,
		"millrace_uns_topics":                             3,
	}, metrics); d != "" {
		t.Error(d)
	}
}

// F13: thousands of refusals beside thousands of good values, and the stream goes on.
func TestAlternatingTypes(t *testing.T) {
	b := newBox(t, nil)
	b.set(t, "a", `{"schema":{"type":"number"}}`)
	client, batch := b.Source("c1"), &uns.Batch{}
	for i := range 5000 {
		batch.Reset()
		payload := `{"value":12.5}`
		if i%2 == 1 {
			payload = `{"value":"ON"}`
		}
		batch.Messages = append(batch.Messages, uns.Message{Source: client, Workspace: "main", Path: "a", Payload: []byte(payload)})
		if err := b.Accept(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
	}
	if client.Accepted() != 2500 || client.Refused()["type_mismatch"] != 2500 || len(b.store.samples) != 2500 {
		t.Errorf("accepted %d, refused %v, stored %d", client.Accepted(), client.Refused(), len(b.store.samples))
	}
}

// An error means that nothing may be acknowledged: no message may look stored, none may go live.
func TestStoreFails(t *testing.T) {
	for name, c := range map[string]struct {
		breakIt func(*memory)
		wantErr error
	}{
		"append": {func(m *memory) { m.onAppend = func() error { return historian.ErrStalled } }, historian.ErrStalled},
		"create": {func(m *memory) { m.onCreate = func() error { return historian.ErrClosed } }, historian.ErrClosed},
	} {
		b := newBox(t, nil)
		b.fill(t, "old")
		c.breakIt(b.store)
		var live published
		b.SetLive(&live)
		client := b.Source("c1")
		batch := &uns.Batch{}
		for _, m := range []uns.Message{{Path: "old", Payload: []byte(`1`)}, {Path: "old", Payload: []byte(`x`)}, {Path: "new", Payload: []byte(`2`)}, {Path: "old", Payload: []byte(`3`)}} {
			m.Workspace, m.Source, m.At = "main", client, 5
			batch.Messages = append(batch.Messages, m)
		}
		if err := b.Write(t.Context(), batch); !errors.Is(err, c.wantErr) {
			t.Errorf("%s: got %v", name, err)
		}
		b.Announce(batch)
		for i, m := range batch.Messages {
			if want := i != 1; (m.Verdict.Reason == uns.Internal) != want || m.Verdict.OK() || m.At != -1 {
				t.Errorf("%s: message %d: %v at %d", name, i, m.Verdict, m.At)
			}
		}
		if len(live.list) != 0 || len(b.store.samples) != 1 || len(batch.Samples) != 0 {
			t.Errorf("%s: %d live, %d stored, %d in the batch", name, len(live.list), len(b.store.samples), len(batch.Samples))
		}
		if got := client.Refused(); got["internal"] != 3 || got["payload_invalid"] != 1 || client.Accepted() != 0 {
			t.Errorf("%s: counted %v", name, got)
		}
	}
}

func TestRefusedOnlyNeedsNoStore(t *testing.T) {
	b := newBox(t, nil)
	b.store.onAppend = func() error { t.Error("appended"); return nil }
	b.send(t, "a", `x`)
	b.put(t, uns.Message{Workspace: "main", Path: "a", Retain: true})
	if err := b.Accept(t.Context(), &uns.Batch{}); err != nil {
		t.Error(err)
	}
}

func TestRates(t *testing.T) {
	b := newBox(t, func(o *uns.Options) { o.Ingress.PerClientRatePerSec, o.Ingress.PerWorkspaceRatePerSec = 10, 25 })
	sent := func(client string, n int) (stored int, last uns.Verdict) {
		for range n {
			m := uns.Message{Workspace: "main", Path: "a", Payload: []byte(`1`)}
			if client != "" {
				m.Source = b.Source(client)
			}
			if v, _ := b.put(t, m); v.OK() {
				stored++
			} else {
				last = v
			}
		}
		return stored, last
	}
	for _, c := range []struct {
		wait   time.Duration
		client string
		want   int
		detail string
	}{
		{0, "c1", 10, `client "c1" sends more than 10 values a second`},
		{0, "c1", 0, `client "c1" sends more than 10 values a second`},
		{0, "c2", 10, `client "c2" sends more than 10 values a second`},
		{0, "c3", 5, `client "c3" sends more than 10 values a second`},
		{0, "", 0, `workspace main gets more than 25 values a second`},
		{500 * time.Millisecond, "c1", 5, `client "c1" sends more than 10 values a second`},
		{time.Hour, "c1", 10, `client "c1" sends more than 10 values a second`},
		{-2 * time.Hour, "c1", 10, `client "c1" sends more than 10 values a second`},
		{time.Second, "c1", 10, `client "c1" sends more than 10 values a second`},
	} {
		b.now = b.now.Add(c.wait)
		if got, v := sent(c.client, 20); got != c.want || v.Detail != c.detail || v.Reason != uns.RateLimited {
			t.Errorf("%v later %q: %d stored, %v; want %d, %s", c.wait, c.client, got, v, c.want, c.detail)
		}
	}
}

func TestBucketUnderContention(t *testing.T) {
	bucket := uns.NewBucket(1000)
	var passed [4]int
	var group sync.WaitGroup
	for g := range passed {
		group.Add(1)
		go func() {
			defer group.Done()
			for range 1000 {
				if bucket.Allow(time.Second) {
					passed[g]++
				}
			}
		}()
	}
	group.Wait()
	if n := passed[0] + passed[1] + passed[2] + passed[3]; n != 1000 {
		t.Errorf("%d passed, want 1000", n)
	}
}

func TestSourceIsShared(t *testing.T) {
	b := newBox(t, nil)
	first, again := b.Source("a"), b.Source("a")
	if first != again || first == b.Source("b") {
		t.Error("a client has other than one source")
	}
}

func TestAppendVerdict(t *testing.T) {
	s := &uns.Sample{Time: noon.UnixNano(), Scale: 6, Seq: 123}
	for _, c := range []struct {
		v    uns.Verdict
		s    *uns.Sample
		want string
	}{
		{uns.Verdict{}, s, `{"status":"stored","topic":"a\"/\\\u0001\ufffd","timestamp":"2026-09-21T14:13:20.250Z","seq":123}`},
		{uns.Verdict{Reason: uns.Cleared}, nil, `{"status":"cleared","topic":"a\"/\\\u0001\ufffd"}`},
		{uns.Verdict{Reason: uns.RateLimited, Detail: "too\n\tfast"}, nil, `{"status":"refused","reason":"rate_limited","detail":"too\n\tfast","topic":"a\"/\\\u0001\ufffd"}`},
	} {
		if got := string(uns.AppendVerdict(nil, "a\"/\\\x01\xff", c.v, c.s)); got != strings.ReplaceAll(c.want, `\ufffd`, "\ufffd") {
			t.Errorf("got %s", got)
		}
	}
}

func TestReasonNames(t *testing.T) {
	want := "stored cleared not_authorized topic_invalid payload_invalid type_mismatch schema_violation number_out_of_range timestamp_invalid timestamp_future timestamp_too_old rate_limited payload_too_large topic_limit internal"
	if got := strings.Trim(fmt.Sprint(uns.Reasons()), "[]"); got != want {
		t.Errorf("got %s", got)
	}
	if got := uns.Reason(200).String(); got != "reason(200)" {
		t.Error(got)
	}
}

// steady is a batch of n values of topics that exist.
func steady(tb testing.TB, n int, payload string) (*uns.Ingress, *uns.Batch, func()) {
	o := options(func(o *uns.Options) {
		o.Ingress.PerClientRatePerSec, o.Ingress.PerWorkspaceRatePerSec = 10_000_000, 10_000_000
	})
	store := &sink{}
	ns := uns.NewNamespace(o)
	catalog, err := uns.OpenCatalog(ns, store, store, o)
	if err != nil {
		tb.Fatal(err)
	}
	in := uns.NewIngress(ns, catalog, store, nil, o)
	source, body := in.Source("c1"), []byte(payload)
	batch := &uns.Batch{}
	paths := make([]string, n)
	for i := range paths {
		paths[i] = fmt.Sprintf("line1/press-%d/temp", i)
	}
	fill := func() {
		batch.Reset()
		for _, p := range paths {
			batch.Messages = append(batch.Messages, uns.Message{Source: source, Workspace: "main", Path: p, Payload: body})
		}
	}
	fill()
	if err := in.Accept(context.Background(), batch); err != nil {
		tb.Fatal(err)
	}
	for _, m := range batch.Messages {
		if !m.Verdict.OK() {
			tb.Fatal(m.Verdict)
		}
	}
	return in, batch, fill
}

var payloads = []struct{ name, payload string }{
	{"number", `{"value":23.5}`},
	{"bare", `23.5`},
	{"quality", `{"value":23.5,"quality":"uncertain","unit":"bar"}`},
	{"text", `{"value":"run\u006eing fast"}`},
	{"object", `{"state": "ON", "power": 12.3, "list": [1, 2, 3]}`},
	{"uint64", `{"value":18446744073709551615}`},
}

func TestAcceptAllocatesNothing(t *testing.T) {
	now := time.Now().UTC()
	list := append(payloads[:len(payloads):len(payloads)],
		struct{ name, payload string }{"stamped", fmt.Sprintf(`{"value":1,"timestamp":%d}`, now.UnixMilli())},
		struct{ name, payload string }{"text time", fmt.Sprintf(`{"value":1,"timestamp":%q}`, now.Format(time.RFC3339Nano))})
	for _, c := range list {
		in, batch, fill := steady(t, 16, c.payload)
		got := testing.AllocsPerRun(100, func() {
			fill()
			if err := in.Accept(context.Background(), batch); err != nil {
				t.Fatal(err)
			}
		})
		if got != 0 {
			t.Errorf("%s: %v allocations for 16 messages", c.name, got)
		}
	}
}

func BenchmarkAccept(b *testing.B) {
	for _, n := range []int{1, 16} {
		for _, c := range payloads {
			b.Run(fmt.Sprintf("%s/%d", c.name, n), func(b *testing.B) {
				in, batch, fill := steady(b, n, c.payload)
				b.ReportAllocs()
				for b.Loop() {
					fill()
					if err := in.Accept(context.Background(), batch); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/value")
			})
		}
	}
}

func BenchmarkAppendLive(b *testing.B) {
	s := &uns.Sample{Time: noon.UnixNano(), Scale: 6, Value: historian.Value{Kind: historian.Decimal, Exp: 1, Mant: 235}}
	b.ReportAllocs()
	var dst []byte
	for b.Loop() {
		dst = uns.AppendLive(dst[:0], s)
	}
}
