package uns

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"millrace/historian"
)

// Ingress is the one way in. Safe for concurrent use, each caller with a Batch of its own.
type Ingress struct {
	ns        *Namespace
	catalog   *Catalog
	store     Store
	live      Live
	log       *slog.Logger
	now       func() time.Time
	start     time.Time
	maxFuture time.Duration
	maxSize   int64
	rate      int
	metrics   *metrics

	mu      sync.RWMutex
	sources map[string]*Source
}

// NewIngress wires the way in. o must be valid. live may be nil until SetLive, or for ever when nobody listens.
func NewIngress(ns *Namespace, c *Catalog, st Store, live Live, o Options) *Ingress {
	in := &Ingress{
		ns: ns, catalog: c, store: st, live: live,
		log:       quiet(o.Log).With("part", "uns"),
		now:       o.Now,
		maxFuture: o.MaxFuture,
		maxSize:   o.Ingress.MaxValueSize,
		rate:      o.Ingress.PerClientRatePerSec,
		sources:   make(map[string]*Source),
	}
	if in.now == nil {
		in.now = time.Now
	}
	in.metrics = newMetrics(o.Registry, c, in.now)
	in.start = in.now()
	return in
}

// SetLive is for wiring only, before the first Accept.
func (in *Ingress) SetLive(l Live) { in.live = l }

