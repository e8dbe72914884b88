package perf

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// CompareOptions describes the side-by-side run behind the figures of a release: one command, every figure with
// its target.
type CompareOptions struct {
	LoadOptions
	Devices int           `name:"devices" default:"1000" help:"Device connections."`
	Bare    string        `name:"bare" help:"Built perf/baremochi (default: built with the go command)." placeholder:"FILE"`
	Rounds  int           `name:"rounds" default:"3" help:"Rounds of each alternation."`
	Rate    float64       `name:"rate" default:"20000" help:"The paced rate, values per second."`
	Stretch time.Duration `name:"seconds" default:"15s" help:"Length of a measured stretch."`
	Warm    time.Duration `name:"warm" default:"5s" help:"Warm-up of each box, not counted."`
	Hold    time.Duration `name:"hold" default:"5m" help:"Length of the memory hold."`
	Parts   []string      `name:"parts" default:"baseline,sync,reader,restart,hold" help:"What to run: baseline, sync, reader, restart, hold."`
}

// DefaultCompareOptions runs everything, three rounds.
func DefaultCompareOptions() CompareOptions {
	return CompareOptions{LoadOptions: defaultLoadOptions(), Devices: 1000, Rounds: 3, Rate: 20000, Stretch: 15 * time.Second,
		Warm: 5 * time.Second, Hold: 5 * time.Minute, Parts: []string{"baseline", "sync", "reader", "restart", "hold"}}
}

// Validate reports every fault.
func (o *CompareOptions) Validate() error {
	fleet := o.fleet(o.Devices)
	faults := []error{fleet.Validate()}
	if o.Rounds < 1 || o.Rounds > 100 {
		faults = append(faults, fmt.Errorf("perf.rounds: %d is outside 1 to 100", o.Rounds))
	}
	if o.Rate < 1 {
		faults = append(faults, fmt.Errorf("perf.rate: %g is below 1", o.Rate))
	}
	faults = positive(faults, "seconds", o.Stretch)
	faults = positive(faults, "warm", o.Warm)
	faults = positive(faults, "hold", o.Hold)
	for _, p := range o.Parts {
		if !slices.Contains([]string{"baseline", "sync", "reader", "restart", "hold"}, p) {
			faults = append(faults, fmt.Errorf("perf.parts: %q is none of baseline, sync, reader, restart, hold", p))
		}
	}
	return errors.Join(faults...)
}

// comparing is a compare run at work.
type comparing struct {
	o        CompareOptions
	r        *Report
	scrap    string
	bare     string
	progress io.Writer
	boxes    int
}

// Compare runs the box and the baseline in alternation under one load, and the box against itself where a
// setting is the question. The report is saved unless an error is returned; progress may be nil.
func Compare(ctx context.Context, o CompareOptions, progress io.Writer) (Report, error) {
	r := Report{Title: "Side by side", Command: o.command(), Started: time.Now()}
	if err := o.Validate(); err != nil {
		return r, err
	}
	scrap, clean, err := o.scrapDir()
	if err != nil {
		return r, err
	}
	defer clean()
	r.Machine = machineOf(scrap)
	r.Setup = append(setupOf(o.fleet(o.Devices), false),
		"Generator and server share the machine's cores. One server runs at a time, each on an empty data folder.",
		"Bare mochi: allow-all hook, nothing checked, nothing stored, the same connections, topics and packets; it answers no verdicts.",
		"Figures are medians over the rounds.")
	c := &comparing{o: o, r: &r, scrap: scrap, bare: o.Bare, progress: progress}
	parts := map[string]func(context.Context) error{"baseline": c.baseline, "sync": c.sync, "reader": c.reader, "restart": c.restart, "hold": c.hold}
	for i, name := range o.Parts {
		say(progress, "part %d of %d: %s", i+1, len(o.Parts), name)
		if err := parts[name](ctx); err != nil {
			return r, fmt.Errorf("perf: part %s: %w", name, err)
		}
	}
	r.Seconds = time.Since(r.Started).Seconds()
	return r, o.save(&r, "compare", progress)
}

