package web_test

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/auth"

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

func TestPublishAnswersTheVerdict(t *testing.T) {
	b := newBox(t)
	secret := b.client("press1", "main", allow("line1/#", "publish", "subscribe"))
	tests := []struct{ name, body, want string }{
		{"exact digits", `{"topic":"line1/n","value":18446744073709551615,"timestamp":1796039999999,"quality":"uncertain"}`,
			`{"status":"stored","topic":"line1/n","timestamp":"2026-11-30T11:59:59.999Z","seq":1}`},
		{"full topic", `{"topic":"mHv1.0/main/line1/n","value":null}`, `{"status":"stored","topic":"line1/n","timestamp":"2026-11-30T12:00:00.000Z","seq":2}`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := b.call("", "POST", "/uns/publish").as("press1", secret).json(test.body).do().wants(t, 200)
			if strings.TrimSpace(got.text) != test.want {
				t.Errorf("verdict %s, want %s", got.text, test.want)
			}
		})
	}
	refusals := []struct{ body, reason string }{
		{`{"topic":"line1/n","value":1e400}`, "number_out_of_range"},
		{`{"topic":"line1/n","value":1,"quality":"splendid"}`, "payload_invalid"},
		{`{"topic":"line1/n","value":1,"timestamp":"yesterday"}`, "timestamp_invalid"},
		{`{"topic":"line1/n","value":1,"timestamp":"2036-01-01T00:00:00Z"}`, "timestamp_future"},
		{`{"topic":"line1//n","value":1}`, "topic_invalid"},
		{`{"topic":"line2/n","value":1}`, "not_authorized"},
	}
	for _, test := range refusals {
		t.Run(test.reason, func(t *testing.T) {
			var v struct{ Status, Reason, Detail string }
			b.call("", "POST", "/uns/publish").as("press1", secret).json(test.body).do().wants(t, 200).into(t, &v)
			if v.Status != "refused" || v.Reason != test.reason || v.Detail == "" {
				t.Errorf("verdict %+v, want %s", v, test.reason)
			}
		})
	}
	if n := b.ingress.Source("press1").Refused()["not_authorized"]; n != 1 {
		t.Errorf("the client's page counts %d refusals by grant", n)
	}
	b.call(auth.RoleOperator, "POST", "/uns/publish").json(`{"value":1}`).do().refused(t, 422, "invalid", "topic")
	b.call(auth.RoleOperator, "POST", "/uns/publish").json(`{"topic":"a","value":1,"value":2}`).do().refused(t, 422, "invalid", "value")
	b.call(auth.RoleOperator, "POST", "/uns/publish").json(`{"topic":"a","Topic":"b","value":1}`).do().refused(t, 422, "invalid", "topic")
	b.call(auth.RoleOperator, "POST", "/uns/publish").json(`{"topic":"a"}`).do().refused(t, 422, "invalid", "value")
	b.call(auth.RoleOperator, "POST", "/uns/publish").json(`{"topic":"a","value":}`).do().refused(t, 400, "malformed", "")
	b.call(auth.RoleOperator, "POST", "/uns/publish").json(`{"topic":"a","value":[1}`).do().refused(t, 400, "malformed", "")
	b.call(auth.RoleOperator, "POST", "/uns/publish").json(`{"topic":NaN,"value":NaN}`).do().refused(t, 400, "malformed", "")
	b.call(auth.RoleOperator, "POST", "/uns/publish").json(`{"topic":"a","value":1,"qualty":"good"}`).do().refused(t, 400, "malformed", "")
	if b.catalog.Lookup("main", "a") != nil {
		t.Error("a refused body made a topic")
	}
}

