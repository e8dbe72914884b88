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
		r := &receiver{session: sub.session, subs: []*subscription{sub}, group: sub.filter}
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
		if waiting == nil && r.session.num != 0 && r.qos > 0 {
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

// shared takes what a session that ends was to get for its groups, has not acknowledged, and has in memory alone. A QoS 2
// message that was sent goes to nobody else [MQTT-4.8.2-5]. What has a row is moved from it. The lock is held.
func (s *session) shared() (list []delivery) {
	for i := range s.flights {
		if f := &s.flights[i]; f.group != "" && f.qos == 1 && f.n == 0 {
			list = append(list, f.delivery)
		}
	}
	for i := range s.queue.n {
		if d := s.queue.at(i); d.group != "" && d.n == 0 {
			list = append(list, *d)
		}
	}
	return list
}

// moved is a message that goes to another member of its group, once its row is there.
type moved struct {
	to *session
	d  delivery
}

// moveTo finds the member of a message's group that gets it now that another has left, and adds its row where that member's
// session outlives its connection; ok is false when nobody may have it.
func (b *Broker) moveTo(d *delivery, rows []uns.Row) (to moved, _ []uns.Row, ok bool) {
	r, m := b.memberFor(d)
	if r == nil {
		return to, rows, false
	}
	policy, ok := r.permitted(m)
	if !ok {
		return to, rows, false
	}
	next, ok := r.delivery(d.message, policy, d.qos, d.retain, nil)
	if !ok {
		return to, rows, false
	}
	if r.session.num != 0 && next.qos > 0 {
		next.n = r.session.lastN.Add(1)
		value := appendQueued(nil, &next, next.topic, next.properties, next.expires)
		rows = append(rows, uns.Row{Key: queuedKey(r.session.num, next.n), Value: append(value, next.payload...)})
	}
	return moved{r.session, next}, rows, true
}

func (b *Broker) memberFor(d *delivery) (*receiver, *match) {
	x := b.index.group(d.group)
	if x == nil {
		return nil, nil
	}
	m := &match{topic: d.topic, name: b.o.Namespace.Parse(d.topic, "")}
	return x.next(m), m
}

// group finds a shared subscription by its filter, nil when it has no member.
func (x *index) group(filter string) *sharing {
	share, inner := cutShare(filter)
	x.mu.RLock()
	defer x.mu.RUnlock()
	n := &x.root
	for level := range strings.SplitSeq(inner, "/") {
		if n = n.child(level); n == nil {
			return nil
		}
	}
	if g := n.groups[share]; g != nil {
		return g.receivers()
	}
	return nil
}
