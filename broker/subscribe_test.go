package broker_test

import (
	"fmt"
	"testing"
)

// The MQTT library is told of no subscription: it would keep a second tree of filters, in time that grows with the square of a
// filter's length.
func TestLibraryKnowsNoSubscriptions(t *testing.T) {
	for _, v := range versions {
		x := open(t, setting{})
		c := dial(t, x.Addr(), hello{id: "c", user: "dev", version: v})
		c.mustSub(1, "plain/#", full("line1/+"), "$share/group/plain/x", "#")
		if n := x.LibrarySubscriptions(); n != 0 {
			t.Errorf("v%d: it has %d", v, n)
		}
		c.write(frame(0xA2, []byte{0, 3}, props(v, nil), str("plain/#"), str("none")))
		if p := c.want(0xB0); v == 5 && string(p.body[3:]) != "\x00\x11" {
			t.Errorf("UNSUBACK %v", p)
		}
		if n := x.LibrarySubscriptions(); n != 0 {
			t.Errorf("v%d: %d remain", v, n)
		}
	}
}

// What a session is owed of retained messages is bounded by its subscriptions, however often it subscribes anew while it
// takes nothing; what is unsubscribed meanwhile never comes, the rest comes once.
func TestReplaysDoNotPileUp(t *testing.T) {
	x := open(t, setting{})
	p := dial(t, x.Addr(), hello{id: "p", user: "dev"})
	const topics = 60
	for i := range topics {
		put(p, pub{topic: fmt.Sprint("plain/", i), payload: fmt.Sprint(i), retain: true})
	}
	s := dial(t, x.Addr(), hello{id: "s", user: "sub", properties: []byte{0x21, 0, 1}}) // one at a time
	var filters []string
	for i := range topics {
		filters = append(filters, fmt.Sprint("plain/", i))
	}
	s.mustSub(1, filters[0])
	held := s.wantMsg()
	for range 50 {
		s.mustSub(1, filters[1:]...)
	}
	if owed, listed := x.ReplayJobs("s"); owed > topics || listed > 2*topics {
		t.Errorf("owed by %d subscriptions, in a list of %d", owed, listed)
	}
	s.write(frame(0xA2, []byte{0, 3}, props(5, nil), str(filters[5]), str(filters[59])))
	s.want(0xB0)
	s.puback(held.id)
	got := map[string]int{}
	for range topics - 3 {
		m := s.wantMsg()
		got[m.payload]++
		s.puback(m.id)
	}
	s.alive()
	if len(got) != topics-3 || got["5"] != 0 || got["59"] != 0 {
		t.Errorf("got %v", got)
	}
}
