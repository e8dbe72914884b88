package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestConfigFileEqualsDefaults holds config.yaml at the root to the defaults of the parts: same keys, same
// order, same values, and the line of why that keys.go gives.
func TestConfigFileEqualsDefaults(t *testing.T) {
	file := filepath.Join("..", "..", "config.yaml")
	values, _, faults := readYAML(file)
	if faults != nil {
		t.Fatal(faults)
	}
	c := defaultConfig()
	list := c.settings()
	if len(list) != len(keyWhy) {
		t.Errorf("%d keys exist, keys.go explains %d", len(list), len(keyWhy))
	}
	for i, s := range list {
		if i < len(keyWhy) && keyWhy[i].path != s.path {
			t.Errorf("key %d is %s, keys.go has %s there", i, s.path, keyWhy[i].path)
		}
		if _, ok := values[s.path]; !ok {
			t.Errorf("config.yaml lacks %s: %s", s.path, s.text())
		}
	}
	for path := range values {
		found := false
		for _, s := range list {
			found = found || s.path == path
		}
		if !found {
			t.Errorf("config.yaml has %s, which does not exist", path)
		}
	}
	loaded, err := loadConfig(file, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range loaded.settings() {
		if want := list[i].text(); s.text() != want {
			t.Errorf("%s: config.yaml says %s, the default is %s", s.path, s.text(), want)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range keyWhy {
		if !strings.Contains(string(text), "# "+k.why) {
			t.Errorf("config.yaml does not carry the line of %s: %s", k.path, k.why)
		}
	}
}

func TestConfigOrder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.yaml")
	write(t, file, "data: /from-file\nhistorian:\n  minFreeSpace: 2GiB\n  pebble:\n    syncWrites: false\nbroker:\n  limits:\n    connectTimeout: 2s\n")
	c, err := loadConfig(file, []string{"MILLRACE_DATA=/from-env", "MILLRACE_HISTORIAN_PEBBLE_SYNCWRITES=true", "HOME=/x", "MILLRACE_UNS_WORKSPACES=a,b"}, map[string]string{"data": "/from-flag"})
	if err != nil {
		t.Fatal(err)
	}
	if c.Data != "/from-flag" || c.source["data"] != "flag --data" {
		t.Errorf("data = %s from %s", c.Data, c.source["data"])
	}
	if !c.Historian.Pebble.SyncWrites || c.source["historian.pebble.syncWrites"] != "environment MILLRACE_HISTORIAN_PEBBLE_SYNCWRITES" {
		t.Errorf("syncWrites = %v from %s", c.Historian.Pebble.SyncWrites, c.source["historian.pebble.syncWrites"])
	}
	if c.Historian.MinFreeSpace != 2<<30 || c.source["historian.minFreeSpace"] != file+":3" {
		t.Errorf("minFreeSpace = %d from %s", c.Historian.MinFreeSpace, c.source["historian.minFreeSpace"])
	}
	if c.Broker.Limits.ConnectTimeout != 2*time.Second || c.Historian.Pebble.CommitWindow != auto {
		t.Errorf("connectTimeout %v, commitWindow %v", c.Broker.Limits.ConnectTimeout, c.Historian.Pebble.CommitWindow)
	}
	if strings.Join(c.UNS.Workspaces, "+") != "a+b" {
		t.Errorf("workspaces = %v", c.UNS.Workspaces)
	}
}

func TestConfigFaults(t *testing.T) {
	for _, tt := range []struct {
		name, file string
		env        []string
		want       []string
	}{
		{"unknown key with its line", "historian:\n  minfreespace: 1GiB\n", nil, []string{"c.yaml:2", "unknown key historian.minfreespace", "did you mean historian.minFreeSpace?"}},
		{"bad size", "historian:\n  minFreeSpace: lots\n", nil, []string{"c.yaml:2", `"lots" is not a size`}},
		{"number without unit for a duration", "broker:\n  limits:\n    connectTimeout: 5\n", nil, []string{"c.yaml:3", "has no unit"}},
		{"word for a bool", "historian:\n  pebble:\n    syncWrites: maybe\n", nil, []string{"c.yaml:3", `"maybe" is neither true nor false`}},
		{"a rate that is none", "broker:\n  limits:\n    flappingLimit: often\n", nil, []string{"c.yaml:3", `"often" is not a number a minute`}},
		{"unknown variable", "", []string{"MILLRACE_HISTORIAN_SYNCWRITES=false"}, []string{"unknown variable MILLRACE_HISTORIAN_SYNCWRITES"}},
		{"bad value in the environment", "", []string{"MILLRACE_BROKER_LIMITS_MAXCLIENTS=many"}, []string{"MILLRACE_BROKER_LIMITS_MAXCLIENTS", `"many" is not a whole number`}},
		{"a value out of bounds", "uns:\n  liveMirror:\n    qos: 7\n", nil, []string{"uns.liveMirror.qos", "7"}},
		{"every fault at once", "log:\n  level: loud\n  format: xml\n", nil, []string{"log.level", "log.format"}},
		{"a list for a section", "uns: [1]\n", nil, []string{"c.yaml:1: uns: must be a mapping of keys, not a list"}},
		{"a number for a section", "data: x\nbroker: 3\n", nil, []string{"c.yaml:2: broker: must be a mapping of keys, not 3"}},
		{"a text for an inner section", "broker:\n  limits: tight\n", nil, []string{`c.yaml:2: broker.limits: must be a mapping of keys, not the text "tight"`}},
		{"a mapping for a value", "data:\n  dir: x\n", nil, []string{"c.yaml:2: data: must be a text, not a mapping"}},
		{"a list for a file", "- data\n", nil, []string{"c.yaml:1: the file must be a mapping"}},
		{"every kind of fault in one go", "broker:\n  limits:\n    maxClients: -4\n    nope: 1\n    connectTimeout: soon\nuns: 7\nweb:\n  address: x\n", []string{"MILLRACE_LOG_LEVEL=loud", "MILLRACE_NOPE=1"},
			[]string{"c.yaml:3: broker.limits.maxClients: -4 is below 1\n", "c.yaml:4: unknown key broker.limits.nope", "/c.yaml:5: broker.limits.connectTimeout: \"soon\"", "/c.yaml:6: uns: must be", "/c.yaml:8: web.address",
				"\nenvironment MILLRACE_LOG_LEVEL: log.level", "\nenvironment: unknown variable MILLRACE_NOPE"}},
		{"not YAML", "historian: [\n", nil, []string{"c.yaml", "not YAML"}},
		{"keys twice, and what else is wrong", "data: a\nlog:\n  level: info\n  level: loud\ndata: b\nuns: 3\n", nil,
			[]string{"c.yaml:4: log.level: is there twice, first in line 3", "c.yaml:5: data: is there twice, first in line 1", "c.yaml:6: uns: must be a mapping"}},
		{"a fraction for a whole number", "broker:\n  limits:\n    maxClients: 1.5\n", nil, []string{"c.yaml:3: broker.limits.maxClients: 1.5 is not a whole number"}},
		{"a number beyond all bounds", "broker:\n  limits:\n    maxClients: 18446744073709551615\n", nil, []string{"c.yaml:3: broker.limits.maxClients: 18446744073709551615 is not a whole number that fits"}},
		{"an empty mapping for a value", "data: {}\n", nil, []string{"c.yaml:1: data: must be a text, not a mapping"}},
		{"two documents", "data: a\n---\nlog:\n  level: info\n", nil, []string{"c.yaml:3: a second document"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "c.yaml")
			write(t, file, tt.file)
			_, err := loadConfig(file, tt.env, nil)
			if err == nil {
				t.Fatal("no fault found")
			}
			for _, w := range tt.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q does not say %q", err, w)
				}
			}
		})
	}
}

