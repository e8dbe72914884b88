package broker_test

import (
	"testing"
	"time"
)

// A session that signed in with an access token ends with it, within a round of the watchdog, and is told why.
func TestSessionEndsWithItsToken(t *testing.T) {
	leakCheck(t)
	x := open(t, setting{})
	p, ok := x.book.SignIn("dev", []byte(secret))
	if !ok {
		t.Fatal("no sign-in")
	}
	token, ttl, err := x.book.Issue(p)
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range versions {
		c := dial(t, x.Addr(), hello{id: "c", user: "dev", password: token, version: version})
		other := dial(t, x.Addr(), hello{id: "d", user: "dev"}) // by secret: no end
		c.publishes(full("a"), 10, values)
		x.Inspect(x.clock.now().Add(ttl - 5*time.Second))
		c.alive()
		x.Inspect(x.clock.now().Add(ttl + time.Second))
		c.disconnected(0x87)
		other.alive()
		_ = other.conn.Close()
		eventually(t, "both are gone", func() bool { return len(x.Sessions()) == 0 })
	}
	want := byte(0x86)
	for _, h := range []hello{{id: "c", user: "line", password: token}, {id: "c", user: "", password: token}, {id: "c", user: "dev", password: token + "x"}} {
		if _, p := dialAny(t, x.Addr(), h); p.body[1] != want {
			t.Errorf("%s: %v", h.user, p)
		}
	}
	c := dial(t, x.Addr(), hello{id: "c", user: "dev", password: token})
	if _, err := x.book.Rotate("dev", ""); err != nil { // its secret's end is its end
		t.Fatal(err)
	}
	c.disconnected(0x87)
	if _, p := dialAny(t, x.Addr(), hello{id: "c", user: "dev", password: token}); p.body[1] != want {
		t.Errorf("after the rotation: %v", p)
	}
}
