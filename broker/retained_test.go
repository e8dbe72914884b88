package broker_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"millrace/broker"
	"millrace/uns"
)

// retainSub subscribes with options and wants the SUBACK before anything else.
func retainSub(c *client, options byte, filters ...string) {
	c.t.Helper()
	c.mustSub(options, filters...)
}

// put publishes and wants the acknowledgement.
func put(c *client, p pub) byte {
	c.t.Helper()
	p.qos = 1
	if p.id == 0 {
		p.id = 9
	}
	c.pub(p)
	code, _ := c.ackOf(p.id)
	c.alive() // live delivery follows the acknowledgement; whoever subscribes from here on is later
	return code
}

// A new subscriber gets the last value of a stored topic, retained, with the live payload, at the lower QoS.
func TestRetainedValue(t *testing.T) {
	x := open(t, setting{})
	for _, v := range versions {
		dev := dial(t, x.Addr(), hello{id: "d", user: "dev", version: v})
		topic := full(fmt.Sprintf("line1/v%d", v))
		put(dev, pub{topic: topic, payload: "1"})
		put(dev, pub{topic: topic, payload: "2"})
		for qos := range byte(3) {
			sub := dial(t, x.Addr(), hello{id: "s", user: "sub", version: v})
			retainSub(sub, qos, topic)
			m := sub.wantMsg()
			if !m.retain || m.qos != min(qos, 1) || m.topic != topic || !strings.HasPrefix(m.payload, `{"value":2,`) || !strings.Contains(m.payload, `"quality":"good"`) {
				t.Errorf("v%d QoS %d: %+v", v, qos, m)
			}
			if m.qos > 0 {
				sub.puback(m.id)
			}
			sub.alive()
			put(dev, pub{topic: topic, payload: "2"})
			if m := sub.wantMsg(); m.retain {
				t.Errorf("v%d: a live value came retained", v)
			}
		}
	}
}

// [MQTT-3.3.1-9] [MQTT-3.3.1-10] [MQTT-3.3.1-11] Retain handling, for stored and for ordinary topics.
func TestMQTT_3_3_1_9(t *testing.T) {
	x := open(t, setting{})
	dev := dial(t, x.Addr(), hello{id: "d", user: "dev"})
	for _, topic := range []string{full("line1/a"), "plain/a"} {
		put(dev, pub{topic: topic, payload: "1", retain: true})
		for handling, want := range map[byte][2]bool{0: {true, true}, 1: {true, false}, 2: {false, false}} {
			sub := dial(t, x.Addr(), hello{id: "s", user: "sub"})
			for i, expect := range want {
				retainSub(sub, handling<<4, topic)
				if expect {
					if m := sub.wantMsg(); !m.retain {
						t.Errorf("%s handling %d, subscription %d: not retained", topic, handling, i)
					}
				}
				sub.alive()
			}
			// Unsubscribed, the filter is new again.
			sub.write(frame(0xA2, []byte{0, 9, 0}, str(topic)))
			sub.want(0xB0)
			retainSub(sub, handling<<4, topic)
			if handling < 2 {
				sub.wantMsg()
			}
			sub.alive()
		}
	}
}

// The flag of a live message is 0, or as published where the subscriber asks for that.
func TestRetainAsPublished(t *testing.T) {
	x := open(t, setting{})
	dev := dial(t, x.Addr(), hello{id: "d", user: "dev"})
	for _, topic := range []string{full("line1/a"), "plain/a"} {
		asIs := dial(t, x.Addr(), hello{id: "s", user: "sub"})
		retainSub(asIs, 8|2<<4, topic)
		plain := dial(t, x.Addr(), hello{id: "s2", user: "sub"})
		retainSub(plain, 2<<4, topic)
		for _, retain := range []bool{true, false} {
			put(dev, pub{topic: topic, payload: "1", retain: retain})
			if m := asIs.wantMsg(); m.retain != retain {
				t.Errorf("%s: published with retain %v, as published %v", topic, retain, m.retain)
			}
			if m := plain.wantMsg(); m.retain {
				t.Errorf("%s: retain on a live message", topic)
			}
		}
	}
}

