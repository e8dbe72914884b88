package nodes

import (
	"context"
	"time"

	"millrace/pipeline/node"
)

type waitNode struct{ d time.Duration }

// wait lets time pass.
func wait() node.Type {
	return node.Type{
		Spec: node.Spec{
			Type: "action.wait", Title: "Wait", Category: "action",
			Doc: "Hands the input on after a while. A run that waits takes no slot and no worker; one that waits 30 s or longer is kept on disk and goes on after a restart.",
			Fields: []node.Field{
				{Name: "duration", Kind: node.DurationField, Title: "Duration", Required: true, Max: "366d", Doc: "How long, for example 20ms, 5s or 1d."},
			},
			Example: node.Example{Title: "Ten seconds", Params: `{"duration":"10s"}`, Input: `{"a":1}`, Out: `{"a":1}`},
		},
		New: func(c *node.Config) (node.Node, []node.Fault) {
			return &waitNode{durationOf(c.Params, "duration")}, nil
		},
	}
}

// Run waits once.
func (n *waitNode) Run(_ context.Context, c *node.Call) node.Result {
	if c.Resumed || n.d <= 0 {
		return node.Result{}
	}
	return node.Result{Wait: n.d}
}
