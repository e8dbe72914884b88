package broker_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"millrace/broker"
)

// session turns octets into the packets of one connection, well-formed most of the time: what a fuzzer changes in the octets
// changes which packets there are and what is in them.
func session(program []byte, version byte) []byte {
	topics := []string{full("line1/a"), full("line1/b"), "plain/a", "plain/b", full("_ingress/dev/line1/a"), "$SYS/x", "plain/+", ""}
	filters := []string{"#", "plain/+", full("line1/#"), "plain/a#", "+/+", "$share/g/plain/a", "", "plain/a"}
	var out []byte
	for len(program) >= 2 {
		op, arg := program[0]%16, program[1]
		program = program[2:]
		id := uint16(arg&15) + 1
		p := pub{topic: topics[arg>>4&7], payload: fmt.Sprint(arg), id: id}
		switch op {
		case 0:
			out = append(out, 0xC0, 0)
		case 1, 2, 4:
			p.qos = op / 2
			out = append(out, p.bytes(version)...)
		case 3:
			p.qos, p.dup = 1, true
			out = append(out, p.bytes(version)...)
		case 5:
			out = append(out, 0x62, 2, 0, byte(id))
		case 6:
			out = append(out, subscribe(version, id, nil, arg>>6, filters[arg>>3&7], filters[arg&7])...)
		case 7:
			out = append(out, frame(0xA2, []byte{0, byte(id)}, props(version, nil), str(filters[arg&7]))...)
		case 8, 9, 10:
			out = append(out, []byte{0x40, 0x50, 0x70}[op-8], 2, 0, byte(id))
		case 11:
			p.qos, p.payload = 1, `"`+strings.Repeat("x", int(arg)<<6)+`"`
			out = append(out, p.bytes(version)...)
		case 12:
			p.qos, p.retain = 1, true
			out = append(out, p.bytes(version)...)
		case 13:
			p.qos, p.properties = arg>>7, []byte{0x23, 0, arg & 7}
			if arg&8 != 0 {
				p.topic = ""
			}
			out = append(out, p.bytes(version)...)
		case 14: // octets as they are
			n := min(int(arg&15), len(program))
			out = append(out, program[:n]...)
			program = program[n:]
		case 15:
			if arg == 0 {
				out = append(out, 0xE0, 0)
			}
		}
	}
	return append(out, 0xC0, 0)
}

// FuzzSession takes the packets of a connection through the box twice: at once, and cut into pieces. The answers are the same,
// in the same order; only deliveries, which take their own way, may fall in between.
func FuzzSession(f *testing.F) {
	all := []byte{6, 0x12, 2, 1, 3, 1, 4, 2, 4, 2, 5, 2, 1, 0, 11, 200, 7, 1, 8, 1, 9, 1, 10, 1, 12, 0x21, 13, 0x81, 13, 0x89, 0, 0}
	for v := range uint8(2) {
		f.Add(all, v, []byte{1})
		f.Add(all, v, []byte{3, 200, 1})
		f.Add(bytes.Repeat([]byte{2, 1, 4, 3, 3, 1, 5, 3}, 20), v, []byte{50, 2})
		f.Add([]byte{4, 1, 4, 1, 5, 1, 5, 1, 4, 1, 14, 2, 0xC0, 0, 15, 0, 2, 1}, v, []byte{7})
		f.Add([]byte{2, 1, 14, 5, 0x82, 6, 0, 1, 0, 2, 2}, v, []byte{2})
		f.Add([]byte{2, 0x60, 2, 0x51, 2, 0x70}, v, []byte{9})
		f.Add([]byte{6, 0x81, 6, 0xFF, 7, 0xFF, 2, 2}, v, []byte{4, 4})
	}
	x := open(f, setting{broker: func(o *broker.Options) { o.Limits.FlappingLimit, o.Limits.ConnectRatePerSec = 0, 0 }})
	first := dial(f, x.Addr(), hello{id: "first", user: "dev"}) // it serves
	first.write([]byte{0xE0, 0})
	first.ended()
	eventually(f, "the first session is gone", func() bool { return len(x.Sessions()) == 0 })
	f.Fuzz(func(t *testing.T, program []byte, v uint8, cuts []byte) {
		if len(program) > 1000 {
			return
		}
		version := 4 + v&1
		stream := append(hello{id: "c", user: "dev", version: version}.bytes(), session(program, version)...)
		began := time.Now()
		whole := answers(t, x, &wire{in: bytes.Clone(stream), piece: len(stream), keep: true})
		cut := answers(t, x, &wire{in: stream, cuts: cuts, piece: 1, keep: true})
		if whole != cut {
			t.Fatalf("at once:   %s\nin pieces: %s", whole, cut)
		}
		if took := time.Since(began); took > 4*time.Second {
			t.Fatalf("it hung for %v: %s", took, whole)
		}
		if x.metric("millrace_broker_contained_panics_total", "") != 0 || x.metric("millrace_broker_leaked_packets_total", "") != 0 {
			t.Fatal("a panic, or a message that reached the control plane")
		}
		if x.IndexSize() != 0 || len(x.Sessions()) != 0 {
			t.Fatal("the session left something behind")
		}
	})
}

// answers runs a connection and writes down what came back, without deliveries.
func answers(t *testing.T, x *box, w *wire) string {
	t.Helper()
	x.Take(w)
	var s strings.Builder
	for r := bytes.NewReader(w.out.Bytes()); r.Len() > 0; {
		p, err := readPacket(r)
		if err != nil {
			t.Fatalf("cut answer %x", w.out.Bytes())
		}
		switch p.first >> 4 {
		case 2, 3:
		case 6: // whether there was something to release is a matter of time
			fmt.Fprintf(&s, "PUBREL %x ", p.body[:2])
		default:
			fmt.Fprintf(&s, "%02x %x ", p.first, p.body)
		}
	}
	return s.String()
}
