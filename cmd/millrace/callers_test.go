package main

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"millrace/auth"
)

// mqttPaths is what may be asked of the broker, and by whom: client is an API client that is granted line1/#. What is not in by is
// refused; a path without a row is no path.
var mqttPaths = []struct {
	what, topic string
	publish     bool
	by          []string
}{
	{"publish what is granted", root + "line1/a", true, []string{"client"}},
	{"publish through one's own inbox", root + "_ingress/dev/line1/a", true, []string{"client"}},
	{"publish what is not granted", root + "line2/a", true, nil},
	{"publish in another's inbox", root + "_ingress/other/line1/a", true, nil},
	{"publish a verdict", root + "_verdict/other/a", true, nil},
	{"publish in another workspace", "mHv1.0/lab/line1/a", true, nil},
	{"publish an ordinary topic", "plain/a", true, nil},
	{"publish in $SYS", "$SYS/broker/uptime", true, nil},
	{"subscribe to what is granted", root + "line1/#", false, []string{"client", "viewer", "operator", "designer", "admin"}},
	{"subscribe to one's own verdicts", root + "_verdict/dev/#", false, []string{"client"}},
	{"subscribe to what is not granted", root + "line2/#", false, []string{"viewer", "operator", "designer", "admin"}},
	{"subscribe to another's inbox", root + "_ingress/other/#", false, nil},
	{"subscribe to another's verdicts", root + "_verdict/other/#", false, nil},
	{"subscribe to another workspace", "mHv1.0/lab/#", false, nil},
	{"subscribe to ordinary topics", "plain/#", false, []string{"admin"}},
	{"subscribe to a shared group of what is not granted", "$share/g/" + root + "line2/#", false, []string{"viewer", "operator", "designer", "admin"}},
	{"subscribe to $SYS", "$SYS/#", false, []string{"admin"}},
}

// Every path of MQTT by every kind of caller: those who sign in with what is no (longer) good do not get in at all.
func TestEveryMQTTPathByEveryCaller(t *testing.T) {
	r := start(t, t.TempDir(), func(c *Config) {
		c.UNS.Workspaces = []string{"main", "lab"}
		c.Broker.Limits.SignInFailures, c.Broker.Limits.FlappingLimit = 0, 0 // this test fails on purpose
		c.Auth.Token.TTL = 2 * time.Second
	})
	book, ctx := r.box.book, context.Background()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	issue := func(id, secret string) string {
		t.Helper()
		p, ok := book.SignIn(id, []byte(secret))
		if !ok {
			t.Fatalf("%s cannot sign in", id)
		}
		text, _, err := book.Issue(p)
		check(err)
		return text
	}
	token := func(n auth.NewToken) string {
		t.Helper()
		n.Name = "x"
		_, text, err := book.MakeToken(n)
		check(err)
		return text
	}
	line1 := auth.Grant{Effect: "allow", Actions: []auth.Action{"publish", "subscribe"}, Filter: "line1/#"}
	secret := r.client("dev", line1)
	off, rotated, was := false, r.client("rotated", line1), auth.RoleViewer
	disabled := r.client("disabled", line1)
	_, err := book.Patch("disabled", auth.Patch{Enabled: &off})
	check(err)
	ended := issue("rotated", rotated)
	_, err = book.Rotate("rotated", "")
	check(err)
	expired := issue("dev", secret)
	const password = "seven blue presses"
	roles := []auth.Role{auth.RoleViewer, auth.RoleOperator, auth.RoleDesigner, auth.RoleAdmin}
	for _, name := range []string{"viewer", "operator", "designer", "admin", "demoted", "gone"} {
		role := auth.Role(name)
		if !slices.Contains(roles, role) {
			role = auth.RoleAdmin
		}
		_, err := book.AddUser(ctx, auth.NewUser{Name: name, Role: role, Password: password})
		check(err)
	}
	type kind struct {
		name, user, password string
		is                   string // a name of mqttPaths.by; "": does not get in
	}
	fresh := func() string { return issue("dev", secret) } // an access token that has just been issued
	kinds := []kind{
		{"client by secret", "dev", secret, "client"},
		{"client by access token", "dev", "fresh", "client"},
		{"another client's access token", "other", "fresh", ""},
		{"wrong secret", "dev", secret + "x", ""},
		{"no password", "dev", "", ""},
		{"nobody", "", "", ""},
		{"disabled client", "disabled", disabled, ""},
		{"rotated secret", "rotated", rotated, ""},
		{"access token of a rotated secret", "rotated", ended, ""},
		{"expired access token", "dev", expired, ""},
		{"a user's password", "admin", password, ""},
		{"no such token", "x", "mr_abcdefghijklmnopqrstuvwxyz234567", ""},
		{"metrics token", "x", token(auth.NewToken{Owner: "admin", Metrics: true}), ""},
		{"token scoped to viewer", "x", token(auth.NewToken{Owner: "admin", Role: auth.RoleViewer}), "viewer"},
		{"admin's token of a user who is viewer now", "x", token(auth.NewToken{Owner: "demoted", Role: auth.RoleAdmin}), "viewer"},
		{"token of a disabled user", "x", token(auth.NewToken{Owner: "gone", Role: auth.RoleAdmin}), ""},
		{"expired token", "x", token(auth.NewToken{Role: auth.RoleAdmin, TTL: time.Millisecond}), ""},
	}
	made, revoked, err := book.MakeToken(auth.NewToken{Name: "x", Role: auth.RoleAdmin})
	check(err)
	check(book.DeleteToken(made.ID))
	kinds = append(kinds, kind{"revoked token", "x", revoked, ""})
	for _, role := range roles {
		kinds = append(kinds, kind{"token of nobody's, " + string(role), "x", token(auth.NewToken{Role: role}), string(role)},
			kind{"token of a user, " + string(role), "x", token(auth.NewToken{Owner: string(role), Role: role}), string(role)})
	}
	_, err = book.PatchUser(ctx, "demoted", auth.UserPatch{Role: &was})
	check(err)
	_, err = book.PatchUser(ctx, "gone", auth.UserPatch{Enabled: &off})
	check(err)
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if _, ok := book.Bearer(expired); !ok {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the access token does not expire")
		}
	}

	entered := 0
	enter := func(k kind) (*device, byte) {
		entered++ // an identifier each, since one belongs to whoever had it before
		if k.password == "fresh" {
			k.password = fresh()
		}
		return connect(t, r.mqtt, 5, fmt.Sprint("c", entered), k.user, k.password)
	}
	for _, k := range kinds {
		if k.is == "" {
			if _, code := enter(k); code < 0x80 {
				t.Errorf("%s gets in", k.name)
			}
			continue
		}
		for _, path := range mqttPaths {
			d, code := enter(k) // a connection each: a refusal must not hang on what was asked before
			if code != 0 {
				t.Fatalf("%s: CONNACK %#x", k.name, code)
			}
			if path.publish {
				d.publish(path.topic, "1", 1)
				_, code, _ = d.ack()
			} else {
				code = d.subscribe(path.topic, 1)
			}
			if allowed, want := code < 0x80, slices.Contains(path.by, k.is); allowed != want {
				t.Errorf("%s: %s: code %#x, want allowed = %v", k.name, path.what, code, want)
			}
			d.conn.Close()
		}
	}
}
