package promql

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Metric is the name of the one metric there is: the values of topics.
const Metric = "millrace_value"

// Matcher is one condition on a label. A label that a series does not have is "".
type Matcher struct {
	Label, Op, Value string
	regex            *regexp.Regexp
}

// Holds says whether the value meets the condition. Regular expressions match the whole value.
func (m *Matcher) Holds(v string) bool {
	switch m.Op {
	case "=":
		return v == m.Value
	case "!=":
		return v != m.Value
	case "=~":
		return m.regex.MatchString(v)
	}
	return !m.regex.MatchString(v)
}

// expr is a node of a query: *selector, *call, *aggregation, *binary or *constant.
type expr interface{}

type constant struct{ v float64 }

type selector struct {
	at       int
	matchers []Matcher
	span     time.Duration // 0: an instant
	offset   time.Duration
}

type call struct {
	at   int
	name string
	arg  *selector
}

type aggregation struct {
	op      string
	by      []string
	without bool
	grouped bool
	arg     expr
}

type binary struct {
	at   int
	op   string
	bool bool
	a, b expr
}

// overTime are the functions of a range; what each takes from the cells of the range.
var overTime = map[string]bool{
	"avg_over_time": true, "min_over_time": true, "max_over_time": true, "sum_over_time": true, "count_over_time": true, "last_over_time": true,
	"first_over_time": true, "present_over_time": true, "delta": true,
}

var aggregations = []string{"sum", "avg", "min", "max", "count"}

const understood = "this box answers selectors of " + Metric + ", avg_, min_, max_, sum_, count_, last_, first_ and present_over_time, delta, sum, avg, min, max and count by labels, and + - * / % ^ with comparisons"

// Query is a query that was read.
type Query struct{ root expr }

// maxNesting bounds how deep brackets may lie.
const maxNesting = 50

// Parse reads a query. The error is an *Error.
func Parse(q string) (*Query, error) {
	tokens, err := lex(q)
	if err != nil {
		return nil, err
	}
	p := &parser{tokens: tokens}
	root, err := p.binary(0)
	if err != nil {
		return nil, err
	}
	if t := p.peek(); t.kind != end {
		return nil, faultAt(t.at, "unexpected %q: %s", t.s, understood)
	}
	if s, ok := root.(*selector); ok && s.span > 0 {
		return nil, faultAt(s.at, "a range needs a function, for example avg_over_time")
	}
	return &Query{root}, nil
}

// ParseSelector reads what match[] takes.
func ParseSelector(q string) ([]Matcher, error) {
	x, err := Parse(q)
	if err != nil {
		return nil, err
	}
	s, ok := x.root.(*selector)
	if !ok {
		return nil, faultAt(0, "wanted a selector, such as %s{topic=~\"line1/.*\"}", Metric)
	}
	return s.matchers, nil
}

type parser struct {
	tokens []token
	pos    int
	depth  int
}

func (p *parser) peek() token { return p.tokens[p.pos] }

func (p *parser) next() token {
	t := p.tokens[p.pos]
	if t.kind != end {
		p.pos++
	}
	return t
}

func (p *parser) take(s string) bool {
	if t := p.peek(); t.kind == sign && t.s == s {
		p.pos++
		return true
	}
	return false
}

func (p *parser) want(s string) error {
	if t := p.peek(); !p.take(s) {
		return faultAt(t.at, "expected %q, found %q", s, t.s)
	}
	return nil
}

var precedence = map[string]int{"==": 1, "!=": 1, "<": 1, ">": 1, "<=": 1, ">=": 1, "+": 2, "-": 2, "*": 3, "/": 3, "%": 3, "^": 5}

func (p *parser) binary(least int) (expr, error) {
	if p.depth++; p.depth > maxNesting {
		return nil, faultAt(p.peek().at, "more than %d deep", maxNesting)
	}
	defer func() { p.depth-- }()
	a, err := p.unary()
	if err != nil {
		return nil, err
	}
	for {
		t := p.peek()
		n, ok := precedence[t.s]
		if t.kind == name && slices.Contains([]string{"and", "or", "unless", "atan2"}, t.s) {
			return nil, faultAt(t.at, "%s is not understood: %s", t.s, understood)
		}
		if t.kind != sign || !ok || n < least {
			return a, nil
		}
		p.next()
		x := &binary{at: t.at, op: t.s, a: a}
		if w := p.peek(); w.kind == name && w.s == "bool" && n == 1 {
			p.next()
			x.bool = true
		}
		if w := p.peek(); w.kind == name && slices.Contains([]string{"on", "ignoring", "group_left", "group_right"}, w.s) {
			return nil, faultAt(w.at, "%s is not understood: %s", w.s, understood)
		}
		after := n + 1
		if t.s == "^" {
			after = n // to the right
		}
		if x.b, err = p.binary(after); err != nil {
			return nil, err
		}
		for _, side := range []expr{x.a, x.b} {
			if s, ok := side.(*selector); ok && s.span > 0 {
				return nil, faultAt(s.at, "a range needs a function, for example avg_over_time")
			}
		}
		a = x
	}
}

func (p *parser) unary() (expr, error) {
	if p.take("-") {
		a, err := p.binary(4) // above * and below ^
		if c, ok := a.(*constant); ok {
			return &constant{-c.v}, err
		}
		return &binary{op: "*", a: &constant{-1}, b: a}, err
	}
	p.take("+")
	return p.primary()
}

