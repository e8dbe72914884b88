package nodes

import (
	"context"

	"millrace/pipeline/node"
	"millrace/pipeline/value"
)

type mergeNode struct{ how string }

// merge brings branches together.
func merge() node.Type {
	return node.Type{
		Spec: node.Spec{
			Type: "flow.merge", Title: "Merge", Category: "flow", Joins: true,
			Doc: "Waits for every branch that can still come and hands on what they brought, in the order of the edges in the definition.",
			Fields: []node.Field{
				{Name: "mode", Kind: node.SelectField, Title: "As", Options: []string{"list", "object", "first"}, Default: `"list"`, Doc: "A list of what came; one object with the fields of all, the later branch counting; or the first alone."},
			},
			Example: node.Example{Title: "One object", Params: `{"mode":"object"}`, Input: `{"a":1}`, Out: `{"a":1}`},
		},
		New: func(c *node.Config) (node.Node, []node.Fault) { return &mergeNode{c.Params.Get("mode").Text()}, nil },
	}
}

// Run merges.
func (n *mergeNode) Run(_ context.Context, c *node.Call) node.Result {
	in := c.Scope.Input
	switch n.how {
	case "first":
		return node.Result{Out: c.Input}
	case "object":
		out := value.Object()
		for _, v := range in {
			for i := range v.Len() {
				if v.Kind() == value.ObjectKind {
					f := v.Field(i)
					out = out.With(f.Name, f.Value)
				}
			}
		}
		return node.Result{Out: out}
	}
	return node.Result{Out: value.List(append([]value.Value(nil), in...)...)}
}
