package broker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"millrace/auth"
	"millrace/broker"
	"millrace/uns"
)

var versions = []byte{4, 5}

func eachVersion(t *testing.T, fn func(t *testing.T, version byte)) {
	for _, v := range versions {
		t.Run(fmt.Sprintf("v%d", v), func(t *testing.T) { fn(t, v) })
	}
}

func TestConnectPublishAckSubscribeLive(t *testing.T) {
	leakCheck(t)
	eachVersion(t, func(t *testing.T, version byte) {
		x := open(t, setting{})
		s := dial(t, x.Addr(), hello{id: "s", user: "sub", version: version})
		s.mustSub(1, full("line1/#"))
		c := dial(t, x.Addr(), hello{id: "c", user: "dev", version: version})
		for i, topic := range []string{full("line1/temp"), full("_ingress/dev/line1/temp")} {
			c.pub(pub{topic: topic, payload: values(20), qos: 1, id: uint16(i + 1)})
			if code, reason := c.ackOf(uint16(i + 1)); code != 0 {
				t.Fatalf("refused: %x %s", code, reason)
			}
			m := s.wantMsg()
			if m.topic != full("line1/temp") || m.payload != `{"value":20,"timestamp":"2026-01-02T03:04:05.006Z","quality":"good"}` || m.qos != 1 || m.retain {
				t.Fatalf("%+v", m)
			}
			s.puback(m.id)
		}
		s.alive()
	})
}

func TestNoAckBeforeTheStoreReturns(t *testing.T) {
	eachVersion(t, func(t *testing.T, version byte) {
		x := open(t, setting{})
		entered, release := make(chan struct{}), make(chan struct{})
		var released atomic.Bool
		x.store.onAppend(func(context.Context, int) error {
			close(entered)
			<-release
			return nil
		})
		c := dial(t, x.Addr(), hello{id: "c", user: "dev", version: version})
		c.pub(pub{topic: full("a"), payload: "1", qos: 1, id: 1})
		<-entered
		if p, err := c.read(50 * time.Millisecond); !isTimeout(err) {
			t.Fatalf("before the store returned: %v, %v", p, err)
		}
		released.Store(true)
		close(release)
		c.ackOf(1)
		if !released.Load() {
			t.Fatal("acknowledged too early")
		}
	})
}

// The answers to a stream of packets are the same however the bytes are cut, and in order of the packets.
func TestAnswersInOrder(t *testing.T) {
	eachVersion(t, func(t *testing.T, version byte) {
		x := open(t, setting{})
		stream := bytes.Join([][]byte{
			pub{topic: full("line1/a"), payload: "1", qos: 1, id: 10}.bytes(version),
			pub{topic: full("other/a"), payload: "1", qos: 1, id: 11}.bytes(version), // refused
			pub{topic: "plain/x", payload: "1", qos: 1, id: 12}.bytes(version),       // not stored
			pub{topic: full("line1/a"), payload: "2", qos: 0}.bytes(version),
			{0xC0, 0},
			pub{topic: full("line1/b"), payload: "nope", qos: 1, id: 9}.bytes(version), // refused by uns
			subscribe(version, 77, nil, 1, "plain/y"),
			pub{topic: full("line1/b"), payload: "3", qos: 1, id: 8}.bytes(version),
			{0x40, 2, 0, 99}, // an ack nobody waits for
			{0xC0, 0},
			pub{topic: full("line1/c"), payload: `"` + strings.Repeat("1", 30000) + `"`, qos: 1, id: 7}.bytes(version),
			{0xC0, 0},
		}, nil)
		want := "ack 10,ack 11,ack 12,pong,ack 9,suback,ack 8,pong,ack 7,pong"
		for _, piece := range []int{1, 2, 7, 1000, len(stream)} {
			t.Run(fmt.Sprint(piece), func(t *testing.T) {
				before := x.store.stored()
				c := dial(t, x.Addr(), hello{id: "c", user: "line", version: version})
				for rest := stream; len(rest) > 0; {
					n := min(piece, len(rest))
					if piece <= 7 && len(rest) < 20000 && len(rest) > 1000 {
						n = len(rest) - 1000 // the middle of the large payload need not go byte by byte
					}
					c.write(rest[:n])
					rest = rest[n:]
				}
				var got []string
				for range strings.Count(want, ",") + 1 {
					p, err := c.read(patience)
					if err != nil {
						t.Fatalf("after %v: %v", got, err)
					}
					switch p.first {
					case 0x40:
						got = append(got, fmt.Sprintf("ack %d", int(p.body[0])<<8|int(p.body[1])))
					case 0x90:
						got = append(got, "suback")
					case 0xD0:
						got = append(got, "pong")
					default:
						t.Fatalf("got %v", p)
					}
				}
				if s := strings.Join(got, ","); s != want {
					t.Fatalf("got  %s\nwant %s", s, want)
				}
				if n := x.store.stored() - before; n != 4 {
					t.Fatalf("%d values stored, want 4", n)
				}
			})
		}
	})
}

