package uns

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// Settings of a topic: JSON as `PUT /uns/topic` in contract 7. What Topic.Settings returns has Type, Mode and
// Retention filled in.
type Settings struct {
	Schema           Schema `json:"schema"`
	Retention        string `json:"retention"`
	TimestampUnit    string `json:"timestampUnit,omitempty"`
	TimeZone         string `json:"timeZone,omitempty"`
	ExpectedInterval string `json:"expectedInterval,omitempty"`
}

// SettingFault is a refused setting: web maps it to 422.
type SettingFault struct{ Field, Message string }

// Error names the field and what is wrong with it.
func (f *SettingFault) Error() string { return f.Field + ": " + f.Message }

// merged applies a JSON merge patch (RFC 7396): absent keys stay, null takes a key back to its default.
func (s Settings) merged(patch []byte) (Settings, *SettingFault) {
	keys, fault := object("settings", patch)
	if fault != nil {
		return s, fault
	}
	for _, key := range sortedKeys(keys) {
		raw := keys[key]
		switch key {
		case "schema":
			if fault = s.Schema.merge(raw); fault != nil {
				return s, fault
			}
		case "retention":
			fault = setText(&s.Retention, key, raw)
		case "timestampUnit":
			fault = setText(&s.TimestampUnit, key, raw)
		case "timeZone":
			fault = setText(&s.TimeZone, key, raw)
		case "expectedInterval":
			fault = setText(&s.ExpectedInterval, key, raw)
		default:
			fault = &SettingFault{key, "unknown key: wanted schema, retention, timestampUnit, timeZone, expectedInterval"}
		}
		if fault != nil {
			return s, fault
		}
	}
	return s, nil
}

func (s *Schema) merge(patch []byte) *SettingFault {
	if string(patch) == "null" {
		*s = Schema{}
		return nil
	}
	keys, fault := object("schema", patch)
	if fault != nil {
		return fault
	}
	for _, key := range sortedKeys(keys) {
		raw, field := keys[key], "schema."+key
		var err error
		switch key {
		case "type":
			fault = setText(&s.Type, field, raw)
		case "unit":
			fault = setText(&s.Unit, field, raw)
		case "mode":
			fault = setText(&s.Mode, field, raw)
		case "min":
			s.Min, err = bound(raw)
		case "max":
			s.Max, err = bound(raw)
		case "enum":
			fault = s.setEnum(raw)
		default:
			fault = &SettingFault{field, "unknown key: wanted type, unit, min, max, enum, mode"}
		}
		if err != nil {
			fault = &SettingFault{field, err.Error()}
		}
		if fault != nil {
			return fault
		}
	}
	return nil
}

func (s *Schema) setEnum(raw json.RawMessage) *SettingFault {
	// A merge patch replaces a list as a whole.
	s.Enum = nil
	if string(raw) == "null" {
		return nil
	}
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return &SettingFault{"schema.enum", fmt.Sprintf("wanted a list of values, found %s", clipRaw(raw))}
	}
	if len(list) == 0 {
		return &SettingFault{"schema.enum", "is empty, so that no value could ever be stored: send null to take it away"}
	}
	for i, item := range list {
		v, err := parseValue(item)
		if err != nil {
			return &SettingFault{fmt.Sprintf("schema.enum[%d]", i), err.Error()}
		}
		s.Enum = append(s.Enum, v)
	}
	return nil
}

func setText(dst *string, field string, raw json.RawMessage) *SettingFault {
	if string(raw) == "null" {
		*dst = ""
		return nil
	}
	if err := json.Unmarshal(raw, dst); err != nil {
		return &SettingFault{field, fmt.Sprintf("wanted text, found %s", clipRaw(raw))}
	}
	return nil
}

func object(field string, text []byte) (map[string]json.RawMessage, *SettingFault) {
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(text, &keys); err != nil || keys == nil {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			return nil, &SettingFault{field, "not JSON: " + syntax.Error()}
		}
		return nil, &SettingFault{field, fmt.Sprintf("wanted a JSON object, found %s", clipRaw(text))}
	}
	return keys, nil
}

// sortedKeys makes which of two faults is named a matter of the patch alone.
func sortedKeys(m map[string]json.RawMessage) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// encode is what the store keeps of a topic; nil for settings that say nothing beyond the retention class, which has
// a place of its own in the store: a million plain topics cost no meta.
func (s Settings) encode() ([]byte, error) {
	if s.Schema.Type == "any" {
		s.Schema.Type = ""
	}
	if s.Schema.Mode == strict {
		s.Schema.Mode = ""
	}
	s.Retention = ""
	text, err := json.Marshal(s)
	if err != nil || string(text) == `{"schema":{},"retention":""}` {
		return nil, err
	}
	return text, nil
}

func decodeSettings(meta []byte) (Settings, error) {
	var s Settings
	if len(meta) == 0 {
		return s, nil
	}
	d := json.NewDecoder(bytes.NewReader(meta))
	d.DisallowUnknownFields()
	err := d.Decode(&s)
	return s, err
}
