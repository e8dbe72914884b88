package main

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const root = "mHv1.0/main/"

// gatedFS is a disk whose syncs of the log wait while the gate is shut.
type gatedFS struct {
	vfs.FS
	mu      sync.Mutex
	open    *sync.Cond
	shut    bool
	waiting chan struct{} // a sync has come to the shut gate
}

func newGatedFS(fs vfs.FS) *gatedFS {
	g := &gatedFS{FS: fs, waiting: make(chan struct{}, 1000)}
	g.open = sync.NewCond(&g.mu)
	return g
}

func (g *gatedFS) set(shut bool) {
	g.mu.Lock()
	g.shut = shut
	g.mu.Unlock()
	g.open.Broadcast()
}

func (g *gatedFS) pass() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.shut {
		select {
		case g.waiting <- struct{}{}:
		default:
		}
		g.open.Wait()
	}
}

func (g *gatedFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := g.FS.Create(name, c)
	return gatedFile{f, g}, err
}

func (g *gatedFS) ReuseForWrite(old, name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := g.FS.ReuseForWrite(old, name, c)
	return gatedFile{f, g}, err
}

type gatedFile struct {
	vfs.File
	g *gatedFS
}

func (f gatedFile) Sync() error     { f.g.pass(); return f.File.Sync() }
func (f gatedFile) SyncData() error { f.g.pass(); return f.File.SyncData() }
func (f gatedFile) SyncTo(n int64) (bool, error) {
	f.g.pass()
	return f.File.SyncTo(n)
}

// Promise 1 [contract 5, stored]: no PUBACK before the group of the value is fsynced, on both versions.
func TestNoAckBeforeTheValueIsDurable(t *testing.T) {
	for _, version := range []byte{4, 5} {
		t.Run(fmt.Sprint("version ", version), func(t *testing.T) {
			disk := newGatedFS(vfs.Default)
			r := start(t, t.TempDir(), func(c *Config) { c.Historian.FS = disk })
			d := signIn(t, r.mqtt, version, "dev1", r.client("dev1"))
			d.publish(root+"line1/temp", `{"value":1}`, 1)
			if id, code, _ := d.ack(); id != 1 || code != 0 {
				t.Fatalf("with the disk well: ack %d %#x", id, code)
			}

			disk.set(true)
			defer disk.set(false)
			d.publish(root+"line1/temp", `{"value":2}`, 2)
			<-disk.waiting
			if p, err := d.tryRead(300 * time.Millisecond); err == nil {
				t.Fatalf("a packet of kind %d came while the fsync was still waiting", p.kind)
			}
			disk.set(false)
			if id, code, _ := d.ack(); id != 2 || code != 0 {
				t.Fatalf("after the fsync: ack %d %#x", id, code)
			}
		})
	}
}

// Promise 2 [MQTT-4.6.0-2]: acknowledgements leave in order of receipt, refused and stored ones mixed, and
// nothing overtakes them.
func TestAcksInOrder(t *testing.T) {
	r := start(t, t.TempDir(), func(c *Config) { c.UNS.Ingress.PerClientRatePerSec = 0 })
	d := signIn(t, r.mqtt, 5, "dev1", r.client("dev1"))
	const n = 2000
	go func() {
		var b []byte
		for i := 1; i <= n; i++ {
			payload := fmt.Sprintf(`{"value":%d}`, i)
			if i%7 == 0 {
				payload = "nan"
			}
			b = append(b, d.publishFrame(fmt.Sprintf("%sline1/t%d", root, i%13), []byte(payload), uint16(i), nil)...)
			if i%100 == 0 {
				b = append(b, 0xC0, 0)
				if _, err := d.conn.Write(b); err != nil {
					t.Error(err)
					return
				}
				b = b[:0]
			}
		}
	}()
	for i := 1; i <= n; i++ {
		id, code, reason := d.ack()
		want := byte(0)
		if i%7 == 0 {
			want = 0x99
		}
		if int(id) != i || code != want {
			t.Fatalf("ack %d: id %d, code %#x (%s), want code %#x", i, id, code, reason, want)
		}
		if i%100 == 0 {
			if p := d.read(); p.kind != pingresp {
				t.Fatalf("after %d acks kind %d came, not PINGRESP", i, p.kind)
			}
		}
	}
}

