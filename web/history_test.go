package web_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// exact is a history page whose values keep their text.
type exact struct {
	Topics []struct {
		Topic, Resolution string
		T, V              []json.RawMessage
		Q                 []string
	}
	Next string
}

func texts(raw []json.RawMessage) (out []string) {
	for _, r := range raw {
		out = append(out, string(r))
	}
	return out
}

// noon is the boxes' clock at start, in ms.
const noon = int64(1796040000000)

func TestNoon(t *testing.T) {
	if got := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC).UnixMilli(); got != noon {
		t.Fatalf("noon is %d", got)
	}
}

// Every kind of value must come back with the very digits and text that were sent.
func TestValuesComeBackDigitForDigit(t *testing.T) {
	b := newBox(t)
	values := []string{
		"9007199254740993", "18446744073709551615", "0.1", "1.0", "-0", "1e3", "1.50E-7", "123456789012345678901234567890.123456789",
		`"00123"`, `""`, `"a\"b\\c"`, `"ünï\n"`, "true", "false", "null", `{"z":1.0,"a":[1,2.50]}`, `[]`,
	}
	var sent []string
	for i, v := range values {
		sent = append(sent, at(noon-1000+int64(i), v))
	}
	b.put("main", "line1/all", sent...)
	var page exact
	b.get("/uns/history", "topic", "line1/all").wants(t, 200).into(t, &page)
	if len(page.Topics) != 1 || page.Topics[0].Topic != "line1/all" || page.Topics[0].Resolution != "raw" || page.Next != "" {
		t.Fatalf("page %+v", page)
	}
	if diff := cmp.Diff(values, texts(page.Topics[0].V)); diff != "" {
		t.Errorf("history (-sent +got):\n%s", diff)
	}
	for i, ms := range page.Topics[0].T {
		if string(ms) != fmt.Sprint(noon-1000+int64(i)) || page.Topics[0].Q[i] != "good" {
			t.Errorf("row %d: t %s q %s", i, ms, page.Topics[0].Q[i])
		}
	}
	for i, line := range strings.Split(strings.TrimSuffix(b.get("/uns/history", "topic", "line1/all", "format", "ndjson").wants(t, 200).text, "\n"), "\n") {
		var row struct {
			Topic, Timestamp, Quality string
			Value                     json.RawMessage
		}
		must(t, json.Unmarshal([]byte(line), &row))
		if string(row.Value) != values[i] || row.Topic != "line1/all" || row.Timestamp != fmt.Sprintf("2026-11-30T11:59:59.%03dZ", i) {
			t.Errorf("ndjson row %d: %s", i, line)
		}
	}
	for i, v := range values {
		topic := fmt.Sprintf("one/v%d", i)
		b.put("main", topic, v2payload(v))
		if got := b.get("/uns/latest", "filter", topic).wants(t, 200).text; !strings.Contains(got, `"value":`+v+`,"timestamp":"2026-11-30T12:00:00.000Z","quality":"good","age_ms":0}`) {
			t.Errorf("latest of %s: %s", v, got)
		}
		if got := b.get("/uns/topic", "topic", topic).wants(t, 200).text; !strings.Contains(got, `"latest":{"value":`+v+`,`) {
			t.Errorf("topic of %s: %s", v, got)
		}
	}
}

func v2payload(v string) string { return `{"value":` + v + `}` }

// Following next to the end must give what one page gives, also while values arrive in the same topics.
func TestPagesAddUpToTheWholeWhileValuesArrive(t *testing.T) {
	for _, order := range []string{"asc", "desc"} {
		for _, limit := range []string{"1", "7", "50"} {
			t.Run(order+" "+limit, func(t *testing.T) {
				b := newBox(t)
				var want []string
				for topic := range 4 {
					path := fmt.Sprintf("line%d/x", topic)
					var sent []string
					for i := range 20 * topic {
						// Three of each time: equal times keep their order of arrival over page ends.
						sent = append(sent, at(noon-60000+int64(i/3), fmt.Sprint(topic*1000+i)))
					}
					if len(sent) > 0 {
						b.put("main", path, sent...)
					}
				}
				query := []string{"filter", "+/x", "order", order, "from", "-10m"}
				var whole exact
				b.get("/uns/history", append(query, "limit", "100000")...).wants(t, 200).into(t, &whole)
				for _, topic := range whole.Topics {
					want = append(want, texts(topic.V)...)
				}
				if len(want) != 120 || whole.Next != "" {
					t.Fatalf("the whole has %d values, next %q", len(want), whole.Next)
				}
				var got []string
				next, pages := "", 0
				for {
					q := append(query, "limit", limit)
					if next != "" {
						q = append(q, "cursor", next)
					}
					var page exact
					b.get("/uns/history", q...).wants(t, 200).into(t, &page)
					n := 0
					for _, topic := range page.Topics {
						got = append(got, texts(topic.V)...)
						n += len(topic.V)
					}
					if fmt.Sprint(n) > limit && len(fmt.Sprint(n)) >= len(limit) {
						t.Fatalf("a page of %d values, limit %s", n, limit)
					}
					// Later values arrive on the topics being read; the window has the end it had at the start.
					b.clock.add(time.Second)
					b.put("main", "line1/x", "9")
					b.put("main", "line3/x", "9")
					if next = page.Next; next == "" {
						break
					}
					if pages++; pages > 200 {
						t.Fatal("paging does not end")
					}
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("(-whole +pages):\n%s", diff)
				}
			})
		}
	}
}

