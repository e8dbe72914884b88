package web

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"unicode/utf8"
)

// plainJSON refuses a body that could be read in two ways: one that is not UTF-8, that goes on behind its value, or
// whose objects have a key twice, of which the decoder would silently take the last.
func plainJSON(text []byte) error {
	if !utf8.Valid(text) {
		return errors.New("it is not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var open []map[string]bool // keys of the objects around; nil for an array
	var key bool               // a key comes next
	for ended := false; ; {
		t, err := d.Token()
		switch {
		case errors.Is(err, io.EOF) && ended:
			return nil
		case errors.Is(err, io.EOF):
			return io.ErrUnexpectedEOF
		case err != nil:
			return err
		case ended:
			return errors.New("text after the end of the value")
		}
		switch t {
		case json.Delim('{'):
			open, key = append(open, map[string]bool{}), true
			continue
		case json.Delim('['):
			open, key = append(open, nil), false
			continue
		case json.Delim('}'), json.Delim(']'):
			open = open[:len(open)-1]
		default:
			if key {
				name := strings.ToLower(t.(string)) // as the decoder matches them
				if seen := open[len(open)-1]; seen[name] {
					return fmt.Errorf("the key %q is there twice", name)
				} else {
					seen[name] = true
				}
				key = false
				continue
			}
		}
		ended = len(open) == 0
		key = !ended && open[len(open)-1] != nil
	}
}

// strictJSON is json.Unmarshal that refuses members the target does not have.
func strictJSON(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("text after the end of the value")
	}
	return nil
}

// jsonFault words a decoding error without the decoder's own vocabulary.
func jsonFault(err error) string {
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return "the text ends in the middle of the JSON"
	}
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) {
		at := kind.Field
		if at == "" {
			at = "the whole"
		}
		return fmt.Sprintf("%s: a %s does not fit, %s is wanted", at, kind.Value, wanted(kind.Type))
	}
	return strings.TrimPrefix(err.Error(), "json: ")
}

func wanted(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "an object"
	}
	return "a number"
}
