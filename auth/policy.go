package auth

import (
	"slices"
	"strings"
)

// Policy is an immutable compiled set of grants of one client, with "${client}" replaced. Safe for concurrent use. The nil
// Policy permits nothing.
//
// Everything is denied that no allow matches, and a deny wins over any allow. Wildcards are those of MQTT: "a/#" matches "a"
// and all below, "a" matches "a" alone, and a wildcard at the first level never matches a topic that begins with $
// [MQTT-4.7.2-1]. In scope uns a first level that begins with _ or $ is out of reach of every grant; what is permitted there
// is fixed: the client's own "_verdict/<id>/#" may be received.
type Policy struct {
	uns, mqtt rules
	verdicts  string // "_verdict/<id>"
}

// rules are the grants of one scope.
type rules struct {
	root      level
	allows    [][]string // filters of allow-subscribe grants, as levels: what CouldReceive starts from
	denyDepth int        // levels of the longest deny-subscribe filter
}

// marks say which grants end at a level.
type marks uint8

const (
	allowPublish marks = 1 << iota
	allowReceive
	denyPublish
	denyReceive
)

// level is a node of the tree of filters.
type level struct {
	children []child // literal levels, sorted by name
	plus     *level  // the level "+"
	here     marks   // filters that end exactly here
	below    marks   // filters that end with "#" under this level: they match it and everything below
}

type child struct {
	name string
	to   *level
}

// compile builds the policy of client id. The filters have been checked.
func compile(id string, grants []Grant) *Policy {
	p := &Policy{verdicts: "_verdict/" + id}
	for _, g := range grants {
		r := &p.uns
		if g.Scope == ScopeMQTT {
			r = &p.mqtt
		}
		levels := strings.Split(g.Filter, "/")
		for i, name := range levels {
			if name == clientLevel {
				levels[i] = id
			}
		}
		m := marksOf(g)
		r.root.insert(levels, m)
		if m&allowReceive != 0 {
			r.allows = append(r.allows, levels)
		}
		if m&denyReceive != 0 {
			r.denyDepth = max(r.denyDepth, len(levels))
		}
	}
	return p
}

func marksOf(g Grant) marks {
	var m marks
	for _, a := range g.Actions {
		switch {
		case g.Effect == EffectAllow && a == ActionPublish:
			m |= allowPublish
		case g.Effect == EffectAllow && a == ActionSubscribe:
			m |= allowReceive
		case a == ActionPublish:
			m |= denyPublish
		default:
			m |= denyReceive
		}
	}
	return m
}

func (l *level) insert(levels []string, m marks) {
	for _, name := range levels {
		switch name {
		case "#":
			l.below |= m
			return
		case "+":
			if l.plus == nil {
				l.plus = &level{}
			}
			l = l.plus
		default:
			l = l.literal(name)
		}
	}
	l.here |= m
}

// literal finds or makes the child of that name.
func (l *level) literal(name string) *level {
	at, found := slices.BinarySearchFunc(l.children, name, func(c child, n string) int { return strings.Compare(c.name, n) })
	if !found {
		l.children = slices.Insert(l.children, at, child{name: name, to: &level{}})
	}
	return l.children[at].to
}

// find looks a child up. Few children are compared one after the other, which beats halving for up to about eight.
func (l *level) find(name string) *level {
	if len(l.children) <= 8 {
		for i := range l.children {
			if l.children[i].name == name {
				return l.children[i].to
			}
		}
		return nil
	}
	low, high := 0, len(l.children)
	for low < high {
		middle := int(uint(low+high) >> 1)
		if l.children[middle].name < name {
			low = middle + 1
		} else {
			high = middle
		}
	}
	if low < len(l.children) && l.children[low].name == name {
		return l.children[low].to
	}
	return nil
}

// collect gathers the marks of all filters that match: topic holds the levels still to walk, more is false when none is left.
// No level of the tree is visited twice, whatever the topic, and nothing is allocated.
func (l *level) collect(topic string, more, wild bool) marks {
	var m marks
	if wild {
		m = l.below
	}
	if !more {
		return m | l.here
	}
	name, rest := topic, ""
	more = false
	if at := strings.IndexByte(topic, '/'); at >= 0 {
		name, rest, more = topic[:at], topic[at+1:], true
	}
	if next := l.find(name); next != nil {
		m |= next.collect(rest, more, true)
	}
	if wild && l.plus != nil {
		m |= l.plus.collect(rest, more, true)
	}
	return m
}

// marksFor gathers the marks of a whole topic.
func (r *rules) marksFor(topic string) marks { return r.root.collect(topic, true, topic[0] != '$') }

// scope returns the rules of s, nil for an unknown one.
func (p *Policy) scope(s Scope) *rules {
	switch s {
	case ScopeUNS:
		return &p.uns
	case ScopeMQTT:
		return &p.mqtt
	}
	return nil
}

// MayPublish reports whether the client may publish to topic: the path for ScopeUNS, the whole topic for ScopeMQTT. An empty
// topic (an alias not yet resolved) is never permitted. No allocation.
func (p *Policy) MayPublish(s Scope, topic string) bool {
	if p == nil || topic == "" {
		return false
	}
	r := p.scope(s)
	if r == nil || s == ScopeUNS && reserved(topic) {
		return false
	}
	return r.marksFor(topic)&(allowPublish|denyPublish) == allowPublish
}

// MayReceive reports whether a message on topic (as in MayPublish) may be delivered to the client. No allocation.
func (p *Policy) MayReceive(s Scope, topic string) bool {
	if p == nil || topic == "" {
		return false
	}
	r := p.scope(s)
	if r == nil {
		return false
	}
	if s == ScopeUNS && reserved(topic) {
		return p.ownVerdict(topic)
	}
	return r.marksFor(topic)&(allowReceive|denyReceive) == allowReceive
}

// reserved reports whether a path begins with a level that grants cannot reach. Ids may begin with _, so the rule is held
// here and not only where grants are written: a client called "_verdict" with a grant on "${client}/#" gains nothing.
func reserved(path string) bool { return path[0] == '_' || path[0] == '$' }

func (p *Policy) ownVerdict(path string) bool {
	rest, found := strings.CutPrefix(path, p.verdicts)
	return found && (rest == "" || rest[0] == '/')
}
