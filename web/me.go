package web

import (
	"context"
	"net/http"

	"millrace/auth"
)

// Me is who the caller is to the box.
type Me struct {
	User      string       `json:"user,omitempty" doc:"Name of the token; local through the admin socket"`
	Role      auth.Role    `json:"role,omitempty" doc:"What the person may do"`
	Client    string       `json:"client,omitempty" doc:"Id, for an API client"`
	Workspace string       `json:"workspace,omitempty" doc:"Of an API client"`
	Grants    []auth.Grant `json:"grants,omitempty" doc:"Of an API client"`
	Metrics   bool         `json:"metrics" doc:"May read /metrics from elsewhere"`
}

func (w *Web) addMe() {
	type nothing struct{}
	type meOut struct{ Body Me }
	register(w, route{method: http.MethodGet, path: "/me", id: "get-me", tag: "Tokens", rule: rule{role: auth.RoleViewer, clients: true},
		summary: "Who am I?", doc: "The person or API client that the credentials belong to, and what they may do."},
		func(_ context.Context, c *caller, _ *nothing) (*meOut, error) {
			me := Me{User: c.Name, Role: c.Role, Metrics: c.Metrics || c.Principal == nil}
			if c.Principal != nil {
				client, err := w.parts.Book.Client(c.Principal.ID())
				if err != nil {
					return nil, ofClient(c.Principal.ID(), err)
				}
				me = Me{Client: client.ID, Workspace: client.Workspace, Grants: client.Grants, Metrics: c.Metrics}
			}
			return &meOut{Body: me}, nil
		})
}
