package uns

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"millrace/historian"
)

// Store is the historian as ingress needs it.
type Store interface {
	// CreateSeries returns a new id. The row is durable no later than any sample appended afterwards; it never waits for
	// the disk.
	CreateSeries(name string, class historian.Class, meta []byte) (historian.Series, error)
	// SetSeries replaces class and meta, durably.
	SetSeries(ctx context.Context, id historian.Series, class historian.Class, meta []byte) error
	// DeleteSeries ends a series, durably: nobody can read or append to it any more. purge: what it leaves goes off the disk
	// within minutes.
	DeleteSeries(ctx context.Context, id historian.Series, purge bool) error
	// Append returns when all of samples and rows are durable; after an error none of them is.
	Append(ctx context.Context, samples []historian.Sample, rows []historian.Row) error
	// HasRow says whether a row is committed.
	HasRow(key []byte) (bool, error)
}

// Reader is the historian as catalog start-up and latest need it.
type Reader interface {
	EachSeries(fn func(historian.SeriesRow) bool) error
	Latest(id historian.Series) (historian.Sample, bool)
	// Rows calls fn for every row whose key starts with prefix, in key order.
	Rows(prefix []byte, fn func(key, value []byte) bool) error
}

// Sample is historian.Sample, so that broker need not import historian.
type Sample = historian.Sample

// Row is an opaque record in the commit of a batch's samples; see historian.Row.
type Row = historian.Row

// Catalog holds every topic of every workspace. Safe for concurrent use.
type Catalog struct {
	ns     *Namespace
	store  Store
	reader Reader
	log    *slog.Logger
	late   time.Duration
	max    int
	spaces map[string]*space
	// plain holds the rules of topics that nobody has set anything for, by retention class: a million of them share one.
	plain   [historian.ClassForever + 1]*rules
	initial *rules
	series  seriesIndex
	toggles atomic.Uint64 // the last number given to a clearing or restoring of a retained value
	stale   staleRows
	// expected are the topics with an expected interval.
	expected       expectedTopics
	violatedTopics atomic.Int64
}

// OpenCatalog loads the topics that the store knows. o must be valid. Topics of workspaces that are no longer
// configured stay in the store, untouched and out of reach.
func OpenCatalog(ns *Namespace, st Store, r Reader, o Options) (*Catalog, error) {
	late, err := lateWindow(o.LateWindow)
	if err != nil {
		return nil, fmt.Errorf("uns: lateWindow: %w", err)
	}
	c := &Catalog{ns: ns, store: st, reader: r, log: quiet(o.Log).With("part", "uns"), late: late, max: o.Ingress.MaxTopics}
	for class := range c.plain {
		name := historian.Class(class).String()
		plain, fault := compile(Settings{Retention: name}, late)
		if fault != nil {
			return nil, fmt.Errorf("uns: retention class %d: %w", class, fault)
		}
		c.plain[class] = plain
	}
	if int(o.DefaultClass) >= len(c.plain) {
		return nil, fmt.Errorf("uns: default retention class %d does not exist", o.DefaultClass)
	}
	c.initial = c.plain[o.DefaultClass]
	c.spaces = make(map[string]*space, len(ns.workspaces))
	for _, w := range ns.workspaces {
		c.spaces[w] = newSpace(w, o.Ingress.PerWorkspaceRatePerSec)
	}
	return c, c.load()
}

func (c *Catalog) load() error {
	var fault error
	unreachable := 0
	cleared, err := c.loadToggles()
	if err != nil {
		return err
	}
	err = c.reader.EachSeries(func(row historian.SeriesRow) bool {
		workspace, path, _ := cutLevel(row.Name)
		sp := c.spaces[workspace]
		if sp == nil {
			unreachable++
			return true
		}
		r, err := c.rulesOf(row)
		if err != nil {
			fault = fmt.Errorf("uns: settings of topic %q (series %d): %w", row.Name, row.Series, err)
			return false
		}
		t := c.newTopic(workspace, path, r)
		t.Series = row.Series
		if o := cleared[t.Series]; o.cleared {
			t.toggled.Store(o.n<<1 | 1)
		}
		sp.keep(t)
		c.series.set(t.Series, t)
		c.expected.follow(t, r)
		return true
	})
	if unreachable > 0 {
		c.log.Warn("topics of unknown workspaces are out of reach, list their workspaces in uns.workspaces", "topics", unreachable)
	}
	return errors.Join(err, fault)
}

func (c *Catalog) rulesOf(row historian.SeriesRow) (*rules, error) {
	if int(row.Class) >= len(c.plain) {
		return nil, fmt.Errorf("retention class %d does not exist", row.Class)
	}
	if len(row.Meta) == 0 {
		return c.plain[row.Class], nil
	}
	s, err := decodeSettings(row.Meta)
	if err != nil {
		return nil, err
	}
	s.Retention = row.Class.String()
	r, fault := compile(s, c.late)
	if fault != nil {
		return nil, fault
	}
	return r, nil
}

func (c *Catalog) newTopic(workspace, path string, r *rules) *Topic {
	full := c.ns.Full(workspace, path)
	root := len(c.ns.root) + 1
	t := &Topic{
		// Parts of one string: a caller's path may lie in a buffer that is used again.
		Full:      full,
		Workspace: full[root : root+len(workspace)],
		Path:      full[root+len(workspace)+1:],
	}
	t.rules.Store(r)
	return t
}

// Lookup returns the topic of a path, nil if there is none. No allocation.
func (c *Catalog) Lookup(workspace, path string) *Topic {
	sp := c.spaces[workspace]
	if sp == nil {
		return nil
	}
	return sp.lookup(path)
}

