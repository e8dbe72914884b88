package node

import (
	"context"
	"time"

	"millrace/pipeline/script"
	"millrace/pipeline/value"
)

// Type is one type of node. New makes a node of it when a definition is compiled, once per version; it reports every
// fault of the parameters at once, and gives no node if one of them is an error.
type Type struct {
	Spec Spec
	New  func(c *Config) (Node, []Fault)
	// Ports are the outputs that follow from parameters, for a Spec with Ports; faults of parameters are New's to report.
	Ports func(params value.Value) []Port
}

// Config is what a node is made from. Params has the shape of the Spec's Fields: unknown names, missing required ones and
// values of the wrong kind have been refused, and defaults filled in, before New is called.
type Config struct {
	Pipeline  string
	Workspace string
	Node      string // its id
	Params    value.Value
	Scripts   *script.Engine
}

// Node is a node of a deployed version. Run is called by many goroutines at once, for different runs. It must return soon
// after ctx ends. A panic fails the run and is reported with the node's name; it ends nothing else.
type Node interface {
	Run(ctx context.Context, c *Call) Result
}

// Trigger is a node whose Spec has Trigger. The engine never calls Run of a trigger: what the trigger hands on is the
// run's input. Kind tells who starts runs for it.
type Trigger interface {
	Start() Start
}

// Start says when runs begin. Exactly one field is set.
type Start struct {
	Values   *Values
	Schedule *Schedule
	Webhook  *Webhook
	Manual   bool
}

// Values starts a run for stored values of topics.
type Values struct {
	Filters  []string // paths with wildcards, within the workspace
	On       string   // every, change, quality
	Deadband float64  // of change: numbers closer to the last one that passed are held back; 0 = any change
	Filter   *script.Expression
	Debounce time.Duration // only the last value of a burst, when it has been quiet that long
	Throttle time.Duration // at most one each so long, per topic: the first
	Sample   int           // every nth value of a topic; 0 and 1 = all
	MaxAge   time.Duration // older values, by their receipt, start nothing; 0 = any age
}

// Schedule starts runs at times.
type Schedule struct {
	Every time.Duration // or
	Cron  string        // five fields, in Zone
	Zone  *time.Location
}

// Webhook starts a run for a POST to /api/v1/hooks/{pipeline}/{path} with the secret.
type Webhook struct {
	Path   string
	Secret string
}

// Call is one call of a node in one run. What it points to is shared with others and must not be changed.
type Call struct {
	// Scope is what expressions see. Scope.Input[0] is $json; it is missing when the node has no predecessor with an output.
	Scope *script.Scope
	// Input is Scope.Input[0], or null.
	Input value.Value
	// Trigger is the time, quality and topic of what started the run, exact.
	Trigger Origin
	// Key is the run's publish key up to and including this node; a node that publishes several values adds to it.
	Key []byte
	// Attempt counts from 1; Resumed says that a Wait of the node is over.
	Attempt int
	Resumed bool
	// Dry says that a node with an effect must say what it would do and not do it. The engine never calls such a node's
	// effect itself in a dry run: publishes are recorded.
	Dry bool
	// Now is the clock of the run: the machine's, or a test's.
	Now time.Time
	// Log keeps a line in the run's trace.
	Log func(level, text string)
}

// Origin is what started a run. Time is in nanoseconds, Scale its precision as in historian.Sample.
type Origin struct {
	Topic   string
	Seq     uint64 // 0 when it was no stored value
	Time    int64
	Scale   uint8
	Quality string
}

// Result is the answer of a node. At most one of Err, Wait and Publish is set.
type Result struct {
	// Port is an index into the outputs; -1 ends this branch without a successor (logic.filter, flow.stop).
	Port int
	// Also are further ports that the output leaves by.
	Also []int
	// Out is what successors get; the zero Value (missing) passes the input on.
	Out value.Value
	// Err fails the attempt. A *Failure says more.
	Err error
	// Wait gives the worker and the slot back for so long; then the node is called again with Resumed.
	Wait time.Duration
	// Publish are values for topics of the workspace. The engine stores them, gives the worker back meanwhile, and goes
	// on with Out when they are stored; a refused one fails the node.
	Publish []Publication
	// Stop ends the whole run: completed, or failed when Err is set.
	Stop bool
}

// Publication is one derived value.
type Publication struct {
	Topic   string // path
	Value   value.Value
	Quality string // good, uncertain, bad; empty = good
	// Time in nanoseconds and its Scale; Stamped false = the time of receipt.
	Time    int64
	Scale   uint8
	Stamped bool
	// Key tells several values of one call apart (the iteration path); empty for the only one.
	Key []byte
}

// Failure is an error of a node that says whether another attempt can help, and where in its code it happened.
type Failure struct {
	Message      string
	Permanent    bool // no retry
	Line, Column int  // of the user's code; 0 = none
	Err          error
}

func (f *Failure) Error() string { return f.Message }

// Unwrap gives what the failure was made from.
func (f *Failure) Unwrap() error { return f.Err }
