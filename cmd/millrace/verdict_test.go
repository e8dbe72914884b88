package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"millrace/auth"
)

// refusals is every reason of contract section 5 that a device can bring about, with the code of an MQTT 5 ack
// and words the reason string must hold.
var refusals = []struct {
	reason         string
	code           byte
	topic, payload string
	says           []string
}{
	{"not_authorized", 0x87, root + "line2/temp", `{"value":1}`, nil},
	{"not_authorized", 0x87, root + "_ingress/somebody/line1/temp", `{"value":1}`, nil},
	{"topic_invalid", 0x90, root + "line1//temp", `{"value":1}`, []string{"level"}},
	{"topic_invalid", 0x90, root + "_line1/temp", `{"value":1}`, []string{"reserved"}},
	{"topic_invalid", 0x90, "mHv1.0/elsewhere/line1/temp", `{"value":1}`, []string{"elsewhere", "main"}},
	{"payload_invalid", 0x99, root + "line1/temp", `{"value":NaN}`, []string{"byte 9"}},
	{"payload_invalid", 0x99, root + "line1/temp", `nan`, []string{"byte 1"}},
	{"payload_invalid", 0x99, root + "line1/temp", `12,5`, []string{"byte 2"}},
	{"payload_invalid", 0x99, root + "line1/temp", `{"value":1`, []string{"byte 10"}},
	{"payload_invalid", 0x99, root + "line1/temp", `{"value":1,"value":2}`, []string{"value"}},
	{"payload_invalid", 0x99, root + "line1/temp", `{"value":1,"quality":"fine"}`, []string{"quality", "fine"}},
	{"payload_invalid", 0x99, root + "line1/temp", ``, nil},
	{"type_mismatch", 0x99, root + "line1/strict", `{"value":"ON"}`, []string{"number", "string"}},
	{"schema_violation", 0x99, root + "line1/strict", `{"value":101}`, []string{"100"}},
	{"number_out_of_range", 0x99, root + "line1/temp", `{"value":1e400}`, []string{"1e400"}},
	{"timestamp_invalid", 0x99, root + "line1/temp", `{"value":1,"timestamp":"2026-07-01T14:00:00"}`, []string{"zone"}},
	{"timestamp_invalid", 0x99, root + "line1/temp", `{"value":1,"timestamp":"1790000000250"}`, nil},
	{"timestamp_future", 0x99, root + "line1/temp", `{"value":1,"timestamp":"2999-01-01T00:00:00Z"}`, []string{"2999-01-01"}},
	{"timestamp_too_old", 0x99, root + "line1/temp", `{"value":1,"timestamp":0}`, []string{"1970-01-01"}},
	{"payload_too_large", 0x97, root + "line1/temp", `"` + strings.Repeat("x", 2000) + `"`, []string{"1024"}},
	{"topic_limit", 0x97, root + "line1/one/too/many", `{"value":1}`, []string{"3"}},
}

