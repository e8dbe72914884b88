package broker_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"millrace/uns"
)

// A panic while a connection is worked on ends that connection only, and its identifier can be used again.
func TestPanicIsContained(t *testing.T) {
	leakCheck(t)
	x := open(t, setting{accept: func(_ context.Context, b *uns.Batch, real func() error) error {
		if bytes.Equal(b.Messages[0].Payload, []byte("666")) {
			panic("a fault of ours")
		}
		return real()
	}})
	s := dial(t, x.Addr(), hello{id: "s", user: "sub"})
	s.mustSub(0, "#")
	c := dial(t, x.Addr(), hello{id: "c", user: "dev"})
	c.mustSub(0, "#")
	c.pub(pub{topic: full("a"), payload: "666", qos: 1, id: 1})
	c.ended()
	if n := x.metric("millrace_broker_contained_panics_total", ""); n != 1 {
		t.Errorf("%v panics", n)
	}
	c = dial(t, x.Addr(), hello{id: "c", user: "dev"})
	c.publishes(full("a"), 1, values)
	s.wantMsg()
}

// A client that sends and never reads may make the box keep only so much for it.
func TestUnreadAnswersAreBounded(t *testing.T) {
	x := open(t, setting{})
	c := dial(t, x.Addr(), hello{id: "c", user: "dev"})
	pings := bytes.Repeat([]byte{0xC0, 0}, 1<<20)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_ = c.conn.SetWriteDeadline(time.Now().Add(time.Second))
	for range 64 {
		if _, err := c.conn.Write(pings); err != nil {
			break // the box no longer reads
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 16<<20 {
		t.Errorf("the heap grew by %d MB", grown>>20)
	}
	_ = c.conn.Close()
}

// Half-open: the peer has shut its side down; what it sent is still answered.
func TestHalfOpen(t *testing.T) {
	x := open(t, setting{})
	c := dial(t, x.Addr(), hello{id: "c", user: "dev"})
	c.pub(pub{topic: full("a"), payload: "1", qos: 1, id: 1})
	_ = c.conn.(*net.TCPConn).CloseWrite()
	c.ackOf(1)
	c.ended()
	if x.store.stored() != 1 {
		t.Error("not stored")
	}
}

// Every prefix of every packet, followed by the end of the connection, leaves no session and no panic behind.
func TestTruncatedPackets(t *testing.T) {
	x := open(t, setting{})
	for _, b := range [][]byte{
		pub{topic: full("a"), payload: "1", qos: 1, id: 1, properties: append([]byte{0x23, 0, 1, 8}, str(full("_verdict/dev/r"))...)}.bytes(5),
		subscribe(5, 1, []byte{0x0B, 1}, 1, "a/#"),
		frame(0xA2, []byte{0, 1, 0}, str("a/#")),
		frame(0x40, []byte{0, 1, 0x10, 4, 0x1F, 0, 1, 'x'}),
		frame(0xE0, []byte{0, 5, 0x11, 0, 0, 0, 0}),
	} {
		for i := range b {
			c := dial(t, x.Addr(), hello{id: "c", user: "dev"})
			c.write(b[:i])
			_ = c.conn.(*net.TCPConn).CloseWrite()
			_ = c.conn.SetReadDeadline(time.Now().Add(patience))
			if _, err := io.Copy(io.Discard, c.conn); isTimeout(err) {
				t.Fatalf("%x: left hanging", b[:i])
			}
			// And as if the packet ended there.
			if i > 2 {
				c = dial(t, x.Addr(), hello{id: "c", user: "dev"})
				c.write([]byte{b[0], byte(i - 2)}, b[2:i], []byte{0xC0, 0})
				if _, err := c.read(patience); isTimeout(err) {
					t.Fatalf("%x: left hanging", b[:i])
				}
				_ = c.conn.Close()
			}
		}
	}
	eventually(t, "all sessions are gone", func() bool { return x.metric("millrace_broker_connections", "") == 0 })
	if n := x.metric("millrace_broker_contained_panics_total", ""); n != 0 {
		t.Errorf("%v panics", n)
	}
	if n := x.IndexSize(); n != 0 {
		t.Errorf("%d entries left in the index", n)
	}
}
