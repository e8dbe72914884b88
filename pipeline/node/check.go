package node

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"millrace/pipeline/value"
)

// The codes of faults that Check reports.
const (
	CodeUnknown  = "unknown_field"
	CodeMissing  = "missing_field"
	CodeKind     = "wrong_kind"
	CodeBounds   = "out_of_bounds"
	CodeOption   = "not_an_option"
	CodeDuration = "duration_invalid"
	CodeTopic    = "topic_invalid"
	CodeFilter   = "filter_invalid"
	CodeScript   = "script_invalid"
)

// Check holds parameters against the fields of a Spec: every fault at once, each with its path. filled has the defaults of
// what was left out; it is of use only when no fault is an error. Params that are missing or null count as {}.
func Check(spec *Spec, params value.Value) (filled value.Value, faults []Fault) {
	if k := params.Kind(); k == value.Missing || k == value.NullKind {
		params = value.Object()
	}
	c := checker{}
	filled = c.group(spec.Fields, params, "")
	return filled, c.faults
}

type checker struct{ faults []Fault }

func (c *checker) fault(field, code, format string, a ...any) {
	c.faults = append(c.faults, Fault{Field: field, Code: code, Message: fmt.Sprintf(format, a...), Severity: SeverityError})
}

// group checks an object. at is the path of it, "" at the top.
func (c *checker) group(fields []Field, v value.Value, at string) value.Value {
	if v.Kind() != value.ObjectKind {
		c.fault(at, CodeKind, "wanted an object, found %s", v.Kind())
		return v
	}
	for i := range v.Len() {
		name := v.Field(i).Name
		if !slices.ContainsFunc(fields, func(f Field) bool { return f.Name == name }) {
			c.fault(join(at, name), CodeUnknown, "there is no %q here%s", name, meant(name, fields))
		}
	}
	for i := range fields {
		f := &fields[i]
		x := v.Get(f.Name)
		switch {
		case x.IsMissing() && f.Required:
			c.fault(join(at, f.Name), CodeMissing, "%s is required", f.Name)
		case x.IsMissing() && f.Default != "":
			d, err := value.Parse([]byte(f.Default))
			if err != nil {
				c.fault(join(at, f.Name), CodeKind, "the default %s is no JSON: %v", f.Default, err)
				continue
			}
			v = v.With(f.Name, d)
		case !x.IsMissing():
			if y := c.field(f, x, join(at, f.Name)); !value.Equal(x, y) {
				v = v.With(f.Name, y)
			}
		}
	}
	return v
}

func join(at, name string) string {
	if at == "" {
		return name
	}
	return at + "." + name
}

// field checks one value and gives it with the defaults within.
func (c *checker) field(f *Field, v value.Value, at string) value.Value {
	switch f.Kind {
	case AnyField:
		return v
	case GroupField:
		return c.group(f.Fields, v, at)
	case ListField:
		return c.list(f, v, at)
	case NumberField:
		c.number(f, v, at)
	case BooleanField:
		if v.Kind() != value.BoolKind && !templated(f, v) {
			c.fault(at, CodeKind, "wanted true or false, found %s", v.Kind())
		}
	default:
		if f.Kind == TextField && f.Template && v.Kind() != value.ListKind && v.Kind() != value.ObjectKind {
			return v // a number as well as a text: {{ }} may give either
		}
		if v.Kind() != value.TextKind {
			c.fault(at, CodeKind, "wanted a text, found %s", v.Kind())
			return v
		}
		c.text(f, v.Text(), at)
	}
	return v
}

func (c *checker) list(f *Field, v value.Value, at string) value.Value {
	if v.Kind() != value.ListKind {
		c.fault(at, CodeKind, "wanted a list, found %s", v.Kind())
		return v
	}
	if f.Required && v.Len() == 0 {
		c.fault(at, CodeMissing, "%s must not be empty", f.Name)
	}
	items := make([]value.Value, v.Len())
	for i := range items {
		items[i] = v.Index(i)
		if f.Of != nil {
			items[i] = c.field(f.Of, items[i], fmt.Sprintf("%s[%d]", at, i))
		}
	}
	return value.List(items...)
}

