package broker_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"millrace/auth"
)

// $SYS on every way that a message takes to a subscriber, for every role: what comes at SUBSCRIBE, what comes every ten seconds, as
// a member of a group, and through wildcards that begin a filter. Who may not see it is refused and gets nothing.
func TestSystemTopicsByRoleAndPath(t *testing.T) {
	x := open(t, setting{})
	dev := dial(t, x.Addr(), hello{id: "dev", user: "dev"})
	const refused = 0x87
	for _, w := range []struct {
		filter         string
		others, admin  byte // SUBACK
		retained, live int  // an administrator gets of $SYS/broker/uptime
	}{
		{"$SYS/broker/uptime", refused, 0, 1, 1},
		{"$SYS/#", refused, 0, 1, 1},
		{"$SYS/+/uptime", refused, 0, 1, 1},
		{"$share/g/$SYS/broker/uptime", refused, 0, 0, 1}, // groups get no retained messages
		{"#", 0, 0, 0, 0},
		{"+/broker/uptime", refused, 0, 0, 0},
		{"+/#", 0, 0, 0, 0},
	} {
		for _, role := range []auth.Role{auth.RoleViewer, auth.RoleOperator, auth.RoleDesigner, auth.RoleAdmin} {
			code, retained, live := w.others, 0, 0
			if role == auth.RoleAdmin {
				code, retained, live = w.admin, w.retained, w.live
			}
			c, _ := x.person(role, hello{id: "looks"})
			c.mustSub(2<<4, full("marker"))
			if got := c.sub(0, w.filter); got[0] != code {
				t.Errorf("%s %s: %02x, want %02x", role, w.filter, got[0], code)
			}
			x.clock.advance(11 * time.Second)
			x.Inspect(x.clock.now())
			dev.send(pub{topic: full("marker"), payload: "1"})
			for {
				m := c.wantMsg()
				if m.topic == full("marker") && !m.retain { // comes after all that was owed before
					break
				}
				if m.topic == "$SYS/broker/uptime" {
					if m.retain {
						retained--
					} else {
						live--
					}
				} else if strings.HasPrefix(m.topic, "$") && code != 0 {
					t.Errorf("%s got %s by %s", role, m.topic, w.filter)
				}
			}
			if retained != 0 || live != 0 {
				t.Errorf("%s %s: %d retained and %d live ones too few", role, w.filter, retained, live)
			}
			_ = c.conn.Close()
			eventually(t, "it is gone", func() bool { return len(x.Sessions()) == 1 })
		}
	}
	// Nobody publishes there, as a will neither.
	for _, user := range []string{"dev", "line"} {
		after, flags := willOf(5, "$SYS/broker/uptime", "1", 0, true, nil)
		if _, p := dialAny(t, x.Addr(), hello{id: user, user: user, flags: flags, afterID: after}); p.body[1] < 0x80 {
			t.Errorf("%s has a will in $SYS: %v", user, p)
		}
	}
}

// A user's token goes with the user: a lower role, a user who is disabled or deleted ends the session at once, and what it may do
// when it comes back is what the user may do.
func TestPeoplesSessionsFollowTheirUser(t *testing.T) {
	const password = "correct horse battery staple"
	x := open(t, setting{})
	u, err := x.book.AddUser(context.Background(), auth.NewUser{Name: "anna", Role: auth.RoleAdmin, Password: password})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := x.book.AddUser(context.Background(), auth.NewUser{Name: "other", Role: auth.RoleAdmin, Password: password}); err != nil {
		t.Fatal(err) // the last administrator cannot be taken away
	}
	made, text, err := x.book.MakeToken(auth.NewToken{Name: "explorer", Owner: u.Name, Role: auth.RoleAdmin, TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	h := hello{id: "explorer", user: "anna", password: text}
	come := func(code byte) *client {
		t.Helper()
		c, p := dialAny(t, x.Addr(), h)
		if p.body[1] != code {
			t.Fatalf("CONNACK %v, want %02x", p, code)
		}
		return c
	}
	c := come(0)
	c.mustSub(0, "plain/#")
	viewer, admin, off := auth.RoleViewer, auth.RoleAdmin, false
	if _, err := x.book.PatchUser(context.Background(), "anna", auth.UserPatch{Role: &viewer}); err != nil {
		t.Fatal(err)
	}
	x.Inspect(x.clock.now())
	c.disconnected(0x87)
	c = come(0)
	if codes := c.sub(0, "$SYS/#", "plain/#", full("#")); codes[0] != 0x87 || codes[1] != 0x87 || codes[2] != 0 {
		t.Errorf("as a viewer: %x", codes)
	}
	if _, err := x.book.PatchUser(context.Background(), "anna", auth.UserPatch{Role: &admin, Enabled: &off}); err != nil {
		t.Fatal(err)
	}
	x.Inspect(x.clock.now())
	c.disconnected(0x87)
	come(0x86)
	on := true
	if _, err := x.book.PatchUser(context.Background(), "anna", auth.UserPatch{Enabled: &on}); err != nil {
		t.Fatal(err)
	}
	c = come(0)
	c.mustSub(0, "$share/g/$SYS/#")
	if err := x.book.DeleteUser("anna"); err != nil {
		t.Fatal(err)
	}
	x.Inspect(x.clock.now())
	c.disconnected(0x87)
	come(0x86)
	if made.Owner != "anna" {
		t.Errorf("%+v", made)
	}
}
