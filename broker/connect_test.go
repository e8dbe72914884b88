package broker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/broker"
	"millrace/uns"
)

// What is announced, the maximum QoS too [MQTT-3.2.2-9].
func TestConnack(t *testing.T) {
	x := open(t, setting{broker: func(o *broker.Options) { o.Limits.ReceiveMaximum = 77; o.Limits.MaxPacketSize = 70000 }})
	_, p := dialAny(t, x.Addr(), hello{id: "", user: "dev", persistent: true, properties: []byte{0x11, 0xFF, 0xFF, 0xFF, 0xFF}})
	if p.body[0] != 0 || p.body[1] != 0 {
		t.Fatalf("session present or refused: %v", p)
	}
	for name, want := range map[string][]byte{
		"receive maximum 77":                   {0x21, 0, 77},
		"maximum packet size":                  {0x27, 0, 1, 0x11, 0x70},
		"topic alias maximum":                  {0x22, 0, 64},
		"session expiry a day [MQTT-3.2.2-21]": {0x11, 0, 1, 0x51, 0x80},
		"assigned identifier":                  {0x12, 0, 20},
	} {
		if !bytes.Contains(p.body[3:], want) {
			t.Errorf("%s: no %x in %x", name, want, p.body)
		}
	}
	if bytes.Contains(p.body[3:], []byte{0x24, 1}) || bytes.Contains(p.body[3:], []byte{0x24, 0}) {
		t.Errorf("a maximum QoS is announced: %x", p.body)
	}
	if bytes.Contains(p.body[3:], []byte{0x2A, 0}) || bytes.Contains(p.body[3:], []byte{0x25}) {
		t.Errorf("retain available is announced: %x", p.body)
	}
	c, p := dialAny(t, x.Addr(), hello{id: "again", user: "dev", version: 4, persistent: true})
	if !bytes.Equal(p.body, []byte{0, 0}) {
		t.Fatal(p)
	}
	_ = c.conn.Close()
	if _, p = dialAny(t, x.Addr(), hello{id: "again", user: "dev", version: 4, persistent: true}); !bytes.Equal(p.body, []byte{1, 0}) {
		t.Fatalf("the session was not kept: %v", p)
	}
}

func TestRefusedConnects(t *testing.T) {
	x := open(t, setting{})
	will := func(version byte) []byte {
		return append(append(props(version, nil), str("plain/w")...), str("gone")...)
	}
	cases := []struct {
		name   string
		h      hello
		v3, v5 byte
	}{
		{"wrong secret", hello{user: "dev", password: "x"}, 5, 0x86},
		{"unknown client", hello{user: "nobody"}, 5, 0x86},
		{"empty user", hello{user: ""}, 5, 0x86},
		{"will that may not be", hello{user: "sub", flags: 4, afterID: will(0)}, 5, 0x87},
		{"unknown version", hello{user: "dev", version: 9}, 1, 0x84},
	}
	for _, tc := range cases {
		for _, v := range versions {
			h := tc.h
			h.id = "c"
			if h.version == 0 {
				h.version = v
			}
			if h.flags&4 != 0 {
				h.afterID = will(v)
			}
			c, p := dialAny(t, x.Addr(), h)
			want := tc.v3
			if v == 5 || h.version == 9 {
				want = tc.v5
			}
			if p.body[0] != 0 || p.body[1] != want {
				t.Errorf("%s, v%d: %v, want %02x", tc.name, v, p, want)
			}
			if h.flags&4 != 0 && v == 5 && !strings.Contains(string(p.body), "will: not_authorized: ") {
				t.Errorf("no reason: %v", p)
			}
			c.ended()
		}
	}
	_, p := dialAny(t, x.Addr(), hello{id: "c", user: "dev", properties: append([]byte{0x15}, str("SCRAM")...)})
	if p.body[1] != 0x8C {
		t.Errorf("authentication method: %v", p)
	}
	if _, p = dialAny(t, x.Addr(), hello{id: "", user: "dev", version: 4, persistent: true}); p.body[1] != 2 {
		t.Errorf("no identifier, no clean session [MQTT-3.1.3-8]: %v", p)
	}
	if n := len(x.Sessions()); n != 0 {
		t.Errorf("%d sessions", n)
	}
}

