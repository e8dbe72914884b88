package broker_test

import (
	"bufio"
	"bytes"
	"net"
	"strings"
	"testing"
	"time"
)

// A client that never reads is no longer read itself, which is counted, once each time: also when what is stuck is the
// reader's own write of its acknowledgements. When the client reads again, every acknowledgement comes, in order.
func TestUnreadAcknowledgementsAreCounted(t *testing.T) {
	t.Parallel()
	x := open(t, setting{})
	const held = "millrace_broker_reads_held_total"
	c := dial(t, x.Addr(), hello{id: "c", user: "line"})
	_ = c.conn.(*net.TCPConn).SetReadBuffer(256 << 10) // or the kernel takes up to 32 MiB for it
	c.conn = buffered{c.conn, bufio.NewReaderSize(c.conn, 64<<10)}
	topic := "other/" + strings.Repeat("x", 900) // refused, and the refusal names it: as much comes back as goes out
	const publishes = 15_000
	var all bytes.Buffer
	for i := range publishes {
		all.Write(pub{topic: topic, qos: 1, id: uint16(1 + i)}.bytes(5))
	}
	_ = c.conn.SetWriteDeadline(time.Time{})
	for turn := 1; turn <= 2; turn++ {
		before := x.metric(held, "")
		sent := make(chan error, 1)
		go func() {
			_, err := c.conn.Write(all.Bytes())
			sent <- err
		}()
		eventually(t, "the held reader is counted", func() bool { return x.metric(held, "") > before })
		eventually(t, "a write that goes on being stuck is counted no more", func() bool {
			n := x.metric(held, "")
			for range 5 {
				x.Inspect(x.clock.now())
			}
			return x.metric(held, "") == n
		})
		if n := x.metric(held, "") - before; n > 3 { // one, and what the machine itself held up
			t.Errorf("counted %v times", n)
		}
		if n := x.metric("millrace_broker_messages_received_total", ""); n >= float64(turn*publishes) {
			t.Fatalf("all %v messages were read", n)
		}
		for i := range publishes {
			if code, _ := c.ackOf(uint16(1 + i)); code != 0x87 {
				t.Fatalf("PUBACK %d: %02x", i, code)
			}
		}
		if err := <-sent; err != nil {
			t.Fatal(err)
		}
	}
}

// buffered is a connection that is read in large pieces.
type buffered struct {
	net.Conn
	in *bufio.Reader
}

func (b buffered) Read(p []byte) (int, error) { return b.in.Read(p) }
