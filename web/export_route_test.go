package web_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"millrace/auth"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"
)

func exportBox(t testing.TB) *box {
	b := newBox(t)
	for topic := range 3 {
		var sent []string
		for i := range 50 {
			sent = append(sent, at(noon-60_000+int64(i/3), fmt.Sprintf("%d.%d0", topic, i)))
		}
		b.put("main", fmt.Sprintf("line%d/x", topic), sent...)
	}
	b.put("main", "text", at(noon-5, `"a,\"b"`), at(noon-4, `{"a":1.0}`), at(noon-3, "true"), at(noon-2, "null"), at(noon-1, "18446744073709551615"))
	return b
}

// An export is what the pages of history are, in one piece.
func TestExportIsTheWholeHistory(t *testing.T) {
	b := exportBox(t)
	for _, format := range []string{"csv", "ndjson"} {
		want := b.get("/uns/history", "filter", "#", "format", format, "limit", "100000").wants(t, 200).text
		r := b.get("/uns/export", "filter", "#", "format", format).wants(t, 200)
		if d := cmp.Diff(want, r.text); d != "" || strings.Count(want, "\n") < 155 {
			t.Errorf("%s (-history +export):\n%s", format, d)
		}
		if r.Header.Get("Export-Topics") != "4" {
			t.Errorf("%s: Export-Topics %q", format, r.Header.Get("Export-Topics"))
		}
		// In parts, by the cursor of the trailer.
		got, next := "", ""
		for part := 0; ; part++ {
			q := []string{"filter", "#", "format", format, "limit", "7"}
			if next != "" {
				q = append(q, "cursor", next)
			}
			r := b.get("/uns/export", q...).wants(t, 200)
			text := r.text
			if format == "csv" && part > 0 {
				_, text, _ = strings.Cut(text, "\n")
			}
			got += text
			if next = r.Trailer.Get("Next-Cursor"); next == "" {
				break
			}
			if part > 100 {
				t.Fatal("the parts do not end")
			}
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s in parts: %s", format, d)
		}
		// After a broken transfer: from the last row on, whose moment comes again as a whole.
		lines := strings.SplitAfter(want, "\n")
		cut := 80
		stamp := "2026-11-30T11:59:00.010Z"
		for !strings.Contains(lines[cut], stamp) || !strings.Contains(lines[cut], "line1/x") {
			cut++
		}
		rest := b.get("/uns/export", "filter", "#", "format", format, "start", "line1/x", "since", stamp).wants(t, 200).text
		if format == "csv" {
			_, rest, _ = strings.Cut(rest, "\n")
		}
		if d := cmp.Diff(strings.Join(lines[cut:], ""), rest); d != "" {
			t.Errorf("%s resumed: %s", format, d)
		}
	}
}

func TestExportAsParquet(t *testing.T) {
	b := exportBox(t)
	text := b.get("/uns/export", "filter", "#", "format", "parquet").wants(t, 200).text
	type row struct {
		Topic     string   `parquet:"topic"`
		Timestamp int64    `parquet:"timestamp,timestamp(nanosecond)"`
		Value     string   `parquet:"value"`
		Number    *float64 `parquet:"number,optional"`
		Quality   string   `parquet:"quality"`
	}
	rows, err := parquet.Read[row](bytes.NewReader([]byte(text)), int64(len(text)))
	must(t, err)
	var got strings.Builder
	for _, r := range rows {
		number := "null"
		if r.Number != nil {
			number = fmt.Sprint(*r.Number)
		}
		fmt.Fprintf(&got, "%s %s %s %s %s\n", r.Topic, time.Unix(0, r.Timestamp).UTC().Format("05.000"), r.Value, number, r.Quality)
	}
	lines := strings.SplitAfter(got.String(), "\n")
	if len(rows) != 155 || lines[0] != "line0/x 00.000 0.00 0 good\n" {
		t.Errorf("%d rows, the first %s", len(rows), lines[0])
	}
	if d := cmp.Diff([]string{
		"text 59.995 \"a,\\\"b\" null good\n", "text 59.996 {\"a\":1.0} null good\n", "text 59.997 true 1 good\n", "text 59.998 null null good\n",
		"text 59.999 18446744073709551615 1.8446744073709552e+19 good\n",
	}, lines[150:155]); d != "" {
		t.Errorf("(-want +got): %s", d)
	}
}

