package web

import (
	"context"
	"net/http"
	"time"

	"millrace/auth"
)

// Session is one MQTT session as GET /broker/sessions shows it.
type Session struct {
	MQTTID        string            `json:"mqtt_id" doc:"MQTT client identifier"`
	Client        string            `json:"client" doc:"API client that signed in"`
	Connected     bool              `json:"connected" doc:"false: the session waits for its client to come back"`
	Remote        string            `json:"remote" doc:"Address of the peer; the last one while offline"`
	Listener      string            `json:"listener" doc:"tcp, tls or websocket"`
	Version       int               `json:"version" doc:"MQTT protocol level: 4 is MQTT 3.1.1, 5 is MQTT 5"`
	Since         time.Time         `json:"since" doc:"When it connected, or went offline"`
	ExpiryS       int64             `json:"expiry_s" doc:"Seconds the session outlives its connection"`
	KeepAliveS    int64             `json:"keep_alive_s" doc:"Keep-alive in seconds; 0 is none"`
	Subscriptions int               `json:"subscriptions" doc:"Filters subscribed to"`
	Received      uint64            `json:"received" doc:"Messages received from the peer"`
	Sent          uint64            `json:"sent" doc:"Messages sent to the peer"`
	Queued        int               `json:"queued" doc:"Messages waiting to be sent"`
	QueuedBytes   int64             `json:"queued_bytes" doc:"Their size"`
	Inflight      int               `json:"inflight" doc:"Messages sent and not yet acknowledged"`
	Dropped       uint64            `json:"dropped" doc:"Messages not delivered"`
	DroppedBy     map[string]uint64 `json:"dropped_by" doc:"The same by reason"`
	Slow          bool              `json:"slow" doc:"The peer reads too slowly: its queue lost messages within the last minute, or is half full"`
}

// ClientDrops is what the sessions of one API client were not delivered.
type ClientDrops struct {
	Client string            `json:"client" doc:"API client"`
	By     map[string]uint64 `json:"by_reason" doc:"Messages since start, by reason"`
}

// SessionFilter are the query parameters of GET /broker/sessions. (Exported, because the REST library skips what is not.)
type SessionFilter struct {
	Client  string `query:"client" doc:"Sessions of this API client only" maxLength:"64"`
	State   string `query:"state" doc:"connected or offline; both when left out" enum:"connected,offline"`
	Queued  int    `query:"queued" doc:"At least this many messages waiting" minimum:"0"`
	Dropped int64  `query:"dropped" doc:"At least this many messages dropped" minimum:"0"`
	Slow    bool   `query:"slow" doc:"Slow subscribers only"`
}

func (f *SessionFilter) takes(s *Session) bool {
	switch {
	case f.Client != "" && s.Client != f.Client,
		f.State != "" && s.Connected != (f.State == "connected"),
		s.Queued < f.Queued, s.Dropped < uint64(f.Dropped), f.Slow && !s.Slow:
		return false
	}
	return true
}

// SessionPath is the path parameter of calls on one session.
type SessionPath struct {
	ID string `path:"id" doc:"MQTT client identifier, percent-encoded"`
}

func noSession() *Problem {
	return problem(http.StatusNotFound, "session_not_found", "no session has this MQTT client identifier", "GET /api/v1/broker/sessions lists them")
}

func (w *Web) sessions() []Session {
	if w.parts.Sessions == nil {
		return nil
	}
	return w.parts.Sessions()
}

