package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// lasting is an MQTT 3.1.1 client with a session that lasts, which reconnects until it is told to stop.
type lasting struct {
	id, secret string
	addr       *atomic.Pointer[string] // of the box that lives now
	stop       <-chan struct{}
	first      bool // no session yet
	fault      atomic.Pointer[error]
}

func (l *lasting) fail(format string, a ...any) {
	err := fmt.Errorf(l.id+": "+format, a...)
	l.fault.CompareAndSwap(nil, &err)
}

// dial connects as soon as there is a box; nil: stopped or wrong.
func (l *lasting) dial() (c net.Conn, in *bufio.Reader) {
	for {
		select {
		case <-l.stop:
			return nil, nil
		default:
		}
		if c, err := net.Dial("tcp", *l.addr.Load()); err == nil {
			in := bufio.NewReader(c)
			_, _ = c.Write(frame(0x10, str(str(str(append(str(nil, "MQTT"), 4, 0xC0, 0, 60), l.id), "dev"), l.secret)))
			_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
			answer := make([]byte, 4)
			if _, err := io.ReadFull(in, answer); err == nil {
				if answer[3] != 0 || answer[2] != 1 && !l.first { // [MQTT-3.2.2-2]
					l.fail("CONNACK % x, a session before: %v", answer, !l.first)
					return nil, nil
				}
				l.first = false
				return c, in
			}
			_ = c.Close()
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func nextPacket(c net.Conn, in *bufio.Reader, within time.Duration) (first byte, body []byte, err error) {
	_ = c.SetReadDeadline(time.Now().Add(within))
	if first, err = in.ReadByte(); err != nil {
		return 0, nil, err
	}
	n, shift := 0, 0
	for {
		b, err := in.ReadByte()
		if err != nil {
			return 0, nil, err
		}
		n |= int(b&127) << shift
		if shift += 7; b < 128 {
			break
		}
	}
	body = make([]byte, n)
	_, err = io.ReadFull(in, body)
	return first, body, err
}

// twiceSafe publishes 1, 2, 3… on a topic of its own, and after a kill takes up its exchange where it was.
type twiceSafe struct {
	lasting
	topic string
	qos   byte
	last  int // published, and acknowledged when it has ended
	ended <-chan struct{}
}

func (w *twiceSafe) run() {
	id, released, open := uint16(0), false, false // of the exchange
	for {
		c, in := w.dial()
		if c == nil {
			return
		}
		dup := open
		for {
			if !open {
				select {
				case <-w.ended:
					_ = c.Close()
					return
				default:
				}
				w.last++
				id, open, released, dup = uint16(w.last%500+1), true, false, false
			}
			if released {
				_, _ = c.Write([]byte{0x62, 2, byte(id >> 8), byte(id)})
			} else {
				head := byte(0x30) | w.qos<<1
				if dup {
					head |= 8
				}
				_, _ = c.Write(frame(head, append(binary.BigEndian.AppendUint16(str(nil, w.topic), id), fmt.Sprint(w.last)...)))
			}
			first, body, err := nextPacket(c, in, 20*time.Second)
			if err != nil {
				break
			}
			if len(body) != 2 || binary.BigEndian.Uint16(body) != id {
				w.fail("got %02x % x, not of %d", first, body, id)
				return
			}
			switch {
			case first == 0x50 && w.qos == 2 && !released:
				released = true
			case first == 0x70 && released, first == 0x40 && w.qos == 1:
				open = false
			default:
				w.fail("got %02x % x", first, body)
				return
			}
		}
		_ = c.Close()
	}
}

// hearer keeps what it was delivered, by topic.
type hearer struct {
	lasting
	qos   byte
	mu    sync.Mutex
	got   map[string]int // the last in order
	again int            // QoS 1: delivered more than once
}

func (h *hearer) run() {
	received := map[uint16]bool{}
	for {
		c, in := h.dial()
		if c == nil {
			return
		}
		for {
			first, body, err := nextPacket(c, in, 30*time.Second)
			if err != nil {
				break
			}
			switch first >> 4 {
			case 3:
				n := int(binary.BigEndian.Uint16(body))
				topic, id := string(body[2:2+n]), binary.BigEndian.Uint16(body[2+n:])
				var value int
				_, _ = fmt.Sscanf(string(body[4+n:]), `{"value":%d,`, &value)
				if qos := first >> 1 & 3; qos != h.qos {
					h.fail("%s %d came with QoS %d", topic, value, qos)
					return
				}
				if h.qos == 1 || !received[id] {
					h.mu.Lock()
					switch last := h.got[topic]; {
					case value == last+1:
						h.got[topic] = value
					case value <= last && value > 0 && h.qos == 1:
						h.again++
					default:
						h.mu.Unlock()
						h.fail("%s: %d after %d (%02x, id %d)", topic, value, last, first, id)
						return
					}
					h.mu.Unlock()
				} else if first&8 == 0 {
					h.fail("%s %d sent again without DUP", topic, value)
					return
				}
				if h.qos == 2 {
					received[id] = true
				}
				_, _ = c.Write([]byte{map[byte]byte{1: 0x40, 2: 0x50}[h.qos], 2, byte(id >> 8), byte(id)})
			case 6:
				delete(received, binary.BigEndian.Uint16(body))
				_, _ = c.Write([]byte{0x70, 2, body[0], body[1]})
			default:
				h.fail("got %02x % x", first, body)
				return
			}
			select {
			case <-h.stop:
				_ = c.Close()
				return
			default:
			}
		}
		_ = c.Close()
	}
}

func (h *hearer) has(topic string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.got[topic]
}

// The box is killed under load again and again. Sessions, subscriptions and exchanges go on where they were: publishers of
// QoS 1 and 2 store each value once, subscribers of QoS 2 get each once and in order, of QoS 1 at least once and in order,
// and every session is said to be present. MILLRACE_LONG=1 kills 200 times.
func TestSessionsOverKills(t *testing.T) {
	kills := 4
	if os.Getenv("MILLRACE_LONG") == "1" {
		kills = 200
	} else if testing.Short() {
		kills = 2
	}
	t.Setenv("MILLRACE_UNS_LIVEMIRROR_QOS", "2")
	data := t.TempDir()
	p := serve(t, data)
	secret := p.secret("dev")
	var addr atomic.Pointer[string]
	addr.Store(&p.mqtt)
	stop, ended := make(chan struct{}), make(chan struct{})
	var hearers []*hearer
	var writers []*twiceSafe
	var hearing, writing sync.WaitGroup
	for i, qos := range []byte{1, 2, 2} {
		h := &hearer{lasting: lasting{id: fmt.Sprint("hearer", i), secret: secret, addr: &addr, stop: stop, first: true}, qos: qos, got: map[string]int{}}
		c, in := h.dial()
		if c == nil {
			t.Fatal(*h.fault.Load())
		}
		_, _ = c.Write(frame(0x82, append(str([]byte{0, 1}, root+"kills/#"), qos)))
		if first, body, err := nextPacket(c, in, 10*time.Second); err != nil || first != 0x90 || body[2] != qos {
			t.Fatalf("SUBACK %02x % x %v", first, body, err)
		}
		_ = c.Close()
		hearers = append(hearers, h)
		hearing.Go(h.run)
	}
	for i := range 6 {
		w := &twiceSafe{lasting: lasting{id: fmt.Sprint("writer", i), secret: secret, addr: &addr, stop: stop, first: true}, topic: fmt.Sprint(root, "kills/", i), qos: byte(1 + i%2), ended: ended}
		writers = append(writers, w)
		writing.Go(w.run)
	}
	faults := func() (list []string) {
		for _, h := range hearers {
			if err := h.fault.Load(); err != nil {
				list = append(list, (*err).Error())
			}
		}
		for _, w := range writers {
			if err := w.fault.Load(); err != nil {
				list = append(list, (*err).Error())
			}
		}
		return list
	}
	for k := range kills {
		time.Sleep(time.Duration(200+rand.IntN(500)) * time.Millisecond) // under load
		if list := faults(); len(list) > 0 {
			t.Fatalf("before kill %d: %s", k, strings.Join(list, "; "))
		}
		p.kill()
		p = serve(t, data)
		addr.Store(&p.mqtt)
	}
	time.Sleep(200 * time.Millisecond)
	close(ended)
	writing.Wait()
	deadline := time.Now().Add(30 * time.Second)
	sum := 0
	for _, w := range writers {
		sum += w.last
		for _, h := range hearers {
			for h.has(w.topic) < w.last && time.Now().Before(deadline) && len(faults()) == 0 {
				time.Sleep(5 * time.Millisecond)
			}
			if got := h.has(w.topic); got != w.last {
				t.Errorf("%s has %d of %d of %s", h.id, got, w.last, w.topic)
			}
		}
		stored := p.numbers(strings.TrimPrefix(w.topic, root))
		for i, n := range stored {
			if n != int64(i+1) {
				t.Errorf("%s: value %d is %d", w.topic, i+1, n)
				break
			}
		}
		if len(stored) != w.last {
			t.Errorf("%s: %d values are stored, %d were published", w.topic, len(stored), w.last)
		}
	}
	for _, f := range faults() {
		t.Error(f)
	}
	close(stop)
	p.kill()
	hearing.Wait()
	t.Logf("%d kills, %d values, %d deliveries, %d of QoS 1 came again", kills, sum, sum*len(hearers), hearers[0].again)
	if sum < 50*kills {
		t.Errorf("only %d values: the load was none", sum)
	}
}