func TestEveryVerdict(t *testing.T) {
	want := map[string]byte{"stored": 0, "cleared": 0, "not_authorized": 0x87, "topic_invalid": 0x90, "payload_invalid": 0x99,
		"type_mismatch": 0x99, "schema_violation": 0x99, "number_out_of_range": 0x99, "timestamp_invalid": 0x99,
		"timestamp_future": 0x99, "timestamp_too_old": 0x99, "rate_limited": 0x97, "payload_too_large": 0x97, "topic_limit": 0x97, "internal": 0x80}
	var verdict uns.Verdict
	x := open(t, setting{accept: func(_ context.Context, b *uns.Batch, _ func() error) error {
		for i := range b.Messages {
			b.Messages[i].Verdict, b.Messages[i].At = verdict, -1
		}
		return nil
	}})
	clients := map[byte]*client{4: dial(t, x.Addr(), hello{id: "c4", user: "dev", version: 4}), 5: dial(t, x.Addr(), hello{id: "c5", user: "dev"})}
	for _, r := range uns.Reasons() {
		verdict = uns.Verdict{Reason: r}
		if !verdict.OK() {
			verdict.Detail = "field: found ö, wanted 1"
		}
		code, known := want[r.String()]
		if !known || broker.ReasonCode(r) != code {
			t.Errorf("%s: table says %02x, contract says %02x", r, broker.ReasonCode(r), code)
		}
		for v, c := range clients {
			c.pub(pub{topic: full("a"), payload: "1", qos: 1, id: 3})
			p := c.want(0x40)
			reason := ""
			if v == 5 && code != 0 {
				text := r.String() + ": field: found ö, wanted 1"
				reason = string([]byte{0x40, byte(7 + len(text)), 0, 3, code, byte(3 + len(text)), 0x1F, 0, byte(len(text))}) + text
			} else {
				reason = string([]byte{0x40, 2, 0, 3})
			}
			if got := string(frame(p.first, p.body)); got != reason {
				t.Errorf("%s on v%d: got %q want %q", r, v, got, reason)
			}
		}
	}
	if broker.ReasonCode(uns.Reason(200)) != 0x80 {
		t.Error("an unknown reason must not look like success")
	}
}

func TestReasonStringOnlyWhenWanted(t *testing.T) {
	x := open(t, setting{})
	for name, h := range map[string]hello{
		"no problem information": {properties: []byte{0x17, 0}},
		"small packets":          {properties: []byte{0x27, 0, 0, 0, 12}},
	} {
		h.id, h.user = "c", "line"
		c := dialRaw(t, x.Addr())
		c.write(h.bytes())
		if name != "small packets" {
			c.want(0x20)
		} else {
			// The CONNACK itself does not fit: the client gets nothing.
			c.ended()
			continue
		}
		c.pub(pub{topic: full("other"), payload: "1", qos: 1, id: 1})
		if p := c.want(0x40); len(p.body) != 3 || p.body[2] != 0x87 {
			t.Errorf("%s: %v", name, p)
		}
	}
	c := dial(t, x.Addr(), hello{id: "c", user: "line", properties: []byte{0x27, 0, 0, 0, 40}})
	c.pub(pub{topic: full(strings.Repeat("other", 20)), payload: "1", qos: 1, id: 1})
	if p := c.want(0x40); len(p.body) != 3 || p.body[2] != 0x87 {
		t.Errorf("maximum packet size 40: %v", p)
	}
	c.alive()
}

