package web_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"millrace/auth"

	"github.com/google/go-cmp/cmp"
)

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
