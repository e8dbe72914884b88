package broker

import (
	"slices"
	"strings"

	"millrace/uns"
)

// Values are the last values of the stored topics, which new subscribers get as retained messages. *uns.Catalog is one.
type Values interface {
	// Match calls fn in path order for the topics of a workspace whose path matches the filter and is behind after, until
	// fn returns false.
	Match(workspace, filter, after string, fn func(*uns.Topic) bool)
	// Retained is the newest sample of a topic; false when there is none or it was cleared.
	Retained(t *uns.Topic) (uns.Sample, bool)
}

// replay is what a session is owed of retained messages: filters and how far each has come, never the messages. Those are
// drawn as they are sent, so that a reader of 50,000 topics costs a portion of names, gets values as they are then, and
// loses none to the bound of its queue. mu of the session guards it.
type replay struct {
	jobs    []*replayJob
	by      map[string]*replayJob // those of jobs that are not over, by filter
	portion []replayTopic         // of jobs[0], to be sent next
	drawing bool                  // jobs[0] is being drawn from
}

// replayJob is one subscription's retained messages: ordinary topics first, then those of the workspace.
type replayJob struct {
	sub    *subscription
	ids    []byte
	path   string // filter over the paths of the workspace, "" = none or done
	plain  bool   // ordinary topics are not done
	after  string // the last topic that was drawn
	filter string
	since  int64  // Unix ns of the subscription
	over   bool   // unsubscribed, or owed anew
	lost   uint64 // what the session had lost by then
}

// replayTopic is a topic whose retained message is to be sent.
type replayTopic struct {
	job   *replayJob
	value *uns.Topic // nil: an ordinary topic
	topic string
	text  string // of $SYS
}

// replayPortion is how many topics are drawn at once.
const replayPortion = 256

func (r *replay) pending() bool { return len(r.portion) > 0 || len(r.by) > 0 }

// add owes the messages of a job.
func (r *replay) add(j *replayJob) {
	if r.by == nil {
		r.by = map[string]*replayJob{}
	}
	r.by[j.filter] = j
	r.jobs = append(r.jobs, j)
}

// forget ends the job of a filter. It stays in the list until it is first or half of the list is over: looking for it there
// would make a SUBSCRIBE of n filters cost n times n.
func (r *replay) forget(filter string) {
	if j := r.by[filter]; j != nil {
		j.over = true
		if delete(r.by, filter); 2*len(r.by) < len(r.jobs) {
			r.jobs = slices.DeleteFunc(r.jobs, func(j *replayJob) bool { return j.over })
		}
	}
	if len(r.portion) > 0 && r.portion[0].job.filter == filter {
		r.portion = nil
	}
}

// first is the job to draw from, nil when there is none.
func (r *replay) first() *replayJob {
	for len(r.jobs) > 0 && r.jobs[0].over {
		r.jobs = r.jobs[1:]
	}
	if len(r.jobs) == 0 {
		return nil
	}
	return r.jobs[0]
}

// replayLocked owes the session the retained messages of a subscription, anew if it was owed them, as its retain handling
// says: 0 always, 1 when the filter is new to the session, 2 never [MQTT-3.3.1-9] [MQTT-3.3.1-10] [MQTT-3.3.1-11]; never for
// shared ones.
func (s *session) replayLocked(sub *subscription, known bool) {
	s.replay.forget(sub.filter)
	if sub.handling == 2 || sub.handling == 1 && known || strings.HasPrefix(sub.filter, "$share/") {
		return
	}
	root := s.b.o.Namespace.Root()
	first, rest, _ := strings.Cut(sub.filter, "/")
	j := &replayJob{sub: sub, filter: sub.filter, plain: first != root, since: s.b.now().UnixNano(), lost: s.dropped.total()}
	if s.b.o.Values != nil {
		j.path, _ = pathFilter(first, rest, root, s.principal().Workspace())
	}
	var d delivery
	d.join(sub)
	j.ids = d.ids
	s.replay.add(j)
}

// draw finds the next topics to replay. The flusher calls it before fill; the session is not locked while it looks, so no
// publisher waits for it.
func (s *session) draw(c *conn) {
	s.mu.Lock()
	r := &s.replay
	j := r.first()
	if s.conn != c || s.hold || r.drawing || len(r.portion) > 0 || j == nil {
		s.mu.Unlock()
		return
	}
	r.drawing = true
	at := *j
	s.mu.Unlock()

	list := s.b.drawFrom(&at, j, s.principal().Workspace())

	s.mu.Lock()
	defer s.mu.Unlock()
	r.drawing = false
	if r.by[j.filter] != j {
		return // unsubscribed, or ended, meanwhile
	}
	j.plain, j.path, j.after = at.plain, at.path, at.after
	r.portion = list
	if !j.plain && j.path == "" {
		j.over = true
		delete(r.by, j.filter)
	}
}

