package web

import (
	"context"
	"crypto/subtle"
	"errors"
	"net"
	"net/http"
	"net/url"
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
	anyone   bool      // whoever asks: the ways to sign in
}

// caller is who makes this request. The zero caller is nobody.
type caller struct {
	auth.Caller
	policy   *auth.Policy // set for API clients
	known    bool
	loopback bool
	local    bool   // through the admin socket
	address  string // of the peer
	cookie   string // of the session, also of one that has ended
	secure   bool   // the browser speaks HTTPS, to us or to a proxy
}

// actor is the caller as the audit log names them.
func (c *caller) actor() auth.Actor {
	a := auth.Actor{Kind: auth.ByNobody, Name: c.Name, Address: c.address}
	switch {
	case c.local:
		a = auth.Actor{Kind: auth.ByLocal, Name: c.Name, Address: "admin socket"}
	case c.Principal != nil:
		a.Kind = auth.ByClient
	case c.Session:
		a.Kind = auth.ByUser
	case c.Token != "":
		a.Kind, a.Token = auth.ByToken, c.Token
		if c.User != "" {
			a.Name = c.User
		}
	}
	return a
}

// as is the book in the caller's hand.
func (w *Web) as(c *caller) auth.Acting { return w.parts.Book.As(c.actor()) }

// noted writes what was done outside of the book to the audit log and hands err on. What was refused changed nothing and is not
// noted; what failed may have.
func (w *Web) noted(c *caller, done auth.Event, err error) error {
	if err != nil {
		p := problemOf(err)
		if p.Status < 500 {
			return err
		}
		done.Result, done.Detail = auth.ResultFailed, p.Code
	}
	return errors.Join(err, w.as(c).Note(done))
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
		return &caller{Caller: auth.Caller{Name: "local", Role: auth.RoleAdmin, Metrics: true}, known: true, loopback: true, local: true}, nil
	}
	c := &caller{loopback: fromLoopback(r), address: r.RemoteAddr, secure: r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https"}
	header := r.Header.Get("Authorization")
	if header == "" {
		return c, w.bySession(c, r)
	}
	scheme, rest, _ := strings.Cut(header, " ")
	switch {
	case strings.EqualFold(scheme, "Bearer"):
		c.Caller, c.known = w.parts.Book.Bearer(strings.TrimSpace(rest))
	case strings.EqualFold(scheme, "Basic"):
		if id, secret, ok := r.BasicAuth(); ok && strings.HasPrefix(secret, "mr_") {
			// Programs that know user and password only, as data sources do, send a token as the password.
			c.Caller, c.known = w.parts.Book.Bearer(secret)
			c.known = c.known && (id == "" || id == c.User || id == c.Token)
		} else if ok {
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

// bySession takes the caller from the cookie of a session. One that has ended is as good as none. What changes something must
// carry the session's own word beside the cookie, which a page of somebody else's cannot know, and must not come from such a page.
func (w *Web) bySession(c *caller, r *http.Request) *Problem {
	cookie, err := r.Cookie(cookieName)
	if err != nil {
		return nil
	}
	c.cookie = cookie.Value
	c.Caller, c.known = w.parts.Book.Session(cookie.Value)
	if !c.known {
		return nil
	}
	if r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodOptions {
		return nil
	}
	if p := foreignOrigin(r); p != nil {
		return p
	}
	if word := r.Header.Get("X-CSRF-Token"); subtle.ConstantTimeCompare([]byte(word), []byte(w.parts.Book.CSRF(cookie.Value))) != 1 {
		return problem(http.StatusForbidden, "csrf", "a change by cookie needs the header X-CSRF-Token with the session's csrf", "send the csrf that the sign-in gave; /me gives it again")
	}
	return nil
}

// foreignOrigin refuses what a browser sends on behalf of a page of another origin.
func foreignOrigin(r *http.Request) *Problem {
	site, origin := r.Header.Get("Sec-Fetch-Site"), r.Header.Get("Origin")
	if origin == "" && (site == "" || site == "same-origin" || site == "none") {
		return nil
	}
	if u, err := url.Parse(origin); origin != "" && err == nil && u.Host != "" && strings.EqualFold(barePort(u.Host), barePort(r.Host)) {
		return nil
	}
	return problem(http.StatusForbidden, "foreign_origin", "a page of another origin may not sign in or change anything here",
		"open the box's own page; a proxy in front has to pass the Host header on as the browser sent it")
}

// barePort leaves out the ports that go without saying.
func barePort(host string) string {
	return strings.TrimSuffix(strings.TrimSuffix(host, ":443"), ":80")
}

// allows says nil when the caller may use the route.
func (ru rule) allows(c *caller) *Problem {
	switch {
	case ru.anyone, !c.known && ru.loopback && c.loopback:
		return nil
	case !c.known:
		p := problem(http.StatusUnauthorized, "unauthenticated", "this call needs a sign-in",
			"sign in, or send `Authorization: Bearer TOKEN`; on the box, `millrace token add NAME --role ROLE` makes a token")
		p.challenge = true
		return p
	case c.Principal != nil && ru.clients:
		return nil
	case c.Principal != nil:
		return problem(http.StatusForbidden, "not_authorized", "API clients may use only the /uns routes that read and publish", "use a token of a person with the role "+string(ru.role))
	case c.Allows(ru.role):
		return nil
	}
	have := "; yours is " + string(c.Role)
	if c.Role == "" {
		have = "; the token reads /metrics only"
	}
	return problem(http.StatusForbidden, "not_authorized",
		"this call needs the role "+string(ru.role)+have, "sign in as, or use a token with, the role "+string(ru.role))
}

// guard is the middleware that signs the caller in and holds them to the route's rule.
func (w *Web) guard(ctx huma.Context, next func(huma.Context)) {
	r, rw := humago.Unwrap(ctx)
	c, p := w.whois(r)
	ru := ctx.Operation().Metadata[ruleKey].(rule)
	if p == nil {
		if p = ru.allows(c); p != nil && c.known {
			w.as(c).Refused(ctx.Operation().OperationID, "role "+string(c.Role))
		}
	}
	if p == nil && ru.anyone && r.Method != http.MethodGet {
		p = foreignOrigin(r) // nobody signs a visitor in as somebody else
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
