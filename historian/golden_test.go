package historian_test

import (
	"encoding/hex"
	"errors"
	"testing"

	"millrace/historian"
)

// golden are octets as format version 1 wrote them and what they must mean for ever. A change of the encoder
// that writes other octets is allowed as long as these still read; then they get company, not a successor.
func golden() []struct {
	name, record, chunk string
	samples             []historian.Sample
} {
	decimal := func(ms, mant int64, exp uint8) historian.Sample {
		return historian.Sample{Series: 7, Scale: 6, Time: epoch + ms*1e6, Received: epoch + ms*1e6,
			Value: historian.Value{Kind: historian.Decimal, Mant: mant, Exp: exp}}
	}
	raw := func(ms int64, kind historian.Kind, s string) historian.Sample {
		d := decimal(ms, 0, 0)
		d.Value = historian.Value{Kind: kind, Raw: []byte(s)}
		return d
	}
	boolean := func(ms, on int64) historian.Sample {
		d := decimal(ms, 0, 0)
		d.Value = historian.Value{Kind: historian.Bool, Mant: on}
		return d
	}
	stamped := decimal(5, 1, 0)
	stamped.Stamped, stamped.Received, stamped.Quality = true, stamped.Time+12e6, historian.Uncertain
	fine := decimal(9, -7, 3)
	fine.Stamped, fine.Scale, fine.Time, fine.Quality = true, 3, fine.Time+5000, historian.Bad
	odd := fine
	odd.Scale, odd.Time, odd.Received = 0, -1, 1
	var noise, trimmed []historian.Sample
	for i := range int64(40) {
		noise = append(noise, decimal(i*1000+i*i%4, 2150+i*37%11, 2))
		trimmed = append(trimmed, decimal(i*1000, []int64{5, 51, 52, 53}[i%4], []uint8{0, 1, 1, 1}[i%4]))
	}
	return []struct {
		name, record, chunk string
		samples             []historian.Sample
	}{
		{"one", "01808098bf84e1add731140ed403",
			"0100090180ee89ab0d000000010100d403", []historian.Sample{decimal(0, 234, 1)}},
		{"equal times", "01808098bf84e1add731140e1413000217000409",
			"0100090380ee89ab0d000000030100040414110003", []historian.Sample{decimal(0, 10, 1), decimal(0, 1, 0), decimal(0, -5, 4)}},
		{"all kinds", "01808098bf84e1add731100e010002020002030002828080808080802008000214313834343637343430373337303935353136313509000203c3966c0a00020200ff0b0002077b2261223a317d",
			"0100060880b083c5986807010002070001020308090a0b828080808080802014313834343637343430373337303935353136313503c3966c0200ff077b2261223a317d", []historian.Sample{
				{Series: 7, Scale: 6, Time: epoch, Received: epoch}, boolean(1, 0), boolean(2, 1), decimal(3, 9007199254740993, 0),
				raw(4, historian.Number, "18446744073709551615"), raw(5, historian.Text, "Öl"), raw(6, historian.Bytes, "\x00\xff"),
				raw(7, historian.JSON, `{"a":1}`),
			}},
		{"stamped", "01808098bf84e1add731130e026319000a1802660e00ca3e000d668200919fe3c784e1add731040d",
			"010f000401c9cff1a3c2f0d6eb1803828098bf84e1add73180ade20490f2e803919fe3c784e1add7310203020def07ef07000006010300000000000100020100000102028f4e88dddc05008a27", []historian.Sample{decimal(0, 1, 0), stamped, fine, odd}},
		{"booleans", "01808098bf84e1add731120e020014010014",
			"0100070380f8d9d3b50a0201000204010201", []historian.Sample{boolean(0, 1), boolean(10, 1), boolean(20, 0)}},
		{"texts", "01808098bf84e1add731190e0372756e0900020473746f700900020372756e",
			"0100060380b083c59868020100020504020372756e0473746f700200000100", []historian.Sample{raw(0, historian.Text, "run"), raw(1, historian.Text, "stop"), raw(2, historian.Text, "run")}},
		{"packed", "01808098bf84e1add731150ecc210500d20fd4210500ce0fdc210500d20fce210500ce0fd6210500d20fde210500ce0fd0210500d20fd8210500ce0fe0210500d20fd2210500ce0fda210500d20fcc210500ce0fd4210500d20fdc210500ce0fce210500d20fd6210500ce0fde210500d20fd0210500ce0fd8210500d20fe0210500ce0fd2210500d20fda210500ce0fcc210500d20fd4210500ce0fdc210500d20fce210500ce0fd6210500d20fde210500ce0fd0210500d20fd8210500ce0fe0210500d20fd2210500ce0fda210500d20fcc210500ce0fd4210500d20fdc210500ce0fce210500d20fd6210500ce0fde210500d20fd021",
			"0100062880b083c59868d9b0028500b2e1040026011105aaaaaaaaa8010284cc210d270b109105db5b6b6d6c", noise},
		{"trimmed", "01808098bf84e1add731130e0a0400d00f660400d00f680400d00f6a0300d00f0a0400d00f660400d00f680400d00f6a0300d00f0a0400d00f660400d00f680400d00f6a0300d00f0a0400d00f660400d00f680400d00f6a0300d00f0a0400d00f660400d00f680400d00f6a0300d00f0a0400d00f660400d00f680400d00f6a0300d00f0a0400d00f660400d00f680400d00f6a0300d00f0a0400d00f660400d00f680400d00f6a0300d00f0a0400d00f660400d00f680400d00f6a0300d00f0a0400d00f660400d00f680400d00f6a",
			"0100092880ee89ab0d2701000202018264280322220a1b1b1b1b1b1b1b1b1b1b", trimmed},
	}
}

