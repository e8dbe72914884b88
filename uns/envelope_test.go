package uns_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"millrace/historian"
	"millrace/uns"
)

func TestPayloadStored(t *testing.T) {
	long := strings.Repeat("x", 5000)
	for _, c := range []struct{ payload, value, quality string }{
		{`{"value":23.5}`, `23.5`, "good"},
		{` { "value" : 23.5 , "quality" : "bad" } `, `23.5`, "bad"},
		{`{"quality":"uncertain","value":1}`, `1`, "uncertain"},
		{`{"value":1,"quality":null,"unit":null,"timestamp":null}`, `1`, "good"},
		{`{"value":1,"quality":"g\u006fod","other":[1,{"value":2}],"Value":3}`, `1`, "good"},
		{`{"val\u0075e":7}`, `7`, "good"},
		// F12: digits stay.
		{`{"value":9007199254740993}`, `9007199254740993`, "good"},
		{`{"value":17169973925117969}`, `17169973925117969`, "good"},
		{`{"value":18446744073709551615}`, `18446744073709551615`, "good"},
		{`{"value":0.1}`, `0.1`, "good"},
		{`{"value":1.0}`, `1.0`, "good"},
		{`{"value":"00123"}`, `"00123"`, "good"},
		{`{"value":-0.0}`, `-0.0`, "good"},
		{`1e3`, `1e3`, "good"},
		{`1E-400`, `1E-400`, "good"},
		{`-0`, `-0`, "good"},
		{`123456789012345678901234567890.5`, `123456789012345678901234567890.5`, "good"},
		// F13: a defined type for each.
		{`{"state":"ON","power":12.3,"ts":null}`, `{"state":"ON","power":12.3,"ts":null}`, "good"},
		{`{"state" : "online"}`, `{"state":"online"}`, "good"},
		{`true`, `true`, "good"},
		{`false`, `false`, "good"},
		{`null`, `null`, "good"},
		{`"true"`, `"true"`, "good"},
		{`"12.5"`, `"12.5"`, "good"},
		{`[1, 2]`, `[1,2]`, "good"},
		{`{}`, `{}`, "good"},
		{"\t[ ]\r\n", `[]`, "good"},
		{`{"value":{"b": 1,"a": 2,"b": 3}}`, `{"b":1,"a":2,"b":3}`, "good"},
		{`{"value":[" a ", "\" b\\", 1.50 ]}`, `[" a ","\" b\\",1.50]`, "good"},
		{`{"a":1,"timestamp":"nonsense","quality":7,"timestamp":2}`, `{"a":1,"timestamp":"nonsense","quality":7,"timestamp":2}`, "good"},
		{`"A\u00d6\ud83d\ude00\/\b\f\n\r\t\"\\"`, "\"A\u00d6\U0001F600/\\b\\f\\n\\r\\t\\\"\\\\\"", "good"},
		{`"Öl °C"`, `"Öl °C"`, "good"},
		{`"` + long + `"`, `"` + long + `"`, "good"},
		{`{"value":1,"x":1e400}`, `1`, "good"},
		{strings.Repeat("[", 128) + strings.Repeat("]", 128), strings.Repeat("[", 128) + strings.Repeat("]", 128), "good"},
	} {
		b := newBox(t, nil)
		v, s := b.send(t, "a", c.payload)
		if v.Reason != uns.Stored {
			t.Errorf("%.80s: %v", c.payload, v)
			continue
		}
		if got := string(s.Value.AppendJSON(nil)); got != c.value || s.Quality.String() != c.quality {
			t.Errorf("%.80s: got %s %v, want %s %s", c.payload, got, s.Quality, c.value, c.quality)
		}
		if kept := b.store.samples[0]; !kept.Value.Equal(s.Value) || kept.Stamped {
			t.Errorf("%.80s: the store got %+v", c.payload, kept)
		}
	}
}

