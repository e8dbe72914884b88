package broker

import (
	"strings"
	"sync"
	"sync/atomic"

	"millrace/uns"
)

// subscription is one filter of one session. Immutable; a new SUBSCRIBE to the filter replaces it.
type subscription struct {
	session           *session
	filter            string
	qos               byte
	noLocal           bool
	retainAsPublished bool
	id                int  // subscription identifier, 0 = none
	handling          byte // retain handling of its SUBSCRIBE
}

// node is one level of the tree of filters. Most have one level below, for which a map would be ten times its size.
type node struct {
	name   string           // of only
	only   *node            // the level below, while there is but one
	below  map[string]*node // all of them, once there were several
	subs   map[*session]*subscription
	groups map[string]*group // of shared subscriptions, by name
}

func (n *node) empty() bool {
	return n.only == nil && len(n.below) == 0 && len(n.subs) == 0 && len(n.groups) == 0
}

// child is the level of that name below, nil when there is none.
func (n *node) child(level string) *node {
	if n.below != nil {
		return n.below[level]
	}
	if n.only != nil && n.name == level {
		return n.only
	}
	return nil
}

// grow is child, made when there is none.
func (n *node) grow(level string) *node {
	if c := n.child(level); c != nil {
		return c
	}
	c := &node{}
	if level != "+" { // a filter must not be held by one of its levels
		level = strings.Clone(level)
	} else {
		level = "+"
	}
	switch {
	case n.below != nil:
		n.below[level] = c
	case n.only != nil:
		n.below = map[string]*node{n.name: n.only, level: c}
		n.name, n.only = "", nil
	default:
		n.name, n.only = level, c
	}
	return c
}

func (n *node) cut(level string) {
	if n.below != nil {
		delete(n.below, level)
	} else if n.name == level {
		n.name, n.only = "", nil
	}
}

// index holds every subscription. Each change makes a new generation, with which cached matches compare.
type index struct {
	mu         sync.RWMutex
	root       node
	generation atomic.Uint64
	none       atomic.Pointer[match] // the empty match of a generation, shared by all topics nobody listens to
}

func (x *index) add(s *subscription) {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := &x.root
	share, filter := cutShare(s.filter)
	for level := range strings.SplitSeq(filter, "/") {
		n = n.grow(level)
	}
	if share != "" {
		g := n.groups[share]
		if g == nil {
			if n.groups == nil {
				n.groups = map[string]*group{}
			}
			g = &group{members: map[*session]*subscription{}}
			n.groups[share] = g
		}
		g.members[s.session] = s
		x.generation.Add(1)
		return
	}
	if n.subs == nil {
		n.subs = map[*session]*subscription{}
	}
	n.subs[s.session] = s
	x.generation.Add(1)
}

// remove takes subscriptions out, and branches that are empty then.
func (x *index) remove(subs ...*subscription) {
	if len(subs) == 0 {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, s := range subs {
		x.removeLocked(s)
	}
	x.generation.Add(1)
}

func (x *index) removeLocked(s *subscription) {
	share, filter := cutShare(s.filter)
	levels := strings.Split(filter, "/")
	path := make([]*node, 0, len(levels)+1)
	n := &x.root
	for _, level := range levels {
		path = append(path, n)
		if n = n.child(level); n == nil {
			return
		}
	}
	in := n.subs
	g := n.groups[share]
	if share != "" {
		if g == nil {
			return
		}
		in = g.members
	}
	if in[s.session] != s {
		return // replaced meanwhile
	}
	if delete(in, s.session); share != "" && len(in) == 0 {
		delete(n.groups, share)
	}
	for i := len(levels) - 1; i >= 0 && n.empty(); i-- {
		n = path[i]
		n.cut(levels[i])
	}
}

// match finds everyone who listens to a topic, whatever their grants. name tells what the topic is.
func (x *index) match(topic string, name *uns.Name) *match {
	x.mu.RLock()
	defer x.mu.RUnlock()
	generation := x.generation.Load()
	w := walk{underscore: -1}
	if !x.root.empty() {
		if name.Place != uns.Ordinary {
			w.underscore = lastUnderscore(topic)
		}
		w.down(&x.root, topic, 0)
	}
	if len(w.receivers)+len(w.groups) == 0 {
		if m := x.none.Load(); m != nil && m.generation == generation {
			return m
		}
		m := &match{generation: generation}
		x.none.Store(m)
		return m
	}
	m := &match{generation: generation, name: *name, topic: topic, receivers: w.receivers, groups: w.groups}
	for _, r := range w.receivers {
		r.seal()
		m.durable = m.durable || r.session.num != 0 && r.qos > 0
	}
	for _, x := range w.groups {
		for _, r := range x.members {
			m.durable = m.durable || r.session.num != 0 && r.qos > 0
		}
	}
	return m
}

// walk collects the receivers of one topic.
type walk struct {
	underscore int // the last level that starts with _ in a topic of the namespace: only a literal matches up to there
	receivers  []*receiver
	groups     []*sharing
}

func (w *walk) down(n *node, rest string, depth int) {
	level, rest, more := strings.Cut(rest, "/")
	wild := depth > 0 || !strings.HasPrefix(level, "$") // [MQTT-4.7.2-1]
	if wild && depth > w.underscore {
		w.take(n.child("#"))
	}
	w.step(n.child(level), rest, depth, more)
	if wild && (w.underscore < 0 || !strings.HasPrefix(level, "_")) {
		w.step(n.child("+"), rest, depth, more)
	}
}

func (w *walk) step(n *node, rest string, depth int, more bool) {
	switch {
	case n == nil:
	case more:
		w.down(n, rest, depth+1)
	default:
		w.take(n)
		w.take(n.child("#")) // a/# also matches a
	}
}

func (w *walk) take(n *node) {
	if n == nil {
		return
	}
	for _, g := range n.groups {
		w.groups = append(w.groups, g.receivers())
	}
	before := len(w.receivers) // a session has one subscription to a filter: only those of other filters can be it
next:
	for _, s := range n.subs {
		for _, r := range w.receivers[:before] {
			if r.session == s.session {
				r.subs = append(r.subs, s)
				continue next
			}
		}
		w.receivers = append(w.receivers, &receiver{session: s.session, subs: []*subscription{s}})
	}
}

// lastUnderscore is the index of the last level of topic that starts with _, -1 if none does.
func lastUnderscore(topic string) int {
	last := -1
	i := 0
	for level := range strings.SplitSeq(topic, "/") {
		if strings.HasPrefix(level, "_") {
			last = i
		}
		i++
	}
	return last
}
