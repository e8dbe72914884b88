package broker_test

import (
	"bytes"
	"fmt"
	"math"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"millrace/broker"
)

// What has broken brokers before, as a list. Each row is done by many sockets at once, which stay open as long as the box
// lets them. Afterwards the box serves, has contained no panic, and what the sockets made it hold is within bounds.

// Octets of heap for 1,000 hostile sockets: of strangers, and of clients that have signed in and use what a client may have.
const (
	heapOfStrangers = 64 << 20
	heapOfClients   = 512 << 20
)

func TestHostileList(t *testing.T) {
	connect := func(i int) []byte {
		return hello{id: fmt.Sprint("h", i), user: "dev", properties: []byte{0x11, 0, 0, 0, 0}}.bytes()
	}
	after := func(b ...[]byte) func(i int) []byte {
		return func(i int) []byte { return append(connect(i), bytes.Join(b, nil)...) }
	}
	only := func(b ...[]byte) func(int) []byte { return func(int) []byte { return bytes.Join(b, nil) } }
	willed := func(properties []byte, topic string) func(int) []byte {
		return func(i int) []byte {
			return hello{id: fmt.Sprint("w", i), user: "dev", flags: 4, afterID: join(props(5, properties), str(topic), str("x"))}.bytes()
		}
	}
	var unreleased []byte
	for id := 1; id <= 1200; id++ { // more than Receive Maximum
		unreleased = append(unreleased, pub{topic: "plain/x", payload: "x", qos: 2, id: uint16(id)}.bytes(5)...)
	}
	var unknown []byte
	for id := 1; id <= 2000; id++ {
		unknown = append(unknown, 0x40, 2, byte(id>>8), byte(id), 0x70, 2, byte(id>>8), byte(id))
	}
	var aliases []byte
	for n := 1; n <= 64; n++ {
		aliases = append(aliases, pub{topic: fmt.Sprint("plain/", strings.Repeat("x", 1000), n), payload: "x", properties: []byte{0x23, 0, byte(n)}}.bytes(5)...)
	}
	var topics []byte
	for n := range 300 {
		topics = append(topics, pub{topic: fmt.Sprint("plain/", n, strings.Repeat("/y", 40)), payload: "x"}.bytes(5)...)
	}
	var filters []byte
	for n := range 200 {
		filters = append(filters, subscribe(5, uint16(n+1), nil, 0, fmt.Sprint("plain/", n, strings.Repeat("/+", 60)))...)
	}
	rows := []struct {
		name   string // and who had it
		client bool   // it has signed in
		send   func(i int) []byte
	}{
		{"nothing at all", false, only()},
		{"a length of 268 MB (mochi)", false, only([]byte{0x10, 0xFF, 0xFF, 0xFF, 0x7F, 0, 4})},
		{"PUBLISH of 268 MB first (CVE-2023-0809)", false, only([]byte{0x30, 0xFF, 0xFF, 0xFF, 0x7F}, make([]byte, 4000))},
		{"a length of five octets (CVE-2026-21888)", false, only([]byte{0x10, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F})},
		{"most of a large CONNECT", false, only([]byte{0x10, 0xF0, 0xFF, 0x03, 0, 4, 'M', 'Q', 'T', 'T', 5}, make([]byte, 30000))},
		{"CONNACK after CONNECT (Mosquitto 2163)", true, after([]byte{0x20, 2, 0, 0})},
		{"a topic of no length (CVE-2021-34432)", true, after(pub{payload: "x", qos: 1, id: 1}.bytes(5), pub{payload: "x"}.bytes(5))},
		{"SUBSCRIBE cut at its filter (mochi 501, 502)", true, after([]byte{0x82, 6, 0, 1, 0, 0, 1, 'a'})},
		{"a will with properties that are none (CVE-2023-3592)", true, willed([]byte{0x23, 0, 1, 0x01, 2}, "plain/w")},
		{"a will to topics of the box (Mosquitto)", true, willed(nil, "$SYS/x")},
		{"QoS 2 that is never released (CVE-2023-28366, aedes)", true, after(unreleased)},
		{"acks of nothing (Mosquitto 3674)", true, after(unknown)},
		{"large aliases", true, after(aliases)},
		{"many topics", true, after(topics)},
		{"many deep filters", true, after(filters)},
		{"never reads", true, after(subscribe(5, 1, nil, 1, "plain/#"), bytes.Repeat([]byte{0xC0, 0}, 20000))},
		{"a packet a little too large", true, after([]byte{0x32, 0x81, 0x80, 0x40}, make([]byte, 1<<16))},
	}
	sockets := 20
	if os.Getenv("MILLRACE_LONG") != "" {
		sockets = 1000
	}
	x := open(t, setting{broker: func(o *broker.Options) {
		o.Limits.ConnectTimeout, o.Limits.ConnectRatePerSec, o.Limits.FlappingLimit, o.Limits.MaxSubscriberQueueBytes = time.Minute, 0, 0, 64<<10
	}})
	device := dial(t, x.Addr(), hello{id: "device", user: "dev"})
	for _, row := range rows {
		var before, held runtime.MemStats
		collect(&before)
		var conns []net.Conn
		for i := range sockets {
			c, err := net.Dial("tcp", x.Addr())
			if err != nil {
				t.Fatal(err)
			}
			conns = append(conns, c)
			_ = c.SetWriteDeadline(time.Now().Add(200 * time.Millisecond)) // who is not read any more has done his worst
			_, _ = c.Write(row.send(i))
		}
		device.publishes(full("a"), 50, values) // the box goes on meanwhile
		bound := int64(heapOfStrangers)
		if row.client {
			bound = heapOfClients
		}
		// The least of a few looks: what is read and let go of again while we look is not held.
		per := int64(math.MaxInt64)
		for look := 0; look < 6 && per > bound; look++ {
			if look > 0 {
				time.Sleep(100 * time.Millisecond)
			}
			collect(&held)
			per = min(per, (int64(held.HeapAlloc)-int64(before.HeapAlloc))*1000/int64(sockets))
		}
		t.Logf("%-55s %6.1f MB for 1,000 sockets", row.name, float64(per)/(1<<20))
		if per > bound {
			t.Errorf("%s: %d MB for 1,000 sockets, above %d", row.name, per>>20, bound>>20)
		}
		for _, c := range conns {
			_ = c.Close()
		}
		eventually(t, row.name+": all are gone", func() bool { return x.metric("millrace_broker_connections", "") == 1 })
		device.alive()
	}
	if n := x.metric("millrace_broker_contained_panics_total", ""); n != 0 {
		t.Errorf("%v panics", n)
	}
	if n := x.IndexSize(); n != 0 {
		t.Errorf("%d entries left in the index", n)
	}
}

