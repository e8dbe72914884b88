package web

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"millrace/auth"
	"millrace/uns"
)

const (
	defaultListing = 1_000
	maxListing     = 10_000
	// maxScan bounds how many topics one page of a search looks at.
	maxScan = 200_000
	// maxCount bounds how many topics are looked at to count what an API client may see below one level.
	maxCount = 10_000
)

// WorkspaceParam is the parameter every /uns call has.
type WorkspaceParam struct {
	Workspace string `query:"workspace" doc:"Default: main; for an API client its own" maxLength:"64"`
}

// PageParams is the part of a request that pages.
type PageParams struct {
	Cursor string `query:"cursor" doc:"The next of the page before" maxLength:"8192"`
	Limit  int    `query:"limit" doc:"At most this many on one page" default:"1000" minimum:"1" maximum:"10000"`
}

// workspace resolves the workspace of a call and holds API clients to their own.
func (w *Web) workspace(c *caller, asked string) (string, error) {
	own := "main"
	if c.Principal != nil {
		own = c.Principal.Workspace()
	}
	if asked == "" || asked == own {
		asked = own
	} else if c.Principal != nil {
		return "", problem(http.StatusForbidden, "not_authorized", "the client belongs to the workspace "+own, "leave workspace out")
	}
	if !w.parts.Namespace.HasWorkspace(asked) {
		return "", invalid("workspace", fmt.Sprintf("there is no workspace %q", asked), "the workspaces are set by uns.workspaces")
	}
	return asked, nil
}

// path resolves a topic as REST takes it, path or full topic.
func (w *Web) path(workspace, topic string) (string, error) {
	path, fault := w.parts.Namespace.Path(workspace, topic)
	if fault != "" {
		return "", invalid("topic", fault, "send the topic's path, as in line1/press/temp")
	}
	return path, nil
}

// topic looks a topic up that the caller may read.
func (w *Web) topic(c *caller, workspace, topic string) (*uns.Topic, error) {
	path, err := w.path(workspace, topic)
	if err != nil {
		return nil, err
	}
	if !c.mayRead(path) {
		return nil, problem(http.StatusForbidden, "not_authorized", "no grant lets this client read "+path, "an administrator can grant subscribe on it")
	}
	t := w.parts.Catalog.Lookup(workspace, path)
	if t == nil {
		p := problem(http.StatusNotFound, "topic_not_found", "there is no topic "+path+" in the workspace "+workspace, "topics appear with their first value; GET /api/v1/uns/search finds them")
		p.Field = "topic"
		return nil, p
	}
	return t, nil
}

// filter resolves a filter over paths; the full form is accepted too.
func (w *Web) filter(workspace, filter string) (string, error) {
	paths, fault := w.parts.Namespace.Filter(workspace, filter)
	if fault != "" {
		return "", invalid("filter", fault, "send for example line1/# or +/press/temp")
	}
	return paths, nil
}

// listing resolves what every page of topics begins with: workspace, filter over paths, and the path that the page before ended with.
func (w *Web) listing(c *caller, asked, askedFilter, cursor string) (workspace, filter, after string, err error) {
	if workspace, err = w.workspace(c, asked); err != nil {
		return "", "", "", err
	}
	if filter, err = w.filter(workspace, askedFilter); err != nil {
		return "", "", "", err
	}
	after, err = openPath(cursor)
	return workspace, filter, after, err
}

// TopicSchema documents the schema of a topic as GET and PUT /uns/topic have it.
type TopicSchema struct {
	Type string `json:"type,omitempty" enum:"number,integer,boolean,string,object,array,any,text,bytes" doc:"What values must be"`
	Unit string `json:"unit,omitempty" doc:"Unit of the value"`
	Min  any    `json:"min,omitempty" doc:"Least value, a number"`
	Max  any    `json:"max,omitempty" doc:"Greatest value, a number"`
	Enum []any  `json:"enum,omitempty" doc:"The values allowed"`
	Mode string `json:"mode,omitempty" enum:"strict,soft" doc:"strict refuses, soft stores with quality uncertain"`
}

