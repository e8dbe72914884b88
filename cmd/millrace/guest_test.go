package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

// guest is a client that speaks all of MQTT that public suites use: every QoS both ways, wills, properties. What comes before
// its turn is kept, so that an order of packets that MQTT leaves open is never a fault.
type guest struct {
	*device
	early []packet
	id    uint16 // packet identifier last used
	sent  byte   // code of the last PUBACK, PUBREC or PUBCOMP
}

// opening is a CONNECT.
type opening struct {
	version        byte // 0: 5
	id             string
	keep           bool // clean start 0
	keepAlive      uint16
	props          []byte
	will           *letter
	user, password string
}

// letter is a PUBLISH, sent or received; as a will its props are those of the will.
type letter struct {
	topic, payload string
	qos            byte
	retain, dup    bool
	id             uint16
	props          []byte
}

func (o opening) frame() []byte {
	flags := byte(0)
	if !o.keep {
		flags |= 2
	}
	if o.user != "" {
		flags |= 0xC0
	}
	var will []byte
	if w := o.will; w != nil {
		flags |= 4 | w.qos<<3
		if w.retain {
			flags |= 0x20
		}
		if o.version == 5 {
			will = append(binary.AppendUvarint(nil, uint64(len(w.props))), w.props...)
		}
		will = str(str(will, w.topic), w.payload)
	}
	body := append(str(nil, "MQTT"), o.version, flags, byte(o.keepAlive>>8), byte(o.keepAlive))
	if o.version == 5 {
		body = append(binary.AppendUvarint(body, uint64(len(o.props))), o.props...)
	}
	body = append(str(body, o.id), will...)
	if o.user != "" {
		body = str(str(body, o.user), o.password)
	}
	return frame(0x10, body)
}

// hail connects and gives the CONNACK, whatever it says.
func hail(t testing.TB, addr string, o opening) (*guest, packet) {
	t.Helper()
	if o.version == 0 {
		o.version = 5
	}
	c, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	g := &guest{device: &device{t: t, conn: c, in: bufio.NewReader(c), version: o.version}}
	g.write(o.frame())
	p := g.read()
	if p.kind != connackKind {
		t.Fatalf("first answer is of kind %d", p.kind)
	}
	return g, p
}

// enter is hail that must let in; present is what the CONNACK says of a session.
func enter(t testing.TB, addr string, o opening) (g *guest, present bool) {
	t.Helper()
	g, p := hail(t, addr, o)
	if p.body[1] != 0 {
		t.Fatalf("%s: CONNACK %#x", o.id, p.body[1])
	}
	return g, p.body[0]&1 != 0
}

const (
	pubrecKind   = 5
	pubrelKind   = 6
	pubcompKind  = 7
	unsubackKind = 11
)

// next is the first packet of a kind; others that come before it are kept.
func (g *guest) next(kind byte) packet {
	g.t.Helper()
	for i, p := range g.early {
		if p.kind == kind {
			g.early = append(g.early[:i:i], g.early[i+1:]...)
			return p
		}
	}
	for {
		p, err := g.tryRead(10 * time.Second)
		if err != nil {
			g.t.Fatalf("waiting for a packet of kind %d: %v; before it came %d others", kind, err, len(g.early))
		}
		if p.kind == kind {
			return p
		}
		if p.kind == disconnect {
			g.t.Fatalf("waiting for a packet of kind %d: DISCONNECT % x", kind, p.body)
		}
		g.early = append(g.early, p)
	}
}

func (g *guest) answer(kind, flags byte, id uint16) {
	g.t.Helper()
	g.write([]byte{kind<<4 | flags, 2, byte(id >> 8), byte(id)})
}

func code(p packet) byte {
	if len(p.body) > 2 {
		return p.body[2]
	}
	return 0
}

// send publishes and goes through the whole exchange of its QoS.
func (g *guest) send(l letter) {
	g.t.Helper()
	if l.qos > 0 && l.id == 0 {
		g.id++
		l.id = g.id
	}
	g.post(l)
	switch l.qos {
	case 1:
		g.sent = code(g.next(pubackKind))
	case 2:
		if g.sent = code(g.next(pubrecKind)); g.sent < 0x80 {
			g.answer(pubrelKind, 2, l.id)
			g.next(pubcompKind)
		}
	}
}

// post only writes the PUBLISH.
func (g *guest) post(l letter) {
	g.t.Helper()
	first := 0x30 | l.qos<<1
	if l.retain {
		first |= 1
	}
	if l.dup {
		first |= 8
	}
	body := str(nil, l.topic)
	if l.qos > 0 {
		body = binary.BigEndian.AppendUint16(body, l.id)
	}
	if g.version == 5 {
		body = append(binary.AppendUvarint(body, uint64(len(l.props))), l.props...)
	}
	g.write(frame(first, append(body, l.payload...)))
}

// take reads a PUBLISH and acknowledges nothing.
func (g *guest) take() letter {
	g.t.Helper()
	for {
		if l := g.parse(g.next(publishKind)); !strings.HasPrefix(l.topic, fence) {
			return l
		}
	}
}

func (g *guest) parse(p packet) (l letter) {
	n := int(binary.BigEndian.Uint16(p.body))
	l.topic, l.qos, l.retain, l.dup = string(p.body[2:2+n]), p.flags>>1&3, p.flags&1 != 0, p.flags&8 != 0
	rest := p.body[2+n:]
	if l.qos > 0 {
		l.id, rest = binary.BigEndian.Uint16(rest), rest[2:]
	}
	if g.version == 5 {
		n, k := binary.Uvarint(rest)
		l.props, rest = rest[k:k+int(n)], rest[k+int(n):]
	}
	l.payload = string(rest)
	return l
}

