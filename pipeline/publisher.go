package pipeline

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"millrace/pipeline/node"
	"millrace/uns"
)

// Ingress stores derived values: uns.Ingress. Write returns when every stored message is durable.
type Ingress interface {
	Write(ctx context.Context, b *uns.Batch) error
}

// maxParcel is how many messages one write takes at most, beside what one call of a node publishes.
const maxParcel = 512

// maxHops is, unless the pipeline says otherwise, how far a value may be derived from derived values before it is taken for a loop.
const maxHops = 16

// parcel is what one call of a node publishes.
type parcel struct {
	run   *run
	step  int
	items []node.Publication
	res   node.Result // to go on with
}

// publisher stores values of runs in the order in which it got them. One goroutine; what waits is bounded by the slots,
// since a run that publishes keeps its slot.
type publisher struct {
	eng     *Engine
	ingress Ingress
	log     *slog.Logger

	mu    sync.Mutex
	queue []parcel
	wake  chan struct{}

	batch   uns.Batch
	payload []byte
	keys    []byte
}

func (p *publisher) hand(c parcel) {
	p.mu.Lock()
	p.queue = append(p.queue, c)
	first := len(p.queue) == 1
	p.mu.Unlock()
	if first {
		select {
		case p.wake <- struct{}{}:
		default:
		}
	}
}

// run stores what it is handed until ctx ends; what is not stored by then never was, and its runs begin anew after the
// next start.
func (p *publisher) run(ctx context.Context) {
	var spare []parcel
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		}
		for {
			p.mu.Lock()
			taken := p.queue
			p.queue = spare
			p.mu.Unlock()
			if len(taken) == 0 {
				spare = taken
				break
			}
			for rest := taken; len(rest) > 0; {
				n := p.store(ctx, rest)
				if n == 0 {
					return
				}
				rest = rest[n:]
			}
			clear(taken)
			spare = taken[:0]
		}
	}
}

// store stores as many parcels as fit into one write and says how many; 0 when ctx ended before they were stored.
func (p *publisher) store(ctx context.Context, list []parcel) int {
	p.batch.Reset()
	p.payload, p.keys = p.payload[:0], p.keys[:0]
	n := 0
	for n < len(list) && (n == 0 || len(p.batch.Messages)+len(list[n].items) <= maxParcel) {
		c := &list[n]
		key := len(p.keys)
		p.keys = appendKey(p.keys, c.run.id, uint16(c.run.prog.steps[c.step].Number))
		for i := range c.items {
			p.add(c, &c.items[i], p.keys[key:])
		}
		n++
	}
	for fails := 0; ; fails++ {
		err := p.ingress.Write(ctx, &p.batch)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return 0
		}
		if fails == 0 {
			p.log.Error("derived values could not be stored; they are tried again until they are", "error", err)
		}
		select {
		case <-ctx.Done():
			return 0
		case <-time.After(storeAgain):
		}
		for i := range p.batch.Messages {
			if m := &p.batch.Messages[i]; m.Verdict.Reason == uns.Internal {
				m.Verdict = uns.Verdict{}
			}
		}
	}
	at := 0
	for i := range list[:n] {
		c := &list[i]
		p.eng.published(c, verdictOf(c, p.batch.Messages[at:at+len(c.items)]))
		at += len(c.items)
	}
	return n
}

// storeAgain is how long after a failed write the next one is tried.
const storeAgain = 100 * time.Millisecond

// add appends one message to the batch.
func (p *publisher) add(c *parcel, v *node.Publication, key []byte) {
	r := c.run
	from := len(p.payload)
	p.payload = append(p.payload, `{"value":`...)
	p.payload = v.Value.AppendJSON(p.payload)
	if v.Stamped {
		p.payload = append(p.payload, `,"timestamp":"`...)
		p.payload = uns.AppendTime(p.payload, v.Time, v.Scale)
		p.payload = append(p.payload, '"')
	}
	if v.Quality != "" && v.Quality != qualities[0] {
		p.payload = append(p.payload, `,"quality":"`...)
		p.payload = append(p.payload, v.Quality...)
		p.payload = append(p.payload, '"')
	}
	p.payload = append(p.payload, '}')
	at := len(p.keys)
	p.keys = append(append(p.keys, key...), v.Key...)
	p.batch.Messages = append(p.batch.Messages, uns.Message{Workspace: r.space, Path: p.eng.path(r.space, v.Topic), Payload: p.payload[from:len(p.payload):len(p.payload)],
		Enveloped: true, Once: p.keys[at:len(p.keys):len(p.keys)], Suspect: r.suspect, Hops: r.hops + 1})
}

// verdictOf is the first refusal of a parcel, nil when all are stored.
func verdictOf(c *parcel, list []uns.Message) *node.Failure {
	for i := range list {
		if v := list[i].Verdict; !v.OK() {
			return &node.Failure{Message: fmt.Sprintf("%s was refused: %s", c.items[i].Topic, v.String()), Permanent: v.Reason != uns.RateLimited && v.Reason != uns.Internal}
		}
	}
	return nil
}

// publish hands what a call publishes to the publisher of the run. The lock of r is held.
func (e *Engine) publish(r *run, i int, res node.Result) {
	if r.trial != nil {
		r.active--
		r.trial.publish(r, i, res.Publish)
		e.leave(r, i, res.Port, res)
		return
	}
	most := maxHops
	if d := r.prog.plan.Settings.MaxDepth; d > 0 {
		most = d
	}
	if int(r.hops) >= most {
		e.looped(r, i)
		e.failed(r, i, &node.Failure{Message: fmt.Sprintf("loop: the value has been derived from derived values %d times; it is not published to %s", r.hops, res.Publish[0].Topic), Permanent: true})
		return
	}
	for j := range res.Publish {
		if q := res.Publish[j].Quality; q != "" && !slices.Contains(qualities[:], q) {
			e.failed(r, i, &node.Failure{Message: fmt.Sprintf("quality %q is not good, uncertain or bad", q), Permanent: true})
			return
		}
	}
	e.publisherOf(r).hand(parcel{r, i, res.Publish, res})
	if r.box != nil && !r.passed && r.active == 1 && r.ready.empty() && r.prog.steps[i].retry.count == 0 && len(res.Also) == 0 && r.prog.last(i, res.Port) {
		// Nothing of this run can be published after what was just handed over, so the next run cannot overtake it.
		r.passed = true
		e.pass(r)
	}
}

// publisherOf chooses by pipeline, or by key of an ordered one.
func (e *Engine) publisherOf(r *run) *publisher {
	hash := r.pipe.number * 2654435761
	if r.box != nil {
		hash = r.box.hash
	}
	return e.publishers[(hash>>16)%uint32(len(e.publishers))]
}

// published goes on with a run whose values are stored, or refused.
func (e *Engine) published(c *parcel, refusal *node.Failure) {
	r := c.run
	r.mu.Lock()
	switch {
	case r.stopped:
		r.active--
		if r.steps[c.step].status == stepIdle {
			r.steps[c.step].status = stepDone
		}
	case refusal != nil:
		e.failed(r, c.step, refusal)
	default:
		r.active--
		e.leave(r, c.step, c.res.Port, c.res)
	}
	e.proceed(r)
}
