package historian_test

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"millrace/historian"
)

func TestParseNumber(t *testing.T) {
	decimal := func(mant int64, exp uint8) historian.Value {
		return historian.Value{Kind: historian.Decimal, Mant: mant, Exp: exp}
	}
	kept := func(s string) historian.Value {
		return historian.Value{Kind: historian.Number, Raw: []byte(s)}
	}
	for _, c := range []struct {
		token string
		want  historian.Value
	}{
		{"0", decimal(0, 0)},
		{"0.0", decimal(0, 1)},
		{"0.1", decimal(1, 1)},
		{"1", decimal(1, 0)},
		{"1.0", decimal(10, 1)},
		{"1.00", decimal(100, 2)},
		{"-5", decimal(-5, 0)},
		{"-0.05", decimal(-5, 2)},
		{"9007199254740993", decimal(9007199254740993, 0)},
		{"9223372036854775807", decimal(math.MaxInt64, 0)},
		{"-9223372036854775808", decimal(math.MinInt64, 0)},
		{"9.223372036854775807", decimal(math.MaxInt64, 18)},
		{"0.000000000000000001", decimal(1, 18)},
		{"-0", kept("-0")},
		{"-0.0", kept("-0.0")},
		{"9223372036854775808", kept("9223372036854775808")},
		{"-9223372036854775809", kept("-9223372036854775809")},
		{"18446744073709551615", kept("18446744073709551615")},
		{"18446744073709551616", kept("18446744073709551616")},
		{"184467440737095516150", kept("184467440737095516150")},
		{"0.0000000000000000001", kept("0.0000000000000000001")},
		{"1e5", kept("1e5")},
		{"1E+5", kept("1E+5")},
		{"1.5e-3", kept("1.5e-3")},
		{"0e999", kept("0e999")},
		{"1e308", kept("1e308")},
		{"1e-400", kept("1e-400")},
		{"123456789012345678901234567890", kept("123456789012345678901234567890")},
		{"0.123456789012345678901234567890", kept("0.123456789012345678901234567890")},
	} {
		got, ok := historian.ParseNumber([]byte(c.token))
		if !ok {
			t.Errorf("%s: refused", c.token)
			continue
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s: %s", c.token, d)
		}
		if back := string(got.AppendJSON(nil)); back != c.token {
			t.Errorf("%s comes back as %s", c.token, back)
		}
	}
	for _, token := range []string{
		"", "-", "+1", "00", "01", "-01", ".5", "1.", "-.5", "1.e5", "1e", "1e+", "1e-", "1e5.0", "1ee5", "0x10", "1_000",
		"NaN", "Infinity", "-Infinity", "inf", " 1", "1 ", "1,0", "1a", "--1", "1-", "1/", "1:", "1.5:", "1e5/",
		"1e400", "-1e400", "1" + strings.Repeat("0", 400), "9" + strings.Repeat("9", 308), "1e99999999999999999999",
	} {
		if v, ok := historian.ParseNumber([]byte(token)); ok {
			t.Errorf("%q: taken as %+v", token, v)
		}
	}
}

