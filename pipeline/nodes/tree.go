package nodes

import (
	"context"
	"errors"
	"strings"

	"millrace/pipeline/node"
	"millrace/pipeline/script"
	"millrace/pipeline/value"
)

// tree is a JSON value in whose texts {{ }} may stand.
type tree struct {
	constant value.Value
	template *script.Template
	items    []tree
	names    []string // of an object, else nil
	object   bool
	dynamic  bool
}

// newTree compiles the texts of v. at is its path, for faults.
func newTree(e *script.Engine, v value.Value, at string) (t tree, faults []node.Fault) {
	t.constant = v
	switch v.Kind() {
	case value.TextKind:
		if !strings.Contains(v.Text(), "{{") {
			return t, nil
		}
		x, err := e.Template(v.Text())
		if err != nil {
			return t, []node.Fault{scriptFault(at, err)}
		}
		t.template, t.dynamic = x, true
	case value.ListKind, value.ObjectKind:
		t.object = v.Kind() == value.ObjectKind
		for i := range v.Len() {
			name, item := "", value.Value{}
			if t.object {
				f := v.Field(i)
				name, item = join(at, f.Name), f.Value
				t.names = append(t.names, f.Name)
			} else {
				name, item = index(at, i), v.Index(i)
			}
			child, more := newTree(e, item, name)
			t.items = append(t.items, child)
			t.dynamic = t.dynamic || child.dynamic
			faults = append(faults, more...)
		}
		if !t.dynamic {
			t.items, t.names = nil, nil
		}
	}
	return t, faults
}

// eval fills the placeholders in. A field whose placeholder gives nothing is left out.
func (t *tree) eval(ctx context.Context, s *script.Scope) (value.Value, error) {
	switch {
	case !t.dynamic:
		return t.constant, nil
	case t.template != nil:
		return t.template.Eval(ctx, s)
	}
	if !t.object {
		items := make([]value.Value, len(t.items))
		for i := range t.items {
			var err error
			if items[i], err = t.items[i].eval(ctx, s); err != nil {
				return value.Value{}, err
			}
		}
		return value.List(items...), nil
	}
	fields := make([]value.Field, 0, len(t.items))
	for i := range t.items {
		v, err := t.items[i].eval(ctx, s)
		if err != nil {
			return value.Value{}, err
		}
		if !v.IsMissing() {
			fields = append(fields, value.Field{Name: t.names[i], Value: v})
		}
	}
	return value.Object(fields...), nil
}

// fail words an error of user's code.
func fail(err error) node.Result {
	var e *script.Error
	if errors.As(err, &e) {
		return node.Result{Err: &node.Failure{Message: e.Message, Line: e.Line, Column: e.Column, Err: err}}
	}
	return node.Result{Err: err}
}
