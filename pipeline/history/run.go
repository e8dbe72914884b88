package history

import (
	"encoding/json"
	"time"
)

// Status is how a run ended.
type Status uint8

// The statuses of the reference.
const (
	Completed Status = iota
	Failed
	CompletedWithErrors
	Cancelled
	statuses // count
)

var statusNames = [statuses]string{"completed", "failed", "completed_with_errors", "cancelled"}

// String is the word of REST and metric labels.
func (s Status) String() string {
	if s < statuses {
		return statusNames[s]
	}
	return "?"
}

// ParseStatus reads the word.
func ParseStatus(text string) (Status, bool) {
	for s, name := range statusNames {
		if name == text {
			return Status(s), true
		}
	}
	return 0, false
}

// What became of a node in a run.
const (
	NodeIdle    uint8 = iota // not reached
	NodeDone                 //
	NodeFailed               // the run failed here
	NodeHandled              // failed, and the run went on
	NodeSkipped              // nothing came
)

// The levels of detail.
const (
	Minimal uint8 = iota
	Standard
	Full
)

// JSON is a value that can be written as JSON: value.Value.
type JSON interface{ AppendJSON(dst []byte) []byte }

// Raw is JSON as it is stored.
type Raw []byte

// AppendJSON implements JSON.
func (r Raw) AppendJSON(dst []byte) []byte {
	if len(r) == 0 {
		return append(dst, "null"...)
	}
	return append(dst, r...)
}

// Run is what is kept of one run.
type Run struct {
	ID       RunID
	Version  uint32
	Status   Status
	Mode     string // trigger, schedule, webhook, manual, replay, test
	Started  time.Time
	Duration time.Duration
	Trigger  Trigger
	Attempt  int
	// Counted is how many runs the row stands for; a successful triggered run stands for those of its second. Sum and
	// Longest are the durations of all of them.
	Counted      uint32
	Sum, Longest time.Duration
	Detail       uint8
	Nodes        []NodeRun
	Lines        []Line
	// Error is why it failed, Node the step number where; -1 = none.
	Error string
	Node  int
	// Replay says that the run is one, which counts apart.
	Replay bool
	// Cut says that what nodes got and gave was too large to keep.
	Cut bool
}

// Trigger is what started a run.
type Trigger struct {
	Workspace, Topic string
	Value            JSON
	Time             int64 // ns
	Scale, Quality   uint8
	Node             uint16 // step number
}

// NodeRun is one node in a run. In and Out are nil where they are not kept.
type NodeRun struct {
	Number       int
	Status       uint8
	Duration     time.Duration
	From         time.Duration // since the run started
	In, Out      JSON
	Error        string
	Line, Column int
	Attempts     int
}

// Line is something a node printed.
type Line struct {
	Number      int // of the node
	Level, Text string
	At          time.Duration
}

// Dead is a run that was given up, with all it takes to run it again.
type Dead struct {
	ID        RunID           `json:"-"`
	Version   uint32          `json:"version"`
	Workspace string          `json:"workspace"`
	Topic     string          `json:"topic"`
	Value     json.RawMessage `json:"value"`
	Time      int64           `json:"time"`
	Scale     uint8           `json:"scale"`
	Quality   uint8           `json:"quality"`
	Node      uint16          `json:"node"`
	Error     string          `json:"error"`
	Attempts  int             `json:"attempts"`
	At        time.Time       `json:"at"`
}

// Parked is the row of a run that waits or takes long; State is the engine's.
type Parked struct {
	ID      RunID
	Due     time.Time
	Version uint32
	State   []byte
}