// fresh starts a box on an empty folder.
func (c *comparing) fresh(ctx context.Context, noSync bool) (*box, error) {
	c.boxes++
	b, err := startBox(ctx, fmt.Sprintf("box%d", c.boxes), boxOptions{binary: c.o.Binary, scrap: c.scrap, noSync: noSync})
	if err != nil {
		return nil, err
	}
	b.name = "millrace"
	if noSync {
		b.name = "millrace, sync off"
	}
	return b, nil
}

// baremochi starts the baseline, building it first if need be.
func (c *comparing) baremochi(ctx context.Context) (*box, error) {
	if c.bare == "" {
		c.bare = filepath.Join(c.scrap, "baremochi")
		build := exec.CommandContext(ctx, "go", "build", "-o", c.bare, "millrace/perf/baremochi")
		if text, err := build.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("perf: build the baseline (or name a built one with --bare): %w: %s", err, text)
		}
	}
	c.boxes++
	b, err := startBare(ctx, fmt.Sprintf("bare%d", c.boxes), c.bare, c.scrap)
	if err != nil {
		return nil, err
	}
	b.name = "bare mochi"
	return b, nil
}

// ready opens a bench on b, sends the first contacts and warms up at rate.
func (c *comparing) ready(ctx context.Context, b *box, rate float64) (*bench, Stage, error) {
	n, err := openBench(ctx, b, c.o.fleet(c.o.Devices), c.progress)
	if err != nil {
		return nil, Stage{}, err
	}
	first, err := n.firstContacts(ctx)
	if err == nil {
		_, err = n.stage(ctx, "warm-up", rate, 0, c.o.Warm)
	}
	if err != nil {
		return nil, first, errors.Join(err, n.close())
	}
	return n, first, nil
}

// measure holds one stretch and keeps it in the report.
func (c *comparing) measure(ctx context.Context, n *bench, name string, rate float64) (Stage, error) {
	s, err := n.stage(ctx, name, rate, time.Second, c.o.Stretch)
	if err == nil {
		c.r.Stages = append(c.r.Stages, s)
	}
	return s, err
}

// finish compares with history and stops the box in order.
func (c *comparing) finish(ctx context.Context, n *bench, run string) (Comparison, error) {
	k, _, err := n.finish(ctx, run, time.Minute)
	if err != nil {
		return k, err
	}
	if n.box.api != nil {
		c.r.Comparisons = append(c.r.Comparisons, k)
	}
	return k, n.box.stop()
}

func (c *comparing) target(figure, want, got string, met bool, why string) {
	c.r.Targets = append(c.r.Targets, Target{Figure: figure, Want: want, Got: got, Met: met, Why: why})
}

// rounds collects one figure over the rounds.
type rounds []float64

func (r rounds) median() float64 {
	if len(r) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(r))
	if len(s)%2 == 1 {
		return s[len(s)/2]
	}
	return (s[len(s)/2-1] + s[len(s)/2]) / 2
}

func (r rounds) String() string {
	var b strings.Builder
	for i, v := range r {
		if i > 0 {
			b.WriteString(" ")
		}
		fmt.Fprintf(&b, "%.2f", v)
	}
	return b.String()
}

const (
	stageFirst  = "first contacts"
	stagePaced  = "paced"
	stageTags   = "paced, a device's tags together"
	stageOne    = "paced, one subscriber"
	stageClosed = "closed loop"
)

