package nodes

import (
	"context"
	"fmt"
	"strings"
	"time"

	"millrace/pipeline/node"
	"millrace/pipeline/value"
)

type fetchNode struct {
	r         Reader
	workspace string
	topic     tree
	from, to  tree
	mode      string
	limit     int
}

// fetchData reads values.
func fetchData(r Reader) node.Type {
	return node.Type{
		Spec: node.Spec{
			Type: "system.uns.fetchdata", Title: "Fetch data", Category: "system", Blocking: true,
			Doc: "Reads stored values of one topic and hands them on: the last one as `{topic, value, timestamp, quality}`, a list of such values of a stretch of time, oldest first, or what the stretch amounts to as `{count, avg, min, max, sum, first, last}`. It sees every value that was stored before the node began.",
			Fields: []node.Field{
				{Name: "topic", Kind: node.TopicField, Title: "Topic", Required: true, Template: true, Doc: "The path within the workspace."},
				{Name: "mode", Kind: node.SelectField, Title: "What", Options: []string{"latest", "raw", "summary"}, Default: `"latest"`, Doc: "The last value, the values of a stretch of time, or what they amount to."},
				{Name: "from", Kind: node.TextField, Title: "From", Template: true, Default: `"-1h"`, Doc: "First moment: a distance from now such as -15m or -7d, RFC 3339, or a number of s, ms, µs or ns since 1970."},
				{Name: "to", Kind: node.TextField, Title: "To", Template: true, Default: `"now"`, Doc: "End, not included; as from, or now."},
				{Name: "limit", Kind: node.NumberField, Title: "At most", Min: "1", Max: "10000", Default: "1000", Doc: "Of raw values: the oldest so many."},
			},
			Example: node.Example{Title: "The last value of another topic", Params: `{"topic":"line1/recipe"}`, Input: `1`, Out: `{"topic":"line1/recipe","value":42.50,"timestamp":"2026-12-01T10:00:00.000Z","quality":"good"}`},
		},
		New: func(c *node.Config) (node.Node, []node.Fault) {
			n := &fetchNode{r: r, workspace: c.Workspace, mode: c.Params.Get("mode").Text()}
			limit, _ := c.Params.Get("limit").Int()
			n.limit = int(limit)
			var faults []node.Fault
			for field, to := range map[string]*tree{"topic": &n.topic, "from": &n.from, "to": &n.to} {
				t, more := newTree(c.Scripts, c.Params.Get(field), field)
				*to = t
				faults = append(faults, more...)
			}
			return n, faults
		},
	}
}

// Run reads.
func (n *fetchNode) Run(ctx context.Context, c *node.Call) node.Result {
	topic, err := n.topic.eval(ctx, c.Scope)
	if err != nil {
		return fail(err)
	}
	if topic.Text() == "" || strings.ContainsAny(topic.Text(), "+#") {
		return node.Result{Err: &node.Failure{Message: fmt.Sprintf("the topic is %s, wanted is the path of one topic", shown(topic)), Permanent: true}}
	}
	if n.mode == "latest" {
		list, err := n.r.Latest(n.workspace, topic.Text(), 1)
		if err != nil {
			return node.Result{Err: err}
		}
		if len(list) == 0 {
			return node.Result{Out: value.Null()}
		}
		return node.Result{Out: list[0].object()}
	}
	from, err := n.moment(ctx, c, "from", &n.from)
	if err != nil {
		return fail(err)
	}
	to, err := n.moment(ctx, c, "to", &n.to)
	if err != nil {
		return fail(err)
	}
	if n.mode == "summary" {
		s, err := n.r.Summary(ctx, n.workspace, topic.Text(), from, to)
		if err != nil {
			return node.Result{Err: err}
		}
		return node.Result{Out: value.Object(value.Field{Name: "count", Value: value.Int(int64(s.Count))}, value.Field{Name: "avg", Value: s.Avg}, value.Field{Name: "min", Value: s.Min}, value.Field{Name: "max", Value: s.Max},
			value.Field{Name: "sum", Value: s.Sum}, value.Field{Name: "first", Value: s.First}, value.Field{Name: "last", Value: s.Last})}
	}
	list, err := n.r.Raw(ctx, n.workspace, topic.Text(), from, to, n.limit)
	if err != nil {
		return node.Result{Err: err}
	}
	return node.Result{Out: readings(list)}
}

func readings(list []Reading) value.Value {
	items := make([]value.Value, len(list))
	for i := range list {
		items[i] = list[i].object()
	}
	return value.List(items...)
}

// moment reads a time, or a distance from the run's clock.
func (n *fetchNode) moment(ctx context.Context, c *node.Call, field string, t *tree) (time.Time, error) {
	v, err := t.eval(ctx, c.Scope)
	if err != nil {
		return time.Time{}, err
	}
	text := v.Text()
	if text == "now" {
		return c.Now, nil
	}
	if strings.HasPrefix(text, "-") {
		if d, err := node.Duration(text[1:]); err == nil {
			return c.Now.Add(-d), nil
		}
	}
	ns, _, err := instant(v)
	if err != nil {
		return time.Time{}, &node.Failure{Message: fmt.Sprintf("%s is %s: wanted is now, a distance such as -15m, RFC 3339, or a number of s, ms, µs or ns since 1970", field, shown(v)), Permanent: true}
	}
	return time.Unix(0, ns), nil
}
