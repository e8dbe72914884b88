package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestMetricsPage holds deploy/METRICS.md to what a box exposes: every name, and no other.
func TestMetricsPage(t *testing.T) {
	r := start(t, t.TempDir(), nil)
	secret := r.client("dev1")
	d := signIn(t, r.mqtt, 5, "dev1", secret)
	d.publish(root+"a", "1", 1)
	d.ack()
	r.get("dev1", secret, "/api/v1/uns/latest")
	r.get("dev1", secret, "/api/v1/uns/latest")
	_, text := r.get("", "", "/metrics")
	var have []string
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (millrace_\S+) (\S+)$`).FindAllStringSubmatch(text, -1) {
		have = append(have, m[1]+" "+m[2])
	}
	if len(have) < 10 {
		t.Fatalf("only %d metrics are exposed", len(have))
	}
	page, err := os.ReadFile(filepath.Join("..", "..", "deploy", "METRICS.md"))
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(millrace_[a-z0-9_]+)(?:\\{[a-z,]+\\})?` \\| (\\S+) \\|").FindAllStringSubmatch(string(page), -1) {
		told = append(told, m[1]+" "+m[2])
	}
	slices.Sort(have)
	slices.Sort(told)
	for _, h := range have {
		if !slices.Contains(told, h) {
			t.Errorf("deploy/METRICS.md lacks %s", h)
		}
	}
	for _, h := range told {
		if _, err := os.Stat("/proc/pressure/cpu"); err != nil && strings.Contains(h, "cpu_pressure") {
			continue // a kernel that does not tell
		}
		if strings.Contains(h, "certificate_expires") {
			continue // this box has no certificate; TestDoors and broker's tests look for it
		}
		if strings.Contains(h, "pipeline_cpu_seconds") {
			continue // this box has no pipeline; TestPipelines looks for it
		}
		if !slices.Contains(have, h) {
			t.Errorf("deploy/METRICS.md has %s, which no box exposes", h)
		}
	}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "millrace_") && (strings.Contains(line, `topic="`) || strings.Contains(line, `client="`)) {
			t.Errorf("a label per topic or client: %s", line)
		}
	}
}
