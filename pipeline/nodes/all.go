package nodes

import "millrace/pipeline/node"

// All lists every type, in the order of the palette.
func All(o Options) []node.Type {
	if o.Reader == nil {
		o.Reader = noReader{}
	}
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
		fetchData(o.Reader),
		searchNodes(o.Reader),
		logLine(),
	}
}

// Options are what the nodes need from outside.
type Options struct {
	// Reader reads the namespace and its history; nil where nodes are only checked.
	Reader Reader
}
