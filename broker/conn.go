package broker

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"

	"millrace/auth"
	"millrace/uns"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/packets"
)

// conn is one connection and the net.Conn that the MQTT library sees of it.
//
// The library calls Read from exactly one goroutine, the reader, and calls it again only when it has finished the
// packet before. Read therefore hands over one control frame at a time, so that the next call means "that frame is
// answered". PUBLISH and the acks of our deliveries never reach the library.
//
// The first group of fields belongs to the reader and has no lock. Other goroutines may append to the writer, kick,
// and touch atomics.
type conn struct {
	raw         net.Conn
	b           *Broker
	counters    *shard
	door        *door
	certified   bool   // the client's certificate was verified
	certificate string // its common name
	until       int64  // ns, when its access token ends; 0 = it has none. Set before live
	tooFast     bool   // beyond its door's rate: it is told at its CONNECT

	in           []byte // read buffer; in[r:w] is unread
	r, w         int
	filled       bool                   // the last read filled the buffer
	sparse       int                    // reads in a row that used little of a grown buffer
	pass         []byte                 // what is left to hand over of the control frame
	handed       byte                   // type of the frame the library works on; 0 = none
	refusals     []byte                 // reason codes of the SUBSCRIBE or UNSUBSCRIBE being worked on
	asked        []packets.Subscription // the filters of the SUBSCRIBE being worked on
	levels       int                    // of all filters of the session, while a SUBSCRIBE is worked on
	established  bool
	version      byte
	end          error // once set, what Read returns
	at           time.Time
	problem      bool   // reason strings are welcome [MQTT-3.1.2-29]
	maxPacket    uint32 // the client's, 0 = none
	aliasMaximum uint16 // the client's
	client       *mqtt.Client
	claim        *claim
	principal    *auth.Principal
	session      *session
	expiry       uint32 // seconds the session outlives the connection
	present      bool   // the session went on from an earlier connection
	source       *uns.Source
	topics       topicCache
	aliases      [topicAliasMaximum]*topicEntry
	publish      publish // the frame in hand
	items        []item
	exactly      int // of items, those of QoS 2
	batch        uns.Batch
	keeps        bool // the batch changes retained messages
	will         *will
	orderly      bool // the client said that it goes and that its will is not wanted
	acks         []byte
	replies      replyTopic

	out    writer
	ctx    context.Context // of Accept; cancelled by the watchdog
	cancel context.CancelFunc
	left   chan struct{} // closed when the reader is out of the library
	kicked chan struct{} // closed by the first kick

	live      atomic.Bool  // the CONNACK is written: deliveries may flow
	kick      atomic.Int32 // reason code another goroutine wants the connection to end with; 0 = none
	kickedAt  atomic.Int64 // ns
	seen      atomic.Int64 // ns, last time bytes arrived
	pending   atomic.Int64 // ns, since when the reader waits for the store; 0 = it does not
	flushing  atomic.Int64 // ns, since when the flusher does
	keepAlive atomic.Int64 // ns of silence allowed, 0 = any
	received  atomic.Uint64
	sent      atomic.Uint64
	since     time.Time
}

const (
	smallBuffer = 2 << 10
	grownBuffer = 32 << 10
)

var (
	errNotConnect = errors.New("broker: first packet is no well-formed CONNECT")
	errEnded      = errors.New("broker: connection ended")
)

func newConn(raw net.Conn, b *Broker) *conn {
	c := &conn{raw: raw, b: b, counters: b.metrics.shard(), in: make([]byte, smallBuffer), problem: true, since: b.now(),
		left: make(chan struct{}), kicked: make(chan struct{})}
	c.out.init(c)
	c.ctx, c.cancel = context.WithCancel(b.ctx)
	return c
}

// Read hands the next control frame over, piece by piece. In between it works off everything else.
func (c *conn) Read(p []byte) (int, error) {
	for {
		if len(c.pass) > 0 {
			n := copy(p, c.pass)
			c.pass = c.pass[n:]
			return n, nil
		}
		if c.handed != 0 {
			c.answered()
		}
		if c.end == nil {
			c.walk()
		}
		switch {
		case c.end != nil:
			return 0, c.end
		case len(c.pass) == 0:
			c.fill()
		}
	}
}

