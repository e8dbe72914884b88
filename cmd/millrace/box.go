package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"millrace/auth"
	"millrace/backup"
	"millrace/broker"
	"millrace/historian"
	"millrace/historian/kv"
	"millrace/uns"
	"millrace/web"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sys/unix"
)

// box is every part of one running Millrace, wired. Nothing below cmd may import it. Several can live in one
// process, in folders of their own.
type box struct {
	config  Config
	log     *slog.Logger
	records *kv.Store
	history *historian.Store
	book    *auth.Book
	catalog *uns.Catalog
	ledger  *uns.Ledger
	broker  *broker.Broker
	backups *backup.Runner
	runs    *pipelines
	web     *web.Web
}

// openBox opens the parts in the order of the value, from the disk outwards, so that nothing is reachable
// before what it needs has been replayed. On an error everything opened is closed again. fatal is called
// when the disk refuses a write: nothing can be acknowledged any more and the process has to end.
func openBox(c Config, log *slog.Logger, fatal func(error)) (b *box, err error) {
	b = &box{config: c, log: log}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	if err := checkData(c.Data); err != nil {
		return b, err
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), newRuntimeMetrics())

	if b.records, err = kv.Open(filepath.Join(c.Data, "records"), kv.Options{Log: log, Fatal: fatal}); err != nil {
		return b, err
	}
	h := c.Historian
	h.Log, h.Registry, h.Fatal = log, reg, fatal
	if b.history, err = historian.Open(filepath.Join(c.Data, "historian"), h); err != nil {
		return b, err
	}

	u := c.UNS
	u.Log, u.Registry = log, reg
	class, ok := historian.ParseClass(c.Historian.DefaultRetention)
	if !ok {
		return b, fmt.Errorf("historian.defaultRetention: %q is no retention class", c.Historian.DefaultRetention)
	}
	u.DefaultClass = class
	names := uns.NewNamespace(u)
	if b.catalog, err = uns.OpenCatalog(names, b.history, b.history, u); err != nil {
		return b, err
	}
	ingress := uns.NewIngress(names, b.catalog, b.history, nil, u)

	a := c.Auth
	a.Workspaces, a.Namespace, a.Log, a.Registry = u.Workspaces, u.Namespace, log, reg
	keys := &auth.FileKeys{Path: c.keyFile()}
	if a.Vault, err = auth.OpenVault(b.records, keys, a.Random); err != nil {
		return b, err
	}
	if keys.Loose() {
		log.Warn("everybody on this machine may read the key file: chmod o= it", "part", "auth", "file", keys.Path)
	}
	if b.book, err = auth.Open(b.records, a); err != nil {
		return b, err
	}

	br := c.Broker
	br.Version = version
	br.LiveQoS, br.Namespace, br.Values, br.Log, br.Registry = u.LiveMirror.QoS, names, b.catalog, log, reg
	if b.broker, err = broker.Open(br, ingress, b.book, b.history); err != nil {
		return b, err
	}
	ingress.SetLive(b.broker)
	b.ledger = uns.NewLedger(ingress, b.history)
	if b.runs, err = openPipelines(&c, b.records, b.history, names, b.catalog, ingress, log, reg, fatal); err != nil {
		return b, err
	}

	// Runs name sequences of the historian and numbers of pipelines, and the historian names clients: each is cut before what it names.
	parts := []backup.Part{{Name: "runs", Optional: true, Snapshot: b.runs.records.Snapshot, Check: kv.Verify}, {Name: "historian", Snapshot: b.history.Snapshot, Check: historian.Verify}, {Name: "records", Snapshot: b.records.Snapshot, Check: kv.Verify}}
	if b.backups, err = backup.NewRunner(backup.Box{Data: c.Data, Parts: parts, Files: loose, Version: version, MinFree: c.Historian.MinFreeSpace,
		Sequence: func() uint64 { return b.history.State().LastSeq }}, b.records, time.Now, log, reg); err != nil {
		return b, err
	}

	var stream *web.StreamRoute
	if br.WebSocket {
		stream = &web.StreamRoute{Path: "/mqtt", Subprotocols: broker.Subprotocols(), MaxMessage: br.MaxMessage(), To: b.broker}
	}
	b.web, err = web.Open(c.Web, web.Parts{Book: b.book, Namespace: names, Catalog: b.catalog, Ingress: ingress, History: b.history,
		State: b.history.State, Sessions: b.sessions, Drops: b.drops, Cut: b.broker.Disconnect, Stream: stream, Ledger: b.ledger, Backups: backups{b.backups, c.Backup}, Pipelines: b.runs.parts(), SignIns: b.broker, Socket: b.socket(),
		Version: version, Warnings: c.warnings(), Started: time.Now(), Gatherer: reg, Registry: reg, Log: log, Now: time.Now})
	return b, err
}

