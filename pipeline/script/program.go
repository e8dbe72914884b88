package script

import (
	"context"
	"errors"
	"strings"

	"github.com/dop251/goja"
	"github.com/dop251/goja/ast"
	"github.com/dop251/goja/file"
	"github.com/dop251/goja/parser"

	"millrace/pipeline/value"
)

// program is compiled code, shared by all machines. What the person wrote begins at the second line.
type program struct {
	code *goja.Program
	// path, when there is one, is what to look up instead: $trigger.value keeps its digits.
	path *path
	// line and column are where the text stands in what the person wrote: for a placeholder in a template.
	line, column int
}

const source = "code"

const (
	opening      = "(function($trigger,$input,$json,$node,$execution,$vars,$item,$index){\"use strict\";"
	expressionIn = opening + "return (\n"
	expressionTo = "\n)})"
	functionIn   = opening + "\n"
	functionTo   = "\n})"
)

func (e *Engine) expression(text string, line, column int) (*program, error) {
	tree, err := parser.ParseFile(nil, source, "(\n"+text+"\n)", 0, parser.WithDisableSourceMaps)
	if err != nil {
		return nil, fault(err, line, column)
	}
	if len(tree.Body) != 1 {
		return nil, &Fault{line, column, "expected one expression"}
	}
	statement, ok := tree.Body[0].(*ast.ExpressionStatement)
	if !ok {
		return nil, &Fault{line, column, "expected an expression"}
	}
	p, err := compile(expressionIn+text+expressionTo, line, column)
	if err != nil {
		return nil, err
	}
	p.path = pathOf(statement.Expression)
	return p, nil
}

func compile(text string, line, column int) (*program, error) {
	tree, err := parser.ParseFile(nil, source, text, 0, parser.WithDisableSourceMaps)
	if err != nil {
		return nil, fault(err, line, column)
	}
	if !oneFunction(tree) {
		return nil, &Fault{line, column, "the code ends before its text does: a bracket too many"}
	}
	var slow *Fault
	visit(tree, func(node any) {
		boundBits(node)
		x, ok := node.(*ast.RegExpLiteral)
		if !ok || slow != nil {
			return
		}
		if err := slowRegexp(x.Pattern, x.Flags); err != nil {
			at := place(tree.File.Position(int(x.Idx)-tree.File.Base()), line, column)
			slow = &Fault{at.Line, at.Column, err.Error()}
		}
	})
	if slow != nil {
		return nil, slow
	}
	code, err := goja.CompileAST(tree, true)
	if err != nil {
		return nil, fault(err, line, column)
	}
	return &program{code: code, line: line, column: column}, nil
}

// oneFunction says that the text did not close what was opened around it.
func oneFunction(tree *ast.Program) bool {
	if len(tree.Body) != 1 {
		return false
	}
	s, ok := tree.Body[0].(*ast.ExpressionStatement)
	if !ok {
		return false
	}
	_, ok = s.Expression.(*ast.FunctionLiteral)
	return ok
}

// fault words an error of parser or compiler.
func fault(err error, line, column int) *Fault {
	var list parser.ErrorList
	if errors.As(err, &list) && len(list) > 0 {
		at := place(list[0].Position, line, column)
		return &Fault{at.Line, at.Column, list[0].Message}
	}
	var syntax *goja.CompilerSyntaxError
	if errors.As(err, &syntax) {
		at := file.Position{Line: 2, Column: 1}
		if syntax.File != nil {
			at = syntax.File.Position(syntax.Offset)
		}
		at = place(at, line, column)
		return &Fault{at.Line, at.Column, syntax.Message}
	}
	return &Fault{line, column, err.Error()}
}

// place turns a position in the program into one in the person's text.
func place(at file.Position, line, column int) file.Position {
	at.Line = max(1, at.Line-1)
	if at.Line == 1 {
		at.Column += column - 1
	}
	at.Line += line - 1
	return at
}

// Expression is a compiled JavaScript expression. Safe for concurrent use.
type Expression struct {
	e *Engine
	p *program
}

// Expression compiles an expression, with or without {{ }} around it. The error is a *Fault.
func (e *Engine) Expression(code string) (*Expression, error) {
	line, column := 1, 1
	if t := strings.TrimSpace(code); strings.HasPrefix(t, "{{") && strings.HasSuffix(t, "}}") && len(t) >= 4 {
		at := strings.Index(code, "{{") + 2
		line, column = lineColumn(code, at)
		code = code[at:strings.LastIndex(code, "}}")]
	}
	p, err := e.expression(code, line, column)
	if err != nil {
		return nil, err
	}
	return &Expression{e, p}, nil
}

// Eval gives the value of the expression. The error is an *Error.
func (x *Expression) Eval(ctx context.Context, s *Scope) (value.Value, error) {
	return x.e.evaluate(ctx, x.p, s)
}

// Function is a compiled function body. Safe for concurrent use.
type Function struct {
	e *Engine
	p *program
}

// Function compiles the body of a function, which returns its result. The error is a *Fault.
func (e *Engine) Function(code string) (*Function, error) {
	p, err := compile(functionIn+code+functionTo, 1, 1)
	if err != nil {
		return nil, err
	}
	return &Function{e, p}, nil
}

// Call runs the function; without a return the result is missing. The error is an *Error.
func (f *Function) Call(ctx context.Context, s *Scope) (value.Value, error) {
	return f.e.evaluate(ctx, f.p, s)
}
