package main

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// Values of a device start runs, whose values are stored and start runs themselves, over a stop and a start: each derived value is
// there once.
func TestValuesStartRuns(t *testing.T) {
	dir := t.TempDir()
	r := start(t, dir, nil)
	secret := r.client("dev1")
	for i, from := range []string{"line/+/temp", "line/+/copy"} {
		to := []string{"line/1/copy", "line/1/second"}[i]
		r.deploy(fmt.Appendf(nil, `{"id":"p%d","workspace":"main","settings":{"runOrder":"ordered"},"nodes":[{"id":"t","type":"trigger.uns.subscribe","params":{"topics":[%q]}},
			{"id":"p","type":"system.uns.publish","params":{"topic":%q,"value":"{{ $trigger.value }}"}}],"edges":[{"from":"t","to":"p"}]}`, i, from, to))
	}
	var want []string
	n := 0
	send := func(r *running) {
		d := signIn(t, r.mqtt, 5, "dev1", secret)
		for range 20 {
			d.publish(root+"line/1/temp", fmt.Sprintf("%d.50", n), 1)
			d.ack()
			want = append(want, fmt.Sprintf("%d.50", n))
			n++
		}
	}
	check := func(r *running) {
		t.Helper()
		var got []string
		for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			if r.box.catalog.Lookup("main", "line/1/second") != nil {
				if got = r.history("dev1", secret, "line/1/second", "100"); len(got) >= len(want) {
					break
				}
			}
			if time.Now().After(deadline) {
				t.Fatalf("derived are %v, want %v", got, want)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("derived are %v, want %v", got, want)
		}
	}
	send(r)
	check(r)
	send(r)
	r.stop() // with runs under way
	r = start(t, dir, nil)
	check(r)
	send(r)
	check(r)
}
