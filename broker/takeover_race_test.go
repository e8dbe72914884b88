package broker_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Fault table 16: a hundred goroutines fight for one identifier with a session that lasts, some of them as another client,
// while values are published to it. At any time one has it: whoever was told that it lost, or was refused, gets no message
// after that, nobody of another identity gets in, every value reaches one of them at least once and the last owner has what
// is left; no goroutine, session or subscription is left behind. MILLRACE_LONG=1 fights for ten minutes.
func TestTakeOverRaceWithDeliveries(t *testing.T) {
	leakCheck(t)
	span := 2 * time.Second
	if os.Getenv("MILLRACE_LONG") == "1" {
		span = 10 * time.Minute
	}
	x := open(t, setting{})
	first, _ := keeper(t, x.Addr(), "one", "sub", 5)
	first.mustSub(1, full("a"))
	p := dial(t, x.Addr(), hello{id: "p", user: "dev"})
	base := runtime.NumGoroutine()

	var mu sync.Mutex
	got := map[string]int{}
	var welcome, lost, refused, busy atomic.Int64
	stop := make(chan struct{})
	var wg sync.WaitGroup
	fight := func(foreign bool, rng *rand.Rand) {
		conn, err := net.Dial("tcp", x.Addr())
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		user := "sub"
		if foreign {
			user = "dev"
		}
		version := []byte{4, 5}[rng.IntN(2)]
		h := hello{id: "one", user: user, version: version, persistent: true}
		if version == 5 {
			h.properties = hour
		}
		c := &client{t: t, conn: conn, version: version}
		if _, err := conn.Write(h.bytes()); err != nil {
			return
		}
		told := false
		for end := time.Now().Add(time.Duration(rng.IntN(100)) * time.Millisecond); ; {
			p, err := c.read(100*time.Millisecond + time.Until(end))
			if isTimeout(err) || time.Now().After(end.Add(200*time.Millisecond)) {
				return
			}
			if err != nil {
				return
			}
			switch {
			case told:
				t.Errorf("%v after the end", p)
			case p.first == 0x20 && p.body[1] == 0 && foreign:
				t.Error("another client got in")
			case p.first == 0x20 && p.body[1] == 0:
				if welcome.Add(1); p.body[0] != 1 {
					t.Error("the session was not present")
				}
			case p.first == 0x20 && foreign:
				if told = true; p.body[1] != map[byte]byte{4: 2, 5: 0x85}[version] {
					t.Errorf("another client is told %v", p)
				}
				refused.Add(1)
			case p.first == 0x20:
				told = true
				busy.Add(1)
			case p.first>>4 == 3:
				m := c.parse(p)
				mu.Lock()
				value, _, _ := strings.Cut(m.payload, ",")
				got[value]++
				mu.Unlock()
				if _, err := conn.Write([]byte{0x40, 2, byte(m.id >> 8), byte(m.id)}); err != nil {
					return
				}
			case p.first == 0xE0:
				if told = true; !bytes.Equal(p.body[:1], []byte{0x8E}) {
					t.Errorf("told %v", p)
				}
				lost.Add(1)
			default:
				t.Errorf("got %v", p)
			}
		}
	}
	for i := range 100 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), uint64(i)))
			for {
				select {
				case <-stop:
					return
				default:
					fight(i%10 == 0, rng)
				}
			}
		})
	}
	n := 0
	for end := time.Now().Add(span); time.Now().Before(end); n++ {
		p.publishes(full("a"), 1, func(int) string { return values(n) })
	}
	close(stop)
	wg.Wait()
	last, present := keeper(t, x.Addr(), "one", "sub", 5)
	if !present {
		t.Error("the session is gone")
	}
	eventually(t, "every value has reached somebody", func() bool {
		for _, payload := range last.drained() {
			value, _, _ := strings.Cut(payload, ",")
			got[value]++
		}
		return len(got) == n
	})
	for i := range n {
		if value := fmt.Sprintf(`{"value":%d`, i); got[value] == 0 {
			t.Errorf("nobody has value %d", i)
		}
	}
	if len(x.Sessions()) != 2 {
		t.Errorf("%d sessions", len(x.Sessions()))
	}
	if welcome.Load() == 0 || lost.Load() == 0 || refused.Load() == 0 {
		t.Errorf("no race: %d welcome, %d lost, %d of another identity refused", welcome.Load(), lost.Load(), refused.Load())
	}
	eventually(t, "the goroutines are back to where they were", func() bool { return runtime.NumGoroutine() <= base })
	dial(t, x.Addr(), hello{id: "one", user: "sub"}).write([]byte{0xE0, 0})
	eventually(t, "nothing is left", func() bool { return x.IndexSize() == 0 && len(x.Sessions()) == 1 })
	t.Logf("%d values, %d connections were welcome, %d were told of their end, %d refused as foreign, %d gave way", n, welcome.Load(), lost.Load(), refused.Load(), busy.Load())
}
