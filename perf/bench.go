package perf

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// LoadOptions are the settings every run shares. The kong tags are the flags of `millrace perf`.
type LoadOptions struct {
	Binary   string `name:"binary" help:"Box to start (default: this program)." placeholder:"FILE"`
	Out      string `name:"out" help:"Folder for report.md and summary.json (default perf/results/<date>-<machine>-<run>)." placeholder:"DIR"`
	Scrap    string `name:"scrap" help:"Folder for data directories; it must lie on the disk to measure (default: a temporary folder, removed after)." placeholder:"DIR"`
	Tags     int    `name:"tags" default:"10" help:"Topics per device."`
	Inflight int    `name:"inflight" default:"16" help:"Unacknowledged publishes a device may have open."`
	Version  uint8  `name:"mqtt-version" default:"5" help:"MQTT protocol level: 5, or 4 for 3.1.1."`
	Seed     uint64 `name:"seed" default:"1" help:"Seed of the values."`
	Command  string `kong:"-"` // as the report shows it; empty: the program's arguments
}

func defaultLoadOptions() LoadOptions {
	return LoadOptions{Tags: 10, Inflight: 16, Version: version5, Seed: 1}
}

func (o *LoadOptions) fleet(devices int) FleetOptions {
	f := DefaultFleetOptions()
	f.Devices, f.Tags, f.Inflight, f.Version, f.Seed = devices, o.Tags, o.Inflight, o.Version, o.Seed
	return f
}

func (o *LoadOptions) command() string {
	if o.Command != "" {
		return o.Command
	}
	return strings.Join(os.Args, " ")
}

// scrapDir returns the folder for data and what removes it again.
func (o *LoadOptions) scrapDir() (string, func(), error) {
	parent := o.Scrap
	if parent != "" {
		if err := os.MkdirAll(parent, 0o700); err != nil {
			return "", nil, fmt.Errorf("perf: scrap folder: %w", err)
		}
	}
	dir, err := os.MkdirTemp(parent, "millrace-perf-")
	if err != nil {
		return "", nil, fmt.Errorf("perf: scrap folder: %w", err)
	}
	return dir, func() { _ = os.RemoveAll(dir) }, nil
}

// save writes the report to where it belongs.
func (o *LoadOptions) save(r *Report, run string, progress io.Writer) error {
	dir := o.Out
	if dir == "" {
		dir = resultsDir(r.Started.UTC().Format("2006-01-02"), run, r.Machine)
	}
	if err := r.Save(dir); err != nil {
		return err
	}
	say(progress, "report: %s/report.md", dir)
	return nil
}

// positive adds a fault for every duration that is not above zero.
func positive(faults []error, key string, d time.Duration) []error {
	if d <= 0 {
		return append(faults, fmt.Errorf("perf.%s: %s is not above 0", key, d))
	}
	return faults
}

// bench is one fleet at work on one box.
type bench struct {
	box      *box
	fleet    *Fleet
	o        FleetOptions
	progress io.Writer
	begun    time.Time
	stopRun  context.CancelFunc
	ended    chan error
	connects time.Duration
}

// openBench enrols the fleet's clients and connects the devices; the fleet's goroutine ends with close.
func openBench(ctx context.Context, b *box, o FleetOptions, progress io.Writer) (*bench, error) {
	if err := b.enrol(ctx, o); err != nil {
		return nil, err
	}
	o.Address = b.mqtt
	if b.secrets != nil {
		o.Secret = b.secrets
	}
	fleet, err := NewFleet(o)
	if err != nil {
		return nil, err
	}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	n := &bench{box: b, fleet: fleet, o: o, progress: progress, begun: time.Now(), stopRun: cancel, ended: make(chan error, 1)}
	go func() { n.ended <- fleet.Run(run) }()
	if err := fleet.connected(ctx, o.Devices, time.Minute); err != nil {
		return nil, errors.Join(err, n.close())
	}
	n.connects = time.Since(n.begun)
	say(progress, "%s: %d devices connected in %.1fs", b.name, o.Devices, n.connects.Seconds())
	return n, nil
}

// close ends the connections and waits for the fleet's goroutine.
func (n *bench) close() error {
	n.stopRun()
	err := <-n.ended
	n.ended <- err // a second close finds it again
	return err
}

// firstContacts sends every topic's first value at once and returns how long it took until all were
// acknowledged.
func (n *bench) firstContacts(ctx context.Context) (Stage, error) {
	want := int64(n.o.Devices * n.o.Tags)
	return n.stretch(ctx, stageFirst, 0, func() error {
		if err := n.fleet.set(modeFirst, 0); err != nil {
			return err
		}
		if !await(ctx, 2*time.Minute, func() bool { return n.fleet.contacts.Load() >= want }) {
			return fmt.Errorf("perf: %d of %d first contacts acknowledged within 2m; last fault: %w", n.fleet.contacts.Load(), want, n.fleet.lastFault())
		}
		return nil
	})
}

