package web

import (
	"strconv"
	"sync"

	"millrace/historian"
	"millrace/uns"
)

// maxPageBytes is where a page of values ends early; one chunk of samples may still be added.
const maxPageBytes = 8 << 20

// appendText appends a JSON string.
func appendText(b []byte, s string) []byte {
	return historian.Value{Kind: historian.Text, Raw: []byte(s)}.AppendJSON(b)
}

// appendValue appends the members value, timestamp and quality of a sample, without braces.
func appendValue(b []byte, s *historian.Sample) []byte {
	b = append(b, `"value":`...)
	b = s.Value.AppendJSON(b)
	b = append(b, `,"timestamp":"`...)
	b = uns.AppendTime(b, s.Time, s.Scale)
	b = append(b, `","quality":"`...)
	b = append(b, s.Quality.String()...)
	return append(b, '"')
}

// sheet holds the buffers of one page of history while it is written. Sheets are pooled: a page costs no
// allocation per value beyond what the values themselves are.
type sheet struct {
	samples []historian.Sample
	out     []byte
	t, v, q []byte // the columns of the topic in hand
	head    []byte // what each row of the topic in hand starts with (ndjson, csv)
	topics  int
}

// sheets is the pool of sheets of one Web.
type sheets struct{ pool sync.Pool }

// maxPooled keeps a giant page from staying in memory for ever.
const maxPooled = 1 << 20

func (p *sheets) get() *sheet {
	if s, ok := p.pool.Get().(*sheet); ok {
		return s
	}
	return &sheet{}
}

func (p *sheets) put(s *sheet) {
	if cap(s.out)+cap(s.t)+cap(s.v)+cap(s.q) > maxPooled {
		return
	}
	clear(s.samples[:cap(s.samples)])
	*s = sheet{samples: s.samples[:0], out: s.out[:0], t: s.t[:0], v: s.v[:0], q: s.q[:0], head: s.head[:0]}
	p.pool.Put(s)
}

func (s *sheet) size() int { return len(s.out) + len(s.t) + len(s.v) + len(s.q) }

// layout writes one format of history into a sheet.
type layout interface {
	contentType() string
	begin(s *sheet)
	// topic starts the rows of a topic; millis says that its times are whole milliseconds.
	topic(s *sheet, path string, millis bool)
	rows(s *sheet, samples []historian.Sample, millis bool)
	topicEnd(s *sheet)
	end(s *sheet, next string)
}

// columns is the JSON layout: per topic one array of times, one of values, one of qualities.
type columns struct{}

func (columns) contentType() string { return "application/json" }

func (columns) begin(s *sheet) { s.out = append(s.out, `{"topics":[`...) }

func (columns) topic(s *sheet, path string, _ bool) {
	if s.topics > 0 {
		s.out = append(s.out, ',')
	}
	s.out = append(s.out, `{"topic":`...)
	s.out = appendText(s.out, path)
	s.out = append(s.out, `,"resolution":"raw","t":[`...)
}

func (columns) rows(s *sheet, samples []historian.Sample, millis bool) {
	t, v, q := s.t, s.v, s.q
	for i := range samples {
		sample := &samples[i]
		if len(t) > 0 {
			t, v, q = append(t, ','), append(v, ','), append(q, ',')
		}
		if millis {
			t = strconv.AppendInt(t, floorMillis(sample.Time), 10)
		} else {
			t = append(t, '"')
			t = uns.AppendTime(t, sample.Time, sample.Scale)
			t = append(t, '"')
		}
		v = sample.Value.AppendJSON(v)
		q = append(q, '"')
		q = append(q, sample.Quality.String()...)
		q = append(q, '"')
	}
	s.t, s.v, s.q = t, v, q
}

func (columns) topicEnd(s *sheet) {
	s.out = append(s.out, s.t...)
	s.out = append(s.out, `],"v":[`...)
	s.out = append(s.out, s.v...)
	s.out = append(s.out, `],"q":[`...)
	s.out = append(s.out, s.q...)
	s.out = append(s.out, `]}`...)
	s.t, s.v, s.q = s.t[:0], s.v[:0], s.q[:0]
}

func (columns) end(s *sheet, next string) {
	s.out = append(s.out, `],"next":"`...)
	s.out = append(s.out, next...)
	s.out = append(s.out, "\"}\n"...)
}

// lines is the NDJSON layout: one object a value.
type lines struct{}

func (lines) contentType() string { return "application/x-ndjson" }

func (lines) begin(*sheet) {}

func (lines) topic(s *sheet, path string, _ bool) {
	s.head = append(s.head[:0], `{"topic":`...)
	s.head = appendText(s.head, path)
	s.head = append(s.head, `,"timestamp":"`...)
}

func (lines) rows(s *sheet, samples []historian.Sample, _ bool) {
	b := s.out
	for i := range samples {
		sample := &samples[i]
		b = append(b, s.head...)
		b = uns.AppendTime(b, sample.Time, sample.Scale)
		b = append(b, `","value":`...)
		b = sample.Value.AppendJSON(b)
		b = append(b, `,"quality":"`...)
		b = append(b, sample.Quality.String()...)
		b = append(b, "\"}\n"...)
	}
	s.out = b
}

func (lines) topicEnd(*sheet) {}

func (lines) end(*sheet, string) {}

// table is the CSV layout (RFC 4180, but lines end in LF). Null is an empty field, empty text is "".
type table struct{}

func (table) contentType() string { return "text/csv; charset=utf-8; header=present" }

func (table) begin(s *sheet) { s.out = append(s.out, "topic,timestamp,value,quality\n"...) }

func (table) topic(s *sheet, path string, _ bool) {
	s.head = appendField(s.head[:0], []byte(path))
	s.head = append(s.head, ',')
}

func (table) rows(s *sheet, samples []historian.Sample, _ bool) {
	b := s.out
	for i := range samples {
		sample := &samples[i]
		b = append(b, s.head...)
		b = uns.AppendTime(b, sample.Time, sample.Scale)
		b = append(b, ',')
		b = appendCell(b, sample.Value)
		b = append(b, ',')
		b = append(b, sample.Quality.String()...)
		b = append(b, '\n')
	}
	s.out = b
}

func (table) topicEnd(*sheet) {}

func (table) end(*sheet, string) {}

// appendField quotes where the text could be taken for anything but itself.
func appendField(b, text []byte) []byte {
	plain := len(text) > 0 && text[0] != ' ' && text[len(text)-1] != ' '
	for _, c := range text {
		if c == ',' || c == '"' || c == '\n' || c == '\r' || c == '\t' {
			plain = false
			break
		}
	}
	if plain {
		return append(b, text...)
	}
	b = append(b, '"')
	for _, c := range text {
		if c == '"' {
			b = append(b, '"')
		}
		b = append(b, c)
	}
	return append(b, '"')
}

// floorMillis rounds towards the past, also before 1970.
func floorMillis(ns int64) int64 {
	ms := ns / 1_000_000
	if ns%1_000_000 < 0 {
		ms--
	}
	return ms
}
