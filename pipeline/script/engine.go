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
	// Memory is by how much the heap may grow while code runs; 0 is 256 MiB. It is the process's heap that is looked at: the code that has
	// run the longest is taken for the cause.
	Memory int64
	// Machines is how many idle machines are kept; 0 is twice GOMAXPROCS.
	Machines int
}

// Engine compiles what people write, and runs it. Safe for concurrent use.
type Engine struct {
	o     Options
	idle  chan *machine
	watch *watchdog
}

// NewEngine makes an engine. Close it when nobody evaluates any more.
func NewEngine(o Options) *Engine {
	if o.Timeout == 0 {
		o.Timeout = 5 * time.Second
	}
	if o.Machines == 0 {
		o.Machines = 2 * runtime.GOMAXPROCS(0)
	}
	if o.Memory == 0 {
		o.Memory = 256 << 20
	}
	return &Engine{o: o, idle: make(chan *machine, o.Machines), watch: newWatchdog(o.Memory)}
}

// Close lets go of the machines and ends the watchdog.
func (e *Engine) Close() {
	e.watch.close()
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
	v, err := m.run(ctx, p, s, e.watch, e.o.Timeout)
	if !m.broken {
		e.give(m)
	}
	return v, err
}
