package definition

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"millrace/pipeline/node"
	"millrace/pipeline/value"
)

// Read takes a definition from JSON. It reports everything that is not in the shape of one; whether the shape makes sense
// is Compile's to say.
func Read(text []byte) (Definition, []Fault) {
	if len(text) > MaxBytes {
		return Definition{}, []Fault{wrong("", "", codeSize, fmt.Sprintf("%d bytes, at most %d are allowed", len(text), MaxBytes))}
	}
	v, err := value.Parse(text)
	if err != nil {
		return Definition{}, []Fault{wrong("", "", codeSyntax, err.Error())}
	}
	d, faults := FromValue(v)
	return d, append(twice(text), faults...)
}

// twice finds names that an object has more than once; the value has only the last.
func twice(text []byte) (faults []Fault) {
	type level struct {
		names map[string]bool
		key   bool // the next token is a name
		at    string
		n     int
	}
	var stack []level
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	path := ""
	for {
		tok, err := dec.Token()
		if errors.Is(err, io.EOF) || err != nil {
			return faults
		}
		top := len(stack) - 1
		if top >= 0 && stack[top].names != nil && stack[top].key {
			if name, ok := tok.(string); ok {
				path = join(stack[top].at, name)
				if stack[top].names[name] {
					faults = append(faults, wrong("", path, codeDuplicate, fmt.Sprintf("%q is there twice", name)))
				}
				stack[top].names[name] = true
				stack[top].key = false
				continue
			}
		}
		if top >= 0 && stack[top].names == nil && tok != json.Delim(']') {
			path = fmt.Sprintf("%s[%d]", stack[top].at, stack[top].n)
			stack[top].n++
		}
		switch tok {
		case json.Delim('{'):
			stack = append(stack, level{names: map[string]bool{}, key: true, at: path})
			continue
		case json.Delim('['):
			stack = append(stack, level{at: path})
			continue
		case json.Delim('}'), json.Delim(']'):
			stack = stack[:top]
			top--
		}
		if top >= 0 && stack[top].names != nil {
			stack[top].key = true
		}
	}
}

func join(at, name string) string {
	if at == "" {
		return name
	}
	return at + "." + name
}

// FromValue takes a definition from a tree, as Read does from text.
func FromValue(v value.Value) (d Definition, faults []Fault) {
	r := &reader{}
	r.object("", "", v, map[string]func(field string, v value.Value){
		"id":          r.text("", &d.ID),
		"workspace":   r.text("", &d.Workspace),
		"name":        r.text("", &d.Name),
		"description": r.text("", &d.Description),
		"labels":      func(field string, v value.Value) { d.Labels = r.labels(field, v) },
		"settings":    func(field string, v value.Value) { r.settings(field, v, &d.Settings) },
		"nodes":       func(field string, v value.Value) { d.Nodes = r.nodes(field, v) },
		"edges":       func(field string, v value.Value) { d.Edges = r.edges(field, v) },
		"layout":      func(_ string, v value.Value) { d.Layout = v },
		"tests":       func(_ string, v value.Value) { d.Tests = v },
	})
	return d, r.faults
}

type reader struct{ faults []Fault }

func (r *reader) wrong(nodeID, field, code, format string, a ...any) {
	r.faults = append(r.faults, wrong(nodeID, field, code, fmt.Sprintf(format, a...)))
}

// object hands every field to its taker. at is the path of v.
func (r *reader) object(nodeID, at string, v value.Value, takers map[string]func(field string, v value.Value)) {
	if v.Kind() != value.ObjectKind {
		r.wrong(nodeID, at, node.CodeKind, "wanted an object, found %s", v.Kind())
		return
	}
	for i := range v.Len() {
		f := v.Field(i)
		take := takers[f.Name]
		if take == nil {
			r.wrong(nodeID, join(at, f.Name), node.CodeUnknown, "there is no %q here", f.Name)
			continue
		}
		if f.Value.Kind() != value.NullKind { // null is as good as not there
			take(join(at, f.Name), f.Value)
		}
	}
}

