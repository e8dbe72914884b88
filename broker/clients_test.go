package broker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	old "github.com/eclipse/paho.mqtt.golang"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"
)

// Clients that others wrote exchange values, retained messages and wills through the box.

// needs is for tests that need a program. At home such a test is skipped and says why; where CI is set it fails, since
// .ci/deps has installed everything.
func needs(t *testing.T, ok bool, what string) {
	t.Helper()
	switch {
	case ok:
	case os.Getenv("CI") != "":
		t.Fatalf("%s; .ci/deps installs it", what)
	default:
		t.Skipf("%s; run make deps", what)
	}
}

// TestPaho311 is the Go client for MQTT 3.1.1, over TCP and over WebSocket.
func TestPaho311(t *testing.T) {
	for _, door := range []string{"tcp", "websocket"} {
		t.Run(door, func(t *testing.T) {
			x := open(t, setting{})
			server := "tcp://" + x.Addr()
			if door == "websocket" {
				server = overWebSocket(t, x.Broker)
			}
			got := make(chan old.Message, 300)
			connect := func(id string, change func(*old.ClientOptions)) old.Client {
				o := old.NewClientOptions().AddBroker(server).SetClientID(id).SetUsername("dev").SetPassword(secret).SetProtocolVersion(4).
					SetAutoReconnect(false).SetConnectTimeout(patience).SetDefaultPublishHandler(func(_ old.Client, m old.Message) { got <- m })
				if change != nil {
					change(o)
				}
				c := old.NewClient(o)
				done(t, c.Connect())
				t.Cleanup(func() { c.Disconnect(0) })
				return c
			}
			s := connect("s", nil)
			sub := s.SubscribeMultiple(map[string]byte{full("line1/#"): 1, "plain/#": 1}, nil)
			done(t, sub)
			p := connect("p", nil)
			for i := range 100 {
				done(t, p.Publish(full("line1/a"), byte(i%2), false, values(i)))
			}
			for i := range 100 {
				if m := next(t, got); m.Topic() != full("line1/a") || !strings.HasPrefix(string(m.Payload()), fmt.Sprintf(`{"value":%d,`, i)) || m.Retained() {
					t.Fatalf("message %d: %s %s", i, m.Topic(), m.Payload())
				}
			}
			done(t, p.Publish("plain/kept", 1, true, "kept"))
			if m := next(t, got); string(m.Payload()) != "kept" || m.Retained() {
				t.Fatalf("live: %s, retained %v", m.Payload(), m.Retained())
			}
			late := connect("late", nil)
			done(t, late.Subscribe("plain/kept", 1, nil))
			if m := next(t, got); string(m.Payload()) != "kept" || !m.Retained() {
				t.Fatalf("to a later subscriber: %s, retained %v", m.Payload(), m.Retained())
			}
			done(t, late.Subscribe(full("line1/#"), 1, nil))
			if m := next(t, got); !strings.HasPrefix(string(m.Payload()), `{"value":99,`) || !m.Retained() {
				t.Fatalf("the last value: %s, retained %v", m.Payload(), m.Retained())
			}
			done(t, p.Publish("plain/kept", 1, true, ""))
			next(t, got) // s and late both
			next(t, got)

			var wire net.Conn
			connect("dying", func(o *old.ClientOptions) {
				o.SetWill("plain/will", "gone", 1, false).SetCustomOpenConnectionFn(func(u *url.URL, _ old.ClientOptions) (net.Conn, error) {
					c, err := net.Dial("tcp", x.Addr())
					wire = c
					return c, err
				})
			})
			_ = wire.Close()
			if m := next(t, got); m.Topic() != "plain/will" || string(m.Payload()) != "gone" {
				t.Fatalf("the will: %s %s", m.Topic(), m.Payload())
			}
		})
	}
}

func done(t *testing.T, token old.Token) {
	t.Helper()
	if !token.WaitTimeout(patience) || token.Error() != nil {
		t.Fatal("not done: ", token.Error())
	}
}

func next[T any](t *testing.T, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(patience):
		t.Fatal("nothing came")
	}
	return v
}

