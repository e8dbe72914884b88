package queue

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// ErrClosed: the queue is closed; nothing was put or taken.
var ErrClosed = errors.New("queue: closed")

// Lane is a priority.
type Lane uint8

// The lanes, the first served first.
const (
	High Lane = iota
	Normal
	Low
	Lanes // count
)

var laneNames = [Lanes]string{"high", "normal", "low"}

// String is the word of settings and metric labels.
func (l Lane) String() string {
	if l < Lanes {
		return laneNames[l]
	}
	return "?"
}

// The kinds of entries.
const (
	Value    uint8 = iota // a stored value; Seq names it
	Schedule              // ID is the planned time in ms
	Webhook               // ID is a fresh one, as for those below
	Manual
	Replay
	Resume
)

// Ref is one run that an entry starts: of a version of a pipeline, from the trigger with that step number.
type Ref struct {
	Pipeline, Version uint32
	Node              uint16
}

// Entry is one input and the runs that it starts.
type Entry struct {
	Kind uint8
	// Seq is the value's sequence in the historian, 0 for other kinds.
	Seq uint64
	// ID names the run where there is no sequence.
	ID uint64
	// Workspace and Topic (a path) are where the value came from; Topic may be empty for other kinds.
	Workspace, Topic string
	// Time in nanoseconds, and its Scale and Quality as in historian.Sample.
	Time           int64
	Scale, Quality uint8
	// Hops is how often the value was derived from a derived one.
	Hops uint8
	// Value is JSON.
	Value []byte
	Refs  []Ref
}

// size is what an entry counts for against the bound in bytes: about what its frame holds of it.
func (e *Entry) size() int64 {
	return int64(48 + len(e.Workspace) + len(e.Topic) + len(e.Value) + 10*len(e.Refs))
}

// Queue hands entries from those who put to those who take, lane by lane, in order. Safe for concurrent use.
type Queue interface {
	// Put returns when the queue has the entry; it waits while the queue is full and set to refuse new ones. The entry's
	// slices are the caller's again.
	Put(ctx context.Context, l Lane, e Entry) error
	// Take gives the next frame of a lane; it waits for one.
	Take(ctx context.Context, l Lane) (*Frame, error)
	Stats() Stats
}

// Stats is what a queue holds.
type Stats struct {
	// Pending are runs that wait to be taken, by lane; Oldest is when the oldest of them came, zero for none.
	Pending [Lanes]int
	Oldest  [Lanes]time.Time
	// InFlight are runs in frames that were taken and not acknowledged; Frames counts frames that wait or are taken.
	InFlight, Frames [Lanes]int
	// Bytes is what waits.
	Bytes int64
	// Shed are waiting runs dropped since the start, by cause; ShedStore were lost by the store.
	ShedSize, ShedAge, ShedStore uint64
	// LostOut are runs under way whose frame the store has lost.
	LostOut uint64
	// Redelivered are runs handed out again because nothing was heard of them for ackWait.
	Redelivered uint64
}

// Survivor is an entry in a frame that outlived the last process.
type Survivor struct {
	Seq  uint64
	Refs []Ref
}

// Frame is what is taken at once: entries in their order. They and what they point to are the taker's for ever.
type Frame struct {
	Lane Lane
	// Seq names the frame within the process.
	Seq     uint64
	Created time.Time
	Entries []Entry
	// Suspect says that the frame was handed out before: its runs may have run.
	Suspect bool

	acked    atomic.Bool
	ack      func()
	progress func()
}

// NewFrame makes a frame for an implementation of Queue; ack is called at most once, progress may be nil.
func NewFrame(l Lane, seq uint64, created time.Time, entries []Entry, ack, progress func()) *Frame {
	return &Frame{Lane: l, Seq: seq, Created: created, Entries: entries, ack: ack, progress: progress}
}

// Ack says that every run of the frame has ended, or goes on from a row of its own. Safe from any goroutine; a second one
// does nothing.
func (f *Frame) Ack() {
	if f.ack != nil && !f.acked.Swap(true) {
		f.ack()
	}
}

// Progress says that the frame's runs are under way, so that it is not taken for lost.
func (f *Frame) Progress() {
	if f.progress != nil && !f.acked.Load() {
		f.progress()
	}
}
