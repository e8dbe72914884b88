package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"millrace/backup"
	"millrace/historian"
	"millrace/historian/kv"
	"millrace/web"
)

type backupCommand struct {
	Create  backupCreate  `cmd:"" help:"Back up the box, running or stopped, into a new folder."`
	Status  backupStatus  `cmd:"" help:"The backup under way on the running box, or its last one."`
	Verify  backupVerify  `cmd:"" help:"Read all of a backup and say whether it is whole."`
	Restore backupRestore `cmd:"" help:"Make a data folder of a backup."`
}

// checks are the parts of a backup for those who only look.
func checks() []backup.Part {
	return []backup.Part{{Name: "runs", Optional: true, Check: kv.Verify}, {Name: "historian", Check: historian.Verify}, {Name: "records", Check: kv.Verify}}
}

// loose are the single files of a data folder that belong into a backup, where they are there.
var loose = []string{"secrets/key"}

type backupCreate struct {
	Dir      string `arg:"" help:"The new folder; the folder it lies in exists. With --url a plain name below backup.root."`
	Previous string `name:"incremental-from" placeholder:"DIR" help:"An earlier backup: files that have not changed are shared with it by hard links. It may be deleted later."`
}

func (c backupCreate) Run(ctx context.Context, con console, g *globals) error {
	if g.URL == "" {
		// The box has a working folder of its own.
		var err error
		if c.Dir, err = filepath.Abs(c.Dir); err != nil {
			return err
		}
		if c.Previous != "" {
			if c.Previous, err = filepath.Abs(c.Previous); err != nil {
				return err
			}
		}
	}
	box, err := g.connect(con)
	if err != nil {
		return err
	}
	stopped, err := g.stopped(ctx, con)
	if err != nil {
		return err
	}
	if stopped {
		return c.ofFolder(ctx, con, g)
	}
	var at web.BackupState
	in := map[string]string{"dir": c.Dir, "incremental_from": c.Previous}
	if err := box.call(ctx, http.MethodPost, "/backup", nil, in, &at); err != nil {
		return err
	}
	if at, err = c.follow(ctx, con, box, at); err != nil {
		return err
	}
	switch at.State {
	case "done":
		return backupShown{Dir: at.Dir, Taken: *at.Taken, Sequence: at.Sequence, Bytes: at.Bytes, Linked: at.Linked}.print(con, g)
	case "cancelled":
		return errors.New("the backup was given up; nothing of it stays")
	}
	return errors.New(at.Error)
}

// follow waits for the end of the backup, and gives it up when ctx ends.
func (c backupCreate) follow(ctx context.Context, con console, box *remote, at web.BackupState) (web.BackupState, error) {
	p := newProgress(con, sizeText)
	defer p.end()
	tick := time.NewTicker(progressLive)
	defer tick.Stop()
	lasting, interrupted := ctx, ctx.Done()
	for at.State == "running" {
		p.to(at.Phase, at.Bytes, at.Total)
		select {
		case <-interrupted:
			lasting, interrupted = context.WithoutCancel(ctx), nil
			var gone *problem
			if err := box.call(lasting, http.MethodDelete, "/backup", nil, nil, nil); err != nil && !errors.As(err, &gone) {
				return at, err
			}
		case <-tick.C:
		}
		if err := box.call(lasting, http.MethodGet, "/backup", nil, nil, &at); err != nil {
			if interrupted != nil && ctx.Err() != nil {
				continue
			}
			return at, err
		}
	}
	return at, nil
}

// stopped says whether no box answers on the admin socket of the data folder.
func (g *globals) stopped(ctx context.Context, con console) (bool, error) {
	if g.URL != "" {
		return false, nil
	}
	c, err := loadConfig(g.Config, con.env, g.flags())
	if err != nil {
		return false, err
	}
	conn, err := web.DialSocket(ctx, filepath.Join(c.Data, "admin.sock"))
	if err == nil {
		return false, conn.Close()
	}
	return !errors.Is(err, os.ErrPermission), nil
}

// ofFolder backs up the folder of a box that does not run. The locks of its stores keep it from starting meanwhile.
func (c backupCreate) ofFolder(ctx context.Context, con console, g *globals) error {
	cfg, err := loadConfig(g.Config, con.env, g.flags())
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(cfg.Data, "historian")); errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s holds no box and none is running there: name its data folder with --data, or a running box with --url", cfg.Data)
	}
	for _, hold := range []func(string) (io.Closer, error){
		func(dir string) (io.Closer, error) { return kv.Hold(filepath.Join(dir, "records")) },
		func(dir string) (io.Closer, error) { return historian.Hold(filepath.Join(dir, "historian")) },
	} {
		lock, err := hold(cfg.Data)
		if err != nil {
			return err
		}
		defer lock.Close()
	}
	p := newProgress(con, sizeText)
	m, err := backup.Create(ctx, backup.Box{Data: cfg.Data, Parts: checks(), Files: loose, Version: version, MinFree: startReserve},
		backup.Target{Dir: c.Dir, Previous: c.Previous}, time.Now, func(at backup.Progress) { p.to(at.Phase, at.Bytes, at.Total) })
	p.end()
	if err != nil {
		return err
	}
	return backupShown{Dir: c.Dir, Taken: m.Taken, Sequence: m.Sequence, Bytes: m.Bytes, Linked: m.Linked}.print(con, g)
}

