package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"millrace/auth"
)

// Credentials is the answer that shows a secret, once.
type Credentials struct {
	ClientID     string `json:"client_id" doc:"MQTT user name"`
	ClientSecret string `json:"client_secret" doc:"MQTT password; never shown again"`
	Workspace    string `json:"workspace" doc:"The workspace the client belongs to"`
}

// ClientPatch is the body of PATCH /clients/{id}: a JSON merge patch (RFC 7396).
type ClientPatch struct {
	Description *string       `json:"description,omitempty" doc:"null clears it"`
	Enabled     *bool         `json:"enabled,omitempty" doc:"false ends the client's sessions within a second"`
	Grants      *[]auth.Grant `json:"grants,omitempty" doc:"Replaces every grant; null takes all away"`
}

// ClientPath is the path parameter of calls on one client. (Exported, because the REST library skips what is not.)
type ClientPath struct {
	ID string `path:"id" doc:"Client id" maxLength:"64"`
}

type clientOut struct {
	ETag string `header:"ETag" doc:"The client's revision, for If-Match"`
	Body auth.Client
}

type credentialsOut struct {
	Location string `header:"Location"`
	ETag     string `header:"ETag"`
	Body     Credentials
}

func (w *Web) addClients() {
	by := rule{role: auth.RoleAdmin}
	type nothing struct{}
	type listOut struct {
		Body struct {
			Clients []auth.Client `json:"clients" doc:"Every client, by id"`
		} `nameHint:"ClientList"`
	}
	register(w, route{method: http.MethodGet, path: "/clients", id: "list-clients", tag: "Clients", rule: by,
		summary: "List API clients", doc: "Every API client with its grants. Secrets are never shown."},
		func(context.Context, *caller, *nothing) (*listOut, error) {
			out := &listOut{}
			if out.Body.Clients = w.parts.Book.Clients(); out.Body.Clients == nil {
				out.Body.Clients = []auth.Client{}
			}
			return out, nil
		})

	type addIn struct{ Body auth.NewClient }
	register(w, route{method: http.MethodPost, path: "/clients", id: "add-client", tag: "Clients", rule: by,
		status: http.StatusCreated, conflicts: []int{409}, summary: "Add an API client",
		doc: "Makes one client and shows its secret, once. Without `secret` one is generated."},
		func(_ context.Context, c *caller, in *addIn) (*credentialsOut, error) {
			return w.addClient(c, in.Body)
		})
	w.addBulk(by)

	register(w, route{method: http.MethodGet, path: "/clients/{id}", id: "get-client", tag: "Clients", rule: by,
		missing: true, summary: "Show one API client"},
		func(_ context.Context, _ *caller, in *ClientPath) (*clientOut, error) {
			c, err := w.parts.Book.Client(in.ID)
			return shown(c), ofClient(in.ID, err)
		})

	type patchIn struct {
		ClientPath
		IfMatch string `header:"If-Match" doc:"Change only if the client still has this ETag; else 412"`
		RawBody []byte `contentType:"application/json"`
	}
	register(w, route{method: http.MethodPatch, path: "/clients/{id}", id: "patch-client", tag: "Clients", rule: by,
		missing: true, conflicts: []int{412}, summary: "Change an API client",
		doc:   "A JSON merge patch of description, enabled and grants. Acts on live sessions within a second.",
		takes: map[string]any{"application/merge-patch+json": ClientPatch{}, "application/json": ClientPatch{}}},
		func(_ context.Context, by *caller, in *patchIn) (*clientOut, error) {
			patch, err := parseClientPatch(in.RawBody)
			if err != nil {
				return nil, err
			}
			if in.IfMatch != "" {
				now, err := w.parts.Book.Client(in.ID)
				if err != nil {
					return nil, ofClient(in.ID, err)
				}
				if !etagMatches(in.IfMatch, etag(now)) {
					return nil, ofClient(in.ID, auth.ErrChanged)
				}
				if strings.TrimSpace(in.IfMatch) != "*" { // which asks only that the client be there
					patch.Revision = now.Revision
				}
			}
			c, err := w.as(by).Patch(in.ID, patch)
			return shown(c), ofClient(in.ID, err)
		})

	type gone struct{}
	register(w, route{method: http.MethodDelete, path: "/clients/{id}", id: "delete-client", tag: "Clients", rule: by,
		missing: true, status: http.StatusNoContent, summary: "Delete an API client", doc: "Its sessions end; its values stay."},
		func(_ context.Context, by *caller, in *ClientPath) (*gone, error) {
			return nil, ofClient(in.ID, w.as(by).Delete(in.ID))
		})

	w.addCheck(by)

	type rotateIn struct {
		ClientPath
		Body *struct {
			Secret string `json:"secret,omitempty" doc:"At least 24 characters; generated when left out"`
		} `nameHint:"RotateRequest"`
	}
	type rotateOut struct {
		Body Credentials
	}
	register(w, route{method: http.MethodPost, path: "/clients/{id}/rotate", id: "rotate-client", tag: "Clients", rule: by,
		missing: true, summary: "Give an API client a new secret", doc: "The old secret ends at once, and the sessions that used it."},
		func(_ context.Context, by *caller, in *rotateIn) (*rotateOut, error) {
			secret := ""
			if in.Body != nil {
				secret = in.Body.Secret
			}
			fresh, err := w.as(by).Rotate(in.ID, secret)
			if err != nil {
				return nil, ofClient(in.ID, err)
			}
			c, err := w.parts.Book.Client(in.ID)
			if err != nil {
				return nil, ofClient(in.ID, err)
			}
			return &rotateOut{Body: Credentials{c.ID, fresh, c.Workspace}}, nil
		})
}

