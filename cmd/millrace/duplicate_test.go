package main

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// F18 and contract section 4: three values with one timestamp are all kept in order of arrival; a retransmission (DUP,
// same id, same bytes) adds nothing; the same bytes without DUP are a new value, and so is a DUP of an id not seen.
func TestRetransmissionIsStoredOnce(t *testing.T) {
	for _, version := range []byte{4, 5} {
		t.Run(fmt.Sprint("version ", version), func(t *testing.T) {
			r := start(t, t.TempDir(), nil)
			secret := r.client("dev1")
			d := signIn(t, r.mqtt, version, "dev1", secret)
			send := func(value string, id uint16, dup bool) {
				t.Helper()
				f := d.publishFrame(root+"a", []byte(value), id, nil)
				if dup {
					f[0] |= 8
				}
				d.write(f)
				if got, code, reason := d.ack(); got != id || code != 0 {
					t.Fatalf("ack %d %#x %s", got, code, reason)
				}
			}
			send("600", 11, false)
			send("700", 12, false)
			send("800", 13, false)
			send("700", 12, true)  // the retransmission
			send("700", 12, true)  // and again
			send("900", 12, true)  // other bytes: not what was stored
			send("700", 12, false) // a new message that reuses the id
			send("700", 14, true)  // an id the session has not seen: its first copy was lost
			// a retransmission in the same segment as its original
			f := d.publishFrame(root+"a", []byte("1000"), 15, nil)
			again := append([]byte(nil), f...)
			again[0] |= 8
			d.write(append(f, again...))
			for range 2 {
				if id, code, _ := d.ack(); id != 15 || code != 0 {
					t.Fatalf("ack %d %#x", id, code)
				}
			}
			want := "600 700 800 900 700 700 1000"
			if got := strings.Join(r.history("dev1", secret, "a", "1000"), " "); got != want {
				t.Errorf("history: %s, want %s", got, want)
			}
			if got := r.metric("millrace_broker_duplicates_total"); got != "3" {
				t.Errorf("duplicates counted: %s, want 3", got)
			}
			hours, err := r.box.ledger.Hours("dev1", time.Now().Add(-2*time.Hour), time.Now().Add(time.Hour))
			duplicates := uint64(0)
			for _, h := range hours {
				duplicates += h.Duplicate
			}
			if err != nil || duplicates != 3 {
				t.Errorf("the ledger has %d duplicates, want 3 (%v)", duplicates, err)
			}
		})
	}
}