func (b *box) socket() string { return filepath.Join(b.config.Data, "admin.sock") }

// keyFile is where the master key is: unless named, in the data folder.
func (c *Config) keyFile() string {
	if c.Auth.KeyFile != "" {
		return c.Auth.KeyFile
	}
	return filepath.Join(c.Data, "secrets", "key")
}

// oursInData are names that a data folder may hold. One of the first two makes it ours; the others may be there before
// the first start.
var oursInData = []string{"historian", "records", "runs", "queue", "queue.damaged", "admin.sock", "config.yaml", "secrets", "lost+found"}

// startReserve is what must be free to open the stores beside what replay of their logs may write. Pebble retries a
// flush that finds no room for ever, so a start on a full disk would neither succeed nor end.
const startReserve = 8 << 20

// checkData makes the data folder, or says why it cannot be used. A folder with other people's files is left alone.
func checkData(dir string) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("data: cannot make %s: %w; name a folder that can be written with --data", dir, plain(err))
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("data: cannot read %s: %w; mend its owner or mode, or name another with --data", dir, plain(err))
	}
	if _, err := os.Stat(filepath.Join(dir, backup.RestoreDir)); err == nil {
		return fmt.Errorf("data: a restore into %s was cut off (%s is there); run `millrace backup restore` again", dir, backup.RestoreDir)
	}
	ours, stranger := false, ""
	for _, e := range entries {
		switch name := e.Name(); {
		case name == "historian" || name == "records":
			ours = true
		case !slices.Contains(oursInData, name) && !strings.HasPrefix(name, "."):
			stranger = name
		}
	}
	if stranger != "" && !ours {
		return fmt.Errorf("data: %s holds other files (%s) and nothing of ours; name an empty folder with --data", dir, stranger)
	}
	if free, need := freeSpace(dir), startReserve+logBytes(dir); free >= 0 && free < need {
		return fmt.Errorf("data: %s has %d KiB free and a start needs %d KiB; free some space, then start again", dir, free>>10, need>>10)
	}
	probe, err := os.CreateTemp(dir, ".probe-*")
	if err != nil {
		return fmt.Errorf("data: cannot write in %s: %w; mend its owner or mode, or name another with --data", dir, plain(err))
	}
	return errors.Join(probe.Close(), os.Remove(probe.Name()))
}

// freeSpace is what an ordinary user may still write at dir, -1 where the file system does not tell.
func freeSpace(dir string) int64 {
	var s unix.Statfs_t
	if unix.Statfs(dir, &s) != nil {
		return -1
	}
	return int64(s.Bavail) * s.Bsize
}

// logBytes is the size of the stores' logs, which replay may write once more as tables.
func logBytes(dir string) (sum int64) {
	for _, store := range []string{"historian", "records", "runs"} {
		logs, _ := filepath.Glob(filepath.Join(dir, store, "*.log")) // the pattern is a good one
		for _, name := range logs {
			if info, err := os.Stat(name); err == nil {
				sum += info.Size()
			}
		}
	}
	return sum
}

