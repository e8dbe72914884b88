package web

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"millrace/auth"
)

// TokenRequest is the body of POST /me/tokens.
type TokenRequest struct {
	Name   string   `json:"name" doc:"What the token is for"`
	Scopes []string `json:"scopes,omitempty" doc:"read, operate, design, admin (each with those before it) and metrics (read /metrics); default read"`
	Role   string   `json:"role,omitempty" doc:"Instead of scopes: viewer, operator, designer or admin, with metrics"`
	TTL    string   `json:"ttl,omitempty" doc:"How long it lives, as 90d or 12h; left out = no end"`
}

// TokenShown is a token in lists; its text is never shown again.
type TokenShown struct {
	ID      string     `json:"id" doc:"For DELETE /me/tokens/{id}"`
	Name    string     `json:"name" doc:"What it is for"`
	User    string     `json:"user,omitempty" doc:"Whose it is; absent: made on the box, nobody's"`
	Role    auth.Role  `json:"role,omitempty" doc:"What it may do at most; its owner's role bounds it, too. Absent: read /metrics only"`
	Scopes  []string   `json:"scopes" doc:"The same as scopes"`
	Created time.Time  `json:"created"`
	Expires *time.Time `json:"expires,omitempty" doc:"Absent: no end"`
}

// NewToken is the answer that shows a token, once.
type NewToken struct {
	TokenShown
	Token string `json:"token" doc:"Send it as Authorization: Bearer; never shown again"`
}

// scopeRoles are the scopes that stand for a role, least first; a role's own name is taken for its scope.
var scopeRoles = []struct {
	scope string
	role  auth.Role
}{{"read", auth.RoleViewer}, {"operate", auth.RoleOperator}, {"design", auth.RoleDesigner}, {"admin", auth.RoleAdmin}}

const metricsScope = "metrics"

func showToken(t auth.Token) TokenShown {
	s := TokenShown{ID: t.ID, Name: t.Name, User: t.Owner, Role: t.Role, Scopes: []string{}, Created: t.Created, Expires: t.Expires}
	for _, sr := range scopeRoles {
		if t.Role.Allows(sr.role) {
			s.Scopes = append(s.Scopes, sr.scope)
		}
	}
	if t.Metrics {
		s.Scopes = append(s.Scopes, metricsScope)
	}
	return s
}

// asked is what a request comes to, for the caller.
func (in *TokenRequest) asked(c *caller) (n auth.NewToken, err error) {
	n = auth.NewToken{Name: in.Name, Owner: c.User}
	switch {
	case in.Role != "" && len(in.Scopes) > 0:
		return n, invalid("role", "role and scopes are both given", "send one of them")
	case in.Role != "":
		n.Role, n.Metrics = auth.Role(in.Role), true
	case len(in.Scopes) == 0:
		n.Role = auth.RoleViewer
	}
scopes:
	for _, scope := range in.Scopes {
		if scope == metricsScope {
			n.Metrics = true
			continue
		}
		for _, sr := range scopeRoles {
			if scope == sr.scope || scope == string(sr.role) {
				if !n.Role.Allows(sr.role) {
					n.Role = sr.role
				}
				continue scopes
			}
		}
		return n, invalid("scopes", "there is no scope "+strconv.Quote(scope), "the scopes are read, operate, design, admin and metrics")
	}
	if in.TTL != "" {
		var ok bool
		if n.TTL, ok = parseDuration(in.TTL); !ok || n.TTL == 0 {
			return n, invalid("ttl", "ttl is not a duration above zero", "send for example 90d or 12h, or leave it out")
		}
	}
	if n.Role.Allows(auth.RoleViewer) && !c.Allows(n.Role) {
		field := "scopes"
		if in.Role != "" {
			field = "role"
		}
		return n, invalid(field, "the token would have the role "+string(n.Role)+"; yours is "+string(c.Role), "ask for less")
	}
	return n, nil
}

// minds says whether a caller may see and end a token: their own, and an administrator everybody's.
func minds(c *caller, t auth.Token) bool {
	return c.Allows(auth.RoleAdmin) || c.User != "" && strings.EqualFold(t.Owner, c.User)
}

func (w *Web) addTokens() {
	by := rule{role: auth.RoleViewer}
	type listIn struct {
		All bool `query:"all" doc:"Those of everybody; for administrators"`
	}
	type listOut struct {
		Body struct {
			Tokens []TokenShown `json:"tokens" doc:"Oldest first"`
		} `nameHint:"TokenList"`
	}
	register(w, route{method: http.MethodGet, path: "/me/tokens", id: "list-tokens", tag: "Tokens", rule: by,
		summary: "List personal access tokens", doc: "One's own; on the box, and with `all` for an administrator, everybody's. Their text is never shown."},
		func(_ context.Context, c *caller, in *listIn) (*listOut, error) {
			out := &listOut{}
			out.Body.Tokens = []TokenShown{}
			all := in.All || c.User == ""
			for _, t := range w.parts.Book.Tokens() {
				if minds(c, t) && (all || strings.EqualFold(t.Owner, c.User)) {
					out.Body.Tokens = append(out.Body.Tokens, showToken(t))
				}
			}
			return out, nil
		})

	type addIn struct{ Body TokenRequest }
	type addOut struct{ Body NewToken }
	register(w, route{method: http.MethodPost, path: "/me/tokens", id: "add-token", tag: "Tokens", rule: by,
		status: http.StatusCreated, summary: "Make a personal access token",
		doc: "Its text is shown in this answer and never again. It belongs to the user who makes it, may do no more than they, and ends with them. " +
			"A token makes no further token, unless it is an administrator's."},
		func(_ context.Context, c *caller, in *addIn) (*addOut, error) {
			if c.Token != "" && !c.Allows(auth.RoleAdmin) {
				return nil, problem(http.StatusForbidden, "not_authorized", "a token makes no further token: it could live for ever", "sign in with the password")
			}
			n, err := in.Body.asked(c)
			if err != nil {
				return nil, err
			}
			t, text, err := w.as(c).MakeToken(n)
			if err != nil {
				return nil, err
			}
			return &addOut{Body: NewToken{showToken(t), text}}, nil
		})

	type deleteIn struct {
		ID string `path:"id" doc:"The token's id" maxLength:"64"`
	}
	type nothing struct{}
	register(w, route{method: http.MethodDelete, path: "/me/tokens/{id}", id: "delete-token", tag: "Tokens", rule: by,
		status: http.StatusNoContent, missing: true, summary: "End a personal access token", doc: "One's own; an administrator ends everybody's."},
		func(_ context.Context, c *caller, in *deleteIn) (*nothing, error) {
			for _, t := range w.parts.Book.Tokens() {
				if t.ID == in.ID && minds(c, t) {
					return nil, w.as(c).DeleteToken(in.ID)
				}
			}
			return nil, auth.ErrNoToken
		})
}
