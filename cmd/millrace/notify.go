package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"time"
)

// supervisor is systemd, as far as it wants to know how the box is: the socket and the period that it names in the environment
// (sd_notify(3), sd_watchdog_enabled(3)). The zero value is nobody.
type supervisor struct {
	socket string        // path, or @name of an abstract one
	every  time.Duration // it ends the process when it hears nothing for so long; 0 = never
}

// supervisorOf reads the environment. A value that cannot be one counts as none.
func supervisorOf(env []string, pid int) (s supervisor) {
	usec, of := "", ""
	for _, kv := range env {
		switch name, value, _ := strings.Cut(kv, "="); name {
		case "NOTIFY_SOCKET":
			if strings.HasPrefix(value, "/") || strings.HasPrefix(value, "@") {
				s.socket = value
			}
		case "WATCHDOG_USEC":
			usec = value
		case "WATCHDOG_PID":
			of = value
		}
	}
	n, err := strconv.ParseInt(usec, 10, 64)
	if err == nil && n > 0 && s.socket != "" && (of == "" || of == strconv.Itoa(pid)) {
		s.every = time.Duration(n) * time.Microsecond
	}
	return s
}

// tell sends one state, such as READY=1; nil when there is nobody.
func (s supervisor) tell(state string) error {
	if s.socket == "" {
		return nil
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: s.socket, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("systemd: %w", err)
	}
	defer c.Close()
	if _, err := c.Write([]byte(state)); err != nil {
		return fmt.Errorf("systemd: %w", err)
	}
	return nil
}

// feed tells the watchdog three times a period that the box is alive, as long as it is: alive returns nil when every part
// answers. One that fails or does not return is not told, and the supervisor ends the process. Once stopping is closed nobody
// is asked any more: a stop has a time limit of its own. It returns when ctx ends.
func (s supervisor) feed(ctx context.Context, stopping <-chan struct{}, alive func(context.Context) error, log *slog.Logger) {
	if s.every == 0 {
		return
	}
	tick := time.NewTicker(s.every / 3)
	defer tick.Stop()
	for {
		within, done := context.WithTimeout(ctx, s.every/3)
		err := alive(within)
		done()
		select {
		case <-stopping:
			err, alive = nil, func(context.Context) error { return nil }
		default:
		}
		if err == nil {
			err = s.tell("WATCHDOG=1")
		}
		if err != nil && ctx.Err() == nil {
			log.Error("the watchdog is not fed", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
