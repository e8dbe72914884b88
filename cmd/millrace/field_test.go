package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"millrace/auth"
)

// Complaints from the field about other brokers and historians, each held against the box on real sockets. The number
// is that of the collection they were gathered in; docs/field-cases.md has the table. Those that kill or stop the program are in
// field_kill_test.go, those of sessions in field_sessions_test.go. Not yet: the pipeline steps of F12, the lenient mode of F11,
// quarantine of a damaged table in F28.

// said is one publish and what the device must hear.
type said struct {
	topic, payload string
	code           byte   // of the PUBACK, MQTT 5
	reason         string // how the reason string begins; of refusals
}

// tell publishes each and checks the answer.
func tell(t *testing.T, d *device, list []said) {
	t.Helper()
	for i, s := range list {
		d.publish(s.topic, s.payload, uint16(i+1))
		id, code, reason := d.ack()
		if int(id) != i+1 || code != s.code || !strings.HasPrefix(reason, s.reason) || code == 0 && reason != "" {
			t.Errorf("%q to %q: ack %d %#x %q, want %#x %q", s.payload, s.topic, id, code, reason, s.code, s.reason)
		}
	}
}

func allow(actions, filter string) auth.Grant {
	g := auth.Grant{Effect: "allow", Filter: filter}
	for _, a := range strings.Split(actions, ",") {
		g.Actions = append(g.Actions, auth.Action(a))
	}
	return g
}

func TestF08GrantsMatchLevelsAndNothingElse(t *testing.T) {
	r := start(t, t.TempDir(), nil)
	d := signIn(t, r.mqtt, 5, "dev1", r.client("dev1", allow("publish", "line1/press")))
	tell(t, d, []said{
		{root + "line1/press", "1", 0, ""},
		{root + "line1/press/secret", "1", 0x87, "not_authorized"},
		{root + "line1/pressX", "1", 0x87, "not_authorized"},
		{root + "line1", "1", 0x87, "not_authorized"},
		{"$SYS/x", "1", 0x87, "not_authorized"},
	})
	w := signIn(t, r.mqtt, 5, "writer", r.client("writer", allow("publish", "#")))
	s := signIn(t, r.mqtt, 5, "dev2", r.client("dev2", allow("subscribe", "line1/#")))
	for _, f := range []struct {
		filter string
		code   byte
	}{
		{root + "line1/#", 1}, // a/# matches a
		{root + "line2/#", 0x87},
		{"$SYS/#", 0x87},
		{"#", 1}, // permitted in part, and filtered at delivery
		{root + "line1/+/#/x", 0x8F},
	} {
		if code := s.subscribe(f.filter, 1); code != f.code {
			t.Errorf("subscribing to %s: %#x, want %#x", f.filter, code, f.code)
		}
	}
	tell(t, w, []said{{root + "line2/a", "1", 0, ""}, {root + "line1", "2", 0, ""}, {root + "line1/press", "3", 0, ""}})
	for _, want := range []string{root + "line1", root + "line1/press"} {
		if topic, _, _ := s.message(); topic != want {
			t.Errorf("delivered %s, want %s", topic, want)
		}
	}
	// What 3.1.1 can say: a plain ack, a counter, and nothing stored.
	old := signIn(t, r.mqtt, 4, "dev3", r.client("dev3", allow("publish,subscribe", "line1/press")))
	old.publish(root+"line1/press/secret", "1", 1)
	if id, code, _ := old.ack(); id != 1 || code != 0 {
		t.Errorf("3.1.1 ack %d %#x", id, code)
	}
	if code := old.subscribe(root+"line2/#", 1); code != 0x80 {
		t.Errorf("3.1.1 SUBACK %#x, want 0x80", code)
	}
	if code, text := r.get("writer", "", "/api/v1/uns/latest", "filter", "line1/press/secret"); code == 200 && strings.Contains(text, "secret") {
		t.Errorf("a refused value is shown: %s", text)
	}
}

