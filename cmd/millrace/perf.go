package main

import (
	"context"
	"encoding/json"
	"fmt"

	"millrace/perf"
)

type perfCommand struct {
	Ingest  perfIngest  `cmd:"" help:"Ingest load with latency, CPU, bytes and a read-back of every acknowledged value."`
	Crash   perfCrash   `cmd:"" help:"kill -9 at random moments under load; compare what was acknowledged with what is stored."`
	Compare perfCompare `cmd:"" help:"The box and a bare broker side by side in one run."`

	Subscribers perfSubscribers `cmd:"" help:"Many subscribers of a few topics each: deliveries and CPU, against mosquitto."`
	Retained    perfRetained    `cmd:"" help:"The last value of very many topics to a new reader, paced by its window."`
	Stalled     perfStalled     `cmd:"" help:"What a subscriber that never reads costs those who publish."`
	Reconnect   perfReconnect   `cmd:"" help:"Everyone signs in again after kill -9 and a start."`
	Idle        perfIdle        `cmd:"" help:"Resident memory of a connection that does nothing."`
}

type (
	perfIngest  struct{ ingestFlags }
	perfCrash   struct{ perf.CrashOptions }
	perfCompare struct{ perf.CompareOptions }

	perfSubscribers struct{ perf.SubscribersOptions }
	perfRetained    struct{ perf.RetainedOptions }
	perfStalled     struct{ perf.StalledOptions }
	perfReconnect   struct{ perf.ReconnectOptions }
	perfIdle        struct{ perf.IdleOptions }
)

// ingestFlags are the options without their Validate, which kong would call before Run has given them the address of the
// box; Ingest calls it.
type ingestFlags perf.IngestOptions

func (c perfIngest) Run(ctx context.Context, con console, g *globals) error {
	o := perf.IngestOptions(c.ingestFlags)
	o.URL, o.Token = g.URL, g.Token
	return judge(con, g)(perf.Ingest(ctx, o, con.err))
}

func (c perfCrash) Run(ctx context.Context, con console, g *globals) error {
	return judge(con, g)(perf.Crash(ctx, c.CrashOptions, con.err))
}

func (c perfCompare) Run(ctx context.Context, con console, g *globals) error {
	return judge(con, g)(perf.Compare(ctx, c.CompareOptions, con.err))
}

func (c perfSubscribers) Run(ctx context.Context, con console, g *globals) error {
	return judge(con, g)(perf.Subscribers(ctx, c.SubscribersOptions, con.err))
}

func (c perfRetained) Run(ctx context.Context, con console, g *globals) error {
	return judge(con, g)(perf.Retained(ctx, c.RetainedOptions, con.err))
}

func (c perfStalled) Run(ctx context.Context, con console, g *globals) error {
	return judge(con, g)(perf.Stalled(ctx, c.StalledOptions, con.err))
}

func (c perfReconnect) Run(ctx context.Context, con console, g *globals) error {
	return judge(con, g)(perf.Reconnect(ctx, c.ReconnectOptions, con.err))
}

func (c perfIdle) Run(ctx context.Context, con console, g *globals) error {
	return judge(con, g)(perf.Idle(ctx, c.IdleOptions, con.err))
}

// show prints what a run found, as JSON or as one line for each target; a missed target is shown and fails nothing.
func show(con console, g *globals) func(perf.Report, error) error {
	return func(r perf.Report, err error) error {
		if err != nil {
			return err
		}
		if g.JSON {
			return json.NewEncoder(con.out).Encode(&r)
		}
		for _, t := range r.Targets {
			met := "met"
			if !t.Met {
				met = "MISSED"
			}
			if _, err := fmt.Fprintf(con.out, "%s\t%s: %s (target %s)\n", met, t.Figure, t.Got, t.Want); err != nil {
				return err
			}
		}
		return nil
	}
}

// judge also turns a loss into exit code 1.
func judge(con console, g *globals) func(perf.Report, error) error {
	return func(r perf.Report, err error) error {
		if err := show(con, g)(r, err); err != nil {
			return err
		}
		if n := r.Lost(); n > 0 {
			fmt.Fprintf(con.err, "millrace: %d acknowledged values are missing, doubled or different; see the report\n", n)
			return errTold
		}
		return nil
	}
}
