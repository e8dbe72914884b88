package perf

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"
)

// RetainedOptions describe the run in which a new subscriber gets the last value of very many topics.
type RetainedOptions struct {
	LoadOptions
	Topics  int           `name:"topics" default:"50000" help:"Topics with a last value."`
	Window  uint16        `name:"window" default:"100" help:"Receive Maximum of the reader."`
	Devices int           `name:"devices" default:"1000" help:"Device connections of the load beside."`
	Rate    float64       `name:"rate" default:"10000" help:"Values per second beside, over all devices, to other topics."`
	Rounds  int           `name:"rounds" default:"5" help:"Rounds; the load alone and the load with a reader take turns."`
	Stretch time.Duration `name:"seconds" default:"4s" help:"Length of a measured stretch."`
}

// DefaultRetainedOptions are 50,000 topics, a window of 100, and 10,000 values/s beside.
func DefaultRetainedOptions() RetainedOptions {
	return RetainedOptions{LoadOptions: defaultLoadOptions(), Topics: 50000, Window: 100, Devices: 1000, Rate: 10000, Rounds: 5, Stretch: 4 * time.Second}
}

// Validate reports every fault.
func (o *RetainedOptions) Validate() error {
	fleet := o.fleet(o.Devices)
	faults := []error{fleet.Validate()}
	if o.Topics < 1 || o.Topics > 1000000 {
		faults = append(faults, fmt.Errorf("perf.topics: %d is outside 1 to 1000000", o.Topics))
	}
	if o.Window < 1 {
		faults = append(faults, fmt.Errorf("perf.window: %d is below 1", o.Window))
	}
	if o.Rate < 1 {
		faults = append(faults, fmt.Errorf("perf.rate: %g is below 1", o.Rate))
	}
	if o.Rounds < 1 || o.Rounds > 100 {
		faults = append(faults, fmt.Errorf("perf.rounds: %d is outside 1 to 100", o.Rounds))
	}
	faults = positive(faults, "seconds", o.Stretch)
	return errors.Join(faults...)
}

const (
	retainedWriter  = "perf-retained"
	retainedWriters = 8 // connections that write the topics
)

// retainedPath is topic i below its workspace.
func retainedPath(i int) string { return fmt.Sprintf("retained/r%02d/v%06d", i%100, i) }

// Retained measures how a reader gets the last value of every topic. The report is saved unless an error is returned;
// progress may be nil.
func Retained(ctx context.Context, o RetainedOptions, progress io.Writer) (Report, error) {
	if err := o.Validate(); err != nil {
		return Report{}, err
	}
	return measureFigure(o.LoadOptions, "Retained values", "retained", progress, func(f *figure) error {
		f.r.Setup = append(setupOf(o.fleet(o.Devices), false),
			fmt.Sprintf("%d topics with one value each, beside the devices' own; a reader with Receive Maximum %d subscribes to all of them at QoS 1 with a clean session and acknowledges each delivery.", o.Topics, o.Window),
			"Every topic must come once, retained, with the value that was published to it.")
		return o.run(ctx, f)
	})
}

func (o *RetainedOptions) run(ctx context.Context, f *figure) error {
	b, err := f.fresh(ctx, boxOptions{})
	if err != nil {
		return err
	}
	defer b.abandon()
	if err := o.fill(ctx, b); err != nil {
		return err
	}
	say(f.progress, "%d topics written", o.Topics)
	var quiet, beside, memory, cpu, ratios rounds
	var wrong gotten
	for range o.Rounds {
		if err := pause(ctx, min(time.Second, o.Stretch)); err != nil {
			return err
		}
		stop, err := watch(ctx, b.meter)
		if err != nil {
			return err
		}
		before, err := b.meter.read(ctx)
		if err != nil {
			return err
		}
		g, err := o.read(ctx, b)
		u, uerr := stop()
		if err := errors.Join(err, uerr); err != nil {
			return err
		}
		wrong.add(g)
		quiet, cpu = append(quiet, g.took.Seconds()), append(cpu, u.CPU*1e6/float64(o.Topics))
		memory = append(memory, float64(u.Peak-before.resident)/1e6)
		say(f.progress, "%d retained values in %.2f s, %d missing", o.Topics, g.took.Seconds(), g.missing)
	}
	n, err := openBench(ctx, b, o.fleet(o.Devices), f.progress)
	if err != nil {
		return err
	}
	defer n.close()
	if _, err := n.firstContacts(ctx); err != nil {
		return err
	}
	var p99 [2]rounds
	for round := range o.Rounds {
		var pair [2]float64
		for turn := range 2 {
			with := (round + turn) % 2
			stop := func() error { return nil }
			name := "paced, nobody reads"
			if with == 1 {
				name = "paced, retained values read beside"
				stop = o.again(ctx, b, &beside, &wrong)
			}
			s, err := n.stage(ctx, name, o.Rate, min(time.Second, o.Stretch), o.Stretch)
			if err = errors.Join(err, stop()); err != nil {
				return err
			}
			f.r.Stages = append(f.r.Stages, s)
			pair[with] = s.AckP99
			p99[with] = append(p99[with], s.AckP99)
		}
		ratios = append(ratios, pair[1]/max(pair[0], 0.001))
	}
	f.target(fmt.Sprintf("%d retained values to one reader, lost, doubled or different", o.Topics), "0",
		fmt.Sprintf("%d, %d, %d in %d readings", wrong.missing, wrong.doubled, wrong.different, wrong.times), wrong.missing+wrong.doubled+wrong.different == 0, "")
	f.note("Nothing beside: %.2f s (%s), %.1f µs of server CPU a value, resident memory %.1f MB above what it was before (%s), at most.", quiet.median(), quiet, cpu.median(), memory.median(), memory)
	f.note("Beside %.0f values/s: %.2f s (median of %d readings, one after the other).", o.Rate, beside.median(), len(beside))
	low, high := ratios.quartiles()
	f.note("Ingest p99 with the reader against without: %.2f × (middle half %.2f to %.2f; %s); %.2f ms against %.2f ms. The reader asks without pause and shares the cores.",
		ratios.median(), low, high, ratios, p99[1].median(), p99[0].median())
	if _, _, err := n.finish(ctx, "retained", time.Minute); err != nil {
		return err
	}
	return b.stop()
}

