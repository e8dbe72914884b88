package uns_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"millrace/uns"

	"github.com/google/go-cmp/cmp"
)

func ledgerSend(t *testing.T, b *box, client string, payloads ...string) {
	t.Helper()
	for _, p := range payloads {
		b.put(t, uns.Message{Source: b.Source(client), Workspace: "main", Path: "t", Payload: []byte(p)})
	}
}

func hoursOf(t *testing.T, l *uns.Ledger, client string) (out []string) {
	t.Helper()
	hours, err := l.Hours(client, noon.Add(-1000*time.Hour), noon.Add(1000*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range hours {
		out = append(out, fmt.Sprintf("%s %d %v", h.Start.Format("02 15"), h.Accepted, h.Refused))
	}
	return out
}

// Hours are kept apart, restarts go on with the open one, and what is older than 32 days goes.
func TestLedgerHours(t *testing.T) {
	ctx := t.Context()
	b := newBox(t, nil)
	l := uns.NewLedger(b.Ingress, b.store)
	ledgerSend(t, b, "dev", `1`, `2`, `ON`)
	ledgerSend(t, b, "de", `1`) // a name that is the beginning of another
	check := func(client string, want ...string) {
		t.Helper()
		if d := cmp.Diff(want, hoursOf(t, l, client)); d != "" {
			t.Errorf("%s: %s", client, d)
		}
	}
	check("dev", "21 14 2 map[payload_invalid:1]")
	check("de", "21 14 1 map[]")
	check("nobody")
	b.now = noon.Add(59 * time.Second) // the box has run a minute
	l.Tick(ctx, b.now)
	ledgerSend(t, b, "dev", `3`)
	if err := l.Flush(ctx, b.now); err != nil {
		t.Fatal(err)
	}

	b = boxOn(t, b.store, nil) // a restart
	b.now = noon.Add(time.Minute)
	l = uns.NewLedger(b.Ingress, b.store)
	check("dev", "21 14 3 map[payload_invalid:1]")
	ledgerSend(t, b, "dev", `4`, `OFF`)
	check("dev", "21 14 4 map[payload_invalid:2]")
	b.now = noon.Add(time.Hour) // 15:13: what came before the look is of the hour before
	l.Tick(ctx, b.now)
	ledgerSend(t, b, "dev", `5`)
	check("dev", "21 14 4 map[payload_invalid:2]", "21 15 1 map[]")
	for h := 2; h <= 50; h++ {
		b.now = noon.Add(time.Duration(h) * time.Hour)
		l.Tick(ctx, b.now)
		ledgerSend(t, b, "dev", `6`)
	}
	if got := hoursOf(t, l, "dev"); len(got) != 51 || got[50] != "23 16 1 map[]" {
		t.Errorf("%d hours, last %v", len(got), got[len(got)-1])
	}
	b.now = noon.Add(32*24*time.Hour + 90*time.Minute)
	l.Tick(ctx, b.now)
	if got := hoursOf(t, l, "dev"); len(got) != 49 || !strings.HasPrefix(got[0], "21 16") {
		t.Errorf("%d hours after 32 days, first %v", len(got), got[0])
	}
	check("de")
}

// A store that does not take the rows costs no counts: they are written with the next.
func TestLedgerSurvivesAStalledStore(t *testing.T) {
	b := newBox(t, nil)
	down := &memory{onAppend: func() error { return errors.New("stalled") }}
	l := uns.NewLedger(b.Ingress, down)
	ledgerSend(t, b, "dev", `1`)
	b.now = noon.Add(2 * time.Hour) // the hour ends while nothing can be written
	l.Tick(t.Context(), b.now)
	ledgerSend(t, b, "dev", `2`, `3`)
	b.now = b.now.Add(time.Minute)
	l.Tick(t.Context(), b.now)
	down.onAppend = nil
	b.now = b.now.Add(time.Minute)
	l.Tick(t.Context(), b.now)
	if err := l.Flush(t.Context(), b.now); err != nil {
		t.Fatal(err)
	}
	if got := hoursOf(t, l, "dev"); len(got) != 2 || got[0] != "21 14 1 map[]" || got[1] != "21 16 2 map[]" {
		t.Errorf("%v", got)
	}
}

// Run ends with its context and leaves everything written.
func TestLedgerRun(t *testing.T) {
	b := newBox(t, nil)
	l := uns.NewLedger(b.Ingress, b.store)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- l.Run(ctx) }()
	ledgerSend(t, b, "dev", `1`)
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	l = uns.NewLedger(boxOn(t, b.store, nil).Ingress, b.store)
	if got := hoursOf(t, l, "dev"); len(got) != 1 {
		t.Errorf("%v", got)
	}
}

// The row of an hour comes back as it was; anything else gives an error.
func FuzzLedgerRow(f *testing.F) {
	f.Add(uns.HourRow(uns.Hour{Accepted: 1, Late: 2, Duplicate: 3, Gaps: 4, Silent: 5 * time.Second, Refused: map[string]uint64{"internal": 6, "rate_limited": 1 << 40}}))
	f.Add([]byte{1})
	f.Add([]byte{1, 1, 1, 1, 1, 1, 200, 'x'})
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := uns.ParseHour(b)
		if err != nil {
			return
		}
		known := uns.Hour{Accepted: h.Accepted, Late: h.Late, Duplicate: h.Duplicate, Gaps: h.Gaps, Silent: h.Silent}
		for _, r := range uns.Reasons() {
			if n := h.Refused[r.String()]; n > 0 && r > uns.Cleared {
				known.Add(&uns.Hour{Refused: map[string]uint64{r.String(): n}})
			}
		}
		again, err := uns.ParseHour(uns.HourRow(known))
		if err != nil || cmp.Diff(known, again) != "" {
			t.Errorf("%v %v: %+v came back as %+v", b, err, known, again)
		}
	})
}