// TopicSettings documents the body of PUT /uns/topic: absent members stay as they are.
type TopicSettings struct {
	Schema           *TopicSchema `json:"schema,omitempty" doc:"What values must look like"`
	Retention        string       `json:"retention,omitempty" doc:"1d 7d 14d 32d 90d 366d 1830d or forever"`
	TimestampUnit    string       `json:"timestampUnit,omitempty" doc:"Unit of numeric timestamps: s ms us ns"`
	TimeZone         string       `json:"timeZone,omitempty" doc:"Zone of timestamps that name none"`
	ExpectedInterval string       `json:"expectedInterval,omitempty" doc:"How often a value is expected; silence beyond three times this is stale"`
}

// TopicDetail documents the answer of GET and PUT /uns/topic.
type TopicDetail struct {
	Topic     string `json:"topic" doc:"Path within the workspace"`
	Full      string `json:"full" doc:"The MQTT topic"`
	Workspace string `json:"workspace" doc:"Workspace"`
	TopicSettings
	Latest     *TopicValue `json:"latest" doc:"The newest value, or null"`
	StaleSince *time.Time  `json:"stale_since" doc:"Since when a value is overdue: three times expectedInterval after the last came; null when none is"`
	Violations uint64      `json:"violations" doc:"Values since start that were refused for what they say, or stored as uncertain"`
}

// TopicValue documents a value with its time and quality.
type TopicValue struct {
	Value     any    `json:"value" doc:"The device's value, digit for digit"`
	Timestamp string `json:"timestamp" doc:"RFC 3339, milliseconds or finer"`
	Quality   string `json:"quality" enum:"good,uncertain,bad" doc:"How far the value may be trusted"`
}

// TopicIn names one topic. (Exported, because the REST library skips what is not.)
type TopicIn struct {
	WorkspaceParam
	Topic string `query:"topic" required:"true" doc:"Path or full topic" maxLength:"2048"`
}

func (w *Web) addTopics() {
	w.addDelete()
	read := rule{role: auth.RoleViewer, clients: true}
	w.addChildren(read)
	w.addSearch(read)

	detail := map[string]any{"application/json": TopicDetail{}}
	register(w, route{method: http.MethodGet, path: "/uns/topic", id: "get-topic", tag: "UNS", rule: read, missing: true,
		summary: "Show one topic", doc: "Its settings and its newest value.", gives: detail},
		func(_ context.Context, c *caller, in *TopicIn) (*written, error) {
			workspace, err := w.workspace(c, in.Workspace)
			if err != nil {
				return nil, err
			}
			t, err := w.topic(c, workspace, in.Topic)
			if err != nil {
				return nil, err
			}
			return w.topicDetail(t)
		})

	type setIn struct {
		TopicIn
		RawBody []byte `contentType:"application/json"`
	}
	register(w, route{method: http.MethodPut, path: "/uns/topic", id: "set-topic", tag: "UNS", rule: rule{role: auth.RoleDesigner},
		summary: "Set a topic's schema, retention and time settings",
		doc:     "Absent members stay as they are; null resets one. A topic that is new is made.",
		takes:   map[string]any{"application/json": TopicSettings{}}, gives: detail},
		func(ctx context.Context, c *caller, in *setIn) (*written, error) {
			workspace, err := w.workspace(c, in.Workspace)
			if err != nil {
				return nil, err
			}
			path, err := w.path(workspace, in.Topic)
			if err != nil {
				return nil, err
			}
			if err := plainJSON(in.RawBody); err != nil {
				return nil, problem(http.StatusBadRequest, "malformed", "the body cannot be read: "+jsonFault(err), `send for example {"retention":"32d"}`)
			}
			ctx, cancel := context.WithTimeout(ctx, writeWait)
			defer cancel()
			done := auth.Event{Category: "topic", Action: "set", ID: path}
			if old := w.parts.Catalog.Lookup(workspace, path); old != nil {
				done.Before = old.Settings()
			}
			t, err := w.parts.Catalog.Set(ctx, workspace, path, in.RawBody)
			if err == nil {
				done.After = t.Settings()
			}
			if err := w.noted(c, done, err); err != nil {
				return nil, err
			}
			return w.topicDetail(t)
		})
}

