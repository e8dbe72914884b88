package broker_test

import (
	"fmt"
	"strings"
	"testing"

	"millrace/broker"
)

// noLimits lets a test connect as fast and as badly as it likes.
func noLimits(o *broker.Options) { o.Limits.ConnectRatePerSec, o.Limits.FlappingLimit = 0, 0 }

// propertySamples holds one well-formed instance of every property of MQTT 5, table 2-4.
var propertySamples = map[byte][]byte{
	0x01: {1}, 0x02: {0, 0, 0, 9}, 0x03: str("text/plain"), 0x08: str("plain/reply"), 0x09: str("7"), 0x0B: {5}, 0x11: {0, 0, 0, 0},
	0x12: str("id"), 0x13: {0, 9}, 0x15: str("SCRAM"), 0x16: str("data"), 0x17: {1}, 0x18: {0, 0, 0, 1}, 0x19: {1}, 0x1A: str("info"),
	0x1C: str("ref"), 0x1F: str("why"), 0x21: {0, 9}, 0x22: {0, 9}, 0x23: {0, 3}, 0x24: {1}, 0x25: {1}, 0x26: append(str("k"), str("v")...),
	0x27: {0, 1, 0, 0}, 0x28: {1}, 0x29: {1}, 0x2A: {1},
}

// Every property in every packet that a client sends: one of another packet makes it malformed, 0x81, as does one that no
// packet has; one that stands twice is a protocol error, 0x82, but for user properties, and so is a subscription
// identifier of a client's PUBLISH.
func TestEveryPropertyInEveryPacket(t *testing.T) {
	x := open(t, setting{broker: noLimits})
	topic, id := str("plain/x"), []byte{0, 9}
	packets := []struct {
		name    string
		allowed string // property identifiers, table 2-4
		build   func(list []byte) []byte
	}{
		{"CONNECT", "\x11\x15\x16\x17\x19\x21\x22\x26\x27", func(p []byte) []byte { return hello{id: "c", user: "dev", properties: p}.bytes() }},
		{"will", "\x01\x02\x03\x08\x09\x18\x26", func(p []byte) []byte {
			return hello{id: "c", user: "dev", flags: 4, afterID: join(props(5, p), topic, str("x"))}.bytes()
		}},
		{"PUBLISH", "\x01\x02\x03\x08\x09\x23\x26", func(p []byte) []byte { return frame(0x30, topic, props(5, p), []byte("x")) }},
		{"PUBACK", "\x1F\x26", func(p []byte) []byte { return frame(0x40, id, []byte{0}, props(5, p)) }},
		{"PUBREC", "\x1F\x26", func(p []byte) []byte { return frame(0x50, id, []byte{0}, props(5, p)) }},
		{"PUBREL", "\x1F\x26", func(p []byte) []byte { return frame(0x62, id, []byte{0}, props(5, p)) }},
		{"PUBCOMP", "\x1F\x26", func(p []byte) []byte { return frame(0x70, id, []byte{0}, props(5, p)) }},
		{"SUBSCRIBE", "\x0B\x26", func(p []byte) []byte { return frame(0x82, id, props(5, p), topic, []byte{0}) }},
		{"UNSUBSCRIBE", "\x26", func(p []byte) []byte { return frame(0xA2, id, props(5, p), topic) }},
		{"DISCONNECT", "\x11\x1F\x26", func(p []byte) []byte { return frame(0xE0, []byte{0}, props(5, p)) }},
	}
	// answer sends the packet and tells the code that the connection ends with, 0 when it goes on or ends in good order.
	answer := func(first bool, b []byte) byte {
		c := dialRaw(t, x.Addr())
		if !first {
			c = dial(t, x.Addr(), hello{id: "c", user: "dev"})
		}
		c.write(b)
		if first {
			if code := c.want(0x20).body[1]; code != 0 {
				return code
			}
		}
		_, _ = c.conn.Write([]byte{0xC0, 0})
		for {
			switch p, err := c.read(patience); {
			case err != nil && !isTimeout(err):
				return 0
			case err != nil:
				t.Fatal(err)
			case p.first == 0xE0:
				return p.body[0]
			case p.first == 0xD0:
				_ = c.conn.Close()
				return 0
			}
		}
	}
	for _, k := range packets {
		first := k.name == "CONNECT" || k.name == "will"
		for property := byte(0); property < 0x30; property++ {
			sample, exists := propertySamples[property]
			if !exists {
				sample = []byte{0}
			}
			one := append([]byte{property}, sample...)
			allowed := strings.IndexByte(k.allowed, property) >= 0
			want, twice := byte(0x81), byte(0x81)
			switch {
			case k.name == "PUBLISH" && property == 0x0B:
				want, twice = 0x82, 0x82
			case k.name == "CONNECT" && property == 0x15:
				want, twice = 0x8C, 0x82 // no method is known
			case k.name == "CONNECT" && property == 0x16:
				want, twice = 0x82, 0x82 // data without a method
			case allowed && property == 0x26:
				want, twice = 0, 0
			case allowed:
				want, twice = 0, 0x82
			}
			if got := answer(first, k.build(one)); got != want {
				t.Errorf("%s with property %02x: %02x, want %02x", k.name, property, got, want)
			}
			if got := answer(first, k.build(join(one, one))); got != twice {
				t.Errorf("%s with property %02x twice: %02x, want %02x", k.name, property, got, twice)
			}
			if !allowed || len(sample) < 2 && property != 0x0B {
				continue
			}
			if got := answer(first, k.build(one[:len(one)-1])); got != 0x81 {
				t.Errorf("%s with property %02x cut short: %02x, want 81", k.name, property, got)
			}
		}
	}
	// a method with data is refused for its method
	if got := answer(true, packets[0].build(join([]byte{0x15}, str("SCRAM"), []byte{0x16}, str("data")))); got != 0x8C {
		t.Errorf("authentication method and data: %02x", got)
	}
}

