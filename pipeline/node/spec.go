package node

// Spec is what a type of node says of itself. Validation, the form of the designer and the reference pages are made
// from it, and nothing of them is written a second time.
type Spec struct {
	// Type is the id in definitions, e.g. "logic.if".
	Type string `json:"type"`
	// Title and Category are shown in the palette.
	Title    string `json:"title"`
	Category string `json:"category"` // trigger, transform, logic, flow, action, system
	// Doc is the reference text, Markdown, its first sentence the summary.
	Doc    string  `json:"doc"`
	Fields []Field `json:"fields"`
	// Outputs are the ports an edge may leave from, "error" not counted: every node that is no trigger has that one.
	// Nil means one port, "out". A node without any has an empty slice.
	Outputs []Port `json:"outputs"`
	// Ports, when set, gives the outputs that follow from the parameters (logic.switch); then Outputs is not used.
	Ports bool `json:"dynamicPorts,omitempty"`
	// Trigger says that a run begins here; such a node has no input.
	Trigger bool `json:"trigger,omitempty"`
	// Blocking says that Run may wait for somebody outside; the engine then calls it from the I/O pool.
	Blocking bool `json:"blocking,omitempty"`
	// Effect says that Run changes something outside the run, so that a dry run records it instead.
	Effect bool `json:"effect,omitempty"`
	// Joins says that the node waits for all predecessors that can still come (flow.merge).
	Joins bool `json:"joins,omitempty"`
	// Example is a working use of the node; it is also its test.
	Example Example `json:"example"`
}

// Port is one output.
type Port struct {
	Name string `json:"name"`
	Doc  string `json:"doc"`
}

// FieldKind says how a parameter is written, checked and edited.
type FieldKind string

// The kinds of fields.
const (
	TextField       FieldKind = "text"       // may hold {{ }} where Field.Template
	NumberField     FieldKind = "number"     // a JSON number
	BooleanField    FieldKind = "boolean"    //
	DurationField   FieldKind = "duration"   // "20ms", "5s", "1d"
	ExpressionField FieldKind = "expression" // a JavaScript expression, braces optional
	CodeField       FieldKind = "code"       // the body of a JavaScript function
	TopicField      FieldKind = "topic"      // a path; may hold {{ }} where Field.Template
	FilterField     FieldKind = "filter"     // a topic filter
	SelectField     FieldKind = "select"     // one of Options
	ListField       FieldKind = "list"       // of Of
	GroupField      FieldKind = "group"      // an object of Fields
	AnyField        FieldKind = "any"        // any JSON, {{ }} allowed in its texts where Field.Template
)

// Field is one parameter.
type Field struct {
	Name     string    `json:"name"`
	Kind     FieldKind `json:"kind"`
	Title    string    `json:"title,omitempty"`
	Doc      string    `json:"doc"`
	Required bool      `json:"required,omitempty"`
	// Default is JSON text; empty = none.
	Default  string   `json:"default,omitempty"`
	Options  []string `json:"options,omitempty"`
	Template bool     `json:"template,omitempty"`
	Of       *Field   `json:"of,omitempty"`
	Fields   []Field  `json:"fields,omitempty"`
	// Min and Max bound numbers, and durations in their text form; empty = unbounded.
	Min string `json:"min,omitempty"`
	Max string `json:"max,omitempty"`
}

// Example is a use of a node: with Params and these inputs it leaves by Port with Out. Texts are JSON.
type Example struct {
	Title   string `json:"title"`
	Params  string `json:"params"`
	Trigger string `json:"trigger,omitempty"` // what $trigger is
	Input   string `json:"input,omitempty"`   // what $json is
	Port    string `json:"port,omitempty"`    // "" = the first
	Out     string `json:"out"`
}

// Fault is one thing wrong with a definition. Field is a path such as "fields[2].name", relative to the parameters where
// a Type reports it, to the node ("params.fields[2].name", "settings.timeout") or definition where validation does.
type Fault struct {
	Node     string `json:"node,omitempty"`
	Field    string `json:"field,omitempty"`
	Code     string `json:"code"`
	Message  string `json:"message"`
	Severity string `json:"severity"` // error or warning
}

// The severities of faults.
const (
	SeverityError   = "error"
	SeverityWarning = "warning"
)

// Settings are what every node has beside its parameters.
type Settings struct {
	// Timeout ends one attempt; empty = none but that of the pipeline.
	Timeout string `json:"timeout,omitempty"`
	Retry   Retry  `json:"retry,omitzero"`
	// OnError is stop (the run fails), continue (the run goes on with the input of the node, and ends as
	// completed_with_errors), or output (the port error). Empty is output where an edge leaves from port error, else stop.
	OnError string `json:"onError,omitempty"`
}

// Retry says how often and when a failed node is called again.
type Retry struct {
	Count   int    `json:"count,omitempty"`   // after the first attempt; at most 100
	Backoff string `json:"backoff,omitempty"` // fixed (default) or exponential (doubles each time)
	Delay   string `json:"delay,omitempty"`   // default 1s
	Max     string `json:"max,omitempty"`     // longest delay; default 5m
	// Jitter is the share of the delay, 0 to 1, by which it is made shorter or longer at random.
	Jitter float64 `json:"jitter,omitempty"`
}