// plain leaves out the path an fs error repeats.
func plain(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

func (b *box) sessions() []web.Session {
	list := b.broker.Sessions()
	out := make([]web.Session, len(list))
	for i, s := range list {
		out[i] = web.Session{MQTTID: s.MQTTID, Client: s.Client, Connected: s.Connected, Remote: s.Remote, Listener: s.Door, Version: s.Version,
			Since: s.Since.UTC(), ExpiryS: int64(s.Expiry.Seconds()), KeepAliveS: int64(s.KeepAlive.Seconds()), Subscriptions: s.Subscriptions,
			Received: s.Received, Sent: s.Sent, Queued: s.Queued, QueuedBytes: s.QueuedBytes, Inflight: s.Inflight,
			Dropped: s.Dropped, DroppedBy: s.DroppedBy, Slow: s.Slow}
	}
	return out
}

func (b *box) drops() (map[string]uint64, []web.ClientDrops) {
	by, list := b.broker.Drops()
	out := make([]web.ClientDrops, len(list))
	for i, c := range list {
		out[i] = web.ClientDrops{Client: c.Client, By: c.By}
	}
	return by, out
}

// serve runs until ctx ends or a part fails, then stops in the value's order: the broker settles what it has
// read and takes no more, web finishes its calls, then the stores are flushed and closed.
func (b *box) serve(ctx context.Context, ready func()) error {
	// stopping is ordered below, so the parts must not see the end of ctx themselves
	lasting := context.WithoutCancel(ctx)
	brokerCtx, stopBroker := context.WithCancel(lasting)
	defer stopBroker()
	webCtx, stopWeb := context.WithCancel(lasting)
	defer stopWeb()
	ledgerCtx, stopLedger := context.WithCancel(lasting)
	defer stopLedger()
	var ledgerErr error
	ledgerDone := make(chan struct{})
	go func() {
		defer close(ledgerDone)
		ledgerErr = b.ledger.Run(ledgerCtx)
	}()

	var wg sync.WaitGroup
	tidyCtx, stopTidy := context.WithCancel(lasting)
	defer stopTidy()
	wg.Go(func() { b.tidy(tidyCtx) })
	runsCtx, stopRuns := context.WithCancel(lasting)
	defer stopRuns()
	var runsErr error
	runsDone := make(chan struct{})
	var brokerErr, webErr error
	failed := make(chan struct{}, 3)
	go func() {
		defer close(runsDone)
		runsErr = b.runs.serve(runsCtx)
		failed <- struct{}{}
	}()
	brokerDone := make(chan struct{})
	wg.Go(func() {
		defer close(brokerDone)
		brokerErr = b.broker.Serve(brokerCtx)
		failed <- struct{}{}
	})
	wg.Go(func() {
		webErr = b.web.Serve(webCtx)
		failed <- struct{}{}
	})
	select {
	case <-b.broker.Taking(): // before that a WebSocket would be turned away
		b.web.SetReady(true)
		ready()
	case <-brokerDone:
	}

	select {
	case <-ctx.Done():
	case <-failed:
	}
	b.log.Info("stopping")
	b.web.SetReady(false)
	stopBroker()
	<-brokerDone
	stopWeb()
	stopTidy()
	wg.Wait()
	stopRuns() // nobody triggers or asks any more
	<-runsDone
	stopLedger() // when nobody sends any more
	<-ledgerDone
	return errors.Join(brokerErr, webErr, runsErr, ledgerErr, b.close())
}

// tidy lets the book write what it has counted, once a minute until ctx ends.
func (b *box) tidy(ctx context.Context) {
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if err := b.book.Tidy(); err != nil {
				b.log.Error("the audit log could not be written", "part", "auth", "error", err)
			}
		}
	}
}

// close closes what is open, in the value's order. Safe after a failed open and more than once.
func (b *box) close() error {
	var faults []error
	if b.broker != nil {
		faults = append(faults, b.broker.Close())
	}
	if b.web != nil {
		faults = append(faults, b.web.Close())
	}
	if b.backups != nil {
		faults = append(faults, b.backups.Close())
	}
	if b.runs != nil {
		faults = append(faults, b.runs.close())
	}
	if b.book != nil {
		faults = append(faults, b.book.Close())
	}
	if b.history != nil {
		faults = append(faults, b.history.Close())
	}
	if b.records != nil {
		faults = append(faults, b.records.Close())
	}
	b.broker, b.web, b.backups, b.runs, b.book, b.history, b.records = nil, nil, nil, nil, nil, nil, nil
	return errors.Join(faults...)
}