// Len counts the topics of a workspace.
func (c *Catalog) Len(workspace string) int {
	if sp := c.spaces[workspace]; sp != nil {
		return int(sp.count.Load())
	}
	return 0
}

// Latest is the newest sample of a topic. It owns its bytes.
func (c *Catalog) Latest(t *Topic) (Sample, bool) { return c.reader.Latest(t.Series) }

// errTopicLimit: the workspace is full. It becomes the verdict topic_limit.
var errTopicLimit = errors.New("uns: topic limit")

// create returns the topic of a good path, made new unless somebody else was faster.
func (c *Catalog) create(sp *space, path string, r *rules) (t *Topic, created bool, err error) {
	shard := sp.shard(path)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if t := shard.topics[path]; t != nil {
		return t, false, nil
	}
	if sp.count.Add(1) > int64(c.max) {
		sp.count.Add(-1)
		return nil, false, errTopicLimit
	}
	t = c.newTopic(sp.name, path, r)
	meta, err := r.settings.encode()
	if err == nil {
		t.Series, err = c.store.CreateSeries(t.Full[len(c.ns.root)+1:], r.class, meta)
	}
	if err != nil {
		sp.count.Add(-1)
		return nil, false, err
	}
	shard.topics[t.Path] = t
	// Before its first value is stored: who follows the log finds the topic of every sample.
	c.series.set(t.Series, t)
	sp.tree.add(t)
	c.expected.follow(t, r)
	return t, true, nil
}

// Set merges a JSON merge patch (contract 7, `PUT /uns/topic`); creates the topic if it is new. path may be a full
// topic. A *SettingFault is bad input; any other error is our failure. When it returns without error the settings are
// durable, and values that come afterwards are held against them.
func (c *Catalog) Set(ctx context.Context, workspace, path string, patch []byte) (*Topic, error) {
	path, text := c.ns.Path(workspace, path)
	if text != "" {
		return nil, &SettingFault{"topic", text}
	}
	sp := c.spaces[workspace]
	t := sp.lookup(path)
	if t == nil {
		r, err := c.patched(c.initial, patch)
		if err != nil {
			return nil, err
		}
		created := false
		t, created, err = c.create(sp, path, r)
		switch {
		case errors.Is(err, errTopicLimit):
			return nil, &SettingFault{"topic", fmt.Sprintf("workspace %s has %d topics, which is uns.ingress.maxTopics", workspace, c.max)}
		case err != nil:
			return nil, err
		case created:
			t.change.Lock()
			defer t.change.Unlock()
			// CreateSeries alone is durable only with the next sample.
			return t, c.persist(ctx, t, t.rules.Load())
		}
	}
	t.change.Lock()
	if t.gone.Load() { // deleted meanwhile
		t.change.Unlock()
		return c.Set(ctx, workspace, path, patch)
	}
	defer t.change.Unlock()
	r, err := c.patched(t.rules.Load(), patch)
	if err != nil {
		return nil, err
	}
	if err := c.persist(ctx, t, r); err != nil {
		return nil, err
	}
	t.rules.Store(r)
	c.expected.follow(t, r)
	return t, nil
}

func (c *Catalog) patched(was *rules, patch []byte) (*rules, error) {
	s, fault := was.settings.merged(patch)
	if fault != nil {
		return nil, fault
	}
	if s.Retention == "" {
		s.Retention = c.initial.settings.Retention
	}
	r, fault := compile(s, c.late)
	if fault != nil {
		return nil, fault
	}
	return r, nil
}

func (c *Catalog) persist(ctx context.Context, t *Topic, r *rules) error {
	meta, err := r.settings.encode()
	if err != nil {
		return err
	}
	return c.store.SetSeries(ctx, t.Series, r.class, meta)
}

// withUnit is a topic's rules with an empty unit filled.
func withUnit(r *rules, unit []byte) *rules {
	next := *r
	next.settings.Schema.Unit = string(unit)
	return &next
}

// fillUnit gives a topic the unit that a payload named, unless it has one by now.
func (c *Catalog) fillUnit(ctx context.Context, t *Topic, unit []byte) error {
	t.change.Lock()
	defer t.change.Unlock()
	r := t.rules.Load()
	if r.settings.Schema.Unit != "" || t.gone.Load() {
		return nil
	}
	r = withUnit(r, unit)
	if err := c.persist(ctx, t, r); err != nil {
		return err
	}
	t.rules.Store(r)
	return nil
}

// space is one workspace.
type space struct {
	name   string
	bucket bucket
	over   Verdict
	count  atomic.Int64
	seed   maphash.Seed
	shards [64]shard
	tree   tree
}

type shard struct {
	mu     sync.RWMutex
	topics map[string]*Topic
}

func newSpace(name string, perSec int) *space {
	sp := &space{name: name, seed: maphash.MakeSeed()}
	sp.bucket.set(perSec)
	sp.over = Verdict{RateLimited, fmt.Sprintf("workspace %s gets more than %d values a second", name, perSec)}
	for i := range sp.shards {
		sp.shards[i].topics = make(map[string]*Topic)
	}
	return sp
}

func (sp *space) shard(path string) *shard {
	return &sp.shards[maphash.String(sp.seed, path)%uint64(len(sp.shards))]
}

func (sp *space) lookup(path string) *Topic {
	shard := sp.shard(path)
	shard.mu.RLock()
	t := shard.topics[path]
	shard.mu.RUnlock()
	return t
}

// keep takes in a topic at start-up.
func (sp *space) keep(t *Topic) {
	sp.shard(t.Path).topics[t.Path] = t
	sp.count.Add(1)
	sp.tree.add(t)
}

// quiet stands in for a logger that was not given.
func quiet(l *slog.Logger) *slog.Logger {
	if l == nil {
		return slog.New(slog.DiscardHandler)
	}
	return l
}
