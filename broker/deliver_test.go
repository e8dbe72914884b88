package broker_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"millrace/broker"
	"millrace/uns"
)

// settled waits until everything c has published was also announced, which comes after the acks.
func (c *client) settled() { c.t.Helper(); c.alive() }

// publishes sends n values to a path, in packets of one write each hundred, and reads the acks.
func (c *client) publishes(path string, n int, payload func(i int) string) {
	c.t.Helper()
	for i := 0; i < n; {
		var b []byte
		from := i
		for ; i < n && i < from+100; i++ {
			b = append(b, pub{topic: path, payload: payload(i), qos: 1, id: uint16(i%60000 + 1)}.bytes(c.version)...)
		}
		c.write(b)
		for k := from; k < i; k++ {
			if code, reason := c.ackOf(uint16(k%60000 + 1)); code != 0 {
				c.t.Fatalf("refused: %02x %s", code, reason)
			}
		}
	}
}

// Each filter gets its code; a subscription for QoS 2 is taken too [MQTT-3.2.2-10].
// Shared filters have a name without wildcards [MQTT-4.8.2-1] [MQTT-4.8.2-2].
func TestSubscribeCodes(t *testing.T) {
	x := open(t, setting{})
	cases := []struct {
		filter string
		code   byte // on v5, for user line; 1: granted
	}{
		{full("line1/#"), 1}, {full("line1/a"), 1}, {full("+/a"), 1}, {full("#"), 1}, {"mHv1.0/#", 1}, {"+/main/#", 1}, {"+/+/line1/a", 1}, {"#", 1},
		{"plain/#", 1}, {"+/x", 1}, {"mHv1.0/+/line2", 0x87},
		{full("_verdict/line/#"), 1}, {full("_verdict/+/x"), 1}, {full("_verdict/#"), 1}, {full("_verdict/dev/#"), 0x87},
		{full("line2/#"), 0x87}, {"mHv1.0/else/#", 0x87}, {"mHv1.0", 0x87}, {"else/#", 0x87}, {full("_ingress/#"), 0x87}, {full("_ingress/line/#"), 0x87}, {full("_x"), 0x87},
		{"$SYS/#", 0x87}, {"$x", 0x87}, {"$share/g/plain/#", 2}, {"$share/g/line2/#", 0x87}, {"$share", 0x8F}, {"$share/g", 0x8F}, {"$share//plain/a", 0x8F}, {"$share/+/plain/a", 0x8F}, {"$share/g/a#", 0x8F},
		{"", 0x8F}, {"a#", 0x8F}, {"a/b#", 0x8F}, {"a+", 0x8F}, {"+a/b", 0x8F}, {"#/a", 0x8F}, {"a/#/b", 0x8F}, {"a/+b", 0x8F},
		{strings.Repeat("a/", 130) + "a", 0x97},
	}
	for _, v := range versions {
		c := dial(t, x.Addr(), hello{id: fmt.Sprint("c", v), user: "line", version: v})
		for _, tc := range cases {
			want := tc.code
			if want == 1 {
				want = 2 // what was asked for
			}
			if v == 4 && want >= 0x80 {
				want = 0x80
			}
			if got := c.sub(2, tc.filter); len(got) != 1 || got[0] != want {
				t.Errorf("v%d %s: got %x, want %02x", v, tc.filter, got, want)
			}
		}
		if got := c.sub(0, "#", "a#", full("line1/b")); !bytes.Equal(got[:1], []byte{0}) || got[1] < 0x80 || got[2] != 0 {
			t.Errorf("v%d several filters: %x", v, got)
		}
	}
	// What was refused or malformed leaves nothing behind when the sessions have ended.
	x.stop()
	if n := x.IndexSize(); n != 0 {
		t.Errorf("%d entries left in the index", n)
	}
}

