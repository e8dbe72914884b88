package historian

// Buckets cuts time by a step.
type Buckets struct{ b *buckets }

func NewBuckets(s Step) Buckets { return Buckets{newBuckets(s)} }

func (b Buckets) At(t int64) (from, to int64) { return b.b.at(t) }
