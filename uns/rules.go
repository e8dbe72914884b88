package uns

import (
	"bytes"
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // an edge box may have no zone files, and timeZone must not depend on them

	"millrace/historian"
)

// rules are a topic's settings made ready for the hot path. Immutable: a change makes new ones.
type rules struct {
	settings Settings
	kind     kind
	soft     bool
	bounded  bool // a range or an enum is to be checked
	unit     timeUnit
	zone     *time.Location
	class    historian.Class
	// window is how old a device's timestamp may be; 0 = any age.
	window     time.Duration
	windowName string
	every      time.Duration // a value is expected so often; 0 = no expectation
}

// The bounds of an enum: it is walked for every value.
const (
	maxEnum      = 256
	maxEnumBytes = 16 << 10
)

// compile checks settings in full and fills in what they leave open. late is uns.lateWindow, 0 for the retention.
func compile(s Settings, late time.Duration) (*rules, *SettingFault) {
	r := &rules{unit: byMagnitude}
	fault := func(field, format string, args ...any) (*rules, *SettingFault) {
		return nil, &SettingFault{Field: field, Message: fmt.Sprintf(format, args...)}
	}
	var ok bool
	if r.kind, ok = parseKind(s.Schema.Type); !ok {
		return fault("schema.type", "%s is not one of %s", clip([]byte(s.Schema.Type)), strings.Join(kindNames, ", "))
	}
	s.Schema.Type = r.kind.String()
	switch s.Schema.Mode {
	case "":
		s.Schema.Mode = strict
	case strict, soft:
	default:
		return fault("schema.mode", "%s is not one of strict, soft", clip([]byte(s.Schema.Mode)))
	}
	r.soft = s.Schema.Mode == soft
	if text := unitFault([]byte(s.Schema.Unit)); text != "" {
		return fault("schema.unit", "%s", text)
	}
	if f := r.bounds(&s.Schema); f != nil {
		return nil, f
	}
	if r.class, ok = historian.ParseClass(s.Retention); !ok {
		return fault("retention", "%s is not one of 1d, 7d, 14d, 32d, 90d, 366d, 1830d, forever", clip([]byte(s.Retention)))
	}
	switch s.TimestampUnit {
	case "":
	case "s":
		r.unit = seconds
	case "ms":
		r.unit = milliseconds
	case "us":
		r.unit = microseconds
	case "ns":
		r.unit = nanoseconds
	default:
		return fault("timestampUnit", "%s is not one of s, ms, us, ns", clip([]byte(s.TimestampUnit)))
	}
	if s.TimeZone != "" {
		zone, err := time.LoadLocation(s.TimeZone)
		if err != nil || s.TimeZone == "Local" {
			return fault("timeZone", "%s is not a known time zone, like Europe/Berlin", clip([]byte(s.TimeZone)))
		}
		r.zone = zone
	}
	if s.ExpectedInterval != "" {
		var err error
		if r.every, err = parseDuration(s.ExpectedInterval); err != nil || r.every <= 0 {
			return fault("expectedInterval", "%s is not a duration above 0, like 10s", clip([]byte(s.ExpectedInterval)))
		}
		r.every = min(r.every, maxInterval)
	}
	r.window, r.windowName = r.class.Duration(), "the topic keeps "+s.Retention
	if late > 0 {
		r.window, r.windowName = late, "values may be at most "+late.String()+" late"
	}
	r.settings = s
	return r, nil
}

