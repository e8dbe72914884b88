package trigger_test

import (
	"fmt"
	"testing"
	"time"

	"millrace/pipeline/node"
	"millrace/pipeline/queue"
	"millrace/pipeline/script"
	"millrace/pipeline/trigger"
)

// through sends payloads to topic a, each a second after the one before, through one trigger, and gives what started a run.
func through(t *testing.T, v node.Values, payloads ...string) (got []string) {
	t.Helper()
	b := newBox(t)
	b.follow(1, nil)
	v.Filters = []string{"a"}
	b.change(1, plan(1, 1, queue.Normal, v))
	for _, p := range payloads {
		b.clock.Add(1000)
		b.send("a", p)
	}
	b.caught(false)
	for _, e := range b.sink.all() {
		got = append(got, string(e.Value))
	}
	return got
}

func TestGates(t *testing.T) {
	scripts := script.NewEngine(script.Options{})
	defer scripts.Close()
	filter := func(code string) *script.Expression {
		x, err := scripts.Expression(code)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	uncertain := `{"value":1,"quality":"uncertain"}`
	for _, c := range []struct {
		name string
		v    node.Values
		in   []string
		want []string
	}{
		{"every", node.Values{On: "every"}, []string{"1", "1", "2"}, []string{"1", "1", "2"}},
		{"change", node.Values{On: "change"}, []string{"1", "1", "1.0", "2", "1", `"a"`, `"a"`, `"b"`, "true", "true", "false", "null", "null", `{"x":1}`, `{"x":1}`, `{"x":2}`, "18446744073709551616", "18446744073709551616.0"},
			[]string{"1", "2", "1", `"a"`, `"b"`, "true", "false", "null", `{"x":1}`, `{"x":2}`, "18446744073709551616"}},
		{"a change of kind", node.Values{On: "change"}, []string{"1", "true", `"1"`, "1"}, []string{"1", "true", `"1"`, "1"}},
		{"a quality that changes is no change of the value", node.Values{On: "change"}, []string{"1", uncertain, "1"}, []string{"1"}},
		{"quality", node.Values{On: "quality"}, []string{"1", "2", uncertain, uncertain, "1"}, []string{"1", "1", "1"}},
		{"deadband, exactly at its edge", node.Values{On: "change", Deadband: 0.3}, []string{"20.0", "20.3", "20.30001", "20.0", "20.1", `"x"`, "20.1"}, []string{"20.0", "20.30001", "20.0", `"x"`, "20.1"}},
		{"deadband counts from the last that passed", node.Values{On: "change", Deadband: 1}, []string{"0", "0.6", "1.2", "1.8", "2.4"}, []string{"0", "1.2", "2.4"}},
		{"filter", node.Values{Filter: filter("$trigger.value > 1")}, []string{"1", "2", "0", "3", `"x"`}, []string{"2", "3"}},
		{"filter sees topic, quality and time", node.Values{Filter: filter(`$trigger.topic == "a" && $trigger.quality == "uncertain" && $trigger.timestamp.length > 20`)}, []string{"1", uncertain}, []string{"1"}},
		{"filter that fails", node.Values{Filter: filter("$trigger.value.x.y > 1")}, []string{"1", `{"x":{"y":2}}`}, []string{`{"x":{"y":2}}`}},
		// 40 was seen and not wanted; 60 after it is a change.
		{"change, then filter", node.Values{On: "change", Filter: filter("$trigger.value > 50")}, []string{"60", "40", "60", "60"}, []string{"60", "60"}},
		{"sample", node.Values{Sample: 3}, []string{"1", "2", "3", "4", "5", "6", "7"}, []string{"1", "4", "7"}},
		{"sample counts what the filter lets pass", node.Values{Sample: 2, Filter: filter("$trigger.value > 1")}, []string{"2", "0", "3", "0", "4"}, []string{"2", "4"}},
		{"throttle", node.Values{Throttle: 2500 * time.Millisecond}, []string{"1", "2", "3", "4", "5", "6", "7"}, []string{"1", "4", "7"}},
		// The change to 2 is held back by throttle; it is not forgotten.
		{"change and throttle lose no change", node.Values{On: "change", Throttle: 2500 * time.Millisecond}, []string{"1", "2", "2", "2", "2"}, []string{"1", "2"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := through(t, c.v, c.in...); fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestOldValuesStartNothing(t *testing.T) {
	b := newBox(t)
	b.versions.add(change(1, 1, plan(1, 1, queue.High, node.Values{Filters: []string{"a"}, MaxAge: time.Minute})))
	b.send("a", "1")
	b.clock.Add(30_000)
	b.send("a", "2")
	b.clock.Add(45_000)
	b.follow(1, nil)
	b.caught(false)
	b.wantPuts("1:a=2")
}

// The first value of a topic after a start passes as a change: what was there before the start may have been another.
func TestChangesOverAStart(t *testing.T) {
	b := newBox(t)
	b.follow(1, nil)
	b.change(1, plan(1, 1, queue.High, node.Values{Filters: []string{"a"}, On: "change"}))
	b.send("a", "1")
	b.send("a", "1")
	b.caught(false)
	b.stop()
	b.follow(b.f.Position()+1, nil)
	b.send("a", "1")
	b.send("a", "1")
	b.caught(false)
	b.wantPuts("1:a=1", "1:a=1")
	// A deploy of another pipeline keeps what the gates know.
	b.change(2, plan(2, 1, queue.High, node.Values{Filters: []string{"b"}}))
	b.send("a", "1")
	b.caught(false)
	b.wantPuts("1:a=1", "1:a=1")
}

func TestGatesForgetTopicsBeyondTheirBound(t *testing.T) {
	b := newBox(t)
	b.follow(1, func(o *trigger.Options) { o.MaxMarks = 10 })
	b.change(1, plan(1, 1, queue.High, node.Values{Filters: []string{"#"}, On: "change"}))
	for range 2 {
		for i := range 30 {
			b.send(fmt.Sprintf("t/%d", i), "1")
		}
	}
	b.caught(false)
	if n := len(b.sink.all()); n < 50 || n > 60 {
		t.Errorf("%d runs of 60 values, of which 10 topics at most are remembered", n)
	}
	if n := trigger.Marks(b.f); n != 10 {
		t.Errorf("%d topics are remembered", n)
	}
	b.change(1, nil)
	b.send("t/1", "1")
	b.send("t/1", "2") // counted before it
	b.caught(false)
	if n := trigger.Marks(b.f); n != 0 {
		t.Errorf("%d topics are remembered for a pipeline that was stopped", n)
	}
}

// A filter that never ends must not stop the others.
func TestFilterThatHangsIsLeftAlone(t *testing.T) {
	scripts := script.NewEngine(script.Options{})
	defer scripts.Close()
	hang, err := scripts.Expression("(() => { while (true) {} })()")
	if err != nil {
		t.Fatal(err)
	}
	b := newBox(t)
	b.follow(1, nil)
	b.change(1, plan(1, 1, queue.High, node.Values{Filters: []string{"a"}, Filter: hang}))
	b.change(2, plan(2, 1, queue.High, node.Values{Filters: []string{"a"}}))
	begun := time.Now()
	for range 200 {
		b.send("a", "1")
	}
	b.caught(false)
	// Each would take 100 ms.
	if n := len(b.sink.all()); n != 200 || time.Since(begun) > 15*time.Second {
		t.Errorf("%d runs after %v", n, time.Since(begun))
	}
}
