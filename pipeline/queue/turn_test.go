package queue

import (
	"testing"

	"pgregory.net/rapid"
)

// Whatever waits when: somebody is served if anybody waits; never a lane with nothing; a lane that waits all the time is
// passed over at most threshold times in a row and a few more, where two are due at once; and without a lane that is due the
// highest goes.
func TestTurnHoldsItsRule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		threshold := rapid.IntRange(1, 20).Draw(t, "threshold")
		turn := NewTurn(threshold)
		var passed [Lanes]int // in a row, while it had work
		for range rapid.IntRange(1, 300).Draw(t, "turns") {
			var waiting [Lanes]bool
			for l := range Lanes {
				waiting[l] = rapid.IntRange(0, 4).Draw(t, "waiting") > 0
			}
			l, ok := turn.Next(waiting)
			if ok != (waiting != [Lanes]bool{}) || ok && !waiting[l] {
				t.Fatalf("lane %v, %v of %v", l, ok, waiting)
			}
			due := false
			for x := range Lanes {
				due = due || waiting[x] && passed[x] >= threshold
			}
			for x := range l {
				if waiting[x] && !due {
					t.Fatalf("lane %v although %v has work and none is due: %v", l, x, passed)
				}
			}
			for x := range Lanes {
				switch {
				case x == l && ok, !waiting[x]:
					passed[x] = 0
				case x > l:
					passed[x]++
				}
				if passed[x] > threshold+1 {
					t.Fatalf("lane %v was passed over %d times, the threshold is %d", x, passed[x], threshold)
				}
			}
		}
	})
}
