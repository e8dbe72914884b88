package uns_test

import (
	"fmt"
	"strings"
	"testing"

	"millrace/uns"
)

// What a topic did not take as it came is listed with who, why and what; what has to do with who may send is not.
func TestViolations(t *testing.T) {
	b := newBox(t, func(o *uns.Options) { o.Ingress.PerClientRatePerSec = 12 })
	strict := b.set(t, "strict", `{"schema":{"type":"number","max":10}}`)
	soft := b.set(t, "soft", `{"schema":{"max":10,"mode":"soft"},"timeZone":"Europe/Berlin","retention":"forever"}`)
	dev := b.Source("dev")
	put := func(path, payload string) {
		b.put(t, uns.Message{Source: dev, Workspace: "main", Path: path, Payload: []byte(payload)})
	}
	put("strict", `9`)
	put("strict", `11`)
	put("strict", `"ON"`)
	put("strict", `ON`)
	put("strict", `{"value":1,"timestamp":0}`)
	put("soft", `11`)
	put("soft", `{"value":1,"timestamp":"2025-10-26T02:30:00"}`)
	put("unknown", `ON`)
	for range 10 {
		put("strict", `1`) // the last ones are above the rate
	}
	if n := dev.Refused()["rate_limited"]; n == 0 {
		t.Fatal("the rate was not reached")
	}
	count, last := strict.Violations()
	if count != 4 || len(last) != 4 {
		t.Fatalf("%d %+v", count, last)
	}
	for i, want := range []struct {
		reason          uns.Reason
		detail, payload string
	}{
		{uns.TimestampTooOld, "1970-01-01", `"{\"value\":1,\"timestamp\":0}"`},
		{uns.PayloadInvalid, "byte 0", `"ON"`},
		{uns.TypeMismatch, "wanted number, found string", `"\"ON\""`},
		{uns.SchemaViolation, "11 is above max 10", `"11"`},
	} {
		v := last[i]
		if v.Reason != want.reason || !strings.Contains(v.Detail, want.detail) || v.Payload != want.payload || v.Client != "dev" || !v.Time.Equal(noon) {
			t.Errorf("%d: %+v, want %+v", i, v, want)
		}
	}
	count, last = soft.Violations()
	if count != 2 || len(last) != 2 || last[0].Reason != uns.Stored || !strings.Contains(last[0].Detail, "twice") || !strings.Contains(last[1].Detail, "above max") {
		t.Errorf("%d %+v", count, last)
	}
	if b.catalog.Lookup("main", "unknown") != nil {
		t.Error("a refused value made a topic")
	}
	b.now = noon.Add(1e9)
	for i := range 20 {
		b.put(t, uns.Message{Workspace: "main", Path: "strict", Payload: fmt.Append(nil, 100+i)})
	}
	count, last = strict.Violations()
	if count != 24 || len(last) != 8 || last[0].Payload != `"119"` || last[7].Payload != `"112"` || last[0].Client != "" {
		t.Errorf("%d %+v", count, last)
	}
}

// The list is bounded: beyond 4,096 topics violations are refused and counted as ever, and not listed.
func TestViolationsAreBounded(t *testing.T) {
	b := newBox(t, nil)
	listed := 0
	for i := range 5000 {
		path := fmt.Sprint("t/", i)
		b.send(t, path, `1`)
		b.send(t, path, `ON`)
		if n, _ := b.catalog.Lookup("main", path).Violations(); n > 0 {
			listed++
		}
	}
	if listed != 4096 {
		t.Errorf("%d topics are listed", listed)
	}
}
