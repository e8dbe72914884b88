package script

import (
	"context"
	"strings"

	"millrace/pipeline/value"
)

// Template is a compiled text with any number of {{ }}. Safe for concurrent use.
type Template struct {
	e     *Engine
	parts []part
}

// part is text, or a placeholder.
type part struct {
	text string
	p    *program
}

// Template compiles a text. The error is a *Fault.
func (e *Engine) Template(text string) (*Template, error) {
	t := &Template{e: e}
	for at := 0; ; {
		open := strings.Index(text[at:], "{{")
		if open < 0 {
			if at < len(text) {
				t.parts = append(t.parts, part{text: text[at:]})
			}
			return t, nil
		}
		if open > 0 {
			t.parts = append(t.parts, part{text: text[at : at+open]})
		}
		at += open + 2
		p, end, err := e.placeholder(text, at)
		if err != nil {
			return nil, err
		}
		t.parts = append(t.parts, part{p: p})
		at = end
	}
}

// placeholder compiles what follows {{; the first }} that makes it an expression ends it, so that an object or a text may
// hold the same characters.
func (e *Engine) placeholder(text string, at int) (p *program, end int, err error) {
	line, column := lineColumn(text, at)
	for end = at; ; {
		n := strings.Index(text[end:], "}}")
		if n < 0 {
			if err == nil {
				err = &Fault{line, column - 2, "{{ without }}"}
			}
			return nil, 0, err
		}
		end += n
		for end+2 < len(text) && text[end+2] == '}' { // {{ {a:{}} }} and {{ {a:1}}}
			end++
		}
		var other error
		if p, other = e.expression(text[at:end], line, column); other == nil {
			return p, end + 2, nil
		}
		if err == nil {
			err = other
		}
		end += 2
	}
}

// lineColumn counts from 1, columns in characters of a line.
func lineColumn(text string, at int) (line, column int) {
	before := text[:at]
	line = 1 + strings.Count(before, "\n")
	return line, 1 + len([]rune(before[strings.LastIndexByte(before, '\n')+1:]))
}

// Constant gives the text when it has no placeholder.
func (t *Template) Constant() (v value.Value, ok bool) {
	switch {
	case len(t.parts) == 0:
		return value.Text(""), true
	case len(t.parts) == 1 && t.parts[0].p == nil:
		return value.Text(t.parts[0].text), true
	}
	return value.Value{}, false
}

// Eval fills the placeholders in. A text that is one placeholder and nothing else keeps the type and the digits of the value;
// else the result is a text. The error is an *Error.
func (t *Template) Eval(ctx context.Context, s *Scope) (value.Value, error) {
	if v, ok := t.Constant(); ok {
		return v, nil
	}
	if len(t.parts) == 1 {
		return t.e.evaluate(ctx, t.parts[0].p, s)
	}
	var out strings.Builder
	for _, p := range t.parts {
		if p.p == nil {
			out.WriteString(p.text)
			continue
		}
		v, err := t.e.evaluate(ctx, p.p, s)
		if err != nil {
			return value.Value{}, err
		}
		out.WriteString(v.String())
	}
	return value.Text(out.String()), nil
}
