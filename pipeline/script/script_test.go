package script_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"millrace/pipeline/script"
	"millrace/pipeline/value"
)

func parse(t testing.TB, text string) value.Value {
	t.Helper()
	v, err := value.Parse([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

func scope(t testing.TB) *script.Scope {
	return &script.Scope{
		Trigger: parse(t, `{"topic":"line1/temp","value":21.50,"timestamp":"2026-12-01T10:00:00Z","quality":"good"}`),
		Input:   []value.Value{parse(t, `{"a":{"b":[1,2,3]},"big":9007199254740993,"fine":0.1234567890123456789,"one":1.0,"s":"x","n":null}`), parse(t, `2`)},
		Nodes: func(name string) value.Value {
			if name == "First" {
				return value.Int(7)
			}
			return value.Value{}
		},
		Execution: parse(t, `{"id":"7-v1"}`),
	}
}

func text(v value.Value) string {
	if v.IsMissing() {
		return "undefined"
	}
	return string(v.AppendJSON(nil))
}

func TestExpressions(t *testing.T) {
	e := script.NewEngine(script.Options{})
	defer e.Close()
	for code, want := range map[string]string{
		"$trigger.value":                          "21.50",
		"{{ $trigger.value }}":                    "21.50",
		"$trigger.value > 20 && $trigger.quality": `"good"`,
		"$json.a.b[1] + $input[1]":                "4",
		"$json.a.b.map(x => x * 2)":               "[2,4,6]",
		"$json.big":                               "9007199254740993",
		"$json.big + 1n":                          "9007199254740994",
		"$json.fine":                              "0.1234567890123456789",
		"String($json.fine)":                      `"0.1234567890123456789"`,
		"$json.fine * 2 > 0.2":                    "true",
		"$json.one + 1":                           "2",
		"$json.n ?? 'none'":                       `"none"`,
		"$json.missing":                           "undefined",
		"$json.missing?.deep":                     "undefined",
		"$node['First'] + 1":                      "8",
		"$node.Second":                            "undefined",
		"$execution.id":                           `"7-v1"`,
		"$json":                                   `{"a":{"b":[1,2,3]},"big":9007199254740993,"fine":0.1234567890123456789,"one":1.0,"s":"x","n":null}`,
		"{...$json.a, c: [undefined, null], d: undefined}": `{"b":[1,2,3],"c":[null,null]}`,
		"new Date(0)":                  `"1970-01-01T00:00:00.000Z"`,
		"NaN":                          "null",
		"Array.isArray($input)":        "true",
		"JSON.stringify($json.a)":      `"{\"b\":[1,2,3]}"`,
		"Object.keys($trigger).length": "4",
		"`${$json.s}-${1+1}`":          `"x-2"`,
	} {
		x, err := e.Expression(code)
		if err != nil {
			t.Errorf("%s: %v", code, err)
			continue
		}
		if v, err := x.Eval(context.Background(), scope(t)); err != nil || text(v) != want {
			t.Errorf("%s: %s, %v, want %s", code, text(v), err, want)
		}
	}
}

func TestTemplates(t *testing.T) {
	e := script.NewEngine(script.Options{})
	defer e.Close()
	for code, want := range map[string]string{
		"plain": `"plain"`, "": `""`, "{{ $trigger.value }}": "21.50", "t={{ $trigger.value }}!": `"t=21.50!"`, "{{1}}{{2}}": `"12"`,
		"{{ {a:{b:1}} }}": `{"a":{"b":1}}`, "{{ {a:{b:1}}}}": `{"a":{"b":1}}`, `{{ "}}" }}`: `"}}"`, "a{{ $json.missing }}b": `"ab"`, "{{ $json.a }} ": `"{\"b\":[1,2,3]} "`,
	} {
		x, err := e.Template(code)
		if err != nil {
			t.Errorf("%s: %v", code, err)
			continue
		}
		if v, err := x.Eval(context.Background(), scope(t)); err != nil || text(v) != want {
			t.Errorf("%s: %s, %v, want %s", code, text(v), err, want)
		}
	}
}

func TestFunctions(t *testing.T) {
	e := script.NewEngine(script.Options{})
	defer e.Close()
	s := scope(t)
	before := text(s.Input[0])
	var said []string
	s.Console = func(level, text string) { said = append(said, level+" "+text) }
	f, err := e.Function("console.log('hi', {a:1}, $trigger.value)\n$json.a.b.push(4); $json.z = 1; delete $json.s\nreturn $json")
	if err != nil {
		t.Fatal(err)
	}
	v, err := f.Call(context.Background(), s)
	if want := `{"a":{"b":[1,2,3,4]},"big":9007199254740993,"fine":0.1234567890123456789,"one":1,"n":null,"z":1}`; err != nil || text(v) != want {
		t.Errorf("%s, %v", text(v), err)
	}
	if text(s.Input[0]) != before {
		t.Errorf("the input was changed: %s", text(s.Input[0]))
	}
	if len(said) != 1 || said[0] != `log hi {"a":1} 21.5` {
		t.Errorf("console: %q", said)
	}
}

func TestPlaces(t *testing.T) {
	e := script.NewEngine(script.Options{Timeout: 50 * time.Millisecond})
	defer e.Close()
	for code, want := range map[string]script.Error{
		"return 1 +\n  $json.q.x":                     {Kind: script.Runtime, Line: 2, Column: 11},
		"let a = 1\nthrow new Error('no')":            {Kind: script.Runtime, Message: "no", Line: 2, Column: 7},
		"\n\nwhile (true) {}":                         {Kind: script.Timeout, Message: "it ran for longer than 50ms"},
		"function f() { return f() + 1 }\nreturn f()": {Kind: script.Depth, Line: 1},
		"return function() {}":                        {Kind: script.Runtime, Message: "a function cannot be handed on"},
		"const a = {}; a.a = a; return a":             {Kind: script.Runtime},
		"Array.prototype.push = 1":                    {Kind: script.Runtime, Line: 1},
		"x = 1":                                       {Kind: script.Runtime, Line: 1},
	} {
		f, err := e.Function(code)
		if err != nil {
			t.Errorf("%s: %v", code, err)
			continue
		}
		_, err = f.Call(context.Background(), scope(t))
		var got *script.Error
		if !errors.As(err, &got) || got.Kind != want.Kind || want.Message != "" && got.Message != want.Message || want.Line > 0 && got.Line != want.Line || want.Column > 0 && got.Column != want.Column {
			t.Errorf("%s: %#v, want %#v", code, err, want)
		}
	}
	for code, want := range map[string]script.Fault{"1 +": {Line: 1}, "1; 2": {Line: 1}, "a\n b c": {Line: 2}} {
		_, err := e.Expression(code)
		var got *script.Fault
		if !errors.As(err, &got) || got.Line != want.Line && want.Line > 1 || want.Column > 0 && got.Column != want.Column {
			t.Errorf("%s: %#v, want %#v", code, err, want)
		}
	}
	if _, err := e.Function("}) ; (function() {"); err == nil {
		t.Error("code leaves its function")
	}
	if _, err := e.Template("a {{ 1"); err == nil {
		t.Error("{{ without }}")
	}
	ctx, cancel := context.WithCancel(context.Background())
	f, err := e.Function("for (let i = 0; ; i++) {}")
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(time.Millisecond, cancel)
	var got *script.Error
	if _, err := f.Call(ctx, scope(t)); !errors.As(err, &got) || got.Kind != script.Cancelled && got.Kind != script.Timeout {
		t.Errorf("%v", err)
	}
}

func BenchmarkExpression(b *testing.B) {
	e := script.NewEngine(script.Options{})
	defer e.Close()
	x, err := e.Expression("$trigger.value > 40 && $trigger.quality == 'good'")
	if err != nil {
		b.Fatal(err)
	}
	s := scope(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := x.Eval(context.Background(), s); err != nil {
			b.Fatal(err)
		}
	}
}
