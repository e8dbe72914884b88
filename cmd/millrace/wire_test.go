package main

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"
)

// device is a client that speaks just enough MQTT to see every byte of an answer.
type device struct {
	t       testing.TB
	conn    net.Conn
	in      *bufio.Reader
	version byte
}

// packet is one packet as it came.
type packet struct {
	kind, flags byte
	body        []byte
}

const (
	connackKind = 2
	publishKind = 3
	pubackKind  = 4
	subackKind  = 9
	pingresp    = 13
	disconnect  = 14
)

func str(b []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint16(b, uint16(len(s))), s...)
}

func frame(first byte, body []byte) []byte {
	return append(binary.AppendUvarint([]byte{first}, uint64(len(body))), body...)
}

// connect dials and signs in; code is the CONNACK's.
func connect(t testing.TB, addr string, version byte, id, user, password string) (d *device, code byte) {
	t.Helper()
	c, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return greet(t, c, version, id, user, password)
}

// greet signs in over a connection that exists.
func greet(t testing.TB, c net.Conn, version byte, id, user, password string) (d *device, code byte) {
	t.Helper()
	d = &device{t: t, conn: c, in: bufio.NewReader(c), version: version}
	body := append(str(nil, "MQTT"), version, 0xC2, 0, 60)
	if version == 5 {
		body = append(body, 0)
	}
	d.write(frame(0x10, str(str(str(body, id), user), password)))
	p := d.read()
	if p.kind != connackKind {
		t.Fatalf("first answer is of kind %d", p.kind)
	}
	return d, p.body[1]
}

// signIn is connect that must succeed.
func signIn(t testing.TB, addr string, version byte, user, password string) *device {
	t.Helper()
	d, code := connect(t, addr, version, user, user, password)
	if code != 0 {
		t.Fatalf("CONNACK %#x", code)
	}
	return d
}

func (d *device) write(b []byte) {
	d.t.Helper()
	if _, err := d.conn.Write(b); err != nil {
		d.t.Fatal(err)
	}
}

func (d *device) publishFrame(topic string, payload []byte, id uint16, props []byte) []byte {
	body := str(nil, topic)
	first := byte(0x30)
	if id != 0 {
		first |= 2
		body = binary.BigEndian.AppendUint16(body, id)
	}
	if d.version == 5 {
		body = append(binary.AppendUvarint(body, uint64(len(props))), props...)
	}
	return frame(first, append(body, payload...))
}

func (d *device) publish(topic, payload string, id uint16) {
	d.t.Helper()
	d.write(d.publishFrame(topic, []byte(payload), id, nil))
}

func (d *device) subscribe(filter string, qos byte) (code byte) {
	d.t.Helper()
	body := []byte{0, 77}
	options := qos
	if d.version == 5 {
		body = append(body, 0)
		options |= 2 << 4 // these tests want what is published from now on, not what is retained
	}
	d.write(frame(0x82, append(str(body, filter), options)))
	p := d.read()
	if p.kind != subackKind {
		d.t.Fatalf("SUBACK wanted, kind %d came", p.kind)
	}
	return p.body[len(p.body)-1]
}

func (d *device) read() packet {
	d.t.Helper()
	p, err := d.tryRead(10 * time.Second)
	if err != nil {
		d.t.Fatalf("reading a packet: %v", err)
	}
	return p
}

func (d *device) tryRead(within time.Duration) (packet, error) {
	if err := d.conn.SetReadDeadline(time.Now().Add(within)); err != nil {
		return packet{}, err
	}
	first, err := d.in.ReadByte()
	if err != nil {
		return packet{}, err
	}
	n, err := binary.ReadUvarint(d.in)
	if err != nil {
		return packet{}, err
	}
	p := packet{kind: first >> 4, flags: first & 15, body: make([]byte, n)}
	_, err = io.ReadFull(d.in, p.body)
	return p, err
}

// ack reads a PUBACK: its packet id, reason code and reason string.
func (d *device) ack() (id uint16, code byte, reason string) {
	d.t.Helper()
	p := d.read()
	if p.kind != pubackKind {
		d.t.Fatalf("PUBACK wanted, kind %d came: % x", p.kind, p.body)
	}
	id = binary.BigEndian.Uint16(p.body)
	if len(p.body) > 2 {
		code = p.body[2]
	}
	if len(p.body) > 3 {
		n, k := binary.Uvarint(p.body[3:])
		if props := p.body[3+k : 3+k+int(n)]; len(props) > 3 && props[0] == 0x1F {
			reason = string(props[3 : 3+binary.BigEndian.Uint16(props[1:])])
		}
	}
	return id, code, reason
}

// message reads a PUBLISH, acknowledges it, and gives topic and payload.
func (d *device) message() (topic, payload string, props []byte) {
	d.t.Helper()
	p := d.read()
	if p.kind != publishKind {
		d.t.Fatalf("PUBLISH wanted, kind %d came: % x", p.kind, p.body)
	}
	n := int(binary.BigEndian.Uint16(p.body))
	topic, rest := string(p.body[2:2+n]), p.body[2+n:]
	if qos := p.flags >> 1 & 3; qos > 0 {
		d.write([]byte{0x40, 2, rest[0], rest[1]})
		rest = rest[2:]
	}
	if d.version == 5 {
		l, k := binary.Uvarint(rest)
		props, rest = rest[k:k+int(l)], rest[k+int(l):]
	}
	return topic, string(rest), props
}
