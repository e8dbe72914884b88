package web

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"millrace/auth"
	"millrace/historian"
	"millrace/uns"
	"millrace/web/promql"
)

// The HTTP API of Prometheus, as far as a data source asks for it, over stored history: a Grafana without plug-ins reads it with the
// URL http://box:8080/prometheus. The forms of answers and errors are Prometheus' (prometheus.io/docs/prometheus/latest/querying/api).

// maxTargets is how many topics one query may touch.
const maxTargets = 10_000

// promVersion is the version of the API whose answers these are like; Grafana asks for it.
const promVersion = "2.53.0"

func (w *Web) addPrometheus(mux *http.ServeMux) {
	for path, serve := range map[string]func(*promCall) (any, error){
		"query": w.promInstant, "query_range": w.promRange, "series": w.promSeries, "labels": w.promLabels, "label/{name}/values": w.promValues,
		"metadata": w.promMetadata, "status/buildinfo": w.promBuild, "rules": promNone("groups"), "alerts": promNone("alerts"), "query_exemplars": promEmpty,
	} {
		handler := w.promHandler(serve)
		mux.Handle("GET /prometheus/api/v1/"+path, handler)
		mux.Handle("POST /prometheus/api/v1/"+path, handler)
	}
}

// promCall is one call of the API.
type promCall struct {
	w    *Web
	ctx  context.Context
	c    *caller
	form url.Values
	name string // of a label
}

type promError struct {
	Status string `json:"status"`
	Type   string `json:"errorType"`
	Error  string `json:"error"`
}

func writePromError(rw http.ResponseWriter, status int, kind, text string) {
	writeJSON(rw, status, promError{"error", kind, text})
}

func (w *Web) promHandler(serve func(*promCall) (any, error)) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		c, p := w.whois(r)
		if p == nil {
			p = rule{role: auth.RoleViewer, clients: true}.allows(c)
		}
		if p != nil {
			if p.challenge {
				rw.Header().Set("WWW-Authenticate", `Basic realm="millrace"`)
			}
			if p.retry > 0 {
				rw.Header().Set("Retry-After", strconv.Itoa(p.retry))
			}
			writePromError(rw, p.Status, "unauthorized", p.Detail+": "+p.Remedy)
			return
		}
		r.Body = http.MaxBytesReader(rw, r.Body, maxBody)
		if err := r.ParseForm(); err != nil {
			writePromError(rw, http.StatusBadRequest, "bad_data", "the body is not a form of at most 1 MiB")
			return
		}
		if err := w.reads.enter(r.Context()); err != nil {
			rw.Header().Set("Retry-After", "1")
			writePromError(rw, http.StatusServiceUnavailable, "unavailable", "too many large reads at once: try again")
			return
		}
		defer w.reads.leave()
		data, err := serve(&promCall{w, r.Context(), c, r.Form, r.PathValue("name")})
		var own *promql.Error
		switch {
		case errors.As(err, &own) && own.At < 0, errors.Is(err, errTooWide):
			writePromError(rw, http.StatusUnprocessableEntity, "execution", err.Error())
		case errors.As(err, &own), errors.Is(err, errPromParam):
			writePromError(rw, http.StatusBadRequest, "bad_data", err.Error())
		case err != nil && r.Context().Err() != nil:
			writePromError(rw, http.StatusServiceUnavailable, "canceled", "the query was given up")
		case err != nil:
			w.log.Error("a query of history failed", "route", patternPath(r.Pattern), "error", err)
			writePromError(rw, http.StatusInternalServerError, "internal", "the box failed to answer this query: look into its log")
		default:
			writeJSON(rw, http.StatusOK, struct {
				Status string `json:"status"`
				Data   any    `json:"data"`
			}{"success", data})
		}
	})
}

var (
	errTooWide   = errors.New("too many series")
	errPromParam = errors.New("invalid parameter")
)

