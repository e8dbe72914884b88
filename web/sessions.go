package web

import (
	"context"
	"net/http"

	"millrace/auth"
)

func (w *Web) addSessions() {
	by := rule{role: auth.RoleAdmin}
	type nothing struct{}
	type sessionsOut struct {
		Body struct {
			Sessions []Session `json:"sessions" doc:"Every MQTT connection now"`
		} `nameHint:"SessionList"`
	}
	register(w, route{method: http.MethodGet, path: "/broker/sessions", id: "list-sessions", tag: "Broker", rule: by,
		summary: "List MQTT sessions"},
		func(context.Context, *caller, *nothing) (*sessionsOut, error) {
			out := &sessionsOut{}
			if w.parts.Sessions != nil {
				out.Body.Sessions = w.parts.Sessions()
			}
			if out.Body.Sessions == nil {
				out.Body.Sessions = []Session{}
			}
			return out, nil
		})

	type sessionID struct {
		ID string `path:"id" doc:"MQTT client identifier, percent-encoded"`
	}
	register(w, route{method: http.MethodPost, path: "/broker/sessions/{id}/disconnect", id: "disconnect-session", tag: "Broker",
		rule: by, missing: true, status: http.StatusNoContent, summary: "Disconnect an MQTT session",
		doc: "The device may connect again at once; disable its client to keep it out."},
		func(_ context.Context, _ *caller, in *sessionID) (*nothing, error) {
			if w.parts.Cut == nil || !w.parts.Cut(in.ID) {
				return nil, problem(http.StatusNotFound, "session_not_found", "no session has this MQTT client identifier", "GET /api/v1/broker/sessions lists them")
			}
			return nil, nil
		})
}
