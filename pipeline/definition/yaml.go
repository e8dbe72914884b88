package definition

import (
	"fmt"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"millrace/pipeline/value"
)

// ReadYAML takes a definition from YAML, with the digits of numbers as they are written. Anchors, aliases, tags and several
// documents are refused: a definition says what it means in one place.
func ReadYAML(text []byte) (Definition, []Fault) {
	if len(text) > MaxBytes {
		return Definition{}, []Fault{wrong("", "", codeSize, fmt.Sprintf("%d bytes, at most %d are allowed", len(text), MaxBytes))}
	}
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		return Definition{}, []Fault{wrong("", "", codeSyntax, strings.TrimSpace(strings.SplitN(err.Error(), "\n", 2)[0]))}
	}
	if len(file.Docs) != 1 || file.Docs[0].Body == nil {
		return Definition{}, []Fault{wrong("", "", codeSyntax, fmt.Sprintf("%d documents, wanted one", len(file.Docs)))}
	}
	y := yamlReader{}
	v := y.value(file.Docs[0].Body, 0)
	if len(y.faults) > 0 {
		return Definition{}, y.faults
	}
	return FromValue(v)
}

// yamlReader makes a tree of YAML's.
type yamlReader struct{ faults []Fault }

func (y *yamlReader) wrong(n ast.Node, code, format string, a ...any) value.Value {
	at := n.GetToken().Position
	y.faults = append(y.faults, wrong("", "", code, fmt.Sprintf("line %d, column %d: %s", at.Line, at.Column, fmt.Sprintf(format, a...))))
	return value.Null()
}

func (y *yamlReader) value(n ast.Node, depth int) value.Value {
	if depth > value.MaxDepth {
		return y.wrong(n, codeSyntax, "more than %d deep", value.MaxDepth)
	}
	switch n := n.(type) {
	case *ast.NullNode:
		return value.Null()
	case *ast.BoolNode:
		return value.Bool(n.Value)
	case *ast.IntegerNode, *ast.FloatNode:
		digits := n.GetToken().Value
		if v, ok := value.Number(digits); ok {
			return v
		}
		return y.wrong(n, codeSyntax, "%s is no number of JSON: quote it if it is a text", digits)
	case *ast.InfinityNode, *ast.NanNode:
		return y.wrong(n, codeSyntax, "only finite numbers are allowed")
	case *ast.StringNode:
		return value.Text(n.Value)
	case *ast.LiteralNode:
		return value.Text(n.Value.Value)
	case *ast.MappingNode:
		return y.object(n, n.Values, depth)
	case *ast.MappingValueNode:
		return y.object(n, []*ast.MappingValueNode{n}, depth)
	case *ast.SequenceNode:
		items := make([]value.Value, len(n.Values))
		for i, item := range n.Values {
			items[i] = y.value(item, depth+1)
		}
		return value.List(items...)
	}
	return y.wrong(n, codeSyntax, "%s is not allowed here", strings.ToLower(n.Type().String()))
}

func (y *yamlReader) object(n ast.Node, values []*ast.MappingValueNode, depth int) value.Value {
	fields := make([]value.Field, 0, len(values))
	seen := make(map[string]bool, len(values))
	for _, m := range values {
		var name string
		switch k := m.Key.(type) {
		case *ast.StringNode:
			name = k.Value
		case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NullNode:
			name = m.Key.GetToken().Value
		default:
			y.wrong(m, codeSyntax, "a key must be a text")
			continue
		}
		if seen[name] {
			y.wrong(m, codeDuplicate, "%q is there twice", name)
		}
		seen[name] = true
		fields = append(fields, value.Field{Name: name, Value: y.value(m.Value, depth+1)})
	}
	return value.Object(fields...)
}

// YAML writes the definition as a file for people and version control: block style, one thing a line, texts of several lines
// as such.
func (d *Definition) YAML() []byte {
	return appendYAML(nil, d.Value(), 0)
}

// appendYAML writes a list or an object, which begins at the start of a line.
func appendYAML(dst []byte, v value.Value, indent int) []byte {
	for i := range v.Len() {
		dst = append(dst, strings.Repeat(" ", indent)...)
		if v.Kind() == value.ListKind {
			item := v.Index(i)
			if nested(item) && item.Kind() == value.ObjectKind {
				// The first field stands behind the dash.
				inner := appendYAML(nil, item, indent+2)
				dst = append(append(dst, "- "...), inner[indent+2:]...)
				continue
			}
			dst = append(dst, '-')
			dst = appendYAMLAfter(dst, item, indent)
			continue
		}
		f := v.Field(i)
		dst = append(appendScalar(dst, f.Name, -1), ':')
		dst = appendYAMLAfter(dst, f.Value, indent)
	}
	return dst
}

func nested(v value.Value) bool {
	return (v.Kind() == value.ListKind || v.Kind() == value.ObjectKind) && v.Len() > 0
}

// appendYAMLAfter writes a value behind a dash or a key, with the end of the line.
func appendYAMLAfter(dst []byte, v value.Value, indent int) []byte {
	if nested(v) {
		return appendYAML(append(dst, '\n'), v, indent+2)
	}
	dst = append(dst, ' ')
	if v.Kind() == value.TextKind {
		return append(appendScalar(dst, v.Text(), indent+2), '\n')
	}
	return append(v.AppendJSON(dst), '\n')
}

// appendScalar writes a text so that it is read as that text: plain where nobody can take it for anything else, as a block
// where it has several lines and indent is not negative, else in JSON's quotes, which are YAML's too.
func appendScalar(dst []byte, s string, indent int) []byte {
	if indent >= 0 && strings.Contains(s, "\n") && blockSafe(s) {
		dst = append(dst, '|')
		if !strings.HasSuffix(s, "\n") {
			dst = append(dst, '-')
		}
		for line := range strings.SplitSeq(strings.TrimSuffix(s, "\n"), "\n") {
			dst = append(dst, '\n')
			if line != "" {
				dst = append(append(dst, strings.Repeat(" ", indent)...), line...)
			}
		}
		return dst
	}
	if plainSafe(s) {
		return append(dst, s...)
	}
	return value.AppendQuoted(dst, s)
}

// blockSafe says that a literal block gives the text back.
func blockSafe(s string) bool {
	if s[0] == ' ' || s[0] == '\n' || s[0] == '\t' || strings.HasSuffix(s, "\n\n") || strings.TrimSpace(s) == "" {
		return false
	}
	for line := range strings.SplitSeq(s, "\n") {
		if strings.HasSuffix(line, " ") || strings.HasSuffix(line, "\t") {
			return false
		}
	}
	for _, r := range s {
		if r < ' ' && r != '\n' && r != '\t' || r == 0x7f || r == 0x85 || r == 0xa0 || r == 0x2028 || r == 0x2029 || r == 0xfeff || r == 0xfffd {
			return false
		}
	}
	return true
}

// plainSafe says that the text needs no quotes. It is strict: letters, digits and a few signs, and nothing that YAML 1.1 or
// 1.2 reads as something else.
func plainSafe(s string) bool {
	if s == "" || len(s) > 100 {
		return false
	}
	for i, c := range []byte(s) {
		letter := c|0x20 >= 'a' && c|0x20 <= 'z'
		if !letter && (i == 0 || !(c >= '0' && c <= '9') && !strings.ContainsRune("._/-", rune(c))) {
			return false
		}
	}
	switch strings.ToLower(s) {
	case "null", "true", "false", "yes", "no", "on", "off", "y", "n", "nan", "inf":
		return false
	}
	return true
}
