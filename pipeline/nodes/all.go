package nodes

import "millrace/pipeline/node"

// All lists every type, in the order of the palette.
func All(o Options) []node.Type {
	return []node.Type{
		valuesTrigger(),
		manualTrigger(),
		set(),
		javascript(),
		branch(),
		choose(),
		filter(),
		onChange(),
		merge(),
		stop(),
		wait(),
		publish(),
		logLine(),
	}
}

// Options are what the nodes need from outside.
type Options struct{}
