package perf

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"
)

// IngestOptions describes an ingest run: against a box of its own, or a running one by URL and MQTT.
type IngestOptions struct {
	LoadOptions
	Devices     int           `name:"devices" default:"1000" help:"Device connections."`
	MQTT        string        `name:"mqtt" help:"MQTT address of a running box, with --url and --token of an administrator; its ingress rates must be off." placeholder:"HOST:PORT"`
	Rates       []float64     `name:"rates" default:"5000,10000,20000" help:"Paced steps, values per second over all devices."`
	Stretch     time.Duration `name:"seconds" default:"20s" help:"Length of a step."`
	Warm        time.Duration `name:"warm" default:"5s" help:"Warm-up at the first rate after the first contacts, not counted."`
	Closed      time.Duration `name:"closed" default:"10s" help:"Length of the closed loop (every window kept full); 0 = none."`
	Hold        time.Duration `name:"hold" default:"0s" help:"Length of the hold at the highest step that met the guaranteed rule; 0 = none."`
	Drain       time.Duration `name:"drain" default:"30s" help:"How long to wait for the last acknowledgements."`
	Burst       int           `name:"burst" default:"1" help:"Paced values a device sends together when its turn comes; its number of tags is a device that reports all of them at once."`
	Subscribers int           `name:"subscribers" default:"0" help:"QoS 1 subscribers on everything."`
	Reader      bool          `name:"reader" help:"Also read a raw hour of one topic again and again during the steps."`
	NoSync      bool          `name:"no-sync" help:"Box of its own: acknowledge before fsync (historian.pebble.syncWrites false)."`
	URL         string        `kong:"-"` // of a running box
	Token       string        `kong:"-"`
}

// DefaultIngestOptions is the reference workload in short steps.
func DefaultIngestOptions() IngestOptions {
	return IngestOptions{LoadOptions: defaultLoadOptions(), Devices: 1000, Rates: []float64{5000, 10000, 20000},
		Stretch: 20 * time.Second, Warm: 5 * time.Second, Closed: 10 * time.Second, Burst: 1, Drain: 30 * time.Second}
}

// Validate reports every fault.
func (o *IngestOptions) Validate() error {
	fleet := o.load()
	faults := []error{fleet.Validate()}
	if len(o.Rates) == 0 {
		faults = append(faults, errors.New("perf.rates: at least one is needed"))
	}
	for _, r := range o.Rates {
		if r < 1 {
			faults = append(faults, fmt.Errorf("perf.rates: %g is below 1", r))
		}
	}
	faults = positive(faults, "seconds", o.Stretch)
	faults = positive(faults, "drain", o.Drain)
	if o.Warm < 0 || o.Closed < 0 || o.Hold < 0 {
		faults = append(faults, fmt.Errorf("perf.warm, closed, hold: %s, %s, %s: none may be below 0", o.Warm, o.Closed, o.Hold))
	}
	if o.Subscribers < 0 || o.Subscribers > 1000 {
		faults = append(faults, fmt.Errorf("perf.subscribers: %d is outside 0 to 1000", o.Subscribers))
	}
	if (o.MQTT == "") != (o.URL == "") {
		faults = append(faults, fmt.Errorf("perf.mqtt: %q with --url %q: a running box needs both", o.MQTT, o.URL))
	}
	return errors.Join(faults...)
}

func (o *IngestOptions) load() FleetOptions {
	f := o.fleet(o.Devices)
	f.Burst = o.Burst
	return f
}

// guaranteed is the reference's rule for a rate to size by.
func guaranteed(s Stage, cores int) bool {
	return s.Stored >= 0.99*s.Offered && s.Refused == 0 && s.Disconnects == 0 && max(s.VerdictP99, s.AckP99) < 100 && s.Cores < 0.8*float64(cores)
}

// Ingest runs the ingest workload and compares every acknowledged value with history. The report is saved
// unless an error is returned; progress may be nil.
func Ingest(ctx context.Context, o IngestOptions, progress io.Writer) (Report, error) {
	r := Report{Title: "Ingest", Command: o.command(), Started: time.Now()}
	if err := o.Validate(); err != nil {
		return r, err
	}
	scrap, clean, err := o.scrapDir()
	if err != nil {
		return r, err
	}
	defer clean()
	r.Machine = machineOf(scrap)
	var b *box
	if o.URL != "" {
		b, err = attach(o.URL, o.MQTT, o.Token)
	} else {
		b, err = startBox(ctx, "box", boxOptions{binary: o.Binary, scrap: scrap, noSync: o.NoSync})
	}
	if err != nil {
		return r, err
	}
	defer b.abandon()
	r.Setup = append(setupOf(o.load(), o.NoSync), o.setup()...)
	if err := o.run(ctx, b, &r, progress); err != nil {
		return r, err
	}
	r.Seconds = time.Since(r.Started).Seconds()
	return r, o.save(&r, "ingest", progress)
}

func (o *IngestOptions) setup() []string {
	if o.URL != "" {
		return []string{"A running box at " + o.URL + "; its CPU and memory are read from /metrics. Its ingress rates must be off for these figures."}
	}
	return []string{"A box of its own as a child process on the same machine as the generator; its CPU is read from /proc, apart from the generator's."}
}

