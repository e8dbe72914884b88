package main

import (
	"context"
	"fmt"
	"time"

	"millrace/historian"
	"millrace/pipeline/node"
	"millrace/pipeline/nodes"
	"millrace/pipeline/value"
	"millrace/uns"
)

// pipelineReader is the namespace and its history as nodes of pipelines read them.
type pipelineReader struct {
	names   *uns.Namespace
	catalog *uns.Catalog
	values  *historian.Store
}

// given makes a value of a sample's.
func given(v historian.Value) value.Value {
	x, err := value.Parse(v.AppendJSON(nil))
	if err != nil { // it was JSON when it was stored
		return value.Null()
	}
	return x
}

func readingOf(t *uns.Topic, s *historian.Sample) nodes.Reading {
	return nodes.Reading{Topic: t.Path, Value: given(s.Value), Timestamp: string(uns.AppendTime(nil, s.Time, s.Scale)), Quality: s.Quality.String(), Unit: t.Settings().Schema.Unit}
}

// Latest implements nodes.Reader.
func (r pipelineReader) Latest(workspace, filter string, limit int) ([]nodes.Reading, error) {
	paths, fault := r.names.Filter(workspace, filter)
	if fault != "" {
		return nil, &node.Failure{Message: fmt.Sprintf("filter %q: %s", filter, fault), Permanent: true}
	}
	var topics []*uns.Topic
	r.catalog.Match(workspace, paths, "", func(t *uns.Topic) bool {
		topics = append(topics, t)
		return len(topics) < limit
	})
	list := make([]nodes.Reading, 0, len(topics))
	for _, t := range topics {
		if s, ok := r.catalog.Latest(t); ok {
			list = append(list, readingOf(t, &s))
		}
	}
	return list, nil
}

func (r pipelineReader) topic(workspace, topic string) (*uns.Topic, error) {
	path, fault := r.names.Path(workspace, topic)
	if fault != "" {
		return nil, &node.Failure{Message: fmt.Sprintf("topic %q: %s", topic, fault), Permanent: true}
	}
	return r.catalog.Lookup(workspace, path), nil
}

// Raw implements nodes.Reader. A topic that is not there has no values.
func (r pipelineReader) Raw(ctx context.Context, workspace, topic string, from, to time.Time, limit int) ([]nodes.Reading, error) {
	t, err := r.topic(workspace, topic)
	if err != nil || t == nil {
		return nil, err
	}
	page, _, err := r.values.Raw(ctx, nil, historian.Query{Series: t.Series, From: from.UnixNano(), To: to.UnixNano(), Limit: limit})
	if err != nil {
		return nil, err
	}
	list := make([]nodes.Reading, len(page))
	for i := range page {
		list[i] = readingOf(t, &page[i])
	}
	return list, nil
}

// Summary implements nodes.Reader.
func (r pipelineReader) Summary(ctx context.Context, workspace, topic string, from, to time.Time) (s nodes.Summary, err error) {
	t, err := r.topic(workspace, topic)
	if err != nil || t == nil {
		return s, err
	}
	err = r.values.Aggregate(ctx, historian.Aggregation{Series: []historian.Series{t.Series}, From: from.UnixNano(), To: to.UnixNano()}, func(_ int, b *historian.Bucket) bool {
		s.Count = b.Count
		if b.Numbered {
			s.Avg, s.Min, s.Max = value.Float(b.Avg), given(b.Min), given(b.Max)
			if b.Sum.Kind != historian.Null {
				s.Sum = given(b.Sum)
			}
		}
		if b.Valued {
			s.First, s.Last = given(b.First), given(b.Last)
		}
		return true
	})
	return s, err
}
