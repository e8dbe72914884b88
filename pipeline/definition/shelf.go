package definition

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"millrace/historian/kv"
)

// What a shelf refuses. The errors are wrapped with what and how to mend it.
var (
	ErrNotFound    = errors.New("pipeline not found")
	ErrExists      = errors.New("pipeline exists")
	ErrConflict    = errors.New("pipeline changed meanwhile")
	ErrNotDeployed = errors.New("pipeline not deployed")
	ErrLimit       = errors.New("too many pipelines")
)

// FaultsError is a definition that cannot be deployed.
type FaultsError struct{ Faults []Fault }

func (e *FaultsError) Error() string {
	for _, f := range e.Faults {
		if f.Severity == "error" {
			return fmt.Sprintf("%d faults; the first: %s %s: %s", len(e.Faults), f.Node, f.Field, f.Message)
		}
	}
	return "no faults"
}

// MaxPipelines is how many a box keeps.
const MaxPipelines = 20_000

// Change is told to the listener when it is durable. New is nil when nothing holds any more.
type Change struct {
	Number   uint32
	Old, New *Plan
	// Seq is from which sequence of the historian on New holds.
	Seq     uint64
	Deleted bool
}

// Pipeline is what there is of a pipeline beside its texts.
type Pipeline struct {
	Number            uint32
	ID                string
	Workspace         string
	Name, Description string
	Labels            map[string]string
	ETag              uint64 // of the draft
	Latest, Deployed  uint32
	Running, Changed  bool
	Created, Updated  time.Time
	By                string
}

// Version is one immutable version.
type Version struct {
	Version    uint32
	Comment    string
	By         string
	Created    time.Time
	Definition Definition
}

// ShelfOptions are what a shelf needs from outside.
type ShelfOptions struct {
	// Seq is the sequence that the next stored sample will get.
	Seq func() uint64
	// Settled, if set, is called once after each call of Seq: the change was told to the listener, or was not made. Whoever gives
	// sequences may hold those back that the change is about.
	Settled func()
	Now     func() time.Time // nil = time.Now
}

// Shelf keeps drafts, versions and what is deployed, durably: every change is one commit, fsynced before the call returns. All
// methods may be called at once.
type Shelf struct {
	db *kv.Store
	c  *Compiler
	o  ShelfOptions

	// change is held through a change and its telling, so that the listener hears them in order.
	change sync.Mutex
	listen func(Change)

	mu       sync.RWMutex
	next     uint32
	byID     map[string]uint32
	byNumber map[uint32]*record
	plans    map[[2]uint32]*Plan
}

// OpenShelf reads what is on the shelf. Plans are compiled when they are asked for.
func OpenShelf(db *kv.Store, c *Compiler, o ShelfOptions) (*Shelf, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Shelf{db: db, c: c, o: o, next: 1, byID: map[string]uint32{}, byNumber: map[uint32]*record{}, plans: map[[2]uint32]*Plan{}}
	v, ok, err := db.Get([]byte(rowNext))
	if err != nil {
		return nil, err
	}
	if ok {
		if len(v) != 4 {
			return nil, damaged(rowNext)
		}
		s.next = binary.BigEndian.Uint32(v)
	}
	var fault error
	err = db.Scan([]byte(rowPipeline), func(key, v []byte) bool {
		var r record
		if len(key) != len(rowPipeline)+4 {
			fault = damaged(string(key))
		} else if e := json.Unmarshal(v, &r); e != nil {
			fault = fmt.Errorf("%w: %w", damaged(fmt.Sprintf("%q", key)), e)
		}
		n := binary.BigEndian.Uint32(key[len(rowPipeline):])
		s.byID[r.ID], s.byNumber[n] = n, &r
		return fault == nil
	})
	if err = errors.Join(err, fault); err != nil {
		return nil, err
	}
	err = db.Scan([]byte(rowHold), func(key, v []byte) bool {
		if len(key) != len(rowHold)+12 || len(v) != 4 {
			fault = damaged(fmt.Sprintf("%q", key))
			return false
		}
		if r := s.byNumber[binary.BigEndian.Uint32(key[len(rowHold):])]; r != nil {
			r.Holds = append(r.Holds, hold{binary.BigEndian.Uint64(key[len(rowHold)+4:]), binary.BigEndian.Uint32(v)})
		}
		return true
	})
	return s, errors.Join(err, fault)
}

func damaged(row string) error {
	return fmt.Errorf("definition: the row %s of the shelf is damaged: restore a backup", row)
}

// Listen sets who hears of every change of what runs. Call it before the first change.
func (s *Shelf) Listen(fn func(Change)) { s.listen = fn }

func (s *Shelf) shown(n uint32, r *record) Pipeline {
	return Pipeline{Number: n, ID: r.ID, Workspace: r.Workspace, Name: r.Name, Description: r.Description, Labels: r.Labels, ETag: r.Draft, Latest: r.Latest, Deployed: r.Deployed,
		Running: r.Running, Changed: r.Changed, Created: r.Created, Updated: r.Updated, By: r.By}
}

// List gives all pipelines, by id.
func (s *Shelf) List() []Pipeline {
	s.mu.RLock()
	defer s.mu.RUnlock()
	list := make([]Pipeline, 0, len(s.byNumber))
	for n, r := range s.byNumber {
		list = append(list, s.shown(n, r))
	}
	slices.SortFunc(list, func(a, b Pipeline) int {
		switch {
		case a.ID < b.ID:
			return -1
		case a.ID > b.ID:
			return 1
		}
		return 0
	})
	return list
}

// Show gives one pipeline.
func (s *Shelf) Show(id string) (Pipeline, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	n, r, err := s.find(id)
	if err != nil {
		return Pipeline{}, err
	}
	return s.shown(n, r), nil
}

