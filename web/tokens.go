package web

import (
	"context"
	"net/http"
	"time"

	"millrace/auth"
)

// TokenRequest is the body of POST /me/tokens.
type TokenRequest struct {
	Name string `json:"name" doc:"What the token is for, or whose it is"`
	Role string `json:"role,omitempty" doc:"viewer, operator, designer or admin; default viewer"`
	TTL  string `json:"ttl,omitempty" doc:"How long it lives, as 90d or 12h; left out = no end"`
}

// NewToken is the answer that shows a token, once.
type NewToken struct {
	ID      string     `json:"id" doc:"For DELETE /me/tokens/{id}"`
	Token   string     `json:"token" doc:"Send it as Authorization: Bearer; never shown again"`
	Name    string     `json:"name" doc:"As asked for"`
	Role    auth.Role  `json:"role" doc:"As asked for"`
	Expires *time.Time `json:"expires,omitempty" doc:"Absent: no end"`
}

func (w *Web) addTokens() {
	by := rule{role: auth.RoleAdmin}
	type nothing struct{}
	type listOut struct {
		Body struct {
			Tokens []auth.Token `json:"tokens" doc:"Oldest first"`
		} `nameHint:"TokenList"`
	}
	register(w, route{method: http.MethodGet, path: "/me/tokens", id: "list-tokens", tag: "Tokens", rule: by,
		summary: "List personal access tokens", doc: "Their text is never shown."},
		func(context.Context, *caller, *nothing) (*listOut, error) {
			out := &listOut{}
			if out.Body.Tokens = w.parts.Book.Tokens(); out.Body.Tokens == nil {
				out.Body.Tokens = []auth.Token{}
			}
			return out, nil
		})

	type addIn struct{ Body TokenRequest }
	type addOut struct{ Body NewToken }
	register(w, route{method: http.MethodPost, path: "/me/tokens", id: "add-token", tag: "Tokens", rule: by,
		status: http.StatusCreated, summary: "Make a personal access token", doc: "Its text is shown in this answer and never again."},
		func(_ context.Context, _ *caller, in *addIn) (*addOut, error) {
			role := auth.Role(in.Body.Role)
			if role == "" {
				role = auth.RoleViewer
			}
			var ttl time.Duration
			if in.Body.TTL != "" {
				var ok bool
				if ttl, ok = parseDuration(in.Body.TTL); !ok || ttl == 0 {
					return nil, invalid("ttl", "ttl is not a duration above zero", "send for example 90d or 12h, or leave it out")
				}
			}
			id, text, err := w.parts.Book.AddToken(in.Body.Name, role, ttl)
			if err != nil {
				return nil, err
			}
			out := &addOut{Body: NewToken{ID: id, Token: text, Name: in.Body.Name, Role: role}}
			if ttl > 0 {
				end := w.now().Add(ttl).UTC().Truncate(time.Millisecond)
				out.Body.Expires = &end
			}
			return out, nil
		})

	type deleteIn struct {
		ID string `path:"id" doc:"The token's id" maxLength:"64"`
	}
	register(w, route{method: http.MethodDelete, path: "/me/tokens/{id}", id: "delete-token", tag: "Tokens", rule: by,
		status: http.StatusNoContent, missing: true, summary: "End a personal access token"},
		func(_ context.Context, _ *caller, in *deleteIn) (*nothing, error) {
			return nil, w.parts.Book.DeleteToken(in.ID)
		})
}