func TestHistoryOfSeveralTopics(t *testing.T) {
	b := newBox(t)
	b.put("main", "b/1", at(noon-10, "1"))
	b.put("main", "a/1", at(noon-9, "2"))
	b.put("main", "µ/with space & more?", at(noon-8, "3"))
	b.put("main", "fine", `{"value":4,"timestamp":"2026-11-30T11:59:59.000001Z"}`)
	names := func(r reply) (out []string) {
		var page exact
		r.wants(t, 200).into(t, &page)
		for _, topic := range page.Topics {
			out = append(out, topic.Topic+"="+strings.Join(texts(topic.V), ","))
		}
		return out
	}
	got := names(b.get("/uns/history", "topic", "b/1", "topic", "mHv1.0/main/a/1", "topic", "b/1", "topic", "µ/with space & more?"))
	if diff := cmp.Diff([]string{"b/1=1", "a/1=2", "µ/with space & more?=3"}, got); diff != "" {
		t.Errorf("order asked for, each once (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"a/1=2", "b/1=1"}, names(b.get("/uns/history", "filter", "mHv1.0/main/+/1"))); diff != "" {
		t.Errorf("filter (-want +got):\n%s", diff)
	}
	var page exact
	b.get("/uns/history", "topic", "fine").wants(t, 200).into(t, &page)
	if got := string(page.Topics[0].T[0]); got != `"2026-11-30T11:59:59.000001Z"` {
		t.Errorf("a topic with µs has t %s", got)
	}
	// Exclusive end, inclusive start.
	if diff := cmp.Diff([]string{"b/1=", "a/1=2"}, names(b.get("/uns/history", "topic", "b/1", "topic", "a/1", "from", fmt.Sprint(noon-9), "to", fmt.Sprint(noon-8)))); diff != "" {
		t.Errorf("window (-want +got):\n%s", diff)
	}
}

func TestHistoryRefusals(t *testing.T) {
	b := newShelfBox(t)
	b.put("main", "a", at(noon-2, "1"), at(noon-1, "2"))
	b.put("main", "b", at(noon-2, "1"))
	var first exact
	b.get("/uns/history", "topic", "a", "limit", "1").into(t, &first)
	if first.Next == "" {
		t.Fatal("no cursor")
	}
	flipped := "A" + first.Next[1:]
	if first.Next[0] == 'A' {
		flipped = "B" + first.Next[1:]
	}
	var latest struct{ Next string }
	b.get("/uns/latest", "limit", "1").into(t, &latest)
	tests := []struct {
		name        string
		status      int
		code, field string
		query       []string
	}{
		{"no topic", 422, "invalid", "topic", nil},
		{"topic and filter", 422, "invalid", "topic", []string{"topic", "a", "filter", "#"}},
		{"unknown topic", 404, "topic_not_found", "topic", []string{"topic", "nope"}},
		{"bad topic", 422, "invalid", "topic", []string{"topic", "a//b"}},
		{"bad filter", 422, "invalid", "filter", []string{"filter", "a/#/b"}},
		{"bad from", 422, "invalid", "from", []string{"topic", "a", "from", "yesterday"}},
		{"bad to", 422, "invalid", "to", []string{"topic", "a", "to", "6h"}},
		{"empty window", 422, "invalid", "from", []string{"topic", "a", "from", "now"}},
		{"limit too high", 422, "invalid", "limit", []string{"topic", "a", "limit", "100001"}},
		{"limit zero", 422, "invalid", "limit", []string{"topic", "a", "limit", "0"}},
		{"order", 422, "invalid", "order", []string{"topic", "a", "order", "up"}},
		{"format", 422, "invalid", "format", []string{"topic", "a", "format", "parquet"}},
		{"every without agg", 422, "invalid", "every", []string{"topic", "a", "every", "1m"}},
		{"typing error", 422, "invalid", "form", []string{"topic", "a", "form", "csv"}},
		{"workspace", 422, "invalid", "workspace", []string{"topic", "a", "workspace", "nope"}},
		{"cursor: not base64", 422, "invalid", "cursor", []string{"topic", "a", "cursor", "%%%"}},
		{"cursor: cut", 422, "invalid", "cursor", []string{"topic", "a", "cursor", first.Next[:8]}},
		{"cursor: changed", 422, "invalid", "cursor", []string{"topic", "a", "cursor", flipped}},
		{"cursor: other topic", 422, "invalid", "cursor", []string{"topic", "b", "cursor", first.Next}},
		{"cursor: other filter", 422, "invalid", "cursor", []string{"filter", "b", "cursor", first.Next}},
		{"cursor: other order", 422, "invalid", "cursor", []string{"topic", "a", "order", "desc", "cursor", first.Next}},
		{"cursor: of another call", 422, "invalid", "cursor", []string{"topic", "a", "cursor", latest.Next}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b.get("/uns/history", test.query...).refused(t, test.status, test.code, test.field)
		})
	}
	broken := errors.New("sector 7 cannot be read")
	b.shelf.broken.Store(&broken)
	p := b.get("/uns/history", "topic", "a").refused(t, 500, "internal", "")
	if strings.Contains(p.Detail, "sector") {
		t.Error("our failure's text must not reach the caller")
	}
	if !strings.Contains(b.logged.String(), "sector 7") {
		t.Error("our failure's text must reach the log")
	}
}
