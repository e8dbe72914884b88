package auth

import "strings"

// anyName stands for a level name that no grant mentions: grants hold no control characters.
const anyName = "\x01"

// CouldReceive reports whether any topic that matches a subscription's filter could be delivered to the client: false means
// the subscription can be refused (0x87) without taking anything from it. It is exact but for the bounds on length and
// depth of stored topics. filter is a path filter for ScopeUNS (the broker cuts namespace and workspace off), a whole one for
// ScopeMQTT; of "$share/<group>/<filter>" only the last part. A malformed filter gives false. A filter such as "#" covers
// topics of both scopes: ask for each.
//
// The reasoning: whatever is permitted lies in the intersection of filter with some allow. Of all topics in it, the one whose
// free levels have names that no deny mentions is matched by the fewest denies, so trying that one for every length that
// could make a difference is enough.
func (p *Policy) CouldReceive(s Scope, filter string) bool {
	if p == nil || filter == "" || p.scope(s) == nil {
		return false
	}
	levels := strings.Split(filter, "/")
	if !wellFormed(levels) {
		return false
	}
	if s == ScopeUNS && reserved(filter) {
		return p.reachesVerdicts(levels)
	}
	r := p.scope(s)
	for _, allow := range r.allows {
		common, open, ok := intersect(levels, allow)
		if ok && p.anyPermitted(s, common, open, r.denyDepth) {
			return true
		}
	}
	return false
}

// anyPermitted tries the topics of a pattern; open says that it goes on below its last level.
func (p *Policy) anyPermitted(s Scope, pattern []string, open bool, denyDepth int) bool {
	topic := make([]string, len(pattern), len(pattern)+denyDepth+2)
	for i, name := range pattern {
		if name == "+" {
			name = anyName
		}
		topic[i] = name
	}
	if len(topic) == 0 || open && len(topic) == 1 && topic[0] == "" {
		topic = append(topic, anyName) // a topic has at least one character: /# begins with /x
	}
	if p.MayReceive(s, strings.Join(topic, "/")) {
		return true
	}
	// From one level deeper than the longest deny on, more depth changes nothing.
	for open && len(topic) <= denyDepth {
		topic = append(topic, anyName)
		if p.MayReceive(s, strings.Join(topic, "/")) {
			return true
		}
	}
	return false
}

// intersect returns the pattern that exactly the topics matched by both filters match, without its "#"; open says that it
// had one.
func intersect(subscription, allow []string) (pattern []string, open, ok bool) {
	if wildcard(subscription[0]) && strings.HasPrefix(allow[0], "$") {
		return nil, false, false
	}
	for i := 0; ; i++ {
		switch restS, restA := subscription[i:], allow[i:]; {
		case len(restS) == 0 && len(restA) == 0:
			return pattern, false, true
		case len(restS) > 0 && restS[0] == "#":
			return closing(pattern, restA)
		case len(restA) > 0 && restA[0] == "#":
			return closing(pattern, restS)
		case len(restS) == 0 || len(restA) == 0:
			return nil, false, false
		case restS[0] == "+":
			pattern = append(pattern, restA[0])
		case restA[0] == "+" || restA[0] == restS[0]:
			pattern = append(pattern, restS[0])
		default:
			return nil, false, false
		}
	}
}

// closing ends a pattern with what is left of the one filter when the other has come to its "#".
func closing(pattern, rest []string) ([]string, bool, bool) {
	if n := len(rest); n > 0 && rest[n-1] == "#" {
		return append(pattern, rest[:n-1]...), true, true
	}
	return append(pattern, rest...), false, true
}

// reachesVerdicts reports whether a filter that names a reserved level covers the client's own verdict topics.
func (p *Policy) reachesVerdicts(levels []string) bool {
	_, _, ok := intersect(levels, append(strings.Split(p.verdicts, "/"), "#"))
	return ok
}

func wellFormed(levels []string) bool {
	for i, name := range levels {
		if len(name) > 1 && strings.ContainsAny(name, "+#") || name == "#" && i < len(levels)-1 {
			return false
		}
	}
	return true
}

func wildcard(name string) bool { return name == "+" || name == "#" }
