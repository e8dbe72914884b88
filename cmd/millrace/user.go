package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"
)

type userCommand struct {
	Add     userAdd     `cmd:"" help:"Add a user."`
	List    userList    `cmd:"" help:"List users."`
	Passwd  userPasswd  `cmd:"" help:"Give a user a new password; their sessions end."`
	Role    userRole    `cmd:"" help:"Give a user another role; their sessions end."`
	Disable userDisable `cmd:"" help:"Keep a user out; their sessions end, their tokens rest."`
	Enable  userEnable  `cmd:"" help:"Let a disabled user in again."`
	Delete  userDelete  `cmd:"" help:"Delete a user with their sessions and tokens."`
}

// maxPasswordLine bounds what is read of stdin.
const maxPasswordLine = 4096

// readPassword takes the first line of stdin.
func readPassword(con console) (string, error) {
	line, err := bufio.NewReader(io.LimitReader(con.in, maxPasswordLine)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("reading the password from stdin: %w", err)
	}
	if line = strings.TrimRight(line, "\r\n"); line == "" {
		return "", errors.New("stdin holds no password: give it as the first line, as in `printf '%s' \"$PASSWORD\" | millrace user …`")
	}
	return line, nil
}

type shownUser struct {
	Name    string `json:"name"`
	Role    string `json:"role"`
	Enabled bool   `json:"enabled"`
	Created string `json:"created"`
}

// print writes one user, as JSON or as a line.
func (u shownUser) print(con console, g *globals, raw json.RawMessage, done string) error {
	if g.JSON {
		return printRaw(con, raw)
	}
	_, err := fmt.Fprintf(con.out, "user %s %s (%s)\n", u.Name, done, u.Role)
	return err
}

type userAdd struct {
	Name          string `arg:"" help:"User name: A-Z a-z 0-9 . _ - @; upper and lower case are the same."`
	Role          string `enum:"viewer,operator,designer,admin" required:"" help:"viewer reads; operator also publishes test values; designer also changes topics; admin everything."`
	PasswordStdin bool   `name:"password-stdin" required:"" help:"Read the password from the first line of stdin (8 to 256 characters)."`
}

func (c userAdd) Run(ctx context.Context, con console, g *globals) error {
	password, err := readPassword(con)
	if err != nil {
		return err
	}
	return changeUser(ctx, con, g, http.MethodPost, "/users", map[string]any{"name": c.Name, "role": c.Role, "password": password}, "added")
}

// changeUser makes one call that answers with a user.
func changeUser(ctx context.Context, con console, g *globals, method, path string, in any, done string) error {
	box, err := g.connect(con)
	if err != nil {
		return err
	}
	var raw json.RawMessage
	if err := box.call(ctx, method, path, nil, in, &raw); err != nil {
		return err
	}
	var u shownUser
	if err := json.Unmarshal(raw, &u); err != nil {
		return err
	}
	return u.print(con, g, raw, done)
}

type userList struct{}

func (userList) Run(ctx context.Context, con console, g *globals) error {
	box, err := g.connect(con)
	if err != nil {
		return err
	}
	var raw json.RawMessage
	if err := box.call(ctx, http.MethodGet, "/users", nil, nil, &raw); err != nil {
		return err
	}
	if g.JSON {
		return printRaw(con, raw)
	}
	var out struct{ Users []shownUser }
	if err := json.Unmarshal(raw, &out); err != nil {
		return err
	}
	w := tabwriter.NewWriter(con.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tROLE\tENABLED\tCREATED")
	for _, u := range out.Users {
		fmt.Fprintf(w, "%s\t%s\t%t\t%s\n", u.Name, u.Role, u.Enabled, u.Created)
	}
	return w.Flush()
}

// userArg is the user a command is about.
type userArg struct {
	Name string `arg:"" help:"User name."`
}

func (a userArg) path() string { return "/users/" + url.PathEscape(a.Name) }

func (a userArg) patch(ctx context.Context, con console, g *globals, in map[string]any, done string) error {
	return changeUser(ctx, con, g, http.MethodPatch, a.path(), in, done)
}

type userPasswd struct {
	userArg
	PasswordStdin bool `name:"password-stdin" required:"" help:"Read the password from the first line of stdin (8 to 256 characters)."`
}

func (c userPasswd) Run(ctx context.Context, con console, g *globals) error {
	password, err := readPassword(con)
	if err != nil {
		return err
	}
	return c.patch(ctx, con, g, map[string]any{"password": password}, "has a new password")
}

type userRole struct {
	userArg
	Role string `arg:"" enum:"viewer,operator,designer,admin" help:"viewer, operator, designer or admin."`
}

func (c userRole) Run(ctx context.Context, con console, g *globals) error {
	return c.patch(ctx, con, g, map[string]any{"role": c.Role}, "has another role")
}

type userDisable struct{ userArg }

func (c userDisable) Run(ctx context.Context, con console, g *globals) error {
	return c.patch(ctx, con, g, map[string]any{"enabled": false}, "disabled")
}

type userEnable struct{ userArg }

func (c userEnable) Run(ctx context.Context, con console, g *globals) error {
	return c.patch(ctx, con, g, map[string]any{"enabled": true}, "enabled")
}

type userDelete struct{ userArg }

func (c userDelete) Run(ctx context.Context, con console, g *globals) error {
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
	_, err = fmt.Fprintf(con.out, "user %s deleted\n", c.Name)
	return err
}
