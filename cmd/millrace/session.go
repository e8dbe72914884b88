package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

type sessionCommand struct {
	List       sessionList       `cmd:"" help:"MQTT sessions: who is connected, what waits for them, who is too slow."`
	Show       sessionShow       `cmd:"" help:"One MQTT session."`
	Disconnect sessionDisconnect `cmd:"" help:"End an MQTT session; its device may connect again at once."`
}

// sessionShown is one session of GET /broker/sessions.
type sessionShown struct {
	MQTTID        string            `json:"mqtt_id"`
	Client        string            `json:"client"`
	Connected     bool              `json:"connected"`
	Remote        string            `json:"remote"`
	Listener      string            `json:"listener"`
	Version       int               `json:"version"`
	Since         time.Time         `json:"since"`
	ExpiryS       int64             `json:"expiry_s"`
	Subscriptions int               `json:"subscriptions"`
	Received      uint64            `json:"received"`
	Sent          uint64            `json:"sent"`
	Queued        int               `json:"queued"`
	Inflight      int               `json:"inflight"`
	Dropped       uint64            `json:"dropped"`
	DroppedBy     map[string]uint64 `json:"dropped_by"`
	Slow          bool              `json:"slow"`
}

func (s *sessionShown) state() string {
	switch {
	case !s.Connected:
		return "offline"
	case s.Slow:
		return "slow"
	}
	return "connected"
}

type sessionList struct {
	Client  string `help:"Sessions of this API client only."`
	State   string `help:"connected or offline." enum:",connected,offline" default:""`
	Queued  int    `help:"At least this many messages waiting."`
	Dropped int    `help:"At least this many messages dropped."`
	Slow    bool   `help:"Slow subscribers only."`
}

func (c sessionList) Run(ctx context.Context, con console, g *globals) error {
	box, err := g.connect(con)
	if err != nil {
		return err
	}
	q := url.Values{}
	for _, p := range []struct {
		name, value string
		given       bool
	}{{"client", c.Client, c.Client != ""}, {"state", c.State, c.State != ""}, {"queued", strconv.Itoa(c.Queued), c.Queued > 0},
		{"dropped", strconv.Itoa(c.Dropped), c.Dropped > 0}, {"slow", "true", c.Slow}} {
		if p.given {
			q.Set(p.name, p.value)
		}
	}
	var raw json.RawMessage
	if err := box.call(ctx, http.MethodGet, "/broker/sessions", q, nil, &raw); err != nil {
		return err
	}
	if g.JSON {
		return printRaw(con, raw)
	}
	var list struct{ Sessions []sessionShown }
	if err := json.Unmarshal(raw, &list); err != nil {
		return err
	}
	w := tabwriter.NewWriter(con.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "MQTT ID\tCLIENT\tSTATE\tLISTENER\tREMOTE\tSINCE\tRECEIVED\tSENT\tQUEUED\tDROPPED")
	for _, s := range list.Sessions {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%d\t%d\t%d\t%d\n", shorten(printable(s.MQTTID), 48), s.Client, s.state(), s.Listener, s.Remote,
			s.Since.UTC().Format(time.RFC3339), s.Received, s.Sent, s.Queued, s.Dropped)
	}
	return w.Flush()
}

// printable keeps what a device chose as its name from steering the terminal.
func printable(s string) string {
	quoted := strconv.Quote(s)
	if quoted == `"`+s+`"` {
		return s
	}
	return quoted
}

// sessionID is an MQTT client identifier, which may be any text.
type sessionID struct {
	ID string `arg:"" name:"mqtt-id" help:"MQTT client identifier."`
}

func (s sessionID) path() string {
	id := url.PathEscape(s.ID)
	if strings.Trim(id, ".") == "" { // would be cleaned away
		id = strings.ReplaceAll(id, ".", "%2E")
	}
	return "/broker/sessions/" + id
}

type sessionShow struct{ sessionID }

func (c sessionShow) Run(ctx context.Context, con console, g *globals) error {
	box, err := g.connect(con)
	if err != nil {
		return err
	}
	var raw json.RawMessage
	if err := box.call(ctx, http.MethodGet, c.path(), nil, nil, &raw); err != nil {
		return err
	}
	if g.JSON {
		return printRaw(con, raw)
	}
	var s sessionShown
	if err := json.Unmarshal(raw, &s); err != nil {
		return err
	}
	w := tabwriter.NewWriter(con.out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "mqtt id\t%s\nclient\t%s\nstate\t%s since %s\n", printable(s.MQTTID), s.Client, s.state(), s.Since.UTC().Format(time.RFC3339))
	if s.Connected {
		fmt.Fprintf(w, "peer\t%s over %s, protocol level %d\n", s.Remote, s.Listener, s.Version)
	}
	fmt.Fprintf(w, "expiry\t%s after a disconnect\n"+
		"messages\t%d received, %d sent, %d queued, %d in flight\nsubscriptions\t%d\ndropped\t%d\n", time.Duration(s.ExpiryS)*time.Second, s.Received, s.Sent, s.Queued, s.Inflight, s.Subscriptions, s.Dropped)
	for _, why := range slices.Sorted(maps.Keys(s.DroppedBy)) {
		fmt.Fprintf(w, "  %s\t%d\n", why, s.DroppedBy[why])
	}
	return w.Flush()
}

type sessionDisconnect struct{ sessionID }

func (c sessionDisconnect) Run(ctx context.Context, con console, g *globals) error {
	box, err := g.connect(con)
	if err != nil {
		return err
	}
	if err := box.call(ctx, http.MethodPost, c.path()+"/disconnect", nil, nil, nil); err != nil {
		return err
	}
	if g.JSON {
		return json.NewEncoder(con.out).Encode(map[string]string{"disconnected": c.ID})
	}
	_, err = fmt.Fprintf(con.out, "disconnected %s\n", printable(c.ID))
	return err
}
