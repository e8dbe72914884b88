package nodes

import "millrace/pipeline/node"

// All lists every type, in the order of the palette.
func All(o Options) []node.Type {
	return []node.Type{
		valuesTrigger(),
		scheduleTrigger(),
		webhookTrigger(),
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
		publishBatch(),
		logLine(),
	}
}

// Options are what the nodes need from outside.
type Options struct{}
