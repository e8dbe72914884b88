package broker

import (
	"strings"

	"millrace/auth"
	"millrace/uns"
)

const (
	maxSubscriptions = 4096 // of one session
	maxFilterLevels  = 128
	maxSessionLevels = 32768 // of all filters of one session together: a level costs up to a kilobyte of the index
)

// refuseFilter decides about a filter of a SUBSCRIBE: 0, or the SUBACK's reason code. A filter of which grants permit a
// part is let through; each delivery is checked again.
func (c *conn) refuseFilter(filter string) (code byte) {
	switch {
	case (filter == "$share" || strings.HasPrefix(filter, "$share/")) && !validShare(filter):
		return codeFilterInvalid
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
	levels := strings.Count(filter, "/") + 1
	if !known && (n+len(c.refusals) >= maxSubscriptions || c.levels+levels > maxSessionLevels) {
		return codeQuota
	}
	_, inner := cutShare(filter)
	if policy := s.principal().Policy(); policy == nil || !mayListen(s.principal(), policy, c.b.o.Namespace.Root(), inner) {
		return codeNotAuthorized
	}
	if !known {
		c.levels += levels
	}
	return 0
}

// filterLevels counts the levels of all filters of the session.
func (s *session) filterLevels() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for filter := range s.subscriptions {
		n += strings.Count(filter, "/") + 1
	}
	return n
}

// mayListen says whether any topic that filter matches could be delivered to p.
func mayListen(p *auth.Principal, policy *auth.Policy, root, filter string) bool {
	if filter[0] == '$' {
		return maySeeSystem(p) && systemFilter(filter)
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

// keep puts subscriptions in force, each in place of an earlier one of the same filter [MQTT-3.8.4-3]. Those of a session
// that outlives its connection are durable first; false: they could not be written, and none is in force.
func (c *conn) keep(subs []*subscription) bool {
	s := c.session
	if s.num != 0 && len(subs) > 0 {
		rows := make([]uns.Row, 0, len(subs))
		for _, sub := range subs {
			rows = append(rows, jsonRow(filterKey(s.num, sub.filter), filterRow{sub.qos, sub.noLocal, sub.retainAsPublished, sub.id}))
		}
		if err := c.store(rows); err != nil {
			c.b.log.Warn("subscriptions could not be kept; the client is told so", "client", s.owner, "mqtt_id", s.id, "error", err)
			return false
		}
	}
	known := make([]bool, len(subs))
	s.mu.Lock()
	for i, sub := range subs {
		if s.subscriptions != nil {
			known[i] = s.subscriptions[sub.filter] != nil
			s.subscriptions[sub.filter] = sub
		}
	}
	s.mu.Unlock()
	for _, sub := range subs {
		c.b.index.add(sub)
	}
	// Now that the index has them: what is published from here on is in the queue, and the replay finds what was before.
	s.mu.Lock()
	for i, sub := range subs {
		s.replayLocked(sub, known[i])
	}
	s.mu.Unlock()
	return true
}

// unsubscribe ends subscriptions and leaves the code of each in refusals. Those of a session that outlives its connection are
// taken back durably first, or a crash would bring them back after the client was told that they are gone; what cannot be is
// in force still.
func (c *conn) unsubscribe(filters []string) {
	s := c.session
	var subs []*subscription
	var rows []uns.Row
	c.refusals = c.refusals[:0]
	taken := make(map[string]struct{}, len(filters))
	s.mu.Lock()
	for _, filter := range filters {
		sub, code := s.subscriptions[filter], byte(codeNoSubscription)
		if _, twice := taken[filter]; sub != nil && !twice {
			taken[filter] = struct{}{}
			subs = append(subs, sub)
			rows = append(rows, uns.Row{Key: filterKey(s.num, filter)})
			code = codeSuccess
		}
		c.refusals = append(c.refusals, code)
	}
	s.mu.Unlock()
	if s.num != 0 && len(rows) > 0 {
		if err := c.store(rows); err != nil {
			c.notUnsubscribed(err)
			return
		}
	}
	s.mu.Lock()
	for _, sub := range subs {
		delete(s.subscriptions, sub.filter)
		s.replay.forget(sub.filter) // [MQTT-3.10.4-2]
	}
	s.mu.Unlock()
	c.b.index.remove(subs...)
}

// notUnsubscribed tells the client so; an UNSUBACK of MQTT 3.1.1 has no word for it, and none is sent.
func (c *conn) notUnsubscribed(err error) {
	c.b.log.Warn("subscriptions could not be taken back; the client is told so", "client", c.session.owner, "mqtt_id", c.session.id, "error", err)
	for i, code := range c.refusals {
		if code == codeSuccess {
			c.refusals[i] = codeUnspecified
		}
	}
	if c.version < 5 {
		c.fail(codeUnspecified)
	}
}

// store makes rows durable while the reader waits, which the watchdog sees.
func (c *conn) store(rows []uns.Row) error {
	c.pending.Store(c.b.now().UnixNano())
	defer c.pending.Store(0)
	return c.b.rows.Append(c.ctx, nil, rows)
}