// baseline alternates box and bare mochi.
func (c *comparing) baseline(ctx context.Context) error {
	ratios := map[string]rounds{}
	var first, p99, together, bareP99, written, device rounds
	for round := range c.o.Rounds {
		cpu := map[bool]map[string]float64{}
		for turn := range 2 {
			bare := (round+turn)%2 == 1 // neither always goes first
			figures, start, err := c.side(ctx, bare, round+1)
			if err != nil {
				return err
			}
			cpu[bare] = map[string]float64{}
			for name, s := range figures {
				cpu[bare][name] = s.CPU
			}
			if bare {
				bareP99 = append(bareP99, figures[stagePaced].AckP99)
			} else {
				first = append(first, start.Seconds)
				p99 = append(p99, figures[stagePaced].AckP99)
				together = append(together, figures[stageTags].AckP99)
				written = append(written, figures[stagePaced].Written)
				device = append(device, figures[stagePaced].Device)
			}
		}
		for name, own := range cpu[false] {
			if other := cpu[true][name]; other > 0 {
				ratios[name] = append(ratios[name], own/other)
			}
		}
	}
	for _, t := range []struct {
		name  string
		bound float64
	}{{stagePaced, 1.0}, {stageOne, 0.8}, {stageClosed, 0.6}} {
		m := ratios[t.name].median()
		c.target(fmt.Sprintf("server CPU per value, %s, against bare mochi", c.label(t.name)), fmt.Sprintf("≤ %.1f ×", t.bound),
			fmt.Sprintf("%.2f × (%s)", m, ratios[t.name]), m <= t.bound, "")
	}
	c.target(fmt.Sprintf("publish → ack p99 at %.0f/s with fsync", c.o.Rate), "≤ 10 ms", fmt.Sprintf("%.2f ms (%s)", p99.median(), p99), p99.median() <= 10,
		fmt.Sprintf("generator on the same cores; bare mochi, which stores nothing: %.2f ms", bareP99.median()))
	c.target(fmt.Sprintf("the same, each device sending its %d tags together", c.o.Tags), "≤ 10 ms", fmt.Sprintf("%.2f ms (%s)", together.median(), together),
		together.median() <= 10, "")
	c.target(fmt.Sprintf("bytes written per value at %.0f/s, fsync on (process)", c.o.Rate), "≤ 60", fmt.Sprintf("%.1f (%s)", written.median(), written), written.median() <= 60, "")
	c.target(fmt.Sprintf("bytes written per value at %.0f/s, fsync on (device)", c.o.Rate), "≤ 60", fmt.Sprintf("%.1f (%s)", device.median(), device), device.median() <= 60,
		"the whole disk, other writers and the file system's journal included")
	c.target(fmt.Sprintf("%d first contacts, all acknowledged", c.o.Devices*c.o.Tags), "≤ 1 s", fmt.Sprintf("%.2f s (%s)", first.median(), first), first.median() <= 1, "")
	return nil
}

func (c *comparing) label(stage string) string {
	if stage == stageClosed {
		return stage
	}
	return strings.Replace(stage, "paced", fmt.Sprintf("paced %.0f/s", c.o.Rate), 1)
}

// side measures one server through the three loads of the baseline.
func (c *comparing) side(ctx context.Context, bare bool, round int) (map[string]Stage, Stage, error) {
	var b *box
	var err error
	if bare {
		b, err = c.baremochi(ctx)
	} else {
		b, err = c.fresh(ctx, false)
	}
	if err != nil {
		return nil, Stage{}, err
	}
	defer b.abandon()
	n, first, err := c.ready(ctx, b, c.o.Rate)
	if err != nil {
		return nil, first, err
	}
	defer n.close()
	figures := map[string]Stage{}
	if figures[stagePaced], err = c.measure(ctx, n, stagePaced, c.o.Rate); err != nil {
		return nil, first, err
	}
	if err := n.fleet.together(c.o.Tags); err != nil {
		return nil, first, err
	}
	if figures[stageTags], err = c.measure(ctx, n, stageTags, c.o.Rate); err != nil {
		return nil, first, err
	}
	if err := n.fleet.together(1); err != nil {
		return nil, first, err
	}
	if err := n.fleet.subscribe(subscriberClient, b.secret(subscriberClient), n.everything()); err != nil {
		return nil, first, err
	}
	if err := n.fleet.connected(ctx, c.o.Devices+1, time.Minute); err != nil {
		return nil, first, err
	}
	if figures[stageOne], err = c.measure(ctx, n, stageOne, c.o.Rate); err != nil {
		return nil, first, err
	}
	if s := figures[stageOne]; s.Delivered < 0.99*s.Stored {
		c.r.Notes = append(c.r.Notes, fmt.Sprintf("Round %d, %s: the subscriber got %.0f of %.0f values/s; the rest was dropped.", round, b.name, s.Delivered, s.Stored))
	}
	if err := n.fleet.unsubscribe(); err != nil {
		return nil, first, err
	}
	if figures[stageClosed], err = c.measure(ctx, n, stageClosed, 0); err != nil {
		return nil, first, err
	}
	_, err = c.finish(ctx, n, fmt.Sprintf("baseline, round %d", round))
	return figures, first, err
}

