package historian

import "fmt"

// Series is a topic's storage id. Zero is no series; ids are never reused.
type Series uint32

// Quality says how far a value may be trusted. The order is from best to worst.
type Quality uint8

// The qualities of contract section 4.
const (
	Good Quality = iota
	Uncertain
	Bad
)

// String returns the word used on the wire: good, uncertain or bad.
func (q Quality) String() string {
	switch q {
	case Good:
		return "good"
	case Uncertain:
		return "uncertain"
	case Bad:
		return "bad"
	}
	return fmt.Sprintf("quality(%d)", uint8(q))
}

// Sample is one value of one series at one time.
//
// Append reads Series, Quality, Stamped, Time, Scale and Value, and fills in Seq, Received and, when
// Stamped is false, Time and Scale. Value.Raw belongs to the caller and is copied before Append returns.
// Samples handed out by queries own their Raw.
type Sample struct {
	Series  Series
	Quality Quality
	// Stamped says that the device supplied Time. Otherwise the sample is stamped on receipt, to the
	// millisecond, never earlier than the receipt stamp before it in the same series.
	Stamped bool
	// Scale is the precision that was sent: Time is a multiple of 10^Scale nanoseconds (0 ns, 3 µs, 6 ms, 9 s).
	Scale uint8
	// Hops is through how many derivations the value came: 0 for a device's, one more than that of its trigger for a value that
	// a pipeline derived. It goes with the log alone: queries leave it 0.
	Hops uint8
	// Time is in nanoseconds since the Unix epoch, UTC.
	Time int64
	// Received is when the box got the sample, same unit. Equal to Time where Stamped is false.
	Received int64
	// Seq numbers samples of the whole store in the order in which they were appended, from 1. Append sets it;
	// queries leave it 0, since at rest the order of arrival is kept by position.
	Seq   uint64
	Value Value
}

// Class is a retention class; the byte leads the keys of chunks, so that an expiry is one span.
type Class uint8

// The retention classes of contract section 2, by their key byte.
const (
	Class1d Class = iota
	Class7d
	Class14d
	Class32d
	Class90d
	Class366d
	Class1830d
	ClassForever
)

// Row is an opaque record committed in the same batch as samples. A nil Value deletes the key, unless Late is set.
type Row struct {
	Key, Value []byte
	// To, if set, deletes every key with Key <= key < To instead, in one stroke however many they are.
	To []byte
	// Late, if set, appends the rest of the value to dst. It is called once, before Append returns and by another
	// goroutine, when the samples of the same Append have their place and time; it may read them.
	Late func(dst []byte) []byte
}

// SeriesRow is what the store keeps of one series. Meta is opaque to the historian.
type SeriesRow struct {
	Series  Series
	Name    string
	Class   Class
	Created int64 // ns
	Meta    []byte
}

// Cursor names the last sample of a page: its time and its place, from 0, among the samples of the series
// with that very time, oldest arrival first. It stays valid while values arrive, in either direction:
// a later arrival at the same time gets a higher place.
type Cursor struct {
	Time int64
	Ord  uint32
}

// Query asks for the raw samples of one series with From <= Time < To.
type Query struct {
	Series   Series
	From, To int64
	// Limit bounds the answer; 0 means 10,000, at most 100,000.
	Limit int
	// After leaves out everything up to and including the cursor in the order asked for; nil starts at the edge.
	After *Cursor
	// Desc answers newest first.
	Desc bool
}