// get reads a PUBLISH and goes through the whole exchange of its QoS.
func (g *guest) get() letter {
	g.t.Helper()
	l := g.take()
	switch l.qos {
	case 1:
		g.answer(pubackKind, 0, l.id)
	case 2:
		g.answer(pubrecKind, 0, l.id)
		for {
			if p := g.next(pubrelKind); binary.BigEndian.Uint16(p.body) == l.id {
				break
			}
		}
		g.answer(pubcompKind, 0, l.id)
	}
	return l
}

// ask subscribes; options as they stand in the packet. It gives the codes.
func (g *guest) ask(props []byte, options byte, filters ...string) []byte {
	g.t.Helper()
	g.id++
	body := binary.BigEndian.AppendUint16(nil, g.id)
	if g.version == 5 {
		body = append(binary.AppendUvarint(body, uint64(len(props))), props...)
	}
	for _, f := range filters {
		body = append(str(body, f), options)
	}
	g.write(frame(0x82, body))
	p := g.next(subackKind)
	return p.body[len(p.body)-len(filters):]
}

// listen is ask that must be granted.
func (g *guest) listen(options byte, filters ...string) {
	g.t.Helper()
	for i, c := range g.ask(nil, options, filters...) {
		if c > 2 {
			g.t.Fatalf("%s: SUBACK %#x", filters[i], c)
		}
	}
}

// leave unsubscribes and gives the packet that answers.
func (g *guest) leave(filters ...string) packet {
	g.t.Helper()
	g.id++
	body := binary.BigEndian.AppendUint16(nil, g.id)
	if g.version == 5 {
		body = append(body, 0)
	}
	for _, f := range filters {
		body = str(body, f)
	}
	g.write(frame(0xA2, body))
	return g.next(unsubackKind)
}

// fence is where the marks of all go; two levels more than the wildcards of the tests that do not end in #.
const fence = "fence/x/y/z/"

// all reads whatever is on its way, up to QoS 1: what the guest sends to itself comes after everything before it. Its window must
// have room.
func (g *guest) all() (list []letter) {
	g.t.Helper()
	g.id++
	mark := fmt.Sprint(fence, g.conn.LocalAddr(), g.id)
	g.listen(0, mark)
	g.post(letter{topic: mark})
	for {
		l := g.parse(g.next(publishKind))
		if l.topic == mark {
			break
		}
		if !strings.HasPrefix(l.topic, fence) {
			list = append(list, l)
		}
		if l.qos == 1 {
			g.answer(pubackKind, 0, l.id)
		}
	}
	g.leave(mark)
	return list
}

// quiet wants nothing to be on its way.
func (g *guest) quiet() {
	g.t.Helper()
	for _, l := range g.all() {
		g.t.Errorf("a message too many: %+v", l)
	}
}

// silent wants nothing for a moment; where quiet cannot look, since the window is full.
func (g *guest) silent() {
	g.t.Helper()
	if p, err := g.tryRead(100 * time.Millisecond); err == nil {
		g.t.Errorf("a packet too many: kind %d % x", p.kind, p.body)
	}
}

// bye is an orderly end; the box has taken note of it when its side is closed.
func (g *guest) bye() {
	g.t.Helper()
	g.write([]byte{0xE0, 0})
	g.over()
}

// over reads until the connection is closed and gives the reason code of a DISCONNECT, 0xFF without one.
func (g *guest) over() (code byte) {
	g.t.Helper()
	for code = 0xFF; ; {
		p, err := g.tryRead(10 * time.Second)
		if err != nil {
			if e, ok := err.(net.Error); ok && e.Timeout() {
				g.t.Fatal("the connection is still open")
			}
			return code
		}
		if p.kind == disconnect && len(p.body) > 0 {
			code = p.body[0]
		}
	}
}

// Properties, by their width.
func prop1(id, v byte) []byte           { return []byte{id, v} }
func prop2(id byte, v uint16) []byte    { return binary.BigEndian.AppendUint16([]byte{id}, v) }
func prop4(id byte, v uint32) []byte    { return binary.BigEndian.AppendUint32([]byte{id}, v) }
func propText(id byte, v string) []byte { return str([]byte{id}, v) }
func propPair(k, v string) []byte       { return str(str([]byte{0x26}, k), v) }
func joined(parts ...[]byte) (b []byte) {
	for _, p := range parts {
		b = append(b, p...)
	}
	return b
}

// saysIn looks a property up in a list of them: its value as text, "" when it is not there. Of several it is the first.
func saysIn(t testing.TB, props []byte, want byte) string {
	t.Helper()
	for len(props) > 0 {
		id, n := props[0], 0
		props = props[1:]
		switch id {
		case 0x01, 0x17, 0x19, 0x24, 0x25, 0x28, 0x29, 0x2A:
			n = 1
		case 0x13, 0x21, 0x22, 0x23:
			n = 2
		case 0x02, 0x11, 0x18, 0x27:
			n = 4
		case 0x0B:
			_, n = binary.Uvarint(props)
		case 0x26:
			n = 2 + int(binary.BigEndian.Uint16(props))
			n += 2 + int(binary.BigEndian.Uint16(props[n:]))
		default:
			n = 2 + int(binary.BigEndian.Uint16(props))
		}
		if id == want {
			if v := props[:n]; n > 4 || id == 0x03 || id == 0x08 || id == 0x09 || id == 0x12 || id == 0x1A || id == 0x1F {
				return string(v[2:])
			} else {
				number := 0
				for _, b := range v {
					number = number<<8 | int(b)
				}
				return fmt.Sprint(number)
			}
		}
		props = props[n:]
	}
	return ""
}

// connackProps are those of a CONNACK.
func connackProps(p packet) []byte {
	n, k := binary.Uvarint(p.body[2:])
	return p.body[2+k : 2+k+int(n)]
}
