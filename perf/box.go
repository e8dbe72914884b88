package perf

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// process is a server started as a child. It speaks by lines on stdout: `listening mqtt tcp://…`,
// `listening web http://…`, then `ready`.
type process struct {
	cmd     *exec.Cmd
	pid     int
	mqtt    string
	tls     string // the same over TLS; "" = no such listener
	web     string
	started time.Time
	ready   time.Duration // from exec to `ready`
	log     string        // file with stdout and stderr
	gone    chan struct{} // closed when it has ended
	fault   error         // how it ended, valid once gone is closed
}

// launch starts argv and waits until it is ready. The process's end is awaited by one goroutine, which ends
// with it; stop or kill must be called.
func launch(ctx context.Context, argv, env []string, log string, limit time.Duration) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("perf: server log: %w", err)
	}
	p := &process{cmd: exec.Command(argv[0], argv[1:]...), log: log, gone: make(chan struct{}), started: time.Now()}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stderr = out
	// A group of its own, so that Ctrl-C reaches the harness alone and it can stop the box in order.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdout, err := p.cmd.StdoutPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		_ = out.Close()
		return nil, fmt.Errorf("perf: start %s: %w", argv[0], err)
	}
	p.pid = p.cmd.Process.Pid
	ready := make(chan struct{})
	go func() {
		defer close(p.gone)
		defer out.Close()
		scan := bufio.NewScanner(stdout)
		var once sync.Once
		for scan.Scan() {
			line := scan.Text()
			_, _ = fmt.Fprintln(out, line)
			if a, ok := strings.CutPrefix(line, "listening mqtt tls://"); ok {
				p.tls = strings.TrimSpace(a)
			} else if a, ok := strings.CutPrefix(line, "listening mqtt "); ok && p.mqtt == "" {
				p.mqtt = strings.TrimSpace(a)
			}
			if a, ok := strings.CutPrefix(line, "listening web "); ok && p.web == "" {
				p.web = strings.TrimSpace(a)
			}
			if strings.TrimSpace(line) == "ready" {
				once.Do(func() {
					p.ready = time.Since(p.started)
					close(ready)
				})
			}
		}
		_, _ = io.Copy(io.Discard, stdout)
		p.fault = p.cmd.Wait()
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-ready:
		return p, nil
	case <-p.gone:
		err = fmt.Errorf("perf: %s ended before it was ready (%w); its log: %s", filepath.Base(argv[0]), p.how(), tail(log))
	case <-timer.C:
		err = fmt.Errorf("perf: %s was not ready within %s; see %s", filepath.Base(argv[0]), limit, log)
	case <-ctx.Done():
		err = ctx.Err()
	}
	p.kill()
	return nil, err
}

// tail is the last lines of a log, for an error text.
func tail(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return strings.ReplaceAll(strings.TrimSpace(string(b[max(0, len(b)-800):])), "\n", " | ")
}

// kill ends it at once (SIGKILL) and waits for its end.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.gone
}

// how says how it ended, once gone is closed.
func (p *process) how() error { return cmp.Or(p.fault, errors.New("exit status 0")) }

// stop ends it in order (SIGTERM) and reports an unclean end.
func (p *process) stop(limit time.Duration) error {
	select {
	case <-p.gone:
		return fmt.Errorf("perf: the server had ended by itself (%w); its log: %s", p.how(), tail(p.log))
	default:
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.gone:
		if p.fault != nil {
			return fmt.Errorf("perf: the server stopped uncleanly: %w", p.fault)
		}
		return nil
	case <-timer.C:
		p.kill()
		return fmt.Errorf("perf: the server did not stop within %s", limit)
	}
}

// box is a server under test: one of its own as a child, the baseline as a child, or a running one.
type box struct {
	name    string
	mqtt    string
	api     *api  // nil for the baseline
	meter   meter // of the present process
	process *process
	dir     string // its data; "" when attached or for the baseline
	argv    []string
	env     []string
	log     string
	trust   *tls.Config // towards its TLS listener, nil = it has none
	secrets func(client string) string
}

// boxOptions says which box to run.
type boxOptions struct {
	binary string
	scrap  string // folder for data and logs
	noSync bool
	tls    bool // also a TLS listener, with a certificate made for the run
	env    []string
}

