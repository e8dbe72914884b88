package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"millrace/auth"
	"millrace/historian"
	"millrace/pipeline/node"
	"millrace/uns"

	"github.com/danielgtaylor/huma/v2"
)

// errBusy: every slot for large reads is taken.
var errBusy = errors.New("web: busy")

// errExports: every slot for exports is taken.
var errExports = errors.New("web: too many exports")

// Problem is the body of every error answer (RFC 9457, application/problem+json).
type Problem struct {
	Type   string      `json:"type" doc:"urn:millrace:problem: followed by the code"`
	Title  string      `json:"title" doc:"Short name of the status"`
	Status int         `json:"status" doc:"HTTP status"`
	Code   string      `json:"code" doc:"What went wrong, for programs"`
	Detail string      `json:"detail" doc:"What went wrong, for people"`
	Field  string      `json:"field,omitempty" doc:"The parameter or body member at fault"`
	Remedy string      `json:"remedy,omitempty" doc:"What to do about it"`
	Lines  []LineFault `json:"lines,omitempty" doc:"Bulk only: each line at fault"`

	// Faults is the list of a definition that was refused.
	Faults []node.Fault `json:"faults,omitempty" doc:"Definitions only: everything that is wrong, with node and field"`

	retry     int    // Retry-After in seconds, 0 = none
	challenge bool   // WWW-Authenticate
	allow     string // Allow
	cause     error  // for the log, never shown
}

// LineFault is one refused line of a bulk request.
type LineFault struct {
	Line   int    `json:"line" doc:"Line (NDJSON) or place in the array, from 1"`
	ID     string `json:"id,omitempty" doc:"Client id on that line"`
	Code   string `json:"code" doc:"As in the problem's code"`
	Field  string `json:"field,omitempty" doc:"The member at fault"`
	Detail string `json:"detail" doc:"What is wrong with it"`
}

// Error is the detail.
func (p *Problem) Error() string { return p.Detail }

// GetStatus lets the REST library answer with the problem's own status.
func (p *Problem) GetStatus() int { return p.Status }

// ContentType names problem+json in answers.
func (p *Problem) ContentType(string) string { return "application/problem+json" }

// GetHeaders are the headers that belong to the problem.
func (p *Problem) GetHeaders() http.Header {
	h := http.Header{}
	if p.retry > 0 {
		h.Set("Retry-After", strconv.Itoa(p.retry))
	}
	if p.challenge {
		// Basic works too but is not offered: browsers would cover the page's own form with their dialog.
		h.Set("WWW-Authenticate", `Bearer realm="millrace"`)
	}
	if p.allow != "" {
		h.Set("Allow", p.allow)
	}
	return h
}

func problem(status int, code, detail, remedy string) *Problem {
	return &Problem{
		Type: "urn:millrace:problem:" + code, Title: http.StatusText(status), Status: status,
		Code: code, Detail: detail, Remedy: remedy,
	}
}

// invalid is a refused parameter or body member.
func invalid(field, detail, remedy string) *Problem {
	p := problem(http.StatusUnprocessableEntity, "invalid", detail, remedy)
	p.Field = field
	return p
}

// errorRows is the table from the parts' errors to answers; the first row that matches decides. An empty detail
// is the error's own text.
var errorRows = []struct {
	is                   error
	status, retry        int
	code, detail, remedy string
}{
	{auth.ErrNotFound, 404, 0, "client_not_found", "there is no client of this id", "list the clients with GET /api/v1/clients"},
	{auth.ErrExists, 409, 0, "client_exists", "a client of this id exists already", "choose another id, or rotate the secret of the existing one"},
	{auth.ErrChanged, 412, 0, "changed_meanwhile", "the client was changed by somebody else since it was read", "read it again and repeat the change"},
	{auth.ErrNoToken, 404, 0, "token_not_found", "there is no token of this id", "list the tokens with GET /api/v1/me/tokens"},
	{auth.ErrNoUser, 404, 0, "user_not_found", "there is no user of this name", "list the users with GET /api/v1/users"},
	{auth.ErrUserExists, 409, 0, "user_exists", "a user of this name exists already", "choose another name; upper and lower case are the same"},
	{auth.ErrUserChanged, 412, 0, "changed_meanwhile", "the user was changed by somebody else since it was read", "read it again and repeat the change"},
	{auth.ErrLastAdmin, 409, 0, "last_admin", "this is the last administrator who can sign in", "make another administrator first"},
	{auth.ErrBusy, 503, 1, "busy", "too many passwords are being checked at once", "try again in a second"},
	{auth.ErrCredentials, 401, 0, "bad_credentials", "the user is unknown or disabled, or the password is wrong", "check name and password; an administrator can set a new one"},
	{auth.ErrNoVault, 409, 0, "no_key_file", "the box has no key file", "name one with auth.keyFile and start the box anew"},
	{auth.ErrSetUpDone, 404, 0, "set_up_done", "the box is set up already", "sign in"},
	{auth.ErrSetUpToken, 403, 0, "wrong_token", "this is not the token of the box's set-up link", "take the link that `millrace serve` printed at its last start"},
	{auth.ErrClosed, 503, 5, "stopping", "the box is stopping; nothing was changed", "send again when it is back"},
	{historian.ErrStalled, 503, 5, "storage_stalled", "the box is not taking values: its disk is full or does not answer; nothing was stored", "free disk space or check the disk, then send again; GET /api/v1/status shows the state"},
	{historian.ErrClosed, 503, 5, "stopping", "the box is stopping; nothing was stored", "send again when it is back"},
	{errExports, 503, 10, "busy", "too many exports are running", "start it again when one has ended, or read pages with GET /api/v1/uns/history"},
	{errBusy, 503, 1, "busy", "too many large reads are running", "ask again in a moment, or for less at once"},
	{context.DeadlineExceeded, 503, 5, "timeout", "the box did not finish in time", "ask for less, or again later"},
	{context.Canceled, 503, 5, "cancelled", "the request was given up before its end", "send it again"},
}

