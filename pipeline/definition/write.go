package definition

import (
	"slices"

	"millrace/pipeline/node"
	"millrace/pipeline/value"
)

// Value is the definition as a tree whose keys always come in the same order, layout last, so that two versions differ in
// text only where they differ. What is at its default is left out.
func (d *Definition) Value() value.Value {
	var o fields
	o.text("id", d.ID)
	o.text("workspace", d.Workspace)
	o.text("name", d.Name)
	o.text("description", d.Description)
	if len(d.Labels) > 0 {
		var l fields
		names := make([]string, 0, len(d.Labels))
		for name := range d.Labels {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			l.add(name, value.Text(d.Labels[name]))
		}
		o.add("labels", value.Object(l...))
	}
	o.object("settings", d.Settings.fields())
	nodes := make([]value.Value, len(d.Nodes))
	for i := range d.Nodes {
		nodes[i] = d.Nodes[i].value()
	}
	o.add("nodes", value.List(nodes...))
	edges := make([]value.Value, len(d.Edges))
	for i, e := range d.Edges {
		var f fields
		f.text("from", e.From)
		if e.Port != defaultPort {
			f.text("port", e.Port)
		}
		f.text("to", e.To)
		edges[i] = value.Object(f...)
	}
	o.add("edges", value.List(edges...))
	o.any("tests", d.Tests)
	o.any("layout", d.Layout)
	return value.Object(o...)
}

// AppendJSON appends the definition as one line of JSON.
func (d *Definition) AppendJSON(dst []byte) []byte { return d.Value().AppendJSON(dst) }

// MarshalJSON is AppendJSON for encoding/json.
func (d Definition) MarshalJSON() ([]byte, error) { return d.AppendJSON(nil), nil }

const defaultPort = "out"

type fields []value.Field

func (f *fields) add(name string, v value.Value) {
	*f = append(*f, value.Field{Name: name, Value: v})
}

func (f *fields) text(name, s string) {
	if s != "" {
		f.add(name, value.Text(s))
	}
}

func (f *fields) whole(name string, n int) {
	if n != 0 {
		f.add(name, value.Int(int64(n)))
	}
}

func (f *fields) any(name string, v value.Value) {
	if !v.IsMissing() {
		f.add(name, v)
	}
}

func (f *fields) object(name string, o fields) {
	if len(o) > 0 {
		f.add(name, value.Object(o...))
	}
}

func (s *Settings) fields() (f fields) {
	f.text("priority", s.Priority)
	f.text("runOrder", s.RunOrder)
	f.text("orderKey", s.OrderKey)
	f.text("stepExecution", s.StepExecution)
	f.text("historyDetail", s.HistoryDetail)
	f.text("timeout", s.Timeout)
	f.whole("maxDepth", s.MaxDepth)
	return f
}

func (n *Node) value() value.Value {
	var f fields
	f.text("id", n.ID)
	f.text("type", n.Type)
	f.text("name", n.Name)
	f.any("params", n.Params)
	f.object("settings", settingFields(&n.Settings))
	return value.Object(f...)
}

func settingFields(s *node.Settings) (f fields) {
	f.text("timeout", s.Timeout)
	var r fields
	r.whole("count", s.Retry.Count)
	r.text("backoff", s.Retry.Backoff)
	r.text("delay", s.Retry.Delay)
	r.text("max", s.Retry.Max)
	if s.Retry.Jitter != 0 {
		r.add("jitter", value.Float(s.Retry.Jitter))
	}
	f.object("retry", r)
	f.text("onError", s.OnError)
	return f
}
