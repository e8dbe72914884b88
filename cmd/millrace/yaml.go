package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// readYAML reads a file into values by path, with the line of each. A key that stands twice is a fault beside
// the values; what is not YAML leaves no values.
func readYAML(file string) (values map[string]any, lines map[string]int, faults configFaults) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, configFaults{{File: file, Message: fmt.Sprintf("cannot be read: %v; name another with --config", plain(err))}}
	}
	values, lines = map[string]any{}, map[string]int{}
	bad := func(err error) (map[string]any, map[string]int, configFaults) {
		return nil, nil, configFaults{yamlFault(file, err)}
	}
	tree, err := parser.ParseBytes(text, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return bad(err)
	}
	documents := 0
	for _, d := range tree.Docs {
		switch d.Body.(type) {
		case *ast.MappingNode, *ast.MappingValueNode:
			if documents++; documents > 1 {
				return nil, nil, configFaults{{File: file, Line: d.Body.GetToken().Position.Line, Message: "a second document; write all keys into one"}}
			}
		case nil, *ast.NullNode, *ast.CommentGroupNode:
		default:
			return nil, nil, configFaults{{File: file, Line: d.Body.GetToken().Position.Line, Message: "the file must be a mapping of keys"}}
		}
	}
	var whole map[string]any
	if err := yaml.UnmarshalWithOptions(text, &whole, yaml.AllowDuplicateMapKey()); err != nil {
		return bad(err)
	}
	var walk func(n ast.Node, prefix string) error
	pair := func(p *ast.MappingValueNode, prefix string) error {
		path := prefix + p.Key.GetToken().Value
		line := p.Key.GetToken().Position.Line
		if first, twice := lines[path]; twice {
			faults = append(faults, configFault{File: file, Line: line, Message: fmt.Sprintf("%s: is there twice, first in line %d; keep one", path, first)})
			return nil
		}
		lines[path] = line
		if m, ok := p.Value.(*ast.MappingNode); ok && len(m.Values) == 0 {
			values[path] = map[string]any{}
		}
		switch p.Value.(type) {
		case *ast.MappingNode, *ast.MappingValueNode:
			return walk(p.Value, path+".")
		case *ast.NullNode:
			return nil // a section that is there but empty sets nothing
		}
		var v any
		if err := yaml.NodeToValue(p.Value, &v); err != nil {
			return err
		}
		values[path] = v
		return nil
	}
	walk = func(n ast.Node, prefix string) error {
		switch n := n.(type) {
		case *ast.MappingNode:
			for _, p := range n.Values {
				if err := pair(p, prefix); err != nil {
					return err
				}
			}
		case *ast.MappingValueNode:
			return pair(n, prefix)
		}
		return nil
	}
	for _, d := range tree.Docs {
		if d.Body != nil {
			if err := walk(d.Body, ""); err != nil {
				return bad(err)
			}
		}
	}
	return values, lines, faults
}

// yamlFault turns the parser's `[3:7] what is wrong` into our form.
func yamlFault(file string, err error) configFault {
	text, _, _ := strings.Cut(yaml.FormatError(err, false, false), "\n")
	f := configFault{File: file, Message: "not YAML: " + text}
	var line, column int
	if _, scanErr := fmt.Sscanf(text, "[%d:%d]", &line, &column); scanErr == nil {
		_, rest, _ := strings.Cut(text, "] ")
		f.Line, f.Message = line, "not YAML: "+rest
	}
	return f
}
