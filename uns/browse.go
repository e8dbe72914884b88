package uns

// Child is one level below a path in the tree.
type Child struct {
	Level    string `json:"level"`
	Path     string `json:"path"`
	Topic    bool   `json:"topic"`    // a value lives here
	Children int    `json:"children"` // topics below, this one not counted
}

// Match calls fn in path order for topics whose path matches the MQTT filter and is > after, until false. The filter
// may be on full topics. Path order is level by level: a parent comes before its children, and all of a level's
// children before the next level. fn runs without a lock.
func (c *Catalog) Match(workspace, filter, after string, fn func(*Topic) bool) {
	paths, fault := c.ns.Filter(workspace, filter)
	if fault != "" {
		return
	}
	topics := c.spaces[workspace].tree.view()
	prefix := literal(paths)
	if prefix != "" {
		topics = topics[from(topics, prefix):behind(topics, prefix)]
	}
	if after != "" {
		topics = topics[from(topics, after):]
		if len(topics) > 0 && topics[0].Path == after {
			topics = topics[1:]
		}
	}
	for _, t := range topics {
		if Match(paths, t.Path) && !fn(t) {
			return
		}
	}
}

// Children lists one level in order, names > after, at most limit. path "" is the workspace itself; it may be a full
// topic. more says that the list was cut at limit.
func (c *Catalog) Children(workspace, path, after string, limit int) (list []Child, more bool) {
	sp := c.spaces[workspace]
	if sp == nil {
		return nil, false
	}
	if path == c.ns.root+"/"+workspace {
		path = ""
	}
	prefix := ""
	if path != "" {
		var fault string
		if path, fault = c.ns.Path(workspace, path); fault != "" {
			return nil, false
		}
		prefix = path + "/"
	}
	topics := sp.tree.view()
	topics = topics[:behind(topics, path)]
	if path != "" {
		start := from(topics, path)
		if start < len(topics) && topics[start].Path == path {
			start++
		}
		topics = topics[start:]
	}
	if after != "" {
		topics = topics[behind(topics, prefix+after):]
	}
	for len(topics) > 0 {
		if len(list) >= limit {
			return list, true
		}
		level, _, _ := cutLevel(topics[0].Path[len(prefix):])
		child := Child{Level: level, Path: topics[0].Path[:len(prefix)+len(level)]}
		below := behind(topics, child.Path)
		child.Topic = topics[0].Path == child.Path
		child.Children = below
		if child.Topic {
			child.Children--
		}
		list = append(list, child)
		topics = topics[below:]
	}
	return list, false
}
