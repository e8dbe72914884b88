package web

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"millrace/auth"
)

// UserPatch is the body of PATCH /users/{name}: a JSON merge patch (RFC 7396).
type UserPatch struct {
	Role     *auth.Role `json:"role,omitempty" doc:"viewer, operator, designer or admin"`
	Enabled  *bool      `json:"enabled,omitempty" doc:"false ends the user's sessions and keeps the user out"`
	Password *string    `json:"password,omitempty" doc:"A new password; ends the user's sessions"`
}

// UserPath is the path parameter of calls on one user. (Exported, because the REST library skips what is not.)
type UserPath struct {
	Name string `path:"name" doc:"User name; upper and lower case are the same" maxLength:"64"`
}

type userOut struct {
	ETag string `header:"ETag" doc:"The user's revision, for If-Match"`
	Body auth.User
}

type addedUserOut struct {
	Location string `header:"Location"`
	ETag     string `header:"ETag"`
	Body     auth.User
}

func userTag(u auth.User) string { return fmt.Sprintf(`"%d"`, u.Revision) }

func (w *Web) addUsers() {
	by := rule{role: auth.RoleAdmin}
	type nothing struct{}
	type listOut struct {
		Body struct {
			Users []auth.User `json:"users" doc:"By name"`
		} `nameHint:"UserList"`
	}
	register(w, route{method: http.MethodGet, path: "/users", id: "list-users", tag: "Users", rule: by, summary: "List users"},
		func(context.Context, *caller, *nothing) (*listOut, error) {
			out := &listOut{}
			out.Body.Users = w.parts.Book.Users()
			return out, nil
		})

	type addIn struct{ Body auth.NewUser }
	register(w, route{method: http.MethodPost, path: "/users", id: "add-user", tag: "Users", rule: by, status: http.StatusCreated, conflicts: []int{409},
		summary: "Add a user", doc: "A password has 8 to 256 characters of any kind; those that are tried first by whoever guesses are refused."},
		func(ctx context.Context, c *caller, in *addIn) (*addedUserOut, error) {
			u, err := w.as(c).AddUser(ctx, in.Body)
			if err != nil {
				return nil, err
			}
			return &addedUserOut{Location: apiRoot + "/users/" + url.PathEscape(u.Name), ETag: userTag(u), Body: u}, nil
		})

	register(w, route{method: http.MethodGet, path: "/users/{name}", id: "get-user", tag: "Users", rule: by, missing: true, summary: "Show one user"},
		func(_ context.Context, _ *caller, in *UserPath) (*userOut, error) {
			u, err := w.parts.Book.User(in.Name)
			return &userOut{userTag(u), u}, err
		})

	type patchIn struct {
		UserPath
		IfMatch string `header:"If-Match" doc:"Change only if the user still has this ETag; else 412"`
		RawBody []byte `contentType:"application/json"`
	}
	register(w, route{method: http.MethodPatch, path: "/users/{name}", id: "patch-user", tag: "Users", rule: by, missing: true, conflicts: []int{409, 412},
		summary: "Change a user", doc: "A JSON merge patch of role, enabled and password. Each of them ends the user's sessions at once; the last administrator stays one.",
		takes: map[string]any{"application/merge-patch+json": UserPatch{}, "application/json": UserPatch{}}},
		func(ctx context.Context, c *caller, in *patchIn) (*userOut, error) {
			patch, err := parseUserPatch(in.RawBody)
			if err != nil {
				return nil, err
			}
			if in.IfMatch != "" {
				now, err := w.parts.Book.User(in.Name)
				if err != nil {
					return nil, err
				}
				if !etagMatches(in.IfMatch, userTag(now)) {
					return nil, auth.ErrUserChanged
				}
				if strings.TrimSpace(in.IfMatch) != "*" {
					patch.Revision = now.Revision
				}
			}
			u, err := w.as(c).PatchUser(ctx, in.Name, patch)
			return &userOut{userTag(u), u}, err
		})

	type gone struct{}
	register(w, route{method: http.MethodDelete, path: "/users/{name}", id: "delete-user", tag: "Users", rule: by, missing: true, conflicts: []int{409},
		status: http.StatusNoContent, summary: "Delete a user", doc: "With their sessions and tokens. The last administrator stays."},
		func(_ context.Context, c *caller, in *UserPath) (*gone, error) {
			return nil, w.as(c).DeleteUser(in.Name)
		})
}

// parseUserPatch reads a merge patch; an absent member changes nothing, and none can be null.
func parseUserPatch(text []byte) (p auth.UserPatch, err error) {
	const example = `send for example {"role":"operator"}`
	var members map[string]json.RawMessage
	if err := plainJSON(text); err != nil {
		return p, problem(http.StatusBadRequest, "malformed", "the body cannot be read: "+jsonFault(err), example)
	}
	if err := json.Unmarshal(text, &members); err != nil || members == nil {
		return p, problem(http.StatusBadRequest, "malformed", "the body is not a JSON object", example)
	}
	for name, raw := range members {
		var err error
		switch name {
		case "role":
			p.Role = new(auth.Role)
			err = json.Unmarshal(raw, p.Role)
		case "enabled":
			p.Enabled = new(bool)
			err = json.Unmarshal(raw, p.Enabled)
		case "password":
			p.Password = new(string)
			err = json.Unmarshal(raw, p.Password)
		default:
			return p, invalid(name, "a user has no "+name+" that can be changed", "role, enabled and password can be")
		}
		if string(raw) == "null" {
			return p, invalid(name, name+" cannot be null", "leave it out to keep it")
		}
		if err != nil {
			return p, invalid(name, jsonFault(err), "")
		}
	}
	return p, nil
}
