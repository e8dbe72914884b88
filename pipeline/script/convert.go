package script

import (
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"time"

	"github.com/dop251/goja"

	"millrace/pipeline/value"
)

// in makes a value one of the machine's. Where a double would change a number, a whole one becomes a BigInt and another an
// object whose toString has the digits. Lists and objects are looked into only when the code does, and copied when it changes them.
func (m *machine) in(v value.Value) goja.Value {
	switch v.Kind() {
	case value.Missing:
		return goja.Undefined()
	case value.NullKind:
		return goja.Null()
	case value.BoolKind:
		return m.r.ToValue(v.Bool())
	case value.TextKind:
		return m.r.ToValue(v.Text())
	case value.NumberKind:
		return m.number(v)
	case value.ListKind:
		return m.r.NewDynamicArray(&list{m: m, was: v, at: slices.Repeat([]goja.Value{nil}, v.Len())})
	}
	return m.r.NewDynamicObject(&object{m: m, was: v})
}

func (m *machine) number(v value.Value) goja.Value {
	if v.FitsFloat() {
		if mant, exp, ok := v.Decimal(); ok && exp == 0 {
			return m.r.ToValue(mant)
		}
		f, _ := v.Float()
		return m.r.ToValue(f)
	}
	if n, ok := new(big.Int).SetString(v.Digits(), 10); ok {
		return m.r.ToValue(n)
	}
	return m.r.NewDynamicObject(&exact{m, v})
}

// out makes a value of the machine's one of ours, as JSON.stringify would, but that BigInt and exact numbers keep their digits.
func (m *machine) out(v goja.Value) (value.Value, error) { return m.outAt(v, 0) }

func (m *machine) outAt(v goja.Value, depth int) (value.Value, error) {
	if v == nil || goja.IsUndefined(v) {
		return value.Value{}, nil
	}
	if goja.IsNull(v) {
		return value.Null(), nil
	}
	o, ok := v.(*goja.Object)
	if !ok {
		switch x := v.Export().(type) {
		case bool:
			return value.Bool(x), nil
		case int64:
			return value.Int(x), nil
		case float64:
			return value.Float(x), nil
		case string:
			return value.Text(x), nil
		case *big.Int:
			n, _ := value.Number(x.String())
			return n, nil
		}
		return value.Value{}, &Error{Kind: Runtime, Message: fmt.Sprintf("a %s cannot be handed on", v.ExportType())}
	}
	if m.size++; m.size > maxList {
		return value.Value{}, &Error{Kind: Memory, Message: fmt.Sprintf("the result has more than %d values", maxList)}
	}
	if depth == value.MaxDepth {
		return value.Value{}, &Error{Kind: Runtime, Message: fmt.Sprintf("the result is more than %d deep, or holds itself", value.MaxDepth)}
	}
	if _, ok := goja.AssertFunction(o); ok {
		return value.Value{}, &Error{Kind: Runtime, Message: "a function cannot be handed on"}
	}
	switch x := ours(o).(type) {
	case *exact:
		return x.v, nil
	case *object:
		if x.fields == nil {
			return x.was, nil
		}
	case *list:
		if !x.touched {
			return x.was, nil
		}
	case time.Time:
		return value.Text(x.UTC().Format("2006-01-02T15:04:05.000Z")), nil
	}
	if o.ClassName() == "Array" {
		n := o.Get("length").ToInteger()
		if n > maxList {
			return value.Value{}, &Error{Kind: Memory, Message: fmt.Sprintf("the result has a list of %d items, at most %d are allowed", n, maxList)}
		}
		items := make([]value.Value, int(n))
		for i := range items {
			var err error
			if items[i], err = m.outAt(o.Get(strconv.Itoa(i)), depth+1); err != nil {
				return value.Value{}, err
			}
		}
		return value.List(items...), nil
	}
	switch o.ClassName() {
	case "Boolean", "Number", "String":
		return m.outAt(m.r.ToValue(o.Export()), depth)
	case "Error":
		return value.Object(value.Field{Name: "name", Value: value.Text(o.Get("name").String())}, value.Field{Name: "message", Value: value.Text(o.Get("message").String())}), nil
	}
	keys := o.Keys()
	fields := make([]value.Field, 0, len(keys))
	for _, k := range keys {
		x, err := m.outAt(o.Get(k), depth+1)
		if err != nil {
			return value.Value{}, err
		}
		if x.Kind() != value.Missing {
			fields = append(fields, value.Field{Name: k, Value: x})
		}
	}
	return value.Object(fields...), nil
}

// exact is a number that no double holds.
type exact struct {
	m *machine
	v value.Value
}

