package nodes

import (
	"context"

	"millrace/pipeline/node"
	"millrace/pipeline/script"
	"millrace/pipeline/value"
)

type switchNode struct {
	rules []*script.Expression
	all   bool
}

const defaultPort = "default"

// choose is logic.switch.
func choose() node.Type {
	return node.Type{
		Spec: node.Spec{
			Type: "logic.switch", Title: "Switch", Category: "logic", Ports: true,
			Doc: "Hands the input on by the port of the first rule that holds, or of all that hold; by port default when none does.",
			Fields: []node.Field{
				{Name: "rules", Kind: node.ListField, Title: "Rules", Required: true, Doc: "The rules, in their order.", Of: &node.Field{Kind: node.GroupField, Fields: []node.Field{
					{Name: "name", Kind: node.TextField, Title: "Port", Required: true, Doc: "The name of the port."}, conditionField}}},
				{Name: "mode", Kind: node.SelectField, Title: "Take", Options: []string{"first", "all"}, Default: `"first"`, Doc: "The first rule that holds, or all of them."},
			},
			Example: node.Example{Title: "By temperature", Params: `{"rules":[{"name":"hot","condition":"$json > 40"},{"name":"warm","condition":"$json > 20"}]}`, Input: `25`, Port: "warm", Out: `25`},
		},
		Ports: func(params value.Value) []node.Port {
			list := params.Get("rules")
			ports := make([]node.Port, 0, list.Len()+1)
			for i := range list.Len() {
				ports = append(ports, node.Port{Name: list.Index(i).Get("name").Text(), Doc: list.Index(i).Get("condition").Text()})
			}
			return append(ports, node.Port{Name: defaultPort, Doc: "No rule holds."})
		},
		New: newSwitch,
	}
}

func newSwitch(c *node.Config) (node.Node, []node.Fault) {
	n := &switchNode{all: c.Params.Get("mode").Text() == "all"}
	var faults []node.Fault
	seen := map[string]bool{defaultPort: true, "error": true}
	list := c.Params.Get("rules")
	for i := range list.Len() {
		name := list.Index(i).Get("name").Text()
		if seen[name] {
			faults = append(faults, faultOf(index("rules", i)+".name", "duplicate", "there is a port %q already", name))
		}
		seen[name] = true
		x, err := c.Scripts.Expression(list.Index(i).Get("condition").Text())
		if err != nil {
			faults = append(faults, scriptFault(index("rules", i)+".condition", err))
		}
		n.rules = append(n.rules, x)
	}
	return n, faults
}

// Run takes the ports.
func (n *switchNode) Run(ctx context.Context, c *node.Call) node.Result {
	r := node.Result{Port: len(n.rules)}
	taken := false
	for i, x := range n.rules {
		v, err := x.Eval(ctx, c.Scope)
		switch {
		case err != nil:
			return fail(err)
		case !v.Truthy():
		case !n.all:
			return node.Result{Port: i}
		case taken:
			r.Also = append(r.Also, i)
		default:
			r.Port, taken = i, true
		}
	}
	return r
}
