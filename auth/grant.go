package auth

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Effect of a grant.
type Effect string

// The two effects. A deny wins over every allow.
const (
	EffectAllow Effect = "allow"
	EffectDeny  Effect = "deny"
)

// Action a grant is about.
type Action string

// The two actions. Subscribe is receiving: it covers live, retained and queued delivery.
const (
	ActionPublish   Action = "publish"
	ActionSubscribe Action = "subscribe"
)

// Scope says which topics a filter is about.
type Scope string

// ScopeUNS filters are paths within the client's workspace; ScopeMQTT filters are whole topics outside the namespace.
const (
	ScopeUNS  Scope = "uns"
	ScopeMQTT Scope = "mqtt"
)

// Bounds of a grant's filter: those of a stored path, which leaves recursion over levels shallow.
const (
	maxFilter = 1024
	maxLevels = 32
)

// clientLevel is the level that stands for the client's own id.
const clientLevel = "${client}"

// Grant is one rule of a client. Once accepted it is normalised: Scope is set, Actions are in fixed order without repeats,
// Filter of scope uns is a path, "${client}" is kept as written.
type Grant struct {
	Effect  Effect   `json:"effect"`
	Actions []Action `json:"actions"`
	Filter  string   `json:"filter"`
	Scope   Scope    `json:"scope,omitempty"`
}

// place is where a client lives: what a full topic in its grants must begin with.
type place struct{ namespace, workspace string }

// normalGrants checks and normalises a list; the result shares no memory with it and is never nil.
func normalGrants(list []Grant, in place) ([]Grant, *Fault) {
	if len(list) > maxGrants {
		return nil, faultf("grants", "%d of them, at most %d: use wildcards", len(list), maxGrants)
	}
	normal := make([]Grant, len(list))
	for i, g := range list {
		n, fault := g.normal(in)
		if fault != nil {
			fault.Field = fmt.Sprintf("grants[%d].%s", i, fault.Field)
			return nil, fault
		}
		normal[i] = n
	}
	return normal, nil
}

func (g Grant) normal(in place) (Grant, *Fault) {
	if g.Effect != EffectAllow && g.Effect != EffectDeny {
		return Grant{}, faultf("effect", "%s is neither allow nor deny", shown(string(g.Effect)))
	}
	for _, a := range g.Actions {
		if a != ActionPublish && a != ActionSubscribe {
			return Grant{}, faultf("actions", "%s is neither publish nor subscribe", shown(string(a)))
		}
	}
	var actions []Action
	for _, a := range []Action{ActionPublish, ActionSubscribe} {
		if slices.Contains(g.Actions, a) {
			actions = append(actions, a)
		}
	}
	if actions == nil {
		return Grant{}, faultf("actions", "is empty: name publish, subscribe or both")
	}
	g.Actions = actions
	var fault *Fault
	switch g.Scope {
	case "", ScopeUNS:
		g.Scope = ScopeUNS
		g.Filter, fault = normalPath(g.Filter, in)
	case ScopeMQTT:
		fault = checkTopicFilter(g.Filter, in.namespace)
	default:
		fault = faultf("scope", "%s is neither uns nor mqtt", shown(string(g.Scope)))
	}
	if fault != nil {
		return Grant{}, fault
	}
	return g, nil
}

// normalPath takes a path filter or the full topic filter and returns the path filter.
func normalPath(filter string, in place) (string, *Fault) {
	path := filter
	if first, rest, _ := strings.Cut(filter, "/"); first == in.namespace {
		workspace, below, found := strings.Cut(rest, "/")
		switch {
		case workspace == "+" || workspace == "#" || workspace == "":
			return "", faultf("filter", "%s names no workspace: write %s/%s/… or the path alone", shown(filter), in.namespace, in.workspace)
		case workspace != in.workspace:
			return "", faultf("filter", "%s lies in workspace %s, the client in %q: a client works in one workspace",
				shown(filter), shown(workspace), in.workspace)
		case !found:
			return "", faultf("filter", "%s names no path below the workspace: add /# for all of it", shown(filter))
		}
		path = below
	}
	if fault := checkFilter(path); fault != nil {
		return "", fault
	}
	levels := strings.Split(path, "/")
	if slices.Contains(levels, "") {
		return "", faultf("filter", "%s has an empty level, which no stored topic has: remove the extra '/'", shown(path))
	}
	switch first := levels[0]; {
	case first == "_ingress":
		return "", faultf("filter", "%s is an inbox: grant the path it writes, without _ingress/<client>/", shown(path))
	case first == "_verdict":
		return "", faultf("filter", "%s needs no grant: a client always reads its own verdicts and never another's", shown(path))
	case strings.HasPrefix(first, "_"), strings.HasPrefix(first, "$") && first != clientLevel:
		return "", faultf("filter", "%s: a first level beginning with _ or $ is reserved", shown(path))
	}
	return path, nil
}

// checkTopicFilter holds the rules of scope mqtt.
func checkTopicFilter(filter, namespace string) *Fault {
	if fault := checkFilter(filter); fault != nil {
		return fault
	}
	switch first, _, _ := strings.Cut(filter, "/"); first {
	case namespace:
		return faultf("filter", "%s is a stored topic: use scope uns for it", shown(filter))
	case "$share":
		return faultf("filter", "%s: grant the filter behind $share/<group>/, it covers shared subscriptions too", shown(filter))
	case "$SYS":
		return faultf("filter", "%s needs the role admin, which an API client cannot have", shown(filter))
	}
	return nil
}

// checkFilter holds what both scopes have in common: length, characters, wildcards as whole levels [MQTT-4.7.1-1]
// [MQTT-4.7.1-2], and placeholders.
func checkFilter(filter string) *Fault {
	switch {
	case filter == "":
		return faultf("filter", "is empty: give a topic filter such as line1/#")
	case len(filter) > maxFilter:
		return faultf("filter", "%s is longer than %d bytes: use wildcards", shown(filter), maxFilter)
	case !utf8.ValidString(filter):
		return faultf("filter", "%s is not UTF-8", shown(filter))
	}
	if at := strings.IndexFunc(filter, unicode.IsControl); at >= 0 {
		return faultf("filter", "%s has a control character at byte %d: remove it", shown(filter), at)
	}
	levels := strings.Split(filter, "/")
	if len(levels) > maxLevels {
		return faultf("filter", "%s has %d levels, at most %d: end it earlier with #", shown(filter), len(levels), maxLevels)
	}
	for i, level := range levels {
		switch {
		case level == "#" && i < len(levels)-1:
			return faultf("filter", "%s: # may only be the last level", shown(filter))
		case len(level) > 1 && strings.ContainsAny(level, "#+"):
			return faultf("filter", "%s: a wildcard stands for a whole level, not for part of %s", shown(filter), shown(level))
		case level != clientLevel && strings.Contains(level, "${"):
			return faultf("filter", "%s: the only placeholder is %s, as a whole level", shown(filter), clientLevel)
		}
	}
	return nil
}