func TestMalformedConnects(t *testing.T) {
	x := open(t, setting{})
	good := hello{id: "c", user: "dev"}.bytes()
	cases := map[string][]byte{
		"not CONNECT":        {0xC0, 0},
		"PUBLISH first":      pub{topic: full("a"), payload: "1"}.bytes(5),
		"flags":              append([]byte{0x11}, good[1:]...),
		"268 MB":             {0x10, 0xFF, 0xFF, 0xFF, 0x7F, 0, 4, 'M', 'Q', 'T', 'T', 5},
		"268 MB of PUBLISH":  {0x30, 0xFF, 0xFF, 0xFF, 0x7F},
		"70 KB":              frame(0x10, make([]byte, 70000)),
		"endless length":     {0x10, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF},
		"other protocol":     frame(0x10, str("HTTP"), []byte{5, 2, 0, 0, 0}, str("c")),
		"an HTTP request":    []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		"reserved flag":      frame(0x10, str("MQTT"), []byte{5, 3, 0, 0, 0}, str("c")),
		"will QoS 3":         frame(0x10, str("MQTT"), []byte{5, 2 | 4 | 24, 0, 0, 0}, str("c"), []byte{0}, str("w"), str("x")),
		"identifier and NUL": frame(0x10, str("MQTT"), []byte{5, 2, 0, 0, 0}, str("c\x00")),
		"user not UTF-8":     frame(0x10, str("MQTT"), []byte{5, 0x82, 0, 0, 0}, str("c"), str("\xff")),
		"more than it says":  frame(0x10, str("MQTT"), []byte{5, 2, 0, 0, 0}, str("c"), []byte("tail")),
		"receive maximum 0":  frame(0x10, str("MQTT"), []byte{5, 2, 0, 0, 3, 0x21, 0, 0}, str("c")),
		"property of others": frame(0x10, str("MQTT"), []byte{5, 2, 0, 0, 3, 0x23, 0, 1}, str("c")),
	}
	for i := 0; i < len(good)-2; i++ { // the whole packet, but with a length that cuts it
		cases[fmt.Sprint("cut at ", i)] = append([]byte{0x10, byte(i)}, good[2:2+i]...)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for name, b := range cases {
		c := dialRaw(t, x.Addr())
		_, _ = c.conn.Write(b)
		p, err := c.read(patience)
		if err == nil && (p.first != 0x20 || p.body[1] < 0x80) {
			t.Errorf("%s: %v", name, p)
		}
		if err == nil {
			c.ended()
		} else if isTimeout(err) {
			t.Errorf("%s: left hanging", name)
		}
	}
	runtime.ReadMemStats(&after)
	if grown := int64(after.TotalAlloc - before.TotalAlloc); grown > 64<<20 {
		t.Errorf("%d MB were allocated for packets of strangers", grown>>20)
	}
}

func TestConnectTimeout(t *testing.T) {
	x := open(t, setting{broker: func(o *broker.Options) { o.Limits.ConnectTimeout = 50 * time.Millisecond }})
	silent := dialRaw(t, x.Addr())
	half := dialRaw(t, x.Addr())
	half.write(hello{id: "c", user: "dev"}.bytes()[:20])
	silent.ended()
	half.ended()
	// It is over with the CONNECT.
	c := dial(t, x.Addr(), hello{id: "c", user: "dev"})
	time.Sleep(100 * time.Millisecond) // twice the time-out, which is what must not strike
	c.alive()
}

func TestKeepAlive(t *testing.T) {
	x := open(t, setting{})
	idle := dial(t, x.Addr(), hello{id: "idle", user: "dev", keepAlive: 10})
	busy := dial(t, x.Addr(), hello{id: "busy", user: "dev", keepAlive: 10})
	patient := dial(t, x.Addr(), hello{id: "patient", user: "dev"})
	old := dial(t, x.Addr(), hello{id: "old", user: "dev", keepAlive: 10, version: 4})
	long := dial(t, x.Addr(), hello{id: "long", user: "dev", keepAlive: 43691}) // 1.5 times that is more than 16 bits
	for _, c := range []*client{idle, busy, patient, old, long} {
		c.alive()
	}
	x.clock.advance(14 * time.Second)
	x.Inspect(x.clock.now())
	busy.pub(pub{topic: full("a"), payload: "1", qos: 1, id: 1}) // PUBLISH alone keeps a client alive
	busy.ackOf(1)
	x.clock.advance(2 * time.Second)
	x.Inspect(x.clock.now())
	idle.disconnected(0x8D)
	old.ended()
	if n := x.metric("millrace_broker_sessions_ended_total", "keep_alive"); n != 2 {
		t.Errorf("%v ends are counted", n)
	}
	busy.alive()
	patient.alive()
	long.alive()
}

func TestTakeover(t *testing.T) {
	x := open(t, setting{})
	eachVersion(t, func(t *testing.T, version byte) {
		a := dial(t, x.Addr(), hello{id: "c", user: "dev", version: version})
		a.mustSub(1, "#")
		b := dial(t, x.Addr(), hello{id: "c", user: "dev", version: version})
		a.disconnected(0x8E)
		p := dial(t, x.Addr(), hello{id: "p", user: "dev"})
		p.publishes(full("a"), 1, values)
		p.settled()
		b.alive() // the subscriptions went with the old session
		// Somebody else does not get the identifier.
		if _, ack := dialAny(t, x.Addr(), hello{id: "c", user: "line", version: version}); version == 5 && ack.body[1] != 0x85 || version == 4 && ack.body[1] != 2 {
			t.Fatal(ack)
		}
		b.alive()
	})
}

// The batch of an ejected connection is stored and acknowledged before the end.
func TestTakeoverSettlesFirst(t *testing.T) {
	x := open(t, setting{})
	entered, release := make(chan struct{}, 1), make(chan struct{})
	x.store.onAppend(func(context.Context, int) error {
		entered <- struct{}{}
		<-release
		return nil
	})
	a := dial(t, x.Addr(), hello{id: "c", user: "dev"})
	a.pub(pub{topic: full("a"), payload: "1", qos: 1, id: 1})
	<-entered
	b := dialRaw(t, x.Addr())
	b.write(hello{id: "c", user: "dev"}.bytes())
	eventually(t, "the holder is ejected", func() bool { return x.metric("millrace_broker_sessions_ended_total", "taken_over") == 1 })
	close(release)
	a.ackOf(1)
	a.disconnected(0x8E)
	if p := b.want(0x20); p.body[1] != 0 {
		t.Fatal(p)
	}
}

// A holder that the store does not let go is forced out, so that its device can come back.
func TestTakeoverOfAStuckSession(t *testing.T) {
	x := open(t, setting{})
	entered := make(chan struct{}, 1)
	x.store.onAppend(func(ctx context.Context, _ int) error {
		entered <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	})
	a := dial(t, x.Addr(), hello{id: "c", user: "dev"})
	a.pub(pub{topic: full("a"), payload: "1", qos: 1, id: 1})
	<-entered
	b := dialRaw(t, x.Addr())
	b.write(hello{id: "c", user: "dev"}.bytes())
	eventually(t, "the holder is ejected", func() bool { return x.metric("millrace_broker_sessions_ended_total", "taken_over") == 1 })
	x.clock.advance(3 * time.Second)
	x.Inspect(x.clock.now())
	if p := a.want(0xE0); p.body[0] != 0x8E {
		t.Fatal(p)
	}
	a.ended()
	if p := b.want(0x20); p.body[1] != 0 {
		t.Fatal(p)
	}
}

// A refusal arrives although the client has already sent more.
func TestRefusalArrivesBeforeTheEnd(t *testing.T) {
	x := open(t, setting{})
	for range 20 {
		c := dialRaw(t, x.Addr())
		c.write(hello{id: "c", user: "dev", password: "wrong"}.bytes(), subscribe(5, 1, nil, 0, "#"), pub{topic: "a", payload: strings.Repeat("x", 50000)}.bytes(5))
		if p := c.want(0x20); p.body[1] != 0x86 {
			t.Fatal(p)
		}
		c.ended()
	}
}

func TestTakeoverStorm(t *testing.T) {
	x := open(t, setting{})
	var wg sync.WaitGroup
	for range 30 {
		wg.Go(func() {
			c, err := net.Dial("tcp", x.Addr())
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(func() { _ = c.Close() })
			_, _ = c.Write(hello{id: "c", user: "dev"}.bytes())
			_ = c.SetReadDeadline(time.Now().Add(patience))
			if p, err := readPacket(c); err != nil || p.first != 0x20 {
				t.Errorf("%v %v", p, err)
			}
		})
	}
	wg.Wait()
	eventually(t, "one connection is left", func() bool { return x.metric("millrace_broker_connections", "") == 1 && len(x.Sessions()) == 1 })
	last := dial(t, x.Addr(), hello{id: "c", user: "dev"})
	last.alive()
}

func TestConnectionLimit(t *testing.T) {
	x := open(t, setting{broker: func(o *broker.Options) { o.Limits.MaxClients = 2 }})
	for i := range 2 {
		dial(t, x.Addr(), hello{id: fmt.Sprint(i), user: "dev"}).alive()
	}
	for _, v := range versions {
		_, p := dialAny(t, x.Addr(), hello{id: "more", user: "dev", version: v})
		if v == 4 && p.body[1] != 3 || v == 5 && p.body[1] != 0x89 {
			t.Errorf("v%d: %v", v, p)
		}
	}
	dial(t, x.Addr(), hello{id: "0", user: "dev"}).alive() // a takeover needs no room
}

func TestDisconnects(t *testing.T) {
	x := open(t, setting{})
	eachVersion(t, func(t *testing.T, version byte) {
		c := dial(t, x.Addr(), hello{id: "c", user: "dev", version: version})
		if x.Disconnect("nobody") || !x.Disconnect("c") {
			t.Fatal("Disconnect found the wrong one")
		}
		c.disconnected(0x98)
		c = dial(t, x.Addr(), hello{id: "c", user: "dev", version: version})
		c.write(pub{topic: full("a"), payload: "1", qos: 1, id: 1}.bytes(version), []byte{0xE0, 0})
		c.ackOf(1)
		c.ended()
		eventually(t, "the session is gone", func() bool { return len(x.Sessions()) == 0 })
	})
	c := dial(t, x.Addr(), hello{id: "c", user: "dev", properties: []byte{0x11, 0, 0, 0, 60}})
	c.write([]byte{0xE0, 7, 0, 5, 0x11, 0, 0, 0, 30})
	c.ended()
	c = dial(t, x.Addr(), hello{id: "c", user: "dev"})
	c.write([]byte{0xE0, 2, 0, 9})
	c.disconnected(0x81)
}

func TestShutdown(t *testing.T) {
	leakCheck(t)
	eachVersion(t, func(t *testing.T, version byte) {
		x := open(t, setting{})
		entered, release := make(chan struct{}, 1), make(chan struct{})
		x.store.onAppend(func(context.Context, int) error {
			entered <- struct{}{}
			<-release
			return nil
		})
		idle := dial(t, x.Addr(), hello{id: "idle", user: "dev", version: version})
		busy := dial(t, x.Addr(), hello{id: "busy", user: "dev", version: version})
		busy.pub(pub{topic: full("a"), payload: "1", qos: 1, id: 1})
		<-entered
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			x.stop()
		}()
		idle.disconnected(0x8B)
		close(release)
		busy.ackOf(1) // what was read is settled
		busy.disconnected(0x8B)
		<-stopped
		if c, err := net.Dial("tcp", x.Addr()); err == nil {
			_ = c.Close()
			t.Error("still listening")
		}
	})
}

