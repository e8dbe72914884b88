package script

import "millrace/pipeline/value"

// Scope is what an expression sees. It is shared with the run and must not be changed.
type Scope struct {
	Trigger   value.Value                   // $trigger {topic,value,timestamp,quality}
	Input     []value.Value                 // $input; $json is the first, missing when there is none
	Nodes     func(name string) value.Value // $node["Name"]; nil = every one is missing
	Execution value.Value                   // $execution
	Vars      value.Value                   // $vars
	Item      value.Value                   // $item
	Index     value.Value                   // $index
	// Console gets what the code prints; nil drops it.
	Console func(level, text string)
}

// Engine compiles what people write, and runs it.
type Engine struct{}

// Expression is a compiled JavaScript expression.
type Expression struct{}

// Template is a compiled text with placeholders.
type Template struct{}
