package broker_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os/exec"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"
)

// Clients that other people wrote.

func TestPaho(t *testing.T) {
	x := open(t, setting{})
	connect := func(id, user string, got chan *paho.Publish) *paho.Client {
		t.Helper()
		raw, err := net.Dial("tcp", x.Addr())
		if err != nil {
			t.Fatal(err)
		}
		c := paho.NewClient(paho.ClientConfig{Conn: packets.NewThreadSafeConn(raw), OnPublishReceived: []func(paho.PublishReceived) (bool, error){
			func(p paho.PublishReceived) (bool, error) { got <- p.Packet; return true, nil }}})
		ack, err := c.Connect(t.Context(), &paho.Connect{ClientID: id, Username: user, UsernameFlag: true, Password: []byte(secret), PasswordFlag: true, KeepAlive: 30, CleanStart: true})
		if err != nil || ack.ReasonCode != 0 || ack.Properties.MaximumQoS != nil || !ack.Properties.SharedSubAvailable {
			t.Fatal(err, ack)
		}
		return c
	}
	got := make(chan *paho.Publish, 2000)
	s := connect("s", "line", got)
	if ack, err := s.Subscribe(t.Context(), &paho.Subscribe{Subscriptions: []paho.SubscribeOptions{{Topic: full("line1/#"), QoS: 2}}}); err != nil || ack.Reasons[0] != 2 {
		t.Fatal(err, ack)
	}
	p := connect("p", "line", nil)
	for i := range 1000 {
		if r, err := p.Publish(t.Context(), &paho.Publish{QoS: 1, Topic: full("line1/a"), Payload: []byte(values(i))}); err != nil || r.ReasonCode != 0 {
			t.Fatal(err, r)
		}
	}
	r, err := p.Publish(t.Context(), &paho.Publish{QoS: 1, Topic: full("line2/a"), Payload: []byte("1")})
	if err == nil || r.ReasonCode != 0x87 || r.Properties.ReasonString != "not_authorized: no grant to publish line2/a" {
		t.Fatal(err, r)
	}
	for i := range 1000 {
		if m := <-got; string(m.Payload)[:len(values(i))-1] != values(i)[:len(values(i))-1] {
			t.Fatalf("message %d: %s", i, m.Payload)
		}
	}
	if err := p.Disconnect(&paho.Disconnect{}); err != nil {
		t.Error(err)
	}
	if err := s.Disconnect(&paho.Disconnect{}); err != nil {
		t.Error(err)
	}
	if n := x.store.stored(); n != 1000 {
		t.Errorf("%d stored", n)
	}
}

func TestMosquittoClients(t *testing.T) {
	for _, tool := range []string{"mosquitto_pub", "mosquitto_sub"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
	x := open(t, setting{})
	host, port, _ := net.SplitHostPort(x.Addr())
	for _, version := range []string{"mqttv311", "mqttv5"} {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		args := []string{"-h", host, "-p", port, "-V", version, "-u", "line", "-P", secret, "-q", "1"}
		sub := exec.CommandContext(ctx, "mosquitto_sub", append(args, "-t", full("line1/#"), "-R", "-C", "3", "-v")...)
		out, err := sub.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := sub.Start(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "mosquitto_sub has subscribed", func() bool { return x.IndexSize() > 0 })
		for i := range 3 {
			pub := exec.CommandContext(ctx, "mosquitto_pub", append(args, "-t", full("line1/a"), "-m", fmt.Sprint(i))...)
			if text, err := pub.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, text)
			}
		}
		lines := bufio.NewScanner(out)
		for i := 0; lines.Scan(); i++ {
			want := fmt.Sprintf(`%s {"value":%d,"timestamp":"2026-01-02T03:04:05.006Z","quality":"good"}`, full("line1/a"), i)
			if lines.Text() != want {
				t.Errorf("got %s", lines.Text())
			}
		}
		if err := sub.Wait(); err != nil {
			t.Error(err)
		}
		cancel()
		eventually(t, "mosquitto_sub is gone", func() bool { return x.IndexSize() == 0 })
	}
}
