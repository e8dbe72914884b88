package historian_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"millrace/historian"
)

// sameSamples compares all but Seq; a Raw of no octets is equal to none.
func sameSamples(t *testing.T, what string, want, got []historian.Sample) {
	t.Helper()
	if len(want) != len(got) {
		t.Fatalf("%s: %d samples, want %d", what, len(got), len(want))
	}
	for i := range want {
		if want[i].Value.Equal(got[i].Value) && want[i].Value.Kind == got[i].Value.Kind && traitsOf(want[i]) == traitsOf(got[i]) {
			continue // cmp is for telling the difference: it is too slow for looking for one
		}
		if d := cmp.Diff(want[i], got[i], cmpopts.EquateEmpty(), cmpopts.IgnoreFields(historian.Sample{}, "Seq")); d != "" {
			t.Fatalf("%s: sample %d: %s", what, i, d)
		}
	}
}

// traits is all of a sample but its value and Seq.
type traits struct {
	series         historian.Series
	quality        historian.Quality
	stamped        bool
	scale          uint8
	time, received int64
}

func traitsOf(s historian.Sample) traits {
	return traits{s.Series, s.Quality, s.Stamped, s.Scale, s.Time, s.Received}
}

func record(samples []historian.Sample) []byte {
	var w historian.RecordWriter
	for i := range samples {
		w.Add(&samples[i])
	}
	return w.Bytes()
}

func readAll(b []byte, first uint64) ([]historian.Sample, error) {
	var got []historian.Sample
	err := historian.ReadRecord(b, first, func(s *historian.Sample) error {
		c := *s
		c.Value = c.Value.Clone()
		got = append(got, c)
		return nil
	})
	return got, err
}

func roundTrip(t *testing.T, r *rand.Rand, n int) {
	t.Helper()
	in := hostile(r, n, 7)

	chunk := historian.EncodeChunk([]byte("before"), in)[len("before"):]
	kept := []historian.Sample{{Series: 99}}
	got, err := historian.DecodeChunk(chunk, 7, kept)
	if err != nil || got[0].Series != 99 {
		t.Fatalf("chunk: %v, first %v", err, got[0])
	}
	sameSamples(t, "chunk", in, got[1:])
	from, to := in[0].Time, in[0].Time
	for _, s := range in {
		from, to = min(from, s.Time), max(to, s.Time)
	}
	if count, f, l, err := historian.ChunkSpan(chunk); count != n || f != from || l != to || err != nil {
		t.Fatalf("span %d %d %d %v, want %d %d %d", count, f, l, err, n, from, to)
	}

	var column historian.Column
	half := historian.Column{}
	for i := range in {
		column.Add(&in[i])
		if i == n/2 {
			half = column
		}
	}
	sameSamples(t, "column", in, column.AppendSamples(nil))
	sameSamples(t, "column snapshot", in[:n/2+1], half.AppendSamples(nil))
	if f, l := column.Span(); f != from || l != to || column.Count() != n {
		t.Fatalf("column: %d samples from %d to %d, want %d from %d to %d", column.Count(), f, l, n, from, to)
	}

	in = hostile(r, n, 0)
	got, err = readAll(record(in), 41)
	if err != nil {
		t.Fatalf("record: %v", err)
	}
	sameSamples(t, "record", in, got)
	for i := range got {
		if got[i].Seq != uint64(41+i) {
			t.Fatalf("sample %d has sequence %d", i, got[i].Seq)
		}
	}
}

func TestRoundTrip(t *testing.T) {
	for seed := range seedCount(1500) {
		r := rand.New(rand.NewPCG(seed, 1))
		n := 1 + r.IntN(200)
		if r.IntN(20) == 0 {
			n = 900 + r.IntN(3000)
		}
		roundTrip(t, r, n)
	}
}

func TestChunkBounds(t *testing.T) {
	one := historian.Sample{Series: 1, Scale: 6, Time: epoch, Received: epoch}
	most := make([]historian.Sample, historian.MaxChunkSamples)
	for i := range most {
		most[i] = one
	}
	got, err := historian.DecodeChunk(historian.EncodeChunk(nil, most), 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	sameSamples(t, "the most samples", most, got)
	for _, n := range []int{0, historian.MaxChunkSamples + 1} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%d samples make a chunk", n)
				}
			}()
			historian.EncodeChunk(nil, make([]historian.Sample, n))
		}()
	}
}

