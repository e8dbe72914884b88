package perf

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// IdleOptions describe the run that finds what a connection costs that does nothing.
type IdleOptions struct {
	LoadOptions
	Clients int           `name:"clients" default:"5000" help:"Connections, each signed in with one subscription."`
	Settle  time.Duration `name:"settle" default:"5s" help:"How long the box is left alone before its memory is read."`
	NoTLS   bool          `name:"no-tls" help:"Leave out the connections over TLS."`
}

// DefaultIdleOptions are 5,000 connections.
func DefaultIdleOptions() IdleOptions {
	return IdleOptions{LoadOptions: defaultLoadOptions(), Clients: 5000, Settle: 5 * time.Second}
}

// Validate reports every fault.
func (o *IdleOptions) Validate() error {
	var faults []error
	if o.Clients < 1 || o.Clients > 5000 {
		faults = append(faults, fmt.Errorf("perf.clients: %d is outside 1 to 5000, the connections of a box by default", o.Clients))
	}
	faults = positive(faults, "settle", o.Settle)
	return errors.Join(faults...)
}

// Idle measures the resident memory of idle connections. The report is saved unless an error is returned; progress may be
// nil.
func Idle(ctx context.Context, o IdleOptions, progress io.Writer) (Report, error) {
	if err := o.Validate(); err != nil {
		return Report{}, err
	}
	return measureFigure(o.LoadOptions, "Idle connections", "idle", progress, func(f *figure) error {
		f.r.Setup = []string{fmt.Sprintf("%d connections, each signed in with its own secret, with one subscription at QoS 1 and no keep-alive.", o.Clients),
			"Resident memory of the process before and after, each time after a rest; the box is started anew before each row, so that what enrolment and the row before left behind is not counted as free room.",
			"The kernel's memory for sockets is not the process's and not in it."}
		return o.run(ctx, f)
	})
}

func (o *IdleOptions) run(ctx context.Context, f *figure) error {
	b, err := f.fresh(ctx, boxOptions{tls: !o.NoTLS})
	if err != nil {
		return err
	}
	defer b.abandon()
	if err := enrolCrowd(ctx, b, o.Clients); err != nil {
		return err
	}
	table := Table{Title: "Memory", Head: []string{"connections", "before MB", "after MB", "KB each", "of it live heap", "of it stacks", "goroutines each"}}
	for _, k := range []struct {
		name    string
		version byte
		tls     bool
	}{{"MQTT 5, TCP", version5, false}, {"MQTT 3.1.1, TCP", version311, false}, {"MQTT 5, TLS 1.3", version5, true}} {
		if k.tls && o.NoTLS {
			continue
		}
		b.process.kill()
		if err := b.start(ctx); err != nil {
			return err
		}
		if err := pause(ctx, o.Settle); err != nil {
			return err
		}
		before, err := inside(ctx, b)
		if err != nil {
			return err
		}
		c := &crowd{box: b, version: k.version, tls: k.tls}
		err = c.gather(ctx, o.Clients, 800, time.Minute)
		if err == nil {
			err = pause(ctx, o.Settle)
		}
		var after insideOf
		if err == nil {
			after, err = inside(ctx, b)
		}
		if err == nil {
			if lost := c.alive(); lost > 0 {
				err = fmt.Errorf("perf: %d of %d idle connections are gone", lost, o.Clients)
			}
		}
		c.vanish()
		if err != nil {
			return err
		}
		each := func(later, earlier float64) float64 { return (later - earlier) / float64(o.Clients) }
		kb := each(after.resident, before.resident) / 1000
		table.Rows = append(table.Rows, []string{k.name, fmt.Sprintf("%.1f", before.resident/1e6), fmt.Sprintf("%.1f", after.resident/1e6), fmt.Sprintf("%.1f", kb),
			fmt.Sprintf("%.1f", each(after.heap, before.heap)/1000), fmt.Sprintf("%.1f", each(after.stacks, before.stacks)/1000), fmt.Sprintf("%.2f", each(after.goroutines, before.goroutines))})
		say(f.progress, "%s: %.1f KB resident per idle connection", k.name, kb)
		want, met := "≤ 40 KB", kb <= 40
		if k.tls {
			want, met = "shown", true
		}
		f.target(fmt.Sprintf("resident per idle connection, %s, %d of them", k.name, o.Clients), want, fmt.Sprintf("%.1f KB", kb), met, "")
	}
	f.r.Tables = append(f.r.Tables, table)
	return b.stop()
}

// insideOf is a process's memory, in bytes, by its own account where it gives one.
type insideOf struct{ resident, heap, stacks, goroutines float64 }

func inside(ctx context.Context, b *box) (m insideOf, err error) {
	r, err := b.meter.read(ctx)
	if err != nil {
		return m, err
	}
	m.resident = float64(r.resident)
	text, err := b.api.do(ctx, "GET", "/metrics", "", nil)
	if err != nil {
		return m, err
	}
	m.heap, _ = b.api.metric(text, "go_memstats_heap_inuse_bytes")
	m.stacks, _ = b.api.metric(text, "go_memstats_stack_inuse_bytes")
	m.goroutines, _ = b.api.metric(text, "go_goroutines")
	return m, nil
}
