package web

import (
	"encoding/json"
	"net/http"

	"millrace/auth"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// reasons says why the box is not ready; none means ready.
func (w *Web) reasons() []string {
	reasons := []string{}
	if !w.ready.Load() {
		reasons = append(reasons, "starting")
	}
	if s := w.parts.State(); s.Stalled {
		why := s.Why
		if why == "" {
			why = "stalled"
		}
		reasons = append(reasons, why)
	}
	return reasons
}

func (w *Web) addHealth(mux *http.ServeMux) {
	mux.HandleFunc("GET /healthz", func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "application/json")
		rw.Write([]byte("{\"status\":\"alive\"}\n"))
	})
	mux.HandleFunc("GET /readyz", func(rw http.ResponseWriter, _ *http.Request) {
		answer := struct {
			Ready    bool     `json:"ready"`
			Reasons  []string `json:"reasons"`
			Warnings []string `json:"warnings,omitempty"` // of a ready box too
		}{Reasons: w.reasons(), Warnings: w.parts.Warnings}
		answer.Ready = len(answer.Reasons) == 0
		text, err := json.Marshal(answer)
		if err != nil {
			panic("web: readiness cannot be written: " + err.Error())
		}
		rw.Header().Set("Content-Type", "application/json")
		if !answer.Ready {
			rw.Header().Set("Retry-After", "1")
			rw.WriteHeader(http.StatusServiceUnavailable)
		}
		rw.Write(append(text, '\n'))
	})
	if w.options.Metrics {
		mux.Handle("GET /metrics", w.metricsHandler())
	}
}

// metricsHandler shows the metrics to callers on the machine itself, to people, and to clients made with `metrics`.
func (w *Web) metricsHandler() http.Handler {
	source := w.parts.Gatherer
	if source == nil {
		source = prometheus.NewRegistry()
	}
	show := promhttp.HandlerFor(source, promhttp.HandlerOpts{MaxRequestsInFlight: 4, ErrorHandling: promhttp.ContinueOnError})
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		c, p := w.whois(r)
		switch {
		case p != nil:
			writeProblem(rw, p)
		case c.Metrics || c.Allows(auth.RoleViewer) || !c.known && c.loopback:
			show.ServeHTTP(rw, r)
		case c.known:
			writeProblem(rw, problem(http.StatusForbidden, "not_authorized", "this client may not read the metrics", "make a client with metrics: true for the scraper"))
		default:
			writeProblem(rw, rule{role: auth.RoleViewer}.allows(c))
		}
	})
}
