package perf

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"
)

// Plant is the simulated plant of `serve --demo`: three lines of machines, each machine a device with an MQTT 5
// connection of its own that publishes at QoS 1 into its inbox.
type Plant struct {
	Address   string // of the MQTT listener, host:port or tcp://host:port
	Workspace string // default main
	Namespace string // default mHv1.0

	// Credentials returns the API client and secret a machine signs in with; an error stops the plant. An
	// empty secret signs in anonymously. Called before each connection, from the machine's goroutine.
	Credentials func(machine string) (client, secret string, err error)

	Every time.Duration // between two values of a tag; default 1 s
	Seed  uint64        // of the values
	Log   *slog.Logger  // nil = silent
}

// plantTag is one tag of a kind of machine.
type plantTag struct {
	name string
	kind kind
}

// plantMachine is one kind of machine; every line has one of each.
type plantMachine struct {
	name string
	tags []plantTag
}

const plantLines = 3

var plantMachines = [...]plantMachine{
	{"press", []plantTag{{"temperature", kindDrift}, {"pressure", kindNoise}, {"strokes", kindEnergy}, {"state", kindState}, {"running", kindRun}}},
	{"oven", []plantTag{{"zone1/temperature", kindDrift}, {"zone2/temperature", kindDrift}, {"power", kindNoise}, {"energy", kindCounter}, {"door_open", kindRun}}},
	{"mixer", []plantTag{{"level", kindDrift}, {"torque", kindNoise}, {"batches", kindCounter}, {"state", kindState}}},
	{"packer", []plantTag{{"speed", kindNoise}, {"parts", kindCounter}, {"rejects", kindCounter}, {"state", kindState}, {"running", kindRun}}},
}

// Machines lists the plant's machines as paths, e.g. line1/press. A machine's client must be allowed to publish
// to `<machine>/#`.
func (p Plant) Machines() []string {
	var all []string
	for line := 1; line <= plantLines; line++ {
		for _, m := range plantMachines {
			all = append(all, fmt.Sprintf("line%d/%s", line, m.name))
		}
	}
	return all
}

// Run drives every machine until ctx ends, reconnecting with back-off, and returns when every machine's
// goroutine has ended. The error is the first of Credentials; a broker that cannot be reached is retried.
func (p Plant) Run(ctx context.Context) error {
	if p.Workspace == "" {
		p.Workspace = "main"
	}
	if p.Namespace == "" {
		p.Namespace = "mHv1.0"
	}
	if p.Every <= 0 {
		p.Every = time.Second
	}
	if p.Log == nil {
		p.Log = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	var once sync.Once
	var failed error
	for i, name := range p.Machines() {
		m := newMachine(&p, i, name)
		wg.Go(func() {
			if err := m.run(ctx); err != nil {
				once.Do(func() { failed = err })
				cancel(err)
			}
		})
	}
	wg.Wait()
	return failed
}

// plantDevice is one machine at work.
type plantDevice struct {
	plant   *Plant
	name    string
	kind    plantMachine
	signals []signal
	chance  *rand.Rand
}

func newMachine(p *Plant, number int, name string) *plantDevice {
	m := &plantDevice{plant: p, name: name, kind: plantMachines[number%len(plantMachines)], chance: rand.New(rand.NewPCG(p.Seed, uint64(number)))}
	for i, t := range m.kind.tags {
		m.signals = append(m.signals, newSignalOf(p.Seed, number, i, t.kind))
	}
	return m
}

const (
	plantBackOffLeast = 200 * time.Millisecond
	plantBackOffMost  = 10 * time.Second
	plantAnswer       = 30 * time.Second // longest wait for the broker
)

// run connects and publishes until ctx ends.
func (m *plantDevice) run(ctx context.Context) error {
	pause := plantBackOffLeast
	for ctx.Err() == nil {
		client, secret, err := m.plant.Credentials(m.name)
		if err != nil {
			return fmt.Errorf("perf: credentials of %s: %w", m.name, err)
		}
		began := time.Now()
		if err := m.session(ctx, client, secret); err != nil && ctx.Err() == nil {
			m.plant.Log.Debug("machine lost its connection", "machine", m.name, "error", err)
		}
		if time.Since(began) > plantBackOffMost {
			pause = plantBackOffLeast
		}
		// Jitter keeps a dozen machines from returning in one instant.
		if !rest(ctx, pause/2+time.Duration(m.chance.Int64N(int64(pause)))) {
			return nil
		}
		pause = min(2*pause, plantBackOffMost)
	}
	return nil
}

// session is one connection: each tag publishes once in Every, at its own moment within it.
func (m *plantDevice) session(ctx context.Context, client, secret string) error {
	l, err := dialLink(ctx, m.plant.Address, client, secret, plantAnswer)
	if err != nil {
		return err
	}
	// A blocked read or write ends when the plant is stopped.
	stop := context.AfterFunc(ctx, func() { _ = l.conn.SetDeadline(time.Unix(1, 0)) })
	defer func() {
		stop()
		l.close()
	}()
	inbox := m.plant.Namespace + "/" + m.plant.Workspace + "/_ingress/" + client + "/" + m.name + "/"
	step := m.plant.Every / time.Duration(len(m.signals))
	tick := time.NewTicker(max(step, time.Millisecond))
	defer tick.Stop()
	for i := m.chance.IntN(len(m.signals)); ; i = (i + 1) % len(m.signals) {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		s := &m.signals[i]
		if err := l.publish(inbox+m.kind.tags[i].name, s.kind.appendEnvelope(nil, s.next())); err != nil {
			return err
		}
		for len(l.open) > 0 {
			if err := l.take(); err != nil {
				return err
			}
		}
		if l.refused > 0 {
			m.plant.Log.Warn("machine's value refused", "machine", m.name, "tag", m.kind.tags[i].name)
			l.refused = 0
		}
	}
}

// rest waits for d; false when ctx ended first.
func rest(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