// collect reads what is held. What a pool holds goes with the second collection.
func collect(m *runtime.MemStats) {
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(m)
}

// Deep filters cost the index memory by the level, so all of a session together are bounded, in one SUBSCRIBE or in many.
func TestFilterLevelsAreBounded(t *testing.T) {
	x := open(t, setting{})
	deep := func(n int) string { return fmt.Sprint(n, strings.Repeat("/+", 127)) }
	taken := func(codes []byte) (n int) {
		for _, code := range codes {
			switch code {
			case 0:
				n++
			case 0x97:
			default:
				t.Fatalf("code %02x", code)
			}
		}
		return n
	}
	var many []string
	for n := range 300 {
		many = append(many, deep(n))
	}
	c := dial(t, x.Addr(), hello{id: "c", user: "dev"})
	if n := taken(c.sub(0, many...)); n != 256 {
		t.Errorf("%d deep filters are taken in one SUBSCRIBE", n)
	}
	if n := taken(c.sub(0, many[:2]...)); n != 2 {
		t.Error("a filter that is there may be replaced")
	}
	if n := taken(c.sub(0, "plain")); n != 0 {
		t.Error("beyond the bound")
	}
	c.unsubscribe(1, many[0])
	if n := taken(c.sub(0, "plain", many[0])); n != 1 {
		t.Error("an UNSUBSCRIBE makes room")
	}
	d := dial(t, x.Addr(), hello{id: "d", user: "dev"})
	total := 0
	for i := 0; i < 300; i += 30 {
		total += taken(d.sub(0, many[i:i+30]...))
	}
	if total != 256 {
		t.Errorf("%d deep filters are taken in ten SUBSCRIBEs", total)
	}
}
