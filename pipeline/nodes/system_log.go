package nodes

import (
	"context"

	"millrace/pipeline/node"
)

type logNode struct {
	level   string
	message tree
}

// logLine writes into the trace of the run.
func logLine() node.Type {
	return node.Type{
		Spec: node.Spec{
			Type: "system.log", Title: "Log", Category: "system",
			Doc: "Writes a line into the trace of the run, and hands the input on.",
			Fields: []node.Field{
				{Name: "message", Kind: node.TextField, Title: "Message", Required: true, Template: true, Doc: "The line."},
				{Name: "level", Kind: node.SelectField, Title: "Level", Options: []string{"debug", "info", "warn", "error"}, Default: `"info"`, Doc: "How grave it is."},
			},
			Example: node.Example{Title: "The value", Params: `{"message":"got {{ $json.value }}"}`, Input: `{"value":5}`, Out: `{"value":5}`},
		},
		New: func(c *node.Config) (node.Node, []node.Fault) {
			t, faults := newTree(c.Scripts, c.Params.Get("message"), "message")
			return &logNode{c.Params.Get("level").Text(), t}, faults
		},
	}
}

// Run writes.
func (n *logNode) Run(ctx context.Context, c *node.Call) node.Result {
	v, err := n.message.eval(ctx, c.Scope)
	if err != nil {
		return fail(err)
	}
	c.Log(n.level, v.String())
	return node.Result{}
}
