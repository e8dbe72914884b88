package broker

// ring is a queue of deliveries that grows as needed. The zero value is empty.
type ring struct {
	slots []delivery
	head  int
	n     int
	bytes int64
}

const firstSlots = 16

// push appends; limit is the most the ring will ever hold.
func (r *ring) push(d delivery, limit int) {
	if r.n == len(r.slots) {
		grown := make([]delivery, max(firstSlots, min(2*r.n, limit), r.n+1))
		k := copy(grown, r.slots[r.head:])
		copy(grown[k:], r.slots[:r.head])
		r.slots, r.head = grown, 0
	}
	r.slots[(r.head+r.n)%len(r.slots)] = d
	r.n++
	r.bytes += d.weight
}

func (r *ring) front() *delivery { return &r.slots[r.head] }

// at gives the i-th oldest.
func (r *ring) at(i int) *delivery { return &r.slots[(r.head+i)%len(r.slots)] }

// pop forgets the oldest. An emptied ring gives back what a burst made it grow to.
func (r *ring) pop() {
	d := &r.slots[r.head]
	r.bytes -= d.weight
	*d = delivery{}
	r.head = (r.head + 1) % len(r.slots)
	if r.n--; r.n == 0 && len(r.slots) > 1024 {
		r.slots, r.head = nil, 0
	}
}