// A v5 SUBSCRIBE that ends with its filter panics the library; here it is refused before the library sees it.
func TestMalformedSubscribe(t *testing.T) {
	x := open(t, setting{})
	cases := []struct {
		name   string
		packet []byte
		code   byte
	}{
		{"filter is the last byte", []byte{0x82, 6, 0, 1, 0, 0, 1, 'a'}, 0x81},
		{"no filter", []byte{0x82, 3, 0, 1, 0}, 0x82},
		{"packet id 0", subscribe(5, 0, nil, 0, "a"), 0x82},
		{"flags 0", append([]byte{0x80}, subscribe(5, 1, nil, 0, "a")[1:]...), 0x81},
		{"QoS 3", subscribe(5, 1, nil, 3, "a"), 0x82},
		{"reserved bits", subscribe(5, 1, nil, 0x40, "a"), 0x82},
		{"retain handling 3", subscribe(5, 1, nil, 0x30, "a"), 0x82},
		{"identifier 0", subscribe(5, 1, []byte{0x0B, 0}, 0, "a"), 0x82},
		{"two identifiers", subscribe(5, 1, []byte{0x0B, 1, 0x0B, 2}, 0, "a"), 0x82},
		{"filter with NUL", subscribe(5, 1, nil, 0, "a\x00"), 0x81},
		{"filter not UTF-8", subscribe(5, 1, nil, 0, "\xc0"), 0x81},
		{"UNSUBSCRIBE without filter", []byte{0xA2, 3, 0, 1, 0}, 0x82},
		{"UNSUBSCRIBE cut", []byte{0xA2, 6, 0, 1, 0, 0, 9, 'a'}, 0x81},
		{"properties longer than the packet", []byte{0x82, 5, 0, 1, 100, 0, 1}, 0x81},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			c := dial(t, x.Addr(), hello{id: "c", user: "dev"})
			c.write(tc.packet)
			c.disconnected(tc.code)
		})
	}
	if n := x.metric("millrace_broker_contained_panics_total", ""); n != 0 {
		t.Errorf("%v panics reached", n)
	}
}

func TestMatching(t *testing.T) {
	cases := []struct {
		filter, topic string
		match         bool
	}{
		{full("line1/#"), full("line1"), true},
		{full("line1/#"), full("line1/a/b"), true},
		{full("+/#"), full("line1"), true},
		{full("line1/+"), full("line1/a"), true},
		{full("line1/+"), full("line1"), false},
		{full("line1"), full("line1/a"), false},
		{full("line1"), full("line10"), false},
		{"#", full("line1"), true},
		{"+/main/+", full("line1"), true},
		{"mHv1.0/+/line1", full("line1"), true},
		{full("#"), full("line1/_meta/x"), false}, // levels with _ match only filters that name them
		{full("line1/+/x"), full("line1/_meta/x"), false},
		{full("line1/_meta/#"), full("line1/_meta/x"), true},
		{full("line1/_meta/+"), full("line1/_meta/x"), true},
		{"+/_meta", "plain/_meta", true}, // a rule of the namespace only
		{"#", "plain/_meta", true},
		{"plain/#", "plain", true},
		{"+/plain", "/plain", true},
		{"/plain", "plain", false},
	}
	x := open(t, setting{})
	p := dial(t, x.Addr(), hello{id: "p", user: "dev"})
	for i, tc := range cases {
		s := dial(t, x.Addr(), hello{id: fmt.Sprint("s", i), user: "dev"})
		s.mustSub(2<<4, tc.filter)
		end := fmt.Sprint("end", i)
		s.mustSub(0, end)
		p.pub(pub{topic: tc.topic, payload: "1", qos: 1, id: 1})
		if code, reason := p.ackOf(1); code != 0 {
			t.Fatalf("%s refused: %s", tc.topic, reason)
		}
		p.pub(pub{topic: end, payload: "1"})
		got := false
		for m := s.wantMsg(); m.topic != end; m = s.wantMsg() { // read to the end, so that nothing of this case meets the next
			got = got || m.topic == tc.topic
		}
		if got != tc.match {
			t.Errorf("%s matches %s: %v", tc.filter, tc.topic, got)
		}
	}
}

func TestGrantsAtDelivery(t *testing.T) {
	x := open(t, setting{})
	s := dial(t, x.Addr(), hello{id: "s", user: "line"})
	s.mustSub(0, "#")
	p := dial(t, x.Addr(), hello{id: "p", user: "dev"})
	round := func(want ...string) {
		t.Helper()
		for _, topic := range []string{full("line1/a"), full("line2/a"), full("line3/a"), "else/x", "plain/x"} {
			p.pub(pub{topic: topic, payload: "1", qos: 1, id: 1})
			p.ackOf(1)
		}
		p.settled()
		for _, w := range want {
			if m := s.wantMsg(); m.topic != w {
				t.Fatalf("got %s, want %s", m.topic, w)
			}
		}
		s.alive()
	}
	round(full("line1/a"), "plain/x")
	x.grant("line", "allow subscribe uns +/a", "deny subscribe uns line2/#")
	round(full("line1/a"), full("line3/a"))
	x.grant("line", "allow publish uns line1/#")
	round()
	x.grant("line", "allow subscribe uns line2/#")
	round(full("line2/a"))
}

