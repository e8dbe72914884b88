package web

import (
	"context"
	"net"
	"net/http"
	"strings"

	"millrace/auth"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
)

// rule says who may call a route.
type rule struct {
	role     auth.Role // the least role of a person
	clients  bool      // API clients too, within their grants
	loopback bool      // anybody on the machine itself, without signing in
}

// caller is who makes this request. The zero caller is nobody.
type caller struct {
	auth.Caller
	policy   *auth.Policy // set for API clients
	known    bool
	loopback bool
}

// mayRead says whether the value of a topic may be shown to the caller.
func (c *caller) mayRead(path string) bool {
	return c.policy == nil || c.policy.MayReceive(auth.ScopeUNS, path)
}

// couldRead says whether any topic that matches filter may be shown to the caller.
func (c *caller) couldRead(filter string) bool {
	return c.policy == nil || c.policy.CouldReceive(auth.ScopeUNS, filter)
}

type callerKey struct{}

func callerOf(ctx context.Context) *caller { return ctx.Value(callerKey{}).(*caller) }

// whois resolves the credentials of a request. Wrong credentials are a problem even where none are needed.
func (w *Web) whois(r *http.Request) (*caller, *Problem) {
	if r.Context().Value(localKey{}) != nil {
		return &caller{Caller: auth.Caller{Name: "local", Role: auth.RoleAdmin, Metrics: true}, known: true, loopback: true}, nil
	}
	c := &caller{loopback: fromLoopback(r)}
	header := r.Header.Get("Authorization")
	if header == "" {
		return c, nil
	}
	scheme, rest, _ := strings.Cut(header, " ")
	switch {
	case strings.EqualFold(scheme, "Bearer"):
		c.Caller, c.known = w.parts.Book.Bearer(strings.TrimSpace(rest))
	case strings.EqualFold(scheme, "Basic"):
		if id, secret, ok := r.BasicAuth(); ok {
			c.Name = id
			var limited bool
			if c.Principal, c.known, limited = w.signIn(r, id, secret); limited {
				p := problem(http.StatusTooManyRequests, "too_many_failures", "too many failed sign-ins as this client from this address", "try again in a minute")
				p.retry = banSeconds
				return nil, p
			}
			if c.known {
				client, err := w.parts.Book.Client(id)
				c.Metrics = err == nil && client.Metrics
			}
		}
	}
	if !c.known {
		p := problem(http.StatusUnauthorized, "bad_credentials", "the credentials are unknown, expired or disabled", "check the token, or the client's id and secret")
		p.challenge = true
		return nil, p
	}
	if c.Principal != nil {
		if c.policy = c.Principal.Policy(); c.policy == nil {
			return nil, problem(http.StatusForbidden, "disabled", "this client may do nothing at present", "an administrator can enable it")
		}
	}
	return c, nil
}

// allows says nil when the caller may use the route.
func (ru rule) allows(c *caller) *Problem {
	switch {
	case !c.known && ru.loopback && c.loopback:
		return nil
	case !c.known:
		p := problem(http.StatusUnauthorized, "unauthenticated", "this call needs a sign-in",
			"send `Authorization: Bearer TOKEN`; on the box, `millrace token add NAME --role ROLE` makes a token")
		p.challenge = true
		return p
	case c.Principal != nil && ru.clients:
		return nil
	case c.Principal != nil:
		return problem(http.StatusForbidden, "not_authorized", "API clients may use only the /uns routes that read and publish", "use a token of a person with the role "+string(ru.role))
	case c.Allows(ru.role):
		return nil
	}
	return problem(http.StatusForbidden, "not_authorized",
		"this call needs the role "+string(ru.role)+"; the token has "+string(c.Role), "use a token with the role "+string(ru.role))
}

// guard is the middleware that signs the caller in and holds them to the route's rule.
func (w *Web) guard(ctx huma.Context, next func(huma.Context)) {
	r, rw := humago.Unwrap(ctx)
	c, p := w.whois(r)
	if p == nil {
		p = ctx.Operation().Metadata[ruleKey].(rule).allows(c)
	}
	if p != nil {
		writeProblem(rw, p)
		return
	}
	next(huma.WithValue(ctx, callerKey{}, c))
}

// fromLoopback says whether the request was made on this machine by somebody who addressed it as such. A
// forwarding header means a proxy speaks for somebody else; a foreign Host name means a browser was led here by
// a page whose name was pointed at 127.0.0.1.
func fromLoopback(r *http.Request) bool {
	peer, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil || !net.ParseIP(peer).IsLoopback() {
		return false
	}
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Real-Ip", "Via"} {
		if r.Header.Get(name) != "" {
			return false
		}
	}
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return host == "localhost" || net.ParseIP(strings.Trim(host, "[]")) != nil
}
