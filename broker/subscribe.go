package broker

import (
	"strings"

	"millrace/auth"
	"millrace/uns"
)

const (
	maxSubscriptions = 4096 // of one session
	maxFilterLevels  = 128
)

// refuseFilter decides about a filter of a SUBSCRIBE: 0, or the SUBACK's reason code. A filter of which grants permit a
// part is let through; each delivery is checked again.
func (c *conn) refuseFilter(filter string) (code byte) {
	switch {
	case filter == "$share" || strings.HasPrefix(filter, "$share/"):
		return codeNoShared
	case !uns.ValidFilter(filter):
		return codeFilterInvalid
	case strings.Count(filter, "/") >= maxFilterLevels:
		return codeQuota
	}
	s := c.session
	s.mu.Lock()
	_, known := s.subscriptions[filter]
	n := len(s.subscriptions)
	s.mu.Unlock()
	if !known && n+len(c.refusals) >= maxSubscriptions {
		return codeQuota
	}
	if policy := s.principal.Policy(); policy == nil || !mayListen(s.principal, policy, c.b.o.Namespace.Root(), filter) {
		return codeNotAuthorized
	}
	return 0
}

// mayListen says whether any topic that filter matches could be delivered to p.
func mayListen(p *auth.Principal, policy *auth.Policy, root, filter string) bool {
	if filter[0] == '$' { // $SYS and the like are not for API clients
		return false
	}
	first, rest, _ := strings.Cut(filter, "/")
	if first != root && policy.CouldReceive(auth.ScopeMQTT, filter) {
		return true
	}
	path, ok := pathFilter(first, rest, root, p.Workspace())
	if !ok {
		return false
	}
	return policy.CouldReceive(auth.ScopeUNS, path)
}

// pathFilter turns a filter over full topics, cut after its first level, into one over the paths of a workspace.
// ok is false when it matches none of them.
func pathFilter(first, rest, root, workspace string) (path string, ok bool) {
	if first == "#" {
		return "#", true
	}
	if first != root && first != "+" {
		return "", false
	}
	second, path, _ := strings.Cut(rest, "/")
	if second == "#" {
		return "#", true
	}
	if second != workspace && second != "+" {
		return "", false
	}
	return path, path != ""
}

// subscribe puts a subscription in force, in place of an earlier one of the same filter [MQTT-3.8.4-3].
func (c *conn) subscribe(sub *subscription) {
	s := c.session
	s.mu.Lock()
	s.subscriptions[sub.filter] = sub
	s.mu.Unlock()
	c.b.index.add(sub)
}

// unsubscribe ends a subscription; false: there was none.
func (c *conn) unsubscribe(filter string) bool {
	s := c.session
	s.mu.Lock()
	sub := s.subscriptions[filter]
	delete(s.subscriptions, filter)
	s.mu.Unlock()
	if sub == nil {
		return false
	}
	c.b.index.remove(sub)
	return true
}
