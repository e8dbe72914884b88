package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// readYAML reads a file into values by path, with the line of each. Duplicate keys are refused by the parser.
func readYAML(file string) (values map[string]any, lines map[string]int, faults configFaults) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, configFaults{{File: file, Message: fmt.Sprintf("cannot be read: %v; name another with --config", plain(err))}}
	}
	values, lines = map[string]any{}, map[string]int{}
	bad := func(err error) (map[string]any, map[string]int, configFaults) {
		return nil, nil, configFaults{yamlFault(file, err)}
	}
	tree, err := parser.ParseBytes(text, 0)
	if err != nil {
		return bad(err)
	}
	for _, d := range tree.Docs {
		switch d.Body.(type) {
		case nil, *ast.MappingNode, *ast.MappingValueNode, *ast.NullNode, *ast.CommentGroupNode:
		default:
			return nil, nil, configFaults{{File: file, Line: d.Body.GetToken().Position.Line, Message: "the file must be a mapping of keys"}}
		}
	}
	var whole map[string]any
	if err := yaml.UnmarshalWithOptions(text, &whole, yaml.Strict()); err != nil {
		return bad(err)
	}
	var walk func(n ast.Node, prefix string) error
	pair := func(p *ast.MappingValueNode, prefix string) error {
		path := prefix + p.Key.GetToken().Value
		lines[path] = p.Key.GetToken().Position.Line
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
	return values, lines, nil
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
