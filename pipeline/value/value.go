package value

import "strconv"

// Value is one exact JSON value; the zero Value is missing, which is what JavaScript calls undefined. It is immutable and
// may be shared between goroutines. Scalars cost no allocation.
type Value struct {
	kind Kind
	// A number is mant × 10^-exp, written with exp digits after the point, or, where that cannot give it back digit for
	// digit, the digits in text. A boolean is mant 0 or 1.
	exp  uint8
	mant int64
	text string
	tree *tree
}

// tree is what a list or an object is made of.
type tree struct {
	items  []Value
	fields []Field
}

// Field is one member of an object.
type Field struct {
	Name  string
	Value Value
}

// Kind tells what a Value is.
type Kind uint8

// The kinds.
const (
	Missing Kind = iota
	NullKind
	BoolKind
	NumberKind
	TextKind
	ListKind
	ObjectKind
)

var kindNames = [...]string{"undefined", "null", "boolean", "number", "text", "list", "object"}

// String is the word that error texts use.
func (k Kind) String() string { return kindNames[k] }

// Null is JSON null.
func Null() Value { return Value{kind: NullKind} }

// Bool is JSON true or false.
func Bool(b bool) Value {
	if b {
		return Value{kind: BoolKind, mant: 1}
	}
	return Value{kind: BoolKind}
}

// Text is a JSON string. s should be valid UTF-8; what is not is written as U+FFFD.
func Text(s string) Value { return Value{kind: TextKind, text: s} }

// List takes items over.
func List(items ...Value) Value { return Value{kind: ListKind, tree: &tree{items: items}} }

// Object takes fields over and keeps their order. Of two with one name the later one counts, at the place of the first.
func Object(fields ...Field) Value {
	return Value{kind: ObjectKind, tree: &tree{fields: unique(fields)}}
}

// few is how many names are compared one by one.
const few = 16

func unique(fields []Field) []Field {
	if len(fields) <= few {
		kept := fields[:0]
	next:
		for _, f := range fields {
			for i := range kept {
				if kept[i].Name == f.Name {
					kept[i].Value = f.Value
					continue next
				}
			}
			kept = append(kept, f)
		}
		return kept
	}
	at := make(map[string]int, len(fields))
	kept := fields[:0]
	for _, f := range fields {
		if i, ok := at[f.Name]; ok {
			kept[i].Value = f.Value
			continue
		}
		at[f.Name] = len(kept)
		kept = append(kept, f)
	}
	return kept
}

// Kind tells what v is.
func (v Value) Kind() Kind { return v.kind }

// IsMissing says that there is no value.
func (v Value) IsMissing() bool { return v.kind == Missing }

// Bool is false unless v is the boolean true.
func (v Value) Bool() bool { return v.kind == BoolKind && v.mant == 1 }

// Text is the characters of a text, else "".
func (v Value) Text() string {
	if v.kind != TextKind {
		return ""
	}
	return v.text
}

// Len is the number of items of a list, fields of an object, bytes of a text; else 0.
func (v Value) Len() int {
	switch v.kind {
	case ListKind:
		return len(v.tree.items)
	case ObjectKind:
		return len(v.tree.fields)
	case TextKind:
		return len(v.text)
	}
	return 0
}

// Index is item i of a list; missing when there is none.
func (v Value) Index(i int) Value {
	if v.kind != ListKind || i < 0 || i >= len(v.tree.items) {
		return Value{}
	}
	return v.tree.items[i]
}

// Field is field i of an object, 0 ≤ i < Len.
func (v Value) Field(i int) Field { return v.tree.fields[i] }

// Get is the field of that name; missing when v is no object or has none.
func (v Value) Get(name string) Value {
	if v.kind != ObjectKind {
		return Value{}
	}
	for i := range v.tree.fields {
		if f := &v.tree.fields[i]; f.Name == name {
			return f.Value
		}
	}
	return Value{}
}

// Path is Get, name after name; a number also indexes a list.
func (v Value) Path(names ...string) Value {
	for _, name := range names {
		if v.kind == ListKind {
			i, err := strconv.Atoi(name)
			if err != nil {
				return Value{}
			}
			v = v.Index(i)
			continue
		}
		v = v.Get(name)
	}
	return v
}

// Truthy is JavaScript's rule: missing, null, false, 0 and "" are not, all else is.
func (v Value) Truthy() bool {
	switch v.kind {
	case Missing, NullKind:
		return false
	case BoolKind:
		return v.mant == 1
	case NumberKind:
		f, _ := v.Float()
		return f != 0
	case TextKind:
		return v.text != ""
	}
	return true
}
