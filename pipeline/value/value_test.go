package value_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"millrace/pipeline/value"
)

func parse(t *testing.T, text string) value.Value {
	t.Helper()
	v, err := value.Parse([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

func TestDigitsAndKeyOrderStay(t *testing.T) {
	for _, text := range []string{
		"0", "-0", "1", "1.0", "-1.50", "0.1", "0.0000001", "9007199254740993", "18446744073709551615", "-9223372036854775808", "9223372036854775807",
		"1e3", "1E+3", "1.5e-7", "123456789012345678901234567890.000000000000001", "0.00000000000000000000000000000000001", "1e308", "1e-400",
		`""`, `"a"`, `"\"\\\b\f\n\r\t\u0001"`, `"grüß 😀"`, "true", "false", "null", "[]", "{}", `[1,[2,[]],{"b":1,"a":{"z":null,"y":2.50}}]`,
	} {
		if got := string(parse(t, text).AppendJSON(nil)); got != text {
			t.Errorf("%s came back as %s", text, got)
		}
		if got := string(parse(t, " \t\r\n"+text+" ").AppendJSON(nil)); got != text {
			t.Errorf("%s with space around came back as %s", text, got)
		}
	}
	for text, want := range map[string]string{
		`"\u00e9\/\ud83d\ude00"`:     `"é/😀"`,
		`"\ud800x"`:                  `"�x"`,
		`{"a":1,"b":2,"a":3}`:        `{"a":3,"b":2}`,
		`[ 1 , { "a" : [ ] } , "x"]`: `[1,{"a":[]},"x"]`,
	} {
		if got := string(parse(t, text).AppendJSON(nil)); got != want {
			t.Errorf("%s came back as %s, want %s", text, got, want)
		}
	}
}

func TestFaultsNameTheByte(t *testing.T) {
	for text, offset := range map[string]int{
		"": 0, "  ": 2, "nul": 0, "1 2": 2, "[1 2]": 3, "[1,]": 3, `{"a" 1}`: 5, `{a:1}`: 1, `{"a":1,}`: 7, `"a`: 2, "\"a\x01\"": 2, `"\x"`: 1, `"\u12"`: 1, "\"\xff\"": 1,
		"01": 1, "1.": 1, "-": 0, "+1": 0, "1e400": 0, "NaN": 0, "[": 1, strings.Repeat("[", 129): 128,
	} {
		_, err := value.Parse([]byte(text))
		at, ok := err.(*value.SyntaxError)
		if !ok || at.Offset != offset {
			t.Errorf("%q: %v, want byte %d", text, err, offset)
		}
	}
	if v := parse(t, strings.Repeat("[", 128)+strings.Repeat("]", 128)); v.Len() != 1 && v.Kind() != value.ListKind {
		t.Error("128 deep")
	}
}

func TestNumbers(t *testing.T) {
	for _, tt := range []struct {
		text  string
		whole bool
		i     int64
		f     float64
		fits  bool
	}{
		{"1", true, 1, 1, true}, {"1.0", true, 1, 1, true}, {"1.5", false, 0, 1.5, true}, {"0.1", false, 0, 0.1, true},
		{"9007199254740992", true, 1 << 53, 1 << 53, true}, {"9007199254740993", true, 1<<53 + 1, 1 << 53, false},
		{"18446744073709551615", false, 0, 1 << 64, false}, {"1e3", true, 1000, 1000, true}, {"1e30", false, 0, 1e30, true},
		{"0.1234567890123456789", false, 0, 0.1234567890123456789, false}, {"-0", true, 0, 0, true}, {"5e-324", false, 0, 5e-324, true},
		{"-9223372036854775808", true, math.MinInt64, math.MinInt64, false},
	} {
		v := parse(t, tt.text)
		i, whole := v.Int()
		if f, ok := v.Float(); !ok || f != tt.f || whole != tt.whole || i != tt.i || v.FitsFloat() != tt.fits {
			t.Errorf("%s: %d %v, %v, fits %v", tt.text, i, whole, f, v.FitsFloat())
		}
	}
	for f, want := range map[float64]string{0: "0", 1: "1", -1.5: "-1.5", 0.1: "0.1", 1e21: "1e+21", 1e20: "100000000000000000000", 1e-6: "0.000001", 1e-7: "1e-7", 123456789.25: "123456789.25", 1.5e300: "1.5e+300"} {
		if got := value.Float(f).Digits(); got != want {
			t.Errorf("%v is %s, want %s", f, got, want)
		}
	}
	if value.Float(math.NaN()).Kind() != value.NullKind || value.Float(math.Inf(1)).Kind() != value.NullKind {
		t.Error("what is not finite is null")
	}
	if got := value.Decimal(-5, 3).Digits(); got != "-0.005" {
		t.Error(got)
	}
	for _, digits := range []string{"", "1.", "x", "1 ", "1e400", "0x1"} {
		if _, ok := value.Number(digits); ok {
			t.Errorf("%q is no number", digits)
		}
	}
}

func TestEqual(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want bool
	}{
		{"1", "1.0", true}, {"1e2", "100", true}, {"9007199254740993", "9007199254740992", false}, {"0", "-0", true},
		{`{"a":1,"b":[2]}`, `{"b":[2.0],"a":1}`, true}, {`{"a":1}`, `{"b":1}`, false}, {`{"a":1}`, `{"a":1,"b":null}`, false},
		{"[1,2]", "[2,1]", false}, {"[1]", "[1,1]", false}, {`"1"`, "1", false}, {"null", "false", false}, {"true", "true", true},
		{"1e-4000", "1e-4001", false},
	} {
		a, b := parse(t, tt.a), parse(t, tt.b)
		if value.Equal(a, b) != tt.want || value.Equal(b, a) != tt.want {
			t.Errorf("%s and %s: want %v", tt.a, tt.b, tt.want)
		}
	}
	wide := func(n int, from int) value.Value {
		var f []value.Field
		for i := range n {
			f = append(f, value.Field{Name: string(rune('a' + (i+from)%n)), Value: value.Int(int64((i + from) % n))})
		}
		return value.Object(f...)
	}
	if !value.Equal(wide(25, 0), wide(25, 3)) || value.Equal(wide(25, 0), wide(24, 0)) {
		t.Error("wide objects")
	}
}

func TestChangesLeaveTheOldOne(t *testing.T) {
	v := parse(t, `{"a":1,"b":{"c":2}}`)
	for _, tt := range []struct {
		got  value.Value
		want string
	}{
		{v.With("a", value.Text("x")), `{"a":"x","b":{"c":2}}`},
		{v.With("z", value.Null()), `{"a":1,"b":{"c":2},"z":null}`},
		{v.With("z", value.Value{}), `{"a":1,"b":{"c":2}}`},
		{v.Without("a"), `{"b":{"c":2}}`}, {v.Without("q"), `{"a":1,"b":{"c":2}}`},
		{value.Int(1).With("a", value.Bool(true)), `{"a":true}`},
		{v.Path("b", "c"), "2"}, {parse(t, `[[1,2]]`).Path("0", "1"), "2"}, {v.Path("b", "x", "y"), "null"}, {value.List(value.Value{}), "[null]"},
	} {
		if got := string(tt.got.AppendJSON(nil)); got != tt.want {
			t.Errorf("%s, want %s", got, tt.want)
		}
	}
	if got := string(v.AppendJSON(nil)); got != `{"a":1,"b":{"c":2}}` {
		t.Errorf("the old one is %s", got)
	}
}

func TestTruthy(t *testing.T) {
	for text, want := range map[string]bool{"0": false, "0.0": false, "-0": false, `""`: false, "null": false, "false": false, "1": true, "0.1": true, `"0"`: true, "[]": true, "{}": true, "true": true} {
		if parse(t, text).Truthy() != want {
			t.Errorf("%s: want %v", text, want)
		}
	}
	if (value.Value{}).Truthy() {
		t.Error("missing")
	}
}

// Whatever parses is valid JSON to the standard library, and comes back as the same value; a second time as the same octets.
func FuzzParse(f *testing.F) {
	for _, s := range []string{`{"a":[1,2.50,"x\u00e9",null,true]}`, "1e5", "-0.0", `"\ud83d\ude00"`, "[[[]]]", `{"a":1,"a":2}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := value.Parse(b)
		if err != nil {
			return
		}
		if !json.Valid(b) {
			t.Fatalf("%q is no JSON", b)
		}
		out := v.AppendJSON(nil)
		w, err := value.Parse(out)
		if err != nil || !value.Equal(v, w) || string(w.AppendJSON(nil)) != string(out) {
			t.Fatalf("%q became %q: %v", b, out, err)
		}
		if f, ok := v.Float(); ok && v.Kind() == value.NumberKind {
			var want float64
			if err := json.Unmarshal(b, &want); err == nil && want != f {
				t.Fatalf("%q is %v, want %v", b, f, want)
			}
		}
	})
}

func BenchmarkParse(b *testing.B) {
	text := []byte(`{"value":42.75,"unit":"°C","tags":["a","b"],"n":9007199254740993}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := value.Parse(text); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkScalar(b *testing.B) {
	text, room := []byte("42.750"), make([]byte, 0, 32)
	b.ReportAllocs()
	for b.Loop() {
		v, err := value.Parse(text)
		if err != nil {
			b.Fatal(err)
		}
		room = v.AppendJSON(room[:0])
	}
}
