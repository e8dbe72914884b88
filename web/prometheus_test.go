package web_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"millrace/auth"
)

// prom asks the API that data sources use.
func (b *box) prom(role auth.Role, path string, query ...string) *ask {
	a := b.call(role, "GET", "", query...)
	a.path = "/prometheus/api/v1/" + path + strings.TrimPrefix(a.path, "/api/v1")
	return a
}

// data is what an answer holds, without the wrapping, its white space as Go writes it.
func data(t *testing.T, r reply) string {
	t.Helper()
	var body struct {
		Status string
		Data   json.RawMessage
	}
	if err := json.Unmarshal([]byte(r.text), &body); err != nil || r.StatusCode != http.StatusOK || body.Status != "success" {
		t.Fatalf("%d %s", r.StatusCode, r.text)
	}
	return string(body.Data)
}

// A stock Prometheus data source reads history: what it asks for, in its order, over real stored values.
func TestPrometheusReadsHistory(t *testing.T) {
	b := newBox(t)
	start := b.clock.Now().Add(-time.Hour).Truncate(time.Minute)
	ms := func(i int) int64 { return start.Add(time.Duration(i) * 10 * time.Second).UnixMilli() }
	for i := range 12 {
		b.put("main", "line1/temp", at(ms(i), fmt.Sprint(20+i)))
		b.put("main", "line1/state", at(ms(i), fmt.Sprint(i%2 == 0)))
	}
	b.put("main", "line2/name", at(ms(1), `"x"`))
	b.put("plant2", "line1/temp", at(ms(3), "7.25"))
	b.call(auth.RoleDesigner, "PUT", "/uns/topic", "topic", "line1/temp").json(`{"schema":{"unit":"°C"}}`).do().wants(t, 200)
	if got := data(t, b.prom(auth.RoleViewer, "status/buildinfo").do()); !strings.Contains(got, `"version":"2.`) {
		t.Error(got)
	}
	if got := data(t, b.prom(auth.RoleViewer, "label/__name__/values").do()); got != `["millrace_value"]` {
		t.Error(got)
	}
	if got := data(t, b.prom(auth.RoleViewer, "label/topic/values", "match[]", `millrace_value{workspace="main"}`).do()); got != `["line1/state","line1/temp","line2/name"]` {
		t.Error(got)
	}
	if got := data(t, b.prom(auth.RoleViewer, "series", "match[]", `{topic=~".*temp"}`).do()); got != `[{"__name__":"millrace_value","topic":"line1/temp","unit":"°C","workspace":"main"},{"__name__":"millrace_value","topic":"line1/temp","workspace":"plant2"}]` {
		t.Error(got)
	}
	for _, path := range []string{"labels", "metadata", "rules", "alerts", "query_exemplars"} {
		data(t, b.prom(auth.RoleViewer, path).do())
	}
	at := func(i int) string { return fmt.Sprint(ms(i) / 1000) }
	for query, want := range map[string]string{
		`millrace_value{topic="line1/temp",workspace="main"}`:                     `[{"metric":{"__name__":"millrace_value","topic":"line1/temp","unit":"°C","workspace":"main"},"values":[[` + at(0) + `,"20"],[` + at(3) + `,"23"],[` + at(6) + `,"26"]]}]`,
		`avg_over_time(millrace_value{topic="line1/temp",workspace="main"}[30s])`: `[{"metric":{"topic":"line1/temp","unit":"°C","workspace":"main"},"values":[[` + at(0) + `,"20"],[` + at(3) + `,"22"],[` + at(6) + `,"25"]]}]`,
		`sum(count_over_time(millrace_value{topic="line1/state"}[30s]))`:          `[{"metric":{},"values":[[` + at(0) + `,"1"],[` + at(3) + `,"3"],[` + at(6) + `,"3"]]}]`,
		`millrace_value{workspace="plant2"}`:                                      `[{"metric":{"__name__":"millrace_value","topic":"line1/temp","workspace":"plant2"},"values":[[` + at(3) + `,"7.25"],[` + at(6) + `,"7.25"]]}]`,
		`millrace_value{topic="line2/name"}`:                                      `[]`, // no numbers
	} {
		want = `{"resultType":"matrix","result":` + want + `}`
		ask := b.prom(auth.RoleViewer, "query_range", "query", query, "start", at(0), "end", at(6), "step", "30")
		if got := data(t, ask.do()); got != want {
			t.Errorf("%s\n got %s\nwant %s", query, got, want)
		}
		// Grafana sends forms.
		post := b.prom(auth.RoleViewer, "query_range")
		post.method, post.body = "POST", url.Values{"query": {query}, "start": {start.Format(time.RFC3339)}, "end": {at(6)}, "step": {"30s"}}.Encode()
		if got := data(t, post.with("Content-Type", "application/x-www-form-urlencoded").do()); got != want {
			t.Errorf("%s by POST: %s", query, got)
		}
	}
	if got, want := data(t, b.prom(auth.RoleViewer, "query", "query", `max by (workspace) (millrace_value{topic="line1/temp"})`, "time", at(11)).do()), `{"resultType":"vector","result":[{"metric":{"workspace":"main"},"value":[`+at(11)+`,"31"]},{"metric":{"workspace":"plant2"},"value":[`+at(11)+`,"7.25"]}]}`; got != want {
		t.Errorf("%s\n%s", got, want)
	}
	if got := data(t, b.prom(auth.RoleViewer, "query", "query", "1 + 1").do()); !strings.HasSuffix(got, `,"2"]}`) {
		t.Error(got)
	}
}