// stage holds a load (rate 0 = closed loop) for lead, which is not counted, and then for length.
func (n *bench) stage(ctx context.Context, name string, rate float64, lead, length time.Duration) (Stage, error) {
	m := modePaced
	if rate == 0 {
		m = modeClosed
	}
	if err := n.fleet.set(m, rate); err != nil {
		return Stage{}, err
	}
	if err := n.sleep(ctx, name+" (lead-in)", lead); err != nil {
		return Stage{}, err
	}
	return n.stretch(ctx, name, rate, func() error { return n.sleep(ctx, name, length) })
}

// sleep waits and says every ten seconds what remains.
func (n *bench) sleep(ctx context.Context, name string, length time.Duration) error {
	end := time.NewTimer(length)
	defer end.Stop()
	tick := time.NewTicker(10 * time.Second)
	defer tick.Stop()
	begin := time.Now()
	for {
		select {
		case <-end.C:
			return nil
		case <-tick.C:
			say(n.progress, "%s: %s, %s to go, %d values open", n.box.name, name, (length - time.Since(begin)).Round(time.Second), n.fleet.pending.Load())
		case <-ctx.Done():
			return ctx.Err()
		case err := <-n.ended:
			n.ended <- err
			return errors.Join(errors.New("perf: the fleet has stopped"), err)
		}
	}
}

// stretch measures what happens while body runs.
func (n *bench) stretch(ctx context.Context, name string, rate float64, body func() error) (Stage, error) {
	if _, err := n.fleet.take(); err != nil {
		return Stage{}, err
	}
	stop, err := watch(ctx, n.box.meter)
	if err != nil {
		return Stage{}, err
	}
	failed := body()
	s, err := n.fleet.take()
	u, uerr := stop()
	if err := errors.Join(failed, err, uerr); err != nil {
		return Stage{}, err
	}
	values := float64(max(s.Acked, 1))
	each := func(b int64) float64 {
		if b < 0 {
			return -1
		}
		return float64(b) / values
	}
	st := Stage{Server: n.box.name, Name: name, Offered: rate, Seconds: s.seconds(), acked: s.Acked,
		Sent: float64(s.Sent) / s.seconds(), Stored: float64(s.Acked) / s.seconds(),
		AckP50: milliseconds(s.ack, 50), AckP99: milliseconds(s.ack, 99), AckP999: milliseconds(s.ack, 99.9), AckMax: milliseconds(s.ack, 100),
		VerdictP50: milliseconds(s.answer, 50), VerdictP99: milliseconds(s.answer, 99), Verdicts: s.Answered,
		Cores: u.CPU / u.Seconds, CPU: u.CPU * 1e6 / values, Generator: (ownCPU() - s.generator).Seconds() * 1e6 / values,
		PeakMB: float64(u.Peak) / 1e6, GrowthMB: u.GrowthMBpm, Written: each(u.Written), Device: each(u.Sectors),
		Delivered: float64(s.Delivered) / s.seconds(), Refused: s.refusals() + s.Denied, Resent: s.Resent, Skipped: s.Skipped,
		Unexpected: s.Unexpected, Disconnects: s.Disconnects, Backlog: n.fleet.backlog.Load()}
	if s.Asked > s.Answered {
		st.VerdictsAway = s.Asked - s.Answered
	}
	say(n.progress, "%s: %s: %.0f/s stored, ack p50 %.2f p99 %.2f ms, verdict p99 %.2f ms, server %.1f µs/value (%.2f cores), generator %.1f µs/value, %.0f MB, %.1f B/value written %s",
		n.box.name, name, st.Stored, st.AckP50, st.AckP99, st.VerdictP99, st.CPU, st.Cores, st.Generator, st.PeakMB, st.Written, st.faults())
	return st, nil
}

// finish drains the fleet, ends it and compares everything acknowledged with the box's history.
func (n *bench) finish(ctx context.Context, run string, limit time.Duration) (Comparison, readBack, error) {
	left, err := n.fleet.drain(ctx, limit)
	if err := errors.Join(err, n.close()); err != nil {
		return Comparison{}, readBack{}, err
	}
	if n.box.api == nil {
		return Comparison{}, readBack{}, nil
	}
	tracks := n.fleet.tracks()
	say(n.progress, "%s: reading back %d topics", n.box.name, len(tracks))
	r, err := compareAll(ctx, n.box.api, n.o.Seed, n.o.Serial, tracks, n.begun.Add(-time.Hour), time.Now().Add(time.Hour), n.progress)
	if err != nil {
		return Comparison{}, r, err
	}
	c := comparisonOf(run, r, left)
	say(n.progress, "%s: %d acknowledged, %d stored, %d lost, %d doubled, %d different, %d stored unacknowledged (%.1fs)",
		n.box.name, c.Acked, c.Stored, c.Lost, c.Doubled, c.Different, c.Unasked, c.Seconds)
	return c, r, nil
}
