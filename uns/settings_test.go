package uns_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"testing"

	"millrace/historian"
	"millrace/uns"

	"pgregory.net/rapid"
)

func TestSchema(t *testing.T) {
	for _, c := range []struct{ schema, payload, want string }{
		{`{"type":"number"}`, `1.5`, "good"},
		{`{"type":"number"}`, `{"value":"ON"}`, `type_mismatch: value: wanted number, found string "ON"`},
		{`{"type":"number"}`, `null`, `type_mismatch: value: wanted number, found null null`},
		{`{"type":"number"}`, `{"a":1}`, `type_mismatch: value: wanted number, found object {"a":1}`},
		{`{"type":"number","mode":"soft"}`, `"ON"`, `type_mismatch: value: wanted number, found string "ON"`},
		{`{"type":"integer"}`, `18446744073709551615`, "good"},
		{`{"type":"integer"}`, `1.0`, "good"},
		{`{"type":"integer"}`, `1e3`, "good"},
		{`{"type":"integer"}`, `0.0`, "good"},
		{`{"type":"integer"}`, `1.5`, `type_mismatch: value: wanted integer, found number 1.5`},
		{`{"type":"integer"}`, `15e-1`, `type_mismatch: value: wanted integer, found number 15e-1`},
		{`{"type":"boolean"}`, `true`, "good"},
		{`{"type":"boolean"}`, `1`, `type_mismatch: value: wanted boolean, found number 1`},
		{`{"type":"string"}`, `"x"`, "good"},
		{`{"type":"string"}`, `true`, `type_mismatch: value: wanted string, found boolean true`},
		{`{"type":"object"}`, `{"a":1}`, "good"},
		{`{"type":"object"}`, `[]`, `type_mismatch: value: wanted object, found array []`},
		{`{"type":"array"}`, `[]`, "good"},
		{`{"type":"array"}`, `{}`, `type_mismatch: value: wanted array, found object {}`},
		{`{"type":"any"}`, `null`, "good"},
		{`{"type":"number","min":0,"max":100}`, `100`, "good"},
		{`{"type":"number","min":0,"max":100}`, `100.0`, "good"},
		{`{"type":"number","min":0,"max":100}`, `100.0000000000000000000000000001`, `schema_violation: value: 100.0000000000000000000000000001 is above max 100`},
		{`{"type":"number","min":0,"max":100}`, `-1e-300`, `schema_violation: value: -1e-300 is below min 0`},
		{`{"type":"number","min":0,"max":100}`, `-0.0`, "good"},
		{`{"type":"number","max":9007199254740992}`, `9007199254740993`, `schema_violation: value: 9007199254740993 is above max 9007199254740992`},
		{`{"type":"number","max":100,"mode":"soft"}`, `101`, "uncertain"},
		{`{"type":"number","max":100,"mode":"soft"}`, `{"value":101,"quality":"bad"}`, "bad"},
		{`{"type":"number","max":100,"mode":"soft"}`, `99`, "good"},
		{`{"min":0,"max":10}`, `"text"`, "good"},
		{`{"min":0,"max":10}`, `[99]`, "good"},
		{`{"min":"b","max":"d"}`, `"c"`, "good"},
		{`{"min":"b","max":"d"}`, `"da"`, `schema_violation: value: "da" is above max "d"`},
		{`{"enum":[1,"ON",true,null,[1,2]]}`, `1.0`, "good"},
		{`{"enum":[1,"ON",true,null,[1,2]]}`, `"ON"`, "good"},
		{`{"enum":[1,"ON",true,null,[1,2]]}`, `"\u004fN"`, "good"},
		{`{"enum":[1,"ON",true,null,[1,2]]}`, `[1 , 2]`, "good"},
		{`{"enum":[1,"ON",true,null,[1,2]]}`, `[1,2.0]`, `schema_violation: value: [1,2.0] is not one of 1, "ON", true, null, [1,2]`},
		{`{"enum":[1,"ON",true,null,[1,2]]}`, `false`, `schema_violation: value: false is not one of`},
		{`{"enum":[1,"ON",true,null,[1,2]]}`, `null`, "good"},
		{`{"type":"text","enum":["ON","OFF"]}`, `ON`, "good"},
		{`{"type":"text","enum":["ON","OFF"]}`, `on`, `schema_violation: value: "on" is not one of "ON", "OFF"`},
	} {
		b := newBox(t, nil)
		b.set(t, "a", `{"schema":`+c.schema+`}`)
		v, s := b.send(t, "a", c.payload)
		got := v.String()
		if v.OK() {
			got = s.Quality.String()
		}
		if got != c.want && (v.OK() || !strings.HasPrefix(got, c.want)) {
			t.Errorf("%s %s: got %s, want %s", c.schema, c.payload, got, c.want)
		}
	}
}

