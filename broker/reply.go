package broker

import (
	"millrace/auth"
	"millrace/uns"
)

// replyTopic is the response topic a connection used last. A device uses one for all its messages.
type replyTopic struct {
	topic     string
	name      uns.Name
	policy    *auth.Policy // the rules that permitted was found under
	permitted bool
	match     *match
}

// replyQoS is offered to subscribers of verdicts.
const replyQoS = 1

// roomForConnack is what a CONNACK takes beside the response information, at most.
const roomForConnack = 128

// responseInformation is below which topic the client always may read what it is answered; "" when that could make the
// CONNACK larger than what the client takes.
func (c *conn) responseInformation() string {
	topic := c.b.o.Namespace.Verdicts(c.principal.Workspace(), c.principal.ID())
	if c.maxPacket > 0 && int(c.maxPacket) < roomForConnack+len(topic) {
		return ""
	}
	return topic
}

// reply publishes the verdict of a message on its response topic, when the client could read it there.
func (c *conn) reply(it *item) {
	r := &c.replies
	if r.topic != string(it.response) {
		*r = replyTopic{topic: string(it.response)}
		r.name = c.b.o.Namespace.Parse(r.topic, c.principal.ID())
	}
	if policy := c.principal.Policy(); r.policy != policy {
		r.policy = policy
		inbox := r.name.Place == uns.Value && r.name.Client != "" // written by devices only
		r.permitted = policy != nil && !inbox && mayReceive(c.principal, policy, &r.name, r.topic)
	}
	if !r.permitted {
		c.session.drop(dropVerdictNotPermitted, 1)
		return
	}
	if r.match == nil || r.match.generation != c.b.index.generation.Load() {
		r.match = c.b.index.match(r.topic, &r.name)
	}
	var msg *message
	for _, to := range r.match.to() {
		policy, ok := to.permitted(r.match)
		if msg == nil && ok {
			msg = c.verdictMessage(it)
		}
		to.owe(msg, policy, ok, replyQoS, false, nil, 0, false)
	}
}

func (c *conn) verdictMessage(it *item) *message {
	m := &c.batch.Messages[it.at]
	var s *uns.Sample
	if m.Verdict.Reason == uns.Stored {
		s = &c.batch.Samples[m.At]
	}
	path := it.entry.name.Path
	if path == "" {
		path = it.entry.topic
	}
	msg := &message{topic: c.replies.topic, payload: uns.AppendVerdict(nil, path, m.Verdict, s)}
	if it.correlation != nil {
		msg.properties = appendText([]byte{propCorrelation}, it.correlation)
	}
	return msg
}
