package perf_test

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
)

// acceptor is the smallest MQTT server a fleet can talk to. It remembers every value in order of arrival, and
// the most publishes that a connection ever had open.
type acceptor struct {
	listener net.Listener
	hold     int                         // acknowledge only when so many are open; 0 = at once
	code     func(topic string) byte     // PUBACK reason code; nil = 0
	cut      func(total int) bool        // end the connection instead of acknowledging this publish
	keep     func(topic, payload string) // instead of remembering; nil = remember
	verdict  string                      // payload sent to a response topic; "" = none
	version  func(connectLevel byte)     // told the protocol level of each CONNECT

	mu     sync.Mutex
	values map[string][]string // inbox topic → payloads, as received
	most   int
	total  int
	fault  error
	conns  map[net.Conn]bool
	wg     sync.WaitGroup
}

func newAcceptor(t *testing.T, shape func(*acceptor)) *acceptor {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a := &acceptor{listener: l, values: map[string][]string{}, conns: map[net.Conn]bool{}}
	if shape != nil {
		shape(a)
	}
	a.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			a.mu.Lock()
			a.conns[c] = true
			a.mu.Unlock()
			a.wg.Go(func() {
				defer c.Close()
				if err := a.serve(c); err != nil {
					a.mu.Lock()
					a.fault = err
					a.mu.Unlock()
				}
			})
		}
	})
	t.Cleanup(a.close)
	return a
}

func (a *acceptor) address() string { return a.listener.Addr().String() }

func (a *acceptor) close() {
	_ = a.listener.Close()
	a.mu.Lock()
	for c := range a.conns {
		_ = c.Close()
	}
	a.mu.Unlock()
	a.wg.Wait()
}

func (a *acceptor) serve(c net.Conn) error {
	r := bufio.NewReader(c)
	level := byte(4)
	var open [][]byte // acknowledgements held back
	for {
		first, body, err := readOne(r)
		if err != nil {
			return nil // the connection's end is no fault
		}
		switch first >> 4 {
		case 1:
			level = body[6]
			if a.version != nil {
				a.version(level)
			}
			if level == 5 {
				_, err = c.Write([]byte{0x20, 3, 0, 0, 0})
			} else {
				_, err = c.Write([]byte{0x20, 2, 0, 0})
			}
		case 8:
			if level == 5 {
				_, err = c.Write([]byte{0x90, 4, body[0], body[1], 0, 1})
			} else {
				_, err = c.Write([]byte{0x90, 3, body[0], body[1], 1})
			}
		case 3:
			ack, reply, cut := a.publish(level, body)
			if cut {
				return nil
			}
			open = append(open, ack)
			a.mu.Lock()
			a.most = max(a.most, len(open))
			release := len(open) >= a.hold
			a.mu.Unlock()
			if release {
				for _, b := range open {
					if _, err = c.Write(b); err != nil {
						break
					}
				}
				open = nil
			}
			if reply != nil && err == nil {
				_, err = c.Write(reply)
			}
		case 12:
			_, err = c.Write([]byte{0xd0, 0})
		case 14:
			return nil
		default:
			return fmt.Errorf("unexpected packet %#x", first)
		}
		if err != nil {
			return nil
		}
	}
}

func (a *acceptor) publish(level byte, body []byte) (ack, reply []byte, cut bool) {
	n := int(binary.BigEndian.Uint16(body))
	topic, rest := string(body[2:2+n]), body[2+n:]
	id := rest[:2]
	rest = rest[2:]
	var response, correlation string
	if level == 5 {
		size := int(rest[0]) // the fleet's properties are shorter than 128 bytes
		props := rest[1 : 1+size]
		rest = rest[1+size:]
		for len(props) > 0 {
			length := int(binary.BigEndian.Uint16(props[1:]))
			text := string(props[3 : 3+length])
			if props[0] == 8 {
				response = text
			} else {
				correlation = text
			}
			props = props[3+length:]
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.total++
	if a.cut != nil && a.cut(a.total) {
		return nil, nil, true
	}
	if a.keep != nil {
		a.keep(topic, string(rest))
	} else {
		a.values[topic] = append(a.values[topic], string(rest))
	}
	code := byte(0)
	if a.code != nil {
		code = a.code(topic)
	}
	ack = []byte{0x40, 2, id[0], id[1]}
	if level == 5 {
		ack = []byte{0x40, 4, id[0], id[1], code, 0}
	}
	if a.verdict != "" && response != "" {
		p := binary.BigEndian.AppendUint16(nil, uint16(len(response)))
		p = append(p, response...)
		p = append(p, 11, 9, 0, 8)
		p = append(p, correlation...)
		p = append(p, a.verdict...)
		reply = append([]byte{0x30, byte(len(p))}, p...)
	}
	return ack, reply, false
}

func readOne(r *bufio.Reader) (first byte, body []byte, err error) {
	if first, err = r.ReadByte(); err != nil {
		return 0, nil, err
	}
	n, shift := 0, 0
	for {
		b, err := r.ReadByte()
		if err != nil {
			return 0, nil, err
		}
		n |= int(b&0x7f) << shift
		if shift += 7; b < 0x80 {
			break
		}
	}
	body = make([]byte, n)
	_, err = io.ReadFull(r, body)
	return first, body, err
}

// stored returns the digits received per path, in order of arrival.
func (a *acceptor) stored(t *testing.T) map[string][]string {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.fault != nil {
		t.Fatal(a.fault)
	}
	out := map[string][]string{}
	for topic, list := range a.values {
		parts := strings.SplitN(topic, "/", 5) // mHv1.0/main/_ingress/<client>/<path>
		if len(parts) != 5 || parts[0] != "mHv1.0" || parts[1] != "main" || parts[2] != "_ingress" {
			t.Fatalf("topic %q is no inbox", topic)
		}
		for _, payload := range list {
			digits, ok := strings.CutPrefix(payload, `{"value": `)
			if !ok || !strings.HasSuffix(digits, "}") {
				t.Fatalf("payload %q is not {\"value\": …}", payload)
			}
			out[parts[4]] = append(out[parts[4]], strings.TrimSuffix(digits, "}"))
		}
	}
	return out
}
