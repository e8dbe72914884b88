package nodes

import (
	"context"

	"millrace/pipeline/node"
	"millrace/pipeline/script"
)

type filterNode struct{ x *script.Expression }

// filter ends a branch unless a condition holds.
func filter() node.Type {
	return node.Type{
		Spec: node.Spec{
			Type: "logic.filter", Title: "Filter", Category: "logic",
			Doc:     "Hands the input on if the condition holds; else the branch ends here, and the run completes when it has no other.",
			Fields:  []node.Field{conditionField},
			Outputs: []node.Port{{Name: "out", Doc: "The input, if the condition holds."}},
			Example: node.Example{Title: "Only good values", Params: `{"condition":"$trigger.quality === 'good'"}`, Trigger: `{"topic":"a","value":1,"quality":"good"}`, Input: `{"x":1}`, Out: `{"x":1}`},
		},
		New: func(c *node.Config) (node.Node, []node.Fault) {
			x, faults := condition(c)
			return &filterNode{x}, faults
		},
	}
}

// Run decides.
func (n *filterNode) Run(ctx context.Context, c *node.Call) node.Result {
	v, err := n.x.Eval(ctx, c.Scope)
	switch {
	case err != nil:
		return fail(err)
	case v.Truthy():
		return node.Result{}
	}
	return node.Result{Port: -1}
}
