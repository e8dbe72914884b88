package web_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// table is an aggregated page: per topic the columns asked for.
type bucketPage struct {
	Topics []map[string]json.RawMessage
	Next   string
}

// column is one column of a topic, each cell as its text.
func column(t testing.TB, topic map[string]json.RawMessage, name string) (out []string) {
	t.Helper()
	var cells []json.RawMessage
	must(t, json.Unmarshal(topic[name], &cells))
	return texts(cells)
}

func berlin(t testing.TB, s string) time.Time {
	t.Helper()
	zone, err := time.LoadLocation("Europe/Berlin")
	must(t, err)
	at, err := time.ParseInLocation("2006-01-02T15:04", s, zone)
	must(t, err)
	return at
}

// minutely stores a 1 each minute of from..to.
func (b *box) minutely(path string, from, to time.Time) {
	var sent []string
	for at := from; at.Before(to); at = at.Add(time.Minute) {
		if sent = append(sent, at.Format(`{"value":1,"timestamp":"2006-01-02T15:04:05Z07:00"}`)); len(sent) == 500 {
			b.put("main", path, sent...)
			sent = sent[:0]
			b.clock.add(time.Second)
		}
	}
	b.put("main", path, sent...)
}

// F21: the night that has an hour twice has 25 buckets of 60 values, the one that lacks an hour 23.
func TestBucketsOfTheNightsThatAreLongerAndShorter(t *testing.T) {
	b := newBox(t)
	for _, c := range []struct {
		topic, from, to      string
		zone                 string
		hours, day, shift    int
		shiftFrom, shiftHour string
	}{
		{"autumn", "2026-10-25T00:00", "2026-10-26T00:00", "Europe/Berlin", 25, 1500, 9, "2026-10-24T22:00", "2026-10-25T06:00"},
		{"spring", "2026-03-29T00:00", "2026-03-30T00:00", "Europe/Berlin", 23, 1380, 7, "2026-03-28T22:00", "2026-03-29T06:00"},
	} {
		from, to := berlin(t, c.from), berlin(t, c.to)
		b.minutely(c.topic, from.Add(-2*time.Hour), to)
		query := func(more ...string) map[string]json.RawMessage {
			var page bucketPage
			b.get("/uns/history", append([]string{"topic", c.topic, "agg", "count", "tz", c.zone, "limit", "100000"}, more...)...).wants(t, 200).into(t, &page)
			return page.Topics[0]
		}
		hours := query("every", "1h", "from", from.Format(time.RFC3339), "to", to.Format(time.RFC3339))
		if got := column(t, hours, "count"); !slices.Equal(got, slices.Repeat([]string{"60"}, c.hours)) {
			t.Errorf("%s: hours %v", c.topic, got)
		}
		if got := column(t, hours, "t")[0]; got != fmt.Sprint(from.UnixMilli()) {
			t.Errorf("%s: the first hour begins %s", c.topic, got)
		}
		day := query("every", "1d", "from", from.Format(time.RFC3339), "to", to.Format(time.RFC3339))
		if got := column(t, day, "count"); !slices.Equal(got, []string{fmt.Sprint(c.day)}) {
			t.Errorf("%s: days %v", c.topic, got)
		}
		shift := query("every", "8h", "offset", "6h", "from", berlin(t, c.shiftFrom).Format(time.RFC3339), "to", berlin(t, c.shiftHour).Format(time.RFC3339))
		if got := column(t, shift, "count"); !slices.Equal(got, []string{fmt.Sprint(60 * c.shift)}) {
			t.Errorf("%s: night shift %v", c.topic, got)
		}
		halves := query("every", "30s", "offset", "-15s", "from", from.Format(time.RFC3339), "to", from.Add(5*time.Minute).Format(time.RFC3339), "fill", "null")
		if got := column(t, halves, "count"); !slices.Equal(got, []string{"1", "0", "1", "0", "1", "0", "1", "0", "1", "0", "0"}) {
			t.Errorf("%s: 30 s, 15 s back: %v", c.topic, got)
		}
		if got := column(t, halves, "t")[0]; got != fmt.Sprint(from.Add(-15*time.Second).UnixMilli()) {
			t.Errorf("%s: the first of 30 s begins %s", c.topic, got)
		}
	}
}