func TestF09NamesCannotWidenARule(t *testing.T) {
	r := start(t, t.TempDir(), nil)
	own := allow("publish,subscribe", "devices/${client}/#")
	for _, id := range []string{"#", "+", "a/b", "", "a\x00b", "💡", strings.Repeat("x", 65), strings.Repeat("x", 65535), "$SYS", "a b"} {
		added, err := r.box.book.AddAll([]auth.NewClient{{ID: id, Grants: []auth.Grant{own}}})
		if err == nil && added[0].Err == nil {
			t.Errorf("a client named %.20q was created", id)
			continue
		}
		if err == nil {
			err = added[0].Err
		}
		if !strings.Contains(err.Error(), "id") {
			t.Errorf("%.20q: the refusal %q does not say that the id is at fault", id, err)
		}
		if _, code := connect(t, r.mqtt, 5, "some-device", id[:min(len(id), 60000)], "whatever"); code < 0x80 {
			t.Errorf("%.20q signed in: %#x", id, code)
		}
	}
	upper, lower := r.client("Dev", own), r.client("dev", own)
	tell(t, signIn(t, r.mqtt, 5, "Dev", upper), []said{
		{root + "devices/Dev/temp", "1", 0, ""},
		{root + "devices/dev/temp", "1", 0x87, "not_authorized"},
		{root + "_ingress/dev/devices/Dev/temp", "1", 0x87, "not_authorized"},
	})
	if _, code := connect(t, r.mqtt, 5, "x", "Dev", lower); code != 0x86 {
		t.Errorf("the secret of dev opened Dev: %#x", code)
	}
	// The MQTT client identifier is no identity: one that looks like a wildcard opens nothing.
	d, code := connect(t, r.mqtt, 5, "#", "dev", lower)
	if code != 0 {
		t.Fatalf("CONNACK %#x", code)
	}
	tell(t, d, []said{{root + "devices/Dev/temp", "1", 0x87, "not_authorized"}, {root + "devices/dev/temp", "1", 0, ""}})
}

func TestF10TopicShapes(t *testing.T) {
	r := start(t, t.TempDir(), nil)
	secret := r.client("dev1", allow("publish,subscribe", "#"), auth.Grant{Effect: "allow", Scope: "mqtt", Filter: "#",
		Actions: []auth.Action{"publish", "subscribe"}})
	d := signIn(t, r.mqtt, 5, "dev1", secret)
	deep := root + strings.TrimSuffix(strings.Repeat("a/", 32), "/")
	tell(t, d, []said{
		{root + "line1/temp", "1", 0, ""},
		{root + "line 1/Öl °C", "2", 0, ""},
		{deep, "3", 0, ""},
		{deep + "/a", "4", 0x90, "topic_invalid"},
		{root + "/line1/temp", "5", 0x90, "topic_invalid"},
		{root + "line1//temp", "6", 0x90, "topic_invalid"},
		{root + "line1/temp/", "7", 0x90, "topic_invalid"},
		{root + "line1/+", "8", 0x90, "topic_invalid"},
		{root + "line1/#", "9", 0x90, "topic_invalid"},
		{root + "LINE1/temp", "10", 0, ""},
		{root + strings.Repeat("x", 1025), "11", 0x90, "topic_invalid"},
	})
	for path, want := range map[string]string{"line1/temp": "1", "line 1/Öl °C": "2", strings.TrimPrefix(deep, root): "3", "LINE1/temp": "10"} {
		if got := r.history("dev1", secret, path, "10"); !slices.Equal(got, []string{want}) {
			t.Errorf("%s holds %v, want %s", path, got, want)
		}
	}
	// Ordinary topics stay as they are: none of these is another.
	s := signIn(t, r.mqtt, 5, "dev1b", r.client("dev1b", auth.Grant{Effect: "allow", Scope: "mqtt", Filter: "#", Actions: []auth.Action{"subscribe"}}))
	for _, f := range []string{"+/line1/temp", "line1//#", "rtl//+/time"} {
		if code := s.subscribe(f, 1); code != 1 {
			t.Fatalf("%s: %#x", f, code)
		}
	}
	heard := []string{"/line1/temp", "line1//temp", "rtl//FT-004B/time"}
	for i, topic := range []string{"/line1/temp", "line1/temp", "line1//temp", "line1/temp/", "rtl//FT-004B/time"} {
		d.publish(topic, fmt.Sprint(i), uint16(100+i))
		if _, code, reason := d.ack(); code != 0 {
			t.Errorf("%s: %#x %s", topic, code, reason)
		}
		if slices.Contains(heard, topic) {
			if got, payload, _ := s.message(); got != topic || payload != fmt.Sprint(i) {
				t.Errorf("heard %s %s, want %s %d", got, payload, topic, i)
			}
		}
	}
}

