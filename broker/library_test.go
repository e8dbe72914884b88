package broker_test

import (
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/packets"
)

// What the library does with what OnPublish returns, and the panics we contain. The broker is built so that none of it
// matters; these tests tell when an upgrade of the library changes the ground.

type answering struct {
	mqtt.HookBase
	answer error
}

func (*answering) ID() string { return "answering" }
func (*answering) Provides(b byte) bool {
	return b == mqtt.OnConnectAuthenticate || b == mqtt.OnACLCheck || b == mqtt.OnPublish
}
func (*answering) OnConnectAuthenticate(*mqtt.Client, packets.Packet) bool { return true }
func (*answering) OnACLCheck(*mqtt.Client, string, bool) bool              { return true }
func (a *answering) OnPublish(_ *mqtt.Client, pk packets.Packet) (packets.Packet, error) {
	return pk, a.answer
}

// library runs the bare library; a connection's panic arrives on panics.
func library(t *testing.T, answer error) (connect func(version byte, id string) *client, panics chan any) {
	s := mqtt.New(&mqtt.Options{Logger: slog.New(slog.DiscardHandler)})
	if err := s.AddHook(&answering{answer: answer}, nil); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	panics = make(chan any, 8)
	go func() {
		for {
			raw, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() {
					if r := recover(); r != nil {
						panics <- r
					}
				}()
				_ = s.EstablishConnection("t", raw)
			}()
		}
	}()
	return func(version byte, id string) *client {
		return dial(t, ln.Addr().String(), hello{id: id, user: "u", version: version})
	}, panics
}

func TestLibraryAnswersToOnPublish(t *testing.T) {
	code := packets.ErrQuotaExceeded
	cases := []struct {
		name   string
		answer error
		// for v3.1.1 QoS 1, v5 QoS 1, v5 QoS 2, v5 QoS 0: the answer's first byte and reason, delivered or not
		want [4]string
	}{
		{"plain error", fmt.Errorf("no"), [4]string{"40 00 delivered", "40 00 delivered", "50 00 delivered", "-- delivered"}},
		{"code", code, [4]string{"40 00 delivered", "40 97", "40 97", "-- delivered"}},
		{"wrapped code", fmt.Errorf("x: %w", code), [4]string{"40 00 delivered", "panic", "panic", "-- delivered"}},
		{"ignore", packets.CodeSuccessIgnore, [4]string{"40 00", "40 00", "50 00", "--"}},
		{"reject", packets.ErrRejectPacket, [4]string{"--", "--", "--", "--"}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			for i, how := range []struct{ version, qos byte }{{4, 1}, {5, 1}, {5, 2}, {5, 0}} {
				connect, panics := library(t, tc.answer)
				s := connect(how.version, "s")
				s.mustSub(0, "a")
				c := connect(how.version, "c")
				p := pub{topic: "a", payload: "1", qos: how.qos}
				if how.qos > 0 {
					p.id = 3
				}
				c.write(p.bytes(how.version), []byte{0xC0, 0})
				got := "--"
				if pk, err := c.read(patience); err != nil {
					<-panics
					got = "panic"
				} else if pk.first != 0xD0 {
					reason := byte(0)
					if len(pk.body) > 2 {
						reason = pk.body[2]
					}
					got = fmt.Sprintf("%02x %02x", pk.first, reason)
					c.want(0xD0)
				}
				if got != "panic" {
					s.write([]byte{0xC0, 0})
					pk, err := s.read(patience)
					if err != nil {
						t.Fatal(err)
					}
					if pk.first == 0xD0 {
						// The library delivers from another goroutine than the one that answers a ping.
						wait := 100 * time.Millisecond
						if strings.HasSuffix(tc.want[i], "delivered") {
							wait = patience
						}
						if pk, err = s.read(wait); err != nil {
							pk = packet{}
						}
					}
					if pk.first>>4 == 3 {
						got += " delivered"
					}
				}
				if got != tc.want[i] {
					t.Errorf("v%d QoS %d: %q, expected of this version of the library: %q", how.version, how.qos, got, tc.want[i])
				}
			}
		})
	}
}

// Why SUBSCRIBE is checked before the library sees it.
func TestLibraryPanicsOnCutSubscribe(t *testing.T) {
	connect, panics := library(t, nil)
	c := connect(5, "c")
	c.write([]byte{0x82, 6, 0, 1, 0, 0, 1, 'a'})
	c.ended()
	select {
	case <-panics: // the connection is closed while the panic passes through it
	case <-time.After(patience):
		t.Error("the library no longer panics here; then this check of ours is no longer needed for it")
	}
}
