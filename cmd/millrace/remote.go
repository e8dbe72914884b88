package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"millrace/web"
)

// remote is a running box seen through its REST interface.
type remote struct {
	http  *http.Client
	root  string // up to and including /api/v1
	token string
	where string // for error texts
	match string // If-Match of changes; "" = whatever is there
}

// ifStill is the same box, whose changes are refused unless the thing changed still has this revision.
func (r *remote) ifStill(revision uint64) *remote {
	at := *r
	at.match = strconv.Quote(strconv.FormatUint(revision, 10))
	return &at
}

// connect finds the box: --url, else the admin socket of the data folder.
func (g *globals) connect(con console) (*remote, error) {
	if g.URL != "" {
		u, err := url.Parse(g.URL)
		if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
			return nil, usageError{fmt.Sprintf("--url %q is not an address like http://127.0.0.1:8080", g.URL)}
		}
		return &remote{http: &http.Client{}, root: strings.TrimRight(g.URL, "/") + "/api/v1", token: g.Token, where: g.URL}, nil
	}
	c, err := loadConfig(g.Config, con.env, g.flags())
	if err != nil {
		return nil, err
	}
	socket := filepath.Join(c.Data, "admin.sock")
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return web.DialSocket(ctx, socket)
	}
	return &remote{http: &http.Client{Transport: &http.Transport{DialContext: dial}}, root: "http://box/api/v1", where: socket}, nil
}

// problem is an answer of application/problem+json (RFC 9457).
type problem struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Code   string `json:"code"`
	Detail string `json:"detail"`
	Field  string `json:"field"`
	Remedy string `json:"remedy"`
	Lines  []struct {
		Line   int    `json:"line"`
		ID     string `json:"id"`
		Field  string `json:"field"`
		Detail string `json:"detail"`
	} `json:"lines"`
	Faults []faultShown `json:"faults"`
}

// commandFor names the command that does what a route does: whoever types commands is not helped by a route.
var commandFor = []struct{ route, command string }{
	{"GET /api/v1/clients", "`millrace client list`"},
	{"GET /api/v1/users", "`millrace user list`"},
	{"GET /api/v1/me/tokens", "`millrace token list`"},
	{"GET /api/v1/uns/search", "`millrace topic list`"},
	{"read pages with GET /api/v1/uns/history", "read pages with `millrace history get`"},
	{"GET /api/v1/backup tells how far it is, DELETE gives it up", "`millrace backup status` tells how far it is"},
	{"POST /api/v1/pipelines/validate lists", "`millrace pipeline validate` lists"},
	{"list the pipelines with GET /api/v1/pipelines", "list the pipelines with `millrace pipeline list`"},
	{"list the versions with GET /api/v1/pipelines/{id}/versions", "list the versions with `millrace pipeline versions`"},
	{"GET /api/v1/pipelines/{id}/runs", "`millrace run list`"},
	{"change it with PUT /api/v1/pipelines/{id}", "change it with `millrace pipeline apply`"},
	{"POST /api/v1/pipelines/{id}/deploy makes", "`millrace pipeline deploy` makes"},
	{"GET /api/v1/status shows the state", "the box's log and its status page show the state"},
	{"the parameters are described at /api/v1/docs", "see --help"},
	{"the routes are listed at /api/v1/docs", "is the box of another version?"},
}

// remedyFor replaces the remedies of problems that callers of REST mend by headers and paths, and people at the command
// line by flags and commands; by code.
var remedyFor = map[string]string{
	"unauthenticated":        "name a token with --token; on the box, `millrace token add NAME --role ROLE` makes one",
	"bad_credentials":        "check --token; on the box, `millrace token list` shows those there are and until when",
	"client_exists":          "choose another id, or give that client a new secret with `millrace client rotate`",
	"bulk_refused":           "mend the lines named and run the command again",
	"not_found":              notThisBox,
	"method_not_allowed":     notThisBox,
	"unsupported_media_type": notThisBox,
}

const notThisBox = "is --url the address of a box of this version? `millrace version` shows it"

func inCommands(text string) string {
	for _, w := range commandFor {
		text = strings.ReplaceAll(text, w.route, w.command)
	}
	return text
}

func (p *problem) Error() string {
	text, remedy := p.Detail, p.Remedy
	if other, ok := remedyFor[p.Code]; ok {
		remedy = other
	}
	if remedy == notThisBox {
		text = "what answers does not know this call"
	}
	if text == "" {
		text = p.Title
	}
	if p.Field != "" && !strings.Contains(text, p.Field) {
		text = p.Field + ": " + text
	}
	if len(p.Lines) > 0 {
		// Every line at fault on a line of its own; the detail would stop after some.
		text, _, _ = strings.Cut(text, ";")
		for _, l := range p.Lines {
			text += fmt.Sprintf("\n  line %d: ", l.Line)
			if l.ID != "" {
				text += fmt.Sprintf("client %q: ", l.ID)
			}
			if l.Field != "" && !strings.Contains(l.Detail, l.Field) {
				text += l.Field + ": "
			}
			text += l.Detail
		}
		return text + "\n" + inCommands(remedy)
	}
	if len(p.Faults) > 0 {
		text, _, _ = strings.Cut(text, ";")
		for _, f := range p.Faults {
			text += "\n  " + f.String()
		}
		return text
	}
	if remedy != "" {
		text += "; " + remedy
	}
	return inCommands(text)
}

// send makes one call and hands back the answer's body, which the caller closes. A problem comes as *problem.
func (r *remote) send(ctx context.Context, method, path string, query url.Values, kind string, body io.Reader) (*http.Response, error) {
	for level := range strings.SplitSeq(path[1:], "/") {
		// Such a path would be tidied into that of another route, which could answer as if all were well.
		if level == "" || level == "." || level == ".." {
			return nil, fmt.Errorf("%q is not an id", level)
		}
	}
	target := r.root + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, target, body)
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", kind)
	}
	if r.match != "" {
		req.Header.Set("If-Match", r.match)
	}
	if r.token != "" {
		req.Header.Set("Authorization", "Bearer "+r.token)
	}
	res, err := r.http.Do(req)
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) && op.Op == "dial" {
			if errors.Is(err, os.ErrPermission) {
				return nil, fmt.Errorf("no permission to open %s: run as the user that runs the box, or use --url and --token", r.where)
			}
			return nil, fmt.Errorf("no box is running at %s: start one with `millrace serve`, or name it with --data or --url", r.where)
		}
		return nil, err
	}
	if res.StatusCode < 300 {
		return res, nil
	}
	defer res.Body.Close()
	p := &problem{Status: res.StatusCode, Title: res.Status}
	text, _ := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if json.Unmarshal(text, p) != nil || p.Code == "" {
		// A proxy, or another program altogether: its page would help nobody.
		return nil, fmt.Errorf("%s answers %s, and not as a box does; %s", r.where, res.Status, notThisBox)
	}
	return nil, p
}

// call sends in as JSON (nil: no body) and decodes the answer into out (nil: dropped).
func (r *remote) call(ctx context.Context, method, path string, query url.Values, in, out any) error {
	ctx, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(text)
	}
	kind := "application/json"
	if method == http.MethodPatch {
		kind = "application/merge-patch+json"
	}
	res, err := r.send(ctx, method, path, query, kind, body)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if out == nil {
		_, err = io.Copy(io.Discard, res.Body)
		return err
	}
	if err := json.NewDecoder(res.Body).Decode(out); err != nil {
		return fmt.Errorf("%s %s: the answer is not what was expected: %w", method, path, err)
	}
	return nil
}
