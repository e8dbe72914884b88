package perf

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"time"
)

// CrashOptions describes a crash run: a box of its own is killed under load again and again.
type CrashOptions struct {
	LoadOptions
	Devices int           `name:"devices" default:"200" help:"Device connections."`
	Rate    float64       `name:"rate" default:"5000" help:"Values per second over all devices; 0 = closed loop."`
	Kills   int           `name:"kills" default:"25" help:"How often the box is killed (SIGKILL)."`
	Least   time.Duration `name:"least" default:"1s" help:"Shortest time under load before a kill."`
	Most    time.Duration `name:"most" default:"4s" help:"Longest time under load before a kill."`
	Drain   time.Duration `name:"drain" default:"60s" help:"How long to wait for the last acknowledgements."`
	NoSync  bool          `name:"no-sync" help:"Acknowledge before fsync; the run then reports the tail lost and allows 100 ms of it."`
}

// DefaultCrashOptions is 25 kills, 1 to 4 s apart.
func DefaultCrashOptions() CrashOptions {
	return CrashOptions{LoadOptions: defaultLoadOptions(), Devices: 200, Rate: 5000, Kills: 25, Least: time.Second, Most: 4 * time.Second, Drain: time.Minute}
}

// Validate reports every fault.
func (o *CrashOptions) Validate() error {
	fleet := o.fleet(o.Devices)
	faults := []error{fleet.Validate()}
	if o.Kills < 1 || o.Kills > 10000 {
		faults = append(faults, fmt.Errorf("perf.kills: %d is outside 1 to 10000", o.Kills))
	}
	if o.Rate < 0 {
		faults = append(faults, fmt.Errorf("perf.rate: %g is below 0", o.Rate))
	}
	faults = positive(faults, "least", o.Least)
	faults = positive(faults, "drain", o.Drain)
	if o.Most < o.Least {
		faults = append(faults, fmt.Errorf("perf.most: %s is below least, %s", o.Most, o.Least))
	}
	return errors.Join(faults...)
}

// declaredTail is how much a box without fsync may lose.
const declaredTail = 100 * time.Millisecond

// kill is one kill and what came of it.
type kill struct {
	at     int64 // ns
	after  time.Duration
	ready  time.Duration
	back   time.Duration // until nine in ten devices were back
	recent []acknowledgement
	lost   int
	tail   time.Duration // age of the oldest value lost
}

// Crash kills a box under load, restarts it on the same data and compares everything acknowledged with
// history. The report is saved unless an error is returned; progress may be nil.
func Crash(ctx context.Context, o CrashOptions, progress io.Writer) (Report, error) {
	r := Report{Title: "kill -9 under load", Command: o.command(), Started: time.Now()}
	if err := o.Validate(); err != nil {
		return r, err
	}
	scrap, clean, err := o.scrapDir()
	if err != nil {
		return r, err
	}
	defer clean()
	r.Machine = machineOf(scrap)
	b, err := startBox(ctx, "box", boxOptions{binary: o.Binary, scrap: scrap, noSync: o.NoSync})
	if err != nil {
		return r, err
	}
	defer b.abandon()
	fleet := o.fleet(o.Devices)
	fleet.Serial, fleet.Recall = true, true
	r.Setup = append(setupOf(fleet, o.NoSync)[:1],
		"Every topic counts 0, 1, 2 …, so that each value is unlike every other.",
		fmt.Sprintf("%d kills (SIGKILL) after %s to %s under load at %.0f values/s; the box restarts on the same data, the devices reconnect and go on from their first unacknowledged value.", o.Kills, o.Least, o.Most, o.Rate),
		setupOf(fleet, o.NoSync)[3], setupOf(fleet, o.NoSync)[4])
	kills, n, err := o.run(ctx, b, fleet, progress)
	if n != nil {
		defer n.close()
	}
	if err != nil {
		return r, err
	}
	c, back, err := n.finish(ctx, fmt.Sprintf("%d kills", len(kills)), o.Drain)
	if err != nil {
		return r, err
	}
	attribute(kills, back.lost)
	if o.NoSync {
		for _, k := range kills {
			if k.tail <= declaredTail {
				c.Excused += k.lost
			}
		}
	}
	r.Comparisons = append(r.Comparisons, c)
	o.tell(&r, kills, c)
	if err := b.stop(); err != nil {
		return r, err
	}
	r.Seconds = time.Since(r.Started).Seconds()
	return r, o.save(&r, "crash", progress)
}

