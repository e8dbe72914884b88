package script

import (
	"fmt"

	"millrace/pipeline/value"
)

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

// json is $json.
func (s *Scope) json() value.Value {
	if len(s.Input) == 0 {
		return value.Value{}
	}
	return s.Input[0]
}

// Fault is what is wrong with a text before it runs. Line and Column count from 1, in the text as it was given.
type Fault struct {
	Line, Column int
	Message      string
}

func (f *Fault) Error() string {
	return fmt.Sprintf("line %d, column %d: %s", f.Line, f.Column, f.Message)
}

// The kinds of Error.
const (
	Runtime   = "runtime"   // the code threw
	Timeout   = "timeout"   // it ran for longer than it may
	Memory    = "memory"    // it took more memory than it may
	Depth     = "depth"     // it called itself too deep
	Cancelled = "cancelled" // the run ended
)

// Error is a failure of code that ran. Line and Column count from 1, in the text as it was given; 0 = not known.
type Error struct {
	Kind         string
	Message      string
	Line, Column int
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return e.Message
	}
	return fmt.Sprintf("%s (line %d, column %d)", e.Message, e.Line, e.Column)
}