func (w *Web) addSessions() {
	read, by := rule{role: auth.RoleViewer}, rule{role: auth.RoleAdmin}
	type nothing struct{}
	type sessionsOut struct {
		Body struct {
			Sessions []Session `json:"sessions" doc:"MQTT sessions now, by MQTT client identifier"`
		} `nameHint:"SessionList"`
	}
	register(w, route{method: http.MethodGet, path: "/broker/sessions", id: "list-sessions", tag: "Broker", rule: read,
		summary: "List MQTT sessions", doc: "All of them, or those that every given parameter admits."},
		func(_ context.Context, _ *caller, in *SessionFilter) (*sessionsOut, error) {
			out := &sessionsOut{}
			out.Body.Sessions = []Session{}
			for _, s := range w.sessions() {
				if in.takes(&s) {
					out.Body.Sessions = append(out.Body.Sessions, s)
				}
			}
			return out, nil
		})

	type sessionOut struct{ Body Session }
	register(w, route{method: http.MethodGet, path: "/broker/sessions/{id}", id: "get-session", tag: "Broker", rule: read, missing: true,
		summary: "Show one MQTT session"},
		func(_ context.Context, _ *caller, in *SessionPath) (*sessionOut, error) {
			for _, s := range w.sessions() {
				if s.MQTTID == in.ID {
					return &sessionOut{Body: s}, nil
				}
			}
			return nil, noSession()
		})

	register(w, route{method: http.MethodPost, path: "/broker/sessions/{id}/disconnect", id: "disconnect-session", tag: "Broker",
		rule: by, missing: true, status: http.StatusNoContent, summary: "Disconnect an MQTT session",
		doc: "The device may connect again at once; disable its client to keep it out."},
		func(_ context.Context, c *caller, in *SessionPath) (*nothing, error) {
			if w.parts.Cut == nil || !w.parts.Cut(in.ID) {
				return nil, noSession()
			}
			return nil, w.noted(c, auth.Event{Category: "broker", Action: "disconnect", ID: in.ID}, nil)
		})

	type dropsOut struct {
		Body struct {
			By      map[string]uint64 `json:"by_reason" doc:"Messages not delivered since start, by reason"`
			Clients []ClientDrops     `json:"clients" doc:"The same by API client, those that lost most first"`
		} `nameHint:"Drops"`
	}
	register(w, route{method: http.MethodGet, path: "/broker/drops", id: "list-drops", tag: "Broker", rule: read,
		summary: "Messages that subscribers did not get", doc: "Since the start of the box, by reason and by API client."},
		func(context.Context, *caller, *nothing) (*dropsOut, error) {
			out := &dropsOut{}
			out.Body.By, out.Body.Clients = map[string]uint64{}, []ClientDrops{}
			if w.parts.Drops != nil {
				if by, clients := w.parts.Drops(); len(by) > 0 {
					out.Body.By, out.Body.Clients = by, append(out.Body.Clients, clients...)
				}
			}
			return out, nil
		})

	type figuresOut struct {
		Body struct {
			Accepted uint64            `json:"accepted" doc:"Values stored since start"`
			Refused  map[string]uint64 `json:"refused" doc:"Messages refused since start, by reason"`
			Dropped  map[string]uint64 `json:"dropped" doc:"Messages its sessions were not delivered since start, by reason"`
			Sessions []string          `json:"sessions" doc:"MQTT client identifiers of its sessions now"`
		} `nameHint:"ClientFigures"`
	}
	register(w, route{method: http.MethodGet, path: "/clients/{id}/figures", id: "get-client-figures", tag: "Clients", rule: read, missing: true,
		summary: "What became of an API client's messages", doc: "MQTT 3.1.1 devices cannot be told of a refusal; this is where it shows."},
		func(_ context.Context, _ *caller, in *ClientPath) (*figuresOut, error) {
			if _, err := w.parts.Book.Client(in.ID); err != nil {
				return nil, ofClient(in.ID, err)
			}
			out := &figuresOut{}
			source := w.parts.Ingress.Source(in.ID)
			out.Body.Accepted, out.Body.Refused = source.Accepted(), source.Refused()
			out.Body.Dropped, out.Body.Sessions = map[string]uint64{}, []string{}
			if out.Body.Refused == nil {
				out.Body.Refused = map[string]uint64{}
			}
			if w.parts.Drops != nil {
				_, clients := w.parts.Drops()
				for _, c := range clients {
					if c.Client == in.ID {
						out.Body.Dropped = c.By
					}
				}
			}
			for _, s := range w.sessions() {
				if s.Client == in.ID {
					out.Body.Sessions = append(out.Body.Sessions, s.MQTTID)
				}
			}
			return out, nil
		})
}
