package broker_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"millrace/auth"
	"millrace/broker"
)

// person signs in with a token of a role, by any name.
func (x *box) person(role auth.Role, h hello) (*client, string) {
	x.t.Helper()
	id, text, err := x.book.AddToken("a "+string(role), role, 0)
	if err != nil {
		x.t.Fatal(err)
	}
	h.user, h.password = "anybody", text
	if h.id == "" {
		h.id = string(role)
	}
	return dial(x.t, x.Addr(), h), id
}

// Who may subscribe to what with a personal access token, and that nothing can be published with one.
func TestPeopleLookOverMQTT(t *testing.T) {
	x := open(t, setting{})
	for role, may := range map[auth.Role]map[string]byte{
		auth.RoleViewer:   {full("#"): 0, "plain/#": 0x87, "#": 0, "$SYS/#": 0x87, "$SYS/broker/uptime": 0x87, "$other/#": 0x87, "$share/g/$SYS/#": 0x87},
		auth.RoleOperator: {full("#"): 0, "plain/#": 0x87, "#": 0, "$SYS/#": 0x87},
		auth.RoleDesigner: {full("#"): 0, "plain/#": 0x87, "#": 0, "$SYS/#": 0x87},
		auth.RoleAdmin:    {full("#"): 0, "plain/#": 0, "#": 0, "$SYS/#": 0, "$SYS/broker/uptime": 0, "$other/#": 0x87, "$share/g/$SYS/#": 0},
	} {
		c, _ := x.person(role, hello{})
		for filter, want := range may {
			c.write(subscribe(5, 7, nil, 0, filter))
			for { // retained figures may stand before
				p, err := c.read(patience)
				if err != nil {
					t.Fatal(err)
				}
				if p.first == 0x90 {
					if got := p.body[len(p.body)-1]; got != want {
						t.Errorf("%s: %s: %02x, want %02x", role, filter, got, want)
					}
					break
				}
			}
		}
		for _, topic := range []string{full("a"), "plain/x", "$SYS/broker/uptime", "mHv1.0/main/_ingress/anybody/a"} {
			d, _ := x.person(role, hello{id: fmt.Sprint(role, topic)})
			d.pub(pub{topic: topic, payload: "1", qos: 1, id: 1})
			if code, _ := d.ackOf(1); code != 0x87 && code != 0x90 {
				t.Errorf("%s may publish %s: %02x", role, topic, code)
			}
		}
	}
	for _, user := range []string{"dev", "line"} {
		c := dial(t, x.Addr(), hello{id: user, user: user})
		if codes := c.sub(0, "$SYS/#", "$SYS/broker/version"); codes[0] != 0x87 || codes[1] != 0x87 {
			t.Errorf("%s: $SYS %x", user, codes)
		}
		c.pub(pub{topic: "$SYS/broker/uptime", payload: "1", qos: 1, id: 1})
		if code, _ := c.ackOf(1); code != 0x87 {
			t.Errorf("%s publishes in $SYS: %02x", user, code)
		}
	}
	// what is delivered follows the same rule
	dev := dial(t, x.Addr(), hello{id: "dev", user: "dev"})
	viewer, _ := x.person(auth.RoleViewer, hello{id: "v2"})
	admin, _ := x.person(auth.RoleAdmin, hello{id: "a2"})
	viewer.mustSub(0, "#")
	admin.mustSub(0, "#")
	dev.send(pub{topic: "plain/x", payload: "ordinary"})
	dev.send(pub{topic: full("a"), payload: "1"})
	if m := viewer.wantMsg(); m.topic != full("a") {
		t.Errorf("a viewer got %+v", m)
	}
	got := []string{admin.wantMsg().topic, admin.wantMsg().topic}
	slices.Sort(got)
	if strings.Join(got, " ") != full("a")+" plain/x" {
		t.Errorf("an admin got %v", got)
	}
}

