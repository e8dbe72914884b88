package value

// With is v with the field of that name set to x: at its place, or behind the others. A v that is no object counts as an
// empty one. v stays as it is; what the two have in common is shared.
func (v Value) With(name string, x Value) Value {
	if v.kind != ObjectKind {
		return Object(Field{name, x})
	}
	old := v.tree.fields
	fields := make([]Field, len(old), len(old)+1)
	copy(fields, old)
	for i := range fields {
		if fields[i].Name == name {
			fields[i].Value = x
			return Value{kind: ObjectKind, tree: &tree{fields: fields}}
		}
	}
	return Value{kind: ObjectKind, tree: &tree{fields: append(fields, Field{name, x})}}
}

// Without is v without the field of that name.
func (v Value) Without(name string) Value {
	if v.kind != ObjectKind || v.Get(name).kind == Missing {
		return v
	}
	fields := make([]Field, 0, len(v.tree.fields)-1)
	for _, f := range v.tree.fields {
		if f.Name != name {
			fields = append(fields, f)
		}
	}
	return Value{kind: ObjectKind, tree: &tree{fields: fields}}
}

// Equal says that two values mean the same: numbers by their exact value (1 and 1.0 are equal), objects without regard to
// the order of their names, fields that are missing as if they were not there.
func Equal(a, b Value) bool {
	if a.kind != b.kind {
		return false
	}
	switch a.kind {
	case BoolKind:
		return a.mant == b.mant
	case NumberKind:
		return compareNumbers(a, b) == 0
	case TextKind:
		return a.text == b.text
	case ListKind:
		if len(a.tree.items) != len(b.tree.items) {
			return false
		}
		for i := range a.tree.items {
			if !Equal(a.tree.items[i], b.tree.items[i]) {
				return false
			}
		}
	case ObjectKind:
		return a.present() == b.present() && sameFields(a, b)
	}
	return true
}

func (v Value) present() (n int) {
	for i := range v.tree.fields {
		if v.tree.fields[i].Value.kind != Missing {
			n++
		}
	}
	return n
}

func sameFields(a, b Value) bool {
	var index map[string]Value
	if len(b.tree.fields) > few {
		index = make(map[string]Value, len(b.tree.fields))
		for _, f := range b.tree.fields {
			index[f.Name] = f.Value
		}
	}
	for i, f := range a.tree.fields {
		if f.Value.kind == Missing {
			continue
		}
		var other Value
		switch {
		case i < len(b.tree.fields) && b.tree.fields[i].Name == f.Name: // as a rule the order is the same
			other = b.tree.fields[i].Value
		case index != nil:
			other = index[f.Name]
		default:
			other = b.Get(f.Name)
		}
		if !Equal(f.Value, other) {
			return false
		}
	}
	return true
}

// nodeSize is about what one Value takes in memory.
const nodeSize = 48

// Size is about how many octets v takes in memory, for bounds.
func (v Value) Size() (n int) {
	n = nodeSize + len(v.text)
	if v.tree != nil {
		for _, item := range v.tree.items {
			n += item.Size()
		}
		for i := range v.tree.fields {
			n += 16 + len(v.tree.fields[i].Name) + v.tree.fields[i].Value.Size()
		}
	}
	return n
}
