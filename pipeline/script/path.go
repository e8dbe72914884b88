package script

import (
	"strconv"

	"github.com/dop251/goja/ast"

	"millrace/pipeline/value"
)

// path is a name and the members looked up from it: $json.a["b"][0]. It needs no machine and keeps the digits of what it finds.
type path struct {
	root  string
	names []string
}

// pathOf is nil when the expression is more than a path.
func pathOf(x ast.Expression) *path {
	switch x := x.(type) {
	case *ast.Identifier:
		switch x.Name {
		case "$trigger", "$json", "$input", "$node", "$execution", "$vars", "$item", "$index":
			return &path{root: x.Name.String()}
		}
	case *ast.DotExpression:
		return pathOf(x.Left).and(x.Identifier.Name.String())
	case *ast.BracketExpression:
		switch member := x.Member.(type) {
		case *ast.StringLiteral:
			return pathOf(x.Left).and(member.Value.String())
		case *ast.NumberLiteral:
			if i, ok := member.Value.(int64); ok {
				return pathOf(x.Left).and(strconv.FormatInt(i, 10))
			}
		}
	}
	return nil
}

func (p *path) and(name string) *path {
	if p == nil {
		return nil
	}
	p.names = append(p.names, name)
	return p
}

// find is false where JavaScript does more than look up a field: it throws, or it knows members such as length.
func (p *path) find(s *Scope) (v value.Value, ok bool) {
	names := p.names
	switch p.root {
	case "$trigger":
		v = s.Trigger
	case "$json":
		v = s.json()
	case "$execution":
		v = s.Execution
	case "$vars":
		v = s.Vars
	case "$item":
		v = s.Item
	case "$index":
		v = s.Index
	case "$input":
		if len(names) == 0 {
			return v, false
		}
		i, err := strconv.Atoi(names[0])
		if err != nil || i < 0 || i >= len(s.Input) {
			return v, false
		}
		v, names = s.Input[i], names[1:]
	case "$node":
		if len(names) == 0 || s.Nodes == nil {
			return v, false
		}
		v, names = s.Nodes(names[0]), names[1:]
	}
	for _, name := range names {
		if v = v.Path(name); v.IsMissing() {
			return v, false
		}
	}
	return v, true
}
