package nodes

import (
	"context"
	"fmt"

	"millrace/pipeline/node"
	"millrace/pipeline/value"
)

type searchNode struct {
	r         Reader
	workspace string
	filter    tree
	limit     int
}

// searchNodes finds topics.
func searchNodes(r Reader) node.Type {
	return node.Type{
		Spec: node.Spec{
			Type: "system.uns.searchnodes", Title: "Search topics", Category: "system", Blocking: true,
			Doc: "Finds topics and hands on a list of `{topic, value, timestamp, quality, unit}` with their last values, in the order of their paths. Topics without a value are left out.",
			Fields: []node.Field{
				{Name: "filter", Kind: node.TextField, Title: "Filter", Required: true, Template: true, Doc: "A filter of topics; + stands for one level, # for all below."},
				{Name: "limit", Kind: node.NumberField, Title: "At most", Min: "1", Max: "10000", Default: "1000", Doc: "So many topics."},
			},
			Example: node.Example{Title: "Every recipe", Params: `{"filter":"+/recipe"}`, Input: `1`, Out: `[{"topic":"line1/recipe","value":42.50,"timestamp":"2026-12-01T10:00:00.000Z","quality":"good"}]`},
		},
		New: func(c *node.Config) (node.Node, []node.Fault) {
			t, faults := newTree(c.Scripts, c.Params.Get("filter"), "filter")
			limit, _ := c.Params.Get("limit").Int()
			return &searchNode{r, c.Workspace, t, int(limit)}, faults
		},
	}
}

// Run searches.
func (n *searchNode) Run(ctx context.Context, c *node.Call) node.Result {
	filter, err := n.filter.eval(ctx, c.Scope)
	if err != nil {
		return fail(err)
	}
	if filter.Kind() != value.TextKind {
		return node.Result{Err: &node.Failure{Message: fmt.Sprintf("the filter is %s, wanted is a text", shown(filter)), Permanent: true}}
	}
	list, err := n.r.Latest(n.workspace, filter.Text(), n.limit)
	if err != nil {
		return node.Result{Err: err}
	}
	return node.Result{Out: readings(list)}
}
