package uns

import (
	"fmt"
	"slices"
	"strings"
)

// Namespace parses topics. Immutable, safe for concurrent use.
type Namespace struct {
	root       string
	workspaces []string
}

// NewNamespace takes Namespace and Workspaces of validated options.
func NewNamespace(o Options) *Namespace {
	return &Namespace{root: o.Namespace, workspaces: slices.Clone(o.Workspaces)}
}

// Root is the first level of every stored topic, mHv1.0.
func (n *Namespace) Root() string { return n.root }

// Workspaces lists the workspaces in the order of the configuration. The slice is the caller's.
func (n *Namespace) Workspaces() []string { return slices.Clone(n.workspaces) }

// HasWorkspace tells whether w is one of the configured workspaces.
func (n *Namespace) HasWorkspace(w string) bool { return slices.Contains(n.workspaces, w) }

// Default is the workspace of whoever names none: the first of uns.workspaces.
func (n *Namespace) Default() string { return n.workspaces[0] }

// Full gives root/<workspace>/<path>.
func (n *Namespace) Full(workspace, path string) string {
	return n.root + "/" + workspace + "/" + path
}

// Verdicts is the topic at and below which a client is told verdicts.
func (n *Namespace) Verdicts(workspace, client string) string {
	return n.Full(workspace, verdictLevel+"/"+client)
}

// Parse resolves a publish topic as seen by client (its id decides whose inbox is its own). Contract section 3.
func (n *Namespace) Parse(topic, client string) Name {
	rest, below := n.below(topic)
	if !below {
		return Name{Place: Ordinary}
	}
	workspace, path, _ := cutLevel(rest)
	if !n.HasWorkspace(workspace) {
		return Name{Place: Invalid, Fault: n.unknownWorkspace(workspace)}
	}
	name := Name{Place: Value, Workspace: workspace, Path: path}
	first, after, _ := cutLevel(path)
	switch {
	case first == ingressLevel:
		return n.inbox(name, after, client)
	case first == verdictLevel:
		return n.verdict(name, after)
	case reserved(first):
		name.Place, name.Fault = Reserved, reservedFault(first)
		return name
	}
	return n.value(name)
}

// value checks name.Path as the path of a stored topic.
func (n *Namespace) value(name Name) Name {
	if fault := n.Fault(name.Path); fault != "" {
		name.Place, name.Fault = Invalid, fault
	}
	return name
}

func (n *Namespace) inbox(name Name, after, client string) Name {
	owner, path, _ := cutLevel(after)
	name.Client, name.Path = owner, path
	if owner == "" {
		name.Place, name.Fault = Invalid, fmt.Sprintf("the inbox names no client: wanted %s/%s/%s/<client id>/<path>", n.root, name.Workspace, ingressLevel)
		return name
	}
	if owner != client {
		name.Place, name.Fault = ForeignInbox, fmt.Sprintf("the inbox belongs to client %s", clip([]byte(owner)))
		return name
	}
	return n.value(name)
}

func (n *Namespace) verdict(name Name, after string) Name {
	owner, _, _ := cutLevel(after)
	name.Place, name.Client = VerdictTopic, owner
	if owner == "" {
		name.Place, name.Fault = Invalid, fmt.Sprintf("the verdict topic names no client: wanted %s/%s/%s/<client id>/…", n.root, name.Workspace, verdictLevel)
	} else if fault := pathFault(name.Path); fault != "" {
		name.Place, name.Fault = Invalid, fault
	}
	return name
}

// Fault checks a path as that of a stored topic; "" means that it is good.
func (n *Namespace) Fault(path string) string {
	first, _, _ := cutLevel(path)
	switch {
	case reserved(first):
		return reservedFault(first)
	case first == n.root:
		// Everywhere but on MQTT a path and a full topic may both be given; this keeps the two apart.
		return fmt.Sprintf("level 1 of the path is %s, the namespace itself", n.root)
	}
	return pathFault(path)
}

// Path takes a path or full topic as REST and CLI give it. fault "" = fine.
func (n *Namespace) Path(workspace, topic string) (path, fault string) {
	if !n.HasWorkspace(workspace) {
		return "", n.unknownWorkspace(workspace)
	}
	if rest, below := n.below(topic); below {
		named, path, _ := cutLevel(rest)
		if named != workspace {
			return "", fmt.Sprintf("the topic is in workspace %s, asked for was %s", clip([]byte(named)), clip([]byte(workspace)))
		}
		topic = path
	}
	if fault := n.Fault(topic); fault != "" {
		return "", fault
	}
	return topic, ""
}

// Filter takes a filter on paths or on full topics, as REST and triggers give it. fault "" = fine.
func (n *Namespace) Filter(workspace, filter string) (paths, fault string) {
	if !n.HasWorkspace(workspace) {
		return "", n.unknownWorkspace(workspace)
	}
	if rest, below := n.below(filter); below {
		named, paths, _ := cutLevel(rest)
		if named != workspace {
			return "", fmt.Sprintf("the filter is in workspace %s, asked for was %s", clip([]byte(named)), clip([]byte(workspace)))
		}
		filter = paths
	}
	if !ValidFilter(filter) {
		return "", fmt.Sprintf("%s is not an MQTT filter: + stands for one whole level, # for the last and all below", clip([]byte(filter)))
	}
	return filter, ""
}

// below cuts the namespace off a topic. The namespace itself counts as below: root/# matches it, so it must not be a
// plain topic that anyone may fill.
func (n *Namespace) below(topic string) (rest string, ok bool) {
	rest, ok = strings.CutPrefix(topic, n.root)
	if !ok || rest != "" && rest[0] != '/' {
		return "", false
	}
	return strings.TrimPrefix(rest, "/"), true
}

func (n *Namespace) unknownWorkspace(w string) string {
	known := strings.Join(n.workspaces, ", ")
	if w == "" {
		return fmt.Sprintf("the topic names no workspace: wanted %s/<workspace>/<path>, known: %s", n.root, known)
	}
	return fmt.Sprintf("unknown workspace %s, known: %s", clip([]byte(w)), known)
}