func TestRefusals(t *testing.T) {
	x := open(t, setting{})
	cases := []struct{ name, topic, payload, reason string }{
		{"granted", full("line1/a"), "1", ""},
		{"own inbox", full("_ingress/line/line1/a"), "1", ""},
		{"own inbox needs the grant of its target", full("_ingress/line/other/a"), "1", "not_authorized"},
		{"foreign inbox", full("_ingress/dev/line1/a"), "1", "not_authorized"},
		{"not granted", full("line2/a"), "1", "not_authorized"},
		{"denied", full("line1/locked"), "1", "not_authorized"},
		{"child of a denied literal", full("line1/locked/x"), "1", ""},
		{"verdict topic", full("_verdict/line/a"), "1", "not_authorized"},
		{"reserved", full("_x/a"), "1", "topic_invalid"},
		{"other workspace", "mHv1.0/else/line1/a", "1", "topic_invalid"},
		{"empty level", full("line1//a"), "1", "topic_invalid"},
		{"trailing slash", full("line1/a/"), "1", "topic_invalid"},
		{"wildcard", full("line1/+"), "1", "topic_invalid"},
		{"no path", "mHv1.0/main", "1", "topic_invalid"},
		{"ordinary, granted", "plain/a", "anything", ""},
		{"ordinary, not granted", "else/a", "1", "not_authorized"},
		{"$SYS", "$SYS/a", "1", "not_authorized"},
		{"payload", full("line1/a"), "nope", "payload_invalid"},
	}
	for i, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			for _, v := range versions {
				c := dial(t, x.Addr(), hello{id: fmt.Sprint("c", i), user: "line", version: v})
				for range 2 { // the second time from the cache
					c.pub(pub{topic: tc.topic, payload: tc.payload, qos: 1, id: 1})
					code, reason := c.ackOf(1)
					word, _, _ := strings.Cut(reason, ":")
					if v == 4 && (code != 0 || reason != "") || v == 5 && (word != tc.reason || (code != 0) != (tc.reason != "")) {
						t.Errorf("v%d: %02x %q, want %q", v, code, reason, tc.reason)
					}
				}
				c.pub(pub{topic: tc.topic, payload: tc.payload})
				c.alive()
			}
		})
	}
	refused := x.in.Source("line").Refused()
	if refused["not_authorized"] != 7*6 || refused["topic_invalid"] != 6*6 {
		t.Errorf("refusals are not counted by source: %v", refused)
	}
}

func TestProtocolFaultsInPublish(t *testing.T) {
	x := open(t, setting{})
	ok := pub{topic: full("line1/ok"), payload: "1", qos: 1, id: 1}
	cases := []struct {
		name   string
		packet []byte
		code   byte
	}{
		{"QoS 3", pub{topic: full("line1/a"), payload: "1", qos: 3, id: 2}.bytes(5), 0x81},
		{"DUP with QoS 0", pub{topic: full("line1/a"), payload: "1", dup: true}.bytes(5), 0x81},
		{"packet id 0", pub{topic: full("line1/a"), payload: "1", qos: 1}.bytes(5), 0x82},
		{"no topic, no alias", pub{payload: "1", qos: 1, id: 2}.bytes(5), 0x82},
		{"unknown alias", pub{payload: "1", qos: 1, id: 2, properties: []byte{0x23, 0, 5}}.bytes(5), 0x82},
		{"alias 0", pub{topic: full("line1/a"), qos: 1, id: 2, properties: []byte{0x23, 0, 0}}.bytes(5), 0x94},
		{"alias 65", pub{topic: full("line1/a"), qos: 1, id: 2, properties: []byte{0x23, 0, 65}}.bytes(5), 0x94},
		{"alias twice", pub{topic: full("line1/a"), qos: 1, id: 2, properties: []byte{0x23, 0, 1, 0x23, 0, 1}}.bytes(5), 0x82},
		{"subscription id", pub{topic: full("line1/a"), qos: 1, id: 2, properties: []byte{0x0B, 1}}.bytes(5), 0x82},
		{"unknown property", pub{topic: full("line1/a"), qos: 1, id: 2, properties: []byte{0x7F, 1}}.bytes(5), 0x81},
		{"cut property", pub{topic: full("line1/a"), qos: 1, id: 2, properties: []byte{0x08, 0, 9, 'a'}}.bytes(5), 0x81},
		{"response topic with wildcard", pub{topic: full("line1/a"), qos: 1, id: 2, properties: append([]byte{8}, str("a/+")...)}.bytes(5), 0x82},
		{"topic not UTF-8", pub{topic: "a\xff", payload: "1"}.bytes(5), 0x81},
		{"topic with NUL", pub{topic: "plain/\x00", payload: "1"}.bytes(5), 0x81},
		{"ordinary topic with wildcard", pub{topic: "plain/+", payload: "1"}.bytes(5), 0x82},
		{"topic longer than the packet", frame(0x30, []byte{0xFF, 0xFF, 'a'}), 0x81},
		{"empty body", frame(0x30), 0x81},
		{"five length bytes", []byte{0x30, 0x80, 0x80, 0x80, 0x80, 1}, 0x81},
		{"larger than allowed", []byte{0x30, 0xFF, 0xFF, 0xFF, 0x7F}, 0x95},
		{"AUTH", []byte{0xF0, 0}, 0x82},
		{"CONNACK", []byte{0x20, 2, 0, 0}, 0x82},
		{"type 0", []byte{0x00, 0}, 0x82},
		{"PINGREQ with a body", []byte{0xC0, 1, 0}, 0x81},
		{"PINGREQ with flags", []byte{0xC1, 0}, 0x81},
		{"PUBACK cut", []byte{0x40, 1, 0}, 0x81},
		{"second CONNECT", hello{id: "c", user: "line"}.bytes(), 0x82},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			c := dial(t, x.Addr(), hello{id: "c", user: "line"})
			c.write(ok.bytes(5), tc.packet, ok.bytes(5)) // what was complete before the fault is stored and acknowledged
			c.ackOf(1)
			c.disconnected(tc.code)
		})
	}
}

