package auth

import (
	"reflect"
	"slices"
	"strings"
	"time"

	"millrace/historian/kv"
)

// enter gives an entry that has no Principal yet one of its own, with the rules its client has now.
func (e *entry) enter() {
	e.principal = &Principal{id: e.client.ID, workspace: e.client.Workspace}
	e.principal.policy.Store(e.policy())
}

// policy compiles what the client may do now: nil when it is disabled.
func (e *entry) policy() *Policy {
	if !e.client.Enabled {
		return nil
	}
	return compile(e.client.ID, e.client.Grants)
}

// AddAll creates clients with one write, all or none: if any result has an Err, nothing was created. The results are in the
// order of the list. The error is a failure of ours; then, too, nothing was created.
func (b *Book) AddAll(list []NewClient) ([]Added, error) { return b.addAll(theBox, list) }

func (b *Book) addAll(by Actor, list []NewClient) ([]Added, error) {
	b.change.Lock()
	defer b.change.Unlock()
	if b.closed {
		return nil, ErrClosed
	}
	if len(list) == 0 {
		return nil, nil
	}
	added := make([]Added, len(list))
	entries := make([]*entry, len(list))
	ops := make([]kv.Op, 0, len(list))
	events := make([]Event, 0, len(list))
	taken := make(map[string]int, len(list))
	bad := false
	for i, n := range list {
		added[i].Client.ID = n.ID
		e, secret, err := b.newEntry(n)
		if first, twice := taken[n.ID]; twice && err == nil {
			err = faultf("id", "%q is also entry %d of the same list: ids are unique", n.ID, first+1)
		}
		if _, exists := b.clients[n.ID]; exists && err == nil {
			err = ErrExists
		}
		if err == nil && len(b.clients)+len(ops) >= maxClients {
			err = faultf("id", "the box would hold more than %d clients: delete some first", maxClients)
		}
		if err != nil {
			added[i].Err, bad = err, true
			continue
		}
		op, err := e.record()
		if err != nil {
			return nil, err
		}
		taken[n.ID] = i
		ops, entries[i] = append(ops, op), e
		added[i].Client, added[i].Secret = e.client.clone(), secret
		events = append(events, Event{Category: "client", Action: "add", ID: n.ID, After: e.client})
	}
	if bad {
		for i := range added {
			added[i] = Added{Client: Client{ID: list[i].ID}, Err: added[i].Err}
		}
		return added, nil
	}
	if err := b.commit(by, ops, events...); err != nil {
		return nil, err
	}
	b.mu.Lock()
	for _, e := range entries {
		b.clients[e.client.ID] = e
	}
	b.metrics.clients.Set(float64(len(b.clients)))
	b.mu.Unlock()
	if len(list) == 1 {
		b.log.Info("client added", "client", list[0].ID)
	} else {
		b.log.Info("clients added", "count", len(list))
	}
	return added, nil
}

// newEntry checks what is asked for and makes the entry with its secret; the error is a *Fault.
func (b *Book) newEntry(n NewClient) (*entry, string, error) {
	if fault := checkID(n.ID); fault != nil {
		return nil, "", fault
	}
	if n.Workspace == "" {
		n.Workspace = b.o.Workspaces[0]
	}
	if !slices.Contains(b.o.Workspaces, n.Workspace) {
		return nil, "", faultf("workspace", "%s is unknown: take one of %s, or add it to uns.workspaces",
			shown(n.Workspace), strings.Join(b.o.Workspaces, ", "))
	}
	if fault := checkDescription(n.Description); fault != nil {
		return nil, "", fault
	}
	grants, fault := normalGrants(n.Grants, b.place(n.Workspace))
	if fault != nil {
		return nil, "", fault
	}
	if n.Secret == "" {
		n.Secret = mint(b.o.Random)
	} else if fault := checkSecret(n.Secret); fault != nil {
		return nil, "", fault
	}
	e := &entry{
		client: Client{
			ID: n.ID, Workspace: n.Workspace, Description: n.Description, Enabled: true, Grants: grants, Metrics: n.Metrics,
			Created: b.o.Now().UTC().Truncate(time.Millisecond), Revision: 1,
		},
		hash: b.hash.of("client", n.ID, []byte(n.Secret)),
	}
	e.enter()
	return e, n.Secret, nil
}

func (b *Book) place(workspace string) place {
	return place{namespace: b.o.Namespace, workspace: workspace}
}

// Patch changes a client and returns it as it is now. A patch that changes nothing writes nothing and keeps the revision.
// ErrNotFound, ErrChanged, *Fault. When it returns, every session's Policy has the change.
func (b *Book) Patch(id string, p Patch) (Client, error) { return b.patchAndTell(theBox, id, p) }