func TestSet(t *testing.T) {
	b := newBox(t, nil)
	show := func(topic *uns.Topic) string {
		text, err := json.Marshal(topic.Settings())
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for _, c := range []struct{ patch, want string }{
		{`{}`, `{"schema":{"type":"any","mode":"strict"},"retention":"1d"}`},
		{`{"schema":{"type":"number","unit":"bar","min":-1.50,"max":1e3,"enum":[1.0,18446744073709551615]}}`,
			`{"schema":{"type":"number","unit":"bar","min":-1.50,"max":1e3,"enum":[1.0,18446744073709551615],"mode":"strict"},"retention":"1d"}`},
		{`{"schema":{"min":null,"mode":"soft"},"retention":"7d"}`,
			`{"schema":{"type":"number","unit":"bar","max":1e3,"enum":[1.0,18446744073709551615],"mode":"soft"},"retention":"7d"}`},
		{`{"schema":{"enum":null},"timestampUnit":"ms","timeZone":"Europe/Berlin","expectedInterval":"10s"}`,
			`{"schema":{"type":"number","unit":"bar","max":1e3,"mode":"soft"},"retention":"7d","timestampUnit":"ms","timeZone":"Europe/Berlin","expectedInterval":"10s"}`},
		{`{"timeZone":null,"timestampUnit":null,"expectedInterval":null,"retention":null,"schema":{"max":null}}`,
			`{"schema":{"type":"number","unit":"bar","mode":"soft"},"retention":"1d"}`},
		{`{"schema":null}`, `{"schema":{"type":"any","mode":"strict"},"retention":"1d"}`},
		{`{"retention":"forever","schema":{"enum":["a\"b",{"x": 1}]}}`, `{"schema":{"type":"any","enum":["a\"b",{"x":1}],"mode":"strict"},"retention":"forever"}`},
	} {
		topic := b.set(t, "mHv1.0/main/line1/press", c.patch)
		if got := show(topic); got != c.want {
			t.Errorf("%s: got %s, want %s", c.patch, got, c.want)
		}
		again := boxOn(t, b.store, nil).catalog.Lookup("main", "line1/press")
		if again == nil || again.Series != topic.Series {
			t.Fatalf("%s: after a restart the topic is %+v", c.patch, again)
		}
		if got := show(again); got != c.want {
			t.Errorf("%s: after a restart: got %s, want %s", c.patch, got, c.want)
		}
	}
	if n := b.catalog.Len("main"); n != 1 {
		t.Errorf("%d topics, want 1", n)
	}
}

func TestSetRefused(t *testing.T) {
	many := strings.TrimSuffix(strings.Repeat("1,", 300), ",")
	for _, c := range []struct{ path, patch, field, message string }{
		{"a", `{"schema":{"type":"float"}}`, "schema.type", `"float" is not one of any, number`},
		{"a", `{"schema":{"type":7}}`, "schema.type", "wanted text, found 7"},
		{"a", `{"schema":{"mode":"lax"}}`, "schema.mode", "strict, soft"},
		{"a", `{"schema":{"unit":"a\u0001"}}`, "schema.unit", "control character"},
		{"a", `{"schema":{"unit":"` + strings.Repeat("x", 65) + `"}}`, "schema.unit", "longer than 64"},
		{"a", `{"schema":{"min":2,"max":1}}`, "schema.min", "2 is above max 1"},
		{"a", `{"schema":{"min":2,"max":"1"}}`, "schema.min", "different types"},
		{"a", `{"schema":{"min":true}}`, "schema.min", "true cannot bound the type any"},
		{"a", `{"schema":{"type":"boolean","max":1}}`, "schema.max", "1 cannot bound the type boolean"},
		{"a", `{"schema":{"min":1e400}}`, "schema.min", "beyond"},
		{"a", `{"schema":{"enum":[]}}`, "schema.enum", "is empty"},
		{"a", `{"schema":{"enum":5}}`, "schema.enum", "wanted a list"},
		{"a", `{"schema":{"type":"number","enum":[1,"x"]}}`, "schema.enum[1]", `"x" is not of type number`},
		{"a", `{"schema":{"enum":[` + many + `]}}`, "schema.enum", "at most 256"},
		{"a", `{"schema":{"colour":"red"}}`, "schema.colour", "unknown key"},
		{"a", `{"schema":[]}`, "schema", "wanted a JSON object"},
		{"a", `{"retention":"2d"}`, "retention", `"2d" is not one of 1d, 7d`},
		{"a", `{"timestampUnit":"m"}`, "timestampUnit", "s, ms, us, ns"},
		{"a", `{"timeZone":"Berlin"}`, "timeZone", "not a known time zone"},
		{"a", `{"timeZone":"Local"}`, "timeZone", "not a known time zone"},
		{"a", `{"timeZone":"../../etc/passwd"}`, "timeZone", "not a known time zone"},
		{"a", `{"expectedInterval":"-1s"}`, "expectedInterval", "above 0"},
		{"a", `{"colour":1}`, "colour", "unknown key"},
		{"a", `{`, "settings", "not JSON"},
		{"a", `null`, "settings", "wanted a JSON object"},
		{"a//b", `{}`, "topic", "level 2 of the path is empty"},
	} {
		b := newBox(t, nil)
		_, err := b.catalog.Set(t.Context(), "main", c.path, []byte(c.patch))
		var fault *uns.SettingFault
		if !errors.As(err, &fault) || fault.Field != c.field || !strings.Contains(fault.Message, c.message) {
			t.Errorf("%.60s: got %v, want %s: %s", c.patch, err, c.field, c.message)
		}
		if len(b.store.rows) != 0 {
			t.Errorf("%.60s: refused, yet a topic was made", c.patch)
		}
	}
}

// A setting that the disk did not take must not hold values back as if it were there.
func TestSetFails(t *testing.T) {
	b := newBox(t, nil)
	b.send(t, "a", `"text"`)
	b.store.onSet = func() error { return historian.ErrClosed }
	if _, err := b.catalog.Set(t.Context(), "main", "a", []byte(`{"schema":{"type":"number"}}`)); !errors.Is(err, historian.ErrClosed) {
		t.Fatalf("got %v", err)
	}
	if v, _ := b.send(t, "a", `"text"`); !v.OK() {
		t.Errorf("got %v", v)
	}
}

func TestUnitFills(t *testing.T) {
	b := newBox(t, nil)
	unit := func(path string) string { return b.catalog.Lookup("main", path).Settings().Schema.Unit }
	b.send(t, "a", `{"value":1,"unit":"bar"}`)
	b.send(t, "b", `{"value":1}`)
	b.send(t, "b", `{"value":1,"unit":"°C"}`)
	b.send(t, "b", `{"value":1,"unit":"K"}`)
	b.set(t, "c", `{"schema":{"unit":"mm"}}`)
	b.send(t, "c", `{"value":1,"unit":"cm"}`)
	if got := fmt.Sprint(unit("a"), unit("b"), unit("c")); got != fmt.Sprint("bar", "°C", "mm") {
		t.Errorf("units %s", got)
	}
	b = boxOn(t, b.store, nil)
	if got := fmt.Sprint(unit("a"), unit("b"), unit("c")); got != fmt.Sprint("bar", "°C", "mm") {
		t.Errorf("units after a restart: %s", got)
	}
	// The value counts even if its unit cannot be kept.
	b.store.onSet = func() error { return historian.ErrStalled }
	b.send(t, "d", `1`)
	if v, _ := b.send(t, "d", `{"value":1,"unit":"V"}`); !v.OK() || unit("d") != "" {
		t.Errorf("got %v, unit %q", v, unit("d"))
	}
	b.store.onSet = nil
	if b.send(t, "d", `{"value":1,"unit":"V"}`); unit("d") != "V" {
		t.Errorf("unit %q, want V", unit("d"))
	}
}

func TestCompareAgainstRationals(t *testing.T) {
	number := rapid.Custom(func(t *rapid.T) string {
		s := rapid.StringMatching(`-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,25})?`).Draw(t, "number")
		return s + rapid.SampledFrom([]string{"", "", "", "e1", "E+20", "e-20", "e0"}).Draw(t, "exponent")
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := number.Draw(t, "a"), number.Draw(t, "b")
		if rapid.Bool().Draw(t, "near") { // the same value, written otherwise
			b = a
			if !strings.ContainsAny(a, "eE") {
				b = a + "e0"
				if strings.Contains(a, ".") {
					b = a + "00"
				}
			}
		}
		x, _ := new(big.Rat).SetString(a)
		y, _ := new(big.Rat).SetString(b)
		if got, want := uns.Compare(a, b), x.Cmp(y); got != want {
			t.Fatalf("%s against %s: %d, want %d", a, b, got, want)
		}
	})
}