// No-local holds for stored topics too, whichever topic the client published to.
func TestNoLocalValues(t *testing.T) {
	x := open(t, setting{})
	dev := dial(t, x.Addr(), hello{id: "d", user: "dev"})
	other := dial(t, x.Addr(), hello{id: "o", user: "dev"})
	retainSub(dev, 4|2<<4, full("#"))
	put(dev, pub{topic: full("line1/a"), payload: "1"})
	put(dev, pub{topic: full("_ingress/dev/line1/a"), payload: "2"})
	put(other, pub{topic: full("line1/a"), payload: "3"})
	if m := dev.wantMsg(); !strings.HasPrefix(m.payload, `{"value":3,`) {
		t.Errorf("got its own %v", m)
	}
	dev.alive()
}

// The subscription identifier comes with retained messages.
func TestRetainedIdentifier(t *testing.T) {
	x := open(t, setting{})
	dev := dial(t, x.Addr(), hello{id: "d", user: "dev"})
	sub := dial(t, x.Addr(), hello{id: "s", user: "sub"})
	for i, topic := range []string{full("line1/a"), "plain/a"} {
		put(dev, pub{topic: topic, payload: "1", retain: true})
		sub.write(subscribe(5, 3, []byte{0x0B, byte(40 + i)}, 0, topic))
		sub.want(0x90)
		if m := sub.wantMsg(); string(m.properties) != string([]byte{0x0B, byte(40 + i)}) {
			t.Errorf("%s: properties %x", topic, m.properties)
		}
	}
}

// Grants are held against each topic, and against the rules as they are while the replay runs.
func TestRetainedGrants(t *testing.T) {
	x := open(t, setting{})
	x.add("half", "allow subscribe uns #", "deny subscribe uns secret/#", "allow subscribe mqtt #", "deny subscribe mqtt plain/secret")
	dev := dial(t, x.Addr(), hello{id: "d", user: "dev"})
	for _, topic := range []string{full("line1/a"), full("secret/a"), full("zzz"), "plain/a", "plain/secret"} {
		put(dev, pub{topic: topic, payload: "1", retain: true})
	}
	half := dial(t, x.Addr(), hello{id: "s", user: "half", properties: []byte{0x21, 0, 1}})
	retainSub(half, 1, "#")
	m := half.wantMsg()
	if m.topic != "plain/a" {
		t.Fatalf("got %s", m.topic)
	}
	half.puback(m.id)
	if m = half.wantMsg(); m.topic != full("line1/a") {
		t.Fatalf("got %s", m.topic)
	}
	x.grant("half", "allow subscribe uns #", "deny subscribe uns zzz")
	half.puback(m.id)
	half.alive() // zzz is denied by now
}

// An empty retained payload clears the last value; who listens gets the empty message, the next value restores it.
func TestClearedValue(t *testing.T) {
	x := open(t, setting{})
	topic := full("line1/a")
	for _, v := range versions {
		dev := dial(t, x.Addr(), hello{id: "d", user: "dev", version: v})
		sub := dial(t, x.Addr(), hello{id: "s", user: "sub", version: v})
		retainSub(sub, 0, topic)
		put(dev, pub{topic: topic, payload: "1"})
		for sub.wantMsg().retain { // what the round before left
		}
		if code := put(dev, pub{topic: full("_ingress/dev/line1/a"), retain: true}); code != 0 {
			t.Fatalf("clearing: %02x", code)
		}
		if m := sub.wantMsg(); m.payload != "" || m.topic != topic || m.retain {
			t.Fatalf("the subscriber got %+v", m)
		}
		late := dial(t, x.Addr(), hello{id: "l", user: "sub", version: v})
		retainSub(late, 0, topic)
		late.alive()
		if s, ok := x.catalog.Latest(x.catalog.Lookup("main", "line1/a")); !ok || s.Value.Mant != 1 {
			t.Errorf("latest is %v %v", s, ok)
		}
		put(dev, pub{topic: topic, payload: "2"})
		if m := late.wantMsg(); m.retain {
			t.Error("a live value came retained")
		}
		later := dial(t, x.Addr(), hello{id: "l2", user: "sub", version: v})
		retainSub(later, 0, topic)
		if m := later.wantMsg(); !m.retain || !strings.HasPrefix(m.payload, `{"value":2,`) {
			t.Errorf("restored: %+v", m)
		}
	}
}