func TestConfigMaySetNothing(t *testing.T) {
	for _, text := range []string{"", "# nothing\n", "---\n", "uns: {}\nbroker:\n"} {
		file := filepath.Join(t.TempDir(), "c.yaml")
		write(t, file, text)
		if _, err := loadConfig(file, nil, nil); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestQuantities(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "17": 17, "1KiB": 1024, "256 KiB": 256 << 10, "4GiB": 4 << 30, "3B": 3} {
		if n, err := parseSize(text); err != nil || n != want {
			t.Errorf("parseSize(%q) = %d, %v", text, n, err)
		}
	}
	for _, text := range []string{"", "x", "1.5GiB", "9999999999GiB", "1TB"} {
		if n, err := parseSize(text); err == nil {
			t.Errorf("parseSize(%q) = %d", text, n)
		}
	}
	for text, want := range map[string]time.Duration{"7d": 7 * 24 * time.Hour, "1h30m": 90 * time.Minute, "auto": auto, "500ms": 500 * time.Millisecond} {
		if d, err := parseDuration(text); err != nil || d != want || (text != "7d" && formatDuration(d) != text) {
			t.Errorf("parseDuration(%q) = %v, %v, written %q", text, d, err, formatDuration(d))
		}
	}
	for _, text := range []string{"", "5", "d", "-3d", "1y"} {
		if d, err := parseDuration(text); err == nil {
			t.Errorf("parseDuration(%q) = %v", text, d)
		}
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
