package web

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

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
			var ask exactPublish
			if err := strictJSON(in.RawBody, &ask); err != nil {
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
		Source: w.parts.Ingress.Source(sourceName(c)), Workspace: workspace, Payload: envelope(ask),
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
	var stored *historian.Sample
	if got.Verdict.Reason == uns.Stored {
		stored = &batch.Samples[got.At]
	}
	return writtenJSON(append(uns.AppendVerdict(nil, path, got.Verdict, stored), '\n')), nil
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

// envelope is the payload a device would send for this request.
func envelope(ask *exactPublish) []byte {
	b := append([]byte(nil), `{"value":`...)
	b = append(b, ask.Value...)
	if len(ask.Timestamp) > 0 {
		b = append(append(b, `,"timestamp":`...), ask.Timestamp...)
	}
	if len(ask.Quality) > 0 {
		b = append(append(b, `,"quality":`...), ask.Quality...)
	}
	return append(b, '}')
}
