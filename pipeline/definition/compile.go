package definition

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"millrace/pipeline/node"
	"millrace/pipeline/script"
	"millrace/pipeline/value"
)

// Compiler makes plans of definitions. Safe for concurrent use.
type Compiler struct {
	types   map[string]*node.Type
	names   []string
	scripts *script.Engine
}

// NewCompiler knows the types of nodes; scripts compiles what they hold.
func NewCompiler(types []node.Type, scripts *script.Engine) *Compiler {
	c := &Compiler{types: make(map[string]*node.Type, len(types)), scripts: scripts}
	for i := range types {
		c.types[types[i].Spec.Type] = &types[i]
		c.names = append(c.names, types[i].Spec.Type)
	}
	slices.Sort(c.names)
	return c
}

// Specs are what the types of nodes say of themselves, by type.
func (c *Compiler) Specs() []*node.Spec {
	specs := make([]*node.Spec, len(c.names))
	for i, name := range c.names {
		specs[i] = &c.types[name].Spec
	}
	return specs
}

var identifier = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// Compile makes the plan of a version. It reports every fault; the plan is nil when one is an error.
func (c *Compiler) Compile(d *Definition, number, version uint32) (*Plan, []Fault) {
	w := &compilation{c: c, d: d, place: map[string]int{}}
	w.names()
	w.edges()
	p := &Plan{Number: number, Version: version, ID: d.ID, Workspace: d.Workspace, Name: d.Name}
	if p.Workspace == "" {
		p.Workspace = "main"
	}
	if p.Name == "" {
		p.Name = p.ID
	}
	p.Settings = d.Settings.resolve(c.scripts, &w.faults)
	w.make(p)
	order := w.order()
	w.reach(order)
	w.references(order)
	w.loops()
	if Broken(w.faults) {
		return nil, w.faults
	}
	w.lay(p, order)
	return p, w.faults
}

// compilation is one definition on its way to a plan. Nodes are named by their place in the definition.
type compilation struct {
	c      *Compiler
	d      *Definition
	faults []Fault
	place  map[string]int // by id
	types  []*node.Type   // nil = unknown
	ports  [][]node.Port
	made   []node.Node
	next   [][]int // every successor, whatever the port
	before [][]int
	out    [][][]int // by node and port
	errors [][]int
	steps  []StepSettings
}

func (w *compilation) wrong(id, field, code, format string, a ...any) {
	w.faults = append(w.faults, wrong(id, field, code, fmt.Sprintf(format, a...)))
}

// names checks what the pipeline and its nodes are called, and finds their types.
func (w *compilation) names() {
	d := w.d
	if !identifier.MatchString(d.ID) {
		w.wrong("", "id", codeID, "%q is no id: letters, digits, . _ and -, at most 64, a letter or digit first", d.ID)
	}
	if len(d.Nodes) > MaxNodes || len(d.Edges) > MaxEdges {
		w.wrong("", "nodes", codeSize, "%d nodes and %d edges, at most %d and %d are allowed", len(d.Nodes), len(d.Edges), MaxNodes, MaxEdges)
	}
	titles := map[string]string{}
	n := len(d.Nodes)
	w.types, w.ports, w.made = make([]*node.Type, n), make([][]node.Port, n), make([]node.Node, n)
	w.next, w.before, w.out, w.errors = make([][]int, n), make([][]int, n), make([][][]int, n), make([][]int, n)
	triggers := 0
	for i := range d.Nodes {
		x := &d.Nodes[i]
		if !identifier.MatchString(x.ID) {
			w.wrong(x.ID, fmt.Sprintf("nodes[%d].id", i), codeID, "%q is no id: letters, digits, . _ and -, at most 64, a letter or digit first", x.ID)
		} else if _, there := w.place[x.ID]; there {
			w.wrong(x.ID, "id", codeDuplicate, "two nodes have the id %q", x.ID)
		}
		w.place[x.ID] = i
		if other, there := titles[x.Title()]; there && other != x.ID {
			w.wrong(x.ID, "name", codeDuplicate, "%q is also the name of node %s, and $node could not tell them apart", x.Title(), other)
		}
		titles[x.Title()] = x.ID
		t := w.c.types[x.Type]
		if t == nil {
			w.wrong(x.ID, "type", codeType, "there is no node type %q%s", x.Type, w.c.near(x.Type))
			continue
		}
		w.types[i] = t
		if t.Spec.Trigger {
			triggers++
		}
		w.ports[i] = portsOf(t, x.Params)
		w.out[i] = make([][]int, len(w.ports[i]))
	}
	if triggers == 0 && !slices.Contains(w.types, nil) {
		w.wrong("", "nodes", codeTrigger, "nothing starts a run: add a trigger, for example trigger.manual")
	}
}

