// Command baremochi is the named baseline of the performance runs: mochi with an allow-all hook, nothing
// checked and nothing stored, on one TCP listener. It prints the lines the box prints, so the same harness
// starts both.
//
//	baremochi [-address 127.0.0.1:0]
package main

import (
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/listeners"
	"github.com/mochi-mqtt/server/v2/packets"
)

func main() {
	address := flag.String("address", "127.0.0.1:0", "host:port to listen on")
	flag.Parse()
	if err := serve(*address); err != nil {
		fmt.Fprintln(os.Stderr, "baremochi:", err)
		os.Exit(1)
	}
}

func serve(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	server := mqtt.New(&mqtt.Options{Logger: slog.New(slog.DiscardHandler)})
	if err := server.AddHook(new(allow), nil); err != nil {
		return err
	}
	if err := server.AddListener(listeners.NewNet("tcp", l)); err != nil {
		return err
	}
	if err := server.Serve(); err != nil {
		return err
	}
	fmt.Printf("listening mqtt tcp://%s\nready\n", l.Addr())
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	<-stop
	return server.Close()
}

// allow lets everyone in and everything through.
type allow struct{ mqtt.HookBase }

func (allow) ID() string { return "allow" }

func (allow) Provides(b byte) bool {
	return b == mqtt.OnConnectAuthenticate || b == mqtt.OnACLCheck
}

func (allow) OnConnectAuthenticate(*mqtt.Client, packets.Packet) bool { return true }
func (allow) OnACLCheck(*mqtt.Client, string, bool) bool              { return true }
