package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

type clientCommand struct {
	Add     clientAdd     `cmd:"" help:"Add a client, or many with --from; the secret is shown once."`
	List    clientList    `cmd:"" help:"List all clients."`
	Show    clientShow    `cmd:"" help:"Show one client with its grants."`
	Ledger  clientLedger  `cmd:"" help:"What became of its messages, hour by hour: stored, late, duplicate, gaps, refused."`
	Rotate  clientRotate  `cmd:"" help:"Replace the secret; the new one is shown once."`
	Grant   clientGrant   `cmd:"" help:"Add grants, or replace all with --set."`
	Disable clientDisable `cmd:"" help:"Refuse the client from now on, live sessions included."`
	Enable  clientEnable  `cmd:"" help:"Let a disabled client in again."`
	Delete  clientDelete  `cmd:"" help:"Delete a client."`
}

// grant is one rule as REST and --from take it.
type grant struct {
	Effect  string   `json:"effect"`
	Actions []string `json:"actions"`
	Filter  string   `json:"filter"`
	Scope   string   `json:"scope,omitempty"`
}

type grantFlags struct {
	Allow     []string `sep:"none" placeholder:"'ACTIONS FILTER'" help:"Allow on UNS paths, such as 'publish,subscribe line1/#'. May be repeated."`
	Deny      []string `sep:"none" placeholder:"'ACTIONS FILTER'" help:"Deny on UNS paths; deny wins."`
	AllowMQTT []string `sep:"none" name:"allow-mqtt" placeholder:"'ACTIONS FILTER'" help:"Allow on ordinary topics, outside the namespace."`
	DenyMQTT  []string `sep:"none" name:"deny-mqtt" placeholder:"'ACTIONS FILTER'" help:"Deny on ordinary topics."`
}

func (f grantFlags) grants() ([]grant, error) {
	var list []grant
	for _, kind := range []struct {
		flag, effect, scope string
		values              []string
	}{{"allow", "allow", "uns", f.Allow}, {"deny", "deny", "uns", f.Deny}, {"allow-mqtt", "allow", "mqtt", f.AllowMQTT}, {"deny-mqtt", "deny", "mqtt", f.DenyMQTT}} {
		for _, v := range kind.values {
			actions, filter, ok := strings.Cut(strings.TrimSpace(v), " ")
			if filter = strings.TrimSpace(filter); !ok || filter == "" {
				return nil, usageError{fmt.Sprintf("--%s %q: write the actions, a space and a filter, such as 'publish,subscribe line1/#'", kind.flag, v)}
			}
			list = append(list, grant{kind.effect, strings.Split(actions, ","), filter, kind.scope})
		}
	}
	return list, nil
}

type clientAdd struct {
	Name        string `arg:"" optional:"" help:"Id of the client: letters, digits, . _ -"`
	Workspace   string `help:"Workspace of the client (default: the box's first)."`
	Description string `help:"A line for people."`
	SecretStdin bool   `help:"Read the secret from stdin (24 characters or more) instead of generating one."`
	Metrics     bool   `help:"The client may read /metrics."`
	From        string `help:"Add one client per line of this NDJSON file (- is stdin): all or none." placeholder:"FILE"`
	grantFlags
}

func (c clientAdd) Run(ctx context.Context, con console, g *globals) error {
	if (c.Name == "") == (c.From == "") {
		return usageError{"name one client, or a file with --from"}
	}
	box, err := g.connect(con)
	if err != nil {
		return err
	}
	if c.From != "" {
		return c.bulk(ctx, con, box)
	}
	grants, err := c.grants()
	if err != nil {
		return err
	}
	in := map[string]any{"id": c.Name}
	set := func(key string, v any, there bool) {
		if there {
			in[key] = v
		}
	}
	set("workspace", c.Workspace, c.Workspace != "")
	set("description", c.Description, c.Description != "")
	set("grants", grants, grants != nil)
	set("metrics", true, c.Metrics)
	if c.SecretStdin {
		line, err := bufio.NewReader(con.in).ReadString('\n')
		if err != nil && err != io.EOF {
			return fmt.Errorf("--secret-stdin: %w", err)
		}
		in["secret"] = strings.TrimRight(line, "\r\n")
	}
	var out secretShown
	if err := box.call(ctx, http.MethodPost, "/clients", nil, in, &out); err != nil {
		return err
	}
	return out.print(con, g)
}