// Values that a property cannot have: 0 and beyond 1.
func TestImpossiblePropertyValues(t *testing.T) {
	x := open(t, setting{broker: noLimits})
	for _, list := range [][]byte{{0x21, 0, 0}, {0x27, 0, 0, 0, 0}, {0x17, 2}, {0x19, 2}} {
		c := dialRaw(t, x.Addr())
		c.write(hello{id: "c", user: "dev", properties: list}.bytes())
		if code := c.want(0x20).body[1]; code != 0x82 {
			t.Errorf("%x in CONNECT: %02x", list, code)
		}
	}
	for _, list := range [][]byte{{0x01, 2}, join([]byte{0x08}, str("a/+")), join([]byte{0x08}, str("#"))} {
		c := dial(t, x.Addr(), hello{id: "c", user: "dev"})
		c.write(frame(0x30, str("plain/x"), props(5, list), []byte("x")))
		c.disconnected(0x82)
	}
	for _, alias := range []byte{0, 65} {
		c := dial(t, x.Addr(), hello{id: "c", user: "dev"})
		c.write(frame(0x30, str("plain/x"), props(5, []byte{0x23, 0, alias}), []byte("x")))
		c.disconnected(0x94)
	}
	c := dial(t, x.Addr(), hello{id: "c", user: "dev"})
	c.write(frame(0x82, []byte{0, 9}, props(5, []byte{0x0B, 0}), str("plain/x"), []byte{0}))
	c.disconnected(0x82)
}

// A payload that is said to be text and is none is refused at every QoS and on every kind of topic; a will that promises so
// is refused at CONNECT. What is text, and what makes no promise, passes; the promise goes on to subscribers.
func TestPayloadFormat(t *testing.T) {
	x := open(t, setting{})
	s := dial(t, x.Addr(), hello{id: "s", user: "dev"})
	s.mustSub(0, "plain/#")
	c := dial(t, x.Addr(), hello{id: "c", user: "dev"})
	if _, err := x.catalog.Set(t.Context(), "main", "octets", []byte(`{"schema":{"type":"bytes"}}`)); err != nil {
		t.Fatal(err)
	}
	text, broken := "Öl", "\xd6l"
	for _, topic := range []string{"plain/x", full("octets")} {
		for _, payload := range []string{text, broken, text + broken} {
			for _, promise := range []string{"", "\x01\x00", "\x01\x01"} {
				name := fmt.Sprintf("%s %q %x", topic, payload, promise)
				refused := promise == "\x01\x01" && payload != text
				c.pub(pub{topic: topic, payload: payload, qos: 1, id: 1, properties: []byte(promise)})
				code, reason := c.ackOf(1)
				if refused != (code == 0x99) || refused && !strings.Contains(reason, "not UTF-8") || !refused && code != 0 {
					t.Errorf("%s: %02x %s", name, code, reason)
				}
				if refused && payload != broken && !strings.Contains(reason, "byte 3") {
					t.Errorf("%s: %s", name, reason)
				}
				if !refused && topic == "plain/x" {
					if m := s.wantMsg(); m.payload != payload || string(m.properties) != promise {
						t.Errorf("%s: %+v", name, m)
					}
				}
				if code := c.exactly(pub{topic: topic, payload: payload, id: 2, properties: []byte(promise)}); refused != (code == 0x99) {
					t.Errorf("%s: QoS 2 %02x", name, code)
				} else if !refused {
					c.released(2)
					if topic == "plain/x" {
						s.wantMsg()
					}
				}
			}
		}
	}
	before := x.in.Source("dev").Refused()["payload_invalid"]
	c.pub(pub{topic: "plain/x", payload: broken, properties: []byte{1, 1}})
	c.pub(pub{topic: "plain/x", payload: broken, retain: true, properties: []byte{1, 1}})
	c.alive()
	s.alive()
	if n := x.in.Source("dev").Refused()["payload_invalid"]; n != before+2 {
		t.Errorf("%d refusals counted of QoS 0", n-before)
	}
	for payload, want := range map[string]byte{text: 0, broken: 0x99} {
		_, p := dialAny(t, x.Addr(), hello{id: "w", user: "dev", flags: 4, afterID: join(props(5, []byte{1, 1}), str("plain/w"), str(payload))})
		if p.body[1] != want {
			t.Errorf("a will %q: %v", payload, p)
		}
	}
}

// A client that asks is told where its verdicts come [MQTT-3.1.2-28]; a response topic below it is one it can read.
func TestResponseInformation(t *testing.T) {
	x := open(t, setting{})
	_, p := dialAny(t, x.Addr(), hello{id: "silent", user: "dev"})
	if strings.Contains(string(p.body), "_verdict") {
		t.Errorf("unasked: %v", p)
	}
	c, p := dialAny(t, x.Addr(), hello{id: "c", user: "line", properties: []byte{0x19, 1}})
	want := string(append([]byte{0x1A}, str("mHv1.0/main/_verdict/line")...))
	if !strings.Contains(string(p.body), want) {
		t.Fatalf("CONNACK %v", p)
	}
	c.mustSub(1, "mHv1.0/main/_verdict/line/#")
	c.pub(pub{topic: full("line1/a"), payload: "1", properties: join([]byte{0x08}, str("mHv1.0/main/_verdict/line/7"))})
	if m := c.wantMsg(); m.topic != "mHv1.0/main/_verdict/line/7" {
		t.Errorf("got %+v", m)
	}
}