// [MQTT-3.1.2-7] [MQTT-3.3.1-5] [MQTT-3.3.1-6] [MQTT-3.3.1-7] [MQTT-3.3.1-8] [MQTT-3.3.1-10] [MQTT-3.3.1-11] [MQTT-3.3.1-12] Ordinary topics:
// stored before the acknowledgement, replaced, cleared, with QoS and properties; all of it over a restart.
func TestMQTT_3_3_1_5(t *testing.T) {
	x := open(t, setting{})
	dev := dial(t, x.Addr(), hello{id: "d", user: "dev"})
	properties := append([]byte{0x01, 1, 0x03}, str("text/plain")...)
	properties = append(append(append(properties, 0x26), str("k")...), str("v")...)
	put(dev, pub{topic: "plain/a", payload: "first", retain: true})
	put(dev, pub{topic: "plain/a", payload: "second", retain: true, properties: properties})
	put(dev, pub{topic: "plain/a", payload: "not retained"})
	put(dev, pub{topic: "plain/b", payload: "gone", retain: true})
	put(dev, pub{topic: "plain/b", retain: true})
	put(dev, pub{topic: "plain/never", retain: true})
	dev.pub(pub{topic: "plain/q0", payload: "zero", retain: true})
	dev.alive()
	check := func(when string, x *box) {
		t.Helper()
		sub := dial(t, x.Addr(), hello{id: "s", user: "sub"})
		retainSub(sub, 1, "plain/#")
		m := sub.wantMsg()
		if m.topic != "plain/a" || m.payload != "second" || !m.retain || m.qos != 1 || string(m.properties) != string(properties) {
			t.Errorf("%s: %+v", when, m)
		}
		if m = sub.wantMsg(); m.topic != "plain/q0" || m.payload != "zero" || m.qos != 0 {
			t.Errorf("%s: %+v", when, m)
		}
		sub.alive()
	}
	check("at once", x)
	if n := x.metric("millrace_broker_retained_messages", ""); n != 2 {
		t.Errorf("%v retained messages shown", n)
	}
	x.stop()
	check("after a restart", open(t, setting{store: x.store}))
}

// No acknowledgement before the retained message is durable, and nothing kept when the store fails.
func TestRetainedOrdinaryNeedsTheStore(t *testing.T) {
	x := open(t, setting{})
	dev := dial(t, x.Addr(), hello{id: "d", user: "dev"})
	dev.alive()
	x.store.onAppend(func(context.Context, int) error { return context.Canceled })
	dev.pub(pub{topic: "plain/a", payload: "1", retain: true, qos: 1, id: 4})
	dev.disconnected(0x80)
	x.store.onAppend(nil)
	sub := dial(t, x.Addr(), hello{id: "s", user: "sub"})
	retainSub(sub, 0, "plain/#")
	sub.alive()
	dev = dial(t, x.Addr(), hello{id: "d", user: "dev"})
	put(dev, pub{topic: "plain/a", payload: "2", retain: true}) // the topic is not claimed for ever
}

// A retained message expires, and until then tells what is left.
func TestRetainedExpiry(t *testing.T) {
	x := open(t, setting{})
	dev := dial(t, x.Addr(), hello{id: "d", user: "dev"})
	put(dev, pub{topic: "plain/a", payload: "1", retain: true, properties: []byte{0x02, 0, 0, 0, 100}})
	x.clock.advance(40 * time.Second)
	sub := dial(t, x.Addr(), hello{id: "s", user: "sub"})
	retainSub(sub, 0, "plain/a")
	if m := sub.wantMsg(); len(m.properties) != 5 || m.properties[0] != 2 || m.properties[4] < 58 || m.properties[4] > 60 {
		t.Errorf("properties %x", m.properties)
	}
	x.clock.advance(70 * time.Second)
	retainSub(sub, 0, "plain/a")
	sub.alive()
}

