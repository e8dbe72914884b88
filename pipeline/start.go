package pipeline

import (
	"context"
	"crypto/subtle"
	"fmt"
	"math/rand/v2"
	"sync"

	"millrace/pipeline/definition"
	"millrace/pipeline/history"
	"millrace/pipeline/queue"
)

// freshShift is how many bits of a fresh id count within a millisecond.
const freshShift = 20

// fresh gives ids of runs that nothing else names: in the order of time, and never one twice.
type fresh struct {
	mu   sync.Mutex
	last uint64
}

func (f *fresh) next(ms int64) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = max(f.last+1, uint64(ms)<<freshShift|uint64(rand.Uint32()>>(32-freshShift+1)))
	return f.last
}

// Refused is why a start, a replay or a cancel was not done; Code is a word for programs.
type Refused struct{ Code, Detail string }

func (r *Refused) Error() string { return r.Detail }

func refuse(code, format string, args ...any) *Refused {
	return &Refused{code, fmt.Sprintf(format, args...)}
}

// maxInput is the largest input of one run.
const maxInput = 1 << 20

// Start queues a run that a person asked for: from the trigger node of that id, or from the first one when it is empty.
// input is JSON, empty = null. It returns when the queue has it.
func (e *Engine) Start(ctx context.Context, p *definition.Plan, trigger string, input []byte) (history.RunID, error) {
	return e.enqueue(ctx, p, trigger, queue.Lane(p.Settings.Lane), queue.Entry{Kind: queue.Manual, Value: input})
}

// enqueue puts one run with a fresh id into the queue.
func (e *Engine) enqueue(ctx context.Context, p *definition.Plan, trigger string, lane queue.Lane, x queue.Entry) (history.RunID, error) {
	step := -1
	for _, t := range p.Triggers {
		if trigger == "" || p.Steps[t].ID == trigger {
			step = p.Steps[t].Number
			break
		}
	}
	if step < 0 {
		return history.RunID{}, refuse("no_trigger", "pipeline %s version %d has no trigger %q", p.ID, p.Version, trigger)
	}
	if len(x.Value) > maxInput {
		return history.RunID{}, refuse("input_too_large", "the input has %d bytes, at most %d are allowed", len(x.Value), maxInput)
	}
	if len(x.Value) == 0 {
		x.Value = []byte("null")
	}
	now := e.now()
	x.ID = e.fresh.next(now.UnixMilli())
	if x.Time == 0 {
		x.Time, x.Scale = now.UnixMilli()*1e6, 6
	}
	if x.Workspace == "" {
		x.Workspace = p.Workspace
	}
	ref := queue.Ref{Pipeline: p.Number, Version: p.Version, Node: uint16(step)}
	x.Refs = []queue.Ref{ref}
	id := runID(&x, ref)
	e.asked.add(id, ask{at: now, version: p.Version, mode: modeOf(x.Kind)})
	if err := e.Put(ctx, lane, x); err != nil {
		e.asked.take(id)
		return history.RunID{}, err
	}
	if q, ok := e.queue.(flusher); ok {
		// Nothing else has this run: whoever is told its id must find it after a kill.
		if err := q.Flush(ctx); err != nil {
			return id, fmt.Errorf("pipeline: run %s is queued, but not known to be on disk: %w", id, err)
		}
	}
	return id, nil
}

// flusher is a queue on disk: Flush returns when everything that was put is in it.
type flusher interface {
	Flush(ctx context.Context) error
}

// hook is one webhook of a pipeline that runs.
type hook struct {
	plan   *definition.Plan
	node   string
	secret string
}

// hooks are the webhooks by pipeline and path.
type hooks struct {
	mu   sync.RWMutex
	list map[[2]string]hook
}

func (h *hooks) set(running []*definition.Plan) {
	list := make(map[[2]string]hook)
	for _, p := range running {
		for _, t := range p.Triggers {
			if p.Steps[t].Trigger == nil {
				continue
			}
			if w := p.Steps[t].Trigger.Start().Webhook; w != nil {
				list[[2]string{p.ID, w.Path}] = hook{p, p.Steps[t].ID, w.Secret}
			}
		}
	}
	h.mu.Lock()
	h.list = list
	h.mu.Unlock()
}

// Webhook queues a run for a call of a webhook; body is JSON. A wrong secret and an unknown path are the same refusal.
func (e *Engine) Webhook(ctx context.Context, pipeline, path, secret string, body []byte) (history.RunID, error) {
	e.hooks.mu.RLock()
	h, ok := e.hooks.list[[2]string{pipeline, path}]
	e.hooks.mu.RUnlock()
	if !ok || h.secret == "" || subtle.ConstantTimeCompare([]byte(h.secret), []byte(secret)) != 1 {
		return history.RunID{}, refuse("no_webhook", "no running pipeline has a webhook at this path with this secret")
	}
	return e.enqueue(ctx, h.plan, h.node, queue.Lane(h.plan.Settings.Lane), queue.Entry{Kind: queue.Webhook, Value: body})
}

// Running tells the engine what runs now: schedules are armed, webhooks answer. Versions that no longer run live until
// their last run has ended.
func (e *Engine) Running(plans []*definition.Plan) {
	e.schedules.set(plans)
	e.hooks.set(plans)
	running := make(map[uint32]uint32, len(plans))
	for _, p := range plans {
		e.pipe(p.Number, p.ID)
		running[p.Number] = p.Version
	}
	e.running.Store(&running)
}
