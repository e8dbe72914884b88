package nodes

import "millrace/pipeline/node"

// manualTrigger starts a run when a person asks for it.
func manualTrigger() node.Type {
	return node.Type{
		Spec: node.Spec{
			Type: "trigger.manual", Title: "Manual", Category: "trigger", Trigger: true,
			Doc: "Starts a run when a person or a program asks for one. What was sent along is `$trigger.value`; without anything it is the sample.",
			Fields: []node.Field{
				{Name: "sample", Kind: node.AnyField, Title: "Sample", Doc: "What a run gets when it is started without a value."},
			},
			Outputs: []node.Port{{Name: "out", Doc: "What was sent along."}},
			Example: node.Example{Title: "A sample order", Params: `{"sample":{"order":4711,"count":12}}`},
		},
		New: func(*node.Config) (node.Node, []node.Fault) { return &trigger{node.Start{Manual: true}}, nil },
	}
}