func (w *Web) addDelete() {
	type gone struct{}
	type deleteIn struct {
		TopicIn
		Purge bool `query:"purge" doc:"Take what it leaves off the disk within minutes; without it the octets go as the retention of the topic would have it"`
	}
	register(w, route{method: http.MethodDelete, path: "/uns/topic", id: "delete-topic", tag: "UNS", rule: rule{role: auth.RoleDesigner}, missing: true,
		status: http.StatusNoContent, summary: "Delete a topic with its history",
		doc: "Values, settings and the retained value are gone at once and for good. A value that comes afterwards makes the topic anew."},
		func(ctx context.Context, c *caller, in *deleteIn) (*gone, error) {
			workspace, err := w.workspace(c, in.Workspace)
			if err != nil {
				return nil, err
			}
			t, err := w.topic(c, workspace, in.Topic)
			if err != nil {
				return nil, err
			}
			ctx, cancel := context.WithTimeout(ctx, writeWait)
			defer cancel()
			ok, err := w.parts.Catalog.Delete(ctx, t, in.Purge)
			if err = w.noted(c, auth.Event{Category: "topic", Action: "delete", ID: t.Path}, err); err != nil {
				return nil, err
			}
			if !ok { // somebody was faster
				_, err = w.topic(c, workspace, in.Topic)
			}
			return nil, err
		})
}

func (w *Web) topicDetail(t *uns.Topic) (*written, error) {
	settings, err := json.Marshal(t.Settings())
	if err != nil {
		return nil, err
	}
	b := append([]byte(nil), `{"topic":`...)
	b = appendText(b, t.Path)
	b = append(b, `,"full":`...)
	b = appendText(b, t.Full)
	b = append(b, `,"workspace":`...)
	b = appendText(b, t.Workspace)
	if inner := settings[1 : len(settings)-1]; len(inner) > 0 {
		b = append(append(b, ','), inner...)
	}
	b = append(b, `,"latest":`...)
	if s, ok := w.parts.History.Latest(t.Series); ok {
		b = appendValue(append(b, '{'), &s)
		b = append(b, '}')
	} else {
		b = append(b, "null"...)
	}
	b = append(b, `,"stale_since":`...)
	if since, stale := w.parts.Catalog.Silence(t, w.now()); stale {
		b = since.UTC().AppendFormat(b, `"`+time.RFC3339Nano+`"`)
	} else {
		b = append(b, "null"...)
	}
	violations, _ := t.Violations()
	b = strconv.AppendUint(append(b, `,"violations":`...), violations, 10)
	return writtenJSON(append(b, '}', '\n')), nil
}

func (w *Web) addChildren(read rule) {
	type childrenIn struct {
		WorkspaceParam
		PageParams
		Path string `query:"path" doc:"The level to list below; empty = the top" maxLength:"2048"`
	}
	type childrenOut struct {
		Body struct {
			Children []uns.Child `json:"children" doc:"Levels in order"`
			Next     string      `json:"next" doc:"Cursor of the next page, or empty"`
		} `nameHint:"Children"`
	}
	register(w, route{method: http.MethodGet, path: "/uns/children", id: "list-children", tag: "UNS", rule: read,
		summary: "List one level of the topic tree",
		doc:     "For an API client only what its grants let it read; its counts stop at 10,000."},
		func(_ context.Context, c *caller, in *childrenIn) (*childrenOut, error) {
			workspace, err := w.workspace(c, in.Workspace)
			if err != nil {
				return nil, err
			}
			path := ""
			if in.Path != "" {
				if path, err = w.path(workspace, in.Path); err != nil {
					return nil, err
				}
			}
			after, err := openPath(in.Cursor)
			if err != nil {
				return nil, err
			}
			out := &childrenOut{}
			out.Body.Children = []uns.Child{}
			list, more := w.parts.Catalog.Children(workspace, path, after, in.Limit)
			for _, child := range list {
				if w.permitted(c, workspace, &child) {
					out.Body.Children = append(out.Body.Children, child)
				}
			}
			if more && len(list) > 0 {
				out.Body.Next = sealPath(list[len(list)-1].Level)
			}
			return out, nil
		})
}

