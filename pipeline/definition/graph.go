package definition

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"millrace/pipeline/node"
	"millrace/pipeline/value"
	"millrace/uns"
)

// order sorts the nodes so that every edge leads forward, and reports those that lie on a cycle. Nodes that could come at the
// same place keep the order of the definition.
func (w *compilation) order() (order []int) {
	open := make([]int, len(w.d.Nodes))
	for i := range w.d.Nodes {
		for _, to := range w.next[i] {
			open[to]++
		}
	}
	done := make([]bool, len(open))
	for len(order) < len(open) {
		i := slices.IndexFunc(open, func(n int) bool { return n == 0 })
		if i < 0 {
			break
		}
		open[i] = -1
		done[i] = true
		order = append(order, i)
		for _, to := range w.next[i] {
			open[to]--
		}
	}
	if len(order) == len(open) {
		return order
	}
	var cycle []string
	for i := range done {
		if !done[i] && w.returns(i, done) {
			cycle = append(cycle, w.d.Nodes[i].ID)
		}
	}
	w.wrong(cycle[0], "edges", codeCycle, "%s lead back to themselves: a run would never end", strings.Join(cycle, ", "))
	return order
}

// returns says that a way leads from a node back to it.
func (w *compilation) returns(from int, done []bool) bool {
	seen := make([]bool, len(done))
	stack := slices.Clone(w.next[from])
	for len(stack) > 0 {
		i := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if i == from {
			return true
		}
		if !seen[i] && !done[i] {
			seen[i] = true
			stack = append(stack, w.next[i]...)
		}
	}
	return false
}

// reach warns of nodes that no run comes to.
func (w *compilation) reach(order []int) {
	reached := make([]bool, len(w.d.Nodes))
	for _, i := range order {
		if t := w.types[i]; t == nil || t.Spec.Trigger {
			reached[i] = true
		}
		if reached[i] {
			for _, to := range w.next[i] {
				reached[to] = true
			}
		}
	}
	for _, i := range order {
		if !reached[i] {
			w.faults = append(w.faults, warn(w.d.Nodes[i].ID, "", codeReach, "no trigger leads here: it never runs"))
		}
	}
}

var reference = regexp.MustCompile(`\$node(?:\.([A-Za-z_$][\w$]*)|\[\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)')\s*\])`)

// references checks that what $node names has run before.
func (w *compilation) references(order []int) {
	byTitle := map[string]int{}
	for i := range w.d.Nodes {
		byTitle[w.d.Nodes[i].Title()] = i
	}
	earlier := make([]map[int]bool, len(w.d.Nodes))
	for _, i := range order {
		earlier[i] = map[int]bool{}
		for _, b := range w.before[i] {
			earlier[i][b] = true
			for k := range earlier[b] {
				earlier[i][k] = true
			}
		}
		x := &w.d.Nodes[i]
		texts(x.Params, "params", func(field, text string) {
			for _, m := range reference.FindAllStringSubmatch(text, -1) {
				name := m[1] + m[2] + m[3]
				other, ok := byTitle[name]
				if !ok {
					w.wrong(x.ID, field, codeNode, "$node names %q, and no node is called that", name)
				} else if !earlier[i][other] {
					w.wrong(x.ID, field, codeBefore, "$node names %q, which does not come before %s", name, x.ID)
				}
			}
		})
	}
}

// texts calls fn for every text in a tree.
func texts(v value.Value, at string, fn func(at, text string)) {
	switch v.Kind() {
	case value.TextKind:
		fn(at, v.Text())
	case value.ListKind:
		for i := range v.Len() {
			texts(v.Index(i), fmt.Sprintf("%s[%d]", at, i), fn)
		}
	case value.ObjectKind:
		for i := range v.Len() {
			texts(v.Field(i).Value, join(at, v.Field(i).Name), fn)
		}
	}
}

// loops warns where a pipeline triggers itself: with a topic it always publishes to. Topics that expressions make are caught
// by the hop limit when they run.
func (w *compilation) loops() {
	for i := range w.d.Nodes {
		for _, topic := range w.targets(i) {
			for j := range w.d.Nodes {
				for _, filter := range w.filters(j) {
					if uns.Match(filter, topic) {
						w.faults = append(w.faults, warn(w.d.Nodes[i].ID, "params.topic", codeLoop, fmt.Sprintf("%s starts this pipeline again by trigger %s: a run triggers the next, at most 16 in a row", topic, w.d.Nodes[j].ID)))
					}
				}
			}
		}
	}
}

// targets are the topics that a node always publishes to.
func (w *compilation) targets(i int) []string {
	t := w.types[i]
	if t == nil || !t.Spec.Effect {
		return nil
	}
	return targets(&t.Spec, w.d.Nodes[i].Params)
}

func targets(spec *node.Spec, params value.Value) (topics []string) {
	for _, f := range spec.Fields {
		if text := params.Get(f.Name).Text(); f.Kind == node.TopicField && text != "" && !strings.Contains(text, "{{") {
			topics = append(topics, text)
		}
	}
	return topics
}

// filters are what a trigger listens to.
func (w *compilation) filters(i int) []string {
	if t, ok := w.made[i].(node.Trigger); ok {
		if s := t.Start(); s.Values != nil {
			return s.Values.Filters
		}
	}
	return nil
}
