package pipeline

// ring is a queue that keeps its memory. The zero ring is empty. Not for concurrent use.
type ring[T any] struct {
	items []T
	head  int
	n     int
}

func (q *ring[T]) len() int { return q.n }

func (q *ring[T]) push(v T) {
	if q.n == len(q.items) {
		q.grow()
	}
	q.items[(q.head+q.n)&(len(q.items)-1)] = v
	q.n++
}

// pop takes the oldest; the queue must not be empty.
func (q *ring[T]) pop() T {
	v := q.items[q.head]
	var none T
	q.items[q.head] = none // what it points to must not outlive it
	q.head = (q.head + 1) & (len(q.items) - 1)
	if q.n--; q.n == 0 && len(q.items) > 1024 {
		q.items, q.head = nil, 0
	}
	return v
}

// at is the i-th oldest.
func (q *ring[T]) at(i int) T { return q.items[(q.head+i)&(len(q.items)-1)] }

func (q *ring[T]) grow() {
	bigger := make([]T, max(4, 2*len(q.items))) // a power of two
	for i := range q.n {
		bigger[i] = q.at(i)
	}
	q.items, q.head = bigger, 0
}
