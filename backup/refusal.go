package backup

import "fmt"

// refusal is something that the caller can mend: its words say what, where and how, and it wraps the sentinel of its kind.
type refusal struct {
	kind error
	text string
}

func refuse(kind error, format string, args ...any) error {
	return refusal{kind, fmt.Sprintf(format, args...)}
}

func (r refusal) Error() string { return r.text }
func (r refusal) Unwrap() error { return r.kind }