// What JSON cannot hold is refused as a device's payload is, and the place is one within the member that was sent.
func TestPublishNamesThePlaceWithinTheMember(t *testing.T) {
	b := newBox(t)
	for _, test := range []struct{ body, reason, detail string }{
		{`{"topic":"a","value":NaN}`, "payload_invalid", "byte 0 of value: "},
		{`{ "value" : -Infinity , "topic":"a"}`, "payload_invalid", "byte 1 of value: "},
		{`{"value":01,"topic":"a","quality":"good"}`, "payload_invalid", "byte 1 of value: "},
		{`{"topic":"a","value":[1,{"b":NaN}],"timestamp":"2026-11-30T11:00:00Z"}`, "payload_invalid", "byte 8 of value: "},
		{`{"topic":"a","value":"\q"}`, "payload_invalid", "byte 2 of value: "},
		{`{"topic":"a","value":1 2}`, "payload_invalid", "byte 2 of value: "},
		{`{"topic":"a","value":1e400}`, "number_out_of_range", "(byte 0 of value)"},
		{`{"topic":"a","value":[0,1e400]}`, "number_out_of_range", "(byte 3 of value)"},
		{`{"topic":"a","value":1,"quality":"(byte 3)"}`, "payload_invalid", "(byte 0 of quality)"},
	} {
		var v struct{ Status, Reason, Detail, Topic string }
		b.call(auth.RoleOperator, "POST", "/uns/publish").json(test.body).do().wants(t, 200).into(t, &v)
		if v.Status != "refused" || v.Reason != test.reason || !strings.Contains(v.Detail, test.detail) || v.Topic != "a" {
			t.Errorf("%s: %+v, want %s with %q", test.body, v, test.reason, test.detail)
		}
	}
}

// A topic that takes text or bytes as they are still gets the value, not the envelope that web makes of it.
func TestPublishToATextTopic(t *testing.T) {
	b := newBox(t)
	for _, test := range []struct{ kind, value, want string }{{"text", `"ON"`, `"value":"ON",`}, {"bytes", `"T04="`, `"value":"T04=",`}} {
		b.call(auth.RoleDesigner, "PUT", "/uns/topic", "topic", test.kind).json(`{"schema":{"type":"`+test.kind+`"}}`).do().wants(t, 200)
		b.call(auth.RoleOperator, "POST", "/uns/publish").json(`{"topic":"`+test.kind+`","value":`+test.value+`}`).do().wants(t, 200)
		if got := b.get("/uns/latest", "filter", test.kind).wants(t, 200).text; !strings.Contains(got, test.want) {
			t.Errorf("%s: %s", test.kind, got)
		}
	}
}

func TestStalledStoreIs503(t *testing.T) {
	b := newShelfBox(t)
	b.shelf.stalled.Store(true)
	r := b.call(auth.RoleOperator, "POST", "/uns/publish").json(`{"topic":"a","value":1}`).do()
	r.refused(t, 503, "storage_stalled", "")
	if r.Header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
}

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
		{"aggregate", 422, "not_available", "agg", []string{"topic", "a", "agg", "avg"}},
		{"every", 422, "not_available", "every", []string{"topic", "a", "every", "1m"}},
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

func TestCSVQuotesWhatNeedsIt(t *testing.T) {
	b := newBox(t)
	values := []string{`"plain"`, `"a,b"`, `"say \"hi\""`, `"two\nlines"`, `" lead"`, `""`, `null`, `{"a":"b,c"}`, `1.0`, `"00123"`}
	want := []string{"plain", "a,b", `say "hi"`, "two\nlines", " lead", "", "", `{"a":"b,c"}`, "1.0", "00123"}
	var sent []string
	for i, v := range values {
		sent = append(sent, at(noon-100+int64(i), v))
	}
	b.put("main", "q/a,b", sent...)
	r := b.get("/uns/history", "topic", "q/a,b", "format", "csv").wants(t, 200)
	rows, err := csv.NewReader(strings.NewReader(r.text)).ReadAll()
	must(t, err)
	if !slices.Equal(rows[0], []string{"topic", "timestamp", "value", "quality"}) || len(rows) != len(values)+1 {
		t.Fatalf("rows %v", rows)
	}
	for i, row := range rows[1:] {
		if row[0] != "q/a,b" || row[2] != want[i] || row[3] != "good" {
			t.Errorf("row %d: %q, want value %q", i, row, want[i])
		}
	}
	if !strings.Contains(r.text, `Z,"",good`) || !strings.Contains(r.text, `Z,,good`) {
		t.Error("empty text and null must differ")
	}
	paged := b.get("/uns/history", "topic", "q/a,b", "format", "csv", "limit", "1")
	if paged.Header.Get("Next-Cursor") == "" || !strings.HasPrefix(r.Header.Get("Content-Type"), "text/csv") || r.Header.Get("Next-Cursor") != "" {
		t.Errorf("headers %v", paged.Header)
	}
}