func TestAliasIsCheckedLikeItsTopic(t *testing.T) {
	x := open(t, setting{})
	c := dial(t, x.Addr(), hello{id: "c", user: "line"})
	send := func(topic string, alias byte) byte {
		c.pub(pub{topic: topic, payload: "1", qos: 1, id: 1, properties: []byte{0x23, 0, alias}})
		code, _ := c.ackOf(1)
		return code
	}
	if send(full("line1/a"), 1) != 0 || send(full("line2/b"), 64) != 0x87 {
		t.Fatal("setting an alias")
	}
	if send("", 1) != 0 || send("", 64) != 0x87 {
		t.Fatal("using an alias")
	}
	if send(full("line2/b"), 1) != 0x87 || send("", 1) != 0x87 {
		t.Fatal("a moved alias")
	}
	if n := x.store.stored(); n != 2 {
		t.Fatalf("%d stored", n)
	}
}

func TestNarrowerGrantsActAtOnce(t *testing.T) {
	x := open(t, setting{})
	c := dial(t, x.Addr(), hello{id: "c", user: "line"})
	send := func() byte {
		c.pub(pub{topic: full("line1/a"), payload: "1", qos: 1, id: 1, properties: []byte{0x23, 0, 1}})
		code, _ := c.ackOf(1)
		return code
	}
	if send() != 0 {
		t.Fatal("refused")
	}
	x.grant("line", "allow publish uns line2/#")
	if send() != 0x87 {
		t.Fatal("the cached grant still acts")
	}
	x.grant("line", "allow publish uns line1/#")
	if send() != 0 {
		t.Fatal("the wider grant does not act")
	}
	off := false
	if _, err := x.book.Patch("line", auth.Patch{Enabled: &off}); err != nil {
		t.Fatal(err)
	}
	c.pub(pub{topic: full("line1/a"), payload: "1", qos: 1, id: 2})
	c.disconnected(0x87)
	if _, p := dialAny(t, x.Addr(), hello{id: "c", user: "line"}); p.body[1] != 0x86 {
		t.Fatalf("a disabled client: %v", p)
	}
}

func TestDisabledClientIsCutWhileIdle(t *testing.T) {
	x := open(t, setting{})
	c := dial(t, x.Addr(), hello{id: "c", user: "line"})
	c.alive()
	off := false
	if _, err := x.book.Patch("line", auth.Patch{Enabled: &off}); err != nil {
		t.Fatal(err)
	}
	x.Inspect(time.Now())
	c.disconnected(0x87)
}

func TestStoreFailureIsNotAcknowledged(t *testing.T) {
	eachVersion(t, func(t *testing.T, version byte) {
		x := open(t, setting{})
		x.store.onAppend(func(context.Context, int) error { return errors.New("disk on fire") })
		s := dial(t, x.Addr(), hello{id: "s", user: "sub"})
		s.mustSub(1, "#")
		c := dial(t, x.Addr(), hello{id: "c", user: "dev", version: version})
		c.pub(pub{topic: full("a"), payload: "1", qos: 1, id: 1})
		if version == 5 {
			if p := c.want(0xE0); p.body[0] != 0x80 {
				t.Fatal(p)
			}
		}
		c.ended()
		s.alive() // nothing was announced
	})
}

