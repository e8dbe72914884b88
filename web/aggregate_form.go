package web

import (
	"encoding/base64"
	"strconv"

	"millrace/historian"
	"millrace/uns"
)

// wholeMillis is the scale of a bucket's beginning.
const wholeMillis = 6

// columnForm writes aggregates as JSON: per topic one array of beginnings and one for each function.
type columnForm struct{ columns }

func (columnForm) stamp(b []byte, ns int64) []byte { return strconv.AppendInt(b, floorMillis(ns), 10) }

func (columnForm) value(b []byte, v historian.Value, ok bool) []byte {
	if !ok {
		return append(b, "null"...)
	}
	return v.AppendJSON(b)
}

func (c columnForm) begin(s *sheet, _ *grouping) { c.columns.begin(s) }

func (columnForm) topic(s *sheet, g *grouping, path string, r *rowSet, order []int) {
	b := s.out
	if s.topics > 0 {
		b = append(b, ',')
	}
	b = append(b, `{"topic":`...)
	b = appendText(b, path)
	b = append(b, `,"resolution":`...)
	b = appendText(b, g.resolution)
	width := len(g.functions) + 1
	for column := range width {
		name := "t"
		if column > 0 {
			name = aggregates[g.functions[column-1]].name
		}
		b = append(b, `,"`...)
		b = append(b, name...)
		b = append(b, `":[`...)
		for i, row := range order {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(b, r.cell(row, column, width)...)
		}
		b = append(b, ']')
	}
	s.out = append(b, '}')
}

// lineForm writes aggregates as NDJSON: one object a bucket.
type lineForm struct{ lines }

func (lineForm) stamp(b []byte, ns int64) []byte {
	b = append(b, '"')
	return append(uns.AppendTime(b, ns, wholeMillis), '"')
}

func (lineForm) value(b []byte, v historian.Value, ok bool) []byte {
	return columnForm{}.value(b, v, ok)
}

func (lineForm) begin(*sheet, *grouping) {}

func (lineForm) topic(s *sheet, g *grouping, path string, r *rowSet, order []int) {
	head := appendText(append(s.head[:0], `{"topic":`...), path)
	head = append(head, `,"timestamp":`...)
	b, width := s.out, len(g.functions)+1
	for _, row := range order {
		b = append(b, head...)
		b = append(b, r.cell(row, 0, width)...)
		for i, f := range g.functions {
			b = append(b, `,"`...)
			b = append(b, aggregates[f].name...)
			b = append(b, `":`...)
			b = append(b, r.cell(row, i+1, width)...)
		}
		b = append(b, "}\n"...)
	}
	s.out, s.head = b, head
}

// tableForm writes aggregates as CSV; what a bucket cannot say is an empty field.
type tableForm struct{ table }

func (tableForm) stamp(b []byte, ns int64) []byte { return uns.AppendTime(b, ns, wholeMillis) }

func (tableForm) value(b []byte, v historian.Value, ok bool) []byte {
	if !ok {
		return b
	}
	return appendCell(b, v)
}

func (tableForm) begin(s *sheet, g *grouping) {
	s.out = append(s.out, "topic,timestamp"...)
	for _, f := range g.functions {
		s.out = append(append(s.out, ','), aggregates[f].name...)
	}
	s.out = append(s.out, '\n')
}

func (tableForm) topic(s *sheet, g *grouping, path string, r *rowSet, order []int) {
	head := appendField(s.head[:0], []byte(path))
	b, width := s.out, len(g.functions)+1
	for _, row := range order {
		b = append(b, head...)
		for column := range width {
			b = append(b, ',')
			b = append(b, r.cell(row, column, width)...)
		}
		b = append(b, '\n')
	}
	s.out, s.head = b, head
}

// appendCell appends a value as a field of CSV. Null is an empty field, empty text is "".
func appendCell(b []byte, v historian.Value) []byte {
	switch v.Kind {
	case historian.Null:
		return b
	case historian.Text, historian.JSON:
		return appendField(b, v.Raw)
	case historian.Bytes:
		return base64.StdEncoding.AppendEncode(b, v.Raw)
	}
	return v.AppendJSON(b)
}
