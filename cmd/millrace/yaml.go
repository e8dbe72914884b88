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
func readYAML(file string) (values map[string]any, lines map[string]int, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, fmt.Errorf("config: %w; name another with --config", err)
	}
	values, lines = map[string]any{}, map[string]int{}
	bad := func(err error) error {
		first, _, _ := strings.Cut(yaml.FormatError(err, false, false), "\n")
		return fmt.Errorf("%s: not YAML: %s", file, first)
	}
	var whole map[string]any
	if err := yaml.UnmarshalWithOptions(text, &whole, yaml.Strict()); err != nil {
		return nil, nil, bad(err)
	}
	tree, err := parser.ParseBytes(text, 0)
	if err != nil {
		return nil, nil, bad(err)
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
			return bad(err)
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
				return nil, nil, err
			}
		}
	}
	return values, lines, nil
}