func (r *reader) text(nodeID string, to *string) func(string, value.Value) {
	return func(field string, v value.Value) {
		if v.Kind() != value.TextKind {
			r.wrong(nodeID, field, node.CodeKind, "wanted a text, found %s", v.Kind())
			return
		}
		*to = v.Text()
	}
}

func (r *reader) whole(nodeID string, to *int) func(string, value.Value) {
	return func(field string, v value.Value) {
		n, ok := v.Int()
		if !ok || n < -1<<31 || n >= 1<<31 {
			r.wrong(nodeID, field, node.CodeKind, "wanted a whole number, found %s", v.String())
			return
		}
		*to = int(n)
	}
}

func (r *reader) labels(field string, v value.Value) map[string]string {
	if v.Kind() != value.ObjectKind {
		r.wrong("", field, node.CodeKind, "wanted an object of texts, found %s", v.Kind())
		return nil
	}
	labels := make(map[string]string, v.Len())
	for i := range v.Len() {
		f := v.Field(i)
		if f.Value.Kind() != value.TextKind {
			r.wrong("", join(field, f.Name), node.CodeKind, "wanted a text, found %s", f.Value.Kind())
			continue
		}
		labels[f.Name] = f.Value.Text()
	}
	return labels
}

func (r *reader) settings(field string, v value.Value, s *Settings) {
	r.object("", field, v, map[string]func(string, value.Value){
		"priority": r.text("", &s.Priority), "runOrder": r.text("", &s.RunOrder), "orderKey": r.text("", &s.OrderKey),
		"stepExecution": r.text("", &s.StepExecution), "historyDetail": r.text("", &s.HistoryDetail), "timeout": r.text("", &s.Timeout),
		"maxDepth": r.whole("", &s.MaxDepth),
	})
}

// list calls each for every item, with its path.
func (r *reader) list(field string, v value.Value, most int, each func(field string, v value.Value)) {
	if v.Kind() != value.ListKind {
		r.wrong("", field, node.CodeKind, "wanted a list, found %s", v.Kind())
		return
	}
	if v.Len() > most {
		r.wrong("", field, codeSize, "%d entries, at most %d are allowed", v.Len(), most)
		return
	}
	for i := range v.Len() {
		each(field+"["+strconv.Itoa(i)+"]", v.Index(i))
	}
}

func (r *reader) nodes(field string, v value.Value) (nodes []Node) {
	r.list(field, v, MaxNodes, func(field string, v value.Value) {
		var n Node
		id := v.Get("id").Text()
		// What has an id is named by it, so its fields are counted from the node.
		if id != "" {
			field = ""
		}
		r.object(id, field, v, map[string]func(string, value.Value){
			"id": r.text(id, &n.ID), "type": r.text(id, &n.Type), "name": r.text(id, &n.Name),
			"params":   func(_ string, v value.Value) { n.Params = v },
			"settings": func(field string, v value.Value) { r.nodeSettings(id, field, v, &n.Settings) },
		})
		nodes = append(nodes, n)
	})
	return nodes
}

func (r *reader) nodeSettings(id, field string, v value.Value, s *node.Settings) {
	r.object(id, field, v, map[string]func(string, value.Value){
		"timeout": r.text(id, &s.Timeout), "onError": r.text(id, &s.OnError),
		"retry": func(field string, v value.Value) {
			r.object(id, field, v, map[string]func(string, value.Value){
				"count": r.whole(id, &s.Retry.Count), "backoff": r.text(id, &s.Retry.Backoff), "delay": r.text(id, &s.Retry.Delay), "max": r.text(id, &s.Retry.Max),
				"jitter": func(field string, v value.Value) {
					f, ok := v.Float()
					if !ok || v.Kind() != value.NumberKind {
						r.wrong(id, field, node.CodeKind, "wanted a number, found %s", v.Kind())
					}
					s.Retry.Jitter = f
				},
			})
		},
	})
}

func (r *reader) edges(field string, v value.Value) (edges []Edge) {
	r.list(field, v, MaxEdges, func(field string, v value.Value) {
		var e Edge
		r.object("", field, v, map[string]func(string, value.Value){"from": r.text("", &e.From), "port": r.text("", &e.Port), "to": r.text("", &e.To)})
		edges = append(edges, e)
	})
	return edges
}
