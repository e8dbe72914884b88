package script

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dop251/goja"

	"millrace/pipeline/value"
)

// maxCalls is how deep functions may call each other.
const maxCalls = 2000

// machine is one JavaScript runtime. It serves one evaluation at a time.
type machine struct {
	r       *goja.Runtime
	known   map[*program]goja.Callable
	console func(level, text string)
	lines   int  // printed in this evaluation
	size    int  // values of the result so far
	broken  bool // it was interrupted where nobody knows what is half done
	args    [8]goja.Value
}

// maxKnown is how many programs a machine keeps ready.
const maxKnown = 256

func newMachine() (*machine, error) {
	m := &machine{r: goja.New(), known: map[*program]goja.Callable{}}
	m.r.SetMaxCallStackSize(maxCalls)
	console := m.r.NewObject()
	for _, level := range []string{"log", "debug", "info", "warn", "error"} {
		if err := console.Set(level, func(call goja.FunctionCall) goja.Value { m.print(level, call.Arguments); return goja.Undefined() }); err != nil {
			return nil, err
		}
	}
	if err := m.r.Set("console", console); err != nil {
		return nil, err
	}
	v, err := m.r.RunScript("prelude", prelude)
	if err != nil {
		return nil, fmt.Errorf("script: prelude: %w", err)
	}
	f, ok := goja.AssertFunction(v)
	if !ok {
		return nil, errors.New("script: the prelude is no function")
	}
	if _, err := f(goja.Undefined(), m.r.ToValue(m.checkRegexp), m.r.ToValue(m.checkSize), m.r.ToValue(maxText), m.r.ToValue(maxList), m.r.ToValue(maxRaw)); err != nil {
		return nil, fmt.Errorf("script: prelude: %w", err)
	}
	return m, nil
}

// The most that one evaluation prints.
const (
	maxLines = 100
	maxLine  = 4 << 10
)

func (m *machine) print(level string, args []goja.Value) {
	if m.lines++; m.console == nil || m.lines > maxLines {
		return
	}
	if m.lines == maxLines {
		m.console("warn", "only the first lines are kept")
		return
	}
	var line strings.Builder
	for i, a := range args {
		if i > 0 {
			line.WriteByte(' ')
		}
		if v, err := m.out(a); err == nil && v.Kind() != value.Missing {
			line.WriteString(v.String())
		} else {
			line.WriteString(a.String())
		}
	}
	text := line.String()
	if len(text) > maxLine {
		text = strings.ToValidUTF8(text[:maxLine], "") + "…"
	}
	m.console(level, text)
}

func (m *machine) callable(p *program) (goja.Callable, error) {
	if f := m.known[p]; f != nil {
		return f, nil
	}
	v, err := m.r.RunProgram(p.code)
	if err != nil {
		return nil, err
	}
	f, ok := goja.AssertFunction(v)
	if !ok {
		return nil, errors.New("script: a program is no function")
	}
	if len(m.known) >= maxKnown {
		clear(m.known)
	}
	m.known[p] = f
	return f, nil
}

type why string

func (m *machine) run(ctx context.Context, p *program, s *Scope, w *watchdog, limit time.Duration) (v value.Value, err error) {
	f, err := m.callable(p)
	if err != nil {
		return v, err
	}
	m.console, m.lines, m.size = s.Console, 0, 0
	w.enter(m, ctx, limit)
	m.fill(s)
	got, err := m.call(f)
	if err == nil {
		v, err = m.settle(got)
	}
	w.leave(m)
	m.r.ClearInterrupt()
	m.console = nil
	clear(m.args[:])
	if err != nil {
		return value.Value{}, m.failure(err, p, limit)
	}
	return v, nil
}

func (m *machine) fill(s *Scope) {
	m.args[0] = m.in(s.Trigger)
	m.args[1] = m.in(value.List(s.Input...))
	m.args[2] = m.in(s.json())
	m.args[3] = m.r.NewDynamicObject(&nodes{m, s.Nodes})
	m.args[4] = m.in(s.Execution)
	m.args[5] = m.in(s.Vars)
	m.args[6] = m.in(s.Item)
	m.args[7] = m.in(s.Index)
}

// call keeps a panic of the interpreter, which is a fault of its or ours, within the run.
func (m *machine) call(f goja.Callable) (v goja.Value, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			m.broken = true
			err = &Error{Kind: Runtime, Message: fmt.Sprintf("the interpreter failed: %v", cause)}
		}
	}()
	return f(goja.Undefined(), m.args[:]...)
}

// settle gives the result; that of a promise is what it was kept with.
func (m *machine) settle(got goja.Value) (value.Value, error) {
	if o, ok := got.(*goja.Object); ok && o.ExportType() == promiseType {
		p, _ := o.Export().(*goja.Promise)
		switch p.State() {
		case goja.PromiseStateFulfilled:
			return m.out(p.Result())
		case goja.PromiseStateRejected:
			return value.Value{}, &Error{Kind: Runtime, Message: m.message(p.Result())}
		}
		return value.Value{}, &Error{Kind: Runtime, Message: "the result is a promise that nothing keeps: there are no timers here"}
	}
	return m.out(got)
}

// failure words what went wrong.
func (m *machine) failure(err error, p *program, limit time.Duration) error {
	var own *Error
	var interrupted *goja.InterruptedError
	var overflow *goja.StackOverflowError
	var thrown *goja.Exception
	switch {
	case errors.As(err, &own):
		return own
	case errors.As(err, &interrupted):
		m.broken = true
		e := &Error{Kind: Timeout, Message: fmt.Sprintf("it ran for longer than %v", limit)}
		switch interrupted.Value() {
		case why(Cancelled):
			e = &Error{Kind: Cancelled, Message: "the run was cancelled"}
		case why(Memory):
			e = &Error{Kind: Memory, Message: "it filled the memory"}
		}
		e.at(interrupted.Stack(), p)
		return e
	case errors.As(err, &overflow):
		e := &Error{Kind: Depth, Message: fmt.Sprintf("functions call each other more than %d deep", maxCalls)}
		e.at(overflow.Stack(), p)
		return e
	case errors.As(err, &thrown):
		e := &Error{Kind: Runtime, Message: m.message(thrown.Value())}
		e.at(thrown.Stack(), p)
		return e
	}
	return &Error{Kind: Runtime, Message: err.Error()}
}

// message is what a thrown value says.
func (m *machine) message(v goja.Value) string {
	if v == nil {
		return "undefined was thrown"
	}
	if v, err := m.out(v); err == nil && v.Kind() == value.ObjectKind && v.Get("message").Kind() == value.TextKind {
		return v.Get("message").Text()
	}
	return v.String()
}

// at takes the place from the innermost frame of the person's code.
func (e *Error) at(stack []goja.StackFrame, p *program) {
	for i := range stack {
		if f := &stack[i]; f.SrcName() == source {
			at := place(f.Position(), p.line, p.column)
			e.Line, e.Column = at.Line, at.Column
			return
		}
	}
}