func (b *Book) patchAndTell(by Actor, id string, p Patch) (Client, error) {
	client, rules, err := b.patch(by, id, p)
	if rules {
		b.tell(id)
	}
	return client, err
}

// patch does it under the lock of changes; rules says that what the client may do has changed.
func (b *Book) patch(by Actor, id string, p Patch) (client Client, rules bool, err error) {
	b.change.Lock()
	defer b.change.Unlock()
	old, err := b.toChange(id)
	if err != nil {
		return Client{}, false, err
	}
	if p.Revision != 0 && p.Revision != old.client.Revision {
		return Client{}, false, ErrChanged
	}
	e := &entry{client: old.client, hash: old.hash, principal: old.principal}
	if p.Description != nil {
		if fault := checkDescription(*p.Description); fault != nil {
			return Client{}, false, fault
		}
		e.client.Description = *p.Description
	}
	if p.Enabled != nil {
		e.client.Enabled = *p.Enabled
	}
	if p.Grants != nil {
		grants, fault := normalGrants(*p.Grants, b.place(old.client.Workspace))
		if fault != nil {
			return Client{}, false, fault
		}
		e.client.Grants = grants
	}
	rules = e.client.Enabled != old.client.Enabled || !reflect.DeepEqual(e.client.Grants, old.client.Grants)
	if !rules && e.client.Description == old.client.Description {
		return old.client.clone(), false, nil
	}
	e.client.Revision++
	if err := b.store(by, e, Event{Category: "client", Action: "patch", ID: id, Before: old.client, After: e.client}); err != nil {
		return Client{}, false, err
	}
	if rules {
		e.principal.policy.Store(e.policy())
	}
	b.log.Info("client changed", "client", id, "enabled", e.client.Enabled, "grants", len(e.client.Grants))
	return e.client.clone(), rules, nil
}

// Rotate replaces the secret by the given or, "", a generated one and returns it. Sessions that signed in with the old one
// end: their Policy is nil. ErrNotFound, *Fault.
func (b *Book) Rotate(id string, secret string) (string, error) {
	return b.rotateAndTell(theBox, id, secret)
}

func (b *Book) rotateAndTell(by Actor, id, secret string) (string, error) {
	secret, err := b.rotate(by, id, secret)
	if err == nil {
		b.tell(id)
	}
	return secret, err
}

func (b *Book) rotate(by Actor, id, secret string) (string, error) {
	b.change.Lock()
	defer b.change.Unlock()
	old, err := b.toChange(id)
	if err != nil {
		return "", err
	}
	if secret == "" {
		secret = mint(b.o.Random)
	} else if fault := checkSecret(secret); fault != nil {
		return "", fault
	}
	e := &entry{client: old.client, hash: b.hash.of("client", id, []byte(secret))}
	e.client.Revision++
	e.enter()
	if err := b.store(by, e, Event{Category: "client", Action: "rotate", ID: id}); err != nil {
		return "", err
	}
	old.principal.policy.Store(nil)
	b.log.Info("secret rotated", "client", id)
	return secret, nil
}

// Delete removes a client; its sessions' Policy is nil from now on. ErrNotFound.
func (b *Book) Delete(id string) error { return b.deleteAndTell(theBox, id) }

func (b *Book) deleteAndTell(by Actor, id string) error {
	if err := b.delete(by, id); err != nil {
		return err
	}
	b.tell(id)
	return nil
}

func (b *Book) delete(by Actor, id string) error {
	b.change.Lock()
	defer b.change.Unlock()
	old, err := b.toChange(id)
	if err != nil {
		return err
	}
	if err := b.commit(by, []kv.Op{remove(clientPrefix + id)}, Event{Category: "client", Action: "delete", ID: id, Before: old.client}); err != nil {
		return err
	}
	b.mu.Lock()
	delete(b.clients, id)
	b.metrics.clients.Set(float64(len(b.clients)))
	b.mu.Unlock()
	old.principal.policy.Store(nil)
	b.log.Info("client deleted", "client", id)
	return nil
}

// toChange finds the entry to change; the caller holds the lock of changes.
func (b *Book) toChange(id string) (*entry, error) {
	if b.closed {
		return nil, ErrClosed
	}
	if e, ok := b.clients[id]; ok {
		return e, nil
	}
	return nil, ErrNotFound
}

// store writes an entry and then shows it.
func (b *Book) store(by Actor, e *entry, done Event) error {
	op, err := e.record()
	if err != nil {
		return err
	}
	if err := b.commit(by, []kv.Op{op}, done); err != nil {
		return err
	}
	b.mu.Lock()
	b.clients[e.client.ID] = e
	b.mu.Unlock()
	return nil
}

// tell runs the hook; no lock is held.
func (b *Book) tell(id string) {
	if b.o.Changed != nil {
		b.o.Changed(id)
	}
}