func TestF11NotANumber(t *testing.T) {
	r := start(t, t.TempDir(), nil)
	secret := r.client("dev1")
	d := signIn(t, r.mqtt, 5, "dev1", secret)
	topic := root + "line1/temp"
	tell(t, d, []said{
		{topic, `41.2`, 0, ""},
		{topic, `{"temperature":nan,"humidity":41.2,"battery":88}`, 0x99, "payload_invalid: byte 16"}, // n may begin null
		{topic, `{"value":NaN}`, 0x99, "payload_invalid: byte 9"},
		{topic, `{"value":-Infinity}`, 0x99, "payload_invalid: byte 10"},
		{topic, `{"value":1e400}`, 0x99, "number_out_of_range"},
		{topic, `nan`, 0x99, "payload_invalid: byte 1"},
		{topic, `{"value":-0.0}`, 0, ""},
	})
	if got := r.history("dev1", secret, "line1/temp", "10"); !slices.Equal(got, []string{"41.2", "-0.0"}) {
		t.Errorf("stored %v: what was refused must leave nothing behind", got)
	}
}

func TestF12BigIntegers(t *testing.T) {
	r := start(t, t.TempDir(), nil)
	secret := r.client("dev1")
	d := signIn(t, r.mqtt, 5, "dev1", secret)
	s := signIn(t, r.mqtt, 5, "sub", r.client("sub"))
	if code := s.subscribe(root+"line1/#", 1); code != 1 {
		t.Fatalf("%#x", code)
	}
	digits := []string{"9007199254740993", "17169973925117969", "18446744073709551615", "-9223372036854775808", "0.1", "1.0", "1", `"00123"`,
		"340282366920938463463374607431768211456", "0.000000000000000000000000000001"}
	for i, v := range digits {
		d.publish(root+"line1/count", `{"value":`+v+`}`, uint16(i+1))
		if _, code, reason := d.ack(); code != 0 {
			t.Fatalf("%s: %#x %s", v, code, reason)
		}
		if _, payload, _ := s.message(); !strings.HasPrefix(payload, `{"value":`+v+`,`) {
			t.Errorf("published again as %s, want %s", payload, v)
		}
	}
	if got := r.history("dev1", secret, "line1/count", "3"); !slices.Equal(got, digits) {
		t.Errorf("history has %v", got)
	}
	if _, text := r.get("dev1", secret, "/api/v1/uns/latest", "filter", "line1/count"); !strings.Contains(text, `"value":`+digits[len(digits)-1]) {
		t.Errorf("latest: %s", text)
	}
}

