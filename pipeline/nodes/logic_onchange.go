package nodes

import (
	"context"
	"math"
	"sync"

	"millrace/pipeline/node"
	"millrace/pipeline/script"
	"millrace/pipeline/value"
)

// changes is logic.onchange. What it remembers is in memory: after a start, or a deploy, the first value of each key passes.
type changes struct {
	value, key *script.Expression
	deadband   float64

	mu   sync.Mutex
	last map[string]value.Value
}

// maxKeys bounds what one node remembers; beyond it some key is forgotten, whose next value passes.
const maxKeys = 10_000

// onChange holds back what did not change.
func onChange() node.Type {
	return node.Type{
		Spec: node.Spec{
			Type: "logic.onchange", Title: "On change", Category: "logic",
			Doc: "Hands the input on if the value differs from the last one that passed with the same key; else the branch ends here. It remembers 10,000 keys, in memory: after a start or a deploy the first value of each key passes.",
			Fields: []node.Field{
				{Name: "value", Kind: node.ExpressionField, Title: "Value", Default: `"$trigger.value"`, Doc: "What is compared."},
				{Name: "key", Kind: node.ExpressionField, Title: "Key", Default: `"$trigger.topic"`, Doc: "What is compared with what: values with the same key."},
				{Name: "deadband", Kind: node.NumberField, Title: "Deadband", Min: "0", Default: "0", Doc: "Numbers no further apart than this are the same."},
			},
			Outputs: []node.Port{{Name: "out", Doc: "The input, if the value changed."}},
			Example: node.Example{Title: "The first value passes", Params: `{"deadband":0.5}`, Trigger: `{"topic":"a","value":20.1}`, Input: `{"x":1}`, Out: `{"x":1}`},
		},
		New: func(c *node.Config) (node.Node, []node.Fault) {
			n := &changes{last: map[string]value.Value{}}
			n.deadband, _ = c.Params.Get("deadband").Float()
			var faults []node.Fault
			for field, to := range map[string]**script.Expression{"value": &n.value, "key": &n.key} {
				x, err := c.Scripts.Expression(c.Params.Get(field).Text())
				if err != nil {
					faults = append(faults, scriptFault(field, err))
				}
				*to = x
			}
			return n, faults
		},
	}
}

// Run compares.
func (n *changes) Run(ctx context.Context, c *node.Call) node.Result {
	v, err := n.value.Eval(ctx, c.Scope)
	if err != nil {
		return fail(err)
	}
	k, err := n.key.Eval(ctx, c.Scope)
	if err != nil {
		return fail(err)
	}
	if n.same(k.String(), v, !c.Dry) {
		return node.Result{Port: -1}
	}
	return node.Result{}
}

// same compares with the last one, whose place v takes if keep is set.
func (n *changes) same(key string, v value.Value, keep bool) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	last, ok := n.last[key]
	if ok && n.near(last, v) {
		return true
	}
	if !keep {
		return false
	}
	if !ok && len(n.last) >= maxKeys {
		for some := range n.last {
			delete(n.last, some)
			break
		}
	}
	n.last[key] = v
	return false
}

func (n *changes) near(a, b value.Value) bool {
	if n.deadband > 0 && a.Kind() == value.NumberKind && b.Kind() == value.NumberKind {
		x, _ := a.Float()
		y, _ := b.Float()
		return math.Abs(x-y) <= n.deadband
	}
	return value.Equal(a, b)
}