// limitsOff are the two ingress rates, switched off as in the reference's run; the report says so.
var limitsOff = []string{"MILLRACE_UNS_INGRESS_PERCLIENTRATEPERSEC=0", "MILLRACE_UNS_INGRESS_PERWORKSPACERATEPERSEC=0"}

// startBox starts a box of its own on an empty data directory below o.scrap.
func startBox(ctx context.Context, name string, o boxOptions) (*box, error) {
	binary := o.binary
	if binary == "" {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("perf: own binary: %w", err)
		}
		binary = self
	}
	dir := filepath.Join(o.scrap, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("perf: data directory: %w", err)
	}
	ports, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	config := filepath.Join(dir, "config.yaml")
	text := fmt.Sprintf("log:\n  level: warn\nbroker:\n  address: 127.0.0.1:%d\nweb:\n  address: 127.0.0.1:%d\nhistorian:\n  pebble:\n    syncWrites: %t\n",
		ports[0], ports[1], !o.noSync)
	var trust *tls.Config
	if o.tls {
		if trust, err = issue(dir); err != nil {
			return nil, err
		}
		text = strings.Replace(text, "web:\n", fmt.Sprintf("  tls:\n    address: 127.0.0.1:%d\n    certFile: %q\n    keyFile: %q\nweb:\n", ports[2],
			filepath.Join(dir, certFile), filepath.Join(dir, keyFile)), 1)
	}
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, fmt.Errorf("perf: configuration: %w", err)
	}
	data := filepath.Join(dir, "data")
	b := &box{name: name, dir: data, log: filepath.Join(dir, "log"), env: append(append([]string(nil), limitsOff...), o.env...),
		argv: []string{binary, "serve", "--data", data, "--config", config}, trust: trust, secrets: newSecrets()}
	if err := b.start(ctx); err != nil {
		return nil, err
	}
	b.api = newSocketAPI(filepath.Join(data, "admin.sock"))
	return b, nil
}

// start runs the box on its data directory, again after kill or stop.
func (b *box) start(ctx context.Context) error {
	p, err := launch(ctx, b.argv, b.env, b.log, 2*time.Minute)
	if err != nil {
		return err
	}
	b.process, b.mqtt = p, p.mqtt
	b.meter = procMeter{pid: p.pid, dir: b.dir}
	return nil
}

// startBare starts the baseline.
func startBare(ctx context.Context, name, binary, scrap string) (*box, error) {
	b := &box{name: name, argv: []string{binary}, log: filepath.Join(scrap, name+".log")}
	if err := b.start(ctx); err != nil {
		return nil, err
	}
	b.meter = procMeter{pid: b.process.pid}
	return b, nil
}

// attach uses a running box by its address and token.
func attach(web, mqtt, token string) (*box, error) {
	if web == "" || mqtt == "" {
		return nil, errors.New("perf: a running box needs both --url and --mqtt")
	}
	a := newAPI(web, token)
	return &box{name: "attached", mqtt: mqtt, api: a, meter: scrapeMeter{a}, secrets: newSecrets()}, nil
}

func (b *box) stop() error {
	if b.api != nil {
		b.api.close()
	}
	if b.process == nil {
		return nil
	}
	return b.process.stop(time.Minute)
}

// abandon ends a child that a failed run leaves behind.
func (b *box) abandon() {
	if b.process != nil {
		b.process.kill()
	}
}

const subscriberClient = "perf-subscriber"

// enrol creates the API clients of a fleet: each may publish below its own branch only.
func (b *box) enrol(ctx context.Context, o FleetOptions) error {
	if b.api == nil {
		return nil
	}
	list := []identity{{ID: subscriberClient, Secret: b.secrets(subscriberClient), Workspace: o.Workspace, Grants: []grant{allow("#", "subscribe")}}}
	for i := range o.Devices {
		c := ClientOf(i)
		list = append(list, identity{ID: c, Secret: b.secrets(c), Workspace: o.Workspace,
			Grants: []grant{allow(lineOf(i)+"/"+c+"/#", "publish")}})
	}
	return b.api.addClients(ctx, list)
}

// newSecrets derives a password per client from one random word, so that no list is kept.
func newSecrets() func(string) string {
	var word [18]byte
	_, _ = rand.Read(word[:])
	head := base64.RawURLEncoding.EncodeToString(word[:])
	return func(client string) string { return head + "." + client }
}

// freePorts finds loopback ports nobody listens on at present.
func freePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("perf: free port: %w", err)
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}