// setupOf states the workload in the report's words.
func setupOf(o FleetOptions, noSync bool) []string {
	mode := "historian.pebble.syncWrites true: an acknowledgement means fsynced"
	if noSync {
		mode = "historian.pebble.syncWrites false: acknowledged before fsync"
	}
	turn := "Paced values go to the devices in turn, one each."
	if o.Burst > 1 {
		turn = fmt.Sprintf("Paced values go to the devices in turn, %d each.", o.Burst)
	}
	return []string{
		fmt.Sprintf("%d devices × %d tags = %d topics, MQTT protocol level %d, QoS 1, one value per message, at most %d in flight per device; 1 publish in %d asks for a verdict.",
			o.Devices, o.Tags, o.Devices*o.Tags, o.Version, o.Inflight, o.VerdictEvery),
		turn,
		"Per device of ten tags: 3 drifting (1 decimal), 3 noisy (2 decimals), 2 counters, 1 state 0 to 5, 1 boolean; payload {\"value\": 42.7}, published to the device's inbox.",
		"Every device signs in as its own API client, whose one grant covers its own branch.",
		"Both ingress rates are off (uns.ingress.perClientRatePerSec 0, uns.ingress.perWorkspaceRatePerSec 0).",
		mode + ".",
	}
}

func (o *IngestOptions) run(ctx context.Context, b *box, r *Report, progress io.Writer) error {
	n, err := openBench(ctx, b, o.load(), progress)
	if err != nil {
		return err
	}
	defer n.close()
	var beside *reader
	if o.Reader {
		if beside, err = newReader(ctx, b); err != nil {
			return err
		}
	}
	first, err := n.firstContacts(ctx)
	if err != nil {
		return err
	}
	r.Stages = append(r.Stages, first)
	r.Notes = append(r.Notes, fmt.Sprintf("%d devices signed in within %.1f s; %d first contacts were all acknowledged %.0f ms after the first was sent.",
		o.Devices, n.connects.Seconds(), o.Devices*o.Tags, first.Seconds*1000))
	for range o.Subscribers {
		if err := n.fleet.subscribe(subscriberClient, b.secret(subscriberClient), n.everything()); err != nil {
			return err
		}
	}
	if err := n.fleet.connected(ctx, o.Devices+o.Subscribers, time.Minute); err != nil {
		return err
	}
	if o.Warm > 0 {
		if _, err := n.stage(ctx, "warm-up", o.Rates[0], 0, o.Warm); err != nil {
			return err
		}
	}
	best := 0.0
	step := func(name string, rate float64, length time.Duration) (Stage, error) {
		stop := beside.begin(ctx)
		s, err := n.stage(ctx, name, rate, min(time.Second, length), length)
		read := stop()
		if err == nil {
			r.Stages = append(r.Stages, s)
		}
		if beside != nil {
			r.Notes = append(r.Notes, name+": "+read.String())
		}
		return s, err
	}
	for _, rate := range o.Rates {
		s, err := step("paced", rate, o.Stretch)
		if err != nil {
			return err
		}
		if guaranteed(s, r.Machine.Cores) {
			best = max(best, rate)
		}
	}
	if o.Closed > 0 {
		if _, err := step("closed loop", 0, o.Closed); err != nil {
			return err
		}
		if _, err := n.fleet.drain(ctx, o.Drain); err != nil {
			return err
		}
	}
	r.Notes = append(r.Notes, fmt.Sprintf("Highest step that met the guaranteed rule (99%% stored, publish to stored p99 under 100 ms, server below 80%% of the cores): %.0f values/s.", best))
	if o.Hold > 0 && best > 0 {
		s, err := step("hold", best, o.Hold)
		if err != nil {
			return err
		}
		r.Notes = append(r.Notes, fmt.Sprintf("Hold of %s at %.0f/s: memory at most %.0f MB, growing %.1f MB per minute in the second half.", o.Hold, best, s.PeakMB, s.GrowthMB))
	}
	c, _, err := n.finish(ctx, b.name, o.Drain)
	if err != nil {
		return err
	}
	r.Comparisons = append(r.Comparisons, c)
	if b.dir != "" {
		before, _ := onDisk(filepath.Join(b.dir, "historian"))
		if err := b.stop(); err != nil {
			return err
		}
		after, length := onDisk(filepath.Join(b.dir, "historian"))
		r.Notes = append(r.Notes, fmt.Sprintf("At rest: %.2f B/value in the historian's folder while running, %.2f after the stop (%.2f by file length), over %d values.",
			float64(before)/float64(c.Stored), float64(after)/float64(c.Stored), float64(length)/float64(c.Stored), c.Stored))
	}
	return nil
}

// everything is the filter of a subscriber on the whole workspace.
func (n *bench) everything() string { return n.o.Namespace + "/" + n.o.Workspace + "/#" }

func (b *box) secret(client string) string {
	if b.secrets == nil {
		return ""
	}
	return b.secrets(client)
}
