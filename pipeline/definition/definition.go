package definition

import (
	"millrace/pipeline/node"
	"millrace/pipeline/value"
)

// Definition is a pipeline as a person writes it. Read fills it from JSON, ReadYAML from YAML.
type Definition struct {
	ID          string
	Workspace   string // "" = main
	Name        string // "" = ID
	Description string
	Labels      map[string]string
	Settings    Settings
	Nodes       []Node
	Edges       []Edge
	// Layout is where the designer drew the nodes; nothing but the designer reads it.
	Layout value.Value
	// Tests are kept with the definition; they are run by name, never at deploy unless asked.
	Tests value.Value
}

// Settings are those of the whole pipeline, as written; empty is the default.
type Settings struct {
	Priority      string // high, normal (default), low
	RunOrder      string // parallel (default), ordered, byKey
	OrderKey      string // of byKey: an expression, for example {{ $trigger.topic }}
	StepExecution string // sequential (default), parallel: branches of one run at once
	HistoryDetail string // minimal, standard (default), full
	Timeout       string // of one run, waits not counted; default 5m
	MaxDepth      int    // how many pipelines may have triggered each other before this one; 0 = 16
}

// Node is one step as written.
type Node struct {
	ID       string
	Type     string
	Name     string // how $node["…"] finds it; "" = ID
	Params   value.Value
	Settings node.Settings
}

// Title is the name that $node finds the node by.
func (n *Node) Title() string {
	if n.Name == "" {
		return n.ID
	}
	return n.Name
}

// Edge leads from a port of one node to another node.
type Edge struct {
	From string
	Port string // "" = out
	To   string
}

// Fault is one thing wrong with a definition.
type Fault = node.Fault

// The bounds of a definition.
const (
	MaxNodes = 500
	MaxEdges = 2000
	MaxBytes = 1 << 20
)

// The codes of faults, beside those of node.Check.
const (
	codeSyntax    = "syntax"
	codeDuplicate = "duplicate"
	codeID        = "id_invalid"
	codeType      = "unknown_type"
	codePort      = "unknown_port"
	codeNode      = "unknown_node"
	codeCycle     = "cycle"
	codeTrigger   = "no_trigger"
	codeReach     = "unreachable"
	codeBefore    = "not_before"
	codeLoop      = "loop"
	codeSize      = "too_large"
)

func wrong(nodeID, field, code, message string) Fault {
	return Fault{Node: nodeID, Field: field, Code: code, Message: message, Severity: node.SeverityError}
}

func warn(nodeID, field, code, message string) Fault {
	return Fault{Node: nodeID, Field: field, Code: code, Message: message, Severity: node.SeverityWarning}
}

// Broken says that one of the faults is an error.
func Broken(faults []Fault) bool {
	for i := range faults {
		if faults[i].Severity == node.SeverityError {
			return true
		}
	}
	return false
}