// sync alternates fsync on and off and looks for the highest rate each holds.
func (c *comparing) sync(ctx context.Context) error {
	held := map[bool]rounds{}
	var ratios, written rounds
	for round := range c.o.Rounds {
		pair := map[bool]float64{}
		for turn := range 2 {
			off := (round+turn)%2 == 1
			rate, bytes, err := c.highest(ctx, off, round+1)
			if err != nil {
				return err
			}
			pair[off] = rate
			held[off] = append(held[off], rate)
			if off {
				written = append(written, bytes)
			}
		}
		ratios = append(ratios, pair[false]/max(pair[true], 1))
	}
	c.target("syncWrites on against off, highest rate held", "≥ 0.9", fmt.Sprintf("%.2f (%s); %.0f/s on, %.0f/s off", ratios.median(), ratios, held[false].median(), held[true].median()),
		ratios.median() >= 0.9, "the generator shares the cores")
	c.target(fmt.Sprintf("bytes written per value at %.0f/s, fsync off (process)", c.o.Rate), "≤ 12", fmt.Sprintf("%.1f (%s)", written.median(), written), written.median() <= 12, "")
	return nil
}

// highest measures the paced rate's bytes and then finds the highest rate of which 99 % is stored, to 2 %.
func (c *comparing) highest(ctx context.Context, off bool, round int) (rate, written float64, err error) {
	b, err := c.fresh(ctx, off)
	if err != nil {
		return 0, 0, err
	}
	defer b.abandon()
	n, _, err := c.ready(ctx, b, c.o.Rate)
	if err != nil {
		return 0, 0, err
	}
	defer n.close()
	paced, err := c.measure(ctx, n, stagePaced, c.o.Rate)
	if err != nil {
		return 0, 0, err
	}
	closed, err := c.measure(ctx, n, stageClosed, 0)
	if err != nil {
		return 0, 0, err
	}
	low, high := 0.0, closed.Stored*1.2
	for trial := closed.Stored * 0.8; high-low > 0.02*closed.Stored; trial = (low + high) / 2 {
		if _, err := n.fleet.drain(ctx, time.Minute); err != nil {
			return 0, 0, err
		}
		s, err := n.stage(ctx, fmt.Sprintf("trial %.0f/s", trial), trial, time.Second, c.o.Stretch/2)
		if err != nil {
			return 0, 0, err
		}
		if s.Stored >= 0.99*trial && s.Refused == 0 && s.Disconnects == 0 {
			low = trial
		} else {
			high = trial
		}
	}
	_, err = c.finish(ctx, n, fmt.Sprintf("%s, round %d", b.name, round))
	return low, paced.Written, err
}

