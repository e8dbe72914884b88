package script

import (
	"context"
	"runtime"
	"time"

	"millrace/pipeline/value"
)

// Options bound what code may do.
type Options struct {
	// Timeout is the longest one evaluation runs; 0 is 5 s.
	Timeout time.Duration
	// Machines is how many idle machines are kept; 0 is twice GOMAXPROCS.
	Machines int
}

// Engine compiles what people write, and runs it. Safe for concurrent use.
type Engine struct {
	o    Options
	idle chan *machine
}

// NewEngine makes an engine. Close it when nobody evaluates any more.
func NewEngine(o Options) *Engine {
	if o.Timeout == 0 {
		o.Timeout = 5 * time.Second
	}
	if o.Machines == 0 {
		o.Machines = 2 * runtime.GOMAXPROCS(0)
	}
	return &Engine{o: o, idle: make(chan *machine, o.Machines)}
}

// Close lets go of the machines.
func (e *Engine) Close() {
	for {
		select {
		case <-e.idle:
		default:
			return
		}
	}
}

func (e *Engine) take() (*machine, error) {
	select {
	case m := <-e.idle:
		return m, nil
	default:
		return newMachine()
	}
}

func (e *Engine) give(m *machine) {
	select {
	case e.idle <- m:
	default:
	}
}

// evaluate runs a program on some machine.
func (e *Engine) evaluate(ctx context.Context, p *program, s *Scope) (value.Value, error) {
	if err := ctx.Err(); err != nil {
		return value.Value{}, &Error{Kind: Cancelled, Message: "the run was cancelled"}
	}
	if p.path != nil {
		if v, ok := p.path.find(s); ok {
			return v, nil
		}
	}
	m, err := e.take()
	if err != nil {
		return value.Value{}, err
	}
	v, err := m.run(ctx, p, s, e.o.Timeout)
	if !m.broken {
		e.give(m)
	}
	return v, err
}