// What a reader hands out must not change when the store reuses the memory it was read from.
func TestDecodedRawIsOwn(t *testing.T) {
	for _, kind := range []historian.Kind{historian.Number, historian.Text, historian.Bytes, historian.JSON} {
		r := rand.New(rand.NewPCG(1, uint64(kind)))
		for _, distinct := range []int{1, 5, 100} {
			in := hostile(r, 100, 1)
			for i := range in {
				in[i].Value = historian.Value{Kind: kind, Raw: []byte{byte(i % distinct), 2, 3}}
			}
			if distinct == 5 {
				in[50].Value = historian.Value{}
			}
			b := historian.EncodeChunk(nil, in)
			got, err := historian.DecodeChunk(b, 1, nil)
			if err != nil {
				t.Fatal(err)
			}
			clear(b)
			sameSamples(t, "after the chunk is gone", in, got)
			// Appending to one Raw leaves the next alone.
			_ = append(got[0].Value.Raw, 'x', 'y', 'z')
			sameSamples(t, "after one Raw grew", in, got)
		}
	}
}

func TestRecordKeepsNothing(t *testing.T) {
	raw := []byte("first")
	s := historian.Sample{Series: 1, Scale: 6, Time: epoch, Received: epoch, Value: historian.Value{Kind: historian.Text, Raw: raw}}
	var w historian.RecordWriter
	var c historian.Column
	w.Add(&s)
	c.Add(&s)
	copy(raw, "other")
	got, err := readAll(w.Bytes(), 1)
	if err != nil || string(got[0].Value.Raw) != "first" {
		t.Fatalf("record: %v, %v", got, err)
	}
	if got := c.AppendSamples(nil); string(got[0].Value.Raw) != "first" {
		t.Fatalf("column: %v", got)
	}
	if w.Len() != len(w.Bytes()) || w.Count() != 1 {
		t.Fatalf("len %d, count %d", w.Len(), w.Count())
	}
	w.Reset()
	if w.Len() != 0 || w.Count() != 0 {
		t.Fatal("reset leaves samples")
	}
	w.Add(&s)
	got, err = readAll(w.Bytes(), 1)
	if err != nil || len(got) != 1 || string(got[0].Value.Raw) != "other" {
		t.Fatalf("after reset: %v, %v", got, err)
	}
}

// A trait that no reader takes must not make a whole group unreadable.
func TestRecordSurvivesOddTraits(t *testing.T) {
	got, err := readAll(record([]historian.Sample{{Series: 1, Scale: 200, Quality: 77, Time: 123}, {Series: 2}}), 1)
	if err != nil || len(got) != 2 || got[0].Scale != 0 || got[0].Quality != historian.Bad || got[0].Time != 123 {
		t.Fatalf("%+v, %v", got, err)
	}
}

func TestReadRecordPassesErrors(t *testing.T) {
	stop := errors.New("enough")
	seen := 0
	err := historian.ReadRecord(record(make([]historian.Sample, 5)), 1, func(*historian.Sample) error {
		seen++
		return stop
	})
	if !errors.Is(err, stop) || seen != 1 {
		t.Fatalf("%v after %d", err, seen)
	}
}

