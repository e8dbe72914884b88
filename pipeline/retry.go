package pipeline

import (
	"errors"
	"time"

	"millrace/pipeline/node"
)

// retry says when a failed step is called again.
type retry struct {
	count       int
	exponential bool
	delay, most time.Duration
	jitter      float64
}

// after is how long to wait before the next attempt, when failed attempts have failed; random is in [0, 1).
func (r *retry) after(failed int, random float64) time.Duration {
	d := r.delay
	if r.exponential {
		for i := 1; i < failed && d < r.most; i++ {
			d *= 2
		}
	}
	d = min(d, r.most)
	if r.jitter > 0 {
		d = time.Duration(float64(d) * (1 + r.jitter*(2*random-1)))
	}
	return max(d, 0)
}

func asFailure(err error) (*node.Failure, bool) {
	var f *node.Failure
	ok := errors.As(err, &f)
	return f, ok
}
