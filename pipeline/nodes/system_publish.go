package nodes

import (
	"context"
	"fmt"
	"strings"

	"millrace/pipeline/node"
	"millrace/pipeline/value"
)

type publisher struct {
	topic, value, quality tree
	when                  tree
}

var publishFields = []node.Field{
	{Name: "topic", Kind: node.TopicField, Title: "Topic", Required: true, Template: true, Doc: "The path within the workspace."},
	{Name: "value", Kind: node.AnyField, Title: "Value", Required: true, Template: true, Doc: "Any JSON; {{ }} in its texts is filled in. `{{ $json.value }}` alone keeps type and digits."},
	{Name: "quality", Kind: node.TextField, Title: "Quality", Template: true, Doc: "good, uncertain or bad; without it that of the trigger, or good."},
	{Name: "timestamp", Kind: node.TextField, Title: "Timestamp", Template: true, Default: `"trigger"`, Doc: "trigger: the time of the value that started the run; now: the time at which it is stored; or {{ }} that gives RFC 3339 text or a number of s, ms, µs or ns since 1970."},
}

// publish stores a value and publishes it.
func publish() node.Type {
	return node.Type{
		Spec: node.Spec{
			Type: "system.uns.publish", Title: "Publish", Category: "system", Effect: true,
			Doc:    "Stores a value on a topic and publishes it live, just as if a device had sent it. The run goes on when it is stored; a refused value fails the node with the reason. Stored exactly once, also when the run is executed again after a crash. The input is handed on.",
			Fields: publishFields,
			Example: node.Example{Title: "Twin", Params: `{"topic":"{{ $trigger.topic }}/twin","value":"{{ $json.value }}"}`,
				Trigger: `{"topic":"line1/temp","value":21.50,"timestamp":"2026-12-01T10:00:00.000Z","quality":"good"}`, Input: `{"value":21.50}`, Out: `{"value":21.50}`},
		},
		New: func(c *node.Config) (node.Node, []node.Fault) {
			n := &publisher{}
			faults := n.compile(c, c.Params, "")
			return n, faults
		},
	}
}

func (n *publisher) compile(c *node.Config, params value.Value, at string) (faults []node.Fault) {
	for field, to := range map[string]*tree{"topic": &n.topic, "value": &n.value, "quality": &n.quality, "timestamp": &n.when} {
		t, more := newTree(c.Scripts, params.Get(field), join(at, field))
		*to = t
		faults = append(faults, more...)
	}
	if !n.quality.dynamic && !n.quality.constant.IsMissing() && !isQuality(n.quality.constant.Text()) {
		faults = append(faults, faultOf(join(at, "quality"), node.CodeOption, "%q is none of good, uncertain, bad", n.quality.constant.Text()))
	}
	if text := n.when.constant.Text(); !n.when.dynamic && text != "trigger" && text != "now" && !n.when.constant.IsMissing() {
		faults = append(faults, faultOf(join(at, "timestamp"), node.CodeOption, "%q is neither trigger nor now, nor has it {{ }}", text))
	}
	return faults
}

func isQuality(s string) bool { return s == "good" || s == "uncertain" || s == "bad" }

// Run says what to publish; the engine does it.
func (n *publisher) Run(ctx context.Context, c *node.Call) node.Result {
	p, err := n.publication(ctx, c)
	if err != nil {
		return fail(err)
	}
	return node.Result{Publish: []node.Publication{p}}
}

func (n *publisher) publication(ctx context.Context, c *node.Call) (p node.Publication, err error) {
	topic, err := n.topic.eval(ctx, c.Scope)
	if err != nil {
		return p, err
	}
	if p.Topic = topic.Text(); strings.Trim(p.Topic, "/") == "" {
		return p, &node.Failure{Message: fmt.Sprintf("the topic is %s", shown(topic)), Permanent: true}
	}
	if p.Value, err = n.value.eval(ctx, c.Scope); err != nil {
		return p, err
	}
	if p.Value.IsMissing() {
		return p, &node.Failure{Message: "the value is undefined: nothing to publish", Permanent: true}
	}
	quality, err := n.quality.eval(ctx, c.Scope)
	if err != nil {
		return p, err
	}
	switch p.Quality = quality.Text(); {
	case quality.IsMissing() || quality.Kind() == value.NullKind:
		p.Quality = c.Trigger.Quality
	case !isQuality(p.Quality):
		return p, &node.Failure{Message: fmt.Sprintf("the quality is %s, which is none of good, uncertain, bad", shown(quality)), Permanent: true}
	}
	return p, n.stamp(ctx, c, &p)
}

func (n *publisher) stamp(ctx context.Context, c *node.Call, p *node.Publication) error {
	when, err := n.when.eval(ctx, c.Scope)
	if err != nil {
		return err
	}
	switch text := when.Text(); {
	case text == "now":
	case text == "trigger" || when.IsMissing():
		if c.Trigger.Time != 0 {
			p.Time, p.Scale, p.Stamped = c.Trigger.Time, c.Trigger.Scale, true
		}
	default:
		p.Time, p.Scale, err = instant(when)
		p.Stamped = true
	}
	return err
}