func TestF13MixedTypes(t *testing.T) {
	r := start(t, t.TempDir(), func(c *Config) { c.UNS.Ingress.PerClientRatePerSec = 0 })
	secret := r.client("dev1")
	d := signIn(t, r.mqtt, 5, "dev1", secret)
	topic := root + "line1/plug"
	tell(t, d, []said{
		{topic, `{"state":"ON","power":12.3,"ts":null}`, 0, ""},
		{topic, `online`, 0x99, "payload_invalid"},
		{topic, `{"state":"online"}`, 0, ""},
		{topic, `ON`, 0x99, "payload_invalid"},
		{topic, `true`, 0, ""},
		{topic, `"true"`, 0, ""},
		{topic, `12,5`, 0x99, "payload_invalid"},
		{topic, `"12.5"`, 0, ""},
		{topic, `[1, 2]`, 0, ""},
		{topic, `{}`, 0, ""},
		{topic, ``, 0x99, "payload_invalid"},
		{topic, `null`, 0, ""},
	})
	want := []string{`{"state":"ON","power":12.3,"ts":null}`, `{"state":"online"}`, `true`, `"true"`, `"12.5"`, `[1,2]`, `{}`, `null`}
	if got := r.history("dev1", secret, "line1/plug", "100"); !slices.Equal(got, want) {
		t.Errorf("stored %v, want %v", got, want)
	}

	if _, err := r.box.catalog.Set(t.Context(), "main", "line1/number", []byte(`{"schema":{"type":"number"}}`)); err != nil {
		t.Fatal(err)
	}
	const n = 5000
	go func() {
		var b []byte
		for i := range n {
			payload := `{"value":12.5}`
			if i%2 == 1 {
				payload = `{"value":"ON"}`
			}
			b = append(b, d.publishFrame(root+"line1/number", []byte(payload), uint16(i+1), nil)...)
		}
		if _, err := d.conn.Write(b); err != nil {
			t.Error(err)
		}
	}()
	stored, refused := 0, 0
	for range n {
		switch _, code, _ := d.ack(); code {
		case 0:
			stored++
		case 0x99:
			refused++
		}
	}
	if stored != n/2 || refused != n/2 {
		t.Errorf("%d stored and %d refused of %d", stored, refused, n)
	}
	if got := len(r.history("dev1", secret, "line1/number", "1000")); got != n/2 {
		t.Errorf("%d in history", got)
	}
}

// F16 and F17 run beside a clock that stands at the instant of the case.
func TestF16UnitsOfATimestamp(t *testing.T) {
	r := start(t, t.TempDir(), func(c *Config) { c.UNS.LateWindow = "3650d" })
	secret := r.client("dev1")
	d := signIn(t, r.mqtt, 5, "dev1", secret)
	at := time.Date(2026, 9, 21, 14, 13, 20, 250_000_000, time.UTC)
	for i, stamp := range []string{"1790000000", "1790000000.25", "1790000000250", "1790000000250000000", "1790000000250000",
		`"2026-09-21T14:13:20.25Z"`, `"2026-09-21T16:13:20.250000000+02:00"`} {
		path := fmt.Sprintf("line1/t%d", i)
		d.publish(root+path, `{"value":1,"timestamp":`+stamp+`}`, uint16(i+1))
		if _, code, reason := d.ack(); code != 0 {
			t.Errorf("%s: %#x %s", stamp, code, reason)
			continue
		}
		want := at
		if i == 0 {
			want = at.Truncate(time.Second)
		}
		_, text := r.get("dev1", secret, "/api/v1/uns/latest", "filter", path)
		_, shown, _ := strings.Cut(text, `"timestamp":"`)
		shown, _, _ = strings.Cut(shown, `"`)
		if got, err := time.Parse(time.RFC3339Nano, shown); err != nil || !got.Equal(want) {
			t.Errorf("%s became %q, want %s", stamp, shown, want.Format(time.RFC3339Nano))
		}
	}
	tell(t, d, []said{
		{root + "line1/no", `{"value":1,"timestamp":"1790000000250"}`, 0x99, "timestamp_invalid"},
		{root + "line1/no", `{"value":1,"timestamp":"2026-09-21 14:13:20,25"}`, 0x99, "timestamp_invalid"},
	})
}

