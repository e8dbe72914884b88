package broker

import (
	"cmp"
	"slices"
	"strings"
	"sync/atomic"

	"millrace/uns"
)

// Shared subscriptions: `$share/name/filter`. Those who subscribe to the same name and filter are a group, of which each
// message goes to one [MQTT-4.8.2-3].

// group is one name and filter. It is part of the index.
type group struct {
	members map[*session]*subscription
	turn    atomic.Uint32
}

// cutShare splits the filter of a subscription; name is "" when it is not shared.
func cutShare(filter string) (name, inner string) {
	if rest, ok := strings.CutPrefix(filter, "$share/"); ok {
		name, inner, _ = strings.Cut(rest, "/")
		return name, inner
	}
	return "", filter
}

// validShare says whether a filter that begins with $share is one [MQTT-4.8.2-1] [MQTT-4.8.2-2].
func validShare(filter string) bool {
	name, inner := cutShare(filter)
	return name != "" && !strings.ContainsAny(name, "+#") && uns.ValidFilter(inner) && uns.ValidFilter(filter)
}

// sharing is a group that listens to one topic: one of its members is a receiver of each message.
type sharing struct {
	group   *group
	members []*receiver
}

func (g *group) receivers() *sharing {
	x := &sharing{group: g}
	for _, sub := range g.members {
		r := &receiver{session: sub.session, subs: []*subscription{sub}, group: g}
		r.seal()
		x.members = append(x.members, r)
	}
	slices.SortFunc(x.members, func(a, b *receiver) int { return cmp.Compare(a.session.id, b.session.id) })
	return x
}

// to is who gets the next message: every receiver, and of each group the next member in turn that is connected and may have
// it; where none is connected, one that waits for it. Without groups nothing is made.
func (m *match) to() []*receiver {
	if len(m.groups) == 0 {
		return m.receivers
	}
	list := m.receivers[:len(m.receivers):len(m.receivers)]
	for _, x := range m.groups {
		if r := x.next(m); r != nil {
			list = append(list, r)
		}
	}
	return list
}

func (x *sharing) next(m *match) (waiting *receiver) {
	n := uint32(len(x.members))
	first := x.group.turn.Add(1)
	for i := range n {
		r := x.members[(first+i)%n]
		if _, ok := r.permitted(m); !ok {
			continue
		}
		if r.session.connected() {
			return r
		}
		if waiting == nil && r.session.num != 0 {
			waiting = r
		}
	}
	return waiting
}

// connected says whether the session has a connection now.
func (s *session) connected() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conn != nil
}

// shared takes what a session that ends was to get for its groups and has not acknowledged. A QoS 2 message that was sent
// goes to nobody else [MQTT-4.8.2-5]; neither does one that its row alone has. The lock is held.
func (s *session) shared() (list []delivery) {
	for i := range s.flights {
		if f := &s.flights[i]; f.group != nil && f.qos == 1 && f.message != nil {
			list = append(list, f.delivery)
		}
	}
	for i := range s.queue.n {
		if d := s.queue.at(i); d.group != nil && d.message != nil && !d.lost {
			list = append(list, *d)
		}
	}
	return list
}

// passOn gives what a member that left did not acknowledge to another of its group.
func (b *Broker) passOn(list []delivery) {
	for _, d := range list {
		r, m := b.memberFor(&d)
		if r == nil {
			continue
		}
		if policy, ok := r.permitted(m); ok {
			if next, ok := r.delivery(d.message, policy, d.qos, d.retain, nil); ok {
				r.session.enqueue(next)
			}
		}
	}
}

func (b *Broker) memberFor(d *delivery) (*receiver, *match) {
	b.index.mu.RLock()
	x := d.group.receivers()
	b.index.mu.RUnlock()
	if len(x.members) == 0 {
		return nil, nil
	}
	m := &match{topic: d.topic, name: b.o.Namespace.Parse(d.topic, "")}
	return x.next(m), m
}
