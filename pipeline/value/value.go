package value

// Value is one exact JSON value; the zero Value is missing, which is what JavaScript calls undefined. Immutable.
type Value struct {
	kind Kind
	exp  uint8
	mant int64
	text string
	list []Value
	keys []string
}

// Kind tells what a Value is.
type Kind uint8

// The kinds.
const (
	Missing Kind = iota
	Null
	Bool
	Number
	Text
	List
	Object
)