// F22: a sparse value stands until the next one, from before the window on.
func TestTimeWeightedAverageOfFewValues(t *testing.T) {
	b := newBox(t)
	b.put("main", "tag",
		`{"value":10,"timestamp":"2026-11-28T23:10:00Z"}`,
		`{"value":20,"timestamp":"2026-11-29T03:10:00Z"}`,
		`{"value":40,"timestamp":"2026-11-29T03:50:00Z"}`)
	ask := func(more ...string) map[string]json.RawMessage {
		var page bucketPage
		b.get("/uns/history", append([]string{"topic", "tag"}, more...)...).wants(t, 200).into(t, &page)
		return page.Topics[0]
	}
	night := []string{"every", "1h", "from", "2026-11-29T00:00:00Z", "to", "2026-11-29T05:00:00Z", "agg", "twa,count"}
	for _, fill := range []string{"null", "prev"} {
		got := ask(append(night, "fill", fill)...)
		twa := column(t, got, "twa")
		if len(twa) == 5 {
			twa[3] = twa[3][:6]
		}
		if d := cmp.Diff([]string{"10", "10", "10", "21.666", "40"}, twa); d != "" {
			t.Errorf("fill=%s (-want +got): %s", fill, d)
		}
		if d := cmp.Diff([]string{"0", "0", "0", "2", "0"}, column(t, got, "count")); d != "" {
			t.Errorf("count (-want +got): %s", d)
		}
	}
	if got := column(t, ask(night...), "twa"); len(got) != 1 || !strings.HasPrefix(got[0], "21.666") {
		t.Errorf("fill=none: %v", got)
	}
	// One sample in the bucket and nothing before it; one exactly on the edge; one that is bad.
	b.put("main", "edge",
		`{"value":7,"timestamp":"2026-11-29T01:30:00Z"}`,
		`{"value":9,"timestamp":"2026-11-29T02:00:00Z"}`,
		`{"value":1000,"timestamp":"2026-11-29T02:30:00Z","quality":"bad"}`,
		`{"value":5,"timestamp":"2026-11-29T03:00:00Z","quality":"uncertain"}`)
	var page bucketPage
	b.get("/uns/history", append([]string{"topic", "edge", "fill", "null"}, append(slices.Clone(night[:7]), "twa,avg,max,count,good")...)...).wants(t, 200).into(t, &page)
	for name, want := range map[string][]string{
		"twa":   {"null", "7", "9", "5", "5"},
		"avg":   {"null", "7", "9", "5", "null"},
		"max":   {"null", "7", "9", "5", "null"},
		"count": {"0", "1", "2", "1", "0"},
		"good":  {"null", "100", "50", "0", "null"},
	} {
		if d := cmp.Diff(want, column(t, page.Topics[0], name)); d != "" {
			t.Errorf("%s (-want +got): %s", name, d)
		}
	}
	// The last value is not carried beyond the present.
	b.put("main", "now", at(noon-60_000, "1"), at(noon-30_000, "3"))
	b.get("/uns/history", "topic", "now", "agg", "twa", "from", fmt.Sprint(noon-60_000), "to", fmt.Sprint(noon+3_600_000)).wants(t, 200).into(t, &page)
	if got := column(t, page.Topics[0], "twa"); !slices.Equal(got, []string{"2"}) {
		t.Errorf("twa up to now: %v", got)
	}
}