// drawFrom moves at on by a portion.
func (b *Broker) drawFrom(at, j *replayJob, workspace string) (list []replayTopic) {
	if at.plain && systemFilter(at.filter) {
		for _, v := range b.system.now() {
			if uns.Match(at.filter, v.topic) {
				list = append(list, replayTopic{job: j, topic: v.topic, text: v.text})
			}
		}
		at.plain = false
		return list
	}
	if at.plain {
		topics, last := b.retained.list(at.filter, at.after, replayPortion)
		for _, t := range topics {
			list = append(list, replayTopic{job: j, topic: t})
		}
		at.after, at.plain = last, last != ""
		return list
	}
	full := true
	n := 0
	b.o.Values.Match(workspace, at.path, at.after, func(t *uns.Topic) bool {
		if n == replayPortion {
			full = false
			return false
		}
		n++
		at.after = t.Path
		if !hidden(at.filter, t.Full) {
			list = append(list, replayTopic{job: j, value: t, topic: t.Full})
		}
		return true
	})
	if full {
		at.path = ""
	}
	return list
}

// hidden says that a topic has a level that starts with _ and the filter does not name it; see walk.
func hidden(filter, topic string) bool {
	if !strings.Contains(topic, "/_") {
		return false
	}
	last := lastUnderscore(topic)
	levels := strings.Split(topic, "/")
	i := 0
	for f := range strings.SplitSeq(filter, "/") {
		if f == "#" {
			return i <= last
		}
		if f == "+" && strings.HasPrefix(levels[i], "_") {
			return true
		}
		i++
	}
	return false
}

// fillRetained sends retained messages, paced by the window like any other. done: the queue may follow.
func (s *session) fillRetained(buf []byte, sent, limit int, now int64) (filled []byte, messages int, done, more bool) {
	messages = sent
	r := &s.replay
	for len(r.portion) > 0 {
		if len(buf) >= limit {
			return buf, messages, false, true
		}
		d, ok := s.retainedNow(&r.portion[0], now)
		if !ok {
			r.portion = r.portion[1:]
			continue
		}
		var id uint16
		if d.qos > 0 {
			if len(s.flights) >= s.window {
				return buf, messages, false, false
			}
			id = s.nextID()
		}
		if buf, ok = s.appendMessage(buf, &d, id, now); !ok { // [MQTT-3.1.2-24] [MQTT-3.1.2-25]
			s.drop(dropTooLarge, 1)
		} else {
			if d.qos > 0 {
				s.launch(&d, id)
			}
			messages++
		}
		r.portion = r.portion[1:]
	}
	return buf, messages, len(r.by) == 0, len(r.by) > 0
}

// retainedNow makes the retained message of a topic, under the rules in force now.
func (s *session) retainedNow(t *replayTopic, now int64) (d delivery, ok bool) {
	sub := t.job.sub
	if s.subscriptions[sub.filter] != sub {
		return d, false
	}
	p := s.principal()
	policy := p.Policy()
	if policy == nil {
		return d, false
	}
	d = delivery{qos: sub.qos, retain: true, ids: t.job.ids} // [MQTT-3.3.1-8] [MQTT-3.3.4-3]
	if t.value == nil && systemFilter(t.topic) {
		if !mayReceive(p, policy, &uns.Name{Place: uns.Ordinary}, t.topic) {
			return d, false
		}
		d.message = &message{topic: t.topic, payload: []byte(t.text)}
		return d, true
	}
	if t.value == nil {
		k := s.b.retained.get(t.topic, now)
		if k == nil || !mayReceive(p, policy, &uns.Name{Place: uns.Ordinary}, t.topic) {
			return d, false
		}
		d.message, d.qos = k.message, min(d.qos, k.qos)
		return d, true
	}
	v := t.value
	if !mayReceive(p, policy, &uns.Name{Place: uns.Value, Workspace: v.Workspace, Path: v.Path}, v.Full) {
		return d, false
	}
	sample, ok := s.b.o.Values.Retained(v)
	if !ok || sample.Received >= t.job.since && s.dropped.total() == t.job.lost {
		// The value is younger than the subscription and waits in the queue, behind those before it: sent here it would
		// come twice, and too early.
		return d, false
	}
	d.message, d.qos = &message{topic: v.Full, payload: uns.AppendLive(make([]byte, 0, 96), &sample)}, min(d.qos, byte(s.b.o.LiveQoS))
	return d, true
}