// near names a type that may have been meant.
func (c *Compiler) near(name string) string {
	tail := name[strings.LastIndexByte(name, '.')+1:]
	for _, known := range c.names {
		if strings.EqualFold(known, name) || tail != "" && strings.HasSuffix(known, "."+tail) {
			return fmt.Sprintf("; did you mean %q?", known)
		}
	}
	return ""
}

var onePort = []node.Port{{Name: defaultPort}}

func portsOf(t *node.Type, params value.Value) []node.Port {
	switch {
	case t.Spec.Ports && t.Ports != nil:
		return t.Ports(params)
	case t.Spec.Outputs == nil:
		return onePort
	}
	return t.Spec.Outputs
}

// edges finds both ends of every edge.
func (w *compilation) edges() {
	seen := map[Edge]bool{}
	for i, e := range w.d.Edges {
		at := fmt.Sprintf("edges[%d]", i)
		if e.Port == "" {
			e.Port = defaultPort
			if from, ok := w.place[e.From]; ok && len(w.ports[from]) == 1 {
				e.Port = w.ports[from][0].Name
			}
		}
		from, ok := w.place[e.From]
		if !ok {
			w.wrong("", at+".from", codeNode, "there is no node %q", e.From)
		}
		to, okTo := w.place[e.To]
		if !okTo {
			w.wrong("", at+".to", codeNode, "there is no node %q", e.To)
		}
		if !ok || !okTo {
			continue
		}
		if seen[e] {
			w.wrong("", at, codeDuplicate, "this edge is there twice")
			continue
		}
		seen[e] = true
		if t := w.types[to]; t != nil && t.Spec.Trigger {
			w.wrong(e.To, at+".to", codePort, "%s is a trigger, which has no input", e.To)
			continue
		}
		w.connect(at, e, from, to)
	}
}

func (w *compilation) connect(at string, e Edge, from, to int) {
	t := w.types[from]
	if t == nil {
		return // its own fault
	}
	port := slices.IndexFunc(w.ports[from], func(p node.Port) bool { return p.Name == e.Port })
	switch {
	case port >= 0:
		w.out[from][port] = append(w.out[from][port], to)
	case e.Port == "error" && !t.Spec.Trigger:
		w.errors[from] = append(w.errors[from], to)
	default:
		var names []string
		for _, p := range w.ports[from] {
			names = append(names, p.Name)
		}
		if !t.Spec.Trigger {
			names = append(names, "error")
		}
		w.wrong(e.From, at+".port", codePort, "%s has no port %q, only %s", e.From, e.Port, strings.Join(names, ", "))
		return
	}
	w.next[from] = append(w.next[from], to)
	if !slices.Contains(w.before[to], from) {
		w.before[to] = append(w.before[to], from)
	}
}

// make checks parameters and settings, and makes the nodes.
func (w *compilation) make(p *Plan) {
	w.steps = make([]StepSettings, len(w.d.Nodes))
	for i := range w.d.Nodes {
		x, t := &w.d.Nodes[i], w.types[i]
		w.steps[i] = resolveStep(&w.faults, x.ID, &x.Settings, len(w.errors[i]) > 0)
		if t == nil {
			continue
		}
		params, faults := node.Check(&t.Spec, x.Params)
		if !Broken(faults) {
			var made []Fault
			w.made[i], made = t.New(&node.Config{Pipeline: p.ID, Workspace: p.Workspace, Node: x.ID, Params: params, Scripts: w.c.scripts})
			faults = append(faults, made...)
		}
		for _, f := range faults {
			f.Node, f.Field = x.ID, join("params", f.Field)
			if f.Field == "params." {
				f.Field = "params"
			}
			w.faults = append(w.faults, f)
		}
		if _, ok := w.made[i].(node.Trigger); t.Spec.Trigger && w.made[i] != nil && !ok {
			w.wrong(x.ID, "type", codeType, "%s says that it is a trigger and is none", x.Type)
		}
	}
}

// lay fills the plan in.
func (w *compilation) lay(p *Plan, order []int) {
	step := make([]int, len(order)) // by place in the definition
	for s, i := range order {
		step[i] = s
	}
	moved := func(list []int) []int {
		if len(list) == 0 {
			return nil
		}
		out := make([]int, len(list))
		for k, i := range list {
			out[k] = step[i]
		}
		return out
	}
	p.Steps = make([]Step, len(order))
	for s, i := range order {
		x := &w.d.Nodes[i]
		st := Step{Number: i, ID: x.ID, Name: x.Title(), Type: x.Type, Spec: &w.types[i].Spec, Node: w.made[i], Settings: w.steps[i], Ports: w.ports[i], Error: moved(w.errors[i]), In: moved(w.before[i])}
		for _, to := range w.out[i] {
			st.Out = append(st.Out, moved(to))
		}
		if st.Spec.Trigger {
			st.Trigger, _ = st.Node.(node.Trigger)
			p.Triggers = append(p.Triggers, s)
		}
		p.Steps[s] = st
	}
}