// Retained messages of ordinary topics are bounded; the refusal is told, counted and shown, and what expired makes room.
func TestRetainedBound(t *testing.T) {
	x := open(t, setting{})
	x.BoundRetained(2, 1000)
	dev := dial(t, x.Addr(), hello{id: "d", user: "dev"})
	put(dev, pub{topic: "plain/a", payload: "1", retain: true})
	put(dev, pub{topic: "plain/b", payload: "1", retain: true, properties: []byte{0x02, 0, 0, 0, 100}})
	dev.pub(pub{topic: "plain/c", payload: "1", retain: true, qos: 1, id: 5})
	if code, reason := dev.ackOf(5); code != 0x97 || !strings.HasPrefix(reason, "topic_limit: ") {
		t.Errorf("%02x %q", code, reason)
	}
	if code := put(dev, pub{topic: "plain/a", payload: strings.Repeat("x", 1000), retain: true}); code != 0x97 {
		t.Errorf("too many octets: %02x", code)
	}
	if code := put(dev, pub{topic: "plain/a", payload: "22", retain: true}); code != 0 {
		t.Errorf("replaced: %02x", code)
	}
	x.clock.advance(101 * time.Second)
	if code := put(dev, pub{topic: "plain/c", payload: "1", retain: true}); code != 0 {
		t.Errorf("after one expired: %02x", code)
	}
	if n := x.in.Source("dev").Refused()["topic_limit"]; n != 2 {
		t.Errorf("%d refusals shown", n)
	}
}

// Connections that change one topic at once leave disk and memory with the same message.
func TestRetainedRaces(t *testing.T) {
	x := open(t, setting{})
	done := make(chan struct{})
	for i := range 4 {
		c := dial(t, x.Addr(), hello{id: fmt.Sprint("d", i), user: "dev"})
		go func() {
			defer func() { done <- struct{}{} }()
			for n := range 50 {
				for k, topic := range []string{"plain/a", "plain/b", "plain/c"} {
					p := pub{topic: topic, payload: fmt.Sprintf("%d-%d", i, n), retain: true, qos: 1, id: uint16(1 + k)}
					if (n+i+k)%5 == 0 {
						p.payload = ""
					}
					c.write(p.bytes(5))
				}
				for range 3 {
					if _, err := c.read(patience); err != nil {
						t.Error(err)
						return
					}
				}
			}
		}()
	}
	for range 4 {
		<-done
	}
	look := func(x *box) (all string) {
		c := dial(t, x.Addr(), hello{id: "s", user: "sub"})
		retainSub(c, 0, "plain/#")
		c.write([]byte{0xC0, 0})
		for {
			p, err := c.read(patience)
			if err != nil {
				t.Fatal(err)
			}
			if p.first == 0xD0 {
				return all
			}
			m := c.parse(p)
			all += m.topic + "=" + m.payload + " "
		}
	}
	before := look(x)
	x.stop()
	if after := look(open(t, setting{store: x.store})); after != before {
		t.Errorf("before the restart %q, after %q", before, after)
	}
}

// 50,000 retained values to one reader with Receive Maximum 20: paced, none lost to the bound of its queue, and no memory
// that grows with their number.
func TestReplayOfManyIsPacedAndWhole(t *testing.T) {
	const topics = 50_000
	x := open(t, setting{})
	batch := &uns.Batch{}
	for i := range topics {
		batch.Messages = append(batch.Messages, uns.Message{Workspace: "main", Path: fmt.Sprintf("line%d/m%d/t%d", i%7, i%100, i), Payload: []byte("1")})
		if len(batch.Messages) == 1000 {
			if err := x.in.Accept(t.Context(), batch); err != nil {
				t.Fatal(err)
			}
			batch.Reset()
		}
	}
	sub := dial(t, x.Addr(), hello{id: "s", user: "sub", properties: []byte{0x21, 0, 20}})
	runtime.GC()
	var before, during runtime.MemStats
	runtime.ReadMemStats(&before)
	retainSub(sub, 1, "mHv1.0/#")
	for range 20 {
		sub.wantMsg()
	}
	sub.write([]byte{0xC0, 0})
	sub.want(0xD0) // a full window: nothing more comes
	runtime.GC()
	runtime.ReadMemStats(&during)
	if grown := int64(during.HeapInuse) - int64(before.HeapInuse); grown > 4<<20 {
		t.Errorf("%d KiB more heap while 49,980 values wait", grown>>10)
	}
	seen := make(map[string]bool, topics)
	next := uint16(1)
	for range 20 {
		sub.puback(next)
		next++
	}
	for len(seen) < topics-20 {
		m := sub.wantMsg()
		if seen[m.topic] || !m.retain || m.qos != 1 {
			t.Fatalf("after %d: %+v, twice %v", len(seen), m, seen[m.topic])
		}
		seen[m.topic] = true
		sub.puback(m.id)
	}
	sub.alive()
	if n := x.metric("millrace_broker_messages_dropped_total", ""); n != 0 {
		t.Errorf("%v dropped", n)
	}
}

var _ broker.Values = (*uns.Catalog)(nil)
