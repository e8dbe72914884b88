package web_test

import (
	"encoding/csv"
	"slices"
	"strings"
	"testing"
)

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
