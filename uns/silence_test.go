package uns_test

import (
	"fmt"
	"testing"
	"time"

	"millrace/uns"
)

// A value is overdue three expected intervals after the last was received, whatever time its device gave it.
func TestSilence(t *testing.T) {
	b := newBox(t, nil)
	topic := b.set(t, "line1/temp", `{"expectedInterval":"10s"}`)
	plain := b.set(t, "line1/plain", `{}`)
	stale := func(want bool) {
		t.Helper()
		since, got := b.catalog.Silence(topic, b.now)
		if n := b.catalog.StaleTopics(b.now); got != want || (n == 1) != want {
			t.Errorf("stale %v since %v, %d topics, want %v", got, since, n, want)
		}
		if _, ok := b.catalog.Silence(plain, b.now); ok {
			t.Error("a topic that expects nothing is overdue")
		}
	}
	b.now = b.now.Add(time.Hour)
	stale(false) // never had a value: no data, not stale
	b.send(t, "line1/temp", `{"value":1,"timestamp":"2026-09-21T00:00:00Z"}`)
	b.send(t, "line1/plain", `1`)
	came := b.now
	b.now = came.Add(30 * time.Second)
	stale(false)
	b.now = b.now.Add(time.Millisecond)
	stale(true)
	if since, _ := b.catalog.Silence(topic, b.now); !since.Equal(came.Add(30 * time.Second)) {
		t.Errorf("since %v", since)
	}
	// It is so after a restart.
	b = boxOn(t, b.store, nil)
	b.now = came.Add(time.Minute)
	topic, plain = b.catalog.Lookup("main", "line1/temp"), b.catalog.Lookup("main", "line1/plain")
	stale(true)
	b.set(t, "line1/temp", `{"expectedInterval":"1m"}`)
	stale(false)
	b.set(t, "line1/temp", `{"expectedInterval":null}`)
	b.now = b.now.Add(time.Hour)
	stale(false)
}

// Gaps are counted when they end, late values as they come, duplicates by who finds them; for the client who sent.
func TestGapsAndLateValues(t *testing.T) {
	b := newBox(t, nil)
	ledger := uns.NewLedger(b.Ingress, b.store)
	b.set(t, "line1/temp", `{"expectedInterval":"10s"}`)
	dev, other := b.Source("dev"), b.Source("other")
	send := func(s *uns.Source, path string, at time.Duration, stamp bool) {
		t.Helper()
		b.now = noon.Add(at)
		payload := "1"
		if stamp {
			payload = fmt.Sprintf(`{"value":1,"timestamp":%d}`, b.now.UnixMilli())
			b.now = noon.Add(time.Hour)
		}
		if v, _ := b.put(t, uns.Message{Source: s, Workspace: "main", Path: path, Payload: []byte(payload)}); !v.OK() {
			t.Fatal(v)
		}
	}
	send(dev, "line1/temp", 0, false)
	send(dev, "line1/temp", 10*time.Second, false)
	send(dev, "line1/temp", 40*time.Second, false)                   // three intervals: patience
	send(dev, "line1/temp", 70*time.Second+time.Millisecond, false)  // a little more: a gap of 30.001 - 10 s
	send(dev, "line1/temp", 370*time.Second+time.Millisecond, false) // another, of 290 s
	send(other, "stamped", 20*time.Second, true)                     // the topic's first
	send(other, "stamped", 30*time.Second, true)                     //
	send(other, "stamped", 30*time.Second, true)                     // the same time is not late
	send(other, "stamped", 10*time.Second, true)                     // late
	send(other, "stamped", 29*time.Second, true)                     // late against the newest, not against the last
	dev.Duplicate()
	b.now = noon.Add(2 * time.Minute)
	want := map[string]uns.Hour{
		"dev":   {Accepted: 5, Gaps: 2, Silent: 310*time.Second + time.Millisecond, Duplicate: 1},
		"other": {Accepted: 5, Late: 2},
	}
	for client, w := range want {
		hours, err := ledger.Hours(client, noon.Add(-time.Hour), noon.Add(time.Hour))
		if err != nil || len(hours) != 1 {
			t.Fatalf("%s: %v %v", client, hours, err)
		}
		w.Start = noon.UTC().Truncate(time.Hour)
		if got := hours[0]; fmt.Sprint(got) != fmt.Sprint(w) {
			t.Errorf("%s: %+v, want %+v", client, got, w)
		}
	}
	// What was before a restart is known after it: the first value that comes is late, or ends a gap.
	b = boxOn(t, b.store, nil)
	ledger = uns.NewLedger(b.Ingress, &memory{})
	dev, other = b.Source("dev"), b.Source("other")
	send(other, "stamped", 15*time.Second, true)
	send(dev, "line1/temp", 600*time.Second, false)
	b.now = noon
	for client, got := range map[string]func(uns.Hour) bool{
		"dev":   func(h uns.Hour) bool { return h.Gaps == 1 && h.Accepted == 1 },
		"other": func(h uns.Hour) bool { return h.Late == 1 && h.Accepted == 1 },
	} {
		hours, err := ledger.Hours(client, noon.Add(-time.Hour), noon.Add(time.Hour))
		if err != nil || len(hours) != 1 || !got(hours[0]) {
			t.Errorf("%s after a restart: %+v %v", client, hours, err)
		}
	}
}