func TestPayloadRefused(t *testing.T) {
	for _, c := range []struct {
		payload string
		reason  uns.Reason
		detail  string
	}{
		{`ON`, uns.PayloadInvalid, `byte 0: expected a JSON value, found 'O'`},
		{`online`, uns.PayloadInvalid, `byte 0: expected a JSON value, found 'o'`},
		{`nan`, uns.PayloadInvalid, `byte 1: expected null, found 'a'`},
		{`NaN`, uns.PayloadInvalid, `byte 0: expected a JSON value, found 'N'`},
		{`Infinity`, uns.PayloadInvalid, `byte 0:`},
		{`{"value":NaN}`, uns.PayloadInvalid, `byte 9: expected a JSON value, found 'N'`},
		{`{"value":-Infinity}`, uns.PayloadInvalid, `byte 10: expected a digit, found 'I'`},
		{`{"temperature":nan,"humidity":41.2}`, uns.PayloadInvalid, `byte 16: expected null, found 'a'`},
		{`12,5`, uns.PayloadInvalid, `byte 2: expected the end of the payload, found ','`},
		{`01`, uns.PayloadInvalid, `byte 1: expected the end of the payload, found '1'`},
		{`1.`, uns.PayloadInvalid, `byte 2: expected a digit, found the end`},
		{`1e`, uns.PayloadInvalid, `byte 2: expected a digit, found the end`},
		{`1e+x`, uns.PayloadInvalid, `byte 3: expected a digit, found 'x'`},
		{`-`, uns.PayloadInvalid, `byte 1: expected a digit, found the end`},
		{`+1`, uns.PayloadInvalid, `byte 0:`},
		{`tru`, uns.PayloadInvalid, `byte 3: expected true, found the end`},
		{``, uns.PayloadInvalid, `byte 0: expected a JSON value, found an empty payload`},
		{"  ", uns.PayloadInvalid, `byte 2: expected a JSON value, found the end`},
		{`{`, uns.PayloadInvalid, `byte 1: expected a key in double quotes, found the end`},
		{`{"a"`, uns.PayloadInvalid, `byte 4: expected ':', found the end`},
		{`{"a":1,}`, uns.PayloadInvalid, `byte 7: expected a key in double quotes, found '}'`},
		{`{"a":1 "b"`, uns.PayloadInvalid, `byte 7: expected ',' or '}', found '"'`},
		{`[1,]`, uns.PayloadInvalid, `byte 3: expected a JSON value, found ']'`},
		{`[1}`, uns.PayloadInvalid, `byte 2: expected ',' or ']', found '}'`},
		{`{'a':1}`, uns.PayloadInvalid, `byte 1:`},
		{`{"value":"abc`, uns.PayloadInvalid, `byte 13: expected '"', found the end`},
		{"\"a\x01\"", uns.PayloadInvalid, `byte 2: control character 0x01`},
		{`"\x"`, uns.PayloadInvalid, `byte 2: expected one of`},
		{`"\u12g4"`, uns.PayloadInvalid, `byte 5: expected a hexadecimal digit, found 'g'`},
		{`"\ud800"`, uns.PayloadInvalid, `byte 7: lone high surrogate`},
		{`"\ud800\u0041"`, uns.PayloadInvalid, `byte 9: lone high surrogate`},
		{`"\udc00"`, uns.PayloadInvalid, `byte 4: lone low surrogate`},
		{"\"\xc3(\"", uns.PayloadInvalid, `byte 2: 0x28 is not UTF-8`},
		{"\"\xff\"", uns.PayloadInvalid, `byte 1: 0xFF is not UTF-8`},
		{"\"\xe2\x82", uns.PayloadInvalid, `byte 3: the text ends inside`},
		{"\xef\xbb\xbf1", uns.PayloadInvalid, `byte 0: expected a JSON value, found 0xEF`},
		{strings.Repeat("[", 129), uns.PayloadInvalid, `byte 128: nested deeper than 128 levels`},
		{`{"value":` + strings.Repeat("[", 128), uns.PayloadInvalid, `byte 136: nested deeper`},
		{`{"value":1,"value":2}`, uns.PayloadInvalid, `byte 11: key "value" appears twice`},
		{`{"value":1,"timestamp":1,"timestamp":2}`, uns.PayloadInvalid, `byte 25: key "timestamp" appears twice`},
		{`{"value":1,"quality":"GOOD"}`, uns.PayloadInvalid, `quality: "GOOD" (byte 21) is not one of good, uncertain, bad`},
		{`{"value":1,"quality":192}`, uns.PayloadInvalid, `quality: 192`},
		{`{"value":1,"unit":5}`, uns.PayloadInvalid, `unit: 5 (byte 18) is not text`},
		{`{"value":1,"unit":"a\u0000"}`, uns.PayloadInvalid, `unit: `},
		{`1e400`, uns.NumberOutOfRange, `value: 1e400 (byte 0)`},
		{`{"value":-1e400}`, uns.NumberOutOfRange, `value: -1e400 (byte 9)`},
		{`{"value":[1,1e400]}`, uns.NumberOutOfRange, `value: 1e400 (byte 12)`},
		{`{"a":1,"b":1e999}`, uns.NumberOutOfRange, `value: 1e999 (byte 11)`},
		{`{"x":1e400,"value":{"a":2e400}}`, uns.NumberOutOfRange, `value: 2e400 (byte 24)`},
		{strings.Repeat("9", 400), uns.NumberOutOfRange, `value: 999`},
		{`{"value":1e400,}`, uns.PayloadInvalid, `byte 15:`},
		{`{"value":1,"timestamp":true}`, uns.TimestampInvalid, `timestamp: true is neither`},
		{`{"value":1,"timestamp":{}}`, uns.TimestampInvalid, `timestamp: {} is neither`},
	} {
		b := newBox(t, nil)
		v, _ := b.send(t, "a", c.payload)
		if v.Reason != c.reason || !strings.HasPrefix(v.Detail, c.detail) {
			t.Errorf("%.60q: got %v, want %v: %s…", c.payload, v, c.reason, c.detail)
		}
		if n := len(b.store.samples) + len(b.store.rows); n != 0 {
			t.Errorf("%.60q: refused, yet the store got %d rows", c.payload, n)
		}
	}
}

