package broker_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// The client of these tests writes and reads packets byte by byte, independently of the code under test.

const patience = 10 * time.Second

type client struct {
	t       testing.TB
	conn    net.Conn
	version byte
}

type packet struct {
	first byte
	body  []byte
}

func (p packet) String() string { return fmt.Sprintf("%02x %x %q", p.first, p.body, p.body) }

// msg is a PUBLISH as a subscriber sees it.
type msg struct {
	topic, payload string
	id             uint16
	qos            byte
	retain, dup    bool
	properties     []byte
}

func lenBytes(n int) (b []byte) {
	for {
		d := byte(n % 128)
		if n /= 128; n == 0 {
			return append(b, d)
		}
		b = append(b, d|128)
	}
}

func str(s string) []byte { return append([]byte{byte(len(s) >> 8), byte(len(s))}, s...) }

func frame(first byte, parts ...[]byte) []byte {
	var body []byte
	for _, p := range parts {
		body = append(body, p...)
	}
	return append(append([]byte{first}, lenBytes(len(body))...), body...)
}

func props(version byte, p []byte) []byte {
	if version < 5 {
		return nil
	}
	return append(lenBytes(len(p)), p...)
}

type hello struct {
	id, user, password string
	version            byte
	flags              byte // more connect flags, e.g. will
	persistent         bool // clean start 0
	keepAlive          uint16
	properties         []byte
	afterID            []byte // will properties, topic, payload
	bare               bool   // without user name and password
}

func (h hello) bytes() []byte {
	if h.version == 0 {
		h.version = 5
	}
	if h.password == "" {
		h.password = secret
	}
	name, flags := "MQTT", h.flags|0xC0
	if h.version == 3 {
		name = "MQIsdp"
	}
	if !h.persistent {
		flags |= 2
	}
	if h.bare {
		return frame(0x10, str(name), []byte{h.version, flags &^ 0xC0, byte(h.keepAlive >> 8), byte(h.keepAlive)}, props(h.version, h.properties),
			str(h.id), h.afterID)
	}
	return frame(0x10, str(name), []byte{h.version, flags, byte(h.keepAlive >> 8), byte(h.keepAlive)}, props(h.version, h.properties),
		str(h.id), h.afterID, str(h.user), str(h.password))
}

func dialRaw(t testing.TB, addr string) *client {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return &client{t: t, conn: c, version: 5}
}

// dial connects and wants to be let in.
func dial(t testing.TB, addr string, h hello) *client {
	t.Helper()
	c, p := dialAny(t, addr, h)
	if p.body[1] != 0 {
		t.Fatalf("CONNACK %v", p)
	}
	return c
}

// dialAny connects and returns whatever CONNACK comes.
func dialAny(t testing.TB, addr string, h hello) (*client, packet) {
	t.Helper()
	c := dialRaw(t, addr)
	if h.version != 0 {
		c.version = h.version
	}
	c.write(h.bytes())
	return c, c.want(0x20)
}

func (c *client) write(b ...[]byte) {
	c.t.Helper()
	var all []byte
	for _, p := range b {
		all = append(all, p...)
	}
	_ = c.conn.SetWriteDeadline(time.Now().Add(patience))
	if _, err := c.conn.Write(all); err != nil {
		c.t.Fatalf("write: %v", err)
	}
}

func (c *client) read(d time.Duration) (packet, error) {
	_ = c.conn.SetReadDeadline(time.Now().Add(d))
	return readPacket(c.conn)
}

func readPacket(r io.Reader) (packet, error) {
	var one [1]byte
	if _, err := io.ReadFull(r, one[:]); err != nil {
		return packet{}, err
	}
	first := one[0]
	n, shift := 0, 0
	for {
		if _, err := io.ReadFull(r, one[:]); err != nil {
			return packet{}, err
		}
		n |= int(one[0]&127) << shift
		if shift += 7; one[0] < 128 {
			break
		}
	}
	body := make([]byte, n)
	_, err := io.ReadFull(r, body)
	return packet{first, body}, err
}

// want reads one packet and wants its first byte.
func (c *client) want(first byte) packet {
	c.t.Helper()
	p, err := c.read(patience)
	if err != nil || p.first != first {
		c.t.Fatalf("want %02x, got %v, error %v", first, p, err)
	}
	return p
}