func TestExportRefusals(t *testing.T) {
	b := exportBox(t)
	for _, test := range []struct {
		name, field string
		query       []string
	}{
		{"nothing asked for", "topic", nil},
		{"format", "format", []string{"topic", "text", "format", "xls"}},
		{"window", "from", []string{"topic", "text", "from", "now"}},
		{"limit", "limit", []string{"topic", "text", "limit", "-1"}},
		{"since alone", "start", []string{"topic", "text", "since", "-1m"}},
		{"start and cursor", "start", []string{"topic", "text", "start", "text", "cursor", "AAAA"}},
		{"another start", "start", []string{"topic", "text", "start", "line1/x"}},
		{"a start outside the filter", "start", []string{"filter", "line1/#", "start", "text"}},
		{"start: no topic", "start", []string{"topic", "text", "start", "a//b"}},
		{"since: no time", "since", []string{"topic", "text", "start", "text", "since", "soon"}},
		{"cursor", "cursor", []string{"topic", "text", "cursor", "AAAA"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			b.get("/uns/export", test.query...).refused(t, 422, "invalid", test.field)
		})
	}
}

// More exports than may run are told when to come back; one whose client has gone ends and frees its place.
func TestExportsAreFewAndEndWithTheirClients(t *testing.T) {
	b := newShelfBox(t)
	b.put("main", "a", at(noon-1, "1"))
	b.shelf.entered, b.shelf.release = make(chan struct{}, 10), make(chan struct{})
	ctx, leave := context.WithCancel(context.Background())
	for range 2 {
		r, err := http.NewRequestWithContext(ctx, "GET", b.root+"/api/v1/uns/export?topic=a", nil)
		must(t, err)
		r.Header.Set("Authorization", "Bearer "+b.tokens[auth.RoleViewer])
		go func() {
			if answer, err := http.DefaultClient.Do(r); err == nil {
				io.Copy(io.Discard, answer.Body)
				answer.Body.Close()
			}
		}()
		<-b.shelf.entered
	}
	r := b.get("/uns/export", "topic", "a")
	r.refused(t, 503, "busy", "")
	if r.Header.Get("Retry-After") != "10" {
		t.Errorf("Retry-After %q", r.Header.Get("Retry-After"))
	}
	leave()
	deadline := time.Now().Add(10 * time.Second)
	for {
		if r := b.call(auth.RoleViewer, "GET", "/uns/topic", "topic", "a").do(); r.StatusCode != 200 {
			t.Fatal(r.text)
		}
		// A slot is free again as soon as an export gets as far as reading.
		done := make(chan int, 1)
		go func() { done <- b.get("/uns/export", "topic", "a").StatusCode }()
		select {
		case <-b.shelf.entered:
			close(b.shelf.release)
			if code := <-done; code != 200 {
				t.Fatalf("status %d", code)
			}
			return
		case code := <-done:
			if code != 503 || time.Now().After(deadline) {
				t.Fatalf("status %d: the places are still taken", code)
			}
		}
	}
}

// What fails on the way must not look like the end of the file.
func TestAnExportThatFailsIsCut(t *testing.T) {
	b := newShelfBox(t)
	b.put("main", "a", at(noon-1, "1"))
	broken := fmt.Errorf("sector 7 cannot be read")
	b.shelf.broken.Store(&broken)
	r, err := http.NewRequest("GET", b.root+"/api/v1/uns/export?topic=a", nil)
	must(t, err)
	r.Header.Set("Authorization", "Bearer "+b.tokens[auth.RoleViewer])
	answer, err := http.DefaultClient.Do(r)
	if err == nil {
		_, err = io.ReadAll(answer.Body)
		answer.Body.Close()
	}
	if err == nil {
		t.Error("the export that failed ended as if it were whole")
	}
	if !strings.Contains(b.logged.String(), "sector 7") {
		t.Error("the failure is not in the log")
	}
}
