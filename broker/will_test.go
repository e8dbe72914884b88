package broker_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"millrace/broker"
)

// willOf is what follows the client identifier of a CONNECT, and its flags.
func willOf(version byte, topic, payload string, qos byte, retain bool, properties []byte) (after []byte, flags byte) {
	flags = 4 | qos<<3
	if retain {
		flags |= 0x20
	}
	return append(append(props(version, properties), str(topic)...), str(payload)...), flags
}

// [MQTT-3.1.2-8] [MQTT-3.1.2-7] [MQTT-3.1.2-10] [MQTT-3.14.4-3] A will is published when the connection ends without the client's word, and on MQTT 5
// after a DISCONNECT that asks for it; not after an orderly one. Values go through the ingress, and are stored.
func TestMQTT_3_1_2_8(t *testing.T) {
	x := open(t, setting{})
	for _, v := range versions {
		sub := dial(t, x.Addr(), hello{id: "s", user: "sub", version: v})
		options := byte(1)
		if v == 5 {
			options |= 2 << 4 // not what the round before left
		}
		sub.mustSub(options, full("line1/#"), "plain/#", "marker")
		for _, topic := range []string{full(fmt.Sprintf("line1/v%d/status", v)), full(fmt.Sprintf("_ingress/dev/line1/v%d/status", v)), "plain/status"} {
			for how, published := range map[string]bool{"closed": true, "malformed": true, "kicked": true, "orderly": false, "0x04": true} {
				if how == "0x04" && v < 5 {
					continue
				}
				after, flags := willOf(v, topic, values(7), 1, false, nil)
				c := dial(t, x.Addr(), hello{id: "w", user: "dev", version: v, flags: flags, afterID: after})
				switch how {
				case "closed":
					_ = c.conn.Close()
				case "malformed":
					c.write([]byte{0xF0 | 1, 0})
				case "kicked":
					x.Disconnect("w")
				case "orderly":
					c.write([]byte{0xE0, 0})
				case "0x04":
					c.write([]byte{0xE0, 1, 4})
				}
				if published {
					m := sub.wantMsg()
					if m.qos > 0 {
						sub.puback(m.id)
					}
					if !strings.Contains(m.payload, `"value":7`) || !strings.HasSuffix(m.topic, "/status") || m.qos != 1 {
						t.Errorf("v%d %s, %s: %+v", v, topic, how, m)
					}
					continue
				}
				c.ended()
				again := dial(t, x.Addr(), hello{id: "w", user: "dev", version: v}) // the end of the first is over
				put(again, pub{topic: "marker", payload: how})
				if m := sub.wantMsg(); m.topic != "marker" {
					t.Errorf("v%d %s: an orderly end published %+v", v, topic, m)
				} else {
					sub.puback(m.id)
				}
			}
		}
	}
}

// [MQTT-3.1.2-14] [MQTT-3.1.2-15] [MQTT-3.1.3-10] [MQTT-3.1.2-16] [MQTT-3.1.2-17] Its retain flag, and its properties in their order.
func TestMQTT_3_1_2_14(t *testing.T) {
	x := open(t, setting{})
	kept := append([]byte{0x01, 1, 0x03}, str("text/plain")...)
	kept = append(append(append(kept, 0x08), str("plain/answer")...), 0x09, 0, 1, 'c')
	for _, k := range []string{"b", "a", "b"} {
		kept = append(append(append(kept, 0x26), str(k)...), str("v")...)
	}
	for _, v := range versions {
		for _, retain := range []bool{false, true} {
			sub := dial(t, x.Addr(), hello{id: "s", user: "sub", version: v})
			sub.mustSub(1, "plain/#")
			after, flags := willOf(v, "plain/status", "gone", 1, retain, append([]byte{0x18, 0, 0, 0, 0}, kept...))
			c := dial(t, x.Addr(), hello{id: "w", user: "dev", version: v, flags: flags, afterID: after})
			_ = c.conn.Close()
			m := sub.wantMsg()
			if m.payload != "gone" || v == 5 && string(m.properties) != string(kept) {
				t.Errorf("v%d: %+v", v, m)
			}
			sub.puback(m.id)
			late := dial(t, x.Addr(), hello{id: "l", user: "sub", version: v})
			late.mustSub(0, "plain/status")
			if retain {
				if m := late.wantMsg(); !m.retain || m.payload != "gone" {
					t.Errorf("v%d: %+v", v, m)
				}
			}
			late.alive()
		}
		dev := dial(t, x.Addr(), hello{id: "d", user: "dev", version: v})
		put(dev, pub{topic: "plain/status", retain: true})
	}
}