func TestShutdownUnderConnectStorm(t *testing.T) {
	leakCheck(t)
	for range 10 {
		x := open(t, setting{})
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for w := range 8 {
			wg.Go(func() {
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					default:
					}
					c, err := net.Dial("tcp", x.Addr())
					if err != nil {
						continue
					}
					_, _ = c.Write(hello{id: fmt.Sprint(w%4, i%3), user: "dev"}.bytes())
					_ = c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
					_, _ = readPacket(c)
					_ = c.Close()
				}
			})
		}
		eventually(t, "some have connected", func() bool { return x.metric("millrace_broker_received_bytes_total", "") > 2000 })
		x.stop()
		close(stop)
		wg.Wait()
	}
}

func TestServeOnceAndClose(t *testing.T) {
	x := open(t, setting{})
	eventually(t, "it serves", func() bool { dial(t, x.Addr(), hello{id: "c", user: "dev"}).alive(); return true })
	if err := x.Serve(t.Context()); err == nil {
		t.Error("served twice")
	}
	o := broker.DefaultOptions()
	o.Address, o.Namespace = x.Addr(), uns.NewNamespace(uns.DefaultOptions())
	if _, err := broker.Open(o, x.in, x.book, x.store); err == nil || !strings.Contains(err.Error(), "broker.address") {
		t.Errorf("a port in use: %v", err)
	}
	o.Address = "127.0.0.1:0"
	b, err := broker.Open(o, x.in, x.book, x.store)
	if err != nil {
		t.Fatal(err)
	}
	if errors.Join(b.Close(), b.Close()) != nil || b.Serve(t.Context()) == nil {
		t.Error("Close")
	}
}

func TestOptions(t *testing.T) {
	o := broker.DefaultOptions()
	if err := o.Validate(); err != nil {
		t.Error(err)
	}
	o = broker.Options{LiveQoS: 3}
	err := o.Validate()
	for _, key := range []string{"broker.address", "maxClients", "receiveMaximum", "maxPacketSize", "connectTimeout", "maxSubscriberQueue:", "maxSubscriberQueueBytes", "uns.liveMirror.qos: 3 is above 2"} {
		if err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%s is not in %v", key, err)
		}
	}
}
