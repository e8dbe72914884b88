package web_test

import (
	"strings"
	"testing"

	"millrace/auth"
)

func TestPublishAnswersTheVerdict(t *testing.T) {
	b := newBox(t)
	secret := b.client("press1", "main", allow("line1/#", "publish", "subscribe"))
	tests := []struct{ name, body, want string }{
		{"exact digits", `{"topic":"line1/n","value":18446744073709551615,"timestamp":1796039999999,"quality":"uncertain"}`,
			`{"status":"stored","topic":"line1/n","timestamp":"2026-11-30T11:59:59.999Z","seq":1}`},
		{"full topic", `{"topic":"mHv1.0/main/line1/n","value":null}`, `{"status":"stored","topic":"line1/n","timestamp":"2026-11-30T12:00:00.000Z","seq":2}`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := b.call("", "POST", "/uns/publish").as("press1", secret).json(test.body).do().wants(t, 200)
			if strings.TrimSpace(got.text) != test.want {
				t.Errorf("verdict %s, want %s", got.text, test.want)
			}
		})
	}
	refusals := []struct{ body, reason string }{
		{`{"topic":"line1/n","value":1e400}`, "number_out_of_range"},
		{`{"topic":"line1/n","value":1,"quality":"splendid"}`, "payload_invalid"},
		{`{"topic":"line1/n","value":1,"timestamp":"yesterday"}`, "timestamp_invalid"},
		{`{"topic":"line1/n","value":1,"timestamp":"2036-01-01T00:00:00Z"}`, "timestamp_future"},
		{`{"topic":"line1//n","value":1}`, "topic_invalid"},
		{`{"topic":"line2/n","value":1}`, "not_authorized"},
	}
	for _, test := range refusals {
		t.Run(test.reason, func(t *testing.T) {
			var v struct{ Status, Reason, Detail string }
			b.call("", "POST", "/uns/publish").as("press1", secret).json(test.body).do().wants(t, 200).into(t, &v)
			if v.Status != "refused" || v.Reason != test.reason || v.Detail == "" {
				t.Errorf("verdict %+v, want %s", v, test.reason)
			}
		})
	}
	if n := b.ingress.Source("press1").Refused()["not_authorized"]; n != 1 {
		t.Errorf("the client's page counts %d refusals by grant", n)
	}
	b.call(auth.RoleOperator, "POST", "/uns/publish").json(`{"value":1}`).do().refused(t, 422, "invalid", "topic")
	b.call(auth.RoleOperator, "POST", "/uns/publish").json(`{"topic":"a","value":1,"value":2}`).do().refused(t, 422, "invalid", "value")
	b.call(auth.RoleOperator, "POST", "/uns/publish").json(`{"topic":"a","Topic":"b","value":1}`).do().refused(t, 422, "invalid", "topic")
	b.call(auth.RoleOperator, "POST", "/uns/publish").json(`{"topic":"a"}`).do().refused(t, 422, "invalid", "value")
	b.call(auth.RoleOperator, "POST", "/uns/publish").json(`{"topic":"a","value":}`).do().refused(t, 400, "malformed", "")
	b.call(auth.RoleOperator, "POST", "/uns/publish").json(`{"topic":"a","value":[1}`).do().refused(t, 400, "malformed", "")
	b.call(auth.RoleOperator, "POST", "/uns/publish").json(`{"topic":NaN,"value":NaN}`).do().refused(t, 400, "malformed", "")
	b.call(auth.RoleOperator, "POST", "/uns/publish").json(`{"topic":"a","value":1,"qualty":"good"}`).do().refused(t, 400, "malformed", "")
	if b.catalog.Lookup("main", "a") != nil {
		t.Error("a refused body made a topic")
	}
}

// What JSON cannot hold is refused as a device's payload is, and the place is one within the member that was sent.
func TestPublishNamesThePlaceWithinTheMember(t *testing.T) {
	b := newBox(t)
	for _, test := range []struct{ body, reason, detail string }{
		{`{"topic":"a","value":NaN}`, "payload_invalid", "byte 0 of value: "},
		{`{ "value" : -Infinity , "topic":"a"}`, "payload_invalid", "byte 1 of value: "},
		{`{"value":01,"topic":"a","quality":"good"}`, "payload_invalid", "byte 1 of value: "},
		{`{"topic":"a","value":[1,{"b":NaN}],"timestamp":"2026-11-30T11:00:00Z"}`, "payload_invalid", "byte 8 of value: "},
		{`{"topic":"a","value":"\q"}`, "payload_invalid", "byte 2 of value: "},
		{`{"topic":"a","value":1 2}`, "payload_invalid", "byte 2 of value: "},
		{`{"topic":"a","value":1e400}`, "number_out_of_range", "(byte 0 of value)"},
		{`{"topic":"a","value":[0,1e400]}`, "number_out_of_range", "(byte 3 of value)"},
		{`{"topic":"a","value":1,"quality":"(byte 3)"}`, "payload_invalid", "(byte 0 of quality)"},
	} {
		var v struct{ Status, Reason, Detail, Topic string }
		b.call(auth.RoleOperator, "POST", "/uns/publish").json(test.body).do().wants(t, 200).into(t, &v)
		if v.Status != "refused" || v.Reason != test.reason || !strings.Contains(v.Detail, test.detail) || v.Topic != "a" {
			t.Errorf("%s: %+v, want %s with %q", test.body, v, test.reason, test.detail)
		}
	}
}

// A topic that takes text or bytes as they are still gets the value, not the envelope that web makes of it.
func TestPublishToATextTopic(t *testing.T) {
	b := newBox(t)
	for _, test := range []struct{ kind, value, want string }{{"text", `"ON"`, `"value":"ON",`}, {"bytes", `"T04="`, `"value":"T04=",`}} {
		b.call(auth.RoleDesigner, "PUT", "/uns/topic", "topic", test.kind).json(`{"schema":{"type":"`+test.kind+`"}}`).do().wants(t, 200)
		b.call(auth.RoleOperator, "POST", "/uns/publish").json(`{"topic":"`+test.kind+`","value":`+test.value+`}`).do().wants(t, 200)
		if got := b.get("/uns/latest", "filter", test.kind).wants(t, 200).text; !strings.Contains(got, test.want) {
			t.Errorf("%s: %s", test.kind, got)
		}
	}
}

func TestStalledStoreIs503(t *testing.T) {
	b := newShelfBox(t)
	b.shelf.stalled.Store(true)
	r := b.call(auth.RoleOperator, "POST", "/uns/publish").json(`{"topic":"a","value":1}`).do()
	r.refused(t, 503, "storage_stalled", "")
	if r.Header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
}
