package broker_test

import (
	"fmt"
	"testing"
)

// heard collects the payloads that each member gets of n messages, by the order of the members.
func heard(t *testing.T, n int, members ...*client) []map[string]msg {
	t.Helper()
	got := make([]map[string]msg, len(members))
	total := 0
	for i, c := range members {
		got[i] = map[string]msg{}
		c.write([]byte{0xC0, 0})
		for {
			p, err := c.read(patience)
			if err != nil {
				t.Fatal(err)
			}
			if p.first == 0xD0 {
				break
			}
			m := c.parse(p)
			if _, twice := got[i][m.payload]; twice {
				t.Fatalf("%s twice", m.payload)
			}
			got[i][m.payload] = m
			total++
		}
	}
	if total != n {
		t.Fatalf("%d messages in all, want %d", total, n)
	}
	return got
}

// Each message goes to one member of a group, in turn, under the QoS granted to it [MQTT-4.8.2-3]; to every group, and to
// who subscribes without one.
func TestSharedSubscription(t *testing.T) {
	x := open(t, setting{})
	a := dial(t, x.Addr(), hello{id: "a", user: "sub"})
	b := dial(t, x.Addr(), hello{id: "b", user: "sub", version: 4})
	other := dial(t, x.Addr(), hello{id: "other", user: "sub"})
	alone := dial(t, x.Addr(), hello{id: "alone", user: "sub"})
	a.mustSub(1, "$share/g/plain/#", "$share/g/"+full("#"))
	b.mustSub(0, "$share/g/plain/#", "$share/g/"+full("#"))
	other.mustSub(1, "$share/h/plain/#")
	alone.mustSub(1, "plain/#", full("#"))
	p := dial(t, x.Addr(), hello{id: "p", user: "dev"})
	for i := range 10 {
		p.pub(pub{topic: "plain/x", payload: fmt.Sprint(i), qos: 1, id: uint16(i + 1)})
		p.ackOf(uint16(i + 1))
	}
	p.publishAll(full("v"), 0, 10)
	eventually(t, "all is sent", func() bool { return x.metric("millrace_broker_messages_sent_total", "") == 20+10+20 })
	got := heard(t, 20, a, b)
	if len(got[0]) != 10 || len(got[1]) != 10 {
		t.Errorf("%d and %d of 20", len(got[0]), len(got[1]))
	}
	for _, m := range got[0] {
		if m.qos != 1 {
			t.Fatalf("%+v", m)
		}
	}
	for _, m := range got[1] {
		if m.qos != 0 {
			t.Fatalf("%+v", m)
		}
	}
	heard(t, 10, other)
	heard(t, 20, alone)
	b.write(unsubscribeFrom(4, "$share/g/plain/#"))
	b.want(0xB0)
	p.pub(pub{topic: "plain/x", payload: "last", qos: 1, id: 77})
	p.ackOf(77)
	if m := a.wantMsg(); m.payload != "last" {
		t.Fatalf("%+v", m)
	}
	b.alive()
	x.stop()
	if n := x.IndexSize(); n != 0 {
		t.Errorf("%d entries left in the index", n)
	}
}

func unsubscribeFrom(version byte, filter string) []byte {
	return frame(0xA2, []byte{0, 9}, props(version, nil), str(filter))
}

// What a member that leaves has not acknowledged goes to another, but not a QoS 2 message that was sent [MQTT-4.8.2-5].
func TestSharedMessagesOfALeavingMember(t *testing.T) {
	x := open(t, setting{})
	a := dial(t, x.Addr(), hello{id: "a", user: "sub"})
	a.mustSub(2, "$share/g/plain/#")
	p := dial(t, x.Addr(), hello{id: "p", user: "dev"})
	for i := range 5 {
		p.pub(pub{topic: "plain/x", payload: fmt.Sprint(i), qos: 1, id: uint16(i + 1)})
		p.ackOf(uint16(i + 1))
	}
	p.pub(pub{topic: "plain/x", payload: "exactly", qos: 2, id: 9})
	p.want(0x50)
	for range 6 {
		a.wantMsg()
	}
	b := dial(t, x.Addr(), hello{id: "b", user: "sub"})
	b.mustSub(2, "$share/g/plain/#")
	_ = a.conn.Close()
	for i := range 5 {
		if m := b.wantMsg(); m.payload != fmt.Sprint(i) || m.qos != 1 {
			t.Fatalf("%+v", m)
		}
	}
	b.alive()
}

// Grants count for each member: a message goes to one that may have it.
func TestSharedSubscriptionAndGrants(t *testing.T) {
	x := open(t, setting{})
	a := dial(t, x.Addr(), hello{id: "a", user: "line"})
	b := dial(t, x.Addr(), hello{id: "b", user: "sub"})
	a.mustSub(1, "$share/g/"+full("#"))
	b.mustSub(1, "$share/g/"+full("#"))
	p := dial(t, x.Addr(), hello{id: "p", user: "dev"})
	p.publishAll(full("line2/x"), 0, 6)
	for range 6 {
		b.wantMsg()
	}
	a.alive()
}

// A member that is away gets messages only while no other is there; they are kept for it, also over a kill.
func TestSharedSubscriptionAndOfflineMembers(t *testing.T) {
	x := open(t, setting{})
	h := hello{id: "away", user: "sub", persistent: true, properties: forAnHour}
	a := dial(t, x.Addr(), h)
	a.mustSub(1, "$share/g/"+full("#"))
	b := dial(t, x.Addr(), hello{id: "b", user: "sub"})
	b.mustSub(1, "$share/g/"+full("#"))
	x.gone(a, "away")
	p := dial(t, x.Addr(), hello{id: "p", user: "dev"})
	p.publishAll(full("x"), 0, 4)
	b.wantValues(0, 4)
	x.gone(b, "b")
	p.publishAll(full("x"), 4, 8)
	y := restarts["kill -9"](t, x)
	a = dial(t, y.Addr(), h)
	a.wantValues(4, 8)
	p = dial(t, y.Addr(), hello{id: "p", user: "dev"})
	p.publishAll(full("x"), 8, 9)
	a.wantValues(8, 9) // the group is there again
}

// No Local on a shared subscription is a protocol error [MQTT-3.8.3-4].
func TestSharedSubscriptionHasNoNoLocal(t *testing.T) {
	x := open(t, setting{})
	c := dial(t, x.Addr(), hello{id: "c", user: "sub"})
	c.write(subscribe(5, 1, nil, 5, "$share/g/plain/a"))
	c.disconnected(0x82)
}
