package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"millrace/auth"
)

// process is the binary serving a data folder, as its user runs it.
type process struct {
	t    testing.TB
	cmd  *exec.Cmd
	data string
	mqtt string
	web  string
	told strings.Builder
}

// quiet is the environment of a box on free ports that takes any disk.
func quiet(data string) []string {
	return append(os.Environ(), "MILLRACE_DATA="+data, "MILLRACE_BROKER_ADDRESS=127.0.0.1:0", "MILLRACE_WEB_ADDRESS=127.0.0.1:0", "MILLRACE_HISTORIAN_MINFREESPACE=0", "MILLRACE_UNS_INGRESS_PERCLIENTRATEPERSEC=0")
}

func serve(t testing.TB, data string, args ...string) *process {
	t.Helper()
	p := &process{t: t, data: data, cmd: exec.Command("millrace", append([]string{"serve"}, args...)...)}
	p.cmd.Env = quiet(data)
	p.cmd.Stderr = &p.told
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if at, ok := strings.CutPrefix(lines.Text(), "listening mqtt tcp://"); ok {
			p.mqtt = at
		}
		if at, ok := strings.CutPrefix(lines.Text(), "listening web "); ok {
			p.web = at
		}
		if lines.Text() == "ready" {
			return p
		}
	}
	t.Fatalf("no box: %v: %s", p.cmd.Wait(), p.told.String())
	return nil
}

func (p *process) kill() {
	if p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait() // killed is what it says
	}
}

func (p *process) stop() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatal(err)
	}
	if err := p.cmd.Wait(); err != nil {
		p.t.Fatalf("the box ended with %v: %s", err, p.told.String())
	}
}

// do runs one command that must succeed and gives what it printed.
func (p *process) do(args ...string) string {
	p.t.Helper()
	cmd := exec.Command("millrace", args...)
	cmd.Env = quiet(p.data)
	out, err := cmd.Output()
	if err != nil {
		told := ""
		if e, ok := err.(*exec.ExitError); ok {
			told = string(e.Stderr)
		}
		p.t.Fatalf("millrace %s: %v: %s%s", strings.Join(args, " "), err, out, told)
	}
	return string(out)
}

// secret adds a client that may do everything.
func (p *process) secret(id string) string {
	p.t.Helper()
	var made secretShown
	if err := json.Unmarshal([]byte(p.do("client", "add", id, "--allow", "publish,subscribe #", "--json")), &made); err != nil {
		p.t.Fatal(err)
	}
	return made.Secret
}

// sender publishes 1, 2, 3… on a topic of its own and keeps the last number acknowledged; those of one window at a time.
type sender struct {
	id, secret string
	acked      atomic.Int64
}

func (s *sender) run(addr string, stop <-chan struct{}) error {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	in := bufio.NewReader(c)
	greeting := append(str(nil, "MQTT"), 4, 0xC2, 0, 60)
	if _, err := c.Write(frame(0x10, str(str(str(greeting, s.id), s.id), s.secret))); err != nil {
		return err
	}
	answer := make([]byte, 4)
	if _, err := readFull(in, answer); err != nil || answer[3] != 0 {
		return fmt.Errorf("CONNACK % x: %v", answer, err)
	}
	const window = 20
	for n := int64(1); ; n += window {
		select {
		case <-stop:
			return nil
		default:
		}
		var out []byte
		for i := range int64(window) {
			body := append(str(nil, root+"load/"+s.id), byte(0), byte(i+1))
			out = append(out, frame(0x32, append(body, strconv.FormatInt(n+i, 10)...))...)
		}
		if _, err := c.Write(out); err != nil {
			return err
		}
		for i := range int64(window) {
			if _, err := readFull(in, answer); err != nil || answer[0] != 0x40 || answer[3] != byte(i+1) {
				return fmt.Errorf("PUBACK % x: %v", answer, err)
			}
			s.acked.Store(n + i)
		}
	}
}

func readFull(in *bufio.Reader, b []byte) (int, error) {
	for i := range b {
		var err error
		if b[i], err = in.ReadByte(); err != nil {
			return i, err
		}
	}
	return len(b), nil
}

// numbers are the values of a topic, in order.
func (p *process) numbers(topic string) (out []int64) {
	p.t.Helper()
	for i, line := range strings.Split(strings.TrimSpace(p.do("history", "get", topic, "--from", "-1h", "--format", "ndjson")), "\n") {
		var row struct{ Value int64 }
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			p.t.Fatalf("%s, line %d: %v in %q", topic, i, err, line)
		}
		out = append(out, row.Value)
	}
	return out
}

