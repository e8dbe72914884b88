package pipeline

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"millrace/pipeline/history"
	"millrace/pipeline/node"
	"millrace/pipeline/script"
	"millrace/pipeline/value"
)

// scratch is what one goroutine calls nodes with; reused from call to call.
type scratch struct {
	eng   *Engine
	run   *run
	step  int
	call  node.Call
	scope script.Scope
	input []value.Value
	key   []byte
	nodes func(string) value.Value
	log   func(level, text string)
}

func (e *Engine) newScratch() *scratch {
	s := &scratch{eng: e}
	s.nodes = func(name string) value.Value { return s.run.output(name) }
	s.log = func(level, text string) { s.run.log(s.step, level, text) }
	return s
}

// call calls step i of r once. The run is not locked; the step is marked as active.
func (s *scratch) at(r *run, i int) node.Result {
	st := &r.prog.steps[i]
	r.mu.Lock()
	s.input = r.input(i, s.input[:0])
	attempt, resumed := int(r.steps[i].failed)+1, r.steps[i].resumed
	r.mu.Unlock()
	s.run, s.step = r, i
	s.scope = script.Scope{Trigger: r.trigger, Input: s.input, Nodes: s.nodes, Execution: r.execution, Vars: emptyObject, Console: s.log}
	s.key = appendKey(s.key[:0], r.id, uint16(st.Number))
	s.call = node.Call{Scope: &s.scope, Input: value.Null(), Trigger: r.origin, Key: s.key, Attempt: attempt, Resumed: resumed,
		Dry: r.trial != nil, Now: s.eng.now(), Log: s.log}
	if len(s.input) > 0 {
		s.call.Input = s.input[0]
	}
	if r.trial != nil {
		s.call.Now = r.trial.now
	}
	var ctx context.Context = &r.life
	if st.Settings.Timeout > 0 {
		c, cancel := context.WithTimeout(ctx, st.Settings.Timeout)
		defer cancel()
		ctx = c
	}
	res := invoke(ctx, st.Node, &s.call)
	if res.Err != nil {
		if cause := r.life.cause(); cause != nil {
			res.Err = &node.Failure{Message: cause.Error(), Permanent: true, Err: cause}
		} else if st.Settings.Timeout > 0 && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			res.Err = &node.Failure{Message: fmt.Sprintf("no answer within the node's timeout of %s", st.Settings.Timeout), Err: res.Err}
		}
	}
	s.run = nil
	return res
}

// panicked is a panic of a node as a failure.
type panicked struct {
	what  any
	place string
}

func (p *panicked) Error() string {
	return fmt.Sprintf("the node panicked at %s: %v", p.place, p.what)
}

// invoke calls a node; a panic becomes a failure that names the line.
func invoke(ctx context.Context, n node.Node, c *node.Call) (res node.Result) {
	defer func() {
		if what := recover(); what != nil {
			p := &panicked{what, panicPlace()}
			res = node.Result{Err: &node.Failure{Message: p.Error(), Permanent: true, Err: p}}
		}
	}()
	return n.Run(ctx, c)
}

// panicPlace is the line of the code that panicked, as folder/file.go:line.
func panicPlace() string {
	var pcs [32]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	for {
		f, more := frames.Next()
		if !strings.HasPrefix(f.Function, "runtime.") {
			file := f.File
			if at := strings.LastIndexByte(file, '/'); at >= 0 {
				if up := strings.LastIndexByte(file[:at], '/'); up >= 0 {
					file = file[up+1:]
				}
			}
			return fmt.Sprintf("%s:%d", file, f.Line)
		}
		if !more {
			return "an unknown place"
		}
	}
}

// spent adds what a call took to what the pipeline costs. It is wall time on a compute worker, which is the processor's
// unless the machine is overcommitted; calls that may wait for somebody are not counted.
func (p *pipe) spent(d time.Duration) { p.cpu.Add(int64(d)) }

// appendKey appends the publish key of a run's step: the run's kind and number first, so that the keys of finished runs
// are one range.
func appendKey(dst []byte, id history.RunID, step uint16) []byte {
	dst = append(dst, id.Kind)
	dst = binary.BigEndian.AppendUint64(dst, id.N)
	dst = binary.BigEndian.AppendUint32(dst, id.Pipeline)
	dst = binary.BigEndian.AppendUint16(dst, id.Node)
	return binary.BigEndian.AppendUint16(dst, step)
}
