package web

import (
	"context"
	"net/http"
	"strconv"

	"millrace/auth"
	"millrace/uns"
)

// LatestPage documents the answer of GET /uns/latest.
type LatestPage struct {
	Topics []LatestValue `json:"topics" doc:"In path order; topics without a value are left out"`
	Next   string        `json:"next" doc:"Cursor of the next page, or empty"`
}

// LatestValue documents the newest value of one topic.
type LatestValue struct {
	Topic string `json:"topic" doc:"Path within the workspace"`
	TopicValue
	AgeMS int64 `json:"age_ms" doc:"Milliseconds from timestamp to now"`
}

func (w *Web) addLatest() {
	type latestIn struct {
		WorkspaceParam
		PageParams
		Filter string `query:"filter" default:"#" doc:"Which topics" maxLength:"2048"`
	}
	register(w, route{method: http.MethodGet, path: "/uns/latest", id: "get-latest", tag: "UNS",
		rule: rule{role: auth.RoleViewer, clients: true}, summary: "Read the newest values",
		gives: map[string]any{"application/json": LatestPage{}}},
		func(ctx context.Context, c *caller, in *latestIn) (*written, error) {
			workspace, filter, after, err := w.listing(c, in.Workspace, in.Filter, in.Cursor)
			if err != nil {
				return nil, err
			}
			if err := w.reads.enter(ctx); err != nil {
				return nil, err
			}
			defer w.reads.leave()
			return w.latestPage(c, workspace, filter, after, in.Limit), nil
		})
}

func (w *Web) latestPage(c *caller, workspace, filter, after string, limit int) *written {
	// The topics are gathered first: a value is read outside the catalog's walk.
	topics := make([]*uns.Topic, 0, min(limit, defaultListing))
	more := false
	w.parts.Catalog.Match(workspace, filter, after, func(t *uns.Topic) bool {
		if !c.mayRead(t.Path) {
			return true
		}
		if len(topics) == limit {
			more = true
			return false
		}
		topics = append(topics, t)
		return true
	})
	now := w.now().UnixNano()
	b := append(make([]byte, 0, 128*len(topics)+64), `{"topics":[`...)
	count, last := 0, ""
	for i, t := range topics {
		last = t.Path
		if s, ok := w.parts.History.Latest(t.Series); ok {
			if count++; count > 1 {
				b = append(b, ',')
			}
			b = append(b, `{"topic":`...)
			b = appendText(b, t.Path)
			b = append(b, ',')
			b = appendValue(b, &s)
			b = append(b, `,"age_ms":`...)
			b = strconv.AppendInt(b, (now-s.Time)/1_000_000, 10)
			b = append(b, '}')
		}
		if len(b) >= maxPageBytes && i < len(topics)-1 {
			more = true
			break
		}
	}
	b = append(b, `],"next":"`...)
	if more {
		b = append(b, sealPath(last)...)
	}
	return writtenJSON(append(b, "\"}\n"...))
}
