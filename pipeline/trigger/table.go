package trigger

import (
	"slices"
	"sync"
	"sync/atomic"

	"millrace/historian"
	"millrace/pipeline/definition"
	"millrace/pipeline/node"
	"millrace/pipeline/queue"
	"millrace/uns"
)

// Topics leads from a sample to its topic; *uns.Catalog is one. Nil is a topic that was deleted or is out of reach.
type Topics interface {
	BySeries(id historian.Series) *uns.Topic
}

// Trigger is one trigger node of one version, for the sequences at which the version holds. Immutable but for its gate, which
// belongs to the follower.
type Trigger struct {
	Ref       queue.Ref
	Lane      queue.Lane
	Workspace string
	// Filters are paths with wildcards, within the workspace.
	Filters []string
	Values  *node.Values
	// From is the first sequence it starts runs for, To the first one it no longer does; To 0 = until further notice.
	From, To uint64

	gate *gate // nil: every value passes
}

// holds says whether the trigger is in force at a sequence.
func (t *Trigger) holds(seq uint64) bool { return seq >= t.From && (t.To == 0 || seq < t.To) }

// Of gives the triggers of a plan that start runs for values, with gates of their own.
func Of(p *definition.Plan, from uint64) (list []*Trigger) {
	if p == nil {
		return nil
	}
	for _, i := range p.Triggers {
		step := &p.Steps[i]
		if step.Trigger == nil {
			continue
		}
		if v := step.Trigger.Start().Values; v != nil {
			list = append(list, &Trigger{
				Ref:  queue.Ref{Pipeline: p.Number, Version: p.Version, Node: uint16(step.Number)},
				Lane: queue.Lane(p.Settings.Lane), Workspace: p.Workspace, Filters: v.Filters, Values: v, From: from, gate: newGate(v),
			})
		}
	}
	return list
}

// Set is what matches a topic: immutable, and shared by all topics that the same triggers match.
type Set struct {
	Triggers []*Trigger

	generation uint64
	// plain: no trigger has a gate or an end, and from is the last of their beginnings; then refs can be used as they are.
	plain bool
	from  uint64
	refs  [queue.Lanes][]queue.Ref
}

// Table finds the triggers that match a topic. Match may be called while Replace is, both by many goroutines.
type Table struct {
	topics  Topics
	current atomic.Pointer[state]
	walks   atomic.Uint64

	grow   sync.Mutex
	blocks atomic.Pointer[[]*block]
}

// block holds the match sets of neighbouring series.
type block [blockSize]atomic.Pointer[Set]

const blockSize = 4096

// state is one generation.
type state struct {
	generation uint64
	triggers   []*Trigger
	roots      map[string]*branch // by workspace
	none       *Set               // of topics that nobody wants

	mu       sync.Mutex
	interned map[string]*Set
}

// NewTable makes a table without triggers.
func NewTable(topics Topics) *Table {
	t := &Table{topics: topics}
	t.Replace(nil)
	return t
}

// Replace puts other triggers in force. Each topic finds its new match set with its next value.
func (t *Table) Replace(triggers []*Trigger) {
	next := &state{generation: 1, triggers: slices.Clone(triggers), roots: map[string]*branch{}, interned: map[string]*Set{}}
	if was := t.current.Load(); was != nil {
		next.generation = was.generation + 1
	}
	next.none = &Set{generation: next.generation, plain: true}
	for i, x := range next.triggers {
		root := next.roots[x.Workspace]
		if root == nil {
			root = &branch{}
			next.roots[x.Workspace] = root
		}
		for _, f := range x.Filters {
			root.add(f, uint32(i))
		}
	}
	t.current.Store(next)
}

// Triggers are those in force. The slice is shared.
func (t *Table) Triggers() []*Trigger { return t.current.Load().triggers }

// Match gives what matches the topic of a series, never nil. A topic that nobody wants costs one load and one compare.
func (t *Table) Match(id historian.Series) *Set {
	now := t.current.Load()
	if slot := t.slot(id); slot != nil {
		if s := slot.Load(); s == now.none || s != nil && s.generation == now.generation {
			return s
		}
	}
	return t.walk(now, id)
}

func (t *Table) slot(id historian.Series) *atomic.Pointer[Set] {
	blocks := t.blocks.Load()
	if n := int(id / blockSize); blocks != nil && n < len(*blocks) {
		return &(*blocks)[n][id%blockSize]
	}
	return nil
}

// walk finds the match set of a topic anew.
func (t *Table) walk(now *state, id historian.Series) *Set {
	topic := t.topics.BySeries(id)
	if topic == nil {
		return now.none
	}
	t.walks.Add(1)
	set := now.match(topic.Workspace, topic.Path)
	slot := t.slot(id)
	if slot == nil {
		t.reach(id)
		slot = t.slot(id)
	}
	slot.Store(set)
	return set
}

// reach makes room up to a series.
func (t *Table) reach(id historian.Series) {
	t.grow.Lock()
	defer t.grow.Unlock()
	var blocks []*block
	if b := t.blocks.Load(); b != nil {
		blocks = slices.Clone(*b)
	}
	for len(blocks) <= int(id/blockSize) {
		blocks = append(blocks, new(block))
	}
	t.blocks.Store(&blocks)
}

// match walks the filters of a workspace.
func (s *state) match(workspace, path string) *Set {
	root := s.roots[workspace]
	if root == nil {
		return s.none
	}
	var few [32]uint32
	found := root.collect(few[:0], path, len(path) > 0 && path[0] == '$')
	if len(found) == 0 {
		return s.none
	}
	slices.Sort(found)
	return s.intern(slices.Compact(found))
}

// intern gives the one set of these triggers.
func (s *state) intern(found []uint32) *Set {
	var few [128]byte
	key := few[:0]
	for _, i := range found {
		key = append(key, byte(i>>24), byte(i>>16), byte(i>>8), byte(i))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if set := s.interned[string(key)]; set != nil {
		return set
	}
	set := &Set{generation: s.generation, plain: true, Triggers: make([]*Trigger, len(found))}
	refs := make([]queue.Ref, 0, len(found))
	for n, i := range found {
		x := s.triggers[i]
		set.Triggers[n] = x
		set.from = max(set.from, x.From)
		set.plain = set.plain && x.gate == nil && x.To == 0
	}
	for lane := range set.refs {
		from := len(refs)
		for _, x := range set.Triggers {
			if int(x.Lane) == lane {
				refs = append(refs, x.Ref)
			}
		}
		set.refs[lane] = refs[from:len(refs):len(refs)]
	}
	s.interned[string(key)] = set
	return set
}
