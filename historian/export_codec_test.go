package historian

// The codec as the tests see it.

const MaxChunkSamples = maxChunkSamples

var (
	ErrCorrupt  = errCorrupt
	EncodeChunk = encodeChunk
	DecodeChunk = decodeChunk
	ChunkSpan   = chunkSpan
	ReadRecord  = readRecord
)

// RecordWriter is a recordWriter.
type RecordWriter struct{ w recordWriter }

func (r *RecordWriter) Reset()        { r.w.reset() }
func (r *RecordWriter) Add(s *Sample) { r.w.add(s) }
func (r *RecordWriter) Bytes() []byte { return r.w.bytes() }
func (r *RecordWriter) Len() int      { return r.w.len() }
func (r *RecordWriter) Count() int    { return r.w.count() }

// Column is a column.
type Column struct{ c column }

func (c *Column) Add(s *Sample)                       { c.c.add(s) }
func (c *Column) Count() int                          { return c.c.count() }
func (c *Column) Size() int                           { return c.c.size() }
func (c *Column) Span() (from, to int64)              { return c.c.minTime(), c.c.maxTime() }
func (c *Column) AppendSamples(dst []Sample) []Sample { return c.c.appendSamples(dst) }

// AppendInts and ReadInts are one integer column.
func AppendInts(dst []byte, v []int64) []byte { return appendInts(dst, v) }

func ReadInts(b []byte, v []int64) error {
	o := octets{b: b}
	if o.ints(v); o.bad || len(o.b) != 0 {
		return errCorrupt
	}
	return nil
}
