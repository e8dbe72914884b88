package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"millrace/pipeline/definition"
)

// twin is the definition of a pipeline that hands every value of a filter on to a topic of its own.
func twin(id, filter, to, settings string) []byte {
	return fmt.Appendf(nil, `{"id":%q,"settings":%s,"nodes":[
		{"id":"in","type":"trigger.uns.subscribe","params":{"topics":[%q]}},
		{"id":"set","type":"transform.set","params":{"fields":[{"name":"value","value":"{{ $trigger.value }}"}]}},
		{"id":"out","type":"system.uns.publish","params":{"topic":%q,"value":"{{ $json.value }}"}}],
		"edges":[{"from":"in","to":"set"},{"from":"set","to":"out"}]}`, id, settings, filter, to)
}

// deploy puts a definition on the shelf of a running box.
func (r *running) deploy(text []byte) definition.Pipeline {
	r.t.Helper()
	d, faults := definition.Read(text)
	if definition.Broken(faults) {
		r.t.Fatalf("%s: %+v", text, faults)
	}
	if _, err := r.box.runs.shelf.Save(&d, definition.Any, "test"); err != nil {
		r.t.Fatal(err)
	}
	p, _, err := r.box.runs.shelf.Deploy(d.ID, "", "test")
	if err != nil {
		r.t.Fatal(err)
	}
	return p
}

// TestPipelines is the whole walk: a device's value is stored, starts a run, and the derived value is stored once, digit
// for digit, with the device's time, and comes to a subscriber.
func TestPipelines(t *testing.T) {
	dir := t.TempDir()
	r := start(t, dir, nil)
	secret := r.client("dev1")
	r.deploy(twin("twin", "line1/#", "derived/{{ $trigger.topic }}", `{}`))
	watcher := r.client("watcher")
	w := signIn(t, r.mqtt, 5, "watcher", watcher)
	w.subscribe(root+"derived/#", 1)
	d := signIn(t, r.mqtt, 5, "dev1", secret)
	const n = 100
	base := time.Now().UTC().Add(-time.Minute).Truncate(time.Second)
	at := func(i int) string {
		return base.Add(time.Duration(i) * time.Millisecond).Format("2006-01-02T15:04:05.000Z")
	}
	for i := range n {
		d.publish(root+"line1/temp", fmt.Sprintf(`{"value":%d.50,"timestamp":"%s"}`, i, at(i)), uint16(i+1))
		d.ack()
	}
	seen := map[string]int{}
	for len(seen) < n {
		topic, payload, _ := w.message()
		if topic != root+"derived/line1/temp" {
			t.Fatalf("a value on %s", topic)
		}
		seen[payload]++
	}
	for i := range n {
		if want := fmt.Sprintf(`{"value":%d.50,"timestamp":"%s","quality":"good"}`, i, at(i)); seen[want] != 1 {
			t.Errorf("%s came %d times", want, seen[want])
		}
	}
	eventually(t, "the runs are counted", func() bool {
		_, text := r.get("", "", "/metrics")
		return strings.Contains(text, fmt.Sprintf(`millrace_pipeline_runs_total{status="completed"} %d`, n))
	})
	_, text := r.get("", "", "/metrics")
	if !strings.Contains(text, `millrace_pipeline_cpu_seconds_total{pipeline="twin"}`) {
		t.Error("the metrics do not show what the pipeline costs")
	}
	r.stop()
	// Nothing is made twice by a restart.
	r = start(t, dir, nil)
	d = signIn(t, r.mqtt, 5, "dev1", secret)
	d.publish(root+"line1/temp", `{"value":7}`, 1)
	eventually(t, "the value after the restart is derived", func() bool {
		_, text := r.get("dev1", secret, "/api/v1/uns/history", "topic", "derived/line1/temp", "from", "-1h", "limit", "1000")
		return strings.Contains(text, "7]")
	})
	_, text = r.get("dev1", secret, "/api/v1/uns/history", "topic", "derived/line1/temp", "from", "-1h", "limit", "1000")
	if got := strings.Count(text, `"good"`); got != n+1 {
		t.Errorf("%d derived values, want %d", got, n+1)
	}
}

// TestLoopIsStopped: pipelines that feed each other stop after 16 derivations, with an issue, and the box goes on.
func TestLoopIsStopped(t *testing.T) {
	r := start(t, t.TempDir(), nil)
	secret := r.client("dev1")
	r.deploy(twin("ping", "loop/a", "loop/{{ 'b' }}", `{}`))
	r.deploy(twin("pong", "loop/b", "loop/{{ 'a' }}", `{}`))
	d := signIn(t, r.mqtt, 5, "dev1", secret)
	d.publish(root+"loop/a", "1", 1)
	d.ack()
	eventually(t, "the loop is noticed", func() bool { return len(r.box.runs.engine.Issues()) > 0 })
	if x := r.box.runs.engine.Issues()[0]; x.Kind != "loop" || x.Pipeline != "ping" && x.Pipeline != "pong" {
		t.Errorf("issue %+v", x)
	}
	_, a := r.get("dev1", secret, "/api/v1/uns/history", "topic", "loop/a")
	_, b := r.get("dev1", secret, "/api/v1/uns/history", "topic", "loop/b")
	if got := strings.Count(a, `"good"`) + strings.Count(b, `"good"`); got != 17 {
		t.Errorf("%d values, want the device's and 16 derived ones", got)
	}
}
