package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// ear is a supervisor's end of the socket.
func ear(t *testing.T) (path string, next func(within time.Duration) string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "n")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path = filepath.Join(dir, "s")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return path, func(within time.Duration) string {
		b := make([]byte, 256)
		_ = c.SetReadDeadline(time.Now().Add(within))
		n, err := c.Read(b)
		if err != nil {
			return ""
		}
		return string(b[:n])
	}
}

// A supervisor that asks is told when the box is ready, again and again that it lives, and that it stops.
func TestSupervisorIsTold(t *testing.T) {
	path, next := ear(t)
	data := t.TempDir()
	cmd := exec.Command("millrace", "serve")
	cmd.Env = append(quiet(data), "NOTIFY_SOCKET="+path, "WATCHDOG_USEC=600000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, cmd: cmd, data: data}
	t.Cleanup(p.kill)
	if got := next(30 * time.Second); got != "READY=1" {
		t.Fatalf("first came %q", got)
	}
	for range 3 {
		if got := next(10 * time.Second); got != "WATCHDOG=1" {
			t.Fatalf("while it runs came %q", got)
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(30 * time.Second); ; {
		got := next(time.Second)
		if got == "STOPPING=1" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("it did not say that it stops")
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// The watchdog is fed while every part answers, and not once one fails or hangs.
func TestWatchdogIsFedOnlyWhileAlive(t *testing.T) {
	path, next := ear(t)
	s := supervisor{socket: path, every: 30 * time.Millisecond}
	var sick atomic.Bool
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.feed(ctx, nil, func(within context.Context) error {
			if sick.Load() {
				<-within.Done()
				return errors.New("a part hangs")
			}
			return nil
		}, slog.New(slog.DiscardHandler))
	}()
	if got := next(10 * time.Second); got != "WATCHDOG=1" {
		t.Fatalf("alive: %q", got)
	}
	sick.Store(true)
	fed := 0
	for next(200*time.Millisecond) != "" { // what was on its way
		if fed++; fed > 1000 {
			t.Fatal("it is fed although a part hangs")
		}
	}
	sick.Store(false)
	if got := next(10 * time.Second); got != "WATCHDOG=1" {
		t.Fatalf("alive again: %q", got)
	}
	cancel()
	<-ended
}

// What the environment says is taken only when it is meant for this process.
func TestSupervisorOf(t *testing.T) {
	for _, tt := range []struct {
		name string
		env  []string
		want supervisor
	}{
		{"nobody", []string{"HOME=/"}, supervisor{}},
		{"no watchdog", []string{"NOTIFY_SOCKET=/run/n"}, supervisor{socket: "/run/n"}},
		{"abstract", []string{"NOTIFY_SOCKET=@n", "WATCHDOG_USEC=30000000"}, supervisor{"@n", 30 * time.Second}},
		{"ours", []string{"NOTIFY_SOCKET=@n", "WATCHDOG_USEC=30000000", "WATCHDOG_PID=7"}, supervisor{"@n", 30 * time.Second}},
		{"another's", []string{"NOTIFY_SOCKET=@n", "WATCHDOG_USEC=30000000", "WATCHDOG_PID=8"}, supervisor{socket: "@n"}},
		{"no number", []string{"NOTIFY_SOCKET=@n", "WATCHDOG_USEC=soon"}, supervisor{socket: "@n"}},
		{"no path", []string{"NOTIFY_SOCKET=n"}, supervisor{}},
	} {
		if got := supervisorOf(tt.env, 7); got != tt.want {
			t.Errorf("%s: %+v", tt.name, got)
		}
	}
	if err := (supervisor{}).tell("READY=1"); err != nil {
		t.Error(err)
	}
}

// A box that runs is alive; one whose stores are closed is not.
func TestAlive(t *testing.T) {
	r := start(t, t.TempDir(), nil)
	alive, records := r.box.pulse(), r.box.records
	if err := alive(t.Context()); err != nil {
		t.Error(err)
	}
	if err := records.Close(); err != nil {
		t.Fatal(err)
	}
	if err := alive(t.Context()); err == nil {
		t.Error("alive with a closed store")
	}
}