// secretShown is the only answer that ever carries a secret.
type secretShown struct {
	ID        string `json:"client_id"`
	Secret    string `json:"client_secret"`
	Workspace string `json:"workspace"`
}

func (s secretShown) print(con console, g *globals) error {
	if g.JSON {
		return json.NewEncoder(con.out).Encode(s)
	}
	_, err := fmt.Fprintf(con.out, "client    %s\nworkspace %s\nsecret    %s\n\nThe secret is not shown again. MQTT: user name = client, password = secret.\n", s.ID, s.Workspace, s.Secret)
	return err
}

func (c clientAdd) bulk(ctx context.Context, con console, box *remote) error {
	from := con.in
	if c.From != "-" {
		f, err := os.Open(c.From)
		if err != nil {
			return fmt.Errorf("--from: %w", err)
		}
		defer f.Close()
		from = f
	}
	text, err := io.ReadAll(from)
	if err != nil {
		return fmt.Errorf("--from: %w", err)
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return fmt.Errorf("--from: %s names no client; write one JSON object a line", c.From)
	}
	res, err := box.send(ctx, http.MethodPost, "/clients/bulk", nil, "application/x-ndjson", bytes.NewReader(text))
	if err != nil {
		return err
	}
	defer res.Body.Close()
	_, err = io.Copy(con.out, res.Body)
	return err
}

// clientShown is a client as REST shows it.
type clientShown struct {
	ID          string    `json:"id"`
	Workspace   string    `json:"workspace"`
	Description string    `json:"description,omitempty"`
	Enabled     bool      `json:"enabled"`
	Grants      []grant   `json:"grants"`
	Created     time.Time `json:"created"`
	Revision    uint64    `json:"revision"`
}

func state(enabled bool) string {
	if enabled {
		return "enabled"
	}
	return "disabled"
}

type clientList struct{}

func (clientList) Run(ctx context.Context, con console, g *globals) error {
	box, err := g.connect(con)
	if err != nil {
		return err
	}
	var raw json.RawMessage
	if err := box.call(ctx, http.MethodGet, "/clients", nil, nil, &raw); err != nil {
		return err
	}
	if g.JSON {
		return printRaw(con, raw)
	}
	var out struct {
		Clients []clientShown `json:"clients"`
	}
	if err := json.Unmarshal(raw, &out); err != nil {
		return err
	}
	w := tabwriter.NewWriter(con.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "CLIENT\tWORKSPACE\tSTATE\tGRANTS\tCREATED")
	for _, c := range out.Clients {
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\n", c.ID, c.Workspace, state(c.Enabled), len(c.Grants), c.Created.Format(time.RFC3339))
	}
	return w.Flush()
}

func printRaw(con console, raw json.RawMessage) error {
	_, err := fmt.Fprintf(con.out, "%s\n", bytes.TrimSpace(raw))
	return err
}

type clientName struct {
	Name string `arg:"" help:"Id of the client."`
}

func (c clientName) path() string { return "/clients/" + url.PathEscape(c.Name) }

type clientShow struct{ clientName }

func (c clientShow) Run(ctx context.Context, con console, g *globals) error {
	box, err := g.connect(con)
	if err != nil {
		return err
	}
	if err := c.show(ctx, con, g, box, http.MethodGet, nil); err != nil || g.JSON {
		return err
	}
	var f struct {
		Accepted         uint64
		Refused, Dropped map[string]uint64
		Sessions         []string
	}
	if err := box.call(ctx, http.MethodGet, c.path()+"/figures", nil, nil, &f); err != nil {
		return err
	}
	w := tabwriter.NewWriter(con.out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "sessions\t%d\nstored\t%d since start\n", len(f.Sessions), f.Accepted)
	for _, rows := range []struct {
		what string
		by   map[string]uint64
	}{{"refused", f.Refused}, {"dropped", f.Dropped}} {
		for _, why := range slices.Sorted(maps.Keys(rows.by)) {
			fmt.Fprintf(w, "%s\t%d %s\n", rows.what, rows.by[why], why)
		}
	}
	return w.Flush()
}

