package nodes

import (
	"context"

	"millrace/pipeline/node"
	"millrace/pipeline/script"
)

var conditionField = node.Field{Name: "condition", Kind: node.ExpressionField, Title: "Condition", Required: true, Doc: "A JavaScript expression, such as `$json.value > 40`."}

func condition(c *node.Config) (*script.Expression, []node.Fault) {
	x, err := c.Scripts.Expression(c.Params.Get("condition").Text())
	if err != nil {
		return nil, []node.Fault{scriptFault("condition", err)}
	}
	return x, nil
}

type ifNode struct{ x *script.Expression }

// branch is logic.if.
func branch() node.Type {
	return node.Type{
		Spec: node.Spec{
			Type: "logic.if", Title: "If", Category: "logic",
			Doc:     "Hands the input on by one of two ports. What counts as true is JavaScript's rule: 0, \"\", null and undefined do not.",
			Fields:  []node.Field{conditionField},
			Outputs: []node.Port{{Name: "true", Doc: "The condition holds."}, {Name: "false", Doc: "It does not."}},
			Example: node.Example{Title: "Too hot", Params: `{"condition":"$json.value > 40"}`, Input: `{"value":38.5}`, Port: "false", Out: `{"value":38.5}`},
		},
		New: func(c *node.Config) (node.Node, []node.Fault) {
			x, faults := condition(c)
			return &ifNode{x}, faults
		},
	}
}

// Run takes the port.
func (n *ifNode) Run(ctx context.Context, c *node.Call) node.Result {
	v, err := n.x.Eval(ctx, c.Scope)
	switch {
	case err != nil:
		return fail(err)
	case v.Truthy():
		return node.Result{Port: 0}
	}
	return node.Result{Port: 1}
}
