package nodes

import (
	"context"

	"millrace/pipeline/node"
	"millrace/pipeline/script"
	"millrace/pipeline/value"
)

type code struct{ f *script.Function }

// javascript runs a function body.
func javascript() node.Type {
	return node.Type{
		Spec: node.Spec{
			Type: "logic.javascript", Title: "JavaScript", Category: "logic",
			Doc:    "Runs the body of a function. What it returns is handed on; without a return that is null. It sees $trigger, $input, $json, $node, $execution and $vars, may change what it gets without effect on others, and has no access to files, the network or timers. See the page on expressions for numbers and limits.",
			Fields: []node.Field{{Name: "code", Kind: node.CodeField, Title: "Code", Required: true, Doc: "The body of the function."}},
			Example: node.Example{Title: "Sum of a list", Params: `{"code":"let sum = 0;\nfor (const x of $json.list) sum += x;\nreturn {sum};"}`,
				Input: `{"list":[1,2,3]}`, Out: `{"sum":6}`},
		},
		New: func(c *node.Config) (node.Node, []node.Fault) {
			f, err := c.Scripts.Function(c.Params.Get("code").Text())
			if err != nil {
				return nil, []node.Fault{scriptFault("code", err)}
			}
			return &code{f}, nil
		},
	}
}

// Run calls the function.
func (n *code) Run(ctx context.Context, c *node.Call) node.Result {
	v, err := n.f.Call(ctx, c.Scope)
	if err != nil {
		return fail(err)
	}
	if v.IsMissing() {
		v = value.Null()
	}
	return node.Result{Out: v}
}
