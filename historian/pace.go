package historian

import "time"

// A task in the background works for paceWork and then rests for twice as long, so that on two cores values hardly notice it.
// The first paceFree is for nothing: small tasks are over by then.
const (
	paceFree = 20 * time.Millisecond
	paceWork = 5 * time.Millisecond
	paceRest = 10 * time.Millisecond
)

type pace struct {
	stop  <-chan struct{}
	since time.Time
	free  bool
}

func newPace(stop <-chan struct{}) *pace { return &pace{stop: stop, since: time.Now(), free: true} }

// rest is called between steps of less than a millisecond; it returns at once when the store ends.
func (p *pace) rest() {
	work := paceWork
	if p.free {
		work = paceFree
	}
	if time.Since(p.since) < work {
		return
	}
	p.free = false
	select {
	case <-p.stop:
	case <-time.After(paceRest):
	}
	p.since = time.Now()
}
