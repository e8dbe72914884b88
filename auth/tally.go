package auth

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"millrace/historian/kv"
)

// Sign-ins of devices come by the thousand, and attempts of somebody locked out cost nothing. They are counted, and written to
// the audit log once a minute, one entry a source; a kill loses the last minute of these counts and nothing else.

// maxTallies is how many sources are told apart within a minute; what comes beyond is counted together. It is small, since these
// entries come from whoever can reach a listener: at 64 a minute it takes days of made-up names to push a person's entry out of
// the log at its default size.
const maxTallies = 64

type tally struct {
	by               Actor
	category, action string
	id, detail       string
}

type tallies struct {
	mu sync.Mutex
	of map[tally]uint64
}

// tally counts one event for the next entry of its kind. detail "" is a success.
func (b *Book) tally(by Actor, category, action, id, detail string) {
	if len(id) > maxID {
		id = id[:maxID]
		by.Name = ""
	}
	by.Address = sourceOf(by.Address)
	t := tally{by, category, action, id, detail}
	b.tallies.mu.Lock()
	defer b.tallies.mu.Unlock()
	if b.tallies.of == nil {
		b.tallies.of = map[tally]uint64{}
	}
	if _, known := b.tallies.of[t]; !known && len(b.tallies.of) >= maxTallies {
		b.metrics.auditLost.Inc()
		t = tally{Actor{Kind: by.Kind}, category, action, "", detail}
	}
	b.tallies.of[t]++
}

// settle writes what has been counted, and removes sessions that are over. The caller holds change.
func (b *Book) settle() error {
	b.tallies.mu.Lock()
	counted := b.tallies.of
	b.tallies.of = nil
	b.tallies.mu.Unlock()
	list := make([]tally, 0, len(counted))
	for t := range counted {
		list = append(list, t)
	}
	slices.SortFunc(list, func(x, y tally) int {
		return cmp.Or(cmp.Compare(x.category, y.category), cmp.Compare(x.id, y.id), cmp.Compare(x.detail, y.detail), cmp.Compare(x.by.Address, y.by.Address))
	})
	var ops []kv.Op
	var over []digest
	now := b.o.Now()
	for hash, s := range b.sessions {
		if b.over(s, now) || b.users[s.user] == nil {
			ops, over = append(ops, remove(s.key())), append(over, hash)
		}
	}
	if len(over) > 0 {
		if err := b.apply(ops); err != nil {
			return err
		}
		b.forgetSessions(over)
	}
	b.metrics.sessions.Set(float64(len(b.sessions)))
	events := make([]Event, 0, len(list))
	for _, t := range list {
		ev := Event{Category: t.category, Action: t.action, ID: t.id, Detail: t.detail, by: &t.by}
		if t.detail != "" {
			ev.Result = ResultRefused
		}
		if n := counted[t]; n > 1 {
			ev.Detail = fmt.Sprintf("%d times within a minute", n)
			if t.detail != "" {
				ev.Detail = t.detail + ", " + ev.Detail
			}
		}
		events = append(events, ev)
	}
	if len(events) == 0 {
		return nil
	}
	return b.commit(theBox, nil, events...)
}

// Tidy writes the counted sign-ins to the audit log and removes sessions that are over. Call it once a minute.
func (b *Book) Tidy() error {
	b.change.Lock()
	defer b.change.Unlock()
	if b.closed {
		return nil
	}
	return b.settle()
}
