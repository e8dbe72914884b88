package uns

import "millrace/historian"

// Message is one publish on its way in.
type Message struct {
	// Source is who sends; nil is the box itself, which no rate holds back.
	Source    *Source
	Workspace string
	// Path is the path as Namespace.Parse gave it. Accept copies what it keeps.
	Path string
	// Topic may be cached by the caller; nil = look up or create by Workspace, Path.
	Topic *Topic
	// Payload is the caller's; Accept reads it until it returns and keeps nothing of it.
	Payload []byte
	Retain  bool
	// Origin is the caller's: Live.Publish gets it back with the message.
	Origin any
	// Enveloped says that the payload was built by the box and is to be read as JSON even on a topic that takes text or
	// bytes as they are (REST publish, pipelines). On a bytes topic the value is base64 text.
	Enveloped bool
	// Once is a publish key: it is stored in the same commit as the value, as the row KeyPrefix + Once, and names the value for as
	// long as that row is there. With Suspect it is looked up first: a message whose key is there, or in the same batch before it,
	// is not stored again. One key must not be in two batches at the same time.
	Once    []byte
	Suspect bool
	// Hops is what historian.Sample.Hops becomes.
	Hops uint8
	// Duplicate is filled by Accept: the key was there. The verdict is Stored and At is -1.
	Duplicate bool
	// Verdict may be set to a refusal by the caller (not_authorized, topic_invalid …): then Accept only counts it.
	Verdict Verdict
	// At is filled by Accept: the index of the sample in Batch.Samples, -1 if nothing was stored. Topic is filled, too.
	At int
}

// KeyPrefix begins the rows of publish keys.
const KeyPrefix = "k"

// Batch is reused by its owner: Reset, then append to Messages. No allocation in steady state. Not for concurrent use.
type Batch struct {
	Messages []Message
	// Samples is filled by Accept; Messages[i].At indexes it. Valid until Reset or the next Accept.
	Samples []historian.Sample
	// Rows go into the same commit as the samples, set by the caller.
	Rows []historian.Row
	// Owed belongs to Live, from Prepare to the next Reset.
	Owed any

	arena   []byte
	toggles []toggle
	units   []unitClaim
}

// unitClaim is a unit that a stored payload named for a topic without one.
type unitClaim struct {
	topic *Topic
	unit  []byte
}

// maxArena is what a batch may keep for the next one; a rare large payload must not be held for ever.
const maxArena = 1 << 20

// Reset empties the batch and keeps its memory.
func (b *Batch) Reset() {
	clear(b.Messages) // no topic, source or payload outlives its batch
	b.Messages = b.Messages[:0]
	clear(b.Rows)
	b.Rows = b.Rows[:0]
	b.Owed = nil
	b.begin()
}

// orphaned says whether a topic of the batch was deleted.
func (b *Batch) orphaned() bool {
	for i := range b.Messages {
		if m := &b.Messages[i]; m.Topic != nil && m.Topic.gone.Load() {
			return true
		}
	}
	return false
}

// begin drops what an earlier Accept left.
func (b *Batch) begin() {
	b.Samples = b.Samples[:0]
	b.units = b.units[:0]
	clear(b.toggles)
	b.toggles = b.toggles[:0]
	if cap(b.arena) > maxArena {
		b.arena = nil
	}
	b.arena = b.arena[:0]
}
