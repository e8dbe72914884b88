package definition

import (
	"fmt"

	"millrace/pipeline/value"
)

// Difference is one way in which two versions differ. Was and Is are missing where there was or is nothing.
type Difference struct {
	Kind  string // node, edge, pipeline, layout, tests
	Node  string // its id, of a node
	What  string // added, removed, changed
	Field string // of what changed, such as params.topic
	Was   value.Value
	Is    value.Value
}

// Diff tells how b differs from a, in the order of b's nodes: what a designer changed, not how the text moved.
func Diff(a, b *Definition) (list []Difference) {
	was, is := a.Value(), b.Value()
	for _, name := range []string{"workspace", "name", "description", "labels", "settings"} {
		list = compare(list, Difference{Kind: "pipeline"}, name, was.Get(name), is.Get(name))
	}
	old := map[string]value.Value{}
	for i := range a.Nodes {
		old[a.Nodes[i].ID] = a.Nodes[i].value()
	}
	for i := range b.Nodes {
		id, v := b.Nodes[i].ID, b.Nodes[i].value()
		o, there := old[id]
		if !there {
			list = append(list, Difference{Kind: "node", Node: id, What: "added", Is: v})
			continue
		}
		delete(old, id)
		for _, name := range []string{"type", "name", "params", "settings"} {
			list = compare(list, Difference{Kind: "node", Node: id}, name, o.Get(name), v.Get(name))
		}
	}
	for i := range a.Nodes {
		if v, there := old[a.Nodes[i].ID]; there {
			list = append(list, Difference{Kind: "node", Node: a.Nodes[i].ID, What: "removed", Was: v})
		}
	}
	list = diffEdges(list, a.Edges, b.Edges)
	list = compare(list, Difference{Kind: "tests"}, "tests", was.Get("tests"), is.Get("tests"))
	return compare(list, Difference{Kind: "layout"}, "layout", was.Get("layout"), is.Get("layout"))
}

func diffEdges(list []Difference, a, b []Edge) []Difference {
	count := map[Edge]int{}
	full := func(e Edge) Edge {
		if e.Port == "" {
			e.Port = defaultPort
		}
		return e
	}
	for _, e := range a {
		count[full(e)]--
	}
	for _, e := range b {
		if count[full(e)]++; count[full(e)] > 0 {
			list = append(list, Difference{Kind: "edge", What: "added", Is: value.Text(full(e).String())})
		}
	}
	for _, e := range a {
		if count[full(e)] < 0 {
			list = append(list, Difference{Kind: "edge", What: "removed", Was: value.Text(full(e).String())})
		}
	}
	return list
}

// String draws the edge.
func (e Edge) String() string { return fmt.Sprintf("%s.%s -> %s", e.From, e.Port, e.To) }

// compare goes down into objects, and into lists of the same length.
func compare(list []Difference, d Difference, field string, was, is value.Value) []Difference {
	if same(was, is) {
		return list
	}
	switch {
	case was.Kind() == value.ObjectKind && is.Kind() == value.ObjectKind:
		for i := range was.Len() {
			f := was.Field(i)
			list = compare(list, d, field+"."+f.Name, f.Value, is.Get(f.Name))
		}
		for i := range is.Len() {
			if f := is.Field(i); was.Get(f.Name).IsMissing() {
				list = compare(list, d, field+"."+f.Name, value.Value{}, f.Value)
			}
		}
		return list
	case was.Kind() == value.ListKind && is.Kind() == value.ListKind && was.Len() == is.Len():
		for i := range was.Len() {
			list = compare(list, d, fmt.Sprintf("%s[%d]", field, i), was.Index(i), is.Index(i))
		}
		return list
	}
	d.Field, d.Was, d.Is, d.What = field, was, is, "changed"
	switch {
	case was.IsMissing():
		d.What = "added"
	case is.IsMissing():
		d.What = "removed"
	}
	return append(list, d)
}

// same is exact: 1 and 1.0 are two ways to write a parameter.
func same(a, b value.Value) bool {
	return string(a.AppendJSON(nil)) == string(b.AppendJSON(nil)) && a.IsMissing() == b.IsMissing()
}