// problemOf turns any error of a handler into its answer. What no row knows is our failure: 500, its text goes
// to the log only.
func problemOf(err error) *Problem {
	var p *Problem
	if errors.As(err, &p) {
		return p
	}
	var fault *auth.Fault
	if errors.As(err, &fault) {
		return invalid(fault.Field, fault.Message, "")
	}
	var locked *auth.LockedError
	if errors.As(err, &locked) {
		seconds := int((locked.Wait + time.Second - 1) / time.Second)
		p := problem(http.StatusTooManyRequests, "too_many_failures", "too many failed sign-ins from here: the password was not looked at",
			"try again in "+strconv.Itoa(seconds)+" s")
		p.retry = seconds
		return p
	}
	var setting *uns.SettingFault
	if errors.As(err, &setting) {
		return invalid(setting.Field, setting.Message, "")
	}
	for _, row := range errorRows {
		if errors.Is(err, row.is) {
			p = problem(row.status, row.code, row.detail, row.remedy)
			p.retry = row.retry
			return p
		}
	}
	p = problem(http.StatusInternalServerError, "internal", "the box failed to answer this request", "look into the box's log; if it stays, report it")
	p.cause = err
	return p
}

// statusCodes are the codes of problems that the REST library itself reports before a handler runs.
var statusCodes = map[int]struct{ code, remedy string }{
	http.StatusBadRequest:            {"malformed", "send a body of valid JSON"},
	http.StatusNotAcceptable:         {"not_acceptable", "ask for application/json"},
	http.StatusRequestTimeout:        {"timeout", "send the body faster"},
	http.StatusRequestEntityTooLarge: {"too_large", "send less in one request"},
	http.StatusUnsupportedMediaType:  {"unsupported_media_type", "send application/json"},
	http.StatusUnprocessableEntity:   {"invalid", "the parameters are described at /api/v1/docs"},
}

// reshape gives the REST library's own errors the shape of a Problem. It runs as a response transformer, so no
// package variable of the library has to be replaced.
func reshape(_ huma.Context, _ string, body any) (any, error) {
	model, ok := body.(*huma.ErrorModel)
	if !ok {
		return body, nil
	}
	known, ok := statusCodes[model.Status]
	if !ok {
		known.code = "internal"
	}
	p := problem(model.Status, known.code, model.Detail, known.remedy)
	var parts []string
	for i, e := range model.Errors {
		if e == nil {
			continue
		}
		at := bareLocation(e.Location)
		if i == 0 {
			p.Field = at
		}
		if at != "" {
			parts = append(parts, at+": "+e.Message)
		} else {
			parts = append(parts, e.Message)
		}
	}
	if len(parts) > 0 && model.Status < 500 {
		p.Detail = strings.Join(parts, "; ")
	}
	return p, nil
}

// bareLocation strips the part of the request from a location: query.limit → limit.
func bareLocation(at string) string {
	for _, part := range []string{"body.", "query.", "path.", "header."} {
		if rest, ok := strings.CutPrefix(at, part); ok {
			return rest
		}
	}
	return at
}

// writeProblem answers outside the REST library.
func writeProblem(rw http.ResponseWriter, p *Problem) {
	for name, values := range p.GetHeaders() {
		rw.Header()[name] = values
	}
	rw.Header().Set("Content-Type", "application/problem+json")
	rw.Header().Del("Content-Length")
	rw.WriteHeader(p.Status)
	body, err := json.Marshal(p)
	if err != nil {
		panic(fmt.Sprintf("web: problem cannot be written: %v", err))
	}
	rw.Write(append(body, '\n'))
}