func (s *Shelf) find(id string) (uint32, *record, error) {
	n, ok := s.byID[id]
	if !ok {
		return 0, nil, fmt.Errorf("%w: there is no pipeline %q", ErrNotFound, id)
	}
	return n, s.byNumber[n], nil
}

// ByID is the number of a pipeline.
func (s *Shelf) ByID(id string) (number uint32, ok bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	number, ok = s.byID[id]
	return number, ok
}

// ByNumber is the id of a pipeline; ok is false when it was deleted.
func (s *Shelf) ByNumber(number uint32) (id string, ok bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if r := s.byNumber[number]; r != nil {
		return r.ID, true
	}
	return "", false
}

// Draft is the text people work on.
func (s *Shelf) Draft(id string) (Definition, Pipeline, error) {
	p, err := s.Show(id)
	if err != nil {
		return Definition{}, p, err
	}
	text, ok, err := s.db.Get(numberKey(rowDraft, p.Number))
	if err == nil && !ok {
		err = damaged(rowDraft + id)
	}
	if err != nil {
		return Definition{}, p, err
	}
	d, _ := Read(text) // faults of shape are kept in drafts that were saved with them
	return d, p, nil
}

// Version is one version; 0 is the deployed one.
func (s *Shelf) Version(id string, version uint32) (Version, error) {
	p, err := s.Show(id)
	if err != nil {
		return Version{}, err
	}
	if version == 0 {
		if version = p.Deployed; version == 0 {
			return Version{}, fmt.Errorf("%w: %s has no deployed version", ErrNotDeployed, id)
		}
	}
	return s.version(p.Number, version)
}

func (s *Shelf) version(number, version uint32) (Version, error) {
	b, ok, err := s.db.Get(versionKey(number, version))
	if err != nil {
		return Version{}, err
	}
	if !ok {
		return Version{}, fmt.Errorf("%w: there is no version %d", ErrNotFound, version)
	}
	var r versionRecord
	if err := json.Unmarshal(b, &r); err != nil {
		return Version{}, fmt.Errorf("definition: version %d of pipeline %d: %w", version, number, err)
	}
	d, faults := Read(r.Definition)
	if Broken(faults) {
		return Version{}, &FaultsError{faults}
	}
	return Version{version, r.Comment, r.By, r.Created, d}, nil
}

// Versions lists all versions, the newest first.
func (s *Shelf) Versions(id string) (list []Version, err error) {
	p, err := s.Show(id)
	if err != nil {
		return nil, err
	}
	for v := p.Latest; v > 0; v-- {
		x, err := s.version(p.Number, v)
		if err != nil {
			return nil, err
		}
		list = append(list, x)
	}
	return list, nil
}

// Plan is a compiled version, from a cache. It is nil when the pipeline or the version is gone, or the version no longer
// compiles with the node types of this program.
func (s *Shelf) Plan(number, version uint32) *Plan {
	s.mu.RLock()
	p, r := s.plans[[2]uint32{number, version}], s.byNumber[number]
	s.mu.RUnlock()
	if p != nil || r == nil || version == 0 {
		return p
	}
	v, err := s.version(number, version)
	if err != nil {
		return nil
	}
	v.Definition.ID = r.ID
	p, _ = s.c.Compile(&v.Definition, number, version)
	if p == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byNumber[number] == nil {
		return nil
	}
	if other := s.plans[[2]uint32{number, version}]; other != nil {
		return other
	}
	s.plans[[2]uint32{number, version}] = p
	return p
}

// Forget drops a plan from the cache; the engine calls it when the last run of a version that is not deployed any more has ended.
func (s *Shelf) Forget(number, version uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.byNumber[number]; r == nil || r.Deployed != version {
		delete(s.plans, [2]uint32{number, version})
	}
}

// Running are the plans that hold now.
func (s *Shelf) Running() (plans []*Plan) {
	s.mu.RLock()
	var keys [][2]uint32
	for n, r := range s.byNumber {
		if r.Running {
			keys = append(keys, [2]uint32{n, r.Deployed})
		}
	}
	s.mu.RUnlock()
	slices.SortFunc(keys, func(a, b [2]uint32) int { return int(a[0]) - int(b[0]) })
	for _, k := range keys {
		if p := s.Plan(k[0], k[1]); p != nil {
			plans = append(plans, p)
		}
	}
	return plans
}

// At is which version of a pipeline holds at a sequence; 0 is none.
func (s *Shelf) At(number uint32, seq uint64) (version uint32) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	r := s.byNumber[number]
	if r == nil {
		return 0
	}
	for _, h := range r.Holds {
		if h.seq > seq {
			break
		}
		version = h.version
	}
	return version
}

// Since is every change of what holds, from a sequence on, in the order of sequences; before it the plans of At hold.
func (s *Shelf) Since(seq uint64) (list []Change) {
	type step struct {
		number uint32
		hold
		before uint32
	}
	var steps []step
	s.mu.RLock()
	for n, r := range s.byNumber {
		before := uint32(0)
		for _, h := range r.Holds {
			if h.seq >= seq {
				steps = append(steps, step{n, h, before})
			}
			before = h.version
		}
	}
	s.mu.RUnlock()
	slices.SortFunc(steps, func(a, b step) int {
		switch {
		case a.seq < b.seq:
			return -1
		case a.seq > b.seq:
			return 1
		}
		return int(a.number) - int(b.number)
	})
	for _, x := range steps {
		list = append(list, Change{Number: x.number, Old: s.Plan(x.number, x.before), New: s.Plan(x.number, x.version), Seq: x.seq})
	}
	return list
}
