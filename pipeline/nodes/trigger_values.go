package nodes

import (
	"context"
	"time"

	"millrace/pipeline/node"
	"millrace/pipeline/value"
)

// trigger is a node that starts runs; what it hands on is made by the engine.
type trigger struct{ start node.Start }

func (t *trigger) Run(context.Context, *node.Call) node.Result { return node.Result{} }
func (t *trigger) Start() node.Start                           { return t.start }

// valuesTrigger starts a run for stored values.
func valuesTrigger() node.Type {
	return node.Type{
		Spec: node.Spec{
			Type: "trigger.uns.subscribe", Title: "UNS value", Category: "trigger", Trigger: true,
			Doc: "Starts a run for every stored value of the topics. The run sees it as `$trigger {topic, value, timestamp, quality}`.\n\nA value is held against `on`, `deadband`, `filter`, `sample`, `throttle` and `debounce` before it waits for a run, so what is held back costs nothing. With `on: change`, the first value of a topic after a start of the box or a deploy counts as a change.",
			Fields: []node.Field{
				{Name: "topics", Kind: node.ListField, Title: "Topics", Required: true, Doc: "Filters of topics; + stands for one level, # for all below.", Of: &node.Field{Kind: node.FilterField}},
				{Name: "on", Kind: node.SelectField, Title: "On", Default: `"every"`, Options: []string{"every", "change", "quality"}, Doc: "every value, only one that differs from the last of its topic, or only a change of quality."},
				{Name: "deadband", Kind: node.NumberField, Title: "Deadband", Min: "0", Doc: "With on: change, numbers that are no further than this from the last one that started a run are held back."},
				{Name: "filter", Kind: node.ExpressionField, Title: "Filter", Doc: "Only values for which this is true, for example `$trigger.value > 40`. It sees $trigger only."},
				{Name: "debounce", Kind: node.DurationField, Title: "Debounce", Max: "1h", Doc: "Waits until the topic has been quiet for so long and takes the last value."},
				{Name: "throttle", Kind: node.DurationField, Title: "Throttle", Max: "1d", Doc: "At most one run in so long for each topic: the first value counts."},
				{Name: "sample", Kind: node.NumberField, Title: "Sample", Min: "1", Max: "1000000", Doc: "Only every nth value of each topic."},
				{Name: "maxAge", Kind: node.DurationField, Title: "Max. age", Max: "366d", Doc: "Values that were received longer ago start nothing, for example after the box was off."},
			},
			Outputs: []node.Port{{Name: "out", Doc: "The value as `$trigger`."}},
			Example: node.Example{Title: "Every temperature above 40", Params: `{"topics":["line1/+/temp"],"filter":"$trigger.value > 40"}`},
		},
		New: newValuesTrigger,
	}
}

func newValuesTrigger(c *node.Config) (node.Node, []node.Fault) {
	p, v := c.Params, &node.Values{}
	var faults []node.Fault
	for i := range p.Get("topics").Len() {
		v.Filters = append(v.Filters, p.Get("topics").Index(i).Text())
	}
	v.On = p.Get("on").Text()
	v.Deadband, _ = p.Get("deadband").Float()
	if v.Deadband > 0 && v.On != "change" {
		faults = append(faults, faultOf("deadband", node.CodeUnknown, "a deadband is of use with on: change only"))
	}
	if text := p.Get("filter").Text(); text != "" {
		x, err := c.Scripts.Expression(text)
		if err != nil {
			faults = append(faults, scriptFault("filter", err))
		}
		v.Filter = x
	}
	v.Debounce, v.Throttle, v.MaxAge = durationOf(p, "debounce"), durationOf(p, "throttle"), durationOf(p, "maxAge")
	if v.Debounce > 0 && v.Throttle > 0 {
		faults = append(faults, faultOf("throttle", node.CodeUnknown, "debounce and throttle exclude each other"))
	}
	n, ok := p.Get("sample").Int()
	if !ok && !p.Get("sample").IsMissing() {
		faults = append(faults, faultOf("sample", node.CodeKind, "wanted a whole number"))
	}
	v.Sample = int(n)
	return &trigger{node.Start{Values: v}}, faults
}

// durationOf is a parameter that Check has found to be a duration or not there.
func durationOf(params value.Value, name string) time.Duration {
	d, err := node.Duration(params.Get(name).Text())
	if err != nil {
		return 0
	}
	return d
}
