package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"
)

type tokenCommand struct {
	Add    tokenAdd    `cmd:"" help:"Make a token for --url and --token; it is shown once."`
	List   tokenList   `cmd:"" help:"List tokens."`
	Delete tokenDelete `cmd:"" help:"Delete a token; calls with it are refused from then on."`
}

type tokenAdd struct {
	Name  string   `arg:"" help:"What the token is for."`
	Role  string   `enum:",viewer,operator,designer,admin" default:"" help:"viewer, operator, designer or admin; viewer when neither this nor --scope is given."`
	Scope []string `enum:"read,operate,design,admin,metrics" help:"Instead of a role: read, operate, design, admin, metrics; as often as wanted."`
	TTL   string   `name:"ttl" help:"How long it is good for, such as 30d; none: until deleted."`
}

func (c tokenAdd) Run(ctx context.Context, con console, g *globals) error {
	in := map[string]any{"name": c.Name}
	switch {
	case len(c.Scope) > 0 && c.Role != "":
		return usageError{"--role and --scope: give one of them"}
	case len(c.Scope) > 0:
		in["scopes"] = c.Scope
	case c.Role != "":
		in["role"] = c.Role
	default:
		in["role"] = "viewer"
	}
	if c.TTL != "" {
		in["ttl"] = c.TTL
	}
	box, err := g.connect(con)
	if err != nil {
		return err
	}
	var out struct {
		ID    string `json:"id"`
		Token string `json:"token"`
	}
	if err := box.call(ctx, http.MethodPost, "/me/tokens", nil, in, &out); err != nil {
		return err
	}
	if g.JSON {
		return json.NewEncoder(con.out).Encode(out)
	}
	_, err = fmt.Fprintf(con.out, "id    %s\ntoken %s\n\nThe token is not shown again. Use it with --url and --token, or as Authorization: Bearer.\nTo end it: millrace token delete %s\n", out.ID, out.Token, out.ID)
	return err
}

type tokenList struct{}

func (tokenList) Run(ctx context.Context, con console, g *globals) error {
	box, err := g.connect(con)
	if err != nil {
		return err
	}
	var raw json.RawMessage
	if err := box.call(ctx, http.MethodGet, "/me/tokens", url.Values{"all": {"true"}}, nil, &raw); err != nil {
		return err
	}
	if g.JSON {
		return printRaw(con, raw)
	}
	var out struct {
		Tokens []struct {
			ID      string   `json:"id"`
			Name    string   `json:"name"`
			User    string   `json:"user"`
			Scopes  []string `json:"scopes"`
			Created string   `json:"created"`
			Expires string   `json:"expires"`
		} `json:"tokens"`
	}
	if err := json.Unmarshal(raw, &out); err != nil {
		return err
	}
	w := tabwriter.NewWriter(con.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tNAME\tUSER\tSCOPES\tCREATED\tEXPIRES")
	for _, t := range out.Tokens {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", t.ID, t.Name, t.User, strings.Join(t.Scopes, ","), t.Created, t.Expires)
	}
	return w.Flush()
}

type tokenDelete struct {
	ID string `arg:"" help:"Id of the token, from token list."`
}

func (c tokenDelete) Run(ctx context.Context, con console, g *globals) error {
	box, err := g.connect(con)
	if err != nil {
		return err
	}
	return box.call(ctx, http.MethodDelete, "/me/tokens/"+url.PathEscape(c.ID), nil, nil, nil)
}
