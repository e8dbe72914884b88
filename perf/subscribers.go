package perf

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// SubscribersOptions describe the fan-out run: many subscribers with a few topics each, against mosquitto.
type SubscribersOptions struct {
	LoadOptions
	Devices     int           `name:"devices" default:"1000" help:"Device connections."`
	Subscribers int           `name:"subscribers" default:"1000" help:"Subscribers."`
	Each        int           `name:"each" default:"10" help:"Topics each of them is subscribed to."`
	Rate        float64       `name:"rate" default:"10000" help:"Values per second over all devices."`
	Rounds      int           `name:"rounds" default:"3" help:"Rounds; box and mosquitto take turns."`
	Stretch     time.Duration `name:"seconds" default:"5s" help:"Length of a measured stretch."`
	Warm        time.Duration `name:"warm" default:"2s" help:"Warm-up of each server, not counted."`
	Mosquitto   string        `name:"mosquitto" help:"Mosquitto to compare with (default: the one in PATH or /usr/sbin)." placeholder:"FILE"`
}

// DefaultSubscribersOptions are 1,000 subscribers of ten topics at 10,000 values/s, three rounds.
func DefaultSubscribersOptions() SubscribersOptions {
	return SubscribersOptions{LoadOptions: defaultLoadOptions(), Devices: 1000, Subscribers: 1000, Each: 10, Rate: 10000, Rounds: 3,
		Stretch: 5 * time.Second, Warm: 2 * time.Second}
}

// Validate reports every fault.
func (o *SubscribersOptions) Validate() error {
	fleet := o.fleet(o.Devices)
	faults := []error{fleet.Validate()}
	if o.Subscribers < 1 || o.Subscribers > 5000 {
		faults = append(faults, fmt.Errorf("perf.subscribers: %d is outside 1 to 5000", o.Subscribers))
	}
	if o.Each < 1 || o.Each > 1000 || o.Each > o.Devices*o.Tags {
		faults = append(faults, fmt.Errorf("perf.each: %d is outside 1 to 1000, or more than the %d topics there are", o.Each, o.Devices*o.Tags))
	}
	if o.Rate < 1 {
		faults = append(faults, fmt.Errorf("perf.rate: %g is below 1", o.Rate))
	}
	if o.Rounds < 1 || o.Rounds > 100 {
		faults = append(faults, fmt.Errorf("perf.rounds: %d is outside 1 to 100", o.Rounds))
	}
	faults = positive(faults, "seconds", o.Stretch)
	faults = positive(faults, "warm", o.Warm)
	return errors.Join(faults...)
}

// fanned is what one server did in one round at one QoS.
type fanned struct {
	rate     float64 // deliveries per second
	each     float64 // server CPU per delivery, µs
	lost     int64   // deliveries due and not received
	beyond   int64   // received and not due
	answerMs float64 // p99 of publish to acknowledgement
}

// Subscribers measures deliveries to many subscribers against mosquitto under the same load. The report is saved unless an
// error is returned; progress may be nil.
func Subscribers(ctx context.Context, o SubscribersOptions, progress io.Writer) (Report, error) {
	if err := o.Validate(); err != nil {
		return Report{}, err
	}
	binary, err := findMosquitto(o.Mosquitto)
	if err != nil {
		return Report{}, err
	}
	o.Mosquitto = binary
	return measureFigure(o.LoadOptions, "Many subscribers", "subscribers", progress, func(f *figure) error {
		f.r.Setup = append(setupOf(o.fleet(o.Devices), false),
			fmt.Sprintf("%d subscribers × %d topics over %d topics, each client signed in as itself; deliveries are acknowledged at QoS 1.", o.Subscribers, o.Each, o.Devices*o.Tags),
			"Generator and server share the machine's cores. One server runs at a time; they take turns and swap who goes first.",
			"Mosquitto: allow_anonymous, persistence off, queue 100,000, window 100, TCP without delay; the same connections, topics, packets and QoS. It checks and stores nothing.",
			"CPU per delivery is all the server's CPU, taking in and storing included, by what subscribers received.")
		return o.run(ctx, f)
	})
}

func (o *SubscribersOptions) run(ctx context.Context, f *figure) error {
	table := Table{Title: "Rounds", Head: []string{"round", "server", "QoS", "deliveries/s", "µs/delivery", "lost", "not due", "ack p99 ms"}}
	each := map[string]map[byte]rounds{"millrace": {}, "mosquitto": {}}
	rate := map[string]map[byte]rounds{"millrace": {}, "mosquitto": {}}
	lost := map[string]int64{}
	for round := range o.Rounds {
		for turn := range 2 {
			b, err := o.server(ctx, f, (round+turn)%2 == 1)
			if err != nil {
				return err
			}
			side, err := o.side(ctx, f, b)
			if err == nil {
				err = b.stop()
			}
			b.abandon()
			if err != nil {
				return err
			}
			for qos := range byte(2) {
				s := side[qos]
				each[b.name][qos] = append(each[b.name][qos], s.each)
				rate[b.name][qos] = append(rate[b.name][qos], s.rate)
				lost[b.name] += s.lost
				table.Rows = append(table.Rows, []string{fmt.Sprint(round + 1), b.name, fmt.Sprint(qos), fmt.Sprintf("%.0f", s.rate), fmt.Sprintf("%.1f", s.each),
					fmt.Sprint(s.lost), fmt.Sprint(s.beyond), ms(s.answerMs)})
			}
		}
	}
	f.r.Tables = append(f.r.Tables, table)
	for qos := range byte(2) {
		var ratios rounds
		for i, own := range each["millrace"][qos] {
			ratios = append(ratios, own/max(each["mosquitto"][qos][i], 0.001))
		}
		f.target(fmt.Sprintf("server CPU per delivery, QoS %d, %d subscribers × %d topics, %.0f values/s, against mosquitto", qos, o.Subscribers, o.Each, o.Rate), "≤ 1.5 ×",
			fmt.Sprintf("%.2f × (%s): %.1f µs against %.1f µs at %.0f and %.0f deliveries/s", ratios.median(), ratios, each["millrace"][qos].median(), each["mosquitto"][qos].median(),
				rate["millrace"][qos].median(), rate["mosquitto"][qos].median()), ratios.median() <= 1.5, "each value is also checked, stored and fsynced before it is delivered; mosquitto does neither")
	}
	f.target("deliveries lost", "0", fmt.Sprintf("%d; mosquitto %d", lost["millrace"], lost["mosquitto"]), lost["millrace"] == 0, "")
	return nil
}