func (w *Web) addClient(by *caller, n auth.NewClient) (*credentialsOut, error) {
	added, err := w.as(by).AddAll([]auth.NewClient{n})
	if err != nil {
		return nil, err
	}
	if len(added) != 1 {
		return nil, fmt.Errorf("web: one client was added, %d answers came", len(added))
	}
	if added[0].Err != nil {
		return nil, ofClient(n.ID, added[0].Err)
	}
	c := added[0].Client
	return &credentialsOut{
		Location: apiRoot + "/clients/" + url.PathEscape(c.ID),
		ETag:     etag(c),
		Body:     Credentials{c.ID, added[0].Secret, c.Workspace},
	}, nil
}

// ofClient lets a problem about a client as a whole name it: a script that adds many needs to know which.
func ofClient(id string, err error) error {
	switch {
	case errors.Is(err, auth.ErrExists), errors.Is(err, auth.ErrNotFound), errors.Is(err, auth.ErrChanged):
		p := problemOf(err)
		p.Detail = fmt.Sprintf("client %q: %s", id, p.Detail)
		return p
	}
	return err
}

func shown(c auth.Client) *clientOut { return &clientOut{ETag: etag(c), Body: c} }

func etag(c auth.Client) string { return fmt.Sprintf(`"%d"`, c.Revision) }

// etagMatches takes the list form of If-Match; `*` matches whatever is there.
func etagMatches(header, tag string) bool {
	for part := range strings.SplitSeq(header, ",") {
		if part = strings.TrimSpace(part); part == "*" || part == tag {
			return true
		}
	}
	return false
}

// parseClientPatch reads a merge patch; a null member clears, an absent one changes nothing.
func parseClientPatch(text []byte) (auth.Patch, error) {
	var members map[string]json.RawMessage
	if err := plainJSON(text); err != nil {
		return auth.Patch{}, problem(http.StatusBadRequest, "malformed", "the body cannot be read: "+jsonFault(err), `send for example {"enabled":false}`)
	}
	if err := json.Unmarshal(text, &members); err != nil || members == nil {
		return auth.Patch{}, problem(http.StatusBadRequest, "malformed", "the body is not a JSON object", `send for example {"enabled":false}`)
	}
	var patch auth.Patch
	for name, raw := range members {
		null := string(raw) == "null"
		var err error
		switch name {
		case "description":
			patch.Description = new(string)
			err = json.Unmarshal(raw, patch.Description)
		case "enabled":
			if null {
				return auth.Patch{}, invalid(name, "enabled cannot be null", "send true or false")
			}
			patch.Enabled = new(bool)
			err = json.Unmarshal(raw, patch.Enabled)
		case "grants":
			patch.Grants = &[]auth.Grant{}
			if !null {
				err = strictJSON(raw, patch.Grants)
			}
		default:
			return auth.Patch{}, invalid(name, "a client has no "+name+" that can be changed", "description, enabled and grants can be")
		}
		if err != nil {
			return auth.Patch{}, invalid(name, jsonFault(err), "")
		}
	}
	return patch, nil
}