// permitted says whether the caller may see a level, and narrows its counts to what they may read.
func (w *Web) permitted(c *caller, workspace string, child *uns.Child) bool {
	if c.policy == nil {
		return true
	}
	child.Topic = child.Topic && c.mayRead(child.Path)
	if child.Children > 0 {
		below := child.Path + "/#"
		seen, all := 0, child.Children
		child.Children = 0
		if c.couldRead(below) {
			w.parts.Catalog.Match(workspace, below, child.Path, func(t *uns.Topic) bool {
				if seen++; c.mayRead(t.Path) {
					child.Children++
				}
				return seen < maxCount
			})
			if child.Children == 0 && seen < all {
				// The walk was cut short: better a level that may turn out empty than one that cannot be reached.
				return true
			}
		}
	}
	return child.Topic || child.Children > 0
}

func (w *Web) addSearch(read rule) {
	type searchIn struct {
		WorkspaceParam
		PageParams
		Q     string `query:"q" doc:"Part of the path; case does not count" maxLength:"1024"`
		State string `query:"state" enum:"stale,bad,uncertain,nodata,violated" doc:"Topics in this state only: overdue, with a last value of that quality, without any value, with violations since start"`
	}
	type found struct {
		Topic string `json:"topic" doc:"Path within the workspace"`
		Unit  string `json:"unit,omitempty" doc:"Unit of its values"`
	}
	type searchOut struct {
		Body struct {
			Topics []found `json:"topics" doc:"Topics in path order"`
			Next   string  `json:"next" doc:"Cursor of the next page, or empty; a page may hold fewer than limit and yet not be the last"`
		} `nameHint:"SearchResult"`
	}
	register(w, route{method: http.MethodGet, path: "/uns/search", id: "search-topics", tag: "UNS", rule: read,
		summary: "Find topics by a part of their path, or by their state"},
		func(ctx context.Context, c *caller, in *searchIn) (*searchOut, error) {
			workspace, err := w.workspace(c, in.Workspace)
			if err != nil {
				return nil, err
			}
			after, err := openPath(in.Cursor)
			if err != nil {
				return nil, err
			}
			if err := w.reads.enter(ctx); err != nil {
				return nil, err
			}
			defer w.reads.leave()
			out := &searchOut{}
			out.Body.Topics = []found{}
			wanted := strings.ToLower(in.Q)
			scanned, last, more := 0, "", false
			w.parts.Catalog.Match(workspace, "#", after, func(t *uns.Topic) bool {
				if len(out.Body.Topics) == in.Limit || scanned == maxScan {
					more = true
					return false
				}
				scanned++
				last = t.Path
				if strings.Contains(strings.ToLower(t.Path), wanted) && c.mayRead(t.Path) && (in.State == "" || w.inState(t, in.State)) {
					out.Body.Topics = append(out.Body.Topics, found{t.Path, t.Settings().Schema.Unit})
				}
				return true
			})
			if more {
				out.Body.Next = sealPath(last)
			}
			return out, nil
		})
}

// inState says whether a topic is in a state that a search names.
func (w *Web) inState(t *uns.Topic, state string) bool {
	switch state {
	case "stale":
		_, stale := w.parts.Catalog.Silence(t, w.now())
		return stale
	case "violated":
		n, _ := t.Violations()
		return n > 0
	}
	s, ok := w.parts.History.Latest(t.Series)
	if state == "nodata" {
		return !ok
	}
	return ok && s.Quality.String() == state
}