// payloads is every kind of contract section 4: what a device sends and what history, latest and live give back.
var payloads = []struct{ name, sent, back string }{
	{"decimal", `{"value":42.70}`, `42.70`},
	{"integer beyond float64", `{"value":9007199254740993}`, `9007199254740993`},
	{"largest uint64", `{"value":18446744073709551615}`, `18446744073709551615`},
	{"a sum of floats", `{"value":0.1}`, `0.1`},
	{"one with a zero", `{"value":1.0}`, `1.0`},
	{"one", `{"value":1}`, `1`},
	{"negative zero", `{"value":-0.0}`, `-0.0`},
	{"exponent", `{"value":1.5e300}`, `1.5e300`},
	{"thirty digits", `{"value":123456789012345678901234567890}`, `123456789012345678901234567890`},
	{"bare number", `17`, `17`},
	{"bare boolean", `true`, `true`},
	{"false in an envelope", `{"value":false}`, `false`},
	{"null", `null`, `null`},
	{"null in an envelope", `{"value":null}`, `null`},
	{"text", `{"value":"Öl °C \" \\ \n"}`, `"Öl °C \" \\ \n"`},
	{"text like a number", `{"value":"00123"}`, `"00123"`},
	{"bare text", `"online"`, `"online"`},
	{"array", `[1, 2.50, "x"]`, `[1,2.50,"x"]`},
	{"object without value keeps its order", `{"b": 1.0, "a": {"z": null}}`, `{"b":1.0,"a":{"z":null}}`},
	{"empty object", `{}`, `{}`},
	{"object as value", `{"value": {"y":2,"x":1}}`, `{"y":2,"x":1}`},
	{"white space around", " { \"value\" : 5 } ", `5`},
}

// Promise 6: what the device sent is what live, history and latest give, digit for digit, also after a restart.
func TestReadBackDigitForDigit(t *testing.T) {
	dir := t.TempDir()
	r := start(t, dir, nil)
	secret := r.client("dev1")
	var want []string
	watcher, code := connect(t, r.mqtt, 4, "watcher", "dev1", secret)
	if code != 0 || watcher.subscribe(root+"kinds/#", 1) != 1 {
		t.Fatal("the watcher cannot subscribe")
	}
	d, code := connect(t, r.mqtt, 5, "sender", "dev1", secret)
	if code != 0 {
		t.Fatalf("CONNACK %#x", code)
	}
	for i, p := range payloads {
		d.publish(root+"kinds/all", p.sent, uint16(i+1))
		if id, code, reason := d.ack(); int(id) != i+1 || code != 0 {
			t.Fatalf("%s: %#x %s", p.name, code, reason)
		}
		topic, got, _ := watcher.message()
		if topic != root+"kinds/all" || !strings.HasPrefix(got, `{"value":`+p.back+`,"timestamp":"`) || !strings.HasSuffix(got, `,"quality":"good"}`) {
			t.Errorf("%s: live gave %s %s", p.name, topic, got)
		}
		want = append(want, p.back)
		if _, text := r.get("dev1", secret, "/api/v1/uns/latest", "filter", "kinds/all"); !strings.Contains(text, `"value":`+p.back+`,`) {
			t.Errorf("%s: latest gave %s", p.name, text)
		}
	}
	same := func(r *running) {
		t.Helper()
		for _, limit := range []string{"1000", "3"} {
			if got := r.history("dev1", secret, "kinds/all", limit); strings.Join(got, "\n") != strings.Join(want, "\n") {
				t.Errorf("history in pages of %s:\n%s\nwant\n%s", limit, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		}
	}
	same(r)
	r.stop()
	same(start(t, dir, nil))
}
