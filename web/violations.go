package web

import (
	"context"
	"net/http"
	"time"

	"millrace/auth"
	"millrace/uns"
)

// Violation is one value that a topic did not take as it came.
type Violation struct {
	Time    time.Time `json:"time" doc:"When it came, by the box's clock"`
	Client  string    `json:"client" doc:"Who sent it; empty for the box itself, and for others than the API client that asks"`
	Status  string    `json:"status" enum:"refused,uncertain" doc:"refused: not stored; uncertain: stored with that quality"`
	Reason  string    `json:"reason,omitempty" doc:"The verdict's reason, of a refused one"`
	Detail  string    `json:"detail" doc:"The field, what was found and what is wanted"`
	Payload string    `json:"payload" doc:"How the payload begins, quoted"`
}

// Violated is a topic with its violations.
type Violated struct {
	Topic string      `json:"topic" doc:"Path within the workspace"`
	Count uint64      `json:"count" doc:"Values since start that were refused for what they say, or stored as uncertain"`
	Last  []Violation `json:"last" doc:"The last eight, newest first"`
}

// shownViolations names other clients only to people.
func (c *caller) shownViolations(list []uns.Violation) []Violation {
	out := make([]Violation, len(list))
	for i, v := range list {
		out[i] = Violation{Time: v.Time.UTC(), Client: v.Client, Status: "uncertain", Detail: v.Detail, Payload: v.Payload}
		if c.Principal != nil && c.Principal.ID() != v.Client {
			out[i].Client = ""
		}
		if v.Reason != uns.Stored {
			out[i].Status, out[i].Reason = "refused", v.Reason.String()
		}
	}
	return out
}

func (w *Web) addViolations() {
	type violationsIn struct {
		WorkspaceParam
		Filter string `query:"filter" default:"#" doc:"Which topics" maxLength:"2048"`
		Cursor string `query:"cursor" doc:"The next of the page before" maxLength:"8192"`
		Limit  int    `query:"limit" doc:"At most this many topics on one page" default:"100" minimum:"1" maximum:"1000"`
	}
	type violationsOut struct {
		Body struct {
			Topics []Violated `json:"topics" doc:"Topics with violations, in path order"`
			Next   string     `json:"next" doc:"Cursor of the next page, or empty"`
		} `nameHint:"ViolationPage"`
	}
	register(w, route{method: http.MethodGet, path: "/uns/violations", id: "list-violations", tag: "UNS",
		rule: rule{role: auth.RoleViewer, clients: true}, summary: "Values that topics did not take as they came",
		doc: "By topic: refused by schema, type, payload or timestamp, or stored as uncertain by a soft schema. Since the start of the box; counts by client and hour are in its ledger."},
		func(ctx context.Context, c *caller, in *violationsIn) (*violationsOut, error) {
			workspace, filter, after, err := w.listing(c, in.Workspace, in.Filter, in.Cursor)
			if err != nil {
				return nil, err
			}
			if err := w.reads.enter(ctx); err != nil {
				return nil, err
			}
			defer w.reads.leave()
			out := &violationsOut{}
			out.Body.Topics = []Violated{}
			w.parts.Catalog.Match(workspace, filter, after, func(t *uns.Topic) bool {
				count, last := t.Violations()
				if count == 0 || !c.mayRead(t.Path) {
					return true
				}
				if len(out.Body.Topics) == in.Limit {
					out.Body.Next = sealPath(out.Body.Topics[in.Limit-1].Topic)
					return false
				}
				out.Body.Topics = append(out.Body.Topics, Violated{t.Path, count, c.shownViolations(last)})
				return true
			})
			return out, nil
		})
}
