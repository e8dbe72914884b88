package broker_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	old "github.com/eclipse/paho.mqtt.golang"

	"github.com/eclipse/paho.golang/autopaho"
	"github.com/eclipse/paho.golang/paho"
)

// The clients of others again: QoS 2, shared subscriptions, sessions that go on, beside what clients_test.go and others_test.go
// show of values, retained messages and wills.

// shares counts what the members of a group got of n messages, and wants each once. Which member got it is the box's business.
func shares(t *testing.T, n int, got <-chan string) {
	t.Helper()
	seen := map[string]int{}
	for range n {
		seen[next(t, got)]++
	}
	for i := range n {
		if seen[fmt.Sprint(i)] != 1 {
			t.Errorf("message %d of a group came %d times: %v", i, seen[fmt.Sprint(i)], seen)
		}
	}
	select {
	case more := <-got:
		t.Errorf("besides came %s", more)
	default:
	}
}

// TestAutopaho is the Go client for MQTT 5 that looks after its connection, over TCP and over WebSocket.
func TestAutopaho(t *testing.T) {
	for _, door := range []string{"tcp", "websocket"} {
		t.Run(door, func(t *testing.T) {
			x := open(t, setting{})
			server, err := url.Parse("mqtt://" + x.Addr())
			if door == "websocket" {
				server, err = url.Parse(overWebSocket(t, x.Broker))
			}
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			connect := func(id string, expiry uint32, change func(*autopaho.ClientConfig)) (*autopaho.ConnectionManager, chan *paho.Publish, chan bool) {
				t.Helper()
				got, up := make(chan *paho.Publish, 200), make(chan bool, 10)
				cfg := autopaho.ClientConfig{ServerUrls: []*url.URL{server}, KeepAlive: 30, CleanStartOnInitialConnection: true, SessionExpiryInterval: expiry,
					ReconnectBackoff: func(int) time.Duration { return 10 * time.Millisecond }, ConnectUsername: "dev", ConnectPassword: []byte(secret),
					OnConnectionUp: func(_ *autopaho.ConnectionManager, ack *paho.Connack) { up <- ack.SessionPresent }}
				cfg.ClientID = id
				cfg.OnPublishReceived = []func(paho.PublishReceived) (bool, error){func(p paho.PublishReceived) (bool, error) { got <- p.Packet; return true, nil }}
				if change != nil {
					change(&cfg)
				}
				c, err := autopaho.NewConnection(ctx, cfg)
				if err != nil {
					t.Fatal(err)
				}
				if next(t, up) {
					t.Errorf("%s: a session before the first", id)
				}
				return c, got, up
			}
			subscribe := func(c *autopaho.ConnectionManager, qos byte, filters ...string) {
				t.Helper()
				var list []paho.SubscribeOptions
				for _, f := range filters {
					list = append(list, paho.SubscribeOptions{Topic: f, QoS: qos})
				}
				if ack, err := c.Subscribe(ctx, &paho.Subscribe{Subscriptions: list}); err != nil || slices.Max(ack.Reasons) > 2 {
					t.Fatal(err, ack)
				}
			}
			publish := func(c *autopaho.ConnectionManager, topic, payload string, qos byte, retain bool) {
				t.Helper()
				if r, err := c.Publish(ctx, &paho.Publish{QoS: qos, Topic: topic, Payload: []byte(payload), Retain: retain}); err != nil || r.ReasonCode != 0 {
					t.Fatal(err, r)
				}
			}
			p, _, _ := connect("p", 0, nil)
			s, got, up := connect("s", 600, nil)
			subscribe(s, 2, full("line1/#"), "plain/#")
			for i := range 30 {
				publish(p, full("line1/a"), values(i), byte(1+i%2), false)
				publish(p, "plain/twice", fmt.Sprint(i), 2, false)
			}
			for i := range 30 {
				if m := next(t, got); !strings.HasPrefix(string(m.Payload), fmt.Sprintf(`{"value":%d,`, i)) || m.QoS != 1 {
					t.Fatalf("value %d: %s", i, m.Payload)
				}
				if m := next(t, got); string(m.Payload) != fmt.Sprint(i) || m.QoS != 2 {
					t.Fatalf("message %d: %+v", i, m)
				}
			}
			publish(p, "plain/kept", "kept", 2, true)
			if m := next(t, got); m.Retain {
				t.Errorf("live: %+v", m)
			}
			late, heard, _ := connect("late", 0, nil)
			subscribe(late, 1, "plain/kept", full("line1/a"))
			kept := []string{string(next(t, heard).Payload), string(next(t, heard).Payload)}
			if slices.Sort(kept); kept[0] != "kept" || !strings.HasPrefix(kept[1], `{"value":29,`) {
				t.Errorf("retained: %v", kept)
			}
			// Its connection is lost; it comes back by itself, to its session.
			s.TerminateConnectionForTest()
			publish(p, "plain/away", "meanwhile", 2, false)
			if !next(t, up) {
				t.Error("the session is gone")
			}
			if m := next(t, got); string(m.Payload) != "meanwhile" {
				t.Errorf("got %+v", m)
			}
			dying, _, _ := connect("dying", 0, func(c *autopaho.ClientConfig) {
				c.WillMessage = &paho.WillMessage{Topic: "plain/will", Payload: []byte("gone"), QoS: 2}
				c.OnConnectionDown = func() bool { return false }
			})
			dying.TerminateConnectionForTest()
			if m := next(t, got); m.Topic != "plain/will" || m.QoS != 2 {
				t.Errorf("the will: %+v", m)
			}
			all := make(chan string, 200)
			for i := range 3 {
				member, _, _ := connect(fmt.Sprint("member", i), 0, func(c *autopaho.ClientConfig) {
					c.OnPublishReceived = []func(paho.PublishReceived) (bool, error){
						func(p paho.PublishReceived) (bool, error) { all <- string(p.Packet.Payload); return true, nil }}
				})
				subscribe(member, 2, "$share/g/group/#")
			}
			for i := range 30 {
				publish(p, "group/a", fmt.Sprint(i), byte(i%3), false)
			}
			shares(t, 30, all)
			for _, c := range []*autopaho.ConnectionManager{p, s, late} {
				if err := c.Disconnect(ctx); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestPaho311Sessions is the Go client for MQTT 3.1.1 with QoS 2, a session that goes on, and a group.
func TestPaho311Sessions(t *testing.T) {
	x := open(t, setting{})
	connect := func(id string, clean bool, got chan old.Message) old.Client {
		o := old.NewClientOptions().AddBroker("tcp://" + x.Addr()).SetClientID(id).SetUsername("dev").SetPassword(secret).SetProtocolVersion(4).
			SetAutoReconnect(false).SetConnectTimeout(patience).SetCleanSession(clean).
			SetDefaultPublishHandler(func(_ old.Client, m old.Message) { got <- m })
		c := old.NewClient(o)
		done(t, c.Connect())
		t.Cleanup(func() { c.Disconnect(0) })
		return c
	}
	got := make(chan old.Message, 100)
	s := connect("s", false, got)
	done(t, s.Subscribe("plain/#", 2, nil))
	p := connect("p", true, nil)
	for i := range 20 {
		done(t, p.Publish("plain/a", 2, false, fmt.Sprint(i)))
		if m := next(t, got); string(m.Payload()) != fmt.Sprint(i) || m.Qos() != 2 {
			t.Fatalf("message %d: %s QoS %d", i, m.Payload(), m.Qos())
		}
	}
	s.Disconnect(100)
	eventually(t, "it is away", func() bool {
		for _, s := range x.Sessions() {
			if s.MQTTID == "s" && s.Connected {
				return false
			}
		}
		return true
	})
	for i := range 20 {
		done(t, p.Publish("plain/a", byte(1+i%2), false, fmt.Sprint("away ", i)))
	}
	connect("s", false, got)
	for i := range 20 {
		if m := next(t, got); string(m.Payload()) != fmt.Sprint("away ", i) || int(m.Qos()) != 1+i%2 {
			t.Fatalf("message %d: %s QoS %d", i, m.Payload(), m.Qos())
		}
	}
	all := make(chan string, 100)
	for i := range 2 {
		in := make(chan old.Message, 100)
		done(t, connect(fmt.Sprint("member", i), true, in).Subscribe("$share/g/group/#", 2, func(_ old.Client, m old.Message) { all <- string(m.Payload()) }))
	}
	for i := range 20 {
		done(t, p.Publish("group/a", byte(i%3), false, fmt.Sprint(i)))
	}
	shares(t, 20, all)
}

// TestMosquittoMatrix is mosquitto_pub and mosquitto_sub with retained messages, QoS 2, wills and a group.
func TestMosquittoMatrix(t *testing.T) {
	_, err := exec.LookPath("mosquitto_sub")
	needs(t, err == nil, "mosquitto_sub is not installed")
	for _, version := range []string{"mqttv311", "mqttv5"} {
		t.Run(version, func(t *testing.T) {
			x := open(t, setting{})
			host, port, _ := net.SplitHostPort(x.Addr())
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			tool := func(name string, args ...string) *exec.Cmd {
				return exec.CommandContext(ctx, name, append([]string{"-h", host, "-p", port, "-V", version, "-u", "dev", "-P", secret}, args...)...)
			}
			pub := func(args ...string) {
				t.Helper()
				if text, err := tool("mosquitto_pub", args...).CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, text)
				}
			}
			subscribed := 0
			sub := func(args ...string) (*exec.Cmd, *bytes.Buffer) {
				t.Helper()
				cmd, out := tool("mosquitto_sub", args...), &bytes.Buffer{}
				cmd.Stdout = out
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				subscribed++
				eventually(t, "mosquitto_sub has subscribed", func() bool {
					n := 0
					for _, s := range x.Sessions() {
						n += min(s.Subscriptions, 1)
					}
					return n == subscribed
				})
				return cmd, out
			}
			ended := func(cmd *exec.Cmd, out *bytes.Buffer, want string) {
				t.Helper()
				err := cmd.Wait()
				lines := slices.Sorted(strings.Lines(out.String())) // it prints QoS 2 when the PUBREL has come, so beside QoS 1 in any order
				if got := strings.Join(lines, ""); err != nil || got != want {
					t.Errorf("%v, got\n%swant\n%s", err, got, want)
				}
				subscribed--
				eventually(t, "mosquitto_sub is gone", func() bool { return len(x.Sessions()) == subscribed })
			}
			pub("-q", "2", "-t", "plain/kept", "-m", "kept", "-r")
			pub("-q", "1", "-t", full("line1/a"), "-m", values(7))
			cmd, out := sub("-q", "2", "-t", "plain/#", "-t", full("line1/#"), "-C", "4", "-F", "%r %q %t")
			eventually(t, "the retained ones have come", func() bool { return sentTo(x) >= 2 })
			pub("-q", "2", "-t", "plain/live", "-m", "live")
			pub("-q", "2", "-t", full("line1/a"), "-m", values(8))
			ended(cmd, out, "0 1 "+full("line1/a")+"\n0 2 plain/live\n1 1 "+full("line1/a")+"\n1 2 plain/kept\n")

			cmd, out = sub("-q", "1", "-t", "plain/will", "-C", "1", "-v")
			dying, _ := sub("-t", "plain/nothing", "--will-topic", "plain/will", "--will-payload", "gone", "--will-qos", "1")
			if err := dying.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = dying.Wait() // killed is what it says
			subscribed--
			ended(cmd, out, "plain/will gone\n")

			one, first := sub("-q", "2", "-t", "$share/g/group/#", "-C", "5")
			two, second := sub("-q", "2", "-t", "$share/g/group/#", "-C", "5")
			for i := range 10 {
				pub("-q", "2", "-t", "group/a", "-m", fmt.Sprint(i))
			}
			if err := one.Wait(); err != nil {
				t.Error(err)
			}
			if err := two.Wait(); err != nil {
				t.Error(err)
			}
			all := slices.Sorted(slices.Values(strings.Fields(first.String() + second.String())))
			if strings.Join(all, "") != "0123456789" {
				t.Errorf("the group got %s and %s", first, second)
			}
		})
	}
}

// sentTo is how many messages the sessions that subscribe were sent.
func sentTo(x *box) (n uint64) {
	for _, s := range x.Sessions() {
		n += s.Sent
	}
	return n
}
