package script

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"

	"github.com/dop251/goja"
	"github.com/dop251/goja/ast"
	"github.com/dop251/goja/parser"
	"github.com/dop251/goja/token"
)

// slowRegexp says why a regular expression is refused: what needs to go back and try again (looking around, references to groups) may take
// longer than the age of the plant, and nothing can interrupt it. Everything else runs in linear time (RE2).
func slowRegexp(pattern, flags string) error {
	unicode, dotAll := strings.ContainsAny(flags, "uv"), strings.Contains(flags, "s")
	text, err := parser.TransformRegExp(pattern, dotAll, unicode)
	if err == nil {
		_, err = regexp.Compile(text)
	}
	if err != nil {
		return fmt.Errorf("the regular expression /%s/ is not allowed: lookaround and backreferences can take for ever (%w)", pattern, err)
	}
	return nil
}

// visit calls fn for every node of the code, before those within it.
func visit(tree *ast.Program, fn func(node any)) {
	seen := map[any]bool{}
	var walk func(v reflect.Value)
	walk = func(v reflect.Value) {
		switch v.Kind() {
		case reflect.Interface:
			walk(v.Elem())
		case reflect.Pointer:
			if v.IsNil() || seen[v.Interface()] {
				return
			}
			seen[v.Interface()] = true
			if strings.HasSuffix(v.Type().Elem().PkgPath(), "goja/ast") {
				fn(v.Interface())
				walk(v.Elem())
			}
		case reflect.Slice:
			for i := range v.Len() {
				walk(v.Index(i))
			}
		case reflect.Struct:
			for i := range v.NumField() {
				if v.Type().Field(i).IsExported() {
					walk(v.Field(i))
				}
			}
		}
	}
	walk(reflect.ValueOf(tree.Body))
}

// checkRegexp is what the prelude asks before a regular expression is made of a text.
func (m *machine) checkRegexp(call goja.FunctionCall) goja.Value {
	if err := slowRegexp(call.Argument(0).String(), call.Argument(1).String()); err != nil {
		panic(m.r.NewTypeError(err.Error()))
	}
	return goja.Undefined()
}

// boundBits puts a check around the right side of << and **: of a BigInt they would make a number that fills the memory, in one step
// that nothing interrupts.
func boundBits(node any) {
	check := func(right ast.Expression) ast.Expression {
		if n, ok := right.(*ast.NumberLiteral); ok {
			switch n.Value.(type) {
			case int64, float64:
				return right
			}
		}
		return &ast.CallExpression{Callee: &ast.Identifier{Name: "$bits", Idx: right.Idx0()}, LeftParenthesis: right.Idx0(), ArgumentList: []ast.Expression{right}, RightParenthesis: right.Idx1()}
	}
	switch x := node.(type) {
	case *ast.BinaryExpression:
		if x.Operator == token.SHIFT_LEFT || x.Operator == token.EXPONENT {
			x.Right = check(x.Right)
		}
	case *ast.AssignExpression:
		if x.Operator == token.SHIFT_LEFT || x.Operator == token.EXPONENT || x.Operator == token.SHIFT_LEFT_ASSIGN || x.Operator == token.EXPONENT_ASSIGN {
			x.Right = check(x.Right)
		}
	}
}
