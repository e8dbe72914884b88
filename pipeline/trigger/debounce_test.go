package trigger_test

import (
	"testing"
	"time"

	"millrace/pipeline/definition"
	"millrace/pipeline/node"
	"millrace/pipeline/queue"
	"millrace/pipeline/trigger"
)

func change(number uint32, seq uint64, p *definition.Plan) definition.Change {
	return definition.Change{Number: number, New: p, Seq: seq}
}

func TestDebounceTakesTheLastOfABurst(t *testing.T) {
	b := newBox(t)
	tick := make(chan time.Time)
	b.follow(1, func(o *trigger.Options) { o.Tick = tick })
	b.change(1, plan(1, 1, queue.Low, node.Values{Filters: []string{"a", "b"}, Debounce: time.Second}))
	b.send("a", "1")
	b.send("b", "5")
	b.send("a", "2")
	b.send("x", "0")
	b.caught(true)
	if p := b.f.Position(); p != 1 {
		t.Errorf("position is %d while sequence 2 is pending", p) // sequence 1 was replaced by 3
	}
	tick <- b.now()
	tick <- b.now()
	b.wantPuts()
	b.clock.Add(999)
	b.send("a", "3") // the burst goes on
	b.caught(true)
	b.clock.Add(1)
	tick <- b.now()
	tick <- b.now()
	b.wantPuts("1:b=5")
	b.clock.Add(999)
	tick <- b.now()
	tick <- b.now()
	b.wantPuts("1:b=5", "1:a=3")
	b.caught(false)
	// The next value comes when the one before had been quiet for long enough, though nobody looked.
	b.send("a", "4")
	b.clock.Add(5000)
	b.send("a", "5")
	b.caught(true)
	b.wantPuts("1:b=5", "1:a=3", "1:a=4")
	e := b.sink.all()[2]
	if e.lane != queue.Low || e.Refs[0] != (queue.Ref{Pipeline: 1, Version: 1}) || e.Seq != 6 {
		t.Errorf("%+v", e)
	}
}

// A backlog is debounced by its own times: what is put is the same as live, whatever the clock says now.
func TestDebounceOfABacklog(t *testing.T) {
	b := newBox(t)
	b.versions.add(change(1, 1, plan(1, 1, queue.High, node.Values{Filters: []string{"#"}, Debounce: time.Second})))
	for i := range 30 {
		b.send("a", string('0'+rune(i%10)))
		b.clock.Add(300)
		if i%10 == 9 {
			b.clock.Add(2000)
			b.send("b", "7")
		}
	}
	b.clock.Add(3_600_000)
	tick := make(chan time.Time)
	b.follow(1, func(o *trigger.Options) { o.Tick = tick })
	b.caught(true)
	tick <- b.now()
	tick <- b.now()
	b.caught(false)
	b.wantPuts("1:a=9", "1:b=7", "1:a=9", "1:b=7", "1:a=9", "1:b=7")
}

// What is pending when the box stops is pending again after it: the cursor stayed below.
func TestPendingValuesOutliveAStart(t *testing.T) {
	b := newBox(t)
	b.follow(1, nil)
	b.change(1, plan(1, 1, queue.High, node.Values{Filters: []string{"a"}, Debounce: time.Second}))
	b.send("a", "1")
	b.send("x", "1")
	b.send("a", "2")
	b.send("x", "2")
	b.caught(true)
	cursor := b.f.Position() + 1
	if cursor != 3 {
		t.Fatalf("the cursor is %d while sequence 3 is pending", cursor)
	}
	b.stop()
	tick := make(chan time.Time)
	b.follow(cursor, func(o *trigger.Options) { o.Tick = tick })
	b.caught(true)
	b.clock.Add(1000)
	tick <- b.now()
	tick <- b.now()
	b.wantPuts("1:a=2")
}

func TestTooManyPendingGoEarly(t *testing.T) {
	b := newBox(t)
	b.follow(1, func(o *trigger.Options) { o.MaxPending = 2 })
	b.change(1, plan(1, 1, queue.High, node.Values{Filters: []string{"#"}, Debounce: time.Hour}))
	b.send("a", "1")
	b.clock.Add(1)
	b.send("b", "1")
	b.clock.Add(1)
	b.send("c", "1")
	b.caught(true)
	b.wantPuts("1:a=1")
}
