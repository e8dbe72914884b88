package uns

import (
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
)

// tree keeps the topics of a workspace in path order for those who browse. Adding is an append under a short lock;
// sorting waits until somebody looks, and what they look at is never changed afterwards.
type tree struct {
	mu      sync.Mutex
	pending []*Topic

	merge  sync.Mutex // held while pending is worked in
	sorted atomic.Pointer[[]*Topic]
}

func (t *tree) add(x *Topic) {
	t.mu.Lock()
	t.pending = append(t.pending, x)
	t.mu.Unlock()
}

// view is every topic added before the call, in path order. The slice is shared and immutable.
func (t *tree) view() []*Topic {
	t.mu.Lock()
	idle := len(t.pending) == 0
	t.mu.Unlock()
	if idle {
		// What another reader is just merging was added before this call, too.
		t.merge.Lock()
		defer t.merge.Unlock()
		return t.current()
	}
	t.merge.Lock()
	defer t.merge.Unlock()
	t.mu.Lock()
	fresh := t.pending
	t.pending = nil
	t.mu.Unlock()
	old := t.current()
	if len(fresh) == 0 {
		return old
	}
	slices.SortFunc(fresh, func(a, b *Topic) int { return comparePaths(a.Path, b.Path) })
	all := make([]*Topic, 0, len(old)+len(fresh))
	for _, x := range fresh {
		// Binary search rather than a walk: a few new topics among a million must not cost a million comparisons.
		n := sort.Search(len(old), func(i int) bool { return comparePaths(old[i].Path, x.Path) > 0 })
		all = append(append(all, old[:n]...), x)
		old = old[n:]
	}
	all = append(all, old...)
	t.sorted.Store(&all)
	return all
}

func (t *tree) current() []*Topic {
	if p := t.sorted.Load(); p != nil {
		return *p
	}
	return nil
}

// comparePaths is path order: level by level, each by bytes, a parent before its children. The slash sorts below every
// other byte, so that all that lies below a path stands together.
func comparePaths(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		x, y := a[i], b[i]
		if x == y {
			continue
		}
		switch {
		case x == '/':
			return -1
		case y == '/':
			return 1
		case x < y:
			return -1
		}
		return 1
	}
	return len(a) - len(b)
}

// from is the place of the first topic that is not before path.
func from(topics []*Topic, path string) int {
	return sort.Search(len(topics), func(i int) bool { return comparePaths(topics[i].Path, path) >= 0 })
}

// behind is the place of the first topic that is after path and everything below it.
func behind(topics []*Topic, path string) int {
	return sort.Search(len(topics), func(i int) bool {
		return comparePaths(topics[i].Path, path) > 0 && !under(topics[i].Path, path)
	})
}

// under tells whether path lies below parent; everything lies below "".
func under(path, parent string) bool {
	return parent == "" || len(path) > len(parent) && path[len(parent)] == '/' && strings.HasPrefix(path, parent)
}

// literal is the part of a filter before its first wildcard, without the slash.
func literal(filter string) string {
	i := strings.IndexAny(filter, "+#")
	if i < 0 {
		return filter
	}
	return strings.TrimSuffix(filter[:i], "/")
}