func TestEveryFunctionOfEveryKind(t *testing.T) {
	b := newBox(t)
	b.put("main", "a/number", at(noon-9000, "1.50"), at(noon-8000, "0.1"), at(noon-7000, "9007199254740993"), `{"value":7,"timestamp":`+fmt.Sprint(noon-6000)+`,"quality":"bad"}`)
	b.put("main", "b/bool", at(noon-9000, "true"), at(noon-8000, "false"), at(noon-7000, "true"))
	b.put("main", "c/text", at(noon-9000, `"on"`), at(noon-8000, `{"a":1.0}`))
	b.put("main", "d/none", at(noon-90_000_000, "1"))
	var page bucketPage
	r := b.get("/uns/history", "filter", "#", "agg", "avg,min,max,first,last,count,sum,twa", "from", fmt.Sprint(noon-9000), "to", fmt.Sprint(noon))
	r.wants(t, 200).into(t, &page)
	want := []map[string]string{
		{"topic": `"a/number"`, "resolution": `"window"`, "t": "[1796039991000]", "avg": "[3002399751580331.5]", "min": "[0.1]", "max": "[9007199254740993]", "first": "[1.50]",
			"last": "[9007199254740993]", "count": "[4]", "sum": "[9007199254740994.6]", "twa": "[7005599420354106]", "good": "[75]"},
		{"topic": `"b/bool"`, "resolution": `"window"`, "t": "[1796039991000]", "avg": "[0.6666666666666666]", "min": "[0]", "max": "[1]", "first": "[true]", "last": "[true]", "count": "[3]",
			"sum": "[2]", "twa": "[0.8888888888888888]", "good": "[100]"},
		{"topic": `"c/text"`, "resolution": `"window"`, "t": "[1796039991000]", "avg": "[null]", "min": "[null]", "max": "[null]", "first": `["on"]`, "last": `[{"a":1.0}]`, "count": "[2]",
			"sum": "[null]", "twa": "[null]", "good": "[100]"},
		{"topic": `"d/none"`, "resolution": `"window"`, "t": "[]", "avg": "[]", "min": "[]", "max": "[]", "first": "[]", "last": "[]", "count": "[]", "sum": "[]", "twa": "[]", "good": "[]"},
	}
	var got []map[string]string
	for _, topic := range page.Topics {
		row := map[string]string{}
		for name, text := range topic {
			row[name] = string(text)
		}
		got = append(got, row)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	window := []string{"filter", "+/+", "agg", "count,first,avg", "from", fmt.Sprint(noon - 9000), "to", fmt.Sprint(noon), "every", "1m"}
	if d := cmp.Diff("topic,timestamp,count,first,avg\n"+
		"a/number,2026-11-30T11:59:00.000Z,4,1.50,3002399751580331.5\n"+
		"b/bool,2026-11-30T11:59:00.000Z,3,true,0.6666666666666666\n"+
		"c/text,2026-11-30T11:59:00.000Z,2,on,\n", b.get("/uns/history", append(window, "format", "csv")...).wants(t, 200).text); d != "" {
		t.Errorf("csv (-want +got):\n%s", d)
	}
	if d := cmp.Diff(`{"topic":"a/number","timestamp":"2026-11-30T11:59:00.000Z","count":4,"first":1.50,"avg":3002399751580331.5}`+"\n"+
		`{"topic":"b/bool","timestamp":"2026-11-30T11:59:00.000Z","count":3,"first":true,"avg":0.6666666666666666}`+"\n"+
		`{"topic":"c/text","timestamp":"2026-11-30T11:59:00.000Z","count":2,"first":"on","avg":null}`+"\n", b.get("/uns/history", append(window, "format", "ndjson")...).wants(t, 200).text); d != "" {
		t.Errorf("ndjson (-want +got):\n%s", d)
	}
}

// Following next gives what one page gives, whatever fills the gaps, also while values arrive.
func TestPagesOfBucketsAddUp(t *testing.T) {
	for _, fill := range []string{"none", "null", "prev"} {
		for _, limit := range []string{"1", "7", "40"} {
			t.Run(fill+" "+limit, func(t *testing.T) {
				b := newBox(t)
				for topic := range 4 {
					var sent []string
					for i := range 10 * topic {
						sent = append(sent, at(noon-1_800_000+int64(i*i*1000), fmt.Sprint(topic*100+i)))
					}
					b.put("main", fmt.Sprintf("line%d/x", topic), at(noon-7_000_000, "5"))
					if len(sent) > 0 {
						b.put("main", fmt.Sprintf("line%d/x", topic), sent...)
					}
				}
				query := []string{"filter", "+/x", "agg", "first,last,twa,count", "every", "1m", "from", "-31m", "format", "csv", "fill", fill}
				r := b.get("/uns/history", append(query, "limit", "100000")...).wants(t, 200)
				whole := r.text
				if r.Header.Get("Next-Cursor") != "" || strings.Count(whole, "\n") < 20 {
					t.Fatalf("the whole has a next or is short: %s", whole)
				}
				got := "topic,timestamp,first,last,twa,count\n"
				next := ""
				for pages := 0; ; pages++ {
					q := append(slices.Clone(query), "limit", limit)
					if next != "" {
						q = append(q, "cursor", next)
					}
					r := b.get("/uns/history", q...).wants(t, 200)
					_, rows, _ := strings.Cut(r.text, "\n")
					if n := strings.Count(rows, "\n"); fmt.Sprint(n) > limit && len(fmt.Sprint(n)) >= len(limit) {
						t.Fatalf("%d rows, limit %s", n, limit)
					}
					got += rows
					b.put("main", "line1/x", at(noon+int64(pages), "9"))
					if next = r.Header.Get("Next-Cursor"); next == "" {
						break
					}
					if pages > 500 {
						t.Fatal("paging does not end")
					}
				}
				if d := cmp.Diff(whole, got); d != "" {
					t.Errorf("(-whole +pages):\n%s", d)
				}
			})
		}
	}
	b := newBox(t)
	b.put("main", "a", at(noon-3000, "1"), at(noon-2000, "2"), at(noon-1000, "3"))
	text := b.get("/uns/history", "topic", "a", "agg", "last", "every", "1s", "order", "desc", "from", "-10s").wants(t, 200).text
	if !strings.Contains(text, `"last":[3,2,1]`) {
		t.Errorf("newest first: %s", text)
	}
}

func TestAggregateRefusals(t *testing.T) {
	b := newBox(t)
	b.put("main", "a", at(noon-2, "1"))
	var raw, page struct{ Next string }
	b.put("main", "a", at(noon-1, "2"))
	b.get("/uns/history", "topic", "a", "limit", "1").into(t, &raw)
	b.get("/uns/history", "topic", "a", "agg", "avg", "every", "1ms", "limit", "1").into(t, &page)
	if raw.Next == "" || page.Next == "" {
		t.Fatal("no cursor")
	}
	for _, test := range []struct {
		name, field string
		query       []string
	}{
		{"function", "agg", []string{"agg", "median"}},
		{"no function", "agg", []string{"agg", ","}},
		{"every alone", "every", []string{"every", "1m"}},
		{"tz alone", "tz", []string{"tz", "UTC"}},
		{"fill alone", "fill", []string{"fill", "null"}},
		{"offset alone", "offset", []string{"offset", "1m"}},
		{"every: no length", "every", []string{"agg", "avg", "every", "often"}},
		{"every: none", "every", []string{"agg", "avg", "every", "0s"}},
		{"every: negative", "every", []string{"agg", "avg", "every", "-1m"}},
		{"every: below a ms", "every", []string{"agg", "avg", "every", "10us"}},
		{"every: a day and a half", "every", []string{"agg", "avg", "every", "36h"}},
		{"every: many months", "every", []string{"agg", "avg", "every", "13mo"}},
		{"offset: no distance", "offset", []string{"agg", "avg", "every", "1m", "offset", "x"}},
		{"offset: too long", "offset", []string{"agg", "avg", "every", "1m", "offset", "60s"}},
		{"offset: without every", "offset", []string{"agg", "avg", "offset", "60s"}},
		{"tz", "tz", []string{"agg", "avg", "every", "1m", "tz", "Berlin"}},
		{"tz: the machine's", "tz", []string{"agg", "avg", "every", "1m", "tz", "Local"}},
		{"tz: a path", "tz", []string{"agg", "avg", "every", "1m", "tz", "../../etc/passwd"}},
		{"fill", "fill", []string{"agg", "avg", "every", "1m", "fill", "zero"}},
		{"newest first beyond the limit", "order", []string{"agg", "avg", "every", "1s", "order", "desc", "limit", "100"}},
		{"cursor of raw values", "cursor", []string{"agg", "avg", "every", "1ms", "cursor", raw.Next}},
		{"cursor of buckets", "cursor", []string{"cursor", page.Next}},
	} {
		t.Run(test.name, func(t *testing.T) {
			b.get("/uns/history", append([]string{"topic", "a"}, test.query...)...).refused(t, 422, "invalid", test.field)
		})
	}
}
