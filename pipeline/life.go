package pipeline

import (
	"context"
	"sync"
	"time"
)

// life is the context of one run. It makes its channel only for those who ask, since most nodes never do.
type life struct {
	mu    sync.Mutex
	done  chan struct{}
	err   error
	after []*afterFunc
}

type afterFunc struct {
	f    func()
	gone bool
}

// end cancels the life; the first cause is kept.
func (l *life) end(cause error) {
	l.mu.Lock()
	if l.err != nil {
		l.mu.Unlock()
		return
	}
	l.err = cause
	if l.done == nil {
		l.done = closedChan
	} else {
		close(l.done)
	}
	after := l.after
	l.after = nil
	l.mu.Unlock()
	for _, a := range after {
		go a.f() // what context.AfterFunc promises
	}
}

// closedChan is shared by the lives that ended before anybody asked.
var closedChan = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// Done implements context.Context.
func (l *life) Done() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.done == nil {
		l.done = make(chan struct{})
	}
	return l.done
}

// Err implements context.Context; it is context.Canceled, as others expect.
func (l *life) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return context.Canceled
	}
	return nil
}

// cause is why the life ended, nil while it lasts.
func (l *life) cause() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Deadline implements context.Context.
func (l *life) Deadline() (time.Time, bool) { return time.Time{}, false }

// Value implements context.Context.
func (l *life) Value(any) any { return nil }

// AfterFunc lets package context derive from a life without a goroutine each.
func (l *life) AfterFunc(f func()) (stop func() bool) {
	l.mu.Lock()
	if l.err != nil {
		l.mu.Unlock()
		go f()
		return func() bool { return false }
	}
	a := &afterFunc{f: f}
	l.after = append(l.after, a)
	l.mu.Unlock()
	return func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		if a.gone || l.err != nil {
			return false
		}
		a.gone = true
		for i, o := range l.after {
			if o == a {
				l.after = append(l.after[:i], l.after[i+1:]...)
				break
			}
		}
		return true
	}
}
