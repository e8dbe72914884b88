package nodes

import (
	"context"
	"time"

	"millrace/pipeline/node"
	"millrace/pipeline/value"
)

// Reading is one stored value.
type Reading struct {
	Topic     string // path
	Value     value.Value
	Timestamp string // RFC 3339 with the precision that was sent
	Quality   string
	Unit      string
}

// object is what a pipeline sees of it.
func (r *Reading) object() value.Value {
	v := value.Object(value.Field{Name: "topic", Value: value.Text(r.Topic)}, value.Field{Name: "value", Value: r.Value}, value.Field{Name: "timestamp", Value: value.Text(r.Timestamp)}, value.Field{Name: "quality", Value: value.Text(r.Quality)})
	if r.Unit != "" {
		v = v.With("unit", value.Text(r.Unit))
	}
	return v
}

// Summary is what a stretch of time amounts to; a figure that is not there is missing.
type Summary struct {
	Count                           uint64
	Avg, Min, Max, Sum, First, Last value.Value
}

// Reader reads the namespace and its history, within one workspace. An error that is a *node.Failure is the pipeline's fault.
type Reader interface {
	// Latest gives the last values of the topics that match, in the order of their paths, at most limit; topics without one are left out.
	Latest(workspace, filter string, limit int) ([]Reading, error)
	// Raw gives values with from <= time < to, oldest first, at most limit.
	Raw(ctx context.Context, workspace, topic string, from, to time.Time, limit int) ([]Reading, error)
	// Summary sums the same up.
	Summary(ctx context.Context, workspace, topic string, from, to time.Time) (Summary, error)
}

// noReader is the reader of a compiler that only checks.
type noReader struct{}

var errNoReader = &node.Failure{Message: "there is no namespace to read here", Permanent: true}

func (noReader) Latest(string, string, int) ([]Reading, error) { return nil, errNoReader }
func (noReader) Raw(context.Context, string, string, time.Time, time.Time, int) ([]Reading, error) {
	return nil, errNoReader
}
func (noReader) Summary(context.Context, string, string, time.Time, time.Time) (Summary, error) {
	return Summary{}, errNoReader
}