// backupShown is what create, verify and restore tell of a backup.
type backupShown struct {
	Dir      string         `json:"dir"`
	Data     string         `json:"data,omitempty"`
	Version  string         `json:"version,omitempty"`
	Taken    time.Time      `json:"taken"`
	Sequence uint64         `json:"sequence,omitempty"`
	Files    int            `json:"files,omitempty"`
	Bytes    int64          `json:"bytes"`
	Linked   int64          `json:"linked_bytes,omitempty"`
	Whole    *bool          `json:"whole,omitempty"`
	Faults   []backup.Fault `json:"faults,omitempty"`
}

func (s backupShown) print(con console, g *globals) (err error) {
	switch {
	case g.JSON:
		return json.NewEncoder(con.out).Encode(s)
	case s.Data != "":
		_, err = fmt.Fprintf(con.out, "restored %s into %s: %s, taken %s\nStart it with `millrace serve --data %s`.\n", s.Dir, s.Data, sizeText(s.Bytes), s.Taken.Format(time.RFC3339), s.Data)
	case s.Whole != nil && *s.Whole:
		_, err = fmt.Fprintf(con.out, "%s is whole: %d files, %s, taken %s by millrace %s\n", s.Dir, s.Files, sizeText(s.Bytes), s.Taken.Format(time.RFC3339), s.Version)
	case s.Whole == nil:
		_, err = fmt.Fprintf(con.out, "%s: %s, of these %s shared with the earlier backup; taken %s\n", s.Dir, sizeText(s.Bytes), sizeText(s.Linked), s.Taken.Format(time.RFC3339))
	}
	return err
}

type backupStatus struct{}

func (backupStatus) Run(ctx context.Context, con console, g *globals) error {
	box, err := g.connect(con)
	if err != nil {
		return err
	}
	var raw json.RawMessage
	if err := box.call(ctx, http.MethodGet, "/backup", nil, nil, &raw); err != nil {
		return err
	}
	if g.JSON {
		return printRaw(con, raw)
	}
	var at web.BackupState
	if err := json.Unmarshal(raw, &at); err != nil {
		return err
	}
	switch at.State {
	case "running":
		took := time.Since(*at.Started)
		fmt.Fprintf(con.out, "running into %s: %s\n", at.Dir, (&progress{unit: sizeText}).line(at.Phase, at.Bytes, at.Total, took))
	case "none":
		fmt.Fprintln(con.out, "none since the box started")
	case "failed":
		fmt.Fprintf(con.out, "failed at %s: %s\n", at.Ended.Format(time.RFC3339), at.Error)
	default:
		fmt.Fprintf(con.out, "%s at %s: %s\n", at.State, at.Ended.Format(time.RFC3339), at.Dir)
	}
	if at.LastSuccess != nil {
		fmt.Fprintf(con.out, "the newest whole one was taken %s into %s\n", at.LastSuccess.Format(time.RFC3339), at.LastDir)
	} else {
		fmt.Fprintln(con.out, "there is no whole one yet")
	}
	return nil
}

type backupVerify struct {
	Dir string `arg:"" help:"The backup."`
}

func (c backupVerify) Run(ctx context.Context, con console, g *globals) error {
	p := newProgress(con, sizeText)
	m, faults, err := backup.Verify(ctx, c.Dir, checks(), func(at backup.Progress) { p.to(at.Phase, at.Bytes, at.Total) })
	p.end()
	if err != nil {
		return err
	}
	whole := len(faults) == 0
	shown := backupShown{Dir: c.Dir, Version: m.Version, Taken: m.Taken, Sequence: m.Sequence, Files: len(m.Files), Bytes: m.Bytes, Linked: m.Linked, Whole: &whole, Faults: faults}
	if err := shown.print(con, g); err != nil {
		return err
	}
	if whole {
		return nil
	}
	for _, f := range faults {
		fmt.Fprintf(con.err, "millrace: %s: %s %s\n", c.Dir, f.Path, f.Detail)
	}
	fmt.Fprintf(con.err, "millrace: %s is not whole; keep an older backup and make a new one\n", c.Dir)
	return errTold
}

type backupRestore struct {
	Dir string `arg:"" help:"The backup."`
}

func (c backupRestore) Run(ctx context.Context, con console, g *globals) error {
	if g.Data == "" {
		return usageError{"restore names its target itself: give an empty or new folder with --data"}
	}
	p := newProgress(con, sizeText)
	m, err := backup.Restore(ctx, c.Dir, g.Data, checks(), func(at backup.Progress) { p.to(at.Phase, at.Bytes, at.Total) })
	p.end()
	if err != nil {
		return err
	}
	return backupShown{Dir: c.Dir, Data: g.Data, Version: m.Version, Taken: m.Taken, Sequence: m.Sequence, Files: len(m.Files), Bytes: m.Bytes}.print(con, g)
}