func TestOverlapIdentifiersAndQoS(t *testing.T) {
	x := open(t, setting{})
	p := dial(t, x.Addr(), hello{id: "p", user: "dev"})
	s := dial(t, x.Addr(), hello{id: "s", user: "sub"})
	s.write(subscribe(5, 1, []byte{0x0B, 0x80, 0x02}, 0, full("line1/#")))
	s.want(0x90)
	s.write(subscribe(5, 2, []byte{0x0B, 5}, 1, full("+/a")))
	s.want(0x90)
	s.mustSub(1, full("line1/a")) // without identifier
	p.publishes(full("line1/a"), 1, values)
	m := s.wantMsg()
	if m.qos != 1 || string(m.properties) != "\x0b\x05\x0b\x80\x02" {
		t.Fatalf("%+v", m)
	}
	s.puback(m.id)
	p.publishes(full("line1/b"), 1, values)
	if m := s.wantMsg(); m.qos != 0 || string(m.properties) != "\x0b\x80\x02" {
		t.Fatalf("%+v", m)
	}
	// A new SUBSCRIBE to a filter replaces the old one; UNSUBSCRIBE ends it.
	s.write(subscribe(5, 3, []byte{0x0B, 9}, 1|2<<4, full("line1/#")))
	s.want(0x90)
	s.write(frame(0xA2, []byte{0, 4, 0}, str(full("+/a")), str(full("line1/a")), str("never")))
	if u := s.want(0xB0); !bytes.Equal(u.body[3:], []byte{0, 0, 0x11}) {
		t.Fatal(u)
	}
	p.publishes(full("line1/a"), 1, values)
	if m := s.wantMsg(); m.qos != 1 || string(m.properties) != "\x0b\x09" {
		t.Fatalf("%+v", m)
	}
	s.write(frame(0xA2, []byte{0, 4, 0}, str(full("line1/#"))))
	s.want(0xB0)
	p.publishes(full("line1/a"), 1, values)
	p.settled()
	s.alive()
}

func TestOrdinaryMessages(t *testing.T) {
	x := open(t, setting{})
	c := dial(t, x.Addr(), hello{id: "c", user: "dev"})
	c.mustSub(1|4, "a/#")  // no local
	c.mustSub(1|8, "+/ap") // retain as published
	s := dial(t, x.Addr(), hello{id: "s", user: "dev", version: 4})
	s.mustSub(1, "a/#")
	extra := append(append([]byte{0x26}, append(str("k"), str("v")...)...), append([]byte{3}, str("text")...)...)
	c.pub(pub{topic: "a/x", payload: "free text", qos: 1, id: 1, properties: append([]byte{0x23, 0, 1, 2, 0, 0, 0, 60}, extra...)})
	c.ackOf(1)
	if m := s.wantMsg(); m.topic != "a/x" || m.payload != "free text" || m.qos != 1 {
		t.Fatalf("%+v", m)
	}
	c.alive() // no local
	d := dial(t, x.Addr(), hello{id: "d", user: "dev"})
	d.pub(pub{topic: "a/ap", payload: "r", retain: true, properties: append([]byte{2, 0, 0, 0, 60}, extra...)})
	m := c.wantMsg()
	if !m.retain || m.qos != 0 || !bytes.HasPrefix(m.properties, []byte{2, 0, 0, 0}) || !bytes.Equal(m.properties[5:], extra) {
		t.Fatalf("%+v", m)
	}
	if m := s.wantMsg(); m.retain || m.qos != 0 {
		t.Fatalf("%+v", m)
	}
	c.pub(pub{topic: "a/ap", payload: "own"}) // by +/ap only
	if m := c.wantMsg(); m.payload != "own" {
		t.Fatalf("%+v", m)
	}
	if n := x.store.stored(); n != 0 {
		t.Errorf("%d ordinary messages were stored", n)
	}
}

