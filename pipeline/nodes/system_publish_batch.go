package nodes

import (
	"context"
	"fmt"
	"strconv"

	"millrace/pipeline/node"
	"millrace/pipeline/script"
	"millrace/pipeline/value"
)

type batchPublisher struct {
	list *script.Expression
	one  publisher
}

// maxBatch is how many values one call publishes.
const maxBatch = 10_000

// publishBatch publishes a value for each item of a list.
func publishBatch() node.Type {
	fields := append([]node.Field{{Name: "items", Kind: node.ExpressionField, Title: "Items", Required: true, Doc: "A list, at most 10,000 items; the other parameters are filled in for each, which is `$item`, its place `$index`."}}, publishFields...)
	return node.Type{
		Spec: node.Spec{
			Type: "system.uns.publishBatch", Title: "Publish many", Category: "system", Effect: true,
			Doc:    "Stores a value for each item of a list and publishes them live. All are in one commit as a rule, and each is stored exactly once, also when the run is executed again after a crash; a refused one fails the node, the others are stored. The input is handed on.",
			Fields: fields,
			Example: node.Example{Title: "A value for each machine", Params: `{"items":"$json","topic":"{{ $item.machine }}/count","value":"{{ $item.count }}"}`,
				Input: `[{"machine":"m1","count":5},{"machine":"m2","count":7}]`, Out: `[{"machine":"m1","count":5},{"machine":"m2","count":7}]`},
		},
		New: func(c *node.Config) (node.Node, []node.Fault) {
			n := &batchPublisher{}
			x, err := c.Scripts.Expression(c.Params.Get("items").Text())
			faults := n.one.compile(c, c.Params, "")
			if err != nil {
				faults = append(faults, scriptFault("items", err))
			}
			n.list = x
			return n, faults
		},
	}
}

// Run says what to publish; the engine does it.
func (n *batchPublisher) Run(ctx context.Context, c *node.Call) node.Result {
	list, err := n.list.Eval(ctx, c.Scope)
	if err != nil {
		return fail(err)
	}
	if list.Kind() != value.ListKind || list.Len() > maxBatch {
		return node.Result{Err: &node.Failure{Message: fmt.Sprintf("items is %s, wanted is a list of at most %d items", shown(list), maxBatch), Permanent: true}}
	}
	own, scope := *c, *c.Scope
	own.Scope = &scope
	out := make([]node.Publication, list.Len())
	for i := range out {
		scope.Item, scope.Index = list.Index(i), value.Int(int64(i))
		if out[i], err = n.one.publication(ctx, &own); err != nil {
			return fail(fmt.Errorf("item %d: %w", i, err))
		}
		out[i].Key = strconv.AppendInt(nil, int64(i), 36)
	}
	return node.Result{Publish: out}
}
