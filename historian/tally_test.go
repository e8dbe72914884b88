package historian_test

import (
	"bytes"
	"encoding/hex"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"millrace/historian"
)

var sameTold = cmp.Options{cmpopts.EquateEmpty(), cmp.Comparer(func(a, b *big.Rat) bool { return a.Cmp(b) == 0 })}

// measured makes n samples in order of (time, arrival) whose values try a sum: everything a number can be, beside the
// kinds that are none.
func measured(r *rand.Rand, n int) []historian.Sample {
	out := make([]historian.Sample, n)
	at := epoch
	exps := 1 + r.IntN(20)
	bits := r.IntN(64)
	numbers := []string{"-0", "1e3", "-2.5e-3", "18446744073709551615", "1e308", "-1e308", "1e308", "5e-324", "0.1234567890123456789012", "1e-400", "3", "not one"}
	for i := range out {
		s := &out[i]
		s.Series, s.Scale = 7, 6
		at += r.Int64N(4) * []int64{1e6, 1e6, 1, 1e9}[r.IntN(4)]
		s.Time, s.Received = at, at
		if r.IntN(5) == 0 {
			s.Quality = historian.Quality(r.IntN(3))
		}
		switch k := r.IntN(12); {
		case k < 8:
			s.Value = historian.Value{Kind: historian.Decimal, Exp: uint8(r.IntN(exps)), Mant: int64(r.Uint64()) >> (63 - bits)}
			if r.IntN(4) == 0 {
				s.Value.Mant = s.Value.Mant / 10 * 10 // equal numbers of several forms
			}
		case k == 8:
			s.Value = historian.Value{Kind: historian.Bool, Mant: int64(r.IntN(2))}
		case k == 9:
			s.Value = historian.Value{Kind: historian.Number, Raw: []byte(numbers[r.IntN(len(numbers))])}
		case k == 10:
			s.Value = historian.Value{Kind: historian.Text, Raw: bytes.Repeat([]byte{'a'}, r.IntN(3)*600)}
		}
	}
	return out
}

// A tally must tell the same however the samples were cut into tallies, and what arithmetic with fractions tells.
func TestTallyDoesNotDependOnTheCuts(t *testing.T) {
	for seed := range seedCount(300) {
		r := rand.New(rand.NewPCG(seed, 11))
		samples := measured(r, r.IntN(60))
		var whole historian.Tally
		whole.Add(samples...)
		want := whole.Told()
		byHand(t, seed, samples, want)

		var parts []historian.Tally
		for rest := samples; len(rest) > 0; {
			n := 1 + r.IntN(len(rest))
			var part historian.Tally
			part.Add(rest[:n]...)
			if r.IntN(2) == 0 {
				part = stored(t, seed, &part)
			}
			parts = append(parts, part)
			rest = rest[n:]
		}
		// Merging is associative: neighbours are merged in any order.
		for len(parts) > 1 {
			i := r.IntN(len(parts) - 1)
			parts[i].Merge(&parts[i+1])
			parts = append(parts[:i+1], parts[i+2:]...)
		}
		if len(parts) == 0 {
			continue
		}
		got := parts[0].Told()
		if got.Elided { // what was too long to be stored is known not to be known
			got.FirstValue, got.LastValue, got.Elided = want.FirstValue, want.LastValue, false
		}
		if d := cmp.Diff(want, got, sameTold); d != "" {
			t.Fatalf("seed %d: merged (-whole +parts): %s", seed, d)
		}
		whole.Reset()
		if d := cmp.Diff((&historian.Tally{}).Told(), whole.Told(), sameTold); d != "" {
			t.Fatalf("seed %d: reset: %s", seed, d)
		}
	}
}

