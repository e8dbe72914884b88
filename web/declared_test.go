package web_test

import (
	"encoding/json"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// declared is what the OpenAPI document says each operation can answer. Every request that a test makes through
// ask is held against it, so that a status or a media type which the document omits fails the test that met it.
type declared struct {
	once sync.Once
	ops  []declaredOp
	mu   sync.Mutex
}

type declaredOp struct {
	method string
	path   []string
	// answers has the media types of each status; empty: no body.
	answers map[string]map[string]json.RawMessage
	met     map[string]bool // the statuses that came; under declared.mu
}

func (d *declared) load(t testing.TB, root string) {
	d.once.Do(func() {
		res, err := http.Get(root + "/api/v1/openapi.json")
		must(t, err)
		defer res.Body.Close()
		var doc struct {
			Paths map[string]map[string]struct {
				Responses map[string]struct {
					Content map[string]json.RawMessage
				}
			}
		}
		must(t, json.NewDecoder(res.Body).Decode(&doc))
		for path, methods := range doc.Paths {
			for method, op := range methods {
				o := declaredOp{strings.ToUpper(method), strings.Split(path, "/"), map[string]map[string]json.RawMessage{}, map[string]bool{}}
				for status, answer := range op.Responses {
					o.answers[status] = answer.Content
				}
				d.ops = append(d.ops, o)
			}
		}
		if len(d.ops) == 0 {
			t.Error("the OpenAPI document lists no operation")
		}
	})
}

// find is the operation of a request; nil where the document has none.
func (d *declared) find(method, path string) *declaredOp {
	rest, ok := strings.CutPrefix(path, "/api/v1")
	if !ok {
		return nil
	}
	if method == http.MethodHead {
		method = http.MethodGet
	}
	levels := strings.Split(rest, "/")
	for i := range d.ops {
		if o := &d.ops[i]; o.method == method && o.matches(levels) {
			return o
		}
	}
	return nil
}

func (o *declaredOp) matches(levels []string) bool {
	if len(o.path) != len(levels) {
		return false
	}
	for i, level := range o.path {
		if !strings.HasPrefix(level, "{") && level != levels[i] {
			return false
		}
	}
	return true
}

// fault says what an answer is that the document does not declare; "" is fine.
func (d *declared) fault(r *http.Response, body string) string {
	o := d.find(r.Request.Method, r.Request.URL.EscapedPath())
	if o == nil {
		return ""
	}
	d.mu.Lock()
	o.met[strconv.Itoa(r.StatusCode)] = true
	d.mu.Unlock()
	content, ok := o.answers[strconv.Itoa(r.StatusCode)]
	if !ok {
		return "the status is not declared"
	}
	header := r.Header.Get("Content-Type")
	if body == "" && header == "" {
		return ""
	}
	kind, _, err := mime.ParseMediaType(header)
	if err != nil {
		return "the Content-Type " + strconv.Quote(header) + " cannot be read"
	}
	if _, ok := content[kind]; !ok {
		return "the Content-Type " + kind + " is not declared for this status"
	}
	return ""
}
