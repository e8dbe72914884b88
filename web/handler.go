package web

import (
	"errors"
	"net/http"
	"runtime/debug"
)

// maxBody bounds every request body that no route bounds itself.
const (
	maxBody     = 1 << 20
	maxBulkBody = 16 << 20
)

// handler builds the whole tree: routes inside, and around them the count, the containment of panics, the
// limits and the headers that every answer has.
func (w *Web) handler() http.Handler {
	mux := http.NewServeMux()
	w.addREST(mux)
	w.addHealth(mux)
	w.addPages(mux)
	w.addStreams(mux)
	w.addOAuth(mux)
	w.addPrometheus(mux)
	return http.HandlerFunc(func(rw http.ResponseWriter, whole *http.Request) {
		began := w.now()
		w.metrics.inFlight.Inc()
		seen := &answer{ResponseWriter: rw}
		r := shallow(whole)
		defer func() {
			w.metrics.inFlight.Dec()
			route := patternPath(r.Pattern)
			w.metrics.observe(route, seen.code(), w.now().Sub(began))
		}()
		defer w.contain(seen, r)
		h := rw.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		// The routes have tighter bounds; this one holds for whatever has none.
		r.Body = http.MaxBytesReader(seen, r.Body, maxBulkBody+1)
		if miss, pattern := mux.Handler(r); pattern == "" {
			writeProblem(seen, missProblem(miss, r))
			return
		}
		mux.ServeHTTP(seen, r)
	})
}

// shallow is a copy of a request whose body can be replaced. The server looks at the body of its own request to see
// whether the connection can be used again: with another in its place, the rest of a body that was too large would be
// read as the next request.
func shallow(r *http.Request) *http.Request {
	own := *r
	return &own
}

// contain keeps a panic within its request.
func (w *Web) contain(seen *answer, r *http.Request) {
	cause := recover()
	if cause == nil {
		return
	}
	if err, ok := cause.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(cause)
	}
	w.metrics.panics.Inc()
	w.log.Error("request handler panicked", "method", r.Method, "route", patternPath(r.Pattern), "panic", cause, "stack", string(debug.Stack()))
	if seen.status != 0 {
		// The answer has begun: only cutting the connection tells the client that it is not whole.
		panic(http.ErrAbortHandler)
	}
	writeProblem(seen, problem(http.StatusInternalServerError, "internal", "the box failed to answer this request", "look into the box's log; if it stays, report it"))
}

// missProblem is the answer where no route matches: 404, or 405 where the path exists for other methods.
func missProblem(miss http.Handler, r *http.Request) *Problem {
	probe := &answer{ResponseWriter: blank{http.Header{}}}
	miss.ServeHTTP(probe, r)
	if probe.status == http.StatusMethodNotAllowed {
		allow := probe.Header().Get("Allow")
		p := problem(http.StatusMethodNotAllowed, "method_not_allowed", r.Method+" is not possible here", "use "+allow)
		p.allow = allow
		return p
	}
	return problem(http.StatusNotFound, "not_found", "there is nothing at "+r.URL.Path, "the routes are listed at /api/v1/docs")
}

// patternPath is a route pattern without its method; "none" for requests that met no route.
func patternPath(pattern string) string {
	if pattern == "" {
		return "none"
	}
	for i := range pattern {
		if pattern[i] == '/' {
			return pattern[i:]
		}
	}
	return pattern
}

// answer remembers the status that was sent.
type answer struct {
	http.ResponseWriter
	status int
}

// WriteHeader notes the first final status.
func (a *answer) WriteHeader(status int) {
	if a.status == 0 && status >= 200 {
		a.status = status
	}
	a.ResponseWriter.WriteHeader(status)
}

// Write implies 200.
func (a *answer) Write(p []byte) (int, error) {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	return a.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController reach the connection's deadlines.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func (a *answer) code() int {
	if a.status == 0 {
		return http.StatusOK
	}
	return a.status
}

// blank takes an answer that nobody reads.
type blank struct{ header http.Header }

func (b blank) Header() http.Header         { return b.header }
func (b blank) Write(p []byte) (int, error) { return len(p), nil }
func (b blank) WriteHeader(int)             {}