func TestStalledStoreEndsTheSessionAfter30s(t *testing.T) {
	x := open(t, setting{})
	entered := make(chan struct{}, 1)
	x.store.onAppend(func(ctx context.Context, _ int) error {
		entered <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	})
	c := dial(t, x.Addr(), hello{id: "c", user: "dev", keepAlive: 1})
	c.pub(pub{topic: full("a"), payload: "1", qos: 1, id: 1})
	<-entered
	x.clock.advance(29 * time.Second)
	x.Inspect(x.clock.now()) // neither the keep-alive nor the stall is due
	if p, err := c.read(20 * time.Millisecond); !isTimeout(err) {
		t.Fatalf("%v %v", p, err)
	}
	x.clock.advance(2 * time.Second)
	x.Inspect(x.clock.now())
	if p := c.want(0xE0); p.body[0] != 0x97 {
		t.Fatal(p)
	}
	c.ended()
	x.store.onAppend(nil)
	c = dial(t, x.Addr(), hello{id: "c", user: "dev"})
	c.pub(pub{topic: full("a"), payload: "1", qos: 1, id: 1, dup: true})
	c.ackOf(1)
}

func TestVerdictReplies(t *testing.T) {
	x := open(t, setting{})
	c := dial(t, x.Addr(), hello{id: "c", user: "line"})
	c.mustSub(1, full("_verdict/line/#"))
	other := dial(t, x.Addr(), hello{id: "o", user: "dev"})
	other.mustSub(1, "#", full("_verdict/+/#"))
	ask := func(topic, payload, response string) {
		c.pub(pub{topic: topic, payload: payload, qos: 1, id: 1, properties: append(append([]byte{8}, str(response)...), append([]byte{9}, str("corr")...)...)})
		c.ackOf(1)
	}
	ask(full("line1/a"), "1", full("_verdict/line/r"))
	m := c.wantMsg()
	if m.topic != full("_verdict/line/r") || m.payload != `{"status":"stored","topic":"line1/a","timestamp":"2026-01-02T03:04:05.006Z","seq":1}` ||
		string(m.properties) != "\x09\x00\x04corr" || m.qos != 1 {
		t.Fatalf("%+v", m)
	}
	c.puback(m.id)
	if m := other.wantMsg(); m.topic != full("line1/a") {
		t.Fatalf("the verdict reached another client: %+v", m)
	}
	ask(full("line2/a"), "1", full("_verdict/line/r"))
	if m = c.wantMsg(); !strings.HasPrefix(m.payload, `{"status":"refused","reason":"not_authorized","detail":"`) || !strings.HasSuffix(m.payload, `,"topic":"line2/a"}`) {
		t.Fatalf("%+v", m)
	}
	// In the subscribe grants: fine. Elsewhere: stored, but the verdict is dropped and counted.
	c.mustSub(1, "plain/#")
	ask(full("line1/a"), "2", "plain/r")
	if m = c.wantMsg(); m.topic != "plain/r" {
		t.Fatalf("%+v", m)
	}
	for _, response := range []string{full("_verdict/dev/r"), full("_ingress/line/line1/r"), full("line2/r"), "else/r", "$SYS/r", "mHv1.0/else/a"} {
		before := x.metric("millrace_broker_messages_dropped_total", "verdict_not_permitted")
		stored := x.store.stored()
		ask(full("line1/a"), "3", response)
		eventually(t, "the drop is counted: "+response, func() bool {
			return x.metric("millrace_broker_messages_dropped_total", "verdict_not_permitted") == before+1
		})
		if x.store.stored() != stored+1 {
			t.Errorf("%s: the value was not stored", response)
		}
	}
	c.alive()
}

func TestMetricsOfPublishing(t *testing.T) {
	x := open(t, setting{})
	c := dial(t, x.Addr(), hello{id: "c", user: "line"})
	for i, topic := range []string{"line1/a", "line1/b", "line2/a"} {
		c.pub(pub{topic: full(topic), payload: "1", qos: 1, id: uint16(i + 1)})
		c.ackOf(uint16(i + 1))
	}
	c.alive()
	for name, want := range map[string]float64{"millrace_broker_publish_to_stored_seconds": 2, "millrace_broker_messages_received_total": 3, "millrace_broker_connections": 1} {
		if got := x.metric(name, ""); got != want {
			t.Errorf("%s = %v, want %v", name, got, want)
		}
	}
	s := x.Sessions()
	if len(s) != 1 || s[0].MQTTID != "c" || s[0].Client != "line" || s[0].Version != 5 || s[0].Received != 3 || s[0].Since.IsZero() {
		t.Errorf("%+v", s)
	}
}