// templated says that the value is a text that {{ }} will make something else of.
func templated(f *Field, v value.Value) bool {
	return f.Template && v.Kind() == value.TextKind && strings.Contains(v.Text(), "{{")
}

func (c *checker) number(f *Field, v value.Value, at string) {
	if templated(f, v) {
		return
	}
	if v.Kind() != value.NumberKind {
		c.fault(at, CodeKind, "wanted a number, found %s", v.Kind())
		return
	}
	if low, ok := value.Number(f.Min); ok && value.Compare(v, low) < 0 {
		c.fault(at, CodeBounds, "%s is less than %s", v.Digits(), f.Min)
	}
	if high, ok := value.Number(f.Max); ok && value.Compare(v, high) > 0 {
		c.fault(at, CodeBounds, "%s is more than %s", v.Digits(), f.Max)
	}
}

func (c *checker) text(f *Field, text, at string) {
	dynamic := f.Template && strings.Contains(text, "{{")
	switch f.Kind {
	case SelectField:
		if !dynamic && !slices.Contains(f.Options, text) {
			c.fault(at, CodeOption, "%q is none of %s", text, strings.Join(f.Options, ", "))
		}
	case DurationField:
		if !dynamic {
			c.duration(f, text, at)
		}
	case TopicField:
		if dynamic {
			return
		}
		if why := topicFault(text, false); why != "" {
			c.fault(at, CodeTopic, "%q: %s", text, why)
		}
	case FilterField:
		if why := topicFault(text, true); why != "" {
			c.fault(at, CodeFilter, "%q: %s", text, why)
		}
	case CodeField, ExpressionField:
		if f.Required && strings.TrimSpace(text) == "" {
			c.fault(at, CodeMissing, "%s must not be empty", f.Name)
		}
	case TextField:
		if f.Required && text == "" {
			c.fault(at, CodeMissing, "%s must not be empty", f.Name)
		}
	}
}

func (c *checker) duration(f *Field, text, at string) {
	d, err := Duration(text)
	if err != nil {
		c.fault(at, CodeDuration, "%q is no duration such as 20ms, 5s, 10m, 2h or 1d", text)
		return
	}
	if low, err := Duration(f.Min); err == nil && d < low {
		c.fault(at, CodeBounds, "%s is shorter than %s", text, f.Min)
	}
	if high, err := Duration(f.Max); err == nil && d > high {
		c.fault(at, CodeBounds, "%s is longer than %s", text, f.Max)
	}
	if d < 0 {
		c.fault(at, CodeBounds, "%s is less than nothing", text)
	}
}

// Duration reads a duration as Go writes it, with d for days of 24 hours: 20ms, 1h30m, 7d.
func Duration(text string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := time.ParseDuration(days + "h")
		if err != nil || n > 1<<62/24 || n < -1<<62/24 {
			return 0, fmt.Errorf("%q is no duration", text)
		}
		return 24 * n, nil
	}
	return time.ParseDuration(text)
}

// topicFault holds a path, or a filter of paths, to the rules of the namespace, as far as they need no settings of the box.
func topicFault(text string, filter bool) string {
	if text == "" {
		return "it is empty"
	}
	levels := strings.Split(text, "/")
	if len(levels) > 34 { // 32 of the path and the two before it
		return "it has more than 32 levels"
	}
	for i, level := range levels {
		switch {
		case level == "":
			return "it has an empty level"
		case filter && level == "#" && i < len(levels)-1:
			return "# stands only at the end"
		case filter && (level == "#" || level == "+"):
		case strings.ContainsAny(level, "+#"):
			if filter {
				return "+ and # stand for whole levels"
			}
			return "+ and # are for filters"
		}
	}
	return ""
}

// meant names a field that may have been meant.
func meant(name string, fields []Field) string {
	best, at := 3, ""
	for i := range fields {
		if d := distance(strings.ToLower(name), strings.ToLower(fields[i].Name)); d < best {
			best, at = d, fields[i].Name
		}
	}
	if at == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", at)
}

// distance is the number of single changes that make one of the other (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		last := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := last
			if a[i] != b[j] {
				cost++
			}
			last = row[j+1]
			row[j+1] = min(cost, row[j]+1, last+1)
		}
	}
	return row[len(b)]
}