func (p *parser) primary() (expr, error) {
	t := p.next()
	switch {
	case t.kind == number:
		f, err := strconv.ParseFloat(t.s, 64)
		if err != nil {
			return nil, faultAt(t.at, "%q is no number", t.s)
		}
		return &constant{f}, nil
	case t.kind == sign && t.s == "(":
		a, err := p.binary(0)
		if err != nil {
			return nil, err
		}
		return a, p.want(")")
	case t.kind == sign && t.s == "{":
		p.pos--
		return p.selector(t.at, "")
	case t.kind == name:
		if slices.Contains(aggregations, t.s) && (p.peek().s == "(" || p.peek().s == "by" || p.peek().s == "without") {
			return p.aggregation(t)
		}
		if p.peek().kind == sign && p.peek().s == "(" {
			return p.call(t)
		}
		switch strings.ToLower(t.s) {
		case "inf", "nan":
			f, err := strconv.ParseFloat(t.s, 64)
			return &constant{f}, err
		}
		return p.selector(t.at, t.s)
	}
	return nil, faultAt(t.at, "expected a selector, a function or a number, found %q", t.s)
}

func (p *parser) call(t token) (expr, error) {
	if !overTime[t.s] {
		return nil, faultAt(t.at, "the function %s is not understood: %s", t.s, understood)
	}
	p.next()
	w := p.peek()
	a, err := p.primary()
	if err != nil {
		return nil, err
	}
	s, ok := a.(*selector)
	if !ok || s.span == 0 {
		return nil, faultAt(w.at, "%s wants a range, such as %s{…}[5m]", t.s, Metric)
	}
	return &call{t.at, t.s, s}, p.want(")")
}

func (p *parser) aggregation(t token) (expr, error) {
	a := &aggregation{op: t.s}
	if err := p.grouping(a); err != nil {
		return nil, err
	}
	if err := p.want("("); err != nil {
		return nil, err
	}
	at := p.peek().at
	var err error
	if a.arg, err = p.binary(0); err != nil {
		return nil, err
	}
	if s, ok := a.arg.(*selector); ok && s.span > 0 {
		return nil, faultAt(at, "a range needs a function, for example avg_over_time")
	}
	if _, ok := a.arg.(*constant); ok {
		return nil, faultAt(at, "%s is over series, not over a number", t.s)
	}
	if err := p.want(")"); err != nil {
		return nil, err
	}
	return a, p.grouping(a)
}

func (p *parser) grouping(a *aggregation) error {
	t := p.peek()
	if a.grouped || t.kind != name || t.s != "by" && t.s != "without" {
		return nil
	}
	p.next()
	a.grouped, a.without = true, t.s == "without"
	if err := p.want("("); err != nil {
		return err
	}
	for !p.take(")") {
		l := p.next()
		if l.kind != name {
			return faultAt(l.at, "expected a label, found %q", l.s)
		}
		a.by = append(a.by, l.s)
		if !p.take(",") && p.peek().s != ")" {
			return faultAt(p.peek().at, "expected , or )")
		}
	}
	return nil
}

func (p *parser) selector(at int, metric string) (expr, error) {
	s := &selector{at: at}
	if metric != "" {
		s.matchers = append(s.matchers, Matcher{Label: "__name__", Op: "=", Value: metric})
	}
	if p.take("{") {
		for !p.take("}") {
			m, err := p.matcher()
			if err != nil {
				return nil, err
			}
			s.matchers = append(s.matchers, m)
			if !p.take(",") && p.peek().s != "}" {
				return nil, faultAt(p.peek().at, "expected , or }, found %q", p.peek().s)
			}
		}
	}
	if p.take("[") {
		t := p.next()
		var ok bool
		if s.span, ok = parseDuration(t.s); !ok || s.span < time.Millisecond {
			return nil, faultAt(t.at, "%q is no range, such as 5m", t.s)
		}
		if p.peek().s == ":" {
			return nil, faultAt(p.peek().at, "subqueries are not understood: %s", understood)
		}
		if err := p.want("]"); err != nil {
			return nil, err
		}
	}
	if t := p.peek(); t.kind == name && t.s == "offset" {
		p.next()
		negative := p.take("-")
		d := p.next()
		var ok bool
		if s.offset, ok = parseDuration(d.s); !ok {
			return nil, faultAt(d.at, "%q is no offset, such as 1d", d.s)
		}
		if negative {
			s.offset = -s.offset
		}
	}
	if t := p.peek(); t.s == "@" {
		return nil, faultAt(t.at, "@ is not understood: %s", understood)
	}
	return s, nil
}

func (p *parser) matcher() (m Matcher, err error) {
	l := p.next()
	if l.kind != name && l.kind != text {
		return m, faultAt(l.at, "expected a label, found %q", l.s)
	}
	if l.kind == text && (p.peek().s == "," || p.peek().s == "}") { // {"millrace_value"}
		return Matcher{Label: "__name__", Op: "=", Value: l.s}, nil
	}
	op := p.next()
	if op.kind != sign || !slices.Contains([]string{"=", "!=", "=~", "!~"}, op.s) {
		return m, faultAt(op.at, "expected = != =~ or !~, found %q", op.s)
	}
	v := p.next()
	if v.kind != text {
		return m, faultAt(v.at, "expected a text in quotes, found %q", v.s)
	}
	m = Matcher{Label: l.s, Op: op.s, Value: v.s}
	if op.s == "=~" || op.s == "!~" {
		if m.regex, err = regexp.Compile("^(?s:" + v.s + ")$"); err != nil {
			return m, faultAt(v.at, "%v", err)
		}
	}
	return m, nil
}
