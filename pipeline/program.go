package pipeline

import (
	"math/bits"

	"millrace/pipeline/definition"
	"millrace/pipeline/node"
	"millrace/pipeline/queue"
)

// errorPort is the port by which a failed step is left.
const errorPort = -2

// edge is one way into a step: live when that step was left by that port.
type edge struct {
	from int
	port int
}

// step is a step of a plan with what the runner needs looked up once. Edges are turned around.
type step struct {
	*definition.Step
	in       []edge
	retry    retry
	blocking bool
	computes bool
}

// program is one version of a pipeline, ready to run. Immutable.
type program struct {
	plan   *definition.Plan
	pipe   *pipe
	steps  []step
	names  map[string]int
	starts map[uint16]*start // by the number of the trigger's step
	words  int
	lane   queue.Lane
}

// parallel says that the branches of a run go on at once.
func (g *program) parallel() bool { return g.plan.Settings.Parallel }

// start is what a run looks like when its trigger has just handed on: how many edges into each step are undecided, and
// which steps are ready. Steps that can only be reached from other triggers are dead.
type start struct {
	trigger int
	pending []uint16
	ready   set
	dead    []bool
}

// computing are the types whose run is a script, and nothing else of note.
var computing = map[string]bool{"logic.javascript": true}

func newProgram(p *definition.Plan, of *pipe) *program {
	g := &program{plan: p, pipe: of, steps: make([]step, len(p.Steps)), names: make(map[string]int, len(p.Steps)),
		starts: make(map[uint16]*start, len(p.Triggers)), lane: queue.Lane(p.Settings.Lane), words: (len(p.Steps) + 63) / 64}
	for i := range p.Steps {
		s, d := &g.steps[i], &p.Steps[i]
		s.Step = d
		g.names[d.Name] = i
		s.blocking = d.Spec != nil && d.Spec.Blocking
		s.computes = computing[d.Type]
		s.retry = retry{d.Settings.Retries, d.Settings.Exponential, d.Settings.Delay, d.Settings.Max, d.Settings.Jitter}
	}
	for i := range p.Steps {
		for port, next := range p.Steps[i].Out {
			for _, to := range next {
				g.steps[to].in = append(g.steps[to].in, edge{i, port})
			}
		}
		for _, to := range p.Steps[i].Error {
			g.steps[to].in = append(g.steps[to].in, edge{i, errorPort})
		}
	}
	for _, t := range p.Triggers {
		g.starts[uint16(p.Steps[t].Number)] = g.startAt(t)
	}
	return g
}

// startAt works out what is ready when trigger t has handed on.
func (g *program) startAt(t int) *start {
	st := &start{trigger: t, pending: make([]uint16, len(g.steps)), ready: make(set, g.words), dead: make([]bool, len(g.steps))}
	for i := range g.steps {
		st.pending[i] = uint16(len(g.steps[i].in))
	}
	// In topological order every step in front of i has been looked at before i.
	live := make([]bool, len(g.steps))
	live[t] = true
	for i := range g.steps {
		for _, e := range g.steps[i].in {
			if live[e.from] && (e.from != t || e.port == 0) {
				live[i] = true
			}
		}
		if i == t {
			live[i] = true
		}
	}
	for i := range g.steps {
		if i == t {
			st.pending[i] = 0
			continue
		}
		if !live[i] {
			st.dead[i] = true
		}
		for _, e := range g.steps[i].in {
			if e.from == t || !live[e.from] {
				st.pending[i]--
			}
		}
		if live[i] && st.pending[i] == 0 {
			st.ready.add(i)
		}
	}
	return st
}

// last says that nothing can follow when step i is left by port.
func (g *program) last(i, port int) bool {
	s := &g.steps[i]
	if len(s.Step.Error) > 0 && s.Settings.OnError == definition.ErrorOutput {
		return false
	}
	return port < 0 || port >= len(s.Out) || len(s.Out[port]) == 0
}

// set is a set of steps.
type set []uint64

func (s set) add(i int)  { s[i>>6] |= 1 << (i & 63) }
func (s set) drop(i int) { s[i>>6] &^= 1 << (i & 63) }

// lowest is the first step of the set, -1 for none.
func (s set) lowest() int {
	for w, word := range s {
		if word != 0 {
			return w<<6 + bits.TrailingZeros64(word)
		}
	}
	return -1
}

func (s set) empty() bool { return s.lowest() < 0 }

// failureOf makes a Failure of whatever a node returned.
func failureOf(err error) *node.Failure {
	if f, ok := asFailure(err); ok {
		return f
	}
	return &node.Failure{Message: err.Error(), Err: err}
}