func TestReceiveMaximum(t *testing.T) {
	t.Parallel()
	x := open(t, setting{})
	s := dial(t, x.Addr(), hello{id: "s", user: "sub", properties: []byte{0x21, 0, 10}})
	s.mustSub(1, "#")
	p := dial(t, x.Addr(), hello{id: "p", user: "dev"})
	p.publishes(full("a"), 1000, values)
	var unacked []uint16
	seen := map[uint16]bool{}
	for i := range 1000 {
		m := s.wantMsg()
		if !strings.HasPrefix(m.payload, values(i)[:len(values(i))-1]+",") {
			t.Fatalf("message %d is %s", i, m.payload)
		}
		if m.dup || m.id == 0 || seen[m.id] {
			t.Fatalf("%+v", m)
		}
		seen[m.id] = true
		if unacked = append(unacked, m.id); len(unacked) > 10 {
			t.Fatal("more than 10 open")
		}
		if len(unacked) == 10 {
			s.puback(60000) // nobody's identifier opens nothing
			s.puback(unacked[0])
			s.puback(unacked[0])
			delete(seen, unacked[0])
			unacked = unacked[1:]
			if i == 500 {
				for _, id := range unacked {
					s.puback(id)
					delete(seen, id)
				}
				unacked = nil
			}
		}
	}
}

func TestWindowWithoutReceiveMaximum(t *testing.T) {
	x := open(t, setting{})
	s := dial(t, x.Addr(), hello{id: "s", user: "sub", version: 4})
	s.mustSub(1, "#")
	p := dial(t, x.Addr(), hello{id: "p", user: "dev"})
	p.publishes(full("a"), 150, values)
	p.settled()
	for range 100 {
		s.wantMsg()
	}
	s.alive()
	if n := x.Sessions()[1].Queued; n != 50 {
		t.Errorf("%d queued", n)
	}
	for name, want := range map[string]float64{"deliveries_queued": 50, "deliveries_inflight": 100, "subscriptions": 1, "connections_storing": 0} {
		if got := x.metric("millrace_broker_"+name, ""); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
}

// A client's own packet identifiers have nothing to do with ours.
func TestIdentifiersAreSeparate(t *testing.T) {
	x := open(t, setting{})
	s := dial(t, x.Addr(), hello{id: "s", user: "dev"})
	s.mustSub(1, full("a"))
	p := dial(t, x.Addr(), hello{id: "p", user: "dev"})
	p.publishes(full("a"), 1, values)
	m := s.wantMsg()
	s.pub(pub{topic: full("b"), payload: "1", qos: 1, id: m.id})
	s.ackOf(m.id)
	s.write(subscribe(5, m.id, nil, 1, full("c")))
	if a := s.want(0x90); a.body[3] != 1 {
		t.Fatal(a)
	}
	s.puback(m.id)
	p.publishes(full("a"), 1, values)
	s.wantMsg()
}

func TestSlowSubscriber(t *testing.T) {
	x := open(t, setting{broker: func(o *broker.Options) { o.Limits.MaxSubscriberQueue = 100 }})
	slow := dial(t, x.Addr(), hello{id: "slow", user: "sub", properties: []byte{0x21, 0, 1}})
	slow.mustSub(1, full("a"))
	p := dial(t, x.Addr(), hello{id: "p", user: "dev"})
	p.publishes(full("a"), 500, values)
	p.settled()
	first := slow.wantMsg()
	slow.alive()
	for i := 400; i < 500; i++ {
		slow.puback(first.id)
		first = slow.wantMsg()
		if !strings.HasPrefix(first.payload, fmt.Sprintf(`{"value":%d,`, i)) {
			t.Fatalf("want %d, got %s", i, first.payload)
		}
	}
	slow.puback(first.id)
	slow.alive()
	if n := x.metric("millrace_broker_messages_dropped_total", "queue_full"); n != 399 {
		t.Errorf("%v dropped, want 399", n)
	}
	if s := x.Sessions()[1]; s.MQTTID != "slow" || s.Dropped != 399 || s.Sent != 101 {
		t.Errorf("%+v", s)
	}
}

// A subscriber that does not read its socket costs at most its queue, and publishers do not wait for it.
func TestStalledSubscriber(t *testing.T) {
	x := open(t, setting{broker: func(o *broker.Options) { o.Limits.MaxSubscriberQueueBytes = 1 << 20 }})
	s := dial(t, x.Addr(), hello{id: "s", user: "sub", properties: []byte{0x21, 3, 0}})
	s.mustSub(0, "#")
	p := dial(t, x.Addr(), hello{id: "p", user: "dev"})
	large := `"` + strings.Repeat("x", 16<<10) + `"`
	p.publishes(full("a"), 1000, func(int) string { return large })
	p.settled()
	if n := x.metric("millrace_broker_messages_dropped_total", "queue_full"); n < 100 {
		t.Errorf("%v dropped", n)
	}
	for _, shown := range x.Sessions() {
		if shown.MQTTID == "s" && shown.Queued > 64 {
			t.Errorf("%d × 16 KiB queued", shown.Queued)
		}
	}
	if !x.Disconnect("s") {
		t.Error("not found")
	}
	eventually(t, "the stalled session has ended", func() bool { return len(x.Sessions()) == 1 })
	_ = s.conn.Close()
}

func TestClientMaximumPacketSize(t *testing.T) {
	x := open(t, setting{})
	s := dial(t, x.Addr(), hello{id: "s", user: "sub", properties: []byte{0x27, 0, 0, 0, 200}})
	s.mustSub(1, "#")
	p := dial(t, x.Addr(), hello{id: "p", user: "dev"})
	p.publishes(full("a"), 1, func(int) string { return `"` + strings.Repeat("x", 200) + `"` })
	p.publishes(full("a"), 1, values)
	if m := s.wantMsg(); !strings.HasPrefix(m.payload, `{"value":0`) {
		t.Fatalf("%+v", m)
	}
	if n := x.metric("millrace_broker_messages_dropped_total", "too_large"); n != 1 {
		t.Errorf("%v dropped", n)
	}
}

// Between SUBSCRIBE and the first delivery comes the SUBACK, however fast somebody publishes.
func TestSubackComesFirst(t *testing.T) {
	x := open(t, setting{})
	p := dial(t, x.Addr(), hello{id: "p", user: "dev"})
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				p.publishes(full("a"), 20, values)
			}
		}
	}()
	for i := range 100 {
		s := dial(t, x.Addr(), hello{id: fmt.Sprint("s", i), user: "sub"})
		s.write(subscribe(5, 1, nil, 0, full("a")))
		s.want(0x90)
		s.wantMsg()
		_ = s.conn.Close()
	}
	close(stop)
	<-done
}

