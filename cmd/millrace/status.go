package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"text/tabwriter"
	"time"

	"millrace/web"
)

type statusCommand struct{}

// Run prints how the box is, and fails unless it is ready, so that a script or a container can ask with it.
func (statusCommand) Run(ctx context.Context, con console, g *globals) error {
	box, err := g.connect(con)
	if err != nil {
		return err
	}
	var raw json.RawMessage
	if err := box.call(ctx, http.MethodGet, "/status", nil, nil, &raw); err != nil {
		return err
	}
	var s web.Status
	if err := json.Unmarshal(raw, &s); err != nil {
		return err
	}
	if g.JSON {
		if err := printRaw(con, raw); err != nil {
			return err
		}
	} else if err := showStatus(con, s); err != nil {
		return err
	}
	if s.State == "ready" {
		return nil
	}
	fmt.Fprintf(con.err, "millrace: the box is not ready: %s\n", strings.Join(s.Reasons, ", "))
	return errTold
}

func showStatus(con console, s web.Status) error {
	w := tabwriter.NewWriter(con.out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "state\t%s\n", s.State)
	for _, warning := range s.Warnings {
		fmt.Fprintf(w, "warning\t%s\n", warning)
	}
	fmt.Fprintf(w, "version\t%s\n", s.Version)
	fmt.Fprintf(w, "up\t%s\n", leftText(time.Duration(s.UptimeS)*time.Second))
	fmt.Fprintf(w, "connections\t%d\n", s.Broker.Connections)
	fmt.Fprintf(w, "topics\t%d\n", s.Topics)
	fmt.Fprintf(w, "stored\t%d since start, %d refused\n", s.Ingress.Accepted, s.Ingress.Refused)
	fmt.Fprintf(w, "disk\t%s used, %s free", sizeText(int64(s.Historian.DiskBytes)), sizeText(int64(s.Disk.FreeBytes)))
	if s.Disk.DaysLeft != nil {
		fmt.Fprintf(w, ", %.0f days left", *s.Disk.DaysLeft)
	}
	fmt.Fprintln(w)
	return w.Flush()
}