// answered runs when the library is done with the frame it was handed.
func (c *conn) answered() {
	if c.handed == typeSubscribe {
		c.session.release()
		c.out.wake()
	}
	c.handed = 0
	c.out.wait()
}

// walk works through the complete frames of the buffer until a control frame is ready to be handed over, the
// connection has to end, or nothing complete is left; then the batch is settled.
func (c *conn) walk() {
	for {
		b := c.in[c.r:c.w]
		size, head := header(b)
		if size == 0 {
			break
		}
		typ := b[0] >> 4
		switch {
		case size < 0:
			c.fail(codeMalformed)
			return
		case !c.established && typ != typeConnect:
			c.end = errNotConnect
			return
		case !c.established && size > maxConnectPacket || int64(size) > c.b.o.Limits.MaxPacketSize:
			c.fail(codeTooLarge)
			return
		}
		if len(b) < size {
			break
		}
		flags, body := b[0]&15, b[head:size]
		switch typ {
		case typePublish:
			c.r += size
			if code := c.take(flags, body); code != 0 {
				c.fail(code)
				return
			}
		case typePuback:
			c.r += size
			id, code := checkAck(body, c.version)
			if flags != 0 {
				code = codeMalformed
			}
			if code != 0 {
				c.fail(code)
				return
			}
			if c.session.acked(id) {
				c.out.wakeLive(false)
			}
		case typePubrec, typePubrel, typePubcomp:
			c.r += size
			if code := c.exchange(typ, flags, body); code != 0 {
				c.fail(code)
				return
			}
		default:
			if !c.settle() {
				return
			}
			if code := c.control(typ, flags, body); code != 0 || c.end != nil {
				if code != 0 {
					c.fail(code)
				}
				return
			}
			c.r += size
			c.handed, c.pass = typ, b[:size]
			return
		}
	}
	c.settle()
}

// control decides whether a control frame may go to the library: 0, or the reason to end the connection.
func (c *conn) control(typ, flags byte, body []byte) (code byte) {
	want := byte(0)
	if typ == typeSubscribe || typ == typeUnsubscribe {
		want = 2 // [MQTT-2.1.3-1]
	}
	if flags != want {
		if !c.established {
			c.end = errNotConnect
		}
		return codeMalformed
	}
	switch typ {
	case typeConnect:
		return c.connect(body)
	case typeSubscribe:
		if code = checkSubscribe(body, c.version); code == 0 {
			c.session.holdBack() // until the SUBACK is written
		}
		return code
	case typeUnsubscribe:
		return checkUnsubscribe(body, c.version)
	case typePingreq:
		if len(body) > 0 {
			return codeMalformed
		}
		return 0
	case typeDisconnect:
		if code = checkDisconnect(body, c.version); code == 0 {
			if code = c.goodbye(body); code == 0 {
				c.end = io.EOF
			}
		}
		return code
	}
	// AUTH without a method, and what only servers send.
	return codeProtocol
}

// goodbye takes what an orderly DISCONNECT says about the session.
func (c *conn) goodbye(body []byte) (code byte) {
	c.orderly = len(body) == 0 || body[0] == codeSuccess
	if len(body) < 2 {
		return 0
	}
	properties, _, _ := cutProperties(body[1:])
	for len(properties) > 0 {
		id, v, rest, ok := nextProperty(properties)
		if !ok {
			break
		}
		if id == propSessionExpiry {
			return c.session.expireAfter(binary.BigEndian.Uint32(v), uint32(c.b.o.Limits.MaxSessionExpiry/time.Second))
		}
		properties = rest
	}
	return 0
}

// connect checks the first packet. What is malformed is answered here, where the version is known only by us.
func (c *conn) connect(body []byte) (code byte) {
	if c.established {
		return codeProtocol // [MQTT-3.1.0-2]
	}
	version, code := checkConnect(body)
	if code == 0 && !c.tooFast {
		if c.will = parseWill(body); c.will != nil {
			c.will.c = c
		}
		return 0
	}
	if c.tooFast {
		c.b.atDoors.refuse(codeConnectRate)
	}
	c.end = errNotConnect
	switch {
	case code == 0 && version == 5:
		c.out.append([]byte{typeConnack << 4, 3, 0, codeConnectRate, 0}, true)
	case code == 0:
		c.out.append([]byte{typeConnack << 4, 2, 0, connackV3(codeConnectRate)}, true)
	case code == codeVersion && version > 5:
		c.out.append([]byte{typeConnack << 4, 3, 0, codeVersion, 0}, true) // [MQTT-3.1.2-2]
	case code == codeVersion:
		c.out.append([]byte{typeConnack << 4, 2, 0, 1}, true)
	case version == 5:
		c.out.append([]byte{typeConnack << 4, 3, 0, code, 0}, true)
	}
	return 0
}

