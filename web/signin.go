package web

import (
	"context"
	"net/http"
	"time"

	"millrace/auth"
)

// cookieName is the cookie of a person's session.
const cookieName = "millrace_session"

// SignInRequest is the body of POST /session.
type SignInRequest struct {
	Username string `json:"username" doc:"User name; upper and lower case are the same"`
	Password string `json:"password"`
}

// SignedIn is the answer to a sign-in. The session itself is the cookie.
type SignedIn struct {
	User    string    `json:"user"`
	Role    auth.Role `json:"role"`
	CSRF    string    `json:"csrf" doc:"To be sent as X-CSRF-Token with every change"`
	Plant   string    `json:"plant,omitempty" doc:"The plant's name"`
	Expires time.Time `json:"expires" doc:"When the session ends at the latest"`
}

// SetUpRequest is the body of POST /setup.
type SetUpRequest struct {
	Token    string `json:"token" doc:"Of the link that millrace serve prints"`
	Password string `json:"password" doc:"Of the user admin; at least 8 characters"`
	Plant    string `json:"plant,omitempty" doc:"Name of the plant"`
}

// PasswordRequest is the body of POST /me/password.
type PasswordRequest struct {
	Current  string `json:"current" doc:"The password so far"`
	Password string `json:"password" doc:"The new one; at least 8 characters"`
}

type signedInOut struct {
	SetCookie http.Cookie `header:"Set-Cookie"`
	Body      SignedIn
}

// sessionCookie is the cookie as the browser keeps it; an empty value ends it.
func (w *Web) sessionCookie(c *caller, value string, expires time.Time) http.Cookie {
	cookie := http.Cookie{Name: cookieName, Value: value, Path: "/", HttpOnly: true, Secure: c.secure, SameSite: http.SameSiteStrictMode, MaxAge: -1}
	if value != "" {
		cookie.MaxAge = max(1, int(expires.Sub(w.now())/time.Second))
	}
	return cookie
}

func (w *Web) signedIn(c *caller, s auth.SignedIn) *signedInOut {
	return &signedInOut{SetCookie: w.sessionCookie(c, s.Cookie, s.Expires),
		Body: SignedIn{User: s.User.Name, Role: s.User.Role, CSRF: s.CSRF, Plant: w.parts.Book.Plant(), Expires: s.Expires}}
}

func (w *Web) addSignIn() {
	open := rule{anyone: true}
	type nothing struct{}
	type signInIn struct{ Body SignInRequest }
	register(w, route{method: http.MethodPost, path: "/session", id: "sign-in", tag: "Session", rule: open,
		summary: "Sign a person in",
		doc: "The answer sets the cookie " + cookieName + ". After five wrong passwords for a name from one address that address waits, longer each time (429 with Retry-After); " +
			"others are not affected."},
		func(ctx context.Context, c *caller, in *signInIn) (*signedInOut, error) {
			s, err := w.parts.Book.SignInUser(ctx, in.Body.Username, in.Body.Password, c.where())
			if err != nil {
				return nil, err
			}
			return w.signedIn(c, s), nil
		})

	type signOutOut struct {
		SetCookie http.Cookie `header:"Set-Cookie"`
	}
	register(w, route{method: http.MethodDelete, path: "/session", id: "sign-out", tag: "Session", rule: open, status: http.StatusNoContent,
		summary: "Sign out", doc: "Ends the session of the cookie. Without one nothing happens."},
		func(_ context.Context, c *caller, _ *nothing) (*signOutOut, error) {
			if err := w.parts.Book.EndSession(c.cookie, c.where()); err != nil {
				return nil, err
			}
			return &signOutOut{w.sessionCookie(c, "", time.Time{})}, nil
		})

	type stateOut struct {
		Body struct {
			Done bool `json:"done" doc:"false: the box waits for POST /setup"`
		} `nameHint:"SetUpState"`
	}
	register(w, route{method: http.MethodGet, path: "/setup", id: "get-setup", tag: "Session", rule: open,
		summary: "Is the box set up?", doc: "It is when there is an administrator."},
		func(context.Context, *caller, *nothing) (*stateOut, error) {
			out := &stateOut{}
			out.Body.Done = w.parts.Book.SetUpToken() == ""
			return out, nil
		})

	type setUpIn struct{ Body SetUpRequest }
	register(w, route{method: http.MethodPost, path: "/setup", id: "set-up", tag: "Session", rule: open, missing: true,
		summary: "Set the box up", doc: "Makes the user admin, names the plant and signs in. 404 once there is an administrator."},
		func(ctx context.Context, c *caller, in *setUpIn) (*signedInOut, error) {
			s, err := w.parts.Book.SetUp(ctx, in.Body.Token, in.Body.Password, in.Body.Plant, c.where())
			if err != nil {
				return nil, err
			}
			return w.signedIn(c, s), nil
		})

	type passwordIn struct{ Body PasswordRequest }
	register(w, route{method: http.MethodPost, path: "/me/password", id: "change-password", tag: "Session", rule: rule{role: auth.RoleViewer}, conflicts: []int{409, 412},
		summary: "Change one's own password", doc: "Only in a session. Every session of the user ends; the answer begins a new one."},
		func(ctx context.Context, c *caller, in *passwordIn) (*signedInOut, error) {
			if !c.Session {
				return nil, problem(http.StatusConflict, "no_session", "a password is changed by whoever has signed in with it",
					"sign in with the password; an administrator sets a new one on the user")
			}
			s, err := w.parts.Book.ChangePassword(ctx, c.User, in.Body.Current, in.Body.Password, c.where())
			if err != nil {
				return nil, err
			}
			return w.signedIn(c, s), nil
		})
}

// where is the caller's address as failures are counted against it.
func (c *caller) where() string {
	if c.local {
		return "admin socket"
	}
	return c.address
}
