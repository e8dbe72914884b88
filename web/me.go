package web

import (
	"context"
	"net/http"

	"millrace/auth"
)

// Me is who the caller is to the box.
type Me struct {
	User        string       `json:"user,omitempty" doc:"The user; for a token of nobody's its name; local through the admin socket"`
	Role        auth.Role    `json:"role,omitempty" doc:"What the person may do"`
	Permissions *Permissions `json:"permissions,omitempty" doc:"The same as flags"`
	CSRF        string       `json:"csrf,omitempty" doc:"In a session: to be sent as X-CSRF-Token with every change"`
	Plant       string       `json:"plant,omitempty" doc:"The plant's name"`
	Client      string       `json:"client,omitempty" doc:"Id, for an API client"`
	Workspace   string       `json:"workspace,omitempty" doc:"Of an API client"`
	Grants      []auth.Grant `json:"grants,omitempty" doc:"Of an API client"`
	Metrics     bool         `json:"metrics" doc:"May read /metrics from elsewhere"`
}

// Permissions are what a role comes to.
type Permissions struct {
	Read       bool `json:"read" doc:"Topics, values, history, sessions"`
	Operate    bool `json:"operate" doc:"Publish test values"`
	Design     bool `json:"design" doc:"Change topics"`
	Administer bool `json:"administer" doc:"Clients, users, tokens of others, audit log, keys"`
}

func (w *Web) addMe() {
	type nothing struct{}
	type meOut struct{ Body Me }
	register(w, route{method: http.MethodGet, path: "/me", id: "get-me", tag: "Session", rule: rule{role: auth.RoleViewer, clients: true},
		summary: "Who am I?", doc: "The person or API client that the credentials belong to, and what they may do."},
		func(_ context.Context, c *caller, _ *nothing) (*meOut, error) {
			if c.Principal != nil {
				client, err := w.parts.Book.Client(c.Principal.ID())
				if err != nil {
					return nil, ofClient(c.Principal.ID(), err)
				}
				return &meOut{Body: Me{Client: client.ID, Workspace: client.Workspace, Grants: client.Grants, Metrics: c.Metrics}}, nil
			}
			me := Me{User: c.Name, Role: c.Role, Metrics: c.Metrics || c.Allows(auth.RoleViewer), Plant: w.parts.Book.Plant(), Permissions: &Permissions{
				c.Allows(auth.RoleViewer), c.Allows(auth.RoleOperator), c.Allows(auth.RoleDesigner), c.Allows(auth.RoleAdmin)}}
			if c.User != "" {
				me.User = c.User
			}
			if c.Session {
				me.CSRF = w.parts.Book.CSRF(c.cookie)
			}
			return &meOut{Body: me}, nil
		})
}