// fill reads more bytes. It also is where a kicked or silent connection notices.
func (c *conn) fill() {
	c.room()
	if c.kick.Load() != 0 {
		c.fail(byte(c.kick.Load()))
		return
	}
	n, err := c.raw.Read(c.in[c.w:])
	c.w += n
	c.filled = c.w == len(c.in)
	if n > 0 {
		c.at = c.b.now()
		c.seen.Store(c.at.UnixNano())
		c.counters.bytesIn.Add(uint64(n))
		return
	}
	switch code := c.kick.Load(); {
	case code != 0:
		c.fail(byte(code))
	case errors.Is(err, os.ErrDeadlineExceeded) && !c.established:
		c.end = errNotConnect // the CONNECT timeout
	case err != nil:
		c.end = err
	}
}

// room makes room to read into. The buffer grows as bytes arrive, never by what a header claims.
func (c *conn) room() {
	if c.r > 0 {
		copy(c.in, c.in[c.r:c.w])
		c.w -= c.r
		c.r = 0
	}
	size := len(c.in)
	switch {
	case c.w == size:
		size *= 2
	case c.w > smallBuffer/2:
	case c.filled && size < grownBuffer:
		size *= 2
	case size > grownBuffer:
		size = smallBuffer
	case size > smallBuffer && !c.filled:
		if c.sparse++; c.sparse >= 256 {
			size = smallBuffer
		}
	default:
		c.sparse = 0
	}
	if size == len(c.in) {
		return
	}
	c.sparse = 0
	grown := make([]byte, size)
	copy(grown, c.in[:c.w])
	c.in = grown
}

// fail settles what was complete before the fault, says why to an MQTT 5 client, and ends the reading.
func (c *conn) fail(code byte) {
	if c.end == nil && c.established {
		c.settle()
	}
	if c.end == nil {
		c.end = errEnded
	}
	if c.kick.Load() == 0 && c.established { // an ejection has been counted
		if flaps(code) {
			c.b.noteFlap(c.principal.ID(), c.session.id)
		}
		c.noteEnd(code)
	}
	c.out.disconnect(code)
}

// eject asks the connection to end with a reason; any goroutine may call it. The reader settles the batch it holds
// first, so that what is stored is also acknowledged; the watchdog forces the end when that takes too long.
func (c *conn) eject(code byte) {
	if c.kick.CompareAndSwap(0, int32(code)) {
		c.kickedAt.Store(c.b.now().UnixNano())
		c.noteEnd(code)
		close(c.kicked)
		c.out.interrupt()
	}
}

// Write takes a packet from the library; any goroutine may call it and it never blocks.
func (c *conn) Write(p []byte) (int, error) {
	last := false
	switch p[0] >> 4 {
	case typePublish, typePuback, typePubrec, typePubrel, typePubcomp:
		c.b.metrics.leaks.Add(1) // none of the library's own message handling may reach the wire
		return len(p), nil
	case typeConnack:
		c.out.greet()
		_, head := header(p)
		last = p[head+1] != codeSuccess
	case typeDisconnect:
		if c.version < 5 { // MQTT 3.1.1 has no DISCONNECT from the server
			return len(p), nil
		}
		last = true
	}
	c.out.append(p, last)
	return len(p), nil
}

// Close ends the connection after what is queued has been written. It never blocks.
func (c *conn) Close() error {
	c.out.close()
	return nil
}

func (c *conn) LocalAddr() net.Addr  { return c.raw.LocalAddr() }
func (c *conn) RemoteAddr() net.Addr { return c.raw.RemoteAddr() }

// The library's deadlines ignore PUBLISH and overflow; ours is kept by the watchdog.

func (c *conn) SetDeadline(time.Time) error      { return nil }
func (c *conn) SetReadDeadline(time.Time) error  { return nil }
func (c *conn) SetWriteDeadline(time.Time) error { return nil }
