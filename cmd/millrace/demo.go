package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"millrace/auth"
	"millrace/perf"
)

// demo is the simulated plant of `serve --demo`: its machines are API clients like any other, and speak to the
// box over MQTT connections like any other.
type demo struct {
	plant   perf.Plant
	secrets map[string]string // by client
}

// demoClient is the client of a machine: line1/press signs in as demo-line1-press.
func demoClient(machine string) string { return "demo-" + strings.ReplaceAll(machine, "/", "-") }

// openDemo makes a client for each machine, or gives the one of an earlier run a new secret, since secrets are
// kept as hashes only. A machine may publish below its own path and nowhere else.
func openDemo(book *auth.Book, broker string, log *slog.Logger) (*demo, error) {
	d := &demo{plant: perf.Plant{Address: broker, Log: log}, secrets: map[string]string{}}
	d.plant.Credentials = func(machine string) (string, string, error) {
		id := demoClient(machine)
		return id, d.secrets[id], nil
	}
	var fresh []auth.NewClient
	for _, machine := range d.plant.Machines() {
		id := demoClient(machine)
		if _, err := book.Client(id); err == nil {
			secret, err := book.Rotate(id, "")
			if err != nil {
				return nil, fmt.Errorf("demo: %w", err)
			}
			d.secrets[id] = secret
			continue
		} else if !errors.Is(err, auth.ErrNotFound) {
			return nil, fmt.Errorf("demo: %w", err)
		}
		fresh = append(fresh, auth.NewClient{ID: id, Description: "simulated machine of serve --demo",
			Grants: []auth.Grant{{Effect: "allow", Actions: []auth.Action{"publish"}, Filter: machine + "/#"}}})
	}
	if len(fresh) == 0 {
		return d, nil
	}
	added, err := book.AddAll(fresh)
	if err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	for _, a := range added {
		if a.Err != nil {
			return nil, fmt.Errorf("demo: %w", a.Err)
		}
		d.secrets[a.Client.ID] = a.Secret
	}
	return d, nil
}

func (d *demo) run(ctx context.Context) error { return d.plant.Run(ctx) }

// tell prints where to look.
func (d *demo) tell(out io.Writer, mqtt, web, dir string) {
	fmt.Fprintf(out, `
A simulated plant of %d machines on three lines is publishing. Where to look:

  status page      %s/
  REST             %s/api/v1/docs
  topics           bin/millrace topic list --data %s
  one topic        bin/millrace history get line1/press/temperature --from -5m --data %s
  pipelines        bin/millrace pipeline list --data %s
  what one did     bin/millrace run list demo-fahrenheit --data %s
  your own device  bin/millrace client add press-07 --allow 'publish,subscribe #' --data %s
                   mosquitto_pub -V 5 -q 1 -u press-07 -P SECRET -t mHv1.0/main/line1/press/temp -m '{"value": 42.70}'  (MQTT at %s)

Ctrl-C stops the box in order; nothing acknowledged is lost.
`, len(d.plant.Machines()), web, web, dir, dir, dir, dir, dir, mqtt)
}