func TestParseNumberAllocatesNothing(t *testing.T) {
	tokens := [][]byte{[]byte("23.4"), []byte("-9223372036854775808"), []byte("0.000000000000000001")}
	if n := testing.AllocsPerRun(100, func() {
		for _, token := range tokens {
			if _, ok := historian.ParseNumber(token); !ok {
				t.Fatalf("%s: refused", token)
			}
		}
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

func FuzzNumber(f *testing.F) {
	for _, s := range []string{
		"0", "-0", "1.0", "-12.50", "1e400", "1e-400", "18446744073709551615", "9223372036854775808", "-9223372036854775808",
		"0.0000000000000000001", "1E+2", "01", "1.", "-", "123456789012345678901234567890.5", "9.999e307", " 1",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		v, ok := historian.ParseNumber(b)
		// encoding/json takes white space around a token, the historian does not.
		strict := json.Valid(b) && len(b) > 0 && (b[0] == '-' || b[0]-'0' <= 9) && b[len(b)-1] > ' '
		nearest, err := strconv.ParseFloat(string(b), 64)
		if want := strict && !math.IsInf(nearest, 0); ok != want {
			t.Fatalf("%q: ok %v, want %v (%v)", b, ok, want, err)
		}
		if !ok {
			return
		}
		if back := v.AppendJSON(nil); string(back) != string(b) {
			t.Fatalf("%q comes back as %q", b, back)
		}
		if got, ok := v.Float(); !ok || got != nearest {
			t.Fatalf("%q: float %v %v, want %v", b, got, ok, nearest)
		}
		again, _ := historian.ParseNumber(v.AppendJSON(nil))
		if !v.Equal(again) || !again.Equal(v.Clone()) {
			t.Fatalf("%q is not equal to itself", b)
		}
	})
}

func TestAppendJSON(t *testing.T) {
	for _, c := range []struct {
		name string
		v    historian.Value
		want string
	}{
		{"null", historian.Value{}, `null`},
		{"true", historian.Value{Kind: historian.Bool, Mant: 1}, `true`},
		{"false", historian.Value{Kind: historian.Bool}, `false`},
		{"decimal", historian.Value{Kind: historian.Decimal, Mant: -5, Exp: 3}, `-0.005`},
		{"decimal beyond parsing", historian.Value{Kind: historian.Decimal, Mant: 12, Exp: 25}, `0.0000000000000000000000012`},
		{"smallest", historian.Value{Kind: historian.Decimal, Mant: math.MinInt64, Exp: 19}, `-0.9223372036854775808`},
		{"number", historian.Value{Kind: historian.Number, Raw: []byte("1e5")}, `1e5`},
		{"text", historian.Value{Kind: historian.Text, Raw: []byte("<Ölstand> & \u2028 </script>")}, "\"<Ölstand> & \u2028 </script>\""},
		{"escapes", historian.Value{Kind: historian.Text, Raw: []byte("a\"b\\c/\b\t\n\f\r\x00\x1f\x7f")}, `"a\"b\\c/\b\t\n\f\r\u0000\u001f` + "\x7f\""},
		{"not utf-8", historian.Value{Kind: historian.Text, Raw: []byte("a\xffb\xc3")}, "\"a\ufffdb\ufffd\""},
		{"replacement sent", historian.Value{Kind: historian.Text, Raw: []byte("\ufffd")}, "\"\ufffd\""},
		{"empty text", historian.Value{Kind: historian.Text}, `""`},
		{"octets", historian.Value{Kind: historian.Bytes, Raw: []byte{0, 255, 62}}, `"AP8+"`},
		{"object", historian.Value{Kind: historian.JSON, Raw: []byte(`{"b":1,"a":[<]}`)}, `{"b":1,"a":[<]}`},
	} {
		if got := string(c.v.AppendJSON([]byte("x"))); got != "x"+c.want {
			t.Errorf("%s: %s, want x%s", c.name, got, c.want)
		}
	}
}

// Every text must survive a foreign JSON decoder.
func TestTextIsJSON(t *testing.T) {
	for r := rune(0); r <= 0x2fff; r++ {
		want := "x" + string(r) + "y"
		b := historian.Value{Kind: historian.Text, Raw: []byte(want)}.AppendJSON(nil)
		var got string
		if err := json.Unmarshal(b, &got); err != nil || got != want {
			t.Fatalf("%U: %s gives %q, %v", r, b, got, err)
		}
	}
}

func TestEqual(t *testing.T) {
	raw := func(k historian.Kind, s string) historian.Value { return historian.Value{Kind: k, Raw: []byte(s)} }
	different := []historian.Value{
		{},
		{Kind: historian.Bool}, {Kind: historian.Bool, Mant: 1},
		{Kind: historian.Decimal, Mant: 1}, {Kind: historian.Decimal, Mant: 10, Exp: 1}, {Kind: historian.Decimal},
		{Kind: historian.Decimal, Mant: 1, Exp: 1},
		raw(historian.Number, "1e0"), raw(historian.Number, "-0"),
		raw(historian.Text, ""), raw(historian.Text, "1"), raw(historian.Text, "a"), raw(historian.Text, "A"),
		raw(historian.Bytes, ""), raw(historian.Bytes, "a"),
		raw(historian.JSON, "[1]"), raw(historian.JSON, "[1.0]"), raw(historian.JSON, `{"a":1}`),
	}
	for i, a := range different {
		for j, b := range different {
			if got := a.Equal(b.Clone()); got != (i == j) {
				t.Errorf("%+v equal %+v: %v", a, b, got)
			}
		}
	}
	one := historian.Value{Kind: historian.Decimal, Mant: 1}
	if sent := raw(historian.Number, "1"); !one.Equal(sent) || !sent.Equal(one) {
		t.Error("the same digits are unequal because they are held differently")
	}
}

func TestFloat(t *testing.T) {
	for _, c := range []struct {
		v    historian.Value
		want float64
		ok   bool
	}{
		{historian.Value{Kind: historian.Bool, Mant: 1}, 1, true},
		{historian.Value{Kind: historian.Bool}, 0, true},
		{historian.Value{Kind: historian.Decimal, Mant: 3, Exp: 1}, 0.3, true},
		{historian.Value{Kind: historian.Decimal, Mant: 9007199254740993}, 9007199254740992, true},
		{historian.Value{Kind: historian.Decimal, Mant: 9007199254740995, Exp: 3}, 9007199254740.995, true},
		{historian.Value{Kind: historian.Decimal, Mant: 1, Exp: 255}, 1e-255, true},
		{historian.Value{Kind: historian.Number, Raw: []byte("1e5")}, 1e5, true},
		{historian.Value{Kind: historian.Number, Raw: []byte("1e-400")}, 0, true},
		{historian.Value{Kind: historian.Number, Raw: []byte("1e400")}, 0, false},
		{historian.Value{Kind: historian.Text, Raw: []byte("1")}, 0, false},
		{historian.Value{Kind: historian.JSON, Raw: []byte("[1]")}, 0, false},
		{historian.Value{Kind: historian.Bytes, Raw: []byte("1")}, 0, false},
		{historian.Value{}, 0, false},
	} {
		if got, ok := c.v.Float(); ok != c.ok || ok && got != c.want {
			t.Errorf("%+v: %v %v, want %v %v", c.v, got, ok, c.want, c.ok)
		}
	}
}

func TestCloneOwnsRaw(t *testing.T) {
	raw := []byte("abc")
	v := historian.Value{Kind: historian.Text, Raw: raw}.Clone()
	raw[0] = 'x'
	if string(v.Raw) != "abc" {
		t.Fatalf("the clone changed to %s", v.Raw)
	}
}

func BenchmarkParseNumber(b *testing.B) {
	for _, token := range []string{"23.45", "123456789012", "1e5"} {
		in := []byte(token)
		b.Run(token, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, ok := historian.ParseNumber(in); !ok {
					b.Fatal("refused")
				}
			}
		})
	}
}