// wantMsg reads one PUBLISH.
func (c *client) wantMsg() msg {
	c.t.Helper()
	p, err := c.read(patience)
	if err != nil || p.first>>4 != 3 {
		c.t.Fatalf("want PUBLISH, got %v, error %v", p, err)
	}
	return c.parse(p)
}

func (c *client) parse(p packet) msg {
	n := int(binary.BigEndian.Uint16(p.body))
	m := msg{topic: string(p.body[2 : 2+n]), qos: p.first >> 1 & 3, retain: p.first&1 != 0, dup: p.first&8 != 0}
	b := p.body[2+n:]
	if m.qos > 0 {
		m.id, b = binary.BigEndian.Uint16(b), b[2:]
	}
	if c.version == 5 {
		l, k, shift := 0, 0, 0
		for {
			l |= int(b[k]&127) << shift
			shift += 7
			if k++; b[k-1] < 128 {
				break
			}
		}
		m.properties, b = b[k:k+l], b[k+l:]
	}
	m.payload = string(b)
	return m
}

// ended wants the connection closed, with nothing more to read.
func (c *client) ended() {
	c.t.Helper()
	p, err := c.read(patience)
	if err == nil {
		c.t.Fatalf("want the end, got %v", p)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Fatal("still open")
	}
}

// disconnected wants DISCONNECT with the code on v5, and the end.
func (c *client) disconnected(code byte) {
	c.t.Helper()
	if c.version == 5 {
		for {
			p, err := c.read(patience)
			if err != nil {
				c.t.Fatalf("want DISCONNECT %02x, got %v", code, err)
			}
			if p.first == 0xE0 {
				if len(p.body) < 1 || p.body[0] != code {
					c.t.Fatalf("want DISCONNECT %02x, got %v", code, p)
				}
				break
			}
		}
	}
	c.ended()
}

// alive proves by a ping that the connection lives and that nothing else was waiting to be read.
func (c *client) alive() {
	c.t.Helper()
	c.write([]byte{0xC0, 0})
	c.want(0xD0)
}

func subscribe(version byte, id uint16, properties []byte, options byte, filters ...string) []byte {
	parts := [][]byte{{byte(id >> 8), byte(id)}, props(version, properties)}
	for _, f := range filters {
		parts = append(parts, str(f), []byte{options})
	}
	return frame(0x82, parts...)
}

// sub subscribes and returns the codes.
func (c *client) sub(options byte, filters ...string) []byte {
	c.t.Helper()
	c.write(subscribe(c.version, 7, nil, options, filters...))
	p := c.want(0x90)
	if c.version == 5 {
		return p.body[3:]
	}
	return p.body[2:]
}

// mustSub wants every filter granted.
func (c *client) mustSub(options byte, filters ...string) {
	c.t.Helper()
	for i, code := range c.sub(options, filters...) {
		if code > 2 {
			c.t.Fatalf("subscription to %s refused: %02x", filters[i], code)
		}
	}
}

type pub struct {
	topic, payload string
	qos            byte
	retain, dup    bool
	id             uint16
	properties     []byte
}

func (p pub) bytes(version byte) []byte {
	first := 0x30 | p.qos<<1
	if p.retain {
		first |= 1
	}
	if p.dup {
		first |= 8
	}
	var id []byte
	if p.qos > 0 {
		id = []byte{byte(p.id >> 8), byte(p.id)}
	}
	return frame(first, str(p.topic), id, props(version, p.properties), []byte(p.payload))
}

func (c *client) pub(p pub) { c.t.Helper(); c.write(p.bytes(c.version)) }

// ackOf reads a PUBACK: its code, and on v5 its reason string.
func (c *client) ackOf(id uint16) (code byte, reason string) {
	c.t.Helper()
	p := c.want(0x40)
	if got := binary.BigEndian.Uint16(p.body); got != id {
		c.t.Fatalf("PUBACK of %d, want %d", got, id)
	}
	if len(p.body) > 2 {
		code = p.body[2]
	}
	if len(p.body) > 4 && p.body[4] == 0x1F {
		reason = string(p.body[7:])
	}
	return code, reason
}

func (c *client) puback(id uint16) { c.write([]byte{0x40, 2, byte(id >> 8), byte(id)}) }

func isTimeout(err error) bool {
	return err != nil && (errors.Is(err, os.ErrDeadlineExceeded) || strings.Contains(err.Error(), "timeout"))
}
