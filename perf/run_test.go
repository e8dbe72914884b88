package perf_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"millrace/perf"
)

func smallIngest(t *testing.T) perf.IngestOptions {
	o := perf.DefaultIngestOptions()
	o.Devices, o.Rates, o.Stretch, o.Warm, o.Closed = 20, []float64{1000, 2000}, 300*time.Millisecond, 100*time.Millisecond, 300*time.Millisecond
	o.Out, o.Scrap, o.Command, o.Subscribers = filepath.Join(t.TempDir(), "out"), t.TempDir(), "millrace perf ingest", 1
	return o
}

// TestIngest runs the whole ingest run against a child that keeps its promise.
func TestIngest(t *testing.T) {
	o := smallIngest(t)
	r, err := perf.Ingest(t.Context(), o, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := r.Comparisons[0]
	if r.Lost() != 0 || c.Acked < 500 || c.Acked != c.Stored || c.Topics != 200 || c.Unacked != 0 {
		t.Errorf("comparison %+v", c)
	}
	names := []string{}
	for _, s := range r.Stages {
		names = append(names, s.Name)
		if s.Stored <= 0 || s.AckP99 <= 0 || s.PeakMB <= 0 || s.Refused+s.Disconnects != 0 {
			t.Errorf("stage %+v", s)
		}
	}
	if got := strings.Join(names, ", "); got != "first contacts, paced, paced, closed loop" {
		t.Errorf("stages %s", got)
	}
	md, err := os.ReadFile(filepath.Join(o.Out, "report.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"millrace perf ingest", "ingress rates are off", "once, digit for digit", "At rest:"} {
		if !strings.Contains(string(md), want) {
			t.Errorf("report.md does not say %q", want)
		}
	}
	text, err := os.ReadFile(filepath.Join(o.Out, "summary.json"))
	if err != nil {
		t.Fatal(err)
	}
	var back perf.Report
	if err := json.Unmarshal(text, &back); err != nil || back.Comparisons[0].Acked != c.Acked {
		t.Errorf("summary.json: %v, %+v", err, back.Comparisons)
	}
	if left, _ := os.ReadDir(o.Scrap); len(left) != 0 {
		t.Errorf("the scrap folder still holds %v", left)
	}
}

// TestIngestFindsTheBoxOut has the box lose one value and double another.
func TestIngestFindsTheBoxOut(t *testing.T) {
	t.Setenv("MILLRACE_FAKE_LOSE", "300")
	t.Setenv("MILLRACE_FAKE_DOUBLE", "401")
	r, err := perf.Ingest(t.Context(), smallIngest(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	if c := r.Comparisons[0]; r.Lost() != 2 || c.Lost != 1 || c.Doubled != 1 {
		t.Errorf("Lost() is %d; %+v", r.Lost(), c)
	}
}

func smallCrash(t *testing.T) perf.CrashOptions {
	o := perf.DefaultCrashOptions()
	o.Devices, o.Rate, o.Kills, o.Least, o.Most = 20, 3000, 4, 50*time.Millisecond, 300*time.Millisecond
	o.Out, o.Scrap = filepath.Join(t.TempDir(), "out"), t.TempDir()
	return o
}

// TestCrash kills a child that keeps each value before it acknowledges: nothing may be missing.
func TestCrash(t *testing.T) {
	r, err := perf.Crash(t.Context(), smallCrash(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	c := r.Comparisons[0]
	if r.Lost() != 0 || r.Unmet() != 0 || c.Acked < 200 || c.Unacked != 0 || c.Stored != c.Acked+c.Unasked {
		t.Errorf("comparison %+v, targets %+v", c, r.Targets)
	}
	if n := len(r.Tables[0].Rows); n != 4 {
		t.Errorf("%d kills in the report", n)
	}
}

// TestCrashFindsTheBoxOut loses one acknowledged value long before a kill: with or without fsync that is a loss.
func TestCrashFindsTheBoxOut(t *testing.T) {
	for _, noSync := range []bool{false, true} {
		t.Setenv("MILLRACE_FAKE_LOSE", "20")
		o := smallCrash(t)
		o.Kills, o.NoSync, o.Least, o.Most = 1, noSync, 400*time.Millisecond, 400*time.Millisecond
		r, err := perf.Crash(t.Context(), o, nil)
		if err != nil {
			t.Fatal(err)
		}
		if r.Lost() != 1 || r.Targets[0].Met {
			t.Errorf("no-sync %t: Lost() is %d, %+v", noSync, r.Lost(), r.Targets[0])
		}
	}
}

// TestCrashTail has the box acknowledge seven values ahead of its file. The run must name each loss, give it to
// the kill it belongs to, and excuse it only without fsync and only within the declared window.
func TestCrashTail(t *testing.T) {
	t.Setenv("MILLRACE_FAKE_BUFFER", "7")
	for _, noSync := range []bool{false, true} {
		o := smallCrash(t)
		o.NoSync = noSync
		r, err := perf.Crash(t.Context(), o, nil)
		if err != nil {
			t.Fatal(err)
		}
		c := r.Comparisons[0]
		named, within := 0, 0
		for _, row := range r.Tables[0].Rows {
			lost, err1 := strconv.Atoi(row[4])
			tail, err2 := strconv.ParseFloat(row[5], 64)
			if err := errors.Join(err1, err2); err != nil {
				t.Fatal(err)
			}
			named += lost
			if tail <= 100 {
				within += lost
			}
		}
		if !noSync {
			within = 0
		}
		if c.Lost == 0 || c.Lost > 7*o.Kills || named != c.Lost || c.Doubled != 0 || r.Lost() != c.Lost-within {
			t.Errorf("no-sync %t: %d named, %d within the window, Lost() %d, %+v", noSync, named, within, r.Lost(), c)
		}
	}
}

func TestOptionsReportEveryFault(t *testing.T) {
	in, cr, co := perf.DefaultIngestOptions(), perf.DefaultCrashOptions(), perf.DefaultCompareOptions()
	su, re, st := perf.DefaultSubscribersOptions(), perf.DefaultRetainedOptions(), perf.DefaultStalledOptions()
	back, idle := perf.DefaultReconnectOptions(), perf.DefaultIdleOptions()
	for _, v := range []interface{ Validate() error }{&in, &cr, &co, &su, &re, &st, &back, &idle} {
		if err := v.Validate(); err != nil {
			t.Errorf("defaults: %v", err)
		}
	}
	in.Rates, in.MQTT, in.Subscribers, in.Tags = []float64{0}, "127.0.0.1:1883", -1, 0
	cr.Kills, cr.Most, cr.Rate = 0, 0, -1
	co.Rounds, co.Parts = 0, []string{"baseline", "moon"}
	su.Subscribers, su.Each, su.Rate = 0, 0, 0
	re.Topics, re.Window, re.Rounds = 0, 0, 0
	st.QoS, st.Stretch = 2, 0
	back.Clients, back.Limit = 5001, 0
	idle.Clients, idle.Settle = 0, 0
	for _, tc := range []struct {
		v     interface{ Validate() error }
		wants []string
	}{
		{&in, []string{"perf.rates: 0", "perf.mqtt:", "perf.subscribers: -1", "perf.tags: 0"}},
		{&cr, []string{"perf.kills: 0", "perf.most: 0s", "perf.rate: -1"}},
		{&co, []string{"perf.rounds: 0", `perf.parts: "moon"`}},
		{&su, []string{"perf.subscribers: 0", "perf.each: 0", "perf.rate: 0"}},
		{&re, []string{"perf.topics: 0", "perf.window: 0", "perf.rounds: 0"}},
		{&st, []string{"perf.qos: 2", "perf.seconds: 0s"}},
		{&back, []string{"perf.clients: 5001", "perf.limit: 0s"}},
		{&idle, []string{"perf.clients: 0", "perf.settle: 0s"}},
	} {
		err := tc.v.Validate()
		for _, want := range tc.wants {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v does not name %q", err, want)
			}
		}
	}
}

// TestLaunchTellsWhy starts a program that ends at once.
func TestLaunchTellsWhy(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	_, err := perf.Launch(t.Context(), []string{"/bin/sh", "-c", "echo port in use >&2; exit 3"}, nil, log, patience)
	if err == nil || !strings.Contains(err.Error(), "port in use") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("error %v", err)
	}
}