// reader alternates ingest alone and with an hour being read beside it.
func (c *comparing) reader(ctx context.Context) error {
	b, err := c.fresh(ctx, false)
	if err != nil {
		return err
	}
	defer b.abandon()
	beside, err := newReader(ctx, b)
	if err != nil {
		return err
	}
	rate := c.o.Rate / 2
	n, _, err := c.ready(ctx, b, rate)
	if err != nil {
		return err
	}
	defer n.close()
	var p50, p99, ratios rounds
	short := 0
	for range c.o.Rounds {
		alone, err := c.measure(ctx, n, "paced, nobody reads", rate)
		if err != nil {
			return err
		}
		stop := beside.begin(ctx)
		both, err := c.measure(ctx, n, "paced, an hour read beside", rate)
		read := stop()
		if err = errors.Join(err, read.fault); err != nil {
			return err
		}
		p50, p99 = append(p50, milliseconds(read.took, 50)), append(p99, milliseconds(read.took, 99))
		ratios = append(ratios, both.AckP99/max(alone.AckP99, 0.001))
		short += read.short
	}
	label := fmt.Sprintf("raw hour of one topic (3,600 values) by the API at %.0f/s", rate)
	why := ""
	if short > 0 {
		why = fmt.Sprintf("%d answers did not hold all 3,600 values", short)
	}
	c.target(label+", p50", "≤ 5 ms", fmt.Sprintf("%.2f ms (%s)", p50.median(), p50), p50.median() <= 5 && short == 0, why)
	c.target(label+", p99", "≤ 5 ms", fmt.Sprintf("%.2f ms (%s)", p99.median(), p99), p99.median() <= 5 && short == 0, why)
	c.target("ingest p99 with the reader against without", "≤ 1.5 ×", fmt.Sprintf("%.2f × (%s)", ratios.median(), ratios), ratios.median() <= 1.5, "")
	_, err = c.finish(ctx, n, "reader")
	return err
}

// restart kills the box at the paced rate and waits for ready.
func (c *comparing) restart(ctx context.Context) error {
	b, err := c.fresh(ctx, false)
	if err != nil {
		return err
	}
	defer b.abandon()
	n, _, err := c.ready(ctx, b, c.o.Rate)
	if err != nil {
		return err
	}
	defer n.close()
	var ready, back rounds
	for range c.o.Rounds {
		if err := n.sleep(ctx, "before the kill", 2*c.o.Stretch); err != nil {
			return err
		}
		b.process.kill()
		at := time.Now()
		if err := b.start(ctx); err != nil {
			return err
		}
		ready = append(ready, b.process.ready.Seconds())
		if err := n.fleet.connected(ctx, c.o.Devices, time.Minute); err != nil {
			return err
		}
		back = append(back, time.Since(at).Seconds())
	}
	worst := slices.Max(ready)
	c.target(fmt.Sprintf("restart after kill -9 at %.0f/s, ready, slowest", c.o.Rate), "≤ 3 s", fmt.Sprintf("%.2f s (%s)", worst, ready), worst <= 3, "")
	c.r.Notes = append(c.r.Notes, fmt.Sprintf("After kill -9 at %.0f/s all %d devices were back %.1f s after the kill (median; connections are begun at %d per second).",
		c.o.Rate, c.o.Devices, back.median(), n.o.ConnectRate))
	_, err = c.finish(ctx, n, "restart")
	return err
}

// hold watches memory and disk over a long paced stretch.
func (c *comparing) hold(ctx context.Context) error {
	b, err := c.fresh(ctx, false)
	if err != nil {
		return err
	}
	defer b.abandon()
	n, _, err := c.ready(ctx, b, c.o.Rate)
	if err != nil {
		return err
	}
	defer n.close()
	s, err := n.stage(ctx, "hold", c.o.Rate, time.Second, c.o.Hold)
	if err != nil {
		return err
	}
	c.r.Stages = append(c.r.Stages, s)
	k, err := c.finish(ctx, n, "hold")
	if err != nil {
		return err
	}
	blocks, length := onDisk(filepath.Join(b.dir, "historian"))
	c.target(fmt.Sprintf("resident memory, %d connections, %d topics, %.0f/s, %s", c.o.Devices, c.o.Devices*c.o.Tags, c.o.Rate, c.o.Hold), "≤ 250 MB", fmt.Sprintf("%.0f MB", s.PeakMB), s.PeakMB <= 250, "")
	c.target("its growth over the second half", "flat: ≤ 2 MB/min", fmt.Sprintf("%.1f MB/min", s.GrowthMB), s.GrowthMB <= 2, "")
	c.target("bytes at rest per value, mixed plant data", "≤ 1.0", fmt.Sprintf("%.2f in blocks, %.2f by length, %d values", float64(blocks)/float64(max(k.Stored, 1)), float64(length)/float64(max(k.Stored, 1)), k.Stored),
		float64(blocks) <= float64(k.Stored), "the historian's whole folder after a stop in order")
	return nil
}