func TestLiveQoS0(t *testing.T) {
	x := open(t, setting{broker: func(o *broker.Options) { o.LiveQoS = 0 }})
	s := dial(t, x.Addr(), hello{id: "s", user: "sub"})
	s.mustSub(1, "#")
	p := dial(t, x.Addr(), hello{id: "p", user: "dev"})
	p.publishes(full("a"), 1, values)
	if m := s.wantMsg(); m.qos != 0 {
		t.Fatalf("%+v", m)
	}
}

// Topics and sessions of different workspaces do not meet, even under filters that span them.
func TestWorkspacesAreApart(t *testing.T) {
	x := open(t, setting{uns: func(o *uns.Options) { o.Workspaces = []string{"main", "other"} }})
	c := dial(t, x.Addr(), hello{id: "c", user: "dev"})
	if got := c.sub(0, "mHv1.0/other/#", "+/other/#"); got[0] != 0x87 || got[1] != 0 {
		t.Fatalf("%x", got) // the second could match an ordinary topic
	}
	c.mustSub(0, "#")
	c.pub(pub{topic: "mHv1.0/other/a", payload: "1", qos: 1, id: 1})
	if code, reason := c.ackOf(1); code != 0x87 {
		t.Fatalf("%02x %s", code, reason)
	}
	// Written by the box itself, as a pipeline would.
	var b uns.Batch
	for _, w := range []string{"other", "main"} {
		b.Messages = append(b.Messages, uns.Message{Workspace: w, Path: "a", Payload: []byte("1")})
	}
	if err := x.in.Write(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	if m := c.wantMsg(); m.topic != full("a") {
		t.Fatalf("%+v", m)
	}
	c.alive()
}