func TestPrometheusFaults(t *testing.T) {
	b := newBox(t)
	b.put("main", "a", "1")
	for _, tt := range []struct {
		path, query string
		status      int
		kind, says  string
	}{
		{"query", "rate(millrace_value[5m])", 400, "bad_data", "rate"},
		{"query", "millrace_value{", 400, "bad_data", "at byte"},
		{"query", "", 400, "bad_data", "expected"},
		{"query_range", "millrace_value", 400, "bad_data", "step"},
		{"query_range&step=1s&start=0&end=99999", "millrace_value", 422, "execution", "11000"},
		{"query_range&step=1s&start=9&end=1", "millrace_value", 400, "bad_data", "end"},
		{"query_range&step=0.0000001&start=1&end=1", "millrace_value", 400, "bad_data", "step"},
		{"query&time=soon", "millrace_value", 400, "bad_data", "soon"},
		{"series", "x", 400, "bad_data", "match[]"},
		{"series&match[]=1%2B1", "x", 400, "bad_data", "selector"},
	} {
		path, more, _ := strings.Cut(tt.path, "&")
		a := b.prom(auth.RoleViewer, path, "query", tt.query)
		if more != "" {
			a.path += "&" + more
		}
		r := a.do()
		var body struct{ Status, ErrorType, Error string }
		if err := json.Unmarshal([]byte(r.text), &body); err != nil || r.StatusCode != tt.status || body.Status != "error" || body.ErrorType != tt.kind || !strings.Contains(body.Error, tt.says) {
			t.Errorf("%+v: %d %s", tt, r.StatusCode, r.text)
		}
	}
}

// Who may read, and what: people with a token, also as a password, and API clients within their grants.
func TestPrometheusCallers(t *testing.T) {
	b := newBox(t)
	b.put("main", "line1/a", "1")
	b.put("main", "line2/b", "2")
	b.put("plant2", "line1/c", "3")
	secret := b.client("reader", "main", auth.Grant{Effect: auth.EffectAllow, Actions: []auth.Action{"subscribe"}, Filter: "line1/#", Scope: auth.ScopeUNS})
	topics := func(a *ask) string { return data(t, a.do()) }
	if got := topics(b.prom("", "label/topic/values").as("reader", secret)); got != `["line1/a"]` {
		t.Errorf("a client sees %s", got)
	}
	all := `["line1/a","line1/c","line2/b"]`
	if got := topics(b.prom(auth.RoleViewer, "label/topic/values")); got != all {
		t.Errorf("a viewer sees %s", got)
	}
	if got := topics(b.prom("", "label/topic/values").as("", b.tokens[auth.RoleViewer])); got != all {
		t.Errorf("a viewer's token as password sees %s", got)
	}
	for _, a := range []*ask{b.prom("", "labels"), b.prom("", "labels").as("reader", "wrong"), b.prom("", "labels").as("x", "mr_wrong"), b.prom("", "labels").as("somebody", b.tokens[auth.RoleViewer])} {
		if r := a.do(); r.StatusCode != 401 || r.Header.Get("WWW-Authenticate") == "" || !strings.Contains(r.text, `"status":"error"`) {
			t.Errorf("%d %s", r.StatusCode, r.text)
		}
	}
}

// Every query of the dashboard of stored values is answered with something, as Grafana would send it.
func TestDashboardOfHistory(t *testing.T) {
	text, err := os.ReadFile("../deploy/grafana/history.json")
	must(t, err)
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct {
				Expr    string
				Instant bool
			}
		}
		Templating struct {
			List []struct{ Name, Type, Definition string }
		}
	}
	must(t, json.Unmarshal(text, &board))
	b := newBox(t)
	now := b.clock.Now()
	for i := range 60 {
		b.put("main", "line1/temp", at(now.Add(-time.Duration(i)*time.Minute).UnixMilli(), fmt.Sprint(i)), at(now.Add(-time.Duration(i)*time.Minute-24*time.Hour).UnixMilli(), "1"))
	}
	fill := strings.NewReplacer("$workspace", "main", "$topic", "(line1/temp|line1/none)", "$__interval", "30s")
	queries := 0
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			queries++
			a := b.prom(auth.RoleViewer, "query_range", "query", fill.Replace(target.Expr), "start", fmt.Sprint(now.Add(-time.Hour).Unix()), "end", fmt.Sprint(now.Unix()), "step", "30")
			if target.Instant {
				a = b.prom(auth.RoleViewer, "query", "query", fill.Replace(target.Expr), "time", fmt.Sprint(now.Unix()))
			}
			if got := data(t, a.do()); !strings.Contains(got, `"metric"`) {
				t.Errorf("%s: %s gives %s", p.Title, target.Expr, got)
			}
		}
	}
	for _, v := range board.Templating.List {
		if v.Type != "query" {
			continue
		}
		queries++
		inner := strings.TrimSuffix(strings.TrimPrefix(v.Definition, "label_values("), ")")
		at := strings.LastIndex(inner, ", ")
		if got := data(t, b.prom(auth.RoleViewer, "label/"+inner[at+2:]+"/values", "match[]", fill.Replace(inner[:at])).do()); len(got) < 4 {
			t.Errorf("%s gives %s", v.Definition, got)
		}
	}
	if queries < 8 {
		t.Errorf("only %d queries seen", queries)
	}
}