func TestTopicSettings(t *testing.T) {
	b := newBox(t)
	b.call(auth.RoleDesigner, "PUT", "/uns/topic", "topic", "line1/t").json(`{"schema":{"type":"number","unit":"°C","min":0.10,"max":18446744073709551615},"retention":"7d"}`).do().wants(t, 200)
	got := b.get("/uns/topic", "topic", "line1/t").wants(t, 200).text
	for _, part := range []string{`"topic":"line1/t"`, `"full":"mHv1.0/main/line1/t"`, `"workspace":"main"`, `"min":0.10`, `"max":18446744073709551615`, `"retention":"7d"`, `"latest":null`} {
		if !strings.Contains(got, part) {
			t.Errorf("%s is missing from %s", part, got)
		}
	}
	if !json.Valid([]byte(got)) {
		t.Errorf("not JSON: %s", got)
	}
	b.call(auth.RoleDesigner, "PUT", "/uns/topic", "topic", "line1/t").json(`{"retention":"8d"}`).do().refused(t, 422, "invalid", "retention")
	b.call(auth.RoleDesigner, "PUT", "/uns/topic", "topic", "line1//t").json(`{}`).do().refused(t, 422, "invalid", "topic")
	b.get("/uns/topic", "topic", "line1/none").refused(t, 404, "topic_not_found", "topic")
}

func TestTreeSearchAndLatestPage(t *testing.T) {
	b := newBox(t)
	for _, path := range []string{"line1/press/temp", "line1/press/speed", "line1/Oven/TEMP", "line2/temp", "zeta"} {
		b.put("main", path, "1")
	}
	b.put("plant2", "elsewhere/temp", "1")
	collect := func(path, list, key string, query ...string) (out []string) {
		next := ""
		for range 20 {
			q := append(slices.Clone(query), "limit", "2")
			if next != "" {
				q = append(q, "cursor", next)
			}
			var page map[string]json.RawMessage
			b.get(path, q...).wants(t, 200).into(t, &page)
			var rows []map[string]any
			must(t, json.Unmarshal(page[list], &rows))
			for _, row := range rows {
				out = append(out, fmt.Sprint(row[key]))
			}
			must(t, json.Unmarshal(page["next"], &next))
			if next == "" {
				return out
			}
		}
		t.Fatal("paging does not end")
		return nil
	}
	tests := []struct {
		path, list, key string
		query, want     []string
	}{
		{"/uns/children", "children", "level", nil, []string{"line1", "line2", "zeta"}},
		{"/uns/children", "children", "path", []string{"path", "line1"}, []string{"line1/Oven", "line1/press"}},
		{"/uns/children", "children", "level", []string{"path", "mHv1.0/main/line1/press"}, []string{"speed", "temp"}},
		{"/uns/children", "children", "level", []string{"workspace", "plant2"}, []string{"elsewhere"}},
		{"/uns/search", "topics", "topic", []string{"q", "TeMp"}, []string{"line1/Oven/TEMP", "line1/press/temp", "line2/temp"}},
		{"/uns/search", "topics", "topic", []string{"q", "nothing"}, nil},
		{"/uns/latest", "topics", "topic", nil, []string{"line1/Oven/TEMP", "line1/press/speed", "line1/press/temp", "line2/temp", "zeta"}},
		{"/uns/latest", "topics", "topic", []string{"filter", "line1/press/+"}, []string{"line1/press/speed", "line1/press/temp"}},
	}
	for _, test := range tests {
		if diff := cmp.Diff(test.want, collect(test.path, test.list, test.key, test.query...)); diff != "" {
			t.Errorf("%s %v (-want +got):\n%s", test.path, test.query, diff)
		}
	}
	b.get("/uns/search").refused(t, 422, "invalid", "q")
	b.get("/uns/children", "cursor", "x").refused(t, 422, "invalid", "cursor")
	b.get("/uns/latest", "cursor", "x").refused(t, 422, "invalid", "cursor")
}

