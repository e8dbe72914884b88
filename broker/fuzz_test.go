package broker_test

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"

	"millrace/broker"

	"github.com/mochi-mqtt/server/v2/packets"
)

// wire is a peer in memory: it sends what it holds in pieces, then closes; it takes everything.
type wire struct {
	net.Conn // nil: the rest is not called
	in       []byte
	piece    int
	cuts     []byte // sizes of the pieces, in turn; empty: piece
	repeat   []byte // sent times more when in is used up
	times    int
	turn     int
	out      bytes.Buffer
	keep     bool
}

func (w *wire) Read(p []byte) (int, error) {
	if len(w.in) == 0 {
		if w.times == 0 {
			return 0, io.EOF
		}
		w.times--
		w.in = w.repeat
	}
	if len(w.cuts) > 0 {
		w.turn++
		w.piece = int(w.cuts[w.turn%len(w.cuts)])
	}
	n := min(len(p), len(w.in), max(w.piece, 1))
	copy(p, w.in[:n])
	w.in = w.in[n:]
	return n, nil
}

func (w *wire) Write(p []byte) (int, error) {
	if w.keep {
		return w.out.Write(p)
	}
	return len(p), nil
}

func (w *wire) Close() error                     { return nil }
func (w *wire) RemoteAddr() net.Addr             { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }
func (w *wire) LocalAddr() net.Addr              { return w.RemoteAddr() }
func (w *wire) SetDeadline(time.Time) error      { return nil }
func (w *wire) SetReadDeadline(time.Time) error  { return nil }
func (w *wire) SetWriteDeadline(time.Time) error { return nil }

// FuzzFrames feeds whole byte streams, cut into pieces, through a connection. Whatever comes: no panic, no message that
// reaches the control plane, nothing but whole packets as answer, no session left.
func FuzzFrames(f *testing.F) {
	for _, v := range versions {
		connect := hello{id: "c", user: "dev", version: v}.bytes()
		publish := pub{topic: full("line1/a"), payload: "1", qos: 1, id: 1}.bytes(v)
		f.Add(connect, uint16(1))
		f.Add(append(bytes.Clone(connect), publish...), uint16(3))
		f.Add(bytes.Join([][]byte{connect, publish, subscribe(v, 2, nil, 1, "#"), publish, {0xC0, 0}, {0x40, 2, 0, 1}, publish, {0xE0, 0}}, nil), uint16(4096))
		f.Add(bytes.Join([][]byte{connect, frame(0xA2, []byte{0, 1}, props(v, nil), str("#")), pub{topic: "a", qos: 2, id: 1}.bytes(v)}, nil), uint16(11))
	}
	f.Add([]byte{0x10, 0xFF, 0xFF, 0xFF, 0x7F}, uint16(1))
	f.Add(append(hello{id: "c", user: "dev"}.bytes(), 0x82, 6, 0, 1, 0, 0, 1, 'a'), uint16(100))
	f.Add(append(hello{id: "c", user: "dev"}.bytes(), 0x30, 0x80, 0x80, 0x80, 0x80), uint16(100))
	f.Add(append(hello{id: "c", user: "dev"}.bytes(), pub{payload: "1", properties: []byte{0x23, 0, 1}}.bytes(5)...), uint16(100))
	x := open(f, setting{})
	first := dial(f, x.Addr(), hello{id: "first", user: "dev"}) // it serves
	first.write([]byte{0xE0, 0})
	first.ended()
	eventually(f, "the first session is gone", func() bool { return len(x.Sessions()) == 0 })
	f.Fuzz(func(t *testing.T, stream []byte, piece uint16) {
		w := &wire{in: stream, piece: int(piece), keep: true}
		x.Take(w)
		for r := bytes.NewReader(w.out.Bytes()); r.Len() > 0; {
			if _, err := readPacket(r); err != nil {
				t.Fatalf("cut answer %x", w.out.Bytes())
			}
		}
		if n := x.metric("millrace_broker_contained_panics_total", ""); n != 0 {
			t.Fatal("a panic was reached")
		}
		if n := x.metric("millrace_broker_leaked_packets_total", ""); n != 0 {
			t.Fatal("a message reached the control plane")
		}
		if x.IndexSize() != 0 || len(x.Sessions()) != 0 {
			t.Fatal("the session left something behind")
		}
	})
}

// FuzzPublish compares the parser with the library's: what we take, it reads the same way.
func FuzzPublish(f *testing.F) {
	for _, p := range []pub{
		{topic: "a", payload: "1"}, {topic: "a/b", payload: "1", qos: 1, id: 5}, {topic: "", qos: 1, id: 5, properties: []byte{0x23, 0, 1}},
		{topic: "a", qos: 1, id: 9, properties: append(append([]byte{8}, str("r/t")...), append([]byte{9}, str("c")...)...)},
		{topic: "a", properties: append(append([]byte{0x26}, str("k")...), str("v")...)}, {topic: "a", properties: []byte{1, 1, 2, 0, 0, 0, 9}},
	} {
		for _, v := range versions {
			b := p.bytes(v)
			f.Add(b[0]&15, b[2:], v)
		}
	}
	f.Add(byte(2), []byte{0, 200, 'a'}, byte(5))
	f.Fuzz(func(t *testing.T, flags byte, body []byte, version byte) {
		flags &= 15
		if version != 5 {
			version = 4
		}
		p, code := broker.ParsePublish(flags, body, version)
		if code != 0 {
			return
		}
		pk := packets.Packet{ProtocolVersion: version, FixedHeader: packets.FixedHeader{Type: packets.Publish, Remaining: len(body)}}
		if err := pk.FixedHeader.Decode(0x30 | flags); err != nil {
			t.Fatalf("the library refuses the header: %v", err)
		}
		if err := pk.PublishDecode(bytes.Clone(body)); err != nil {
			if len(p.Topic) > 0 && !validUTF8(p.Topic) {
				return // characters are looked at later, once for each topic
			}
			t.Fatalf("the library refuses what we take: %v", err)
		}
		if pk.TopicName != string(p.Topic) || pk.PacketID != p.ID || !bytes.Equal(pk.Payload, p.Payload) || pk.FixedHeader.Qos != p.QoS ||
			pk.FixedHeader.Retain != p.Retain {
			t.Fatalf("read differently: %+v, the library %+v", p, pk)
		}
		if version == 5 && (pk.Properties.ResponseTopic != string(p.Response) || !bytes.Equal(pk.Properties.CorrelationData, p.Correlation) || pk.Properties.TopicAlias != p.Alias) {
			t.Fatalf("properties read differently: %+v, the library %+v", p, pk.Properties)
		}
	})
}

func validUTF8(b []byte) bool {
	return bytes.Equal(bytes.ToValidUTF8(b, nil), b) && bytes.IndexByte(b, 0) < 0
}
