package queue

// Turn decides which lane is served next: the highest with work, but a lane that was passed over so often in a row gets
// one turn. Not for concurrent use.
type Turn struct {
	threshold int
	passed    [Lanes]int
}

// NewTurn lets a lane be passed over at most threshold times.
func NewTurn(threshold int) *Turn { return &Turn{threshold: threshold} }

// Next picks among the lanes that have something waiting; false when none has.
func (t *Turn) Next(waiting [Lanes]bool) (Lane, bool) {
	pick, found := Lane(0), false
	for l := range Lanes {
		if !waiting[l] {
			continue
		}
		if !found {
			pick, found = l, true
		} else if t.passed[l] >= t.threshold && t.passed[l] > t.passed[pick] {
			pick = l
		}
	}
	if !found {
		t.passed = [Lanes]int{}
		return 0, false
	}
	for l := range Lanes {
		switch {
		case l == pick:
			t.passed[l] = 0
		case waiting[l] && l > pick:
			t.passed[l]++
		case !waiting[l]:
			t.passed[l] = 0 // nothing of it was passed over
		}
	}
	return pick, true
}