// What an API client may not receive it must not learn of by any read.
func TestReadsAreHeldToGrants(t *testing.T) {
	b := newBox(t)
	for _, path := range []string{"line1/a", "line1/secret", "line2/a", "top"} {
		b.put("main", path, "1")
	}
	secret := b.client("reader", "main", allow("line1/#", "subscribe"),
		auth.Grant{Effect: "deny", Actions: []auth.Action{"subscribe"}, Filter: "line1/secret"})
	as := func(path string, query ...string) reply {
		return b.call("", "GET", path, query...).as("reader", secret).do()
	}
	for path, query := range map[string][]string{
		"/uns/history": {"filter", "#"}, "/uns/latest": {"filter", "#"}, "/uns/search": {"q", "e"}, "/uns/children": {"path", "line1"},
	} {
		text := as(path, query...).wants(t, 200).text
		if strings.Contains(text, "secret") || strings.Contains(text, "line2") || strings.Contains(text, `"top"`) {
			t.Errorf("%s shows too much: %s", path, text)
		}
		if path != "/uns/search" && !strings.Contains(text, "line1/a") {
			t.Errorf("%s shows too little: %s", path, text)
		}
	}
	if got := as("/uns/children").text; strings.Contains(got, "line2") || !strings.Contains(got, `"children":1`) {
		t.Errorf("children %s", got)
	}
	as("/uns/topic", "topic", "line1/a").wants(t, 200)
	for _, topic := range []string{"line1/secret", "line2/a", "line9/none"} {
		as("/uns/topic", "topic", topic).refused(t, 403, "not_authorized", "")
		as("/uns/history", "topic", topic).refused(t, 403, "not_authorized", "")
	}
	as("/uns/latest", "workspace", "plant2").refused(t, 403, "not_authorized", "")
	own := b.client("there", "plant2", allow("#", "publish", "subscribe"))
	b.put("plant2", "x", "1")
	if got := b.call("", "GET", "/uns/latest").as("there", own).do().wants(t, 200).text; !strings.Contains(got, `"topic":"x"`) {
		t.Errorf("a client's default workspace is its own: %s", got)
	}
}

func TestManyRequestsAtOnce(t *testing.T) {
	b := newBox(t)
	var sent []string
	for i := range 500 {
		sent = append(sent, at(noon-1000+int64(i), fmt.Sprint(i)))
	}
	b.put("main", "line1/x", sent...)
	want := b.get("/uns/history", "topic", "line1/x").wants(t, 200).text
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			switch i % 4 {
			case 0, 1:
				if r, err := b.call(auth.RoleViewer, "GET", "/uns/history", "topic", "line1/x").try(); err != nil || r.text != want {
					t.Errorf("history %d: %v, %d bytes of %d", i, err, len(r.text), len(want))
				}
			case 2:
				if r, err := b.call(auth.RoleOperator, "POST", "/uns/publish").json(fmt.Sprintf(`{"topic":"p/%d","value":%d}`, i, i)).try(); err != nil || r.StatusCode != 200 {
					t.Errorf("publish %d: %v", i, err)
				}
			case 3:
				if r, err := b.call(auth.RoleViewer, "GET", "/status").try(); err != nil || r.StatusCode != 200 {
					t.Errorf("status %d: %v", i, err)
				}
			}
		})
	}
	all.Wait()
}

// Pooled buffers must not leak one topic's text into another's answer, and large values must end a page early.
func TestPageOfLargeValuesEndsEarly(t *testing.T) {
	b := newBox(t)
	big := `"` + strings.Repeat("x", 200_000) + `"`
	var sent []string
	for i := range 80 {
		sent = append(sent, at(noon-1000+int64(i), big))
	}
	b.put("main", "big", sent...)
	var page exact
	b.get("/uns/history", "topic", "big").wants(t, 200).into(t, &page)
	n := len(page.Topics[0].V)
	if n == 0 || n == 80 || page.Next == "" {
		t.Fatalf("%d values on the page, next %q", n, page.Next)
	}
	for page.Next != "" {
		next := page.Next
		page = exact{}
		b.get("/uns/history", "topic", "big", "cursor", next).wants(t, 200).into(t, &page)
		n += len(page.Topics[0].V)
	}
	if n != 80 {
		t.Errorf("%d values over all pages", n)
	}
}

func TestTooManyLargeReadsWait(t *testing.T) {
	entered, release := make(chan struct{}, 64), make(chan struct{})
	b := newShelfBox(t)
	b.put("main", "a", at(noon-1, "1"))
	b.shelf.entered, b.shelf.release = entered, release
	var all sync.WaitGroup
	for range 12 {
		all.Go(func() {
			if r, err := b.call(auth.RoleViewer, "GET", "/uns/history", "topic", "a").try(); err != nil || r.StatusCode != http.StatusOK {
				t.Errorf("%v %d", err, r.StatusCode)
			}
		})
	}
	for range 8 {
		<-entered
	}
	select {
	case <-entered:
		t.Error("a ninth large read runs beside eight")
	default:
	}
	close(release)
	all.Wait()
}