// Source returns the one source of a client id. The caller keeps it for as long as its session lives.
func (in *Ingress) Source(client string) *Source {
	in.mu.RLock()
	s := in.sources[client]
	in.mu.RUnlock()
	if s != nil {
		return s
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if s = in.sources[client]; s == nil {
		s = newSource(client, in.rate)
		in.sources[s.Client] = s
	}
	return s
}

// Accept gives every message its verdict; returns when all stored ones are durable. error = our failure
// (historian.ErrStalled, ErrClosed …): nothing may be acknowledged, nothing was stored, and the messages that would
// have been stored have the verdict internal. A message whose publish key was there before is stored already: see Message.Once. Every message is counted, once per Accept.
func (in *Ingress) Accept(ctx context.Context, b *Batch) error {
	rows := len(b.Rows)
	for {
		err := in.accept(ctx, b)
		if !errors.Is(err, historian.ErrUnknownSeries) || !b.orphaned() {
			return err
		}
		// A topic was deleted while its value was on its way: nothing was stored, and the value makes the topic anew.
		clear(b.Rows[rows:])
		b.Rows, b.Owed = b.Rows[:rows], nil
	}
}

func (in *Ingress) accept(ctx context.Context, b *Batch) error {
	b.begin()
	now := in.now()
	since := now.Sub(in.start)
	var count tally
	var failure error
	for i := range b.Messages {
		m := &b.Messages[i]
		m.At, m.Duplicate = -1, false
		if m.Verdict.Reason != Stored {
			continue
		}
		if m.Suspect && len(m.Once) > 0 {
			if m.Duplicate, failure = in.known(b, i); failure != nil {
				break
			}
			if m.Duplicate {
				count.duplicates++
				continue
			}
		}
		if m.Verdict, failure = in.take(b, m, now, since, &count); failure != nil {
			break
		}
		if m.Topic != nil && m.Verdict.violates() {
			in.catalog.violated(m, m.Verdict, now)
		}
	}
	if failure == nil && in.live != nil {
		in.live.Prepare(b)
	}
	if failure == nil && len(b.Samples)+len(b.Rows) > 0 {
		failure = in.store.Append(ctx, b.Samples, b.Rows)
	}
	if errors.Is(failure, historian.ErrUnknownSeries) && b.orphaned() {
		return failure
	}
	if failure != nil {
		in.undo(b, &count)
	}
	for i := range b.Messages {
		m := &b.Messages[i]
		if m.Duplicate && m.Verdict.Reason == Stored {
			continue
		}
		r := min(m.Verdict.Reason, Internal)
		count.counts[r]++
		if m.Source != nil {
			m.Source.counts[r].Add(1)
		}
	}
	in.metrics.add(&count)
	if failure != nil {
		return failure
	}
	in.follow(b)
	b.settleToggles(in.catalog)
	for i := range b.units {
		u := &b.units[i]
		if err := in.catalog.fillUnit(ctx, u.topic, u.unit); err != nil {
			// The value is stored and its acknowledgement is due. The next payload tries again.
			in.metrics.unitFails.Add(1)
			in.log.Warn("the unit of a topic could not be kept", "error", err)
		}
	}
	return nil
}

// undo takes back what was on its way to the store.
func (in *Ingress) undo(b *Batch, count *tally) {
	*count = tally{}
	for i := range b.Messages {
		m := &b.Messages[i]
		if m.Verdict.Reason == Stored {
			m.Verdict = Verdict{Internal, "the value could not be stored, send it again"}
			m.At, m.Duplicate = -1, false
		}
	}
	b.Samples = b.Samples[:0]
}

// take judges one message and puts its sample into the batch.
func (in *Ingress) take(b *Batch, m *Message, now time.Time, since time.Duration, count *tally) (Verdict, error) {
	if m.Source != nil && !m.Source.bucket.allow(since) {
		return m.Source.over, nil
	}
	workspace := m.Workspace
	if m.Topic != nil {
		workspace = m.Topic.Workspace
	}
	sp := in.catalog.spaces[workspace]
	if sp == nil {
		return Verdict{TopicInvalid, in.ns.unknownWorkspace(workspace)}, nil
	}
	if !sp.bucket.allow(since) {
		return sp.over, nil
	}
	if int64(len(m.Payload)) > in.maxSize {
		return refuse(PayloadTooLarge, "payload: %d bytes, at most %d are allowed", len(m.Payload), in.maxSize), nil
	}
	if m.Topic != nil && m.Topic.gone.Load() {
		m.Path, m.Topic = m.Topic.Path, nil
	}
	if m.Topic == nil {
		m.Topic = sp.lookup(m.Path)
	}
	if m.Topic == nil {
		if fault := in.ns.Fault(m.Path); fault != "" {
			return Verdict{TopicInvalid, fault}, nil
		}
	}
	if len(m.Payload) == 0 {
		if m.Retain {
			// Nothing is stored in the topic's history, and the latest value stays what it is.
			if m.Topic != nil {
				b.toggle(in.catalog, m.Topic, true)
			}
			return Verdict{Reason: Cleared}, nil
		}
		return Verdict{PayloadInvalid, "byte 0: expected a JSON value, found an empty payload, which only clears when sent with retain"}, nil
	}
	for {
		r := in.catalog.initial
		if m.Topic != nil {
			r = m.Topic.rules.Load()
		}
		s, unit, verdict := in.judge(b, m, r, now)
		if verdict.Reason != Stored {
			return verdict, nil
		}
		if m.Topic == nil {
			// A path becomes a topic only with a value worth keeping.
			if len(unit) > 0 {
				r = withUnit(r, unit)
			}
			t, created, err := in.catalog.create(sp, m.Path, r)
			if errors.Is(err, errTopicLimit) {
				return refuse(TopicLimit, "workspace %s has %d topics, which is the most it may have", sp.name, in.catalog.max), nil
			}
			if err != nil {
				return Verdict{}, fmt.Errorf("uns: create topic: %w", err)
			}
			m.Topic = t
			if !created {
				continue // judge it by the rules of whoever was faster
			}
		} else if len(unit) > 0 && r.settings.Schema.Unit == "" {
			b.units = append(b.units, unitClaim{m.Topic, unit})
		}
		s.sample.Series, s.sample.Hops = m.Topic.Series, m.Hops
		if s.off {
			count.soft++
			in.catalog.violated(m, Verdict{Detail: r.violation(&s.sample.Value)}, now)
		}
		if s.twice {
			count.twice++
			in.catalog.violated(m, Verdict{Detail: "timestamp: this local time happened twice that day, the first is taken"}, now)
		}
		if (s.sample.Stamped || r.every > 0) && m.Topic.newest.Load() == 0 {
			in.catalog.recall(m.Topic)
		}
		if m.Topic.cleared() || len(b.toggles) > 0 {
			b.toggle(in.catalog, m.Topic, false)
		}
		if len(m.Once) > 0 {
			b.Rows = append(b.Rows, historian.Row{Key: b.keyOf(m.Once), Value: present})
		}
		m.At = len(b.Samples)
		b.Samples = append(b.Samples, s.sample)
		return Verdict{}, nil
	}
}

// judged is a sample that may be stored, and why it is uncertain.
type judged struct {
	sample     historian.Sample
	off, twice bool
}

// judge reads the payload and holds it against the rules.
func (in *Ingress) judge(b *Batch, m *Message, r *rules, now time.Time) (s judged, unit []byte, v Verdict) {
	var read reading
	if r.kind.raw() && !m.Enveloped {
		v = b.readRaw(m.Payload, r.kind, &read)
	} else if v = b.read(m.Payload, &read); v.Reason == Stored && r.kind == kindBytes {
		v = b.fromBase64(&read.value)
	}
	if v.Reason != Stored {
		return s, nil, v
	}
	s.sample.Quality = read.quality
	if read.stamped {
		at, v := timestamp(read.timestamp, read.timestampText, r.unit, r.zone)
		if v.Reason == Stored {
			v = in.window(at, r, now)
		}
		if v.Reason != Stored {
			return s, nil, v
		}
		s.sample.Stamped, s.sample.Time, s.sample.Scale = true, at.ns, at.scale
		s.twice = at.twice
	}
	if s.off, v = r.check(&read.value); v.Reason != Stored {
		return s, nil, v
	}
	if s.off || s.twice {
		s.sample.Quality = max(s.sample.Quality, historian.Uncertain)
	}
	s.sample.Value = read.value
	return s, read.unit, Verdict{}
}

// window refuses a device's time that lies too far from the box's.
func (in *Ingress) window(at instant, r *rules, now time.Time) Verdict {
	// The device's time may lie at the far end of what int64 holds, so the differences are taken on the box's side.
	nowNS := now.UnixNano()
	if at.ns > nowNS && at.ns-nowNS > int64(in.maxFuture) {
		return refuse(TimestampFuture, "timestamp: %s is %s ahead of the box's clock, at most %s are allowed",
			AppendTime(nil, at.ns, at.scale), apart(at.ns, nowNS), in.maxFuture)
	}
	if r.window > 0 && at.ns < nowNS-int64(r.window) {
		return refuse(TimestampTooOld, "timestamp: %s is %s old, but %s",
			AppendTime(nil, at.ns, at.scale), apart(nowNS, at.ns), r.windowName)
	}
	return Verdict{}
}

// apart words the time from one instant to a later one.
func apart(later, earlier int64) string {
	d := time.Unix(0, later).Sub(time.Unix(0, earlier)) // saturates
	if d > 48*time.Hour {
		return fmt.Sprintf("%d days", int64(d/(24*time.Hour)))
	}
	return d.Round(time.Millisecond).String()
}

// readRaw takes a payload as it is.
func (b *Batch) readRaw(payload []byte, k kind, r *reading) Verdict {
	*r = reading{value: historian.Value{Kind: historian.Bytes}}
	if k == kindText {
		if at := invalidUTF8(payload); at >= 0 {
			return refuse(PayloadInvalid, "byte %d: the topic takes text, which must be UTF-8", at)
		}
		r.value.Kind = historian.Text
	}
	mark := len(b.arena)
	b.arena = append(b.arena, payload...)
	r.value.Raw = b.arena[mark:len(b.arena):len(b.arena)]
	return Verdict{}
}

// fromBase64 turns the text of an envelope into the octets that a bytes topic holds.
func (b *Batch) fromBase64(v *historian.Value) Verdict {
	if v.Kind != historian.Text {
		return refuse(TypeMismatch, "value: wanted base64 text for a bytes topic, found %s", kindOf(v))
	}
	mark := len(b.arena)
	var err error
	if b.arena, err = base64.StdEncoding.AppendDecode(b.arena, v.Raw); err != nil {
		return refuse(PayloadInvalid, "value: not base64: %v", err)
	}
	*v = historian.Value{Kind: historian.Bytes, Raw: b.arena[mark:len(b.arena):len(b.arena)]}
	return Verdict{}
}

// Announce publishes the stored ones live, in their order. Call it once, after Accept returned without error.
func (in *Ingress) Announce(b *Batch) {
	if in.live == nil {
		return
	}
	for i := range b.Messages {
		if m := &b.Messages[i]; m.Verdict.Reason == Stored && m.At >= 0 && m.At < len(b.Samples) {
			in.live.Publish(b, i)
		}
	}
}

// Write = Accept, then Announce.
func (in *Ingress) Write(ctx context.Context, b *Batch) error {
	if err := in.Accept(ctx, b); err != nil {
		return err
	}
	in.Announce(b)
	return nil
}
