package web

import (
	"context"
	"net/http"
	"time"

	"millrace/auth"
	"millrace/historian"
)

// Status is the answer of GET /status: what an operator asks first.
type Status struct {
	State      string            `json:"state" enum:"ready,starting,not_taking_values" doc:"One word for the whole box"`
	Reasons    []string          `json:"reasons" doc:"Why the state is not ready: starting, disk_low, fsync, stalled"`
	Warnings   []string          `json:"warnings,omitempty" doc:"What is out of the ordinary for as long as the box runs, such as a profile that lets everybody in"`
	Version    string            `json:"version" doc:"Version of the box"`
	Now        time.Time         `json:"now" doc:"The box's clock"`
	Started    time.Time         `json:"started" doc:"Start of the box"`
	UptimeS    int64             `json:"uptime_s" doc:"Seconds since started"`
	Topics     int               `json:"topics" doc:"Topics over all workspaces"`
	Broker     BrokerStatus      `json:"broker" doc:"Connections"`
	Ingress    IngressStatus     `json:"ingress" doc:"Values on their way in"`
	Historian  HistorianStatus   `json:"historian" doc:"The store"`
	Disk       DiskStatus        `json:"disk" doc:"Room for more values"`
	Refused    map[string]uint64 `json:"refused" doc:"Values refused since started, by reason; reasons that never occurred are left out"`
	WindowS    float64           `json:"window_s" doc:"Seconds that per_second and p99 speak of; 0 until two readings exist"`
	WriteP99MS *float64          `json:"stored_p99_ms" doc:"Publish to stored, 99th percentile of the window in ms; null without values"`
}

// BrokerStatus is the broker's part of Status.
type BrokerStatus struct {
	Connections uint64 `json:"connections" doc:"MQTT connections now"`
}

// IngressStatus is the ingress's part of Status.
type IngressStatus struct {
	Accepted  uint64   `json:"accepted" doc:"Values stored since started"`
	Refused   uint64   `json:"refused" doc:"Values refused since started"`
	PerSecond *float64 `json:"accepted_per_second" doc:"Over the window; null until two readings exist"`
	RefusedPS *float64 `json:"refused_per_second" doc:"Over the window; null until two readings exist"`
}

// HistorianStatus is the store's part of Status.
type HistorianStatus struct {
	Stalled   bool       `json:"stalled" doc:"true: no value is taken"`
	Why       string     `json:"why,omitempty" doc:"disk_low or fsync"`
	Since     *time.Time `json:"since,omitempty" doc:"Since when it is stalled"`
	DiskBytes uint64     `json:"disk_bytes" doc:"What the store takes on disk"`
	LogBytes  int64      `json:"log_bytes" doc:"Log not yet checkpointed"`
	LastSeq   uint64     `json:"last_seq" doc:"Number of the last value"`
	SyncedSeq uint64     `json:"synced_seq" doc:"Number of the last value known to be on disk"`
}

// DiskStatus says how much room is left.
type DiskStatus struct {
	FreeBytes uint64   `json:"free_bytes" doc:"Free on the data directory's file system"`
	DaysLeft  *float64 `json:"days_left" doc:"At the present growth; null while the store does not grow or was watched for less than ten minutes"`
}

func (w *Web) addStatus() {
	type nothing struct{}
	type statusOut struct{ Body Status }
	register(w, route{method: http.MethodGet, path: "/status", id: "get-status", tag: "Box",
		rule: rule{role: auth.RoleViewer, loopback: true}, summary: "How the box is doing",
		doc: "The figures of the page at /. On the box itself no sign-in is needed."},
		func(context.Context, *caller, *nothing) (*statusOut, error) {
			return &statusOut{Body: w.readStatus()}, nil
		})
}

func (w *Web) readStatus() Status {
	now := w.now()
	store := w.parts.State()
	s := Status{
		State: "ready", Reasons: w.reasons(), Warnings: w.parts.Warnings,
		Version: w.parts.Version, Now: now.UTC().Truncate(time.Millisecond), Started: w.parts.Started.UTC(),
		UptimeS: int64(now.Sub(w.parts.Started).Seconds()), Topics: store.Series,
		Historian: historianStatus(store),
		Disk:      DiskStatus{FreeBytes: store.FreeBytes, DaysLeft: w.status.disk.daysLeft(now, store)},
		Refused:   map[string]uint64{},
	}
	switch {
	case store.Stalled:
		s.State = "not_taking_values"
	case len(s.Reasons) > 0:
		s.State = "starting"
	}
	last, before := w.status.read(w.parts.Gatherer, now)
	s.Broker.Connections = uint64(max(last.connections, 0))
	s.Ingress.Accepted = uint64(last.accepted)
	for reason, n := range last.refused {
		if n > 0 {
			s.Refused[reason] = uint64(n)
			s.Ingress.Refused += uint64(n)
		}
	}
	if span := last.at.Sub(before.at).Seconds(); !before.at.IsZero() && span > 0 {
		s.WindowS = span
		accepted, refused := max(last.accepted-before.accepted, 0)/span, max(last.allRefused()-before.allRefused(), 0)/span
		s.Ingress.PerSecond, s.Ingress.RefusedPS = &accepted, &refused
		if p99, ok := last.stored.quantile(before.stored, 0.99); ok {
			p99 *= 1000
			s.WriteP99MS = &p99
		}
	}
	return s
}

func historianStatus(s historian.State) HistorianStatus {
	h := HistorianStatus{
		Stalled: s.Stalled, Why: s.Why, DiskBytes: s.DiskBytes, LogBytes: s.LogBytes, LastSeq: s.LastSeq, SyncedSeq: s.SyncedSeq,
	}
	if s.Stalled && !s.Since.IsZero() {
		since := s.Since.UTC()
		h.Since = &since
	}
	return h
}
