package web

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"millrace/auth"
)

// SignIns knows who has failed too often to be asked again. *broker.Broker is one, so that a guesser gains nothing by
// changing from MQTT to HTTP.
type SignIns interface {
	// SignInBanned says whether sign-ins as client from that peer are refused at present.
	SignInBanned(address, client string) bool
	// SignInFailed counts a failed one.
	SignInFailed(address, client string)
}

// maxTokenBody bounds the form of POST /oauth/token.
const maxTokenBody = 16 << 10

// banSeconds is how long a ban lasts, for Retry-After.
const banSeconds = 60

// signIn checks an API client's id and secret within the limits on failures. limited: it was not even looked at.
func (w *Web) signIn(r *http.Request, id, secret string) (p *auth.Principal, ok, limited bool) {
	guard := w.parts.SignIns
	if guard != nil && guard.SignInBanned(r.RemoteAddr, id) {
		return nil, false, true
	}
	p, ok = w.parts.Book.SignInFrom(r.RemoteAddr, id, []byte(secret))
	if !ok && guard != nil {
		guard.SignInFailed(r.RemoteAddr, id)
	}
	return p, ok, false
}

// oauthFault is an error answer of RFC 6749, section 5.2.
type oauthFault struct {
	Error       string `json:"error"`
	Description string `json:"error_description"`
}

// addOAuth serves the two routes by which programs get tokens and check them. Their forms are those of RFC 6749 and RFC
// 7517, not those of /api/v1.
func (w *Web) addOAuth(mux *http.ServeMux) {
	mux.HandleFunc("POST /oauth/token", w.issueToken)
	mux.HandleFunc("GET /.well-known/jwks.json", w.showKeys)
}

func (w *Web) issueToken(rw http.ResponseWriter, r *http.Request) {
	fail := func(status int, code, text string) {
		writeJSON(rw, status, oauthFault{code, text})
	}
	r.Body = http.MaxBytesReader(rw, r.Body, maxTokenBody)
	if err := r.ParseForm(); err != nil {
		fail(http.StatusBadRequest, "invalid_request", "the body is not a form of at most 16 KiB: send application/x-www-form-urlencoded")
		return
	}
	form := r.PostForm
	for name, values := range form {
		if len(values) > 1 {
			fail(http.StatusBadRequest, "invalid_request", "the parameter "+strconv.Quote(name)+" is given more than once")
			return
		}
	}
	id, secret, basic := r.BasicAuth()
	switch {
	case r.Header.Get("Authorization") != "" && !basic:
		fail(http.StatusBadRequest, "invalid_request", "the Authorization header is not HTTP Basic")
		return
	case basic && (form.Has("client_id") && form.Get("client_id") != id || form.Has("client_secret")):
		fail(http.StatusBadRequest, "invalid_request", "credentials in the header and in the form: use one of them")
		return
	case basic:
		// The standard has both parts form-encoded; most programs do not. An id never holds %, a secret rarely.
		id = formDecoded(id)
	default:
		id, secret = form.Get("client_id"), form.Get("client_secret")
	}
	switch form.Get("grant_type") {
	case "client_credentials":
	case "":
		fail(http.StatusBadRequest, "invalid_request", "grant_type is missing: send grant_type=client_credentials")
		return
	default:
		fail(http.StatusBadRequest, "unsupported_grant_type", "only client_credentials is taken")
		return
	}
	p, ok, limited := w.signIn(r, id, secret)
	if !ok && !limited && basic {
		if plain := formDecoded(secret); plain != secret {
			p, ok, limited = w.signIn(r, id, plain)
		}
	}
	if limited {
		rw.Header().Set("Retry-After", strconv.Itoa(banSeconds))
		fail(http.StatusTooManyRequests, "temporarily_unavailable", "too many failed sign-ins as this client from this address: try again in a minute")
		return
	}
	if !ok {
		if basic {
			rw.Header().Set("WWW-Authenticate", `Basic realm="millrace"`)
		}
		fail(http.StatusUnauthorized, "invalid_client", "the client is unknown, disabled, or its secret is wrong")
		return
	}
	text, ttl, err := w.parts.Book.Issue(p)
	if err != nil {
		w.log.Error("an access token could not be issued", "client", id, "error", err)
		fail(http.StatusServiceUnavailable, "server_error", "the box failed to issue a token: look into its log")
		return
	}
	rw.Header().Set("Pragma", "no-cache")
	writeJSON(rw, http.StatusOK, struct {
		AccessToken string `json:"access_token"`
		TokenType   string `json:"token_type"`
		ExpiresIn   int64  `json:"expires_in"`
	}{text, "Bearer", int64(ttl.Seconds())})
}

func formDecoded(s string) string {
	if plain, err := url.QueryUnescape(s); err == nil && strings.Contains(s, "%") {
		return plain
	}
	return s
}

// jsonWebKey is an Ed25519 key as RFC 8037 writes it.
type jsonWebKey struct {
	KTY string `json:"kty"`
	CRV string `json:"crv"`
	ALG string `json:"alg"`
	USE string `json:"use"`
	KID string `json:"kid"`
	X   string `json:"x"`
}

func (w *Web) showKeys(rw http.ResponseWriter, _ *http.Request) {
	list := []jsonWebKey{}
	for _, k := range w.parts.Book.PublicKeys() {
		list = append(list, jsonWebKey{"OKP", "Ed25519", "EdDSA", "sig", k.KID, base64.RawURLEncoding.EncodeToString(k.Key)})
	}
	rw.Header().Set("Cache-Control", "public, max-age=300")
	writeJSON(rw, http.StatusOK, map[string]any{"keys": list})
}

func writeJSON(rw http.ResponseWriter, status int, body any) {
	text, err := json.Marshal(body)
	if err != nil {
		panic("web: an answer cannot be written: " + err.Error())
	}
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(status)
	rw.Write(append(text, '\n'))
}