// Octets that are cut short or turned are refused or read as something else; they never panic, and what is
// cut is always noticed in a chunk.
func TestDamage(t *testing.T) {
	for seed := range seedCount(100) {
		r := rand.New(rand.NewPCG(seed, 2))
		in := hostile(r, 1+r.IntN(60), 3)
		chunk, rec := historian.EncodeChunk(nil, in), record(in)
		for cut := range len(chunk) {
			if _, err := historian.DecodeChunk(chunk[:cut], 3, nil); !errors.Is(err, historian.ErrCorrupt) {
				t.Fatalf("seed %d: chunk cut at %d of %d: %v", seed, cut, len(chunk), err)
			}
		}
		if _, err := historian.DecodeChunk(append(chunk[:len(chunk):len(chunk)], 0), 3, nil); !errors.Is(err, historian.ErrCorrupt) {
			t.Fatalf("seed %d: an octet too many: %v", seed, err)
		}
		for cut := range len(rec) {
			got, err := readAll(rec[:cut], 1)
			if err == nil && len(got) >= len(in) {
				t.Fatalf("seed %d: record cut at %d of %d reads whole", seed, cut, len(rec))
			}
			sameSamples(t, "cut record", in[:len(got)], got)
		}
		for range 200 {
			b := append([]byte(nil), chunk...)
			b[r.IntN(len(b))] ^= 1 << r.IntN(8)
			if _, err := historian.DecodeChunk(b, 3, nil); err != nil && !errors.Is(err, historian.ErrCorrupt) {
				t.Fatal(err)
			}
			b = append([]byte(nil), rec...)
			b[r.IntN(len(b))] ^= 1 << r.IntN(8)
			if _, err := readAll(b, 1); err != nil && !errors.Is(err, historian.ErrCorrupt) {
				t.Fatal(err)
			}
		}
	}
}

func TestInts(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	shapes := map[string]func(i int) int64{
		"constant":   func(int) int64 { return -7 },
		"linear":     func(i int) int64 { return 5 - 3*int64(i) },
		"noise":      func(int) int64 { return 1e9 + r.Int64N(50) },
		"drift":      func(i int) int64 { return int64(i)*int64(i) - 5*int64(i) },
		"counter":    func(i int) int64 { return 1000*int64(i) + r.Int64N(2) },
		"grid":       func(i int) int64 { return 1000*int64(i) + r.Int64N(10) },
		"falling":    func(i int) int64 { return -1000*int64(i) + r.Int64N(10) },
		"states":     func(i int) int64 { return int64(i / 90 % 4) },
		"extremes":   func(i int) int64 { return []int64{math.MinInt64, math.MaxInt64, 0, -1}[i%4] },
		"random":     func(int) int64 { return int64(r.Uint64()) },
		"skewed":     func(int) int64 { return int64(r.ExpFloat64() * 3) },
		"fibonacci":  func(i int) int64 { return int64(math.Log(r.Float64()) * -2) },
		"wide steps": func(i int) int64 { return int64(i%2) * math.MaxInt64 },
	}
	for name, at := range shapes {
		for _, n := range []int{1, 2, 3, 7, 64, 600, 5000} {
			want := make([]int64, n)
			for i := range want {
				want[i] = at(i)
			}
			b := historian.AppendInts(nil, want)
			got := make([]int64, n)
			if err := historian.ReadInts(b, got); err != nil {
				t.Fatalf("%s of %d: %v", name, n, err)
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Fatalf("%s of %d: %s", name, n, d)
			}
		}
	}
}

// The code of a very uneven alphabet would be longer than the table allows and must be cut.
func TestPackLongCodes(t *testing.T) {
	var want []int64
	a, b := 1, 1
	for c := range 18 {
		for range a {
			want = append(want, int64(c))
		}
		a, b = b, a+b
	}
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(want), func(i, j int) { want[i], want[j] = want[j], want[i] })
	enc := historian.AppendInts(nil, want)
	if len(enc) > len(want)/2 {
		t.Fatalf("%d values take %d octets", len(want), len(enc))
	}
	got := make([]int64, len(want))
	if err := historian.ReadInts(enc, got); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Fatal(d)
	}
}

func FuzzRecord(f *testing.F) {
	for seed := range uint64(12) {
		r := rand.New(rand.NewPCG(seed, 3))
		f.Add(record(hostile(r, 1+r.IntN(12), 0)), seed)
	}
	f.Add([]byte{}, uint64(1))
	f.Add([]byte{1, 0}, uint64(2))
	f.Fuzz(func(t *testing.T, b []byte, seed uint64) {
		got, err := readAll(b, 1)
		if err == nil {
			// Whatever can be read can be written and read again.
			again, err := readAll(record(got), 1)
			if err != nil {
				t.Fatal(err)
			}
			sameSamples(t, "written again", got, again)
		}
		r := rand.New(rand.NewPCG(seed, 4))
		in := hostile(r, 1+r.IntN(40), 0)
		got, err = readAll(record(in), 1)
		if err != nil {
			t.Fatal(err)
		}
		sameSamples(t, "record", in, got)
	})
}