func (x *exact) Get(key string) goja.Value {
	switch key {
	case "toString", "toJSON":
		return x.m.r.ToValue(func(goja.FunctionCall) goja.Value { return x.m.r.ToValue(x.v.Digits()) })
	case "valueOf":
		return x.m.r.ToValue(func(goja.FunctionCall) goja.Value { f, _ := x.v.Float(); return x.m.r.ToValue(f) })
	}
	return nil
}
func (x *exact) Set(string, goja.Value) bool { return false }
func (x *exact) Has(key string) bool         { return key == "toString" || key == "valueOf" || key == "toJSON" }
func (x *exact) Delete(string) bool          { return false }
func (x *exact) Keys() []string              { return nil }

// object is an object of ours, copied with the first change.
type object struct {
	m      *machine
	was    value.Value
	seen   map[string]goja.Value // fields the code has looked at: two looks give the same object
	fields map[string]goja.Value // nil = unchanged
	keys   []string
}

func (o *object) Get(key string) goja.Value {
	if o.fields != nil {
		return o.fields[key]
	}
	if v, ok := o.seen[key]; ok {
		return v
	}
	v := o.was.Get(key)
	if v.IsMissing() {
		return nil
	}
	x := o.m.in(v)
	if v.Kind() == value.ListKind || v.Kind() == value.ObjectKind {
		// The code may change what lies within; then this object is no longer what it was.
		o.copy()
		return o.fields[key]
	}
	if o.seen == nil {
		o.seen = map[string]goja.Value{}
	}
	o.seen[key] = x
	return x
}

func (o *object) copy() {
	if o.fields != nil {
		return
	}
	n := o.was.Len()
	o.fields, o.keys = make(map[string]goja.Value, n), make([]string, 0, n)
	for i := range n {
		f := o.was.Field(i)
		o.keys = append(o.keys, f.Name)
		o.fields[f.Name] = o.m.in(f.Value)
	}
}

func (o *object) Set(key string, v goja.Value) bool {
	o.copy()
	if _, there := o.fields[key]; !there {
		o.keys = append(o.keys, key)
	}
	o.fields[key] = v
	return true
}

func (o *object) Has(key string) bool {
	if o.fields != nil {
		_, ok := o.fields[key]
		return ok
	}
	return !o.was.Get(key).IsMissing()
}

func (o *object) Delete(key string) bool {
	o.copy()
	if _, there := o.fields[key]; there {
		delete(o.fields, key)
		o.keys = slices.DeleteFunc(o.keys, func(k string) bool { return k == key })
	}
	return true
}

func (o *object) Keys() []string {
	if o.fields != nil {
		return o.keys
	}
	keys := make([]string, o.was.Len())
	for i := range keys {
		keys[i] = o.was.Field(i).Name
	}
	return keys
}

// list is a list of ours.
type list struct {
	m       *machine
	was     value.Value
	at      []goja.Value // nil: not looked at
	touched bool         // changed, or something within may have been
}

func (l *list) Len() int { return len(l.at) }

func (l *list) Get(i int) goja.Value {
	if i < 0 || i >= len(l.at) {
		return nil
	}
	if l.at[i] == nil {
		v := l.was.Index(i)
		l.at[i] = l.m.in(v)
		l.touched = l.touched || v.Kind() == value.ListKind || v.Kind() == value.ObjectKind
	}
	return l.at[i]
}

func (l *list) Set(i int, v goja.Value) bool {
	if i < 0 || i >= maxLength {
		return false
	}
	if i >= len(l.at) {
		l.SetLen(i + 1)
	}
	l.at[i], l.touched = v, true
	return true
}

// maxLength bounds lists that the code makes longer.
const maxLength = 1 << 20

func (l *list) SetLen(n int) bool {
	if n < 0 || n > maxLength {
		return false
	}
	l.touched = true
	for i := range l.at { // what was there stays what it was
		l.Get(i)
	}
	for len(l.at) < n {
		l.at = append(l.at, goja.Undefined())
	}
	l.at = l.at[:n]
	return true
}

// nodes is $node.
type nodes struct {
	m   *machine
	get func(name string) value.Value
}

func (n *nodes) Get(name string) goja.Value {
	if n.get == nil {
		return nil
	}
	if v := n.get(name); !v.IsMissing() {
		return n.m.in(v)
	}
	return nil
}
func (n *nodes) Set(string, goja.Value) bool { return false }
func (n *nodes) Has(name string) bool        { return n.get != nil && !n.get(name).IsMissing() }
func (n *nodes) Delete(string) bool          { return false }
func (n *nodes) Keys() []string              { return nil }
