package broker_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"millrace/broker"
)

// listOf splits the properties of a packet, as a client does, into "id value" in hexadecimal, sorted. list comes with its length.
func listOf(t testing.TB, list []byte) (all []string) {
	t.Helper()
	n, b := int(list[0]), list[1:]
	if n >= 0x80 {
		n, b = n&0x7F|int(list[1])<<7, list[2:]
	}
	if len(b) < n {
		t.Fatalf("properties %x are cut", list)
	}
	for b = b[:n]; len(b) > 0; {
		id, size := b[0], 0
		switch id {
		case 0x01, 0x17, 0x19, 0x24, 0x25, 0x28, 0x29, 0x2A:
			size = 1
		case 0x13, 0x21, 0x22, 0x23:
			size = 2
		case 0x02, 0x11, 0x18, 0x27:
			size = 4
		case 0x03, 0x08, 0x09, 0x12, 0x15, 0x16, 0x1A, 0x1C, 0x1F:
			size = 2 + int(binary.BigEndian.Uint16(b[1:]))
			all = append(all, fmt.Sprintf("%02x %q", id, b[3:1+size]))
			b = b[1+size:]
			continue
		default:
			t.Fatalf("property %02x is not expected here: %x", id, list)
		}
		all = append(all, fmt.Sprintf("%02x %x", id, b[1:1+size]))
		b = b[1+size:]
	}
	slices.Sort(all)
	return all
}

// What a CONNACK says and what it does not, in all three versions, success and refusals: MQTT 3.1 and 3.1.1 get a code and
// nothing else; MQTT 5 gets exactly what differs from what it may assume.
func TestConnackAnnouncements(t *testing.T) {
	always := []string{"21 03e8", "22 0040", "27 00100000"}
	and := func(more ...string) []string { return slices.Sorted(slices.Values(append(more, always...))) }
	text := func(id byte, s string) []byte { return append([]byte{id}, str(s)...) }
	cases := map[string]struct {
		hello
		code byte
		v3   byte // of MQTT 3.1 and 3.1.1; 0xFF: as MQTT 5 only
		want []string
	}{
		"plain":                         {hello: hello{id: "a"}, want: always},
		"no identifier":                 {hello: hello{}, want: and("12 *")},
		"expiry that is granted":        {hello: hello{id: "a", properties: []byte{0x11, 0, 0, 0, 9}}, v3: 0xFF, want: always},
		"expiry that is cut":            {hello: hello{id: "a", properties: []byte{0x11, 255, 255, 255, 255}}, v3: 0xFF, want: and("11 00015180")},
		"keep-alive within the limit":   {hello: hello{id: "a", keepAlive: 50}, want: always},
		"keep-alive beyond":             {hello: hello{id: "a", keepAlive: 900}, want: and("13 003c")},
		"aliases and windows offered":   {hello: hello{id: "a", properties: []byte{0x22, 0, 9, 0x21, 0, 9}}, v3: 0xFF, want: always},
		"response information asked":    {hello: hello{id: "a", properties: []byte{0x19, 1}}, v3: 0xFF, want: and(`1a "mHv1.0/main/_verdict/dev"`)},
		"response information, no room": {hello: hello{id: "a", properties: []byte{0x19, 1, 0x27, 0, 0, 0, 60}}, v3: 0xFF, want: always},
		"response information declined": {hello: hello{id: "a", properties: []byte{0x19, 0}}, v3: 0xFF, want: always},
		"wrong password":                {hello: hello{id: "a", password: "wrong"}, code: 0x86, v3: 5, want: []string{"1f *"}},
		"nobody":                        {hello: hello{id: "a", bare: true}, code: 0x86, v3: 5, want: []string{"1f *"}},
		"method":                        {hello: hello{id: "a", properties: text(0x15, "M")}, code: 0x8C, v3: 0xFF, want: []string{"1f *"}},
		"identifier of another":         {hello: hello{id: "taken"}, code: 0x85, v3: 2, want: []string{"1f *"}},
		"refused, no room for the word": {hello: hello{id: "a", password: "wrong", properties: []byte{0x27, 0, 0, 0, 20}}, code: 0x86, v3: 0xFF},
		"refused, no words wanted":      {hello: hello{id: "a", password: "wrong", properties: []byte{0x17, 0}}, code: 0x86, v3: 0xFF},
		"malformed":                     {hello: hello{id: "a", properties: []byte{0x23, 0, 1}}, code: 0x81, v3: 0xFF},
		"will nobody may publish":       {hello: hello{id: "a", user: "line", flags: 4}, code: 0x87, v3: 5, want: []string{"1f *"}},
	}
	x := open(t, setting{broker: func(o *broker.Options) { o.ServerKeepAlive = time.Minute }})
	dial(t, x.Addr(), hello{id: "taken", user: "sub"})
	for _, version := range []byte{3, 4, 5} {
		for _, name := range slices.Sorted(maps.Keys(cases)) {
			tc := cases[name]
			if version < 5 && tc.v3 == 0xFF {
				continue
			}
			t.Run(fmt.Sprintf("v%d/%s", version, name), func(t *testing.T) {
				h := tc.hello
				h.version = version
				if h.id == "a" {
					h.id = fmt.Sprintf("%d %s", version, name)
				}
				if h.user == "" {
					h.user = "dev"
				}
				if h.keepAlive == 0 {
					h.keepAlive = 30
				}
				if h.flags&4 != 0 {
					h.afterID = append(append(props(version, nil), str(full("forbidden"))...), str("x")...)
				}
				c, p := dialAny(t, x.Addr(), h)
				defer func() { _ = c.conn.Close() }()
				if version < 5 {
					if !bytes.Equal(p.body, []byte{0, tc.v3}) {
						t.Fatalf("CONNACK %v, want code %d and nothing else", p, tc.v3)
					}
				} else {
					if p.body[0] != 0 || p.body[1] != tc.code {
						t.Fatalf("CONNACK %v, want code %02x", p, tc.code)
					}
					got := listOf(t, p.body[2:])
					for i := range got {
						if i < len(tc.want) && tc.want[i][3:] == "*" && got[i][:3] == tc.want[i][:3] && len(got[i]) > len(`1f ""`) {
							got[i] = tc.want[i]
						}
					}
					if !slices.Equal(got, tc.want) {
						t.Errorf("announced %q, want %q", got, tc.want)
					}
				}
				if tc.code != 0 {
					c.ended()
				}
			})
		}
	}
}

