package perf

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// ReconnectOptions describe the run that kills a box with many clients and has all of them return at once.
type ReconnectOptions struct {
	LoadOptions
	Clients int           `name:"clients" default:"5000" help:"Clients, each with its own secret and one subscription."`
	Rounds  int           `name:"rounds" default:"3" help:"Restarts over TCP; one more goes over TLS."`
	Limit   time.Duration `name:"limit" default:"60s" help:"How long clients try."`
	NoTLS   bool          `name:"no-tls" help:"Leave out the restart over TLS."`
}

// DefaultReconnectOptions are 5,000 clients and three restarts.
func DefaultReconnectOptions() ReconnectOptions {
	return ReconnectOptions{LoadOptions: defaultLoadOptions(), Clients: 5000, Rounds: 3, Limit: time.Minute}
}

// Validate reports every fault.
func (o *ReconnectOptions) Validate() error {
	var faults []error
	if o.Clients < 1 || o.Clients > 5000 {
		faults = append(faults, fmt.Errorf("perf.clients: %d is outside 1 to 5000, the connections of a box by default", o.Clients))
	}
	if o.Rounds < 1 || o.Rounds > 100 {
		faults = append(faults, fmt.Errorf("perf.rounds: %d is outside 1 to 100", o.Rounds))
	}
	faults = positive(faults, "limit", o.Limit)
	return errors.Join(faults...)
}

// Reconnect measures how long a fleet takes to be back after kill -9 and a new start. The report is saved unless an error
// is returned; progress may be nil.
func Reconnect(ctx context.Context, o ReconnectOptions, progress io.Writer) (Report, error) {
	if err := o.Validate(); err != nil {
		return Report{}, err
	}
	return measureFigure(o.LoadOptions, "Everyone returns", "reconnect", progress, func(f *figure) error {
		f.r.Setup = []string{fmt.Sprintf("%d clients, MQTT protocol level %d, clean sessions, each signs in with its own secret and subscribes to one topic.", o.Clients, o.Version),
			"kill -9, start; from the moment the box says ready every client connects at once and tries again 50 ms doubling to 1.6 s after a refusal, until its subscription is granted.",
			"broker.limits.connectRatePerSec as by default: 1,000 a second and listener, what comes faster is refused. Clients share the box's cores."}
		return o.run(ctx, f)
	})
}

func (o *ReconnectOptions) run(ctx context.Context, f *figure) error {
	b, err := f.fresh(ctx, boxOptions{tls: !o.NoTLS})
	if err != nil {
		return err
	}
	defer b.abandon()
	if err := enrolCrowd(ctx, b, o.Clients); err != nil {
		return err
	}
	table := Table{Title: "Restarts", Head: []string{"transport", "ready s", "all in, s after ready", "s after the kill", "refused or failed attempts", "server CPU s"}}
	var back rounds
	c := &crowd{box: b, version: o.Version}
	defer func() { c.vanish() }()
	if err := c.gather(ctx, o.Clients, 800, o.Limit); err != nil {
		return err
	}
	restarts := o.Rounds
	if !o.NoTLS {
		restarts++
	}
	for i := range restarts {
		b.process.kill()
		killed := time.Now()
		c.vanish()
		if err := b.start(ctx); err != nil {
			return err
		}
		ready := time.Now()
		c = &crowd{box: b, version: o.Version, tls: i == o.Rounds}
		first, err := b.meter.read(ctx)
		if err == nil {
			err = c.gather(ctx, o.Clients, 0, o.Limit)
		}
		if err != nil {
			return err
		}
		all := time.Since(ready)
		last, err := b.meter.read(ctx)
		if err != nil {
			return err
		}
		if lost := c.alive(); lost > 0 {
			return fmt.Errorf("perf: %d of %d clients that had signed in are gone", lost, o.Clients)
		}
		name := "TCP"
		if c.tls {
			name = "TLS 1.3"
		} else {
			back = append(back, all.Seconds())
		}
		say(f.progress, "%s: ready %.2f s, %d clients in %.2f s later, %d attempts refused or failed", name, b.process.ready.Seconds(), o.Clients, all.Seconds(), c.faults.Load())
		table.Rows = append(table.Rows, []string{name, fmt.Sprintf("%.2f", b.process.ready.Seconds()), fmt.Sprintf("%.2f", all.Seconds()), fmt.Sprintf("%.2f", time.Since(killed).Seconds()),
			fmt.Sprint(c.faults.Load()), fmt.Sprintf("%.2f", (last.cpu - first.cpu).Seconds())})
	}
	f.r.Tables = append(f.r.Tables, table)
	worst := slices.Max(back)
	f.target(fmt.Sprintf("%d clients signed in and subscribed after a restart, slowest", o.Clients), "≤ 10 s", fmt.Sprintf("%.2f s (%s)", worst, back), worst <= 10, "")
	c.vanish()
	return b.stop()
}