// [MQTT-3.1.3-9] A will with a delay waits for it, or for the end of the session; a client that comes back in time takes it back.
func TestMQTT_3_1_3_9(t *testing.T) {
	x := open(t, setting{})
	sub := dial(t, x.Addr(), hello{id: "s", user: "sub"})
	sub.mustSub(0, "plain/#")
	leave := func(id string, delay, expiry byte) {
		t.Helper()
		after, flags := willOf(5, "plain/"+id, "gone", 0, false, []byte{0x18, 0, 0, 0, delay})
		c := dial(t, x.Addr(), hello{id: id, user: "dev", flags: flags, afterID: after, properties: []byte{0x11, 0, 0, 0, expiry}})
		_ = c.conn.Close()
		eventually(t, id+" is gone", func() bool {
			for _, s := range x.Sessions() {
				if s.MQTTID == id && s.Remote != "" {
					return false
				}
			}
			return true
		})
	}
	leave("back", 10, 100)
	dial(t, x.Addr(), hello{id: "back", user: "dev", persistent: true, properties: []byte{0x11, 0, 0, 0, 100}})
	leave("late", 10, 100)
	sub.alive()
	x.clock.advance(11 * time.Second)
	if m := sub.wantMsg(); m.topic != "plain/late" {
		t.Errorf("%+v", m)
	}
	leave("short", 100, 5)
	x.clock.advance(6 * time.Second)
	if m := sub.wantMsg(); m.topic != "plain/short" {
		t.Errorf("%+v", m)
	}
	leave("anew", 100, 100)
	dial(t, x.Addr(), hello{id: "anew", user: "dev"}) // clean start ends the session
	if m := sub.wantMsg(); m.topic != "plain/anew" {
		t.Errorf("%+v", m)
	}
	sub.alive()
}

// A will that its client may not publish is refused at CONNECT; one that the store's judgement refuses is counted as its
// client's and published nowhere.
func TestWillRefusals(t *testing.T) {
	x := open(t, setting{})
	for _, tc := range []struct {
		topic   string
		code, v byte
	}{
		{full("line2/a"), 0x87, 5}, {full("line1/locked"), 0x87, 5}, {full("_ingress/dev/line1/a"), 0x87, 5}, {"other/a", 0x87, 5}, {"$SYS/a", 0x87, 5},
		{full("line2/a"), 5, 4}, {"other/a", 5, 4}, {full("a//b"), 0x90, 5},
	} {
		after, flags := willOf(tc.v, tc.topic, "1", 0, false, nil)
		c, p := dialAny(t, x.Addr(), hello{id: "w", user: "line", version: tc.v, flags: flags, afterID: after})
		if p.body[1] != tc.code || tc.v == 5 && !strings.Contains(string(p.body), "will: ") {
			t.Errorf("v%d %s: %v", tc.v, tc.topic, p)
		}
		c.ended()
	}
	after, flags := willOf(5, full("line1/a"), "no json", 0, false, nil)
	c := dial(t, x.Addr(), hello{id: "w", user: "line", flags: flags, afterID: after})
	_ = c.conn.Close()
	eventually(t, "the refusal is counted", func() bool { return x.in.Source("line").Refused()["payload_invalid"] == 1 })
	after, flags = willOf(5, "plain/a", "1", 0, false, nil)
	c = dial(t, x.Addr(), hello{id: "w", user: "line", flags: flags, afterID: after})
	x.grant("line", "allow publish uns line1/#")
	_ = c.conn.Close()
	eventually(t, "the grant is looked at again", func() bool { return x.in.Source("line").Refused()["not_authorized"] == 1 })
	if x.store.stored() != 0 {
		t.Error("something was stored")
	}
}

// A box that stops publishes the wills of those it sends away, and those that wait.
func TestWillsAtStop(t *testing.T) {
	x := open(t, setting{})
	for id, delay := range map[string]byte{"now": 0, "later": 100} {
		after, flags := willOf(5, full(id), values(1), 0, false, []byte{0x18, 0, 0, 0, delay})
		dial(t, x.Addr(), hello{id: id, user: "dev", flags: flags, afterID: after, properties: []byte{0x11, 0, 0, 0, 100}})
	}
	x.stop()
	if n := x.store.stored(); n != 2 {
		t.Errorf("%d wills stored", n)
	}
}

var _ = broker.DefaultOptions
