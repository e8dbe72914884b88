package pipeline

import (
	"context"
	"sync"
	"time"

	"millrace/pipeline/definition"
	"millrace/pipeline/node"
	"millrace/pipeline/queue"
)

// schedules starts runs at planned times. A time that passed while the box was off, or while it fired late by more than
// one interval, is left out.
type schedules struct {
	eng *Engine

	mu    sync.Mutex
	armed map[scheduled]*timetable
	fire  chan due
	stop  bool
}

// scheduled names one trigger of a deployed version.
type scheduled struct {
	pipeline, version uint32
	step              uint16
}

type timetable struct {
	planner *node.Planner
	plan    *definition.Plan
	at      time.Time
	alarm   *alarm
}

type due struct {
	key scheduled
	tt  *timetable
	at  time.Time
}

// maxDue is how many planned runs may wait to be put into the queue; more are left out, and counted.
const maxDue = 10_000

// set arms what runs now.
func (s *schedules) set(running []*definition.Plan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	want := make(map[scheduled]bool)
	for _, p := range running {
		for _, t := range p.Triggers {
			if p.Steps[t].Trigger == nil {
				continue
			}
			sch := p.Steps[t].Trigger.Start().Schedule
			if sch == nil {
				continue
			}
			key := scheduled{p.Number, p.Version, uint16(p.Steps[t].Number)}
			want[key] = true
			if s.armed[key] != nil {
				continue
			}
			planner, err := node.NewPlanner(sch)
			if err != nil {
				s.eng.log.Error("a schedule cannot be kept", "pipeline", p.ID, "node", p.Steps[t].ID, "error", err)
				continue
			}
			tt := &timetable{planner: planner, plan: p}
			s.armed[key] = tt
			s.arm(key, tt, s.eng.now())
		}
	}
	for key, tt := range s.armed {
		if !want[key] {
			if tt.alarm != nil {
				s.eng.waits.drop(tt.alarm)
			}
			delete(s.armed, key)
		}
	}
}

// arm waits for the first planned time after t. The lock is held.
func (s *schedules) arm(key scheduled, tt *timetable, t time.Time) {
	if s.stop {
		return
	}
	if tt.at = tt.planner.Next(t); tt.at.IsZero() {
		return
	}
	// The time of day may be set meanwhile, so a long wait looks again once a minute.
	d := min(max(0, tt.at.Sub(s.eng.now())), time.Minute)
	tt.alarm = s.eng.waits.in(d, func() { s.rang(key, tt) })
}

func (s *schedules) rang(key scheduled, tt *timetable) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.armed[key] != tt || s.stop {
		return
	}
	now := s.eng.now()
	if now.Before(tt.at) {
		d := min(tt.at.Sub(now), time.Minute)
		tt.alarm = s.eng.waits.in(d, func() { s.rang(key, tt) })
		return
	}
	select {
	case s.fire <- due{key, tt, tt.at}:
	default:
		s.eng.metrics.missed.Add(1)
	}
	s.arm(key, tt, now)
}

// run puts what is due into the queue until ctx ends.
func (s *schedules) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case d := <-s.fire:
			e := queue.Entry{Kind: queue.Schedule, ID: uint64(d.at.UnixMilli()), Workspace: d.tt.plan.Workspace, Time: d.at.UnixNano(), Scale: 6, Value: []byte("null"),
				Refs: []queue.Ref{{Pipeline: d.key.pipeline, Version: d.key.version, Node: d.key.step}}}
			if err := s.eng.Put(ctx, queue.Lane(d.tt.plan.Settings.Lane), e); err != nil && ctx.Err() == nil {
				s.eng.metrics.missed.Add(1)
				s.eng.log.Error("a planned run could not be queued", "pipeline", d.tt.plan.ID, "error", err)
			}
		}
	}
}

// end arms nothing more.
func (s *schedules) end() {
	s.mu.Lock()
	s.stop = true
	s.mu.Unlock()
}
