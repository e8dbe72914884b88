package broker_test

import (
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/broker"
)

// scroll is a log that can be read.
type scroll struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *scroll) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *scroll) count(what string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Count(s.text.String(), what)
}

// A session that the box ends is named in the log with the reason, once; of a flood only the first of each second.
func TestEndsAreLoggedAndBounded(t *testing.T) {
	log := &scroll{}
	x := open(t, setting{broker: func(o *broker.Options) { o.Log = slog.New(slog.NewTextHandler(log, nil)) }})
	x.clock.stand(time.Unix(1_800_000_000, 0))
	dial(t, x.Addr(), hello{id: "orderly", user: "dev", version: 4}).write([]byte{0xE0, 0})
	c := dial(t, x.Addr(), hello{id: "silent", user: "dev", version: 4, keepAlive: 10})
	x.clock.advance(16 * time.Second)
	x.Inspect(x.clock.now())
	c.ended()
	if log.count("reason=keep_alive client=dev mqtt_id=silent remote=127.0.0.1:") != 1 || log.count("orderly") != 0 {
		t.Errorf("the log says:\n%s", log.text.String())
	}
	x.clock.advance(time.Second)
	for range 60 {
		c := dial(t, x.Addr(), hello{id: "flood", user: "dev", version: 4})
		c.write([]byte{0xF1, 0})
		c.ended()
	}
	if n := log.count("reason=malformed_packet"); n != 10 {
		t.Errorf("%d lines about 60 ends within a second", n)
	}
	if n := x.metric("millrace_broker_sessions_ended_total", "malformed_packet"); n != 60 {
		t.Errorf("%v counted", n)
	}
	x.clock.advance(time.Second)
	c = dial(t, x.Addr(), hello{id: "flood", user: "dev", version: 4})
	c.write([]byte{0xF1, 0})
	c.ended()
	if log.count("reason=malformed_packet") != 11 || log.count("more sessions may end") != 1 {
		t.Errorf("the log says:\n%s", log.text.String())
	}
	dial(t, x.Addr(), hello{id: "last", user: "dev"})
	x.stop()
	if log.count("shutting_down") != 0 {
		t.Error("a stop is told session by session")
	}
}