// bounds checks min, max and enum against the type and each other.
func (r *rules) bounds(s *Schema) *SettingFault {
	r.bounded = s.Min != nil || s.Max != nil || len(s.Enum) > 0
	for _, b := range []struct {
		field string
		v     *historian.Value
	}{{"schema.min", s.Min}, {"schema.max", s.Max}} {
		if b.v == nil {
			continue
		}
		number, text := numericKind(b.v.Kind), b.v.Kind == historian.Text
		ok := false
		switch r.kind {
		case kindAny:
			ok = number || text
		case kindNumber, kindInteger:
			ok = number
		case kindString, kindText:
			ok = text
		}
		if !ok {
			return &SettingFault{b.field, fmt.Sprintf("%s cannot bound the type %s", clipRaw(b.v.AppendJSON(nil)), r.kind)}
		}
	}
	if s.Min != nil && s.Max != nil {
		switch order, ok := compareValues(s.Min, s.Max); {
		case !ok:
			return &SettingFault{"schema.min", "min and max are of different types"}
		case order > 0:
			return &SettingFault{"schema.min", fmt.Sprintf("%s is above max %s", clipRaw(s.Min.AppendJSON(nil)), clipRaw(s.Max.AppendJSON(nil)))}
		}
	}
	size := 0
	for i := range s.Enum {
		if size += 8 + len(s.Enum[i].Raw); i >= maxEnum || size > maxEnumBytes {
			return &SettingFault{"schema.enum", fmt.Sprintf("at most %d values and %d bytes are allowed", maxEnum, maxEnumBytes)}
		}
		if r.kind == kindBytes || !r.kind.takes(&s.Enum[i]) {
			return &SettingFault{fmt.Sprintf("schema.enum[%d]", i), fmt.Sprintf("%s is not of type %s", clipRaw(s.Enum[i].AppendJSON(nil)), r.kind)}
		}
	}
	return nil
}

// compareValues orders two numbers by size and two texts by characters; other pairs have no order.
func compareValues(a, b *historian.Value) (order int, ok bool) {
	switch {
	case numericKind(a.Kind) && numericKind(b.Kind):
		return compareNumbers(a, b), true
	case a.Kind == historian.Text && b.Kind == historian.Text:
		// Byte order of UTF-8 is the order of its characters.
		return bytes.Compare(a.Raw, b.Raw), true
	}
	return 0, false
}

// sameValue compares for an enum: numbers by size, so that 1.0 is 1, all else exactly.
func sameValue(a, b *historian.Value) bool {
	if order, ok := compareValues(a, b); ok {
		return order == 0
	}
	return a.Kind == b.Kind && a.Mant == b.Mant && bytes.Equal(a.Raw, b.Raw)
}

// check holds a value against type, range and enum. off is true for what a soft schema lets pass.
func (r *rules) check(v *historian.Value) (off bool, verdict Verdict) {
	if !r.kind.takes(v) {
		return false, refuse(TypeMismatch, "value: wanted %s, found %s %s", r.kind, kindOf(v), clipRaw(v.AppendJSON(nil)))
	}
	if !r.bounded || r.within(v) {
		return false, Verdict{}
	}
	if r.soft {
		return true, Verdict{}
	}
	return false, Verdict{Reason: SchemaViolation, Detail: r.violation(v)}
}

func (r *rules) within(v *historian.Value) bool {
	s := &r.settings.Schema
	if s.Min != nil {
		if order, ok := compareValues(v, s.Min); ok && order < 0 {
			return false
		}
	}
	if s.Max != nil {
		if order, ok := compareValues(v, s.Max); ok && order > 0 {
			return false
		}
	}
	if len(s.Enum) == 0 {
		return true
	}
	for i := range s.Enum {
		if sameValue(v, &s.Enum[i]) {
			return true
		}
	}
	return false
}

// violation words why within is false.
func (r *rules) violation(v *historian.Value) string {
	s := &r.settings.Schema
	found := clipRaw(v.AppendJSON(nil))
	if s.Min != nil {
		if order, ok := compareValues(v, s.Min); ok && order < 0 {
			return fmt.Sprintf("value: %s is below min %s", found, clipRaw(s.Min.AppendJSON(nil)))
		}
	}
	if s.Max != nil {
		if order, ok := compareValues(v, s.Max); ok && order > 0 {
			return fmt.Sprintf("value: %s is above max %s", found, clipRaw(s.Max.AppendJSON(nil)))
		}
	}
	var list []byte
	for i := range s.Enum {
		if i > 0 {
			list = append(list, ", "...)
		}
		if list = s.Enum[i].AppendJSON(list); len(list) > 100 {
			break
		}
	}
	return fmt.Sprintf("value: %s is not one of %s", found, clipRaw(list))
}

// kindOf names what was found the way a schema would.
func kindOf(v *historian.Value) string {
	switch v.Kind {
	case historian.Null:
		return "null"
	case historian.Bool:
		return "boolean"
	case historian.Decimal, historian.Number:
		return "number"
	case historian.Text:
		return "string"
	case historian.Bytes:
		return "bytes"
	}
	if len(v.Raw) > 0 && v.Raw[0] == '[' {
		return "array"
	}
	return "object"
}