// TestPaho5 is the Go client for MQTT 5 with retained messages, retain handling, a will with its properties, and a request
// that is answered.
func TestPaho5(t *testing.T) {
	x := open(t, setting{})
	connect := func(id string, will *paho.WillMessage, about *paho.WillProperties) (*paho.Client, chan *paho.Publish, net.Conn) {
		t.Helper()
		raw, err := net.Dial("tcp", x.Addr())
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan *paho.Publish, 100)
		c := paho.NewClient(paho.ClientConfig{Conn: packets.NewThreadSafeConn(raw), OnPublishReceived: []func(paho.PublishReceived) (bool, error){
			func(p paho.PublishReceived) (bool, error) { got <- p.Packet; return true, nil }}})
		ack, err := c.Connect(t.Context(), &paho.Connect{ClientID: id, Username: "dev", UsernameFlag: true, Password: []byte(secret), PasswordFlag: true, KeepAlive: 30,
			CleanStart: true, WillMessage: will, WillProperties: about})
		if err != nil || ack.ReasonCode != 0 {
			t.Fatal(err, ack)
		}
		t.Cleanup(func() { _ = c.Disconnect(&paho.Disconnect{}) })
		return c, got, raw
	}
	subscribe := func(c *paho.Client, o ...paho.SubscribeOptions) {
		t.Helper()
		if _, err := c.Subscribe(t.Context(), &paho.Subscribe{Subscriptions: o}); err != nil {
			t.Fatal(err)
		}
	}
	publish := func(c *paho.Client, p *paho.Publish) {
		t.Helper()
		if r, err := c.Publish(t.Context(), p); err != nil || r.ReasonCode != 0 {
			t.Fatal(err, r)
		}
	}
	p, answers, _ := connect("p", nil, nil)
	publish(p, &paho.Publish{QoS: 1, Topic: full("line1/a"), Payload: []byte(values(7))})
	publish(p, &paho.Publish{QoS: 1, Topic: "plain/kept", Payload: []byte("kept"), Retain: true, Properties: &paho.PublishProperties{ContentType: "text/plain"}})

	subscribe(p, paho.SubscribeOptions{Topic: "plain/settled"}) // answered when what was published has been delivered
	s, got, _ := connect("s", nil, nil)
	subscribe(s, paho.SubscribeOptions{Topic: full("line1/#"), QoS: 1})
	if m := next(t, got); !m.Retain || !strings.HasPrefix(string(m.Payload), `{"value":7,`) {
		t.Fatalf("the last value: %+v", m)
	}
	subscribe(s, paho.SubscribeOptions{Topic: "plain/#", QoS: 1, RetainHandling: 2})
	subscribe(s, paho.SubscribeOptions{Topic: "plain/+", QoS: 1})
	if m := next(t, got); !m.Retain || string(m.Payload) != "kept" || m.Properties.ContentType != "text/plain" {
		t.Fatalf("retained: %+v", m)
	}
	// This client leaves the content type of a will out of its CONNECT.
	_, _, wire := connect("dying", &paho.WillMessage{Topic: "plain/will", Payload: []byte("gone"), QoS: 1},
		&paho.WillProperties{ContentType: "text/plain", User: paho.UserProperties{{Key: "a", Value: "1"}, {Key: "a", Value: "2"}}})
	_ = wire.Close()
	if m := next(t, got); m.Topic != "plain/will" || string(m.Payload) != "gone" || len(m.Properties.User) != 2 || m.Properties.User[1].Value != "2" {
		t.Fatalf("the will: %+v", m)
	}
	requestAndAnswer(t, p, s, answers, got)
}

// requestAndAnswer: p asks, s answers where the request says, with what it said.
func requestAndAnswer(t *testing.T, p, s *paho.Client, answers, questions <-chan *paho.Publish) {
	t.Helper()
	publish := func(c *paho.Client, topic, payload string, about *paho.PublishProperties) {
		t.Helper()
		if r, err := c.Publish(t.Context(), &paho.Publish{QoS: 1, Topic: topic, Payload: []byte(payload), Properties: about}); err != nil || r.ReasonCode != 0 {
			t.Fatal(err, r)
		}
	}
	if _, err := p.Subscribe(t.Context(), &paho.Subscribe{Subscriptions: []paho.SubscribeOptions{{Topic: "plain/answers", QoS: 1}}}); err != nil {
		t.Fatal(err)
	}
	publish(p, "plain/question", "?", &paho.PublishProperties{ResponseTopic: "plain/answers", CorrelationData: []byte{0, 1}})
	q := next(t, questions)
	publish(s, q.Properties.ResponseTopic, "!", &paho.PublishProperties{CorrelationData: q.Properties.CorrelationData})
	if m := next(t, answers); string(m.Payload) != "!" || !bytes.Equal(m.Properties.CorrelationData, []byte{0, 1}) {
		t.Fatalf("the answer: %+v", m)
	}
}

// TestNodeClient runs the JavaScript client over WebSocket.
func TestNodeClient(t *testing.T) {
	node, err := exec.LookPath("node")
	needs(t, err == nil, "node is not installed")
	_, err = os.Stat(filepath.Join("testdata", "npm", "node_modules", "mqtt", "package.json"))
	needs(t, err == nil, "the npm client is not installed")
	for _, version := range []string{"4", "5"} {
		t.Run("v"+version, func(t *testing.T) {
			x := open(t, setting{})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, node, "client.js", overWebSocket(t, x.Broker), version, secret, full(""), "true")
			cmd.Dir = filepath.Join("testdata", "npm")
			var complaints bytes.Buffer
			cmd.Stderr = &complaints
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v\n%s\n%s", err, complaints.Bytes(), out)
			}
			var want []string
			want = append(want, `{"granted":[1,1]}`)
			for i := range 20 {
				payload, _ := json.Marshal(fmt.Sprintf(`{"value":%d,"timestamp":"2026-01-02T03:04:05.006Z","quality":"good"}`, i))
				want = append(want, fmt.Sprintf(`{"topic":"%s","payload":%s,"qos":1,"retain":false}`, full("line1/js"), payload))
			}
			want = append(want, `{"large":200000}`, `{"topic":"plain/kept","payload":"kept","qos":1,"retain":false}`, `{"topic":"plain/kept","payload":"kept","qos":1,"retain":true}`)
			{
				want = append(want, `{"topic":"plain/will","payload":"gone","qos":1,"retain":false}`)
			}
			group := ""
			for i := range 5 {
				want = append(want, fmt.Sprintf(`{"twice":"%d","qos":2}`, i))
			}
			for i := range 20 {
				group += fmt.Sprint(" ", i)
			}
			want = append(want, `{"group":"`+group[1:]+`"}`, `{"end":true}`)
			if got := strings.Split(strings.TrimSpace(string(out)), "\n"); strings.Join(got, "\n") != strings.Join(want, "\n") {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			if n := x.store.stored(); n != 20 {
				t.Errorf("%d stored", n)
			}
		})
	}
}
