package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"millrace": main})
}

// TestScripts runs the binary as its user would: testdata/script/*.txtar, one story a file.
//
//	box [ARG...]  starts `millrace serve --data $WORK/data ARG…`, waits for ready, sets $MQTT (port), $WEB (URL)
//	stop          SIGTERM; the box must end with exit 0
//	kill9         SIGKILL
//	setup-link    waits for the set-up link, sets $TOKEN; with !, there must be none
//	secret NAME   adds a client allowed everything, sets $SECRET
//	occupy        takes a port for the rest of the script, sets $PORT
//	oneline FILE  the file holds exactly one line
//	mode FILE BITS the file has that mode
//	damage GLOB   overwrites the end of every file that matches
func TestScripts(t *testing.T) {
	if _, err := exec.LookPath("mosquitto_pub"); err != nil {
		t.Fatal("mosquitto_pub is missing: `make deps` installs it")
	}
	testscript.Run(t, testscript.Params{Dir: filepath.Join("testdata", "script"),
		Setup: func(env *testscript.Env) error {
			env.Setenv("MILLRACE_DATA", env.Getenv("WORK")+"/data")
			env.Setenv("MILLRACE_BROKER_ADDRESS", "127.0.0.1:0")
			env.Setenv("MILLRACE_WEB_ADDRESS", "127.0.0.1:0")
			env.Setenv("MILLRACE_HISTORIAN_MINFREESPACE", "0")
			env.Values["boxes"] = &boxes{}
			env.Defer(func() { env.Values["boxes"].(*boxes).end() })
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"box": cmdBox, "stop": cmdStop, "kill9": cmdKill, "secret": cmdSecret, "occupy": cmdOccupy, "oneline": cmdOneLine, "setup-link": cmdSetUpLink, "mode": cmdMode, "damage": cmdDamage,
		}})
}

// boxes is the box a script has running.
type boxes struct {
	cmd    *exec.Cmd
	lines  chan string // of stdout
	stderr strings.Builder
	taken  net.Listener
}

func (b *boxes) end() {
	if b.cmd != nil {
		_ = b.cmd.Process.Kill()
		_ = b.cmd.Wait()
	}
	if b.taken != nil {
		_ = b.taken.Close()
	}
}

func of(ts *testscript.TestScript) *boxes { return ts.Value("boxes").(*boxes) }

func environ(ts *testscript.TestScript) []string {
	env := []string{"PATH=" + ts.Getenv("PATH"), "HOME=" + ts.Getenv("HOME"), "TMPDIR=" + ts.Getenv("TMPDIR")}
	for _, key := range []string{"MILLRACE_DATA", "MILLRACE_BROKER_ADDRESS", "MILLRACE_BROKER_PROFILE", "MILLRACE_WEB_ADDRESS", "MILLRACE_HISTORIAN_MINFREESPACE", "MILLRACE_HISTORIAN_PEBBLE_SYNCWRITES", "MILLRACE_ADMIN_PASSWORD", "MILLRACE_AUTH_KEYFILE"} {
		if v := ts.Getenv(key); v != "" {
			env = append(env, key+"="+v)
		}
	}
	return env
}

func program(ts *testscript.TestScript, args ...string) *exec.Cmd {
	path, err := exec.LookPath(filepath.Join(strings.Split(ts.Getenv("PATH"), ":")[0], "millrace"))
	ts.Check(err)
	cmd := exec.Command(path, args...)
	cmd.Env, cmd.Dir = environ(ts), ts.Getenv("WORK")
	return cmd
}

