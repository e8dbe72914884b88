package perf

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// StalledOptions describe the run beside a subscriber that takes nothing.
type StalledOptions struct {
	LoadOptions
	Devices int           `name:"devices" default:"1000" help:"Device connections."`
	Rate    float64       `name:"rate" default:"10000" help:"Values per second over all devices."`
	QoS     byte          `name:"qos" default:"0" help:"QoS of the stalled subscription, 0 or 1."`
	Rounds  int           `name:"rounds" default:"24" help:"Rounds; with and without the subscriber take turns."`
	Stretch time.Duration `name:"seconds" default:"1s" help:"Length of a measured stretch."`
}

// DefaultStalledOptions are 10,000 values/s and 24 short rounds.
func DefaultStalledOptions() StalledOptions {
	return StalledOptions{LoadOptions: defaultLoadOptions(), Devices: 1000, Rate: 10000, Rounds: 24, Stretch: time.Second}
}

// Validate reports every fault.
func (o *StalledOptions) Validate() error {
	fleet := o.fleet(o.Devices)
	faults := []error{fleet.Validate()}
	if o.Rate < 1 {
		faults = append(faults, fmt.Errorf("perf.rate: %g is below 1", o.Rate))
	}
	if o.QoS > 1 {
		faults = append(faults, fmt.Errorf("perf.qos: %d is neither 0 nor 1", o.QoS))
	}
	if o.Rounds < 1 || o.Rounds > 100 {
		faults = append(faults, fmt.Errorf("perf.rounds: %d is outside 1 to 100", o.Rounds))
	}
	faults = positive(faults, "seconds", o.Stretch)
	return errors.Join(faults...)
}

// Stalled measures what a subscriber that never reads costs those who publish. The report is saved unless an error is
// returned; progress may be nil.
func Stalled(ctx context.Context, o StalledOptions, progress io.Writer) (Report, error) {
	if err := o.Validate(); err != nil {
		return Report{}, err
	}
	return measureFigure(o.LoadOptions, "A stalled subscriber", "stalled", progress, func(f *figure) error {
		f.r.Setup = append(setupOf(o.fleet(o.Devices), false),
			fmt.Sprintf("The subscriber asks for # at QoS %d, with a receive buffer of 4 KiB and no keep-alive, and reads nothing after its SUBACK. Its stretch begins when the box drops the first message for it (after three stretches' time at the latest); it goes after it.", o.QoS),
			"One box; stretches with and without it alternate and swap who goes first.")
		return o.run(ctx, f)
	})
}

func (o *StalledOptions) run(ctx context.Context, f *figure) error {
	b, err := f.fresh(ctx, boxOptions{})
	if err != nil {
		return err
	}
	defer b.abandon()
	n, err := openBench(ctx, b, o.fleet(o.Devices), f.progress)
	if err != nil {
		return err
	}
	defer n.close()
	if _, err := n.firstContacts(ctx); err != nil {
		return err
	}
	if _, err := n.stage(ctx, "warm-up", o.Rate, 0, o.Stretch); err != nil {
		return err
	}
	var p99, p50, cpu, ratios, costs rounds
	var without99, without50, withoutCPU rounds
	dropped := 0.0
	for round := range o.Rounds {
		var pair [2]Stage
		for turn := range 2 {
			with := (round + turn) % 2
			s, lost, err := o.stretch(ctx, b, n, with == 1)
			if err != nil {
				return err
			}
			f.r.Stages = append(f.r.Stages, s)
			pair[with], dropped = s, dropped+lost
		}
		without99, p99 = append(without99, pair[0].AckP99), append(p99, pair[1].AckP99)
		without50, p50 = append(without50, pair[0].AckP50), append(p50, pair[1].AckP50)
		withoutCPU, cpu = append(withoutCPU, pair[0].CPU), append(cpu, pair[1].CPU)
		ratios = append(ratios, pair[1].AckP99/max(pair[0].AckP99, 0.001))
		costs = append(costs, pair[1].CPU/max(pair[0].CPU, 0.001))
	}
	low, high := ratios.quartiles()
	least, most := ratios.medianWithin()
	quietLow, quietHigh := without99.quartiles()
	why := fmt.Sprintf("without it stretches differ among themselves: middle half %.2f to %.2f ms", quietLow, quietHigh)
	if least < 1.05 && most >= 1.05 {
		why = "not decided: the machine is too noisy for these rounds; " + why
	}
	f.target(fmt.Sprintf("ingest p99 at %.0f/s with a stalled subscriber to # against without", o.Rate), "< 1.05 ×",
		fmt.Sprintf("%.2f ×, median of %d pairs (95 %% sure: %.2f to %.2f; middle half %.2f to %.2f); medians %.2f ms against %.2f ms", ratios.median(), len(ratios), least, most, low, high,
			p99.median(), without99.median()), most < 1.05, why)
	f.note("p50: %.2f ms against %.2f ms. Server CPU a value: %.1f µs against %.1f µs (pairs %.2f ×).", p50.median(), without50.median(), cpu.median(), withoutCPU.median(), costs.median())
	f.note("%.0f messages were dropped from its queue, counted by the box.", dropped)
	if dropped == 0 {
		f.note("Nothing was dropped: the stretches are too short for it to stall.")
	}
	k, _, err := n.finish(ctx, "stalled", time.Minute)
	if err != nil {
		return err
	}
	f.r.Comparisons = append(f.r.Comparisons, k)
	return b.stop()
}

// stretch measures with or without the subscriber; lost is what the box dropped meanwhile.
func (o *StalledOptions) stretch(ctx context.Context, b *box, n *bench, with bool) (s Stage, lost float64, err error) {
	if !with {
		s, err = n.stage(ctx, "paced, alone", o.Rate, min(time.Second, o.Stretch), o.Stretch)
		return s, 0, err
	}
	before, err := drops(ctx, b)
	if err != nil {
		return s, 0, err
	}
	l, err := openLink(ctx, linkOptions{address: b.mqtt, client: subscriberClient, secret: b.secret(subscriberClient), limit: 10 * time.Second,
		version: o.Version, receive: 4 << 10})
	if err != nil {
		return s, 0, err
	}
	defer l.conn.Close()
	if err := l.subscribe(o.QoS, func(delivery) error { return nil }, "#"); err != nil {
		return s, 0, err
	}
	// First its queue and the sockets' buffers fill; what it costs from then on is the question. The load goes on meanwhile.
	await(ctx, 3*o.Stretch, func() bool {
		now, err := drops(ctx, b)
		return err != nil || now > before
	})
	if s, err = n.stage(ctx, "paced, a stalled subscriber", o.Rate, min(time.Second, o.Stretch), o.Stretch); err != nil {
		return s, 0, err
	}
	after, err := drops(ctx, b)
	return s, after - before, err
}

// drops is how many messages the box has dropped for subscribers so far.
func drops(ctx context.Context, b *box) (float64, error) {
	text, err := b.api.do(ctx, "GET", "/metrics", "", nil)
	if err != nil {
		return 0, err
	}
	sum, _ := b.api.metric(text, "millrace_broker_messages_dropped_total")
	return sum, nil
}
