package main

import (
	"context"
	"fmt"

	"millrace/perf"
)

type perfCommand struct {
	Ingest  perfIngest  `cmd:"" help:"Ingest load with latency, CPU, bytes and a read-back of every acknowledged value."`
	Crash   perfCrash   `cmd:"" help:"kill -9 at random moments under load; compare what was acknowledged with what is stored."`
	Compare perfCompare `cmd:"" help:"The box and a bare broker side by side in one run."`
}

type (
	perfIngest  struct{ ingestFlags }
	perfCrash   struct{ perf.CrashOptions }
	perfCompare struct{ perf.CompareOptions }
)

// ingestFlags are the options without their Validate, which kong would call before Run has given them the address of the
// box; Ingest calls it.
type ingestFlags perf.IngestOptions

func (c perfIngest) Run(ctx context.Context, con console, g *globals) error {
	o := perf.IngestOptions(c.ingestFlags)
	o.URL, o.Token = g.URL, g.Token
	return judge(con)(perf.Ingest(ctx, o, con.out))
}

func (c perfCrash) Run(ctx context.Context, con console) error {
	return judge(con)(perf.Crash(ctx, c.CrashOptions, con.out))
}

func (c perfCompare) Run(ctx context.Context, con console) error {
	return judge(con)(perf.Compare(ctx, c.CompareOptions, con.out))
}

// judge turns a loss into exit code 1; a missed target is written in the report and fails nothing.
func judge(con console) func(perf.Report, error) error {
	return func(r perf.Report, err error) error {
		if err != nil {
			return err
		}
		if n := r.Lost(); n > 0 {
			fmt.Fprintf(con.err, "millrace: %d acknowledged values are missing, doubled or different; see the report\n", n)
			return errTold
		}
		return nil
	}
}