func cmdBox(ts *testscript.TestScript, neg bool, args []string) {
	b := of(ts)
	b.cmd = program(ts, append([]string{"serve"}, args...)...)
	b.stderr.Reset()
	b.cmd.Stderr = &b.stderr
	out, err := b.cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(b.cmd.Start())
	lines := make(chan string, 100)
	b.lines = lines
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			select {
			case lines <- s.Text():
			default: // a script reads the first lines only
			}
		}
	}()
	deadline := time.After(30 * time.Second)
	for {
		select {
		case <-deadline:
			ts.Fatalf("the box is not ready after 30 s: %s", b.stderr.String())
		case line, ok := <-lines:
			if !ok {
				ts.Fatalf("the box ended: %s", b.stderr.String())
			}
			if addr, is := strings.CutPrefix(line, "listening mqtt tcp://"); is {
				_, port, err := net.SplitHostPort(addr)
				ts.Check(err)
				ts.Setenv("MQTT", port)
			}
			if addr, is := strings.CutPrefix(line, "listening web "); is {
				ts.Setenv("WEB", addr)
			}
			if line == "ready" {
				return
			}
		}
	}
}

func cmdSetUpLink(ts *testscript.TestScript, neg bool, args []string) {
	wait := 10 * time.Second
	if neg { // the link comes with the line before it, so this is long
		wait = 200 * time.Millisecond
	}
	select {
	case line := <-of(ts).lines:
		_, rest, ok := strings.Cut(line, "#token=")
		if !ok || neg {
			ts.Fatalf("after ready: %q", line)
		}
		token, _, _ := strings.Cut(rest, " ")
		ts.Setenv("TOKEN", token)
	case <-time.After(wait):
		if !neg {
			ts.Fatalf("no set-up link")
		}
	}
}

func cmdStop(ts *testscript.TestScript, neg bool, args []string) {
	b := of(ts)
	ts.Check(b.cmd.Process.Signal(syscall.SIGTERM))
	err := b.cmd.Wait()
	b.cmd = nil
	if err != nil {
		ts.Fatalf("the box ended with %v: %s", err, b.stderr.String())
	}
}

func cmdKill(ts *testscript.TestScript, neg bool, args []string) {
	b := of(ts)
	ts.Check(b.cmd.Process.Kill())
	_ = b.cmd.Wait() // killed is what it says
	b.cmd = nil
}

func cmdSecret(ts *testscript.TestScript, neg bool, args []string) {
	out, err := program(ts, "client", "add", args[0], "--allow", "publish,subscribe #", "--json").Output()
	ts.Check(err)
	_, rest, ok := strings.Cut(string(out), `"client_secret":"`)
	if !ok {
		ts.Fatalf("no secret in %s", out)
	}
	secret, _, _ := strings.Cut(rest, `"`)
	ts.Setenv("SECRET", secret)
}

func cmdOccupy(ts *testscript.TestScript, neg bool, args []string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	of(ts).taken = l
	_, port, err := net.SplitHostPort(l.Addr().String())
	ts.Check(err)
	ts.Setenv("PORT", port)
}

func cmdOneLine(ts *testscript.TestScript, neg bool, args []string) {
	text := ts.ReadFile(args[0])
	if n := strings.Count(text, "\n"); n != 1 || strings.TrimSpace(text) == "" {
		ts.Fatalf("%s holds %d lines:\n%s", args[0], n, text)
	}
}

func cmdMode(ts *testscript.TestScript, neg bool, args []string) {
	info, err := os.Stat(ts.MkAbs(args[0]))
	ts.Check(err)
	if got := fmt.Sprintf("%04o", info.Mode().Perm()); got != args[1] {
		ts.Fatalf("%s has mode %s, want %s", args[0], got, args[1])
	}
}

func cmdDamage(ts *testscript.TestScript, neg bool, args []string) {
	files, err := filepath.Glob(ts.MkAbs(args[0]))
	ts.Check(err)
	if len(files) == 0 {
		ts.Fatalf("nothing matches %s", args[0])
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		ts.Check(err)
		copy(text[max(0, len(text)-8):], "garbage!")
		ts.Check(os.WriteFile(name, text, 0o600))
	}
}

// TestREADMECommand holds .ci/run to the command the README gives.
func TestREADMECommand(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	ci, err := os.ReadFile(filepath.Join("..", "..", ".ci", "run"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(readme), "\nmake test ") || !strings.Contains(string(ci), "\nmake test\n") {
		t.Error("README.md and .ci/run no longer name the same command, make test")
	}
}
