package web

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"millrace/auth"
	"millrace/uns"
)

// CheckRequest is the body of POST /clients/{id}/check.
type CheckRequest struct {
	Topic  string      `json:"topic" doc:"Path or full topic; with scope mqtt an ordinary topic" minLength:"1" maxLength:"65535"`
	Action auth.Action `json:"action" enum:"publish,subscribe" doc:"What the client would do; subscribe is receiving"`
	Scope  auth.Scope  `json:"scope,omitempty" enum:"uns,mqtt" doc:"Default uns; a full topic tells by itself"`
}

// CheckAnswer says what the client may do, and which grant decides.
type CheckAnswer struct {
	Allowed bool        `json:"allowed" doc:"Whether the box would let it"`
	Grant   *auth.Grant `json:"grant" doc:"The grant that decides; null where none does"`
	Why     string      `json:"why" doc:"The reason, for people"`
	Scope   auth.Scope  `json:"scope" doc:"Which grants were asked"`
	Topic   string      `json:"topic" doc:"As grants see it: a path for uns, the whole topic for mqtt"`
}

func (w *Web) addCheck(by rule) {
	type checkIn struct {
		ClientPath
		Body CheckRequest
	}
	type checkOut struct{ Body CheckAnswer }
	register(w, route{method: http.MethodPost, path: "/clients/{id}/check", id: "check-client", tag: "Clients", rule: by,
		missing: true, summary: "Ask what an API client may do", doc: "Which grant lets it publish or receive on a topic, or keeps it from it. Nothing is changed."},
		func(_ context.Context, _ *caller, in *checkIn) (*checkOut, error) {
			c, err := w.parts.Book.Client(in.ID)
			if err != nil {
				return nil, ofClient(in.ID, err)
			}
			out := &checkOut{Body: w.check(c, in.Body)}
			return out, nil
		})
}

// check decides with the very policy that sessions use; the grant is looked up beside it.
func (w *Web) check(c auth.Client, ask CheckRequest) CheckAnswer {
	a := CheckAnswer{Scope: ask.Scope, Topic: ask.Topic}
	names := w.parts.Namespace
	if a.Scope == "" {
		a.Scope = auth.ScopeUNS
	}
	if strings.HasPrefix(ask.Topic, names.Root()+"/") {
		a.Scope = auth.ScopeUNS
		name := names.Parse(ask.Topic, c.ID)
		if name.Workspace != "" && name.Workspace != c.Workspace {
			a.Why = "the topic is in workspace " + name.Workspace + ", the client in " + c.Workspace
			return a
		}
		if name.Fault != "" && !(name.Place == uns.ForeignInbox && ask.Action == auth.ActionSubscribe) {
			a.Why = name.Fault
			return a
		}
		a.Topic = name.Path
		if name.Place == uns.VerdictTopic && ask.Action == auth.ActionPublish {
			a.Why = "only the box publishes verdicts"
			return a
		}
	} else if a.Scope == auth.ScopeMQTT && !uns.ValidTopicName([]byte(ask.Topic)) {
		a.Why = "this is not a topic name: no wildcards, no NUL, at least one character"
		return a
	}
	policy := w.parts.Book.Policy(c.ID)
	if ask.Action == auth.ActionPublish {
		a.Allowed = policy.MayPublish(a.Scope, a.Topic)
	} else {
		a.Allowed = policy.MayReceive(a.Scope, a.Topic)
	}
	a.Grant = decides(c, a.Scope, a.Topic, ask.Action)
	switch {
	case !c.Enabled:
		a.Grant, a.Why = nil, "the client is disabled"
	case a.Grant == nil && a.Allowed:
		a.Why = "every client may read its own verdicts"
	case a.Grant == nil:
		a.Why = "no grant covers this topic, and what no grant allows is denied"
	case a.Grant.Effect == auth.EffectDeny:
		a.Why = "denied by " + a.Grant.Filter + "; a deny wins over every allow"
	case a.Allowed:
		a.Why = "allowed by " + a.Grant.Filter + ", and nothing denies it"
	default:
		a.Grant, a.Why = nil, "the topic is out of reach of grants"
	}
	return a
}

// decides is the grant that a topic's fate hangs on: the first deny that matches, else the first allow.
func decides(c auth.Client, scope auth.Scope, topic string, action auth.Action) (found *auth.Grant) {
	for i := range c.Grants {
		g := &c.Grants[i]
		levels := strings.Split(g.Filter, "/")
		for i, level := range levels {
			if level == "${client}" {
				levels[i] = c.ID
			}
		}
		if g.Scope != scope || !slices.Contains(g.Actions, action) || !uns.Match(strings.Join(levels, "/"), topic) {
			continue
		}
		if g.Effect == auth.EffectDeny {
			return g
		}
		if found == nil {
			found = g
		}
	}
	return found
}
