package perf

import (
	"context"
	"fmt"
	"net"
	"time"
)

// linkWindow is how many publishes a link leaves unacknowledged.
const linkWindow = 16

// link is one plain blocking MQTT 5 connection that publishes at QoS 1. One goroutine may use it.
type link struct {
	conn    net.Conn
	out     []byte
	in      []byte
	next    uint16
	open    map[uint16]bool
	limit   time.Duration // for each read and write
	refused int           // publishes acknowledged with a refusal
	window  int
}

// dialLink connects and signs in; an empty secret signs in anonymously.
func dialLink(ctx context.Context, address, client, secret string, limit time.Duration) (*link, error) {
	to, err := resolve(address)
	if err != nil {
		return nil, err
	}
	conn, err := (&net.Dialer{Timeout: limit}).DialContext(ctx, "tcp", to.String())
	if err != nil {
		return nil, fmt.Errorf("perf: connect %s: %w", client, err)
	}
	l := &link{conn: conn, open: map[uint16]bool{}, limit: limit}
	user := ""
	if secret != "" {
		user = client
	}
	l.out = appendConnect(l.out, version5, client, user, secret, 60)
	first, body, err := byte(0), []byte(nil), l.flush()
	if err == nil {
		first, body, err = l.packet()
	}
	if err == nil && first>>4 != typeConnack {
		err = errMalformed
	}
	if err == nil {
		var c connack
		if c, err = parseConnack(version5, body); err == nil && c.code != 0 {
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
		var chunk [4096]byte
		_ = l.conn.SetReadDeadline(time.Now().Add(l.limit))
		n, err := l.conn.Read(chunk[:])
		if err != nil {
			return 0, nil, err
		}
		l.in = append(l.in, chunk[:n]...)
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
	l.out = appendPublish(l.out, version5, []byte(topic), l.next, "", 0, payload)
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

// close ends the session in order, however the connection stands.
func (l *link) close() {
	l.out = appendDisconnect(l.out[:0])
	_ = l.flush()
	_ = l.conn.Close()
}