// stored is the tally after it was written and read.
func stored(t *testing.T, seed uint64, tally *historian.Tally) historian.Tally {
	t.Helper()
	b := tally.Append(nil)
	back, err := historian.ReadTally(b)
	if err != nil {
		t.Fatalf("seed %d: %x: %v", seed, b, err)
	}
	want, got := tally.Told(), back.Told()
	if got.Elided {
		if len(want.FirstValue.Raw) <= 1024 && len(want.LastValue.Raw) <= 1024 {
			t.Fatalf("seed %d: nothing is too long", seed)
		}
		want.FirstValue, want.LastValue, want.Elided = got.FirstValue, got.LastValue, true
	}
	if d := cmp.Diff(want, got, sameTold); d != "" {
		t.Fatalf("seed %d: stored (-want +got): %s", seed, d)
	}
	if again := back.Append(nil); !bytes.Equal(again, b) {
		t.Fatalf("seed %d: %x is written again as %x", seed, b, again)
	}
	return back
}

// byHand checks a tally against plain arithmetic over the samples.
func byHand(t *testing.T, seed uint64, samples []historian.Sample, got historian.Told) {
	t.Helper()
	sum, area := new(big.Rat), new(big.Rat)
	var numeric, good uint64
	var last *big.Rat
	var lastAt int64
	var lo, hi *big.Rat
	for _, s := range samples {
		if s.Quality == historian.Good {
			good++
		}
		n, ok := historian.NumberOf(s.Value)
		if s.Quality == historian.Bad || !ok {
			continue
		}
		numeric++
		exact := historian.RatOf(n)
		v := exact
		if n.Kind == historian.Number || n.Exp > 18 {
			f, _ := n.Float()
			v = new(big.Rat).SetFloat64(f)
		}
		sum.Add(sum, v)
		if last != nil {
			area.Add(area, new(big.Rat).Mul(last, new(big.Rat).SetInt64(s.Time-lastAt)))
		}
		last, lastAt = v, s.Time
		if lo == nil || exact.Cmp(lo) < 0 {
			lo = exact
		}
		if hi == nil || exact.Cmp(hi) > 0 {
			hi = exact
		}
	}
	if got.Count != uint64(len(samples)) || got.Good != good || got.Numeric != numeric {
		t.Fatalf("seed %d: count %d good %d numeric %d, want %d %d %d", seed, got.Count, got.Good, got.Numeric, len(samples), good, numeric)
	}
	if got.Sum.Cmp(sum) != 0 || got.Area.Cmp(area) != 0 {
		t.Fatalf("seed %d: sum %v area %v, want %v %v", seed, got.Sum, got.Area, sum, area)
	}
	if numeric == 0 {
		return
	}
	if historian.RatOf(got.Min).Cmp(lo) != 0 || historian.RatOf(got.Max).Cmp(hi) != 0 {
		t.Fatalf("seed %d: min %v max %v, want %v %v", seed, got.Min, got.Max, lo, hi)
	}
	mean, _ := new(big.Rat).Quo(sum, new(big.Rat).SetInt64(int64(numeric))).Float64()
	if got.Mean != mean && !(math.IsInf(mean, 0) && math.IsInf(got.Mean, 0)) {
		t.Fatalf("seed %d: mean %v, want %v", seed, got.Mean, mean)
	}
	nearest, _ := sum.Float64()
	shown, ok := got.Shown.Float()
	if math.IsInf(nearest, 0) == got.Finite || got.Finite && (!ok || shown != nearest) {
		t.Fatalf("seed %d: sum is shown as %v %s, want %v", seed, got.Shown, got.Shown.Raw, nearest)
	}
}

func TestSumsAreExact(t *testing.T) {
	for _, c := range []struct {
		values []string
		sum    string
		mean   float64
	}{
		{[]string{"0.1", "0.2"}, "0.3", 0.15},
		{[]string{"0.1", "0.1", "0.1"}, "0.3", 0.1},
		{[]string{"1.50", "2.5"}, "4", 2},
		{[]string{"9223372036854775807", "9223372036854775807"}, "18446744073709551614", 9223372036854775807},
		{[]string{"9223372036854775807", "0.000000000000000001"}, "9223372036854775807.000000000000000001", 9223372036854775807. / 2},
		{[]string{"-9223372036854775808", "-0.5"}, "-9223372036854775808.5", -4611686018427387904.25},
		{[]string{"1e3", "0.5"}, "1000.5", 500.25},
		{[]string{"1e16", "1", "-1e16"}, "1", 1. / 3},
		{[]string{"true", "false", "true", "true"}, "3", 0.75},
		{[]string{"-0.05", "-0.05"}, "-0.1", -0.05},
	} {
		var tally historian.Tally
		for i, token := range c.values {
			s := historian.Sample{Time: epoch + int64(i)}
			switch token {
			case "true", "false":
				s.Value.Kind = historian.Bool
				if token == "true" {
					s.Value.Mant = 1
				}
			default:
				s.Value, _ = historian.ParseNumber([]byte(token))
			}
			tally.Add(s)
		}
		told := tally.Told()
		if got := string(told.Shown.AppendJSON(nil)); got != c.sum || told.Mean != c.mean {
			t.Errorf("%v: sum %s mean %v, want %s %v", c.values, got, told.Mean, c.sum, c.mean)
		}
	}
}