// show makes a call that answers with the client, and prints it.
func (c clientName) show(ctx context.Context, con console, g *globals, box *remote, method string, in any) error {
	var raw json.RawMessage
	if err := box.call(ctx, method, c.path(), nil, in, &raw); err != nil {
		return err
	}
	if g.JSON {
		return printRaw(con, raw)
	}
	var s clientShown
	if err := json.Unmarshal(raw, &s); err != nil {
		return err
	}
	w := tabwriter.NewWriter(con.out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "client\t%s\nworkspace\t%s\nstate\t%s\ncreated\t%s\n", s.ID, s.Workspace, state(s.Enabled), s.Created.Format(time.RFC3339))
	if s.Description != "" {
		fmt.Fprintf(w, "description\t%s\n", s.Description)
	}
	for _, r := range s.Grants {
		fmt.Fprintf(w, "%s\t%s %s (%s)\n", r.Effect, strings.Join(r.Actions, ","), r.Filter, r.Scope)
	}
	if len(s.Grants) == 0 {
		fmt.Fprintln(w, "grants\tnone: it can sign in, but neither publish nor read")
	}
	return w.Flush()
}

type clientRotate struct {
	clientName
	SecretStdin bool `help:"Read the new secret from stdin."`
}

func (c clientRotate) Run(ctx context.Context, con console, g *globals) error {
	box, err := g.connect(con)
	if err != nil {
		return err
	}
	in := map[string]any{}
	if c.SecretStdin {
		line, err := bufio.NewReader(con.in).ReadString('\n')
		if err != nil && err != io.EOF {
			return fmt.Errorf("--secret-stdin: %w", err)
		}
		in["secret"] = strings.TrimRight(line, "\r\n")
	}
	var out secretShown
	if err := box.call(ctx, http.MethodPost, c.path()+"/rotate", nil, in, &out); err != nil {
		return err
	}
	return out.print(con, g)
}

type clientGrant struct {
	clientName
	Set string `help:"Replace all grants with the JSON array in this file (- is stdin)." placeholder:"FILE"`
	grantFlags
}

func (c clientGrant) Run(ctx context.Context, con console, g *globals) error {
	grants, err := c.grants()
	if err != nil {
		return err
	}
	if (c.Set == "") == (len(grants) == 0) {
		return usageError{"give grants with --allow, --deny, --allow-mqtt or --deny-mqtt, or replace all with --set FILE.json"}
	}
	box, err := g.connect(con)
	if err != nil {
		return err
	}
	if c.Set != "" {
		text, err := readFileOr(con, c.Set)
		if err != nil {
			return fmt.Errorf("--set: %w", err)
		}
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		if err := d.Decode(&grants); err != nil || d.More() {
			return fmt.Errorf("--set: %s is not a JSON array of grants; write for example [{\"effect\":\"allow\",\"actions\":[\"publish\"],\"filter\":\"line1/#\"}]", c.Set)
		}
		if grants == nil { // a script whose grants did not come out must not take every right away
			return fmt.Errorf("--set: %s holds null; [] is what takes every grant away", c.Set)
		}
	} else {
		var now clientShown
		if err := box.call(ctx, http.MethodGet, c.path(), nil, nil, &now); err != nil {
			return err
		}
		grants, box = append(now.Grants, grants...), box.ifStill(now.Revision)
	}
	return c.show(ctx, con, g, box, http.MethodPatch, map[string]any{"grants": grants})
}

func readFileOr(con console, name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(con.in)
	}
	return os.ReadFile(name)
}

type clientDisable struct{ clientName }

func (c clientDisable) Run(ctx context.Context, con console, g *globals) error {
	return c.enabled(ctx, con, g, false)
}

type clientEnable struct{ clientName }

func (c clientEnable) Run(ctx context.Context, con console, g *globals) error {
	return c.enabled(ctx, con, g, true)
}

func (c clientName) enabled(ctx context.Context, con console, g *globals, on bool) error {
	box, err := g.connect(con)
	if err != nil {
		return err
	}
	return c.show(ctx, con, g, box, http.MethodPatch, map[string]any{"enabled": on})
}

type clientDelete struct{ clientName }

func (c clientDelete) Run(ctx context.Context, con console, g *globals) error {
	box, err := g.connect(con)
	if err != nil {
		return err
	}
	if err := box.call(ctx, http.MethodDelete, c.path(), nil, nil, nil); err != nil {
		return err
	}
	if g.JSON {
		return json.NewEncoder(con.out).Encode(map[string]string{"deleted": c.Name})
	}
	_, err = fmt.Fprintf(con.out, "deleted %s\n", c.Name)
	return err
}
