package definition

import (
	"time"

	"millrace/pipeline/node"
	"millrace/pipeline/script"
)

// Plan is a compiled version: what the engine runs. It is immutable and shared by all runs.
type Plan struct {
	Number, Version     uint32
	ID, Workspace, Name string
	Settings            Resolved
	// Steps are in topological order: every edge leads to a later step.
	Steps []Step
	// Triggers are the steps that are triggers.
	Triggers []int
}

// The orders of runs.
const (
	OrderParallel uint8 = iota
	OrderRuns           // one at a time, in the order of arrival
	OrderByKey          // one at a time for each key
)

// The levels of history.
const (
	DetailMinimal uint8 = iota
	DetailStandard
	DetailFull
)

// Resolved is Settings with the defaults filled in.
type Resolved struct {
	Lane     uint8 // 0 high, 1 normal, 2 low
	Order    uint8
	Key      *script.Expression // of OrderByKey
	Parallel bool               // branches of a run at once
	Detail   uint8
	Timeout  time.Duration
	MaxDepth int
}

// Step is one node of a plan.
type Step struct {
	// Number is the place of the node in the definition; publish keys and stored traces name the node by it.
	Number         int
	ID, Name, Type string
	Spec           *node.Spec
	Node           node.Node
	Trigger        node.Trigger // of a trigger, else nil
	Settings       StepSettings
	Ports          []node.Port
	Out            [][]int // by port: the steps that follow
	Error          []int   // the steps that follow port error
	In             []int   // the steps before, in the order of the edges in the definition
}

// What becomes of a run when a node fails for good.
const (
	ErrorStops uint8 = iota
	ErrorContinues
	ErrorOutput // the port error
)

// StepSettings are node.Settings with durations read and defaults filled in.
type StepSettings struct {
	Timeout     time.Duration // 0 = none
	Retries     int
	Exponential bool
	Delay, Max  time.Duration
	Jitter      float64
	OnError     uint8
}
