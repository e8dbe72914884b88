package uns

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"millrace/historian"
)

// Schema says what a topic takes. JSON as in `PUT /uns/topic`, contract 7; the digits of min, max and enum are kept.
// A Schema's values are read by many goroutines: they are replaced, never changed.
type Schema struct {
	Type string            `json:"type,omitempty"`
	Unit string            `json:"unit,omitempty"`
	Min  *historian.Value  `json:"-"`
	Max  *historian.Value  `json:"-"`
	Enum []historian.Value `json:"-"`
	Mode string            `json:"mode,omitempty"` // strict|soft
}

// The modes of a schema.
const (
	strict = "strict"
	soft   = "soft"
)

// kind is a schema's type.
type kind uint8

const (
	kindAny kind = iota
	kindNumber
	kindInteger
	kindBoolean
	kindString
	kindObject
	kindArray
	kindText  // the payload as it is, UTF-8
	kindBytes // the payload as it is
)

var kindNames = []string{
	kindAny: "any", kindNumber: "number", kindInteger: "integer", kindBoolean: "boolean", kindString: "string",
	kindObject: "object", kindArray: "array", kindText: "text", kindBytes: "bytes",
}

func (k kind) String() string { return kindNames[k] }

// raw tells whether payloads are taken as they are.
func (k kind) raw() bool { return k >= kindText }

func parseKind(s string) (kind, bool) {
	for i, name := range kindNames {
		if name == s {
			return kind(i), true
		}
	}
	return kindAny, s == ""
}

// takes tells whether a value is of the type.
func (k kind) takes(v *historian.Value) bool {
	switch k {
	case kindAny:
		return true
	case kindNumber:
		return numericKind(v.Kind)
	case kindInteger:
		return numericKind(v.Kind) && integer(v)
	case kindBoolean:
		return v.Kind == historian.Bool
	case kindString, kindText:
		return v.Kind == historian.Text
	case kindObject:
		return v.Kind == historian.JSON && v.Raw[0] == '{'
	case kindArray:
		return v.Kind == historian.JSON && v.Raw[0] == '['
	case kindBytes:
		return v.Kind == historian.Bytes
	}
	return false
}

// schemaJSON is Schema as it travels.
type schemaJSON struct {
	Type string            `json:"type,omitempty"`
	Unit string            `json:"unit,omitempty"`
	Min  json.RawMessage   `json:"min,omitempty"`
	Max  json.RawMessage   `json:"max,omitempty"`
	Enum []json.RawMessage `json:"enum,omitempty"`
	Mode string            `json:"mode,omitempty"`
}

// MarshalJSON writes min, max and enum with the digits they were given in.
func (s Schema) MarshalJSON() ([]byte, error) {
	out := schemaJSON{Type: s.Type, Unit: s.Unit, Mode: s.Mode}
	if s.Min != nil {
		out.Min = s.Min.AppendJSON(nil)
	}
	if s.Max != nil {
		out.Max = s.Max.AppendJSON(nil)
	}
	for i := range s.Enum {
		out.Enum = append(out.Enum, s.Enum[i].AppendJSON(nil))
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads what MarshalJSON wrote. Whether the parts fit each other is checked when a topic takes them.
func (s *Schema) UnmarshalJSON(text []byte) error {
	var in schemaJSON
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		return err
	}
	next := Schema{Type: in.Type, Unit: in.Unit, Mode: in.Mode}
	var err error
	if next.Min, err = bound(in.Min); err != nil {
		return fmt.Errorf("min: %w", err)
	}
	if next.Max, err = bound(in.Max); err != nil {
		return fmt.Errorf("max: %w", err)
	}
	for i, raw := range in.Enum {
		v, err := parseValue(raw)
		if err != nil {
			return fmt.Errorf("enum[%d]: %w", i, err)
		}
		next.Enum = append(next.Enum, v)
	}
	*s = next
	return nil
}

func bound(raw json.RawMessage) (*historian.Value, error) {
	if raw == nil || string(raw) == "null" {
		return nil, nil
	}
	v, err := parseValue(raw)
	return &v, err
}

// parseValue reads one JSON value as ingress does, but never as an envelope. The value owns its bytes.
func parseValue(raw []byte) (historian.Value, error) {
	var b Batch
	var r reading
	s := scanner{src: raw, huge: -1}
	s.space()
	t, ok := s.token(0)
	if ok {
		if s.space(); s.pos < len(raw) {
			ok = s.fail(s.pos, "the end")
		}
	}
	if !ok {
		return historian.Value{}, errors.New(s.detail())
	}
	if v := b.store(raw, t, &r); v.Reason != Stored {
		return historian.Value{}, errors.New(v.Detail)
	}
	return r.value, nil
}