func (o *SubscribersOptions) server(ctx context.Context, f *figure, baseline bool) (*box, error) {
	if !baseline {
		return f.fresh(ctx, boxOptions{})
	}
	f.boxes++
	return startMosquitto(ctx, o.Mosquitto, fmt.Sprintf("mosquitto%d", f.boxes), f.scrap)
}

func subscriberOf(i int) string { return fmt.Sprintf("sub%05d", i) }

// topicsFor are the topics of subscriber i, of many devices; all subscribers together cover the topics evenly. due counts
// the subscribers of each topic.
func (o *SubscribersOptions) topicsFor(n *bench, i int, due []int64) []string {
	list := make([]string, 0, o.Each)
	for k := range o.Each {
		at := (i*o.Each + k) % len(due)
		due[at]++
		d := n.fleet.sessions[at%o.Devices].device
		tag := at / o.Devices
		if n.box.api == nil {
			list = append(list, string(d.topics[tag])) // the baseline delivers where it was published
		} else {
			list = append(list, n.o.Namespace+"/"+n.o.Workspace+"/"+d.tracks[tag].path)
		}
	}
	return list
}

// side measures one server at QoS 0 and then at QoS 1.
func (o *SubscribersOptions) side(ctx context.Context, f *figure, b *box) (figures [2]fanned, err error) {
	if b.api != nil {
		var list []identity
		for i := range o.Subscribers {
			c := subscriberOf(i)
			list = append(list, identity{ID: c, Secret: b.secrets(c), Workspace: DefaultFleetOptions().Workspace, Grants: []grant{allow("#", "subscribe")}})
		}
		if err := b.api.addClients(ctx, list); err != nil {
			return figures, err
		}
	}
	n, err := openBench(ctx, b, o.fleet(o.Devices), f.progress)
	if err != nil {
		return figures, err
	}
	defer n.close()
	if _, err := n.firstContacts(ctx); err != nil {
		return figures, err
	}
	for qos := range byte(2) {
		due := make([]int64, o.Devices*o.Tags)
		lists := make([][]string, o.Subscribers)
		for i := range lists {
			lists[i] = o.topicsFor(n, i, due)
		}
		if err := n.fleet.call(func() {
			for i, list := range lists {
				n.fleet.listen(subscriberOf(i), b.secret(subscriberOf(i)), qos, list...)
			}
		}); err != nil {
			return figures, err
		}
		if err := n.fleet.connected(ctx, o.Devices+o.Subscribers, time.Minute); err != nil {
			return figures, err
		}
		if figures[qos], err = o.fan(ctx, f, n, qos, due); err != nil {
			return figures, err
		}
		if err := n.fleet.unsubscribe(); err != nil {
			return figures, err
		}
	}
	_, _, err = n.finish(ctx, "subscribers", time.Minute)
	return figures, err
}

// fan holds the load and counts what subscribers got against what was published, topic by topic.
func (o *SubscribersOptions) fan(ctx context.Context, f *figure, n *bench, qos byte, due []int64) (fanned, error) {
	missing := func() (left int64, err error) {
		err = n.fleet.call(func() {
			for at, subscribers := range due {
				left += subscribers * int64(n.fleet.sessions[at%o.Devices].device.tracks[at/o.Devices].fresh)
			}
			left -= int64(n.fleet.delivered0 + n.fleet.stats.Delivered)
		})
		return left, err
	}
	before, err := missing()
	if err != nil {
		return fanned{}, err
	}
	if err := n.fleet.set(modePaced, o.Rate); err != nil {
		return fanned{}, err
	}
	if err := n.sleep(ctx, "warm-up", o.Warm); err != nil {
		return fanned{}, err
	}
	s, err := n.stage(ctx, fmt.Sprintf("%d subscribers, QoS %d", o.Subscribers, qos), o.Rate, 0, o.Stretch)
	if err != nil {
		return fanned{}, err
	}
	f.r.Stages = append(f.r.Stages, s)
	if _, err := n.fleet.drain(ctx, time.Minute); err != nil {
		return fanned{}, err
	}
	await(ctx, 10*time.Second, func() bool {
		left, err := missing()
		return err != nil || left <= before
	})
	left, err := missing()
	if err != nil {
		return fanned{}, err
	}
	left -= before
	return fanned{rate: s.Delivered, each: s.Cores * 1e6 / max(s.Delivered, 1), lost: max(left, 0), beyond: max(-left, 0), answerMs: s.AckP99}, nil
}
