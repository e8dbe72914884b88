package main_test

import (
	"encoding/json"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// mayImport is the order of ARCHITECTURE.md: imports follow the value. Each arrow has its reason. An arrow
// that is not here fails the build; do not add one to make a build pass, move the code.
var mayImport = []struct{ from, to, why string }{
	{"cmd/millrace", "auth", "wiring"},
	{"cmd/millrace", "backup", "wiring, and the commands that need no box"},
	{"cmd/millrace", "broker", "wiring"},
	{"cmd/millrace", "historian", "wiring"},
	{"cmd/millrace", "historian/kv", "wiring"},
	{"cmd/millrace", "perf", "the perf commands and the demo plant"},
	{"cmd/millrace", "uns", "wiring"},
	{"cmd/millrace", "web", "wiring"},
	{"web", "auth", "who calls, and what a caller may"},
	{"web", "uns", "topics, settings, publishing"},
	{"web", "historian", "samples and their exact values"},
	{"broker", "auth", "sign-in and grants of a session"},
	{"broker", "uns", "the way in, and the topic of a live value"},
	{"uns", "historian", "samples are the historian's"},
	{"auth", "historian/kv", "clients and tokens are small records"},
	{"broker", "certificate", "a certificate is read and read anew the same way for both listeners; a leaf"},
	{"web", "certificate", "a certificate is read and read anew the same way for both listeners; a leaf"},
	{"historian", "historian/datadir", "a folder is claimed the same way for both stores"},
	{"historian/kv", "historian/datadir", "a folder is claimed the same way for both stores"},
	{"web", "historian/kv", "small records; a leaf"},
	{"backup", "historian/kv", "when the newest whole backup was taken is a small record; a leaf"},
	{"broker", "historian/kv", "small records; a leaf"},
	{"cmd/millrace", "pipeline", "wiring"},
	{"cmd/millrace", "pipeline/definition", "wiring, and definitions of the demo plant"},
	{"cmd/millrace", "pipeline/history", "wiring"},
	{"cmd/millrace", "pipeline/node", "what reading the namespace may fail with"},
	{"cmd/millrace", "pipeline/value", "stored values as pipelines see them"},
	{"cmd/millrace", "pipeline/nodes", "the list of node types is handed in"},
	{"cmd/millrace", "pipeline/queue", "wiring"},
	{"cmd/millrace", "pipeline/script", "wiring"},
	{"cmd/millrace", "pipeline/trigger", "wiring"},
	{"web", "web/promql", "the query language of data sources"},
	{"web", "pipeline", "what runs, and what is asked of it"},
	{"web", "pipeline/definition", "pipelines as people write them"},
	{"web", "pipeline/history", "runs and their traces"},
	{"web", "pipeline/node", "node types as they describe themselves"},
	{"web", "pipeline/value", "values of runs and parameters"},
	{"pipeline", "uns", "derived values go the one way in"},
	{"pipeline", "historian/kv", "small records; a leaf"},
	{"pipeline", "pipeline/definition", "compiled plans are what is run"},
	{"pipeline", "pipeline/history", "every run leaves a row"},
	{"pipeline", "pipeline/node", "the contract of what is run"},
	{"pipeline", "pipeline/queue", "runs come from it"},
	{"pipeline", "pipeline/script", "expressions of runs"},
	{"pipeline", "pipeline/trigger", "stored values become runs"},
	{"pipeline", "pipeline/value", "what nodes hand on"},
	{"pipeline/definition", "pipeline/node", "specs validate parameters"},
	{"pipeline/definition", "pipeline/script", "expressions are compiled at deploy"},
	{"pipeline/definition", "pipeline/value", "parameters"},
	{"pipeline/definition", "uns", "whether a pipeline triggers itself is a question of filters"},
	{"pipeline/definition", "historian/kv", "small records; a leaf"},
	{"pipeline/history", "historian/kv", "small records; a leaf"},
	{"pipeline/node", "pipeline/script", "what expressions see"},
	{"pipeline/node", "pipeline/value", "what nodes hand on"},
	{"pipeline/nodes", "pipeline/node", "the contract"},
	{"pipeline/nodes", "pipeline/script", "expressions and code of nodes"},
	{"pipeline/nodes", "pipeline/value", "what nodes hand on"},
	{"pipeline/script", "pipeline/value", "exact values in and out of scripts"},
	{"pipeline/trigger", "historian", "samples, read in the order of the log"},
	{"pipeline/trigger", "pipeline/definition", "whose triggers are matched"},
	{"pipeline/trigger", "pipeline/node", "when a trigger starts a run"},
	{"pipeline/trigger", "pipeline/queue", "the entries it makes"},
	{"pipeline/trigger", "pipeline/script", "filters of triggers"},
	{"pipeline/trigger", "pipeline/value", "what filters see"},
	{"pipeline/trigger", "uns", "topics and their filters"},
}

// onlyImporters are modules that one folder alone may know, so that they can be replaced there.
var onlyImporters = []struct {
	module string
	by     []string
	why    string
}{
	{"github.com/mochi-mqtt/server", []string{"broker", "perf/baremochi"}, "mochi is the broker's control plane; baremochi is the baseline of the figures"},
	{"github.com/cockroachdb/pebble", []string{"historian", "historian/kv", "historian/datadir"}, "Pebble is how the historian stores"},
	{"github.com/danielgtaylor/huma", []string{"web"}, "huma is how REST is described"},
	{"github.com/gorilla/websocket", []string{"web"}, "WebSocket is unwrapped in web; the broker sees a stream"},
	{"github.com/golang-jwt/jwt", []string{"auth"}, "what a token says is auth's to judge"},
	{"github.com/alecthomas/kong", []string{"cmd/millrace"}, "packages never read flags"},
	{"github.com/dop251/goja", []string{"pipeline/script"}, "goja is how scripts run"},
	{"github.com/nats-io", []string{"pipeline/queue"}, "JetStream is how runs wait"},
	{"github.com/knadh/koanf", []string{"cmd/millrace"}, "packages never read configuration files or the environment"},
}

type listed struct {
	ImportPath string
	Imports    []string
}

func packages(t *testing.T) []listed {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports", "millrace/...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var list []listed
	d := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var p listed
		if err := d.Decode(&p); err == io.EOF {
			return list
		} else if err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
}

func TestImportsFollowTheValue(t *testing.T) {
	list := packages(t)
	if len(list) < 8 {
		t.Fatalf("only %d packages listed: the test does not see the tree", len(list))
	}
	for _, p := range list {
		from := strings.TrimPrefix(p.ImportPath, "millrace/")
		for _, imp := range p.Imports {
			if to, ours := strings.CutPrefix(imp, "millrace/"); ours {
				if !slices.ContainsFunc(mayImport, func(r struct{ from, to, why string }) bool { return r.from == from && r.to == to }) {
					t.Errorf("%s imports %s: that arrow is not in the order of ARCHITECTURE.md", from, to)
				}
			}
			for _, only := range onlyImporters {
				if strings.HasPrefix(imp, only.module) && !slices.Contains(only.by, from) {
					t.Errorf("%s imports %s, which belongs to %s: %s", from, imp, strings.Join(only.by, ", "), only.why)
				}
			}
		}
	}
}

// TestFolders holds the words that say nothing about what is inside out of the tree.
func TestFolders(t *testing.T) {
	for _, p := range packages(t) {
		for _, level := range strings.Split(p.ImportPath, "/") {
			if slices.Contains([]string{"util", "utils", "common", "helper", "helpers", "internal", "types", "models"}, level) {
				t.Errorf("%s: %q is no noun of this project", p.ImportPath, level)
			}
		}
	}
}
