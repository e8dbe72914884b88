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
	broken  bool // it was interrupted where nobody knows what is half done
	args    [8]goja.Value
}

// maxKnown is how many programs a machine keeps ready.
const maxKnown = 256

// prelude makes what all programs share unchangeable: code of one pipeline must not reach that of another.
const prelude = `"use strict";
for (const name of Object.getOwnPropertyNames(globalThis)) {
	const v = globalThis[name];
	if (typeof v === "function" && v.prototype) Object.freeze(v.prototype);
	if (typeof v === "function" || typeof v === "object" && v !== null && v !== globalThis) Object.freeze(v);
}
Object.freeze(Object.getPrototypeOf(function*(){}).prototype);
Object.freeze(Object.getPrototypeOf([][Symbol.iterator]()));
Object.freeze(globalThis);`

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
	for _, name := range []string{"eval", "Function"} { // code that nobody checked at deploy
		if err := m.r.GlobalObject().Delete(name); err != nil {
			return nil, err
		}
	}
	if _, err := m.r.RunScript("prelude", prelude); err != nil {
		return nil, fmt.Errorf("script: prelude: %w", err)
	}
	return m, nil
}

func (m *machine) print(level string, args []goja.Value) {
	if m.console == nil {
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
	m.console(level, line.String())
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

func (m *machine) run(ctx context.Context, p *program, s *Scope, limit time.Duration) (v value.Value, err error) {
	f, err := m.callable(p)
	if err != nil {
		return v, err
	}
	m.console = s.Console
	defer func() { m.console = nil }()
	timer := time.AfterFunc(limit, func() { m.r.Interrupt(why(Timeout)) })
	stop := context.AfterFunc(ctx, func() { m.r.Interrupt(why(Cancelled)) })
	m.fill(s)
	got, err := f(goja.Undefined(), m.args[:]...)
	if err == nil {
		v, err = m.settle(got)
	}
	if !timer.Stop() || !stop() {
		m.broken = true // the interrupt may still be on its way
	}
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

// settle gives the result; that of a promise is what it was kept with.
func (m *machine) settle(got goja.Value) (value.Value, error) {
	if p, ok := got.Export().(*goja.Promise); ok {
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
		if w, ok := interrupted.Value().(why); ok && w == Cancelled {
			e = &Error{Kind: Cancelled, Message: "the run was cancelled"}
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