// The end of a token ends its sessions, whether it is deleted or runs out; a session of a person is not kept.
func TestPeoplesSessionsEndWithTheirTokens(t *testing.T) {
	x := open(t, setting{})
	c, id := x.person(auth.RoleAdmin, hello{})
	if err := x.book.DeleteToken(id); err != nil {
		t.Fatal(err)
	}
	x.Inspect(x.clock.now())
	c.disconnected(0x87)

	_, text, err := x.book.AddToken("short", auth.RoleAdmin, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	c = dial(t, x.Addr(), hello{id: "short", user: "x", password: text})
	x.clock.advance(59 * time.Minute)
	x.Inspect(x.clock.now())
	c.alive()
	x.clock.advance(2 * time.Minute)
	x.Inspect(x.clock.now())
	c.disconnected(0x87)

	c, _ = x.person(auth.RoleAdmin, hello{id: "kept", persistent: true, properties: []byte{0x11, 0, 0, 1, 0}})
	_ = c.conn.Close()
	eventually(t, "it is gone", func() bool {
		return !slices.ContainsFunc(x.Sessions(), func(s broker.Session) bool { return s.MQTTID == "kept" })
	})
	if _, p := dialAny(t, x.Addr(), hello{id: "w", user: "anybody", password: "mr_nonsense"}); p.body[1] != 0x86 {
		t.Errorf("a token that is none: %v", p)
	}
}

// $SYS comes whole at SUBSCRIBE, as retained messages, then what changes every ten seconds; the figures are the box's.
func TestSystemTopics(t *testing.T) {
	x := open(t, setting{broker: func(o *broker.Options) { o.Version = "test" }})
	dev := dial(t, x.Addr(), hello{id: "dev", user: "dev"})
	dev.mustSub(0, "#") // which never matches $SYS
	for range 5 {
		dev.send(pub{topic: full("a"), payload: "1"})
		dev.wantMsg()
	}
	dev.send(pub{topic: "plain/kept", payload: "x", retain: true})
	dev.wantMsg()
	x.clock.advance(time.Minute)
	admin, _ := x.person(auth.RoleAdmin, hello{})
	admin.mustSub(1, "$SYS/#")
	read := func(n int, retain bool) map[string]string {
		t.Helper()
		got := map[string]string{}
		for range n {
			m := admin.wantMsg()
			if m.retain != retain {
				t.Errorf("retain %v: %+v", m.retain, m)
			}
			if m.qos == 1 {
				admin.puback(m.id)
			}
			got[strings.TrimPrefix(m.topic, "$SYS/broker/")] = m.payload
		}
		return got
	}
	first := read(21, true)
	admin.alive()
	for topic, want := range map[string]string{
		"version": "Millrace test", "uptime": "60 seconds", "clients/connected": "2", "clients/disconnected": "0", "clients/total": "2", "clients/maximum": "5000",
		"messages/received": "6", "messages/stored": "5", "messages/dropped": "0", "subscriptions/count": "2",
		"retained messages/count": "1", "publish/messages/received": "6",
	} {
		if first[topic] != want {
			t.Errorf("%s: %q, want %q", topic, first[topic], want)
		}
	}
	if len(first) != 21 {
		t.Errorf("%d topics: %v", len(first), slices.Sorted(maps.Keys(first)))
	}
	x.clock.advance(10 * time.Second)
	x.Inspect(x.clock.now())
	again := read(21, false)
	if again["uptime"] != "70 seconds" {
		t.Errorf("%v", again["uptime"])
	}
	x.Inspect(x.clock.now()) // nothing is due
	admin.alive()
	x.clock.advance(10 * time.Second)
	x.Inspect(x.clock.now())
	changed := map[string]bool{}
	for {
		admin.write([]byte{0xC0, 0})
		p, err := admin.read(patience)
		if err != nil {
			t.Fatal(err)
		}
		if p.first == 0xD0 {
			if len(changed) > 0 {
				break
			}
			continue
		}
		m := admin.parse(p)
		admin.puback(m.id)
		changed[strings.TrimPrefix(m.topic, "$SYS/broker/")] = true
	}
	if !changed["uptime"] || changed["version"] || changed["clients/maximum"] {
		t.Errorf("changed: %v", slices.Sorted(maps.Keys(changed)))
	}
	dev.alive()
	// a single figure
	other, _ := x.person(auth.RoleAdmin, hello{id: "other"})
	other.mustSub(0, "$SYS/broker/clients/+")
	for range 4 {
		if m := other.wantMsg(); !strings.HasPrefix(m.topic, "$SYS/broker/clients/") || !m.retain {
			t.Errorf("%+v", m)
		}
	}
	other.alive()
}