func FuzzTally(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		var tally historian.Tally
		tally.Add(measured(r, r.IntN(20))...)
		f.Add(tally.Append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		tally, err := historian.ReadTally(b)
		if err != nil {
			return
		}
		// What can be read can be written, and then reads the same.
		again := tally.Append(nil)
		back, err := historian.ReadTally(again)
		if err != nil {
			t.Fatalf("%x is written as %x: %v", b, again, err)
		}
		want, got := tally.Told(), back.Told()
		if got.Elided && !want.Elided {
			return
		}
		if d := cmp.Diff(want, got, sameTold); d != "" {
			t.Fatal(d)
		}
		var both historian.Tally
		both.Merge(&tally)
		if tally.Before(&back) {
			both.Merge(&back)
		}
	})
}

// Octets of tallies as version 1 wrote them, and what they must mean for ever: as in golden, they get company, never
// a successor.
func TestGoldenTally(t *testing.T) {
	number := func(ms, mant int64, exp uint8) historian.Sample {
		return historian.Sample{Time: epoch + ms*1e6, Value: historian.Value{Kind: historian.Decimal, Mant: mant, Exp: exp}}
	}
	text := number(3, 0, 0)
	text.Value = historian.Value{Kind: historian.Text, Raw: []byte("on")}
	later := text
	later.Time += 3e6
	long := text
	long.Value.Raw = bytes.Repeat([]byte("a"), 1025)
	bad := number(4, 9, 0)
	bad.Quality = historian.Bad
	float := number(5, 0, 0)
	float.Value = historian.Value{Kind: historian.Number, Raw: []byte("2.5e1")}
	float.Quality = historian.Uncertain
	for _, g := range []struct {
		name, octets string
		samples      []historian.Sample
	}{
		{"none", "01000000", nil},
		{"one", "010701010980ee89ab0d000104d40304d40304d40304d4030101d403000000", []historian.Sample{number(0, 234, 1)}},
		{"pure", "010703030880cce2ae85010f0304d403050d050d04d40303000a01d403020d00020080e497d012018090e5b7cf0d00", []historian.Sample{number(0, 234, 1), number(1000, 5, 0), number(1500, -7, 2)}},
		{"mixed", "012305030680b083c598680604d40309026f6e02000104d4030805322e35653104d4030805322e3565310101d4030200860164010180a2e6db0800", []historian.Sample{number(0, 234, 1), text, bad, float, later}},
		{"long", "010b02020680b083c59868030100030302030203020302010002000000", []historian.Sample{number(0, 1, 0), long}},
		{"bad", "01200200", []historian.Sample{bad, bad}},
	} {
		var tally historian.Tally
		tally.Add(g.samples...)
		if got := hex.EncodeToString(tally.Append(nil)); got != g.octets {
			t.Errorf("%s: written as %s", g.name, got)
		}
		b, err := hex.DecodeString(g.octets)
		if err != nil {
			t.Fatal(err)
		}
		back, err := historian.ReadTally(b)
		if err != nil {
			t.Errorf("%s: %v", g.name, err)
			continue
		}
		want, got := tally.Told(), back.Told()
		if got.Elided {
			want.FirstValue, want.LastValue, want.Elided = got.FirstValue, got.LastValue, true
		}
		if d := cmp.Diff(want, got, sameTold); d != "" {
			t.Errorf("%s: %s", g.name, d)
		}
	}
}
