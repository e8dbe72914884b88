package nodes

import (
	"context"
	"fmt"
	"strings"

	"millrace/pipeline/node"
	"millrace/pipeline/value"
)

// setter is transform.set.
type setter struct {
	fields []setField
	only   bool
}

type setField struct {
	names []string // a.b sets b within a
	value tree
	as    string
}

// set adds fields.
func set() node.Type {
	return node.Type{
		Spec: node.Spec{
			Type: "transform.set", Title: "Set fields", Category: "transform",
			Doc: "Sets fields of the input and hands the result on. Fields are set in their order; each value sees the input as it came in. An input that is no object counts as an empty one.",
			Fields: []node.Field{
				{Name: "fields", Kind: node.ListField, Title: "Fields", Required: true, Doc: "What to set.", Of: &node.Field{Kind: node.GroupField, Fields: []node.Field{
					{Name: "name", Kind: node.TextField, Title: "Name", Required: true, Doc: "The field; a.b sets b within a."},
					{Name: "value", Kind: node.AnyField, Title: "Value", Required: true, Template: true, Doc: "Any JSON; {{ }} in its texts is filled in. A text that is one {{ }} and nothing else keeps the type."},
					{Name: "type", Kind: node.SelectField, Title: "Type", Options: []string{"any", "number", "text", "boolean", "json"}, Default: `"any"`, Doc: "Makes the value a number, a text, a boolean, or reads a text as JSON; the node fails when that cannot be."},
				}}},
				{Name: "keepOnlySet", Kind: node.BooleanField, Title: "Keep only these", Default: "false", Doc: "Leaves out every other field of the input."},
			},
			Example: node.Example{Title: "A unit beside the value", Params: `{"fields":[{"name":"fahrenheit","value":"{{ $json.value * 1.8 + 32 }}"},{"name":"unit.from","value":"C"}]}`,
				Input: `{"value":20}`, Out: `{"value":20,"fahrenheit":68,"unit":{"from":"C"}}`},
		},
		New: newSet,
	}
}

func newSet(c *node.Config) (node.Node, []node.Fault) {
	s := &setter{only: c.Params.Get("keepOnlySet").Bool()}
	var faults []node.Fault
	list := c.Params.Get("fields")
	for i := range list.Len() {
		f := list.Index(i)
		names := strings.Split(f.Get("name").Text(), ".")
		for _, name := range names {
			if name == "" {
				faults = append(faults, faultOf(index("fields", i)+".name", node.CodeKind, "a name between two dots is missing"))
			}
		}
		t, more := newTree(c.Scripts, f.Get("value"), index("fields", i)+".value")
		faults = append(faults, more...)
		s.fields = append(s.fields, setField{names, t, f.Get("type").Text()})
	}
	return s, faults
}

// Run sets the fields.
func (s *setter) Run(ctx context.Context, c *node.Call) node.Result {
	out := c.Input
	if s.only || out.Kind() != value.ObjectKind {
		out = value.Object()
	}
	for i := range s.fields {
		f := &s.fields[i]
		v, err := f.value.eval(ctx, c.Scope)
		if err != nil {
			return fail(err)
		}
		if v, err = convert(v, f.as); err != nil {
			return node.Result{Err: &node.Failure{Message: fmt.Sprintf("%s: %v", strings.Join(f.names, "."), err), Permanent: true}}
		}
		out = within(out, f.names, v)
	}
	return node.Result{Out: out}
}

// within sets a field that may lie in objects of the object.
func within(v value.Value, names []string, x value.Value) value.Value {
	if len(names) > 1 {
		x = within(v.Get(names[0]), names[1:], x)
	}
	if x.IsMissing() {
		return v.Without(names[0])
	}
	return v.With(names[0], x)
}

// convert makes v of the kind that as names.
func convert(v value.Value, as string) (value.Value, error) {
	switch as {
	case "number":
		switch v.Kind() {
		case value.NumberKind:
			return v, nil
		case value.BoolKind:
			f, _ := v.Float()
			return value.Int(int64(f)), nil
		case value.TextKind:
			if n, ok := value.Number(strings.TrimSpace(v.Text())); ok {
				return n, nil
			}
		}
		return v, fmt.Errorf("%s is no number", shown(v))
	case "text":
		return value.Text(v.String()), nil
	case "boolean":
		switch s := strings.ToLower(v.String()); {
		case v.Kind() == value.BoolKind:
			return v, nil
		case s == "true" || s == "1":
			return value.Bool(true), nil
		case s == "false" || s == "0":
			return value.Bool(false), nil
		}
		return v, fmt.Errorf("%s is neither true nor false", shown(v))
	case "json":
		if v.Kind() == value.TextKind {
			x, err := value.Parse([]byte(v.Text()))
			if err != nil {
				return v, fmt.Errorf("no JSON: %w", err)
			}
			return x, nil
		}
	}
	return v, nil
}

// shown is a value for an error text.
func shown(v value.Value) string {
	if v.IsMissing() {
		return "nothing"
	}
	text := string(v.AppendJSON(nil))
	if len(text) > 60 {
		return text[:60] + "…"
	}
	return text
}
