package perf

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
)

// api speaks a box's REST, over its admin socket or over HTTP with a token.
type api struct {
	root  string
	token string
	http  *http.Client
}

func newAPI(root, token string) *api {
	return &api{root: strings.TrimRight(root, "/"), token: token, http: &http.Client{Timeout: 5 * time.Minute,
		Transport: &http.Transport{MaxIdleConnsPerHost: 8}}}
}

func newSocketAPI(path string) *api {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) { return dialSocket(ctx, path) }
	return &api{root: "http://admin", http: &http.Client{Timeout: 5 * time.Minute,
		Transport: &http.Transport{DialContext: dial, MaxIdleConnsPerHost: 8}}}
}

// socketPath is the room a Unix socket address has on Linux.
const socketPath = 107

// dialSocket connects to the Unix socket at path, by way of its open folder where the path is too long for an address.
func dialSocket(ctx context.Context, path string) (net.Conn, error) {
	if len(path) > socketPath {
		dir, err := os.Open(filepath.Dir(path))
		if err != nil {
			return nil, fmt.Errorf("perf: admin socket: %w", err)
		}
		defer dir.Close()
		path = fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path))
	}
	return new(net.Dialer).DialContext(ctx, "unix", path)
}

func (a *api) close() { a.http.CloseIdleConnections() }

// refusal is an answer of 400 and above.
type refusal struct {
	status int
	call   string
	text   string
}

func (r *refusal) Error() string {
	return fmt.Sprintf("perf: %s: status %d: %s", r.call, r.status, r.text)
}

func (a *api) do(ctx context.Context, method, path, kind string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, a.root+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	if a.token != "" {
		req.Header.Set("Authorization", "Bearer "+a.token)
	}
	resp, err := a.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("perf: %s %s: %w", method, path, err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("perf: %s %s: %w", method, path, err)
	}
	if resp.StatusCode >= 400 {
		return nil, &refusal{resp.StatusCode, method + " " + path, strings.TrimSpace(string(answer[:min(len(answer), 500)]))}
	}
	return answer, nil
}

// identity is one API client to create.
type identity struct {
	ID        string  `json:"id"`
	Secret    string  `json:"secret"`
	Workspace string  `json:"workspace"`
	Grants    []grant `json:"grants"`
}

type grant struct {
	Effect  string   `json:"effect"`
	Actions []string `json:"actions"`
	Filter  string   `json:"filter"`
	Scope   string   `json:"scope"`
}

func allow(filter string, actions ...string) grant {
	return grant{Effect: "allow", Actions: actions, Filter: filter, Scope: "uns"}
}

// addClients creates the clients in one call, or one by one where that is refused: clients left by an earlier
// run are replaced.
func (a *api) addClients(ctx context.Context, list []identity) error {
	var lines []byte
	for _, c := range list {
		one, err := json.Marshal(c)
		if err != nil {
			return err
		}
		lines = append(append(lines, one...), '\n')
	}
	_, err := a.do(ctx, http.MethodPost, "/api/v1/clients/bulk", "application/x-ndjson", lines)
	var refused *refusal
	if !errors.As(err, &refused) {
		return err
	}
	for one := range bytes.Lines(lines) {
		_, err = a.do(ctx, http.MethodPost, "/api/v1/clients", "application/json", one)
		if errors.As(err, &refused) && refused.status == http.StatusConflict {
			var c identity
			if err = json.Unmarshal(one, &c); err != nil {
				return err
			}
			if _, err = a.do(ctx, http.MethodDelete, "/api/v1/clients/"+c.ID, "", nil); err == nil {
				_, err = a.do(ctx, http.MethodPost, "/api/v1/clients", "application/json", one)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// History returns one page of the raw values of topic in [from, to), as the JSON text of each value, oldest
// first, and the cursor of the next page ("" after the last).
func (a *api) History(ctx context.Context, topic string, from, to time.Time, limit int, cursor string) ([]string, string, error) {
	answer, err := a.historyPage(ctx, topic, from, to, limit, cursor)
	if err != nil {
		return nil, "", err
	}
	return parseHistory(topic, answer)
}

func (a *api) historyPage(ctx context.Context, topic string, from, to time.Time, limit int, cursor string) ([]byte, error) {
	q := url.Values{"topic": {topic}, "from": {from.UTC().Format(time.RFC3339Nano)}, "to": {to.UTC().Format(time.RFC3339Nano)},
		"limit": {strconv.Itoa(limit)}, "order": {"asc"}}
	if cursor != "" {
		q.Set("cursor", cursor)
	}
	return a.do(ctx, http.MethodGet, "/api/v1/uns/history?"+q.Encode(), "", nil)
}

func parseHistory(topic string, answer []byte) ([]string, string, error) {
	var page struct {
		Topics []struct {
			Topic string            `json:"topic"`
			V     []json.RawMessage `json:"v"`
		} `json:"topics"`
		Next string `json:"next"`
	}
	if err := json.Unmarshal(answer, &page); err != nil {
		return nil, "", fmt.Errorf("perf: history of %s: %w", topic, err)
	}
	var values []string
	for _, t := range page.Topics {
		for _, v := range t.V {
			values = append(values, string(v))
		}
	}
	return values, page.Next, nil
}

// metric returns the sum of a metric's samples from /metrics; ok is false when the box does not export it.
func (a *api) metric(text []byte, name string) (sum float64, ok bool) {
	for line := range strings.Lines(string(text)) {
		rest, found := strings.CutPrefix(line, name)
		if !found || rest == "" || rest[0] != ' ' && rest[0] != '{' {
			continue
		}
		fields := strings.Fields(rest[strings.LastIndexByte(rest, '}')+1:])
		if len(fields) == 0 {
			continue
		}
		if v, err := strconv.ParseFloat(fields[0], 64); err == nil {
			sum, ok = sum+v, true
		}
	}
	return sum, ok
}
