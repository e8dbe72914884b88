package perf

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"
)

const (
	linkWindow = 16      // publishes a link leaves unacknowledged
	linkRead   = 4 << 10 // room for a read, at the least
)

// link is one plain blocking MQTT connection that publishes at QoS 1 or takes deliveries. One goroutine may use it.
type link struct {
	conn    net.Conn
	version byte
	out     []byte
	in      []byte
	next    uint16
	open    map[uint16]bool
	limit   time.Duration // for each read and write
	refused int           // publishes acknowledged with a refusal
	window  int
}

// linkOptions say who connects, and how.
type linkOptions struct {
	address   string
	client    string
	secret    string // "" signs in anonymously
	limit     time.Duration
	version   byte
	trust     *tls.Config // nil = plain TCP
	window    uint16      // Receive Maximum towards the server, MQTT 5 only; 0 names none
	keepAlive uint16      // s, 0 = none
	receive   int         // receive buffer of the socket, 0 = the system's
}

// dialLink connects by MQTT 5 over TCP and signs in; an empty secret signs in anonymously.
func dialLink(ctx context.Context, address, client, secret string, limit time.Duration) (*link, error) {
	return openLink(ctx, linkOptions{address: address, client: client, secret: secret, limit: limit, version: version5, keepAlive: 60})
}

// openLink connects and signs in.
func openLink(ctx context.Context, o linkOptions) (*link, error) {
	client := o.client
	to, err := resolve(o.address)
	if err != nil {
		return nil, err
	}
	conn, err := (&net.Dialer{Timeout: o.limit}).DialContext(ctx, "tcp", to.String())
	if err != nil {
		return nil, fmt.Errorf("perf: connect %s: %w", client, err)
	}
	if t, ok := conn.(*net.TCPConn); ok && o.receive > 0 {
		_ = t.SetReadBuffer(o.receive)
	}
	if o.trust != nil {
		conn = tls.Client(conn, o.trust)
	}
	l := &link{conn: conn, version: o.version, open: map[uint16]bool{}, limit: o.limit}
	user := ""
	if o.secret != "" {
		user = client
	}
	l.out = appendConnectWindow(l.out, o.version, client, user, o.secret, o.keepAlive, o.window)
	first, body, err := byte(0), []byte(nil), l.flush()
	if err == nil {
		first, body, err = l.packet()
	}
	if err == nil && first>>4 != typeConnack {
		err = errMalformed
	}
	if err == nil {
		var c connack
		if c, err = parseConnack(o.version, body); err == nil && c.code != 0 {
			err = fmt.Errorf("refused with code %#02x %s", c.code, c.reason)
		}
		l.window = min(linkWindow, c.receiveMaximum)
	}
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("perf: sign-in of %s: %w", client, err)
	}
	return l, nil
}

func (l *link) flush() error {
	_ = l.conn.SetWriteDeadline(time.Now().Add(l.limit))
	_, err := l.conn.Write(l.out)
	l.out = l.out[:0]
	return err
}

// packet reads the next packet; body is valid until the next call.
func (l *link) packet() (first byte, body []byte, err error) {
	for {
		first, body, size, err := nextPacket(l.in)
		if err != nil {
			return 0, nil, err
		}
		if size > 0 {
			l.in = l.in[size:]
			return first, body, nil
		}
		_ = l.conn.SetReadDeadline(time.Now().Add(l.limit))
		l.in = slices.Grow(l.in, linkRead)
		n, err := l.conn.Read(l.in[len(l.in):cap(l.in)])
		l.in = l.in[:len(l.in)+n]
		if err != nil && n == 0 {
			return 0, nil, err
		}
	}
}

// publish sends one value and waits only while the window is full.
func (l *link) publish(topic string, payload []byte) error {
	for len(l.open) >= l.window {
		if err := l.take(); err != nil {
			return err
		}
	}
	if l.next++; l.next == 0 {
		l.next = 1
	}
	l.open[l.next] = true
	l.out = appendPublish(l.out, l.version, []byte(topic), l.next, "", 0, payload)
	return l.flush()
}

// take reads one acknowledgement.
func (l *link) take() error {
	first, body, err := l.packet()
	if err != nil {
		return err
	}
	switch first >> 4 {
	case typePuback:
		id, code, err := parsePuback(body)
		if err != nil {
			return err
		}
		if code >= 0x80 {
			l.refused++
		}
		delete(l.open, id)
	case typeDisconnect:
		return fmt.Errorf("the server ended the session % x", body)
	}
	return nil
}

// settle waits until everything is acknowledged; a refusal is an error.
func (l *link) settle() error {
	for len(l.open) > 0 {
		if err := l.take(); err != nil {
			return err
		}
	}
	if l.refused > 0 {
		return fmt.Errorf("perf: %d publishes refused", l.refused)
	}
	return nil
}

// subscribe asks for filters at qos and waits for the answer; a refusal is an error. Deliveries that come before it are
// given to take.
func (l *link) subscribe(qos byte, take func(delivery) error, filters ...string) error {
	l.out = appendSubscribe(l.out, l.version, 0xffff, qos, filters...)
	if err := l.flush(); err != nil {
		return err
	}
	for {
		first, body, err := l.packet()
		if err != nil {
			return err
		}
		switch {
		case first>>4 == typeSuback && subscribed(body, len(filters)):
			return nil
		case first>>4 == typeSuback:
			return fmt.Errorf("perf: the subscription to %s is refused: % x", strings.Join(filters, ", "), body)
		case first>>4 == typePublish && take != nil:
			if err := l.taken(first, body, take); err != nil {
				return err
			}
		}
	}
}

// receive takes one delivery and acknowledges it; acknowledgements are sent before it would wait.
func (l *link) receive(take func(delivery) error) error {
	for {
		if len(l.out) > 0 && !l.whole() {
			if err := l.flush(); err != nil {
				return err
			}
		}
		first, body, err := l.packet()
		if err != nil {
			return err
		}
		switch first >> 4 {
		case typePublish:
			return l.taken(first, body, take)
		case typeDisconnect:
			return fmt.Errorf("perf: the server ended the session % x", body)
		}
	}
}

// ping asks for a sign of life and waits for it.
func (l *link) ping() error {
	l.out = appendPingreq(l.out)
	if err := l.flush(); err != nil {
		return err
	}
	for {
		first, _, err := l.packet()
		if err != nil {
			return err
		}
		if first>>4 == typePingresp {
			return nil
		}
	}
}

// whole says whether a packet is there without waiting.
func (l *link) whole() bool {
	_, _, size, err := nextPacket(l.in)
	return size > 0 || err != nil
}

func (l *link) taken(first byte, body []byte, take func(delivery) error) error {
	d, err := parsePublish(l.version, first, body)
	if err != nil {
		return err
	}
	if d.id != 0 {
		l.out = appendPuback(l.out, d.id)
	}
	return take(d)
}

// close ends the session in order, however the connection stands.
func (l *link) close() {
	l.out = appendDisconnect(l.out[:0])
	_ = l.flush()
	_ = l.conn.Close()
}
