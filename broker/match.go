package broker

import (
	"slices"
	"strings"
	"sync/atomic"

	"millrace/auth"
	"millrace/uns"
)

// match is who listens to one topic at one generation of the index. Shared by all publishers of the topic.
type match struct {
	generation uint64
	name       uns.Name
	topic      string
	receivers  []*receiver
	groups     []*sharing
	durable    bool // one of them has a session that outlives its connection and asks for QoS 1 or more
}

// receiver is one session that listens to the topic, by one filter or several that overlap.
type receiver struct {
	session *session
	subs    []*subscription
	qos     byte   // the highest of subs [MQTT-3.3.4-2]
	ids     []byte // all their identifiers as properties [MQTT-3.3.4-3]
	retain  bool   // one of them asks for retain as published
	noLocal bool   // one of them asks for none of its own: look at each
	group   string // it is a member of this shared subscription
	grant   atomic.Pointer[grantCheck]
}

// grantCheck remembers what a policy said.
type grantCheck struct {
	policy *auth.Policy
	ok     bool
}

// seal works out what all deliveries by this match have in common.
func (r *receiver) seal() {
	slices.SortFunc(r.subs, func(a, b *subscription) int { return a.id - b.id })
	var own delivery
	for _, s := range r.subs {
		own.join(s)
		r.noLocal = r.noLocal || s.noLocal
		r.retain = r.retain || s.retainAsPublished
	}
	r.qos, r.ids = own.qos, own.ids
}

// join widens a delivery by one subscription.
func (d *delivery) join(s *subscription) {
	d.qos = max(d.qos, s.qos)
	if s.id > 0 {
		d.ids = appendVarint(append(d.ids, propSubscriptionID), s.id)
	}
}

// permitted says whether the receiver may have messages on the topic of m, under the rules in force now.
func (r *receiver) permitted(m *match) (policy *auth.Policy, ok bool) {
	p := r.session.principal()
	if policy = p.Policy(); policy == nil {
		return nil, false
	}
	if g := r.grant.Load(); g != nil && g.policy == policy {
		return policy, g.ok
	}
	ok = mayReceive(p, policy, &m.name, m.topic)
	r.grant.Store(&grantCheck{policy: policy, ok: ok})
	return policy, ok
}

// mayReceive is the one rule for everything that is delivered.
func mayReceive(p *auth.Principal, policy *auth.Policy, n *uns.Name, topic string) bool {
	switch n.Place {
	case uns.Ordinary:
		if topic[0] == '$' {
			return maySeeSystem(p) && strings.HasPrefix(topic, systemRoot)
		}
		return policy.MayReceive(auth.ScopeMQTT, topic)
	case uns.Value:
		return n.Workspace == p.Workspace() && policy.MayReceive(auth.ScopeUNS, n.Path)
	case uns.VerdictTopic:
		return n.Workspace == p.Workspace() && n.Client == p.ID()
	}
	return false
}

// delivery is how the receiver gets one message, if at all. origin is the session that published it, nil for the box.
func (r *receiver) delivery(msg *message, policy *auth.Policy, qos byte, retain bool, origin *session) (d delivery, ok bool) {
	if !r.noLocal || origin != r.session { // [MQTT-3.8.3-3]
		return delivery{message: msg, policy: policy, qos: min(qos, r.qos), retain: retain && r.retain, ids: r.ids, group: r.group}, true
	}
	d = delivery{message: msg, policy: policy}
	for _, s := range r.subs {
		if s.noLocal {
			continue
		}
		ok = true
		d.join(s)
		d.retain = d.retain || retain && s.retainAsPublished
	}
	d.qos = min(qos, d.qos)
	return d, ok
}
