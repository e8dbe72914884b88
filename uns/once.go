package uns

import "bytes"

// present is the value of the row of a publish key.
var present = []byte{1}

// keyOf is the row key of a publish key, in the batch's arena.
func (b *Batch) keyOf(once []byte) []byte {
	mark := len(b.arena)
	b.arena = append(append(b.arena, KeyPrefix...), once...)
	return b.arena[mark:len(b.arena):len(b.arena)]
}

// known says whether the publish key of message i was stored before, or belongs to a message before it that is about to be.
func (in *Ingress) known(b *Batch, i int) (bool, error) {
	m := &b.Messages[i]
	for j := range i {
		if o := &b.Messages[j]; o.At >= 0 && bytes.Equal(o.Once, m.Once) {
			return true, nil
		}
	}
	return in.store.HasRow(b.keyOf(m.Once))
}
