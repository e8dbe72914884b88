package web

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"millrace/auth"
	"millrace/historian"
	"millrace/uns"
)

// writeWait is how long a write waits for a store that takes no values.
const writeWait = 5 * time.Second

// PublishRequest documents the body of POST /uns/publish.
type PublishRequest struct {
	Topic     string `json:"topic" doc:"Path or full topic"`
	Value     any    `json:"value" doc:"Any JSON value; numbers keep their digits"`
	Timestamp any    `json:"timestamp,omitempty" doc:"RFC 3339 text or epoch number; without it, the time of receipt"`
	Quality   string `json:"quality,omitempty" enum:"good,uncertain,bad" doc:"Default good"`
}

// VerdictAnswer documents what became of a published value, exactly as a device is told.
type VerdictAnswer struct {
	Status    string `json:"status" enum:"stored,cleared,refused" doc:"stored: durably in the historian"`
	Topic     string `json:"topic" doc:"Path within the workspace"`
	Timestamp string `json:"timestamp,omitempty" doc:"The time it was stored under"`
	Seq       uint64 `json:"seq,omitempty" doc:"Number of the value in the whole store"`
	Reason    string `json:"reason,omitempty" doc:"Why it was refused"`
	Detail    string `json:"detail,omitempty" doc:"Field, found and wanted"`
}

// exactPublish is PublishRequest with the value's own text.
type exactPublish struct {
	Topic     string          `json:"topic"`
	Value     json.RawMessage `json:"value"`
	Timestamp json.RawMessage `json:"timestamp"`
	Quality   json.RawMessage `json:"quality"`
}

func (w *Web) addPublish() {
	type publishIn struct {
		WorkspaceParam
		RawBody []byte `contentType:"application/json"`
	}
	register(w, route{method: http.MethodPost, path: "/uns/publish", id: "publish", tag: "UNS",
		rule: rule{role: auth.RoleOperator, clients: true}, summary: "Publish one value",
		doc: "The same way in as a device's: checked, stored, acknowledged by its verdict, published live. " +
			"A refused value is an answer, not an error: 200 with status `refused`.",
		takes: map[string]any{"application/json": PublishRequest{}},
		gives: map[string]any{"application/json": VerdictAnswer{}}},
		func(ctx context.Context, c *caller, in *publishIn) (*written, error) {
			workspace, err := w.workspace(c, in.Workspace)
			if err != nil {
				return nil, err
			}
			if key := repeatedKey(in.RawBody); key != "" {
				return nil, invalid(key, "the key "+key+" is there twice", "send each key once")
			}
			ask, err := parsePublish(in.RawBody)
			if err != nil {
				return nil, problem(http.StatusBadRequest, "malformed", "the body cannot be read: "+jsonFault(err), `send for example {"topic":"line1/press/temp","value":21.5}`)
			}
			if ask.Topic == "" {
				return nil, invalid("topic", "topic is missing", "name the topic's path")
			}
			if len(ask.Value) == 0 {
				return nil, invalid("value", "value is missing", "send any JSON value; null is one too")
			}
			return w.publish(ctx, c, workspace, &ask)
		})
}

// publish sends one value through the ingress and answers its verdict.
func (w *Web) publish(ctx context.Context, c *caller, workspace string, ask *exactPublish) (*written, error) {
	m := uns.Message{
		Source: w.parts.Ingress.Source(sourceName(c)), Workspace: workspace, Payload: envelope(ask), Enveloped: true,
	}
	path, fault := w.parts.Namespace.Path(workspace, ask.Topic)
	switch {
	case fault != "":
		path = ask.Topic
		m.Verdict = uns.Verdict{Reason: uns.TopicInvalid, Detail: fault}
	case c.policy != nil && !c.policy.MayPublish(auth.ScopeUNS, path):
		m.Verdict = uns.Verdict{Reason: uns.NotAuthorized, Detail: "no grant of this client lets it publish here"}
	}
	m.Path = path
	batch := &uns.Batch{Messages: []uns.Message{m}}
	ctx, cancel := context.WithTimeout(ctx, writeWait)
	defer cancel()
	if err := w.parts.Ingress.Write(ctx, batch); err != nil {
		return nil, err
	}
	got := &batch.Messages[0]
	got.Verdict.Detail = ask.locate(got.Verdict)
	var stored *historian.Sample
	if got.Verdict.Reason == uns.Stored {
		stored = &batch.Samples[got.At]
	}
	return writtenJSON(append(uns.AppendVerdict(nil, path, got.Verdict, stored), '\n')), nil
}