// goldenHops are octets of records whose samples have hops, version 2 of the record.
const goldenHops = "02808098bf84e1add731140ed403940100d403d41aff00d403"

func TestGoldenHops(t *testing.T) {
	first := historian.Sample{Series: 7, Scale: 6, Time: epoch, Received: epoch, Value: historian.Value{Kind: historian.Decimal, Mant: 234, Exp: 1}}
	second, third := first, first
	second.Hops, third.Hops, third.Quality = 1, 255, historian.Bad
	want := []historian.Sample{first, second, third}
	b, err := hex.DecodeString(goldenHops)
	if err != nil {
		t.Fatal(err)
	}
	got, err := readAll(b, 1)
	if err != nil || len(got) != len(want) {
		t.Fatal(got, err)
	}
	for i := range want {
		if got[i].Hops != want[i].Hops {
			t.Errorf("sample %d has %d hops, want %d", i, got[i].Hops, want[i].Hops)
		}
	}
	sameSamples(t, "hops", want, got)
	if now := hex.EncodeToString(record(want)); now != goldenHops {
		t.Errorf("the record is now written as %s", now)
	}
	// The first version never wrote hops: there the bit is damage. Nor are no hops ever written.
	b[0] = 1
	if _, err := readAll(b, 1); !errors.Is(err, historian.ErrCorrupt) {
		t.Errorf("a record of version 1 with hops: %v", err)
	}
	if _, err := readAll([]byte{2, 0, 0x83, 0, 2, 2}, 1); !errors.Is(err, historian.ErrCorrupt) {
		t.Errorf("no hops, written: %v", err)
	}
}

func TestGolden(t *testing.T) {
	for _, g := range golden() {
		b, err := hex.DecodeString(g.record)
		if err != nil {
			t.Fatal(err)
		}
		got, err := readAll(b, 1)
		if err != nil {
			t.Fatalf("%s: record: %v", g.name, err)
		}
		sameSamples(t, g.name+": record", g.samples, got)
		if b, err = hex.DecodeString(g.chunk); err != nil {
			t.Fatal(err)
		}
		if got, err = historian.DecodeChunk(b, 7, nil); err != nil {
			t.Fatalf("%s: chunk: %v", g.name, err)
		}
		sameSamples(t, g.name+": chunk", g.samples, got)
		// This is about the encoder alone: see above before adapting it.
		if now := hex.EncodeToString(record(g.samples)); now != g.record {
			t.Errorf("%s: the record is now written as %s", g.name, now)
		}
		if now := hex.EncodeToString(historian.EncodeChunk(nil, g.samples)); now != g.chunk {
			t.Errorf("%s: the chunk is now written as %s", g.name, now)
		}
	}
}