func FuzzChunk(f *testing.F) {
	for seed := range uint64(24) {
		r := rand.New(rand.NewPCG(seed, 5))
		f.Add(historian.EncodeChunk(nil, hostile(r, 1+r.IntN(80), 1)), seed)
	}
	f.Add([]byte{}, uint64(1))
	f.Fuzz(func(t *testing.T, b []byte, seed uint64) {
		got, err := historian.DecodeChunk(b, 1, nil)
		if err == nil {
			count, from, to, err := historian.ChunkSpan(b)
			if err != nil || count != len(got) {
				t.Fatalf("span: %d of %d samples, %v", count, len(got), err)
			}
			for _, s := range got {
				if s.Time < from || s.Time > to {
					t.Fatalf("a sample at %d outside %d to %d", s.Time, from, to)
				}
			}
			again, err := historian.DecodeChunk(historian.EncodeChunk(nil, got), 1, nil)
			if err != nil {
				t.Fatal(err)
			}
			sameSamples(t, "written again", got, again)
		}
		r := rand.New(rand.NewPCG(seed, 6))
		roundTrip(t, r, 1+r.IntN(40))
	})
}

func BenchmarkColumnAdd(b *testing.B) {
	p := newPlant(10, 1000, 3)
	var samples []historian.Sample
	for range 600 {
		p.next(func(s *historian.Sample) { samples = append(samples, *s) })
	}
	columns := make([]historian.Column, 10*plantTags+1)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if i == len(samples) {
			clear(columns)
			i = 0
		}
		columns[samples[i].Series].Add(&samples[i])
		i++
	}
}

// plantRuns are the runs of one device, 600 samples each.
func plantRuns() [][]historian.Sample {
	p := newPlant(1, 1000, 3)
	runs := make([][]historian.Sample, plantTags)
	for range 600 {
		p.next(func(s *historian.Sample) { runs[s.Series-1] = append(runs[s.Series-1], *s) })
	}
	return runs
}

func BenchmarkEncodeChunk(b *testing.B) {
	runs := plantRuns()
	var dst []byte
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		for _, run := range runs {
			dst = historian.EncodeChunk(dst[:0], run)
			n += len(run)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/value")
}

func BenchmarkDecodeChunk(b *testing.B) {
	runs := plantRuns()
	var chunks [][]byte
	for _, run := range runs {
		chunks = append(chunks, historian.EncodeChunk(nil, run))
	}
	var dst []historian.Sample
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		for i, chunk := range chunks {
			var err error
			if dst, err = historian.DecodeChunk(chunk, historian.Series(i), dst[:0]); err != nil {
				b.Fatal(err)
			}
			n += len(dst)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/value")
}

// groups are the samples of a shuffled plant in groups of 300.
func groups() [][]historian.Sample {
	p := newPlant(1000, 1000, 3)
	var all []historian.Sample
	for range 3 {
		p.next(func(s *historian.Sample) { all = append(all, *s) })
	}
	r := rand.New(rand.NewPCG(7, 7))
	for at := 0; at < len(all); at += 1000 * plantTags {
		round := all[at : at+1000*plantTags]
		r.Shuffle(len(round), func(i, j int) { round[i], round[j] = round[j], round[i] })
		for i := range round {
			round[i].Time = round[0].Time + int64(i/10)*1e6
			round[i].Received = round[i].Time
		}
	}
	var out [][]historian.Sample
	for len(all) > 0 {
		out = append(out, all[:300])
		all = all[300:]
	}
	return out
}

func BenchmarkRecordAdd(b *testing.B) {
	in := groups()
	var w historian.RecordWriter
	b.ReportAllocs()
	n, octets := 0, 0
	for b.Loop() {
		for _, g := range in {
			w.Reset()
			for i := range g {
				w.Add(&g[i])
			}
			n += len(g)
			octets += w.Len()
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/value")
	b.ReportMetric(float64(octets)/float64(n), "B/value")
}

func BenchmarkReadRecord(b *testing.B) {
	var records [][]byte
	for _, g := range groups() {
		records = append(records, append([]byte(nil), record(g)...))
	}
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		for _, rec := range records {
			if err := historian.ReadRecord(rec, 1, func(*historian.Sample) error { n++; return nil }); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/value")
}
