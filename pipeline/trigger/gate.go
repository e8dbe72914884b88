package trigger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"millrace/historian"
	"millrace/pipeline/node"
	"millrace/pipeline/script"
	"millrace/pipeline/value"
	"millrace/uns"
)

// The answers of a gate: passed, or what held the value back. They are the label of a metric.
const (
	passed = iota
	tooOld
	unchanged
	filtered
	broken // the filter failed
	sampled
	throttled
	waits // debounced: maybe later
	answers
)

var answerNames = [answers]string{"passed", "age", "change", "filter", "filter_error", "sample", "throttle", "debounce"}

// gate holds values back before they cost a place in the queue, by the settings of one trigger, topic by topic. It belongs to
// the goroutine of the follower.
//
// The order is age, change or quality, filter, sample, throttle, debounce. A value that throttle holds back is not
// remembered as seen: if it was a change, the next value is one still. What is remembered is in memory alone; after a start, a deploy or an
// eviction the first value of a topic passes as a change, as the first of a throttle and of a sample. So nothing that should have
// started a run is held back for what was forgotten; a run too many may start.
type gate struct {
	v     *node.Values
	band  value.Value
	marks map[historian.Series]mark
	// tripped is until when the filter is not asked, because it took too long.
	tripped int64
}

const (
	// filterTime is how long a filter may take: every other trigger waits for it.
	filterTime = 100 * time.Millisecond
	// tripTime is how long one is left alone that took longer.
	tripTime = 10 * time.Second
)

// newGate is nil for a trigger that holds nothing back.
func newGate(v *node.Values) *gate {
	if (v.On == "" || v.On == "every") && v.Filter == nil && v.Debounce == 0 && v.Throttle == 0 && v.Sample <= 1 && v.MaxAge == 0 {
		return nil
	}
	return &gate{v: v, band: bandOf(v.Deadband), marks: map[historian.Series]mark{}}
}

// remembers says whether the gate needs marks at all.
func (g *gate) remembers() bool {
	return g.v.On == "change" || g.v.On == "quality" || g.v.Throttle > 0 || g.v.Sample > 1
}

// judge holds a value against the settings. scope is the value as filters see it, made when first asked for. slow says why the filter is left alone from now on. evict is called before the gate remembers one topic more.
func (g *gate) judge(ctx context.Context, s *historian.Sample, now int64, scope func() *script.Scope, evict func()) (answer int, slow error) {
	v := g.v
	if v.MaxAge > 0 && now-s.Received > int64(v.MaxAge) {
		return tooOld, nil
	}
	var m mark
	old := false
	if g.remembers() {
		m, old = g.marks[s.Series]
		switch v.On {
		case "change":
			if m.same(&s.Value, g.band) {
				return unchanged, nil
			}
		case "quality":
			if m.known && m.quality == s.Quality {
				return unchanged, nil
			}
		}
	}
	wanted := true
	if v.Filter != nil {
		if wanted, answer, slow = g.ask(ctx, now, scope()); answer != passed {
			return answer, slow
		}
	}
	answer = passed
	switch {
	case !wanted:
		answer = filtered
	case v.Sample > 1:
		if m.turn%uint32(v.Sample) != 0 {
			answer = sampled
		}
	}
	if answer == passed && v.Throttle > 0 && m.started && s.Received >= m.passed && s.Received-m.passed < int64(v.Throttle) {
		return throttled, nil
	}
	if g.remembers() {
		if wanted {
			m.turn++
			if v.Sample > 1 {
				m.turn %= uint32(v.Sample)
			}
		}
		if answer == passed {
			m.started, m.passed = true, s.Received
		}
		if v.On == "change" {
			m.take(&s.Value)
		}
		m.known, m.quality = true, s.Quality
		if !old {
			evict()
		}
		g.marks[s.Series] = m
	}
	if answer == passed && v.Debounce > 0 {
		answer = waits
	}
	return answer, nil
}

// ask evaluates the filter. The error says that it took too long and is left alone from now on.
func (g *gate) ask(ctx context.Context, now int64, scope *script.Scope) (wanted bool, answer int, slow error) {
	if now < g.tripped && now > g.tripped-2*int64(tripTime) { // a clock that was set back does not hold it for ever
		return false, broken, nil
	}
	limited, cancel := context.WithTimeout(ctx, filterTime)
	defer cancel()
	got, err := g.v.Filter.Eval(limited, scope)
	if err == nil {
		return got.Truthy(), passed, nil
	}
	var failure *script.Error
	if ctx.Err() == nil && (limited.Err() != nil || errors.As(err, &failure) && failure.Kind != script.Runtime) {
		g.tripped = now + int64(tripTime)
		return false, broken, fmt.Errorf("the filter was stopped after at most %v: %w", filterTime, err)
	}
	return false, broken, nil
}

// forgetOne makes room for another topic; it says whether there was one to forget.
func (g *gate) forgetOne() bool {
	for id := range g.marks {
		delete(g.marks, id)
		return true
	}
	return false
}

// scopeOf is what a filter sees: $trigger.
func scopeOf(t *uns.Topic, s *historian.Sample) *script.Scope {
	return &script.Scope{Trigger: value.Object(
		value.Field{Name: "topic", Value: value.Text(t.Path)},
		value.Field{Name: "value", Value: valueOf(&s.Value)},
		value.Field{Name: "timestamp", Value: value.Text(string(uns.AppendTime(nil, s.Time, s.Scale)))},
		value.Field{Name: "quality", Value: value.Text(s.Quality.String())},
	)}
}

// valueOf is a stored value as the engine's.
func valueOf(v *historian.Value) value.Value {
	switch v.Kind {
	case historian.Bool:
		return value.Bool(v.Mant != 0)
	case historian.Decimal, historian.Number:
		return numberOf(v)
	case historian.Text:
		return value.Text(string(v.Raw))
	}
	got, err := value.Parse(v.AppendJSON(nil))
	if err != nil {
		return value.Null()
	}
	return got
}

// due is when a debounced value that was received at that time has been quiet for long enough.
func due(received int64, quiet time.Duration) int64 {
	if at := received + int64(quiet); at > received {
		return at
	}
	return received
}