// moment reads a time as the API has it: seconds since 1970, or RFC 3339.
func (p *promCall) moment(name string, missing time.Time) (time.Time, error) {
	text := p.form.Get(name)
	if text == "" {
		return missing, nil
	}
	if f, err := strconv.ParseFloat(text, 64); err == nil && f > -9e9 && f < 9e9 {
		return time.UnixMilli(int64(math.Round(f * 1000))), nil
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || t.Year() < 1700 || t.Year() > 2250 {
		return t, fmt.Errorf("%w %q: %q is neither seconds since 1970 nor RFC 3339", errPromParam, name, text)
	}
	return t.Truncate(time.Millisecond), nil
}

func (w *Web) promInstant(p *promCall) (any, error) {
	at, err := p.moment("time", w.now())
	if err != nil {
		return nil, err
	}
	at = at.Truncate(time.Millisecond)
	a, err := p.eval(promql.Grid{Start: at, End: at})
	if err != nil {
		return nil, err
	}
	type sample struct {
		Metric map[string]string `json:"metric"`
		Value  promPoint         `json:"value"`
	}
	if a.Scalar {
		return promResult{"scalar", promPoint{at, a.Series[0].Points[0]}}, nil
	}
	list := make([]sample, len(a.Series))
	for i, s := range a.Series {
		list[i] = sample{promMetric(s.Labels), promPoint{at, s.Points[0]}}
	}
	return promResult{"vector", list}, nil
}

func (w *Web) promRange(p *promCall) (any, error) {
	g := promql.Grid{}
	var err error
	if g.Start, err = p.moment("start", time.Time{}); err == nil {
		g.End, err = p.moment("end", time.Time{})
	}
	if err != nil {
		return nil, err
	}
	var ok bool
	if g.Step, ok = promql.Duration(p.form.Get("step")); !ok || g.Step < time.Millisecond {
		return nil, fmt.Errorf("%w %q: %q is no step, such as 15s", errPromParam, "step", p.form.Get("step"))
	}
	if g.Start.IsZero() || g.End.Before(g.Start) {
		return nil, fmt.Errorf("%w %q: it must not be before start, and both are needed", errPromParam, "end")
	}
	a, err := p.eval(g)
	if err != nil {
		return nil, err
	}
	type line struct {
		Metric map[string]string `json:"metric"`
		Values []promPoint       `json:"values"`
	}
	list := make([]line, len(a.Series))
	for i, s := range a.Series {
		list[i].Metric = promMetric(s.Labels)
		for k, f := range s.Points {
			if !math.IsNaN(f) || a.Scalar {
				list[i].Values = append(list[i].Values, promPoint{g.Start.Add(time.Duration(k) * g.Step), f})
			}
		}
	}
	return promResult{"matrix", list}, nil
}

func (p *promCall) eval(g promql.Grid) (promql.Answer, error) {
	q, err := promql.Parse(p.form.Get("query"))
	if err != nil {
		return promql.Answer{}, err
	}
	return q.Eval(p.ctx, (*promSource)(p), g)
}

type promResult struct {
	Type   string `json:"resultType"`
	Result any    `json:"result"`
}

// promPoint is [seconds, "number"].
type promPoint struct {
	at time.Time
	v  float64
}

// MarshalJSON writes the pair as Prometheus does.
func (p promPoint) MarshalJSON() ([]byte, error) {
	b := strconv.AppendFloat([]byte{'['}, float64(p.at.UnixMilli())/1000, 'f', -1, 64)
	b = append(b, `,"`...)
	switch {
	case math.IsInf(p.v, 0):
		b = append(b, strings.TrimPrefix(strconv.FormatFloat(p.v, 'f', -1, 64), "")...)
	default:
		b = strconv.AppendFloat(b, p.v, 'f', -1, 64)
	}
	return append(b, `"]`...), nil
}

func promMetric(labels []promql.Label) map[string]string {
	m := make(map[string]string, len(labels))
	for _, l := range labels {
		m[l.Name] = l.Value
	}
	return m
}

// targets are the topics of any of the selectors; without one, all.
func (p *promCall) targets() ([]promql.Target, error) {
	selectors := slices.Concat(p.form["match[]"], p.form["match"])
	if len(selectors) == 0 {
		return (*promSource)(p).Targets(p.ctx, nil)
	}
	var all []promql.Target
	seen := map[int]bool{}
	for _, s := range selectors {
		m, err := promql.ParseSelector(s)
		if err != nil {
			return nil, err
		}
		list, err := (*promSource)(p).Targets(p.ctx, m)
		if err != nil {
			return nil, err
		}
		for _, t := range list {
			if !seen[t.ID] {
				seen[t.ID] = true
				all = append(all, t)
			}
		}
	}
	return all, nil
}

func (w *Web) promSeries(p *promCall) (any, error) {
	if len(p.form["match[]"]) == 0 {
		return nil, fmt.Errorf("%w: no match[] parameter", errPromParam)
	}
	targets, err := p.targets()
	list := make([]map[string]string, len(targets))
	for i, t := range targets {
		list[i] = promMetric(t.Labels)
	}
	return list, err
}

func (w *Web) promLabels(p *promCall) (any, error) {
	return []string{"__name__", "topic", "unit", "workspace"}, nil
}

func (w *Web) promValues(p *promCall) (any, error) {
	if p.name == "__name__" {
		return []string{promql.Metric}, nil
	}
	targets, err := p.targets()
	if err != nil {
		return nil, err
	}
	values := []string{}
	for _, t := range targets {
		for _, l := range t.Labels {
			if l.Name == p.name {
				values = append(values, l.Value)
			}
		}
	}
	slices.Sort(values)
	return slices.Compact(values), nil
}

func (w *Web) promMetadata(*promCall) (any, error) {
	type about struct {
		Type string `json:"type"`
		Help string `json:"help"`
		Unit string `json:"unit"`
	}
	return map[string][]about{promql.Metric: {{"gauge", "Stored values of topics; numbers and booleans whose quality is not bad.", ""}}}, nil
}

func (w *Web) promBuild(*promCall) (any, error) {
	return map[string]any{"version": promVersion, "revision": w.parts.Version, "branch": "", "buildUser": "", "buildDate": "", "goVersion": "", "application": "millrace"}, nil
}

func promNone(name string) func(*promCall) (any, error) {
	return func(*promCall) (any, error) { return map[string][]string{name: {}}, nil }
}

func promEmpty(*promCall) (any, error) { return []string{}, nil }

// promSource is history as the caller may see it.
type promSource promCall

// Targets gives the topics, at most maxTargets.
func (p *promSource) Targets(_ context.Context, matchers []promql.Matcher) (list []promql.Target, err error) {
	filter := "#"
	for i := range matchers {
		if m := &matchers[i]; m.Label == "topic" && m.Op == "=" && m.Value != "" && !strings.ContainsAny(m.Value, "+#") {
			filter = m.Value // no need to look through all of them
		}
	}
	for _, workspace := range p.w.parts.Namespace.Workspaces() {
		if p.c.Principal != nil && workspace != p.c.Principal.Workspace() {
			continue
		}
		p.w.parts.Catalog.Match(workspace, filter, "", func(t *uns.Topic) bool {
			if !p.c.mayRead(t.Path) {
				return true
			}
			labels := []promql.Label{{Name: "__name__", Value: promql.Metric}, {Name: "topic", Value: t.Path}}
			if unit := t.Settings().Schema.Unit; unit != "" {
				labels = append(labels, promql.Label{Name: "unit", Value: unit})
			}
			labels = append(labels, promql.Label{Name: "workspace", Value: workspace})
			for i := range matchers {
				if !matchers[i].Holds(promLabel(labels, matchers[i].Label)) {
					return true
				}
			}
			list = append(list, promql.Target{ID: int(t.Series), Labels: labels})
			return len(list) <= maxTargets
		})
	}
	if len(list) > maxTargets {
		return nil, fmt.Errorf("%w: more than %d topics match: name fewer of them, for example {topic=~\"line1/.*\"}", errTooWide, maxTargets)
	}
	return list, nil
}

func promLabel(labels []promql.Label, name string) string {
	for _, l := range labels {
		if l.Name == name {
			return l.Value
		}
	}
	return ""
}

// Cells are aggregates of the historian.
func (p *promSource) Cells(ctx context.Context, targets []promql.Target, from, to time.Time, every time.Duration, each func(target, stretch int, c *promql.Cell)) error {
	start := from.UnixNano()
	offset := start % int64(every)
	if offset < 0 {
		offset += int64(every)
	}
	q := historian.Aggregation{From: start, To: to.UnixNano(), Step: historian.Step{Every: every, Offset: time.Duration(offset)}}
	for _, t := range targets {
		q.Series = append(q.Series, historian.Series(t.ID))
	}
	return p.w.parts.History.Aggregate(ctx, q, func(i int, b *historian.Bucket) bool {
		c := promql.Cell{Count: float64(b.Count), Numbers: float64(b.Numeric)}
		if b.Numbered {
			c.Min, _ = b.Min.Float()
			c.Max, _ = b.Max.Float()
			c.Sum = b.Avg * c.Numbers
			if sum, ok := b.Sum.Float(); ok {
				c.Sum = sum
			}
			c.First, c.Last = c.Min, c.Max
			if f, ok := b.First.Float(); ok {
				c.First = f
			}
			if f, ok := b.Last.Float(); ok {
				c.Last = f
			}
		} else {
			c.Numbers = 0
		}
		each(i, int((b.From-start)/int64(every)), &c)
		return true
	})
}