func TestF17ClockYearsOff(t *testing.T) {
	r := start(t, t.TempDir(), nil)
	secret := r.client("dev1")
	d := signIn(t, r.mqtt, 5, "dev1", secret)
	topic := root + "line1/temp"
	ahead := func(by time.Duration) string { return time.Now().Add(by).UTC().Format(time.RFC3339) }
	tell(t, d, []said{
		{topic, `{"value":1,"timestamp":0}`, 0x99, "timestamp_too_old: timestamp: 1970-01-01"},
		{topic, `{"value":2,"timestamp":"2023-01-01T00:00:00Z"}`, 0x99, "timestamp_too_old: timestamp: 2023-01-01"},
		{topic, `{"value":3,"timestamp":"2036-02-07T06:28:16Z"}`, 0x99, "timestamp_future: timestamp: 2036-02-07"},
		{topic, `{"value":4,"timestamp":"` + ahead(10*time.Minute) + `"}`, 0x99, "timestamp_future"},
		{topic, `{"value":5,"timestamp":"` + ahead(10*365*24*time.Hour) + `"}`, 0x99, "timestamp_future"},
		{topic, `{"value":6,"timestamp":"` + ahead(2*time.Minute) + `"}`, 0, ""},
		{topic, `{"value":7}`, 0, ""},
	})
	// A stamp within the allowance ahead must not freeze what comes after it: both are there.
	if got := r.history("dev1", secret, "line1/temp", "10"); len(got) != 2 {
		t.Errorf("stored %v, want 6 and 7", got)
	}
}

func TestF18EqualTimestamps(t *testing.T) {
	r := start(t, t.TempDir(), nil)
	secret := r.client("dev1")
	d := signIn(t, r.mqtt, 5, "dev1", secret)
	stamp := time.Now().UTC().Truncate(time.Millisecond).Format(time.RFC3339Nano)
	send := func(value string, id uint16, dup bool) {
		t.Helper()
		f := d.publishFrame(root+"line1/temp", []byte(`{"value":`+value+`,"timestamp":"`+stamp+`"}`), id, nil)
		if dup {
			f[0] |= 8
		}
		d.write(f)
		if got, code, reason := d.ack(); got != id || code != 0 {
			t.Fatalf("%s: %d %#x %s", value, got, code, reason)
		}
	}
	send("600", 1, false)
	send("700", 2, false)
	send("800", 3, false)
	send("700", 2, true)  // the retransmission adds nothing
	send("700", 4, false) // a new message with old words
	if got := r.history("dev1", secret, "line1/temp", "2"); !slices.Equal(got, []string{"600", "700", "800", "700"}) {
		t.Errorf("history has %v", got)
	}
}

// F28 in what this version has: a log torn at its end starts and serves; a tail that was never acknowledged is dropped.
func TestF28TornLog(t *testing.T) {
	dir := t.TempDir()
	r := start(t, dir, nil)
	secret := r.client("dev1")
	d := signIn(t, r.mqtt, 5, "dev1", secret)
	for i := 1; i <= 100; i++ {
		d.publish(root+"line1/temp", fmt.Sprint(i), uint16(i))
		if _, code, _ := d.ack(); code != 0 {
			t.Fatalf("%#x", code)
		}
	}
	// A copy of a running box is what a power cut leaves.
	torn := filepath.Join(t.TempDir(), "copy")
	for _, part := range []string{"historian", "records", "secrets"} {
		if err := os.CopyFS(filepath.Join(torn, part), os.DirFS(filepath.Join(dir, part))); err != nil {
			t.Fatal(err)
		}
	}
	logs, err := filepath.Glob(filepath.Join(torn, "historian", "*.log"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("log files: %v %v", logs, err)
	}
	newest := slices.Max(logs)
	info, err := os.Stat(newest)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(newest, info.Size()-17); err != nil {
		t.Fatal(err)
	}
	again := start(t, torn, nil)
	if got := again.history("dev1", secret, "line1/temp", "1000"); len(got) < 99 || got[98] != "99" {
		t.Errorf("after the torn log: %d values", len(got))
	}
}
