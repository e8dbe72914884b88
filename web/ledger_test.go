package web_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"millrace/auth"
	"millrace/uns"
	"millrace/web"
)

// ledgerOf is a ledger that knows one client.
type ledgerOf map[string][]uns.Hour

func (l ledgerOf) Hours(client string, from, to time.Time) (out []uns.Hour, err error) {
	for _, h := range l[client] {
		if !h.Start.Before(from) && h.Start.Before(to) {
			out = append(out, h)
		}
	}
	return out, nil
}

// A client's ledger has the hours that the window touches, and their sum.
func TestLedger(t *testing.T) {
	noon := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	b := newBox(t, func(_ *web.Options, p *web.Parts) {
		p.Ledger = ledgerOf{"dev": {
			{Start: noon.Add(-30 * time.Hour), Accepted: 1000},
			{Start: noon.Add(-2 * time.Hour), Accepted: 5, Late: 1, Gaps: 2, Silent: 90 * time.Second, Refused: map[string]uint64{"payload_invalid": 3}},
			{Start: noon, Accepted: 7, Duplicate: 4, Refused: map[string]uint64{"payload_invalid": 1, "rate_limited": 2}},
		}}
	})
	b.client("dev", "main")
	b.client("quiet", "main")
	b.clock.add(10 * time.Minute)
	want := `{"client":"dev","hours":[` +
		`{"hour":"2026-11-30T10:00:00Z","accepted":5,"late":1,"duplicate":0,"gaps":2,"gap_s":90,"refused":{"payload_invalid":3}},` +
		`{"hour":"2026-11-30T12:00:00Z","accepted":7,"late":0,"duplicate":4,"gaps":0,"gap_s":0,"refused":{"payload_invalid":1,"rate_limited":2}}],` +
		`"total":{"accepted":12,"late":1,"duplicate":4,"gaps":2,"gap_s":90,"refused":{"payload_invalid":4,"rate_limited":2}}}`
	if got := strings.TrimSpace(b.get("/clients/dev/ledger").wants(t, 200).text); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	// an hour counts when the window touches it
	if got := b.get("/clients/dev/ledger", "from", "-70m", "to", "-60m").text; !strings.Contains(got, `"hours":[]`) {
		t.Error(got)
	}
	if got := b.get("/clients/dev/ledger", "from", "-80m", "to", "-60m").text; !strings.Contains(got, `T10:00`) || strings.Contains(got, `T12:00`) {
		t.Error(got)
	}
	if got := b.get("/clients/quiet/ledger").wants(t, 200).text; !strings.Contains(got, `"hours":[]`) || !strings.Contains(got, `"refused":{}`) {
		t.Error(got)
	}
	b.get("/clients/nobody/ledger").refused(t, 404, "client_not_found", "")
	b.get("/clients/dev/ledger", "from", "yesterday").refused(t, 422, "invalid", "from")
	b.get("/clients/dev/ledger", "to", "6h").refused(t, 422, "invalid", "to")
}

// What topics did not take is listed by topic, to clients within their grants; overdue topics are found by search.
func TestViolationsAndStates(t *testing.T) {
	b := newBox(t)
	for _, path := range []string{"line1/a", "line1/b", "line2/c", "line1/fine", "line1/late"} {
		b.put("main", path, "1")
	}
	set := func(path, patch string) {
		t.Helper()
		if _, err := b.catalog.Set(context.Background(), "main", path, []byte(patch)); err != nil {
			t.Fatal(err)
		}
	}
	set("line1/b", `{"schema":{"max":10,"mode":"soft"}}`)
	set("line1/late", `{"expectedInterval":"10s"}`)
	set("line1/never", `{"expectedInterval":"10s"}`)
	send := func(client, path, payload string) {
		batch := &uns.Batch{Messages: []uns.Message{{Source: b.ingress.Source(client), Workspace: "main", Path: path, Payload: []byte(payload)}}}
		must(t, b.ingress.Accept(t.Context(), batch))
	}
	send("dev", "line1/a", `ON`)
	send("dev", "line1/b", `11`)
	send("other", "line2/c", `{"value":1,"timestamp":"now"}`)
	send("dev", "line1/fine", `{"value":1,"quality":"bad"}`)

	text := b.get("/uns/violations").wants(t, 200).text
	for _, want := range []string{
		`{"topic":"line1/a","count":1,"last":[{"time":"2026-11-30T12:00:00Z","client":"dev","status":"refused","reason":"payload_invalid","detail":"byte 0`,
		`{"topic":"line1/b","count":1,"last":[{"time":"2026-11-30T12:00:00Z","client":"dev","status":"uncertain","detail":"value: 11 is above max 10","payload":"\"11\""}]}`,
		`"topic":"line2/c"`, `"reason":"timestamp_invalid"`, `"next":""`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%s\nis not in %s", want, text)
		}
	}
	first := b.get("/uns/violations", "limit", "1", "filter", "line1/#")
	var page struct{ Next string }
	first.into(t, &page)
	next := page.Next
	if !strings.Contains(first.text, "line1/a") || strings.Contains(first.text, "line1/b") || next == "" {
		t.Error(first.text)
	}
	if got := b.get("/uns/violations", "limit", "1", "filter", "line1/#", "cursor", next).text; !strings.Contains(got, "line1/b") || !strings.Contains(got, `"next":""`) {
		t.Error(got)
	}
	secret := b.client("reader", "main", allow("line1/#", "subscribe"), auth.Grant{Effect: "deny", Actions: []auth.Action{"subscribe"}, Filter: "line1/b"})
	if got := b.call("", "GET", "/uns/violations").as("reader", secret).do().wants(t, 200).text; !strings.Contains(got, "line1/a") ||
		strings.Contains(got, "line1/b") || strings.Contains(got, "line2") || strings.Contains(got, "dev") {
		t.Errorf("a client is shown %s", got)
	}

	b.clock.add(31 * time.Second)
	for state, want := range map[string]string{
		"stale": `[{"topic":"line1/late"}]`, "bad": `[{"topic":"line1/fine"}]`, "uncertain": `[{"topic":"line1/b"}]`,
		"nodata": `[{"topic":"line1/never"}]`, "violated": `[{"topic":"line1/a"},{"topic":"line1/b"},{"topic":"line2/c"}]`,
	} {
		if got := b.get("/uns/search", "state", state).wants(t, 200).text; !strings.Contains(got, `"topics":`+want) {
			t.Errorf("%s: %s", state, got)
		}
	}
	if got := b.get("/uns/search", "state", "violated", "q", "C").text; !strings.Contains(got, `[{"topic":"line2/c"}]`) {
		t.Error(got)
	}
	b.get("/uns/search", "state", "asleep").refused(t, 422, "invalid", "state")
	if got := b.get("/uns/topic", "topic", "line1/late").text; !strings.Contains(got, `"stale_since":"2026-11-30T12:00:30Z","violations":0`) {
		t.Error(got)
	}
	if got := b.get("/uns/topic", "topic", "line1/a").text; !strings.Contains(got, `"stale_since":null,"violations":1`) {
		t.Error(got)
	}
}
