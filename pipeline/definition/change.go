package definition

import (
	"encoding/binary"
	"fmt"
	"slices"

	"millrace/historian/kv"
)

// Any stands for no ETag: whatever the draft is, it is replaced.
const Any = ^uint64(0)

// Save writes a draft. With etag Any it makes the pipeline when there is none; with 0 it must be new; else the draft must be
// the one that etag names. A draft may have faults: it is work in progress.
func (s *Shelf) Save(d *Definition, etag uint64, by string) (p Pipeline, err error) {
	s.change.Lock()
	defer s.change.Unlock()
	if !identifier.MatchString(d.ID) {
		return p, &FaultsError{[]Fault{wrong("", "id", codeID, fmt.Sprintf("%q is no id: letters, digits, . _ and -, at most 64, a letter or digit first", d.ID))}}
	}
	s.mu.RLock()
	n, old, err := s.find(d.ID)
	full := len(s.byNumber) >= MaxPipelines
	next := s.next
	s.mu.RUnlock()
	now := s.o.Now().UTC()
	var r record
	var ops []kv.Op
	switch {
	case err == nil && etag == 0:
		return p, fmt.Errorf("%w: there is a pipeline %q already", ErrExists, d.ID)
	case err == nil && etag != Any && etag != old.Draft:
		return p, fmt.Errorf("%w: the draft of %s was changed by %s at %s", ErrConflict, d.ID, old.By, old.Updated.Format("2006-01-02 15:04:05Z"))
	case err == nil:
		r = *old
	case etag != 0 && etag != Any:
		return p, err
	case full:
		return p, fmt.Errorf("%w: %d is the most a box keeps: delete some", ErrLimit, MaxPipelines)
	default:
		n = next
		r.Created = now
		ops = append(ops, kv.Op{Key: []byte(rowNext), Value: binary.BigEndian.AppendUint32(nil, n+1)})
	}
	r.describe(d)
	r.Draft, r.Updated, r.By, r.Changed = r.Draft+1, now, by, true
	if r.Deployed != 0 {
		if v, err := s.version(n, r.Deployed); err == nil {
			r.Changed = string(v.Definition.AppendJSON(nil)) != string(d.AppendJSON(nil))
		}
	}
	ops = append(ops, kv.Op{Key: numberKey(rowDraft, n), Value: d.AppendJSON(nil)}, kv.Op{Key: numberKey(rowPipeline, n), Value: encode(&r)})
	if err := s.db.Apply(ops...); err != nil {
		return p, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next = max(s.next, n+1)
	s.byID[d.ID], s.byNumber[n] = n, &r
	return s.shown(n, &r), nil
}

func (r *record) describe(d *Definition) {
	r.ID, r.Workspace, r.Name, r.Description, r.Labels = d.ID, d.Workspace, d.Name, d.Description, d.Labels
	if r.Workspace == "" {
		r.Workspace = "main"
	}
	if r.Name == "" {
		r.Name = d.ID
	}
}

// Deploy makes a version of the draft, unless it is what the newest version is, and has it run from the next stored sample on.
// The error is a *FaultsError when the draft does not compile; then nothing has changed.
func (s *Shelf) Deploy(id, comment, by string) (p Pipeline, warnings []Fault, err error) {
	s.change.Lock()
	defer s.change.Unlock()
	d, p, err := s.Draft(id)
	if err != nil {
		return p, nil, err
	}
	text := d.AppendJSON(nil)
	version := p.Latest
	if version > 0 {
		v, err := s.version(p.Number, version)
		if err != nil || string(v.Definition.AppendJSON(nil)) != string(text) {
			version = 0
		}
	}
	fresh := version == 0
	if fresh {
		version = p.Latest + 1
	}
	plan, faults := s.c.Compile(&d, p.Number, version)
	faults = append(faults, s.between(&d)...)
	if plan == nil {
		return p, faults, &FaultsError{faults}
	}
	var ops []kv.Op
	if fresh {
		ops = append(ops, kv.Op{Key: versionKey(p.Number, version), Value: encode(versionRecord{comment, by, s.o.Now().UTC(), text})})
	}
	p, err = s.turn(p.Number, plan, by, func(r *record) {
		r.Latest = max(r.Latest, version)
		r.Deployed, r.Running, r.Changed = version, true, false
	}, ops...)
	return p, faults, err
}

// Start has the deployed version run again.
func (s *Shelf) Start(id, by string) (Pipeline, error) {
	s.change.Lock()
	defer s.change.Unlock()
	p, err := s.Show(id)
	switch {
	case err != nil:
		return p, err
	case p.Deployed == 0:
		return p, fmt.Errorf("%w: deploy %s first", ErrNotDeployed, id)
	case p.Running:
		return p, nil
	}
	plan := s.Plan(p.Number, p.Deployed)
	if plan == nil {
		_, _, err := s.check(id, p)
		return p, err
	}
	return s.turn(p.Number, plan, by, func(r *record) { r.Running = true })
}

// check says why the deployed version no longer compiles.
func (s *Shelf) check(id string, p Pipeline) (Pipeline, []Fault, error) {
	v, err := s.Version(id, 0)
	if err != nil {
		return p, nil, err
	}
	_, faults := s.c.Compile(&v.Definition, p.Number, p.Deployed)
	return p, faults, &FaultsError{faults}
}

// Stop has no more runs begin from the next stored sample on. Runs that have begun, or wait, go on.
func (s *Shelf) Stop(id, by string) (Pipeline, error) {
	s.change.Lock()
	defer s.change.Unlock()
	p, err := s.Show(id)
	if err != nil || !p.Running {
		return p, err
	}
	return s.turn(p.Number, nil, by, func(r *record) { r.Running = false })
}

// Rollback deploys an older version again, and makes it the draft.
func (s *Shelf) Rollback(id string, version uint32, by string) (Pipeline, error) {
	s.change.Lock()
	defer s.change.Unlock()
	p, err := s.Show(id)
	if err != nil {
		return p, err
	}
	v, err := s.version(p.Number, version)
	if err != nil {
		return p, err
	}
	plan, faults := s.c.Compile(&v.Definition, p.Number, version)
	if plan == nil {
		return p, &FaultsError{faults}
	}
	return s.turn(p.Number, plan, by, func(r *record) {
		r.describe(&v.Definition)
		r.Deployed, r.Running, r.Changed = version, true, false
		r.Draft++
	}, kv.Op{Key: numberKey(rowDraft, p.Number), Value: v.Definition.AppendJSON(nil)})
}

// turn changes what holds. The lock of changes is held.
func (s *Shelf) turn(n uint32, plan *Plan, by string, edit func(*record), ops ...kv.Op) (Pipeline, error) {
	s.mu.RLock()
	r := *s.byNumber[n]
	s.mu.RUnlock()
	var old *Plan
	if r.Running {
		old = s.Plan(n, r.Deployed)
	}
	edit(&r)
	r.Updated, r.By = s.o.Now().UTC(), by
	h := hold{seq: s.o.Seq()}
	defer s.settled()
	if plan != nil {
		h.version = plan.Version
	}
	r.Holds = slices.Clone(r.Holds)
	if k := len(r.Holds); k > 0 && r.Holds[k-1].seq == h.seq {
		r.Holds[k-1] = h
	} else {
		r.Holds = append(r.Holds, h)
	}
	for len(r.Holds) > maxHolds {
		ops = append(ops, kv.Op{Key: holdKey(n, r.Holds[0].seq)})
		r.Holds = r.Holds[1:]
	}
	ops = append(ops, kv.Op{Key: holdKey(n, h.seq), Value: binary.BigEndian.AppendUint32(nil, h.version)}, kv.Op{Key: numberKey(rowPipeline, n), Value: encode(&r)})
	if err := s.db.Apply(ops...); err != nil {
		return Pipeline{}, err
	}
	s.mu.Lock()
	s.byNumber[n] = &r
	if plan != nil {
		if known := s.plans[[2]uint32{n, plan.Version}]; known != nil {
			plan = known
		}
		s.plans[[2]uint32{n, plan.Version}] = plan
	}
	p := s.shown(n, &r)
	s.mu.Unlock()
	if s.listen != nil {
		s.listen(Change{Number: n, Old: old, New: plan, Seq: h.seq})
	}
	return p, nil
}

// Delete takes a pipeline with its draft and versions off the shelf. Its id is free again, its number is not.
func (s *Shelf) Delete(id string, etag uint64) error {
	s.change.Lock()
	defer s.change.Unlock()
	p, err := s.Show(id)
	if err != nil {
		return err
	}
	if etag != Any && etag != p.ETag {
		return fmt.Errorf("%w: %s was changed by %s at %s", ErrConflict, id, p.By, p.Updated.Format("2006-01-02 15:04:05Z"))
	}
	var old *Plan
	if p.Running {
		old = s.Plan(p.Number, p.Deployed)
	}
	ops := []kv.Op{{Key: numberKey(rowPipeline, p.Number)}, {Key: numberKey(rowDraft, p.Number)}}
	for _, row := range []string{rowVersion, rowHold} {
		err := s.db.Scan(numberKey(row, p.Number), func(key, _ []byte) bool {
			ops = append(ops, kv.Op{Key: slices.Clone(key)})
			return true
		})
		if err != nil {
			return err
		}
	}
	if err := s.db.Apply(ops...); err != nil {
		return err
	}
	s.mu.Lock()
	delete(s.byID, id)
	delete(s.byNumber, p.Number)
	for k := range s.plans {
		if k[0] == p.Number {
			delete(s.plans, k)
		}
	}
	s.mu.Unlock()
	if s.listen != nil {
		defer s.settled()
		s.listen(Change{Number: p.Number, Old: old, Seq: s.o.Seq(), Deleted: true})
	}
	return nil
}

// settled ends what Seq began.
func (s *Shelf) settled() {
	if s.o.Settled != nil {
		s.o.Settled()
	}
}