// fill gives every topic its value: the topic's number.
func (o *RetainedOptions) fill(ctx context.Context, b *box) error {
	fleet := DefaultFleetOptions()
	var list []identity
	name := func(w int) string { return fmt.Sprintf("%s%d", retainedWriter, w) }
	for w := range retainedWriters {
		list = append(list, identity{ID: name(w), Secret: b.secrets(name(w)), Workspace: fleet.Workspace, Grants: []grant{allow("retained/#", "publish", "subscribe")}})
	}
	if err := b.api.addClients(ctx, list); err != nil {
		return err
	}
	errs := make(chan error, retainedWriters)
	var wg sync.WaitGroup
	for w := range retainedWriters {
		wg.Go(func() {
			l, err := dialLink(ctx, b.mqtt, name(w), b.secrets(name(w)), time.Minute)
			if err != nil {
				errs <- err
				return
			}
			defer l.close()
			for i := w; i < o.Topics && err == nil; i += retainedWriters {
				err = l.publish(fmt.Sprintf("%s/%s/_ingress/%s/%s", fleet.Namespace, fleet.Workspace, name(w), retainedPath(i)), fmt.Appendf(nil, `{"value":%d}`, i))
			}
			if err == nil {
				err = l.settle()
			}
			errs <- err
		})
	}
	wg.Wait()
	close(errs)
	var all []error
	for err := range errs {
		all = append(all, err)
	}
	return errors.Join(all...)
}

// gotten is what one reading brought.
type gotten struct {
	took                               time.Duration
	missing, doubled, different, times int
}

func (g *gotten) add(o gotten) {
	g.missing, g.doubled, g.different, g.times = g.missing+o.missing, g.doubled+o.doubled, g.different+o.different, g.times+1
}

// read subscribes anew and takes values until every topic was seen or nothing has come for ten seconds.
func (o *RetainedOptions) read(ctx context.Context, b *box) (g gotten, err error) {
	name := retainedWriter + "0"
	l, err := openLink(ctx, linkOptions{address: b.mqtt, client: name, secret: b.secrets(name), limit: 10 * time.Second, version: o.Version, window: o.Window})
	if err != nil {
		return g, err
	}
	defer l.close()
	seen := make([]bool, o.Topics)
	left := o.Topics
	take := func(d delivery) error {
		i, err := strconv.Atoi(string(d.topic[bytes.LastIndexByte(d.topic, 'v')+1:]))
		if err != nil || i < 0 || i >= o.Topics {
			return fmt.Errorf("perf: a delivery on %s", d.topic)
		}
		if seen[i] {
			g.doubled++
			return nil
		}
		seen[i] = true
		left--
		_, rest, ok := bytes.Cut(d.payload, fmt.Appendf(nil, `"value":%d`, i))
		if !d.retained || !ok || len(rest) == 0 || rest[0] != ',' && rest[0] != '}' {
			g.different++
		}
		return nil
	}
	fleet := DefaultFleetOptions()
	begun := time.Now()
	if err := l.subscribe(1, take, fleet.Namespace+"/"+fleet.Workspace+"/retained/#"); err != nil {
		return g, err
	}
	for left > 0 && ctx.Err() == nil {
		if err := l.receive(take); err != nil {
			g.missing = left
			return g, fmt.Errorf("perf: %d of %d retained values came; then: %w", o.Topics-left, o.Topics, err)
		}
	}
	g.took = time.Since(begun)
	return g, ctx.Err()
}

// again reads without pause until stop, which waits for the reading in hand.
func (o *RetainedOptions) again(ctx context.Context, b *box, took *rounds, wrong *gotten) (stop func() error) {
	quit := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		for {
			g, err := o.read(ctx, b)
			if err != nil {
				ended <- err
				return
			}
			wrong.add(g)
			*took = append(*took, g.took.Seconds())
			select {
			case <-quit:
				ended <- nil
				return
			default:
			}
		}
	}()
	return func() error {
		close(quit)
		return <-ended
	}
}
