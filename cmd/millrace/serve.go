package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"strings"
	"sync"

	"millrace/auth"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

type serveCommand struct {
	Profile string `help:"conformance: let everybody in, for public test suites; on loopback only." enum:",conformance" default:""`
	Demo    bool   `help:"Also run a simulated plant: three lines of machines that publish over real MQTT connections."`
}

func (c serveCommand) Run(ctx context.Context, con console, g *globals) error {
	flags := g.flags()
	if c.Profile != "" {
		if flags == nil {
			flags = map[string]string{}
		}
		flags["broker.profile"] = c.Profile
	}
	cfg, err := loadConfig(g.Config, con.env, flags)
	if err != nil {
		return err
	}
	held := &heldLog{to: con.err}
	log := newLog(cfg, held)
	limitMemory(log)

	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	// A store that cannot write any more must not be closed in order: that would wait for the very disk.
	fatal := func(err error) {
		if err = shortFatal(err); held.holding() && cfg.Log.Level != "debug" {
			fmt.Fprintln(con.err, "millrace:", oneLine(err))
		} else {
			held.release()
			log.Error("the store failed; ending so that nothing more is acknowledged", "error", err)
		}
		os.Exit(exitFailed)
	}
	b, err := openBox(cfg, log, fatal)
	if err != nil {
		if cfg.Log.Level == "debug" {
			held.release()
		}
		return oneLine(err)
	}
	if err := firstAdmin(ctx, b.book, con.env); err != nil {
		return errors.Join(oneLine(err), b.close())
	}
	held.release()
	var plant *demo
	if c.Demo && b.broker.Addr() == "" {
		return errors.Join(errors.New("broker.address: empty, but the machines of --demo speak plain MQTT; set it, such as 127.0.0.1:1883"), b.close())
	}
	if c.Demo {
		if plant, err = openDemo(b.book, b.broker.Addr(), log.With("part", "demo")); err != nil {
			return errors.Join(err, b.close())
		}
		if err := deployDemo(b.runs.shelf); err != nil {
			return errors.Join(err, b.close())
		}
	}
	above := supervisorOf(con.env, os.Getpid())
	tell := func(state string) {
		if err := above.tell(state); err != nil {
			log.Error("the supervisor was not told", "state", state, "error", err)
		}
	}
	var watched sync.WaitGroup
	defer watched.Wait()
	watchCtx, endWatch := context.WithCancel(context.WithoutCancel(ctx))
	defer endWatch()
	alive := b.pulse()
	defer context.AfterFunc(ctx, func() { tell("STOPPING=1") })()
	done, planted := make(chan error, 1), false
	plantCtx, stopPlant := context.WithCancel(ctx)
	defer stopPlant()
	err = b.serve(ctx, func() {
		if at := b.broker.Addr(); at != "" {
			fmt.Fprintf(con.out, "listening mqtt tcp://%s\n", dialable(at))
		}
		if at := b.broker.TLSAddr(); at != "" {
			fmt.Fprintf(con.out, "listening mqtt tls://%s\n", dialable(at))
		}
		fmt.Fprintf(con.out, "listening web %s://%s\n", b.web.Scheme(), dialable(b.web.Addr()))
		fmt.Fprintln(con.out, "ready")
		if token := b.book.SetUpToken(); token != "" {
			// Behind the # it is in no log of a proxy or server.
			fmt.Fprintf(con.out, "set-up: open %s://%s/welcome#token=%s to set the password of admin; the link is good until that is done or the box is started anew\n",
				b.web.Scheme(), dialable(b.web.Addr()), token)
		}
		tell("READY=1")
		watched.Go(func() { above.feed(watchCtx, ctx.Done(), alive, log) })
		if plant != nil {
			plant.tell(con.out, dialable(b.broker.Addr()), b.web.Scheme()+"://"+dialable(b.web.Addr()), cfg.Data)
			planted = true
			go func() { done <- plant.run(plantCtx) }()
		}
	})
	stopPlant()
	if planted { // a box that failed before it was ready has none
		err = errors.Join(err, <-done)
	}
	return err
}

// firstAdmin gives the user admin the password of MILLRACE_ADMIN_PASSWORD, at the first start.
func firstAdmin(ctx context.Context, book *auth.Book, environ []string) error {
	for _, kv := range environ {
		password, ok := strings.CutPrefix(kv, "MILLRACE_ADMIN_PASSWORD=")
		if !ok || password == "" {
			continue
		}
		if err := book.SetAdminPassword(ctx, password); err != nil {
			return fmt.Errorf("MILLRACE_ADMIN_PASSWORD: %w", err)
		}
	}
	return nil
}

// heldLog keeps what is logged while the box opens, so that a box that cannot start says why in one line and
// nothing else. It is bounded: past the bound it lets go.
type heldLog struct {
	mu   sync.Mutex
	to   io.Writer
	held []byte
	free bool
}

const heldLogBytes = 64 << 10

func (h *heldLog) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.free {
		return h.to.Write(p)
	}
	h.held = append(h.held, p...)
	if len(h.held) > heldLogBytes {
		h.letGo()
	}
	return len(p), nil
}

// holding says whether the box is still opening.
func (h *heldLog) holding() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.free
}

func (h *heldLog) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.letGo()
}

func (h *heldLog) letGo() {
	if !h.free && len(h.held) > 0 {
		_, _ = h.to.Write(h.held) // a log that cannot be written has nowhere to say so
	}
	h.free, h.held = true, nil
}

// shortFatal is why a store gave up, without the stack its library dumps behind the first line. A damaged file is
// named as such: it was a read that failed, and writing elsewhere would not help.
func shortFatal(err error) error {
	text, _, _ := strings.Cut(err.Error(), "\n")
	part, rest, damaged := strings.Cut(text, "on-disk corruption: ")
	if !damaged {
		return errors.New(text)
	}
	part, _, _ = strings.Cut(part, ":")
	file, _, _ := strings.Cut(rest, ";")
	return fmt.Errorf("%s: %s is damaged: see whether the disk is well, then restore a backup", part, strings.TrimSpace(file))
}

// oneLine folds joined errors into the one line that a supervisor's log shows.
func oneLine(err error) error {
	text := strings.ReplaceAll(err.Error(), "\n", "; ")
	if most := 600; len(text) > most { // a library's dump: its head names the fault, its tail the remedy
		text = strings.ToValidUTF8(text[:most*2/3]+" … "+text[len(text)-most/3:], "")
	}
	return errors.New(text)
}

// dialable gives the address of a listener on every interface as one that can be dialled from here.
func dialable(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	if ip := net.ParseIP(host); host == "" || (ip != nil && ip.IsUnspecified()) {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

func newLog(c Config, to io.Writer) *slog.Logger {
	var level slog.Level
	// validated already; a bad level stays info
	_ = level.UnmarshalText([]byte(c.Log.Level))
	o := &slog.HandlerOptions{Level: level}
	if c.Log.Format == "json" {
		return slog.New(slog.NewJSONHandler(to, o))
	}
	return slog.New(slog.NewTextHandler(to, o))
}

// limitMemory keeps Go's heap below 85 % of the container's limit, unless GOMEMLIMIT says otherwise.
func limitMemory(log *slog.Logger) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	limit, err := memlimit.FromCgroup()
	if err != nil || limit == 0 || limit > 1<<60 {
		return // no container, no limit
	}
	debug.SetMemoryLimit(int64(limit / 100 * 85))
	log.Info("memory limit", "container", limit, "go", limit/100*85)
}
