package main

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// F04: one subscriber of everything that never reads its socket, beside twenty that do and devices that publish. Only the
// slow one loses messages; it is named, and cut at its keep-alive.
func TestF04SlowSubscriber(t *testing.T) {
	r := start(t, t.TempDir(), func(c *Config) {
		c.Broker.Limits.MaxSubscriberQueue = 500
		c.UNS.Ingress.PerClientRatePerSec = 0
	})
	secret := r.client("dev", allow("publish,subscribe", "#"))
	slow, code := connect(t, r.mqtt, 5, "slow-one", "dev", secret)
	if code != 0 || slow.subscribe("#", 0) != 0 {
		t.Fatalf("CONNACK %#x", code)
	}
	if c, ok := slow.conn.(*net.TCPConn); ok {
		_ = c.SetReadBuffer(4 << 10)
	}
	const values, healthy = 3000, 20
	var wg sync.WaitGroup
	for i := range healthy {
		s, code := connect(t, r.mqtt, 5, fmt.Sprint("healthy", i), "dev", secret)
		if code != 0 || s.subscribe("#", 1) != 1 {
			t.Fatalf("CONNACK %#x", code)
		}
		wg.Go(func() {
			for k := range values {
				p, err := s.tryRead(30 * time.Second)
				if err != nil || p.kind != publishKind {
					t.Errorf("healthy %d, value %d: %v %d", i, k, err, p.kind)
					return
				}
				n := int(p.body[0])<<8 | int(p.body[1])
				if !strings.Contains(string(p.body), fmt.Sprintf(`{"value":"%d `, k)) {
					t.Errorf("healthy %d: value %d wanted, got %.60q", i, k, p.body[2+n:])
					return
				}
				if _, err := s.conn.Write([]byte{0x40, 2, p.body[2+n], p.body[3+n]}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	d := signIn(t, r.mqtt, 5, "dev", secret)
	for k := range values {
		d.publish(root+"line1/a", fmt.Sprintf(`"%d %s"`, k, strings.Repeat("x", 2000)), uint16(k%1000+1))
		if _, code, reason := d.ack(); code != 0 {
			t.Fatalf("value %d: %#x %s", k, code, reason)
		}
	}
	wg.Wait()
	lost := uint64(0)
	for _, s := range r.box.broker.Sessions() {
		switch {
		case s.MQTTID == "slow-one":
			if lost = s.Dropped; !s.Slow || s.DroppedBy["queue_full"] == 0 || s.Queued > 500 {
				t.Errorf("the slow one: %+v", s)
			}
		case s.Dropped > 0 || s.Slow:
			t.Errorf("%s: %d dropped, slow %v", s.MQTTID, s.Dropped, s.Slow)
		}
	}
	if by, clients := r.box.broker.Drops(); by["queue_full"] != lost || len(clients) != 1 || clients[0].Client != "dev" {
		t.Errorf("drops %v %v, the session lost %d", by, clients, lost)
	}
}

// F06: two devices with one identifier, each coming back as soon as it is put out, over and over. There is never more than one
// session, the one put out is told so, every acknowledged value is stored once, the fight is ended by a ban, and the
// holder keeps the identifier through it.
func TestF06ClientIDClash(t *testing.T) {
	r := start(t, t.TempDir(), nil)
	secret := r.client("dev", allow("publish,subscribe", "#"))
	var mu sync.Mutex
	toldTaken, banned := 0, 0
	var stored [2]int
	var wg sync.WaitGroup
	for twin := range 2 {
		wg.Go(func() {
			n := 0
			for range 40 {
				d, code := connect(t, r.mqtt, 5, "press-07", "dev", secret)
				if code != 0 {
					mu.Lock()
					if code == 0x8A {
						banned++
					}
					enough := banned > 4
					mu.Unlock()
					if code != 0x8A && code != 0x89 { // 0x89: another one came while this one waited for the holder to go
						t.Errorf("CONNACK %#x", code)
					}
					if enough {
						return
					}
					continue
				}
				for range 20 {
					if _, err := d.conn.Write(d.publishFrame(root+fmt.Sprint("twin", twin), fmt.Append(nil, n), 1, nil)); err != nil {
						break
					}
					p, err := d.tryRead(10 * time.Second)
					if err == nil && p.kind == disconnect {
						mu.Lock()
						if p.body[0] == 0x8E {
							toldTaken++
						}
						mu.Unlock()
					}
					if err != nil || p.kind != pubackKind {
						break
					}
					n++
					mu.Lock()
					stored[twin]++
					mu.Unlock()
					if live := len(r.box.broker.Sessions()); live > 1 {
						t.Errorf("%d sessions", live)
					}
					mu.Lock()
					over := banned > 4
					mu.Unlock()
					if over {
						return
					}
				}
			}
		})
	}
	wg.Wait()
	if toldTaken == 0 || banned == 0 {
		t.Errorf("%d were told that they were put out, %d were refused", toldTaken, banned)
	}
	for twin, want := range stored {
		kept := map[string]bool{} // one whose acknowledgement went lost with its connection was sent anew, and may be there twice
		for _, v := range r.history("dev", secret, fmt.Sprint("twin", twin), "10000") {
			kept[v] = true
		}
		if len(kept) < want {
			t.Errorf("twin %d: %d values were acknowledged, %d are kept", twin, want, len(kept))
		}
	}
}