// parsePublish reads a body. A value that no JSON can hold, such as NaN or 01, is left to the ingress, which tells
// the caller as it tells a device; the error is about anything else.
func parsePublish(body []byte) (ask exactPublish, err error) {
	from, to := valueExtent(body)
	if err = strictJSON(body, &ask); err == nil {
		if !utf8.Valid(body[:from]) || !utf8.Valid(body[to:]) {
			// Else a topic would be stored under another name than was sent.
			err = errors.New("it is not UTF-8")
		}
		return ask, err
	}
	if from == to {
		return ask, err
	}
	mended := slices.Concat(body[:from], []byte("null"), body[to:])
	var rest exactPublish
	if strictJSON(mended, &rest) != nil || !utf8.Valid(mended) || repeatedKey(mended) != "" {
		return ask, err
	}
	rest.Value = body[from:to]
	return rest, nil
}

// valueExtent finds where the member `value` of the outermost object begins and ends, also where what stands there
// is no JSON: strings and brackets are followed, anything else is passed over. Both are 0 where it cannot tell.
func valueExtent(body []byte) (from, to int) {
	depth, start := 0, 0
	key := ""
	for i := 0; i < len(body); i++ {
		switch body[i] {
		case '"':
			at := i
			for i++; i < len(body) && body[i] != '"'; i++ {
				if body[i] == '\\' {
					i++
				}
			}
			if i >= len(body) {
				return 0, 0
			}
			if depth == 1 && start == 0 {
				key = string(body[at+1 : i])
			}
		case ':':
			if depth == 1 && start == 0 {
				start = i + 1
			}
		case '{', '[':
			depth++
		case '}', ']', ',':
			if depth == 1 && start > 0 {
				if strings.EqualFold(key, "value") {
					text := bytes.TrimLeft(body[start:i], " \t\r\n")
					return i - len(text), i - len(text) + len(bytes.TrimRight(text, " \t\r\n"))
				}
				start = 0
			}
			if body[i] != ',' {
				depth--
			}
		}
	}
	return 0, 0
}

// locate words the place that a detail names as one within the member the caller sent: the ingress counts from the
// start of the envelope made here.
func (ask *exactPublish) locate(v uns.Verdict) string {
	if v.OK() {
		return v.Detail
	}
	lead, ends := "byte ", ":"
	at := 0
	if !strings.HasPrefix(v.Detail, lead) {
		lead, ends = "(byte ", ")"
		if at = strings.LastIndex(v.Detail, lead); at < 0 {
			return v.Detail
		}
	}
	digits, rest, ok := strings.Cut(v.Detail[at+len(lead):], ends)
	n, err := strconv.Atoi(digits)
	if !ok || err != nil {
		return v.Detail
	}
	for _, part := range ask.parts() {
		if n -= len(part.before); n < 0 {
			break
		}
		// One behind the end counts as the member's own: it ended too early.
		if n <= len(part.text) {
			return v.Detail[:at] + lead + strconv.Itoa(n) + " of " + part.name + ends + rest
		}
		n -= len(part.text)
	}
	return v.Detail
}

// repeatedKey names a key that a JSON object has twice, as encoding/json would silently take the last of. Nested
// objects are values and stay as they are.
func repeatedKey(body []byte) string {
	d := json.NewDecoder(bytes.NewReader(body))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return ""
	}
	seen := map[string]bool{}
	for d.More() {
		t, err := d.Token()
		key, ok := t.(string)
		if err != nil || !ok {
			return ""
		}
		key = strings.ToLower(key) // as encoding/json matches them
		if seen[key] {
			return key
		}
		seen[key] = true
		var value json.RawMessage
		if d.Decode(&value) != nil {
			return ""
		}
	}
	return ""
}

// sourceName is whose rate and counters a publish goes to. API clients share theirs with their MQTT sessions;
// people have one each, with a character that no client id can have.
func sourceName(c *caller) string {
	if c.Principal != nil {
		return c.Principal.ID()
	}
	return "~" + c.Name
}

// part is one member of the envelope and the text before it.
type part struct {
	before, name string
	text         []byte
}

// parts are the members that the envelope of this request has.
func (ask *exactPublish) parts() []part {
	all := []part{{`{"value":`, "value", ask.Value}, {`,"timestamp":`, "timestamp", ask.Timestamp}, {`,"quality":`, "quality", ask.Quality}}
	return slices.DeleteFunc(all, func(p part) bool { return len(p.text) == 0 })
}

// envelope is the payload a device would send for this request.
func envelope(ask *exactPublish) (b []byte) {
	for _, p := range ask.parts() {
		b = append(append(b, p.before...), p.text...)
	}
	return append(b, '}')
}