func (o *CrashOptions) run(ctx context.Context, b *box, fleet FleetOptions, progress io.Writer) ([]*kill, *bench, error) {
	n, err := openBench(ctx, b, fleet, progress)
	if err != nil {
		return nil, nil, err
	}
	m := modePaced
	if o.Rate == 0 {
		m = modeClosed
	}
	if err := n.fleet.set(m, o.Rate); err != nil {
		return nil, n, err
	}
	chance := rand.New(rand.NewPCG(o.Seed, 9))
	var kills []*kill
	for i := range o.Kills {
		k := &kill{after: o.Least + time.Duration(chance.Int64N(int64(o.Most-o.Least)+1))}
		if err := n.sleep(ctx, "under load", k.after); err != nil {
			return kills, n, err
		}
		k.at = now()
		b.process.kill()
		if k.recent, err = n.fleet.recall(); err != nil {
			return kills, n, err
		}
		if err := b.start(ctx); err != nil {
			return kills, n, fmt.Errorf("perf: restart after kill %d: %w", i+1, err)
		}
		k.ready = b.process.ready
		if err := n.fleet.connected(ctx, fleet.Devices*9/10, time.Minute); err != nil {
			return kills, n, fmt.Errorf("perf: after kill %d: %w", i+1, err)
		}
		k.back = time.Duration(now() - k.at)
		kills = append(kills, k)
		say(progress, "kill %d of %d after %.1fs: ready in %.2fs, devices back in %.2fs", i+1, o.Kills, k.after.Seconds(), k.ready.Seconds(), k.back.Seconds())
	}
	return kills, n, n.fleet.connected(ctx, fleet.Devices, time.Minute)
}

// attribute gives every lost value to the kill it was acknowledged before.
func attribute(kills []*kill, lost map[*track][]uint32) {
	if len(lost) == 0 {
		return
	}
	for _, k := range kills {
		for _, a := range k.recent {
			if slices.Contains(lost[a.track], a.value) {
				k.lost++
				k.tail = max(k.tail, time.Duration(k.at-a.at))
			}
		}
	}
}

// tell writes the kills into the report.
func (o *CrashOptions) tell(r *Report, kills []*kill, c Comparison) {
	t := Table{Title: "Kills", Head: []string{"kill", "after s", "ready s", "devices back s", "values lost", "tail lost ms"}}
	slowest, tail, named := time.Duration(0), time.Duration(0), 0
	for i, k := range kills {
		slowest, tail, named = max(slowest, k.ready), max(tail, k.tail), named+k.lost
		t.Rows = append(t.Rows, []string{fmt.Sprint(i + 1), fmt.Sprintf("%.2f", k.after.Seconds()), fmt.Sprintf("%.2f", k.ready.Seconds()),
			fmt.Sprintf("%.2f", k.back.Seconds()), fmt.Sprint(k.lost), fmt.Sprintf("%.1f", float64(k.tail.Microseconds())/1000)})
	}
	r.Tables = append(r.Tables, t)
	want := "0 lost, 0 doubled"
	if o.NoSync {
		want = "a tail of at most 100 ms, 0 doubled"
	}
	r.Targets = append(r.Targets,
		Target{Figure: fmt.Sprintf("acknowledged values after %d kills", len(kills)), Want: want,
			Got: fmt.Sprintf("%d lost, %d doubled, %d different of %d", c.Lost, c.Doubled, c.Different, c.Acked), Met: r.Lost() == 0},
		Target{Figure: "ready after kill -9, slowest", Want: "≤ 3 s", Got: fmt.Sprintf("%.2f s", slowest.Seconds()), Met: slowest <= 3*time.Second})
	r.Notes = append(r.Notes, fmt.Sprintf("%d values were stored although their acknowledgement did not reach the device before the kill; the driver sent those again on a new session and they are counted apart.", c.Unasked))
	if c.Lost > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("Tail lost: %d values in all, %d of them acknowledged within the last second before a kill, the oldest %.1f ms before it.",
			c.Lost, named, float64(tail.Microseconds())/1000))
	}
}
