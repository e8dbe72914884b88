package main

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"millrace/historian/kv"
	"millrace/pipeline/definition"
	"millrace/pipeline/nodes"
	"millrace/pipeline/script"
)

// shelve deploys definitions into a data folder that no box serves.
func shelve(t *testing.T, data string, texts ...[]byte) {
	t.Helper()
	if err := os.MkdirAll(data, 0o750); err != nil {
		t.Fatal(err)
	}
	records, err := kv.Open(filepath.Join(data, "records"), kv.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer records.Close()
	scripts := script.NewEngine(script.Options{})
	defer scripts.Close()
	shelf, err := definition.OpenShelf(records, definition.NewCompiler(nodes.All(nodes.Options{}), scripts), definition.ShelfOptions{Seq: func() uint64 { return 1 }})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range texts {
		d, faults := definition.Read(text)
		if definition.Broken(faults) {
			t.Fatalf("%s: %+v", text, faults)
		}
		if _, err := shelf.Save(&d, definition.Any, "test"); err != nil {
			t.Fatal(err)
		}
		if _, _, err := shelf.Deploy(d.ID, "", "test"); err != nil {
			t.Fatal(err)
		}
	}
}

// harms are what disks do to files that were not synced, done to the queue's folder.
var harms = []struct {
	name string
	do   func(dir, before string) error
}{
	{"left as it is", func(string, string) error { return nil }},
	{"deleted", func(dir, _ string) error { return os.RemoveAll(dir) }},
	{"zero-filled", func(dir, _ string) error {
		return filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() || filepath.Ext(path) != ".blk" {
				return err
			}
			info, err := e.Info()
			if err != nil {
				return err
			}
			return os.WriteFile(path, make([]byte, info.Size()), 0o640)
		})
	}},
	{"rolled back", func(dir, before string) error {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
		return os.CopyFS(dir, os.DirFS(before))
	}},
}

// TestPipelinesOverKills: the box is killed in the middle of triggers, and what the queue keeps on disk is harmed in between.
// Every value that was acknowledged is stored and has started its runs; every derived value is there exactly once; those of
// an ordered pipeline are in the order of the device's.
func TestPipelinesOverKills(t *testing.T) {
	rounds := len(harms)
	switch {
	case os.Getenv("MILLRACE_LONG") != "":
		rounds = 20
	case testing.Short(): // under the race detector; all of them run without it
		rounds = 2
	}
	const devices = 3
	data := filepath.Join(t.TempDir(), "data")
	shelve(t, data, twin("twin", "load/#", "derived/{{ $trigger.topic }}", `{}`), twin("ordered", "load/#", "ordered/{{ $trigger.topic }}", `{"runOrder":"ordered"}`),
		twin("keyed", "load/#", "keyed/{{ $trigger.topic }}", `{"runOrder":"byKey","orderKey":"$trigger.topic"}`))
	var senders []*sender
	for round := range rounds {
		p := serve(t, data)
		stop := make(chan struct{})
		ended := make(chan error, devices)
		var these []*sender
		for i := range devices {
			s := &sender{id: fmt.Sprintf("dev%d-%d", round, i)}
			s.secret = p.secret(s.id)
			these = append(these, s)
		}
		for _, s := range these {
			go func() { ended <- s.run(p.mqtt, stop) }()
		}
		reached := func(n int64) func() bool {
			return func() bool {
				return slices.IndexFunc(these, func(s *sender) bool { return s.acked.Load() < n }) < 0
			}
		}
		eventually(t, "some values are acknowledged", reached(100))
		before := filepath.Join(t.TempDir(), "queue")
		if harms[round%len(harms)].name == "rolled back" {
			// A copy of files that are written meanwhile is what a disk may leave, too.
			if err := os.CopyFS(before, os.DirFS(filepath.Join(data, "queue"))); err != nil {
				t.Logf("copy of the queue: %v", err)
			}
		}
		eventually(t, "more values are acknowledged", reached(300+rand.Int64N(400)))
		p.kill()
		for range devices {
			<-ended // each was cut off, or stopped
		}
		close(stop)
		senders = append(senders, these...)
		h := harms[round%len(harms)]
		if err := h.do(filepath.Join(data, "queue"), before); err != nil {
			t.Fatal(h.name, err)
		}
	}
	p := serve(t, data)
	end := time.Now().Add(30 * time.Second) // for all of them
	for _, s := range senders {
		topic := "load/" + s.id
		sent := p.numbers(topic)
		if int64(len(sent)) < s.acked.Load() {
			t.Errorf("%s: %d values are stored, %d were acknowledged", s.id, len(sent), s.acked.Load())
		}
		for _, to := range []string{"derived", "ordered", "keyed"} {
			var got []int64
			for ; ; time.Sleep(50 * time.Millisecond) {
				if got = p.numbers(to + "/" + topic); len(got) >= len(sent) || time.Now().After(end) {
					break
				}
			}
			if to == "derived" {
				slices.Sort(got)
			}
			if !slices.Equal(got, sent) {
				at := 0
				for at < min(len(got), len(sent)) && got[at] == sent[at] {
					at++
				}
				t.Errorf("%s/%s: %d values for %d; they part at %d: %v for %v", to, topic, len(got), len(sent), at, got[at:min(len(got), at+5)], sent[at:min(len(sent), at+5)])
			}
		}
	}
	p.stop()
}