// A backup of a box under load, made by the real binary, restored and served: for every device all that was acknowledged before
// the backup began is there, digit for digit, in order, without a hole; the client that sent it is there and can sign in.
func TestBackupUnderLoad(t *testing.T) {
	p := serve(t, filepath.Join(t.TempDir(), "data"))
	stop := make(chan struct{})
	var running sync.WaitGroup
	var senders []*sender
	join := func(n int) {
		for range n {
			s := &sender{id: fmt.Sprint("dev", len(senders))}
			s.secret = p.secret(s.id)
			senders = append(senders, s)
			running.Go(func() {
				if err := s.run(p.mqtt, stop); err != nil {
					t.Errorf("%s: %v", s.id, err)
				}
			})
		}
	}
	until := func(least int64) {
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			low := int64(1 << 60)
			for _, s := range senders {
				low = min(low, s.acked.Load())
			}
			if low >= least || t.Failed() {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("a sender is at %d after 30 s", low)
			}
		}
	}
	join(4)
	until(500)
	dir := t.TempDir()
	p.do("backup", "create", filepath.Join(dir, "one"))
	join(2) // clients that are not in the first backup
	until(600)
	before := map[string]int64{}
	for _, s := range senders {
		before[s.id] = s.acked.Load()
	}
	var told backupShown
	if err := json.Unmarshal([]byte(p.do("backup", "create", filepath.Join(dir, "two"), "--incremental-from", filepath.Join(dir, "one"), "--json")), &told); err != nil {
		t.Fatal(err)
	}
	close(stop)
	running.Wait()
	var sum int64
	for _, n := range before {
		sum += n
	}
	if told.Sequence < uint64(sum) {
		t.Errorf("sequence %d, %d values were acknowledged before", told.Sequence, sum)
	}
	p.stop()

	r := &process{t: t, data: filepath.Join(dir, "restored")}
	r.do("backup", "verify", filepath.Join(dir, "one"))
	r.do("backup", "verify", filepath.Join(dir, "two"))
	r.do("backup", "restore", filepath.Join(dir, "two"), "--data", r.data)
	r = serve(t, r.data)
	for _, s := range senders {
		got := r.numbers("load/" + s.id)
		for i, n := range got {
			if n != int64(i+1) {
				t.Fatalf("%s: place %d holds %d", s.id, i, n)
			}
		}
		if int64(len(got)) < before[s.id] {
			t.Errorf("%s: %d values, %d were acknowledged before the backup", s.id, len(got), before[s.id])
		}
		signIn(t, r.mqtt, 5, s.id, s.secret)
	}
	r.stop()
}

// A box that is killed while it makes a backup leaves none, or a whole one, which may still bear the name of a draft; it starts
// again, and so does the next backup.
func TestBackupCutByAKill(t *testing.T) {
	p := serve(t, filepath.Join(t.TempDir(), "data"))
	s := &sender{id: "dev", secret: p.secret("dev")}
	dir := t.TempDir()
	rounds, half := 6, 0
	if os.Getenv("MILLRACE_LONG") != "" {
		rounds = 60
	}
	for round := range rounds {
		stop, ended := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			_ = s.run(p.mqtt, stop) // the kill ends it
		}()
		name := filepath.Join(dir, fmt.Sprint("b", round))
		before := s.acked.Load()
		cmd := exec.Command("millrace", "backup", "create", name)
		cmd.Env = quiet(p.data)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(rand.IntN(150)) * time.Millisecond) // any moment will do
		p.kill()
		failed := cmd.Wait()
		close(stop)
		<-ended
		if _, err := os.Stat(name); err == nil {
			p.do("backup", "verify", name)
		} else if failed == nil {
			t.Fatal("the command succeeded and there is no backup")
		}
		partial := filepath.Join(dir, fmt.Sprintf(".b%d.partial", round))
		if _, err := os.Stat(partial); err == nil {
			cmd := exec.Command("millrace", "backup", "verify", partial)
			out, err := cmd.CombinedOutput()
			if err != nil {
				half++
			} else {
				// The kill came between the last octet and the rename: then it must be a backup in all but its name.
				r := &process{t: t, data: filepath.Join(t.TempDir(), "restored")}
				r.do("backup", "restore", partial, "--data", r.data)
				r = serve(t, r.data)
				if before > 0 {
					if got := r.numbers("load/" + s.id); int64(len(got)) < before {
						t.Errorf("%s verifies (%s) and holds %d values, %d were acknowledged before it was begun", partial, out, len(got), before)
					}
				}
				r.stop()
			}
		}
		p = serve(t, p.data)
		if _, err := os.Stat(filepath.Join(p.data, ".snapshot")); err == nil {
			t.Error("the snapshot of the killed box is still there")
		}
	}
	last := filepath.Join(dir, "last")
	p.do("backup", "create", last)
	p.do("backup", "verify", last)
	t.Logf("%d of %d kills left half a backup", half, rounds)
}

// Over the network a backup goes below backup.root and nowhere else; without that key there is none.
func TestBackupOverTheNetwork(t *testing.T) {
	root := t.TempDir()
	var without, with *running
	without = start(t, t.TempDir(), nil)
	with = start(t, t.TempDir(), func(c *Config) { c.Backup.Root = root })
	for _, tt := range []struct {
		name string
		box  *running
		dir  string
		says string
	}{
		{"no root", without, "monday", "backup.root"},
		{"a path", with, filepath.Join(root, "x"), "plain name"},
		{"a way out", with, "../x", "plain name"},
		{"a name", with, "monday", ""},
		{"the same name", with, "monday", "not empty"},
	} {
		_, token, err := tt.box.box.book.AddToken(tt.name, auth.RoleAdmin, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		var out, told strings.Builder
		code := run(t.Context(), []string{"backup", "create", tt.dir, "--url", tt.box.web, "--token", token}, console{out: &out, err: &told})
		if tt.says == "" && code != exitOK || tt.says != "" && (code != exitFailed || !strings.Contains(told.String(), tt.says)) {
			t.Errorf("%s: exit %d: %s%s", tt.name, code, out.String(), told.String())
		}
	}
	if entries, _ := os.ReadDir(root); len(entries) != 1 || entries[0].Name() != "monday" {
		t.Errorf("below the root: %v", entries)
	}
}