func TestEveryRefusal(t *testing.T) {
	for _, version := range []byte{5, 4} {
		t.Run(fmt.Sprint("version ", version), func(t *testing.T) {
			r := start(t, t.TempDir(), func(c *Config) { c.UNS.Ingress.MaxTopics, c.UNS.Ingress.MaxValueSize = 3, 1024 })
			secret := r.client("dev1", auth.Grant{Effect: "allow", Actions: []auth.Action{"publish"}, Filter: "line1/#"})
			set := func(path, patch string) {
				if _, err := r.box.catalog.Set(context.Background(), "main", path, []byte(patch)); err != nil {
					t.Fatal(err)
				}
			}
			set("line1/strict", `{"schema":{"type":"number","max":100,"mode":"strict"}}`)
			set("line1/temp", `{}`)
			set("line1/other", `{}`)
			d := signIn(t, r.mqtt, version, "dev1", secret)
			counts := map[string]int{}
			for i, c := range refusals {
				d.publish(c.topic, c.payload, uint16(i+1))
				id, code, reason := d.ack()
				if int(id) != i+1 {
					t.Fatalf("%s: ack of %d, want %d", c.reason, id, i+1)
				}
				counts[c.reason]++
				if version == 4 {
					if code != 0 || reason != "" {
						t.Errorf("%s: MQTT 3.1.1 got %#x %q", c.reason, code, reason)
					}
				} else {
					if code != c.code || !strings.HasPrefix(reason, c.reason) {
						t.Errorf("%s to %s: got %#x %q, want %#x", c.payload, c.topic, code, reason, c.code)
					}
					for _, w := range c.says {
						if !strings.Contains(reason, w) {
							t.Errorf("%s: %q does not say %q", c.payload, reason, w)
						}
					}
				}
				// the stream goes on after every refusal
				d.publish(root+"line1/temp", `{"value":1}`, 1000)
				if id, code, reason := d.ack(); id != 1000 || code != 0 {
					t.Fatalf("after %s: %d %#x %s", c.reason, id, code, reason)
				}
			}
			for reason, n := range counts {
				if got := r.metric(`millrace_uns_ingress_rejected_total{reason="` + reason + `"}`); got != fmt.Sprint(n) {
					t.Errorf("%s is counted %q times, want %d", reason, got, n)
				}
			}
			if got := r.metric("millrace_uns_ingress_accepted_total"); got != fmt.Sprint(len(refusals)) {
				t.Errorf("accepted is %s, want %d", got, len(refusals))
			}
			if version == 5 {
				if code, text := r.get("dev1", secret, "/api/v1/uns/history", "topic", "line1/temp"); code != 403 {
					t.Errorf("a client without a subscribe grant read history: %d %s", code, text)
				}
			}
		})
	}
}

func TestRateLimited(t *testing.T) {
	r := start(t, t.TempDir(), func(c *Config) { c.UNS.Ingress.PerClientRatePerSec = 5 })
	d := signIn(t, r.mqtt, 5, "dev1", r.client("dev1"))
	refused := 0
	for i := 1; i <= 40; i++ {
		d.publish(root+"line1/temp", `{"value":1}`, uint16(i))
	}
	for range 40 {
		if _, code, reason := d.ack(); code == 0x97 && strings.HasPrefix(reason, "rate_limited") {
			refused++
		} else if code != 0 {
			t.Fatalf("%#x %s", code, reason)
		}
	}
	if refused < 30 || refused > 35 {
		t.Errorf("%d of 40 were refused; the burst is 5 values", refused)
	}
}

// A publish with a response topic hears its verdict there, correlation data echoed, stored or refused.
func TestVerdictReplies(t *testing.T) {
	r := start(t, t.TempDir(), nil)
	d := signIn(t, r.mqtt, 5, "dev1", r.client("dev1", auth.Grant{Effect: "allow", Actions: []auth.Action{"publish"}, Filter: "line1/#"}))
	if code := d.subscribe(root+"_verdict/dev1/#", 1); code > 1 {
		t.Fatalf("SUBACK %#x for its own verdicts", code)
	}
	props := func(correlation string) []byte {
		return str(append(str([]byte{0x08}, root+"_verdict/dev1/r"), 0x09), correlation)
	}
	for _, c := range []struct{ payload, want string }{
		{`{"value":1}`, `{"status":"stored","topic":"line1/temp","timestamp":"`},
		{`nan`, `{"status":"refused","reason":"payload_invalid","detail":"`},
	} {
		d.write(d.publishFrame(root+"line1/temp", []byte(c.payload), 9, props("c-"+c.payload)))
		if id, _, _ := d.ack(); id != 9 {
			t.Fatalf("ack of %d", id)
		}
		topic, payload, got := d.message()
		if topic != root+"_verdict/dev1/r" || !strings.HasPrefix(payload, c.want) || !strings.Contains(string(got), "c-"+c.payload) {
			t.Errorf("verdict on %s: %s %s % x", c.payload, topic, payload, got)
		}
	}
}
