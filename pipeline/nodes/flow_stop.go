package nodes

import (
	"context"

	"millrace/pipeline/node"
	"millrace/pipeline/value"
)

type stopNode struct {
	failed  bool
	message tree
}

// stop ends the run.
func stop() node.Type {
	return node.Type{
		Spec: node.Spec{
			Type: "flow.stop", Title: "Stop", Category: "flow", Outputs: []node.Port{},
			Doc: "Ends the whole run, other branches too. With status failed it counts as failed and shows the message.",
			Fields: []node.Field{
				{Name: "status", Kind: node.SelectField, Title: "Status", Options: []string{"completed", "failed"}, Default: `"completed"`, Doc: "How the run ends."},
				{Name: "message", Kind: node.TextField, Title: "Message", Template: true, Doc: "Why, for whoever looks at the run."},
			},
			Example: node.Example{Title: "Nothing to do", Params: `{"message":"no order is running"}`, Input: `1`, Out: ``},
		},
		New: func(c *node.Config) (node.Node, []node.Fault) {
			t, faults := newTree(c.Scripts, c.Params.Get("message"), "message")
			return &stopNode{c.Params.Get("status").Text() == "failed", t}, faults
		},
	}
}

// Run stops.
func (n *stopNode) Run(ctx context.Context, c *node.Call) node.Result {
	v, err := n.message.eval(ctx, c.Scope)
	if err != nil {
		return fail(err)
	}
	text := v.String()
	if v.Kind() == value.Missing {
		text = "stopped"
	}
	r := node.Result{Port: -1, Stop: true}
	if n.failed {
		r.Err = &node.Failure{Message: text, Permanent: true}
	} else {
		c.Log("info", text)
	}
	return r
}