// An object or text that a batch keeps must not change with the caller's buffer after Accept.
func TestPayloadIsCopied(t *testing.T) {
	b := newBox(t, nil)
	var live published
	b.SetLive(&live)
	payload := []byte(`["abc"]`)
	batch := &uns.Batch{Messages: []uns.Message{{Workspace: "main", Path: "a", Payload: payload}}}
	if err := b.Accept(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	for i := range payload {
		payload[i] = 'x'
	}
	b.Announce(batch)
	if got := live.list[0]; !strings.Contains(got, `{"value":["abc"],`) {
		t.Errorf("got %s", got)
	}
}

func TestRawTopics(t *testing.T) {
	b := newBox(t, nil)
	b.set(t, "text", `{"schema":{"type":"text"}}`)
	b.set(t, "bytes", `{"schema":{"type":"bytes"}}`)
	for _, c := range []struct {
		path, payload string
		enveloped     bool
		want          string
	}{
		{"text", `ON`, false, `"ON"`},
		{"text", `{"value":1}`, false, `"{\"value\":1}"`},
		{"text", `{"value":"ON"}`, true, `"ON"`},
		{"text", "a\xff", false, "payload_invalid: byte 1: the topic takes text, which must be UTF-8"},
		{"text", ``, false, "payload_invalid: byte 0: expected a JSON value, found an empty payload, which only clears when sent with retain"},
		{"text", `{"value":1}`, true, "type_mismatch: value: wanted text, found number 1"},
		{"bytes", "\x00\xff", false, `"AP8="`},
		{"bytes", `{"value":"AP8="}`, true, `"AP8="`},
		{"bytes", `{"value":"?"}`, true, "payload_invalid: value: not base64: illegal base64 data at input byte 0"},
		{"bytes", `{"value":1}`, true, "type_mismatch: value: wanted base64 text for a bytes topic, found number"},
	} {
		v, s := b.put(t, uns.Message{Workspace: "main", Path: c.path, Payload: []byte(c.payload), Enveloped: c.enveloped})
		got := v.String()
		if v.OK() {
			got = string(s.Value.AppendJSON(nil))
		}
		if got != c.want {
			t.Errorf("%s %q: got %s, want %s", c.path, c.payload, got, c.want)
		}
	}
}

func TestClearing(t *testing.T) {
	b := newBox(t, nil)
	v, _ := b.put(t, uns.Message{Workspace: "main", Path: "a/b", Retain: true})
	if v.Reason != uns.Cleared || !v.OK() {
		t.Errorf("got %v, want cleared", v)
	}
	if len(b.store.samples) != 0 || b.catalog.Lookup("main", "a/b") != nil {
		t.Error("clearing stored a value or made a topic")
	}
	if v, _ := b.put(t, uns.Message{Workspace: "main", Path: "a//b", Retain: true}); v.Reason != uns.TopicInvalid {
		t.Errorf("got %v, want topic_invalid", v)
	}
}

// FuzzEnvelope holds the scanner against encoding/json, and every offset against the rule of contract 5.
func FuzzEnvelope(f *testing.F) {
	for _, s := range []string{
		`{"value":23.5,"timestamp":1790000000250,"quality":"good","unit":"bar"}`, `[1,{"a":[]},"\ud83d\ude00"]`, `-0.5e+10`,
		`{"value":NaN}`, `nan`, `1e400`, "\"\xe2\x82\xac\"", `"\ud800\udc0"`, `{"value":1,"value":2}`, `01`, "\"\xed\xa0\x80\"", ` `, ``,
		`{"a":1,}`, `[[[[`, `"\u0000"`, "{\"\\u0076alue\" : \t{ \"x\" : 1 } }", `"abc`, `tru`, `-`, `{"value":1,"timestamp":"2026-09-21T14:13:20Z"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		v, value, offset := uns.Read(payload)
		syntax := v.Reason == uns.PayloadInvalid && offset >= 0
		if json.Valid(payload) {
			if syntax && !strings.Contains(v.Detail, "surrogate") && !strings.Contains(v.Detail, "UTF-8") && !strings.Contains(v.Detail, "nested") {
				t.Fatalf("%q is JSON, refused: %v", payload, v)
			}
		} else if !syntax {
			t.Fatalf("%q is not JSON, got %v", payload, v)
		}
		if syntax {
			if offset > len(payload) {
				t.Fatalf("%q: offset %d behind the end", payload, offset)
			}
			if !strings.Contains(v.Detail, "nested") && !completes(payload[:offset]) {
				t.Fatalf("%q: byte %d named, but what stands before is no start of JSON: %v", payload, offset, v)
			}
			return
		}
		if v.Reason != uns.Stored {
			return
		}
		text := value.AppendJSON(nil)
		if !json.Valid(text) || !utf8.Valid(text) {
			t.Fatalf("%q: stored as %q", payload, text)
		}
		if value.Kind == historian.JSON {
			var compact bytes.Buffer
			if err := json.Compact(&compact, text); err != nil || !bytes.Equal(compact.Bytes(), text) {
				t.Fatalf("%q: stored as %q, which is not compact", payload, text)
			}
		}
	})
}

// completes tells whether some text can follow prefix to make it JSON: it tries the few that matter.
func completes(prefix []byte) bool {
	open := closers(prefix)
	for _, middle := range []string{
		"", "0", "null", `"`, `":0`, `"":0`, `:0`, "rue", "ue", "e", "alse", "lse", "se", "ull", "ll", "l",
		`n"`, `u0000"`, `0000"`, `000"`, `00"`, `0"`, `n":0`, `u0000":0`, `0000":0`, `000":0`, `00":0`, `0":0`,
		`00\udc00"`, `0\udc00"`, `00\udc00":0`, `0\udc00":0`, `\udc00"`, `udc00"`, `dc00"`, `c00"`, `\udc00":0`, `udc00":0`, `dc00":0`, `c00":0`, `800\udc00"`, `800\udc00":0`,
		"\x80\"", "\x80\x80\"", "\x80\x80\x80\"", "\x80\":0", "\x80\x80\":0", "\x80\x80\x80\":0",
		"\xa0\x80\"", "\x90\x80\x80\"", "\xa0\x80\":0", "\x90\x80\x80\":0",
	} {
		whole := append(append(bytes.Clone(prefix), middle...), open...)
		if json.Valid(whole) && utf8.Valid(whole) {
			return true
		}
	}
	return false
}

// closers are the brackets that prefix leaves open.
func closers(prefix []byte) []byte {
	var open []byte
	inside := false
	for i := 0; i < len(prefix); i++ {
		switch c := prefix[i]; {
		case inside && c == '\\':
			i++
		case c == '"':
			inside = !inside
		case inside:
		case c == '{':
			open = append([]byte{'}'}, open...)
		case c == '[':
			open = append([]byte{']'}, open...)
		case (c == '}' || c == ']') && len(open) > 0:
			open = open[1:]
		}
	}
	return open
}