// Without problem information no packet but CONNACK, DISCONNECT and PUBLISH has a reason string or user properties
// [MQTT-3.1.2-29]; what the client wrote into its requests does not come back in their answers, where it might not fit
// [MQTT-3.9.2-2] [MQTT-3.11.2-2]. What a publisher wrote into a message does come.
func TestProblemInformation(t *testing.T) {
	user := append(append([]byte{0x26}, str("k")...), str(string(bytes.Repeat([]byte("v"), 100)))...)
	for name, offer := range map[string][]byte{"declined": {0x17, 0}, "no room": {0x27, 0, 0, 0, 40}} {
		t.Run(name, func(t *testing.T) {
			x := open(t, setting{})
			c := dial(t, x.Addr(), hello{id: "c", user: "line", properties: offer})
			c.write(subscribe(5, 1, user, 1, "plain/s", full("forbidden"), "plain/+/x/#/y"))
			if p := c.want(0x90); len(p.body) != 6 {
				t.Errorf("SUBACK %v", p)
			}
			c.write(frame(0xA2, []byte{0, 2}, props(5, user), str("plain/other")))
			if p := c.want(0xB0); len(p.body) != 4 {
				t.Errorf("UNSUBACK %v", p)
			}
			for qos, first := range map[byte]byte{1: 0x40, 2: 0x50} {
				c.pub(pub{topic: full("forbidden"), payload: "1", qos: qos, id: 3, properties: user})
				if p := c.want(first); !bytes.Equal(p.body, []byte{0, 3, 0x87}) {
					t.Errorf("QoS %d: %v", qos, p)
				}
			}
			c.write(frame(0x62, []byte{0, 9}))
			if p := c.want(0x70); !bytes.Equal(p.body, []byte{0, 9, 0x92}) {
				t.Errorf("PUBCOMP %v", p)
			}
			c.write(frame(0x50, []byte{0, 9}))
			if p := c.want(0x62); !bytes.Equal(p.body, []byte{0, 9, 0x92}) {
				t.Errorf("PUBREL %v", p)
			}
			if name == "declined" {
				dial(t, x.Addr(), hello{id: "p", user: "line"}).pub(pub{topic: "plain/s", payload: "m", properties: user})
				if m := c.wantMsg(); !bytes.Equal(m.properties, user) {
					t.Errorf("%+v", m)
				}
			}
		})
	}
}
