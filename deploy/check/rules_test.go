package check

import (
	"encoding/json"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

// exported are the metrics of deploy/METRICS.md with their types.
func exported(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../METRICS.md")
	if err != nil {
		t.Fatal(err)
	}
	list := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(millrace_[a-z0-9_]+)(?:\\{[a-z,]+\\})?` \\| (\\S+) \\|").FindAllStringSubmatch(string(text), -1) {
		list[m[1]] = m[2]
	}
	if len(list) < 30 {
		t.Fatalf("only %d metrics in METRICS.md", len(list))
	}
	return list
}

// expression parses one and holds its metrics to those that a box exposes. up is Prometheus' own; go_ and process_ come with
// its client library.
func expression(t *testing.T, where, text string, known map[string]string) {
	t.Helper()
	e, err := parser.NewParser(parser.Options{}).ParseExpr(text)
	if err != nil {
		t.Errorf("%s: %v", where, err)
		return
	}
	parser.Inspect(e, func(n parser.Node, path []parser.Node) error {
		v, ok := n.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		name := v.Name
		base := name
		for _, end := range []string{"_bucket", "_count", "_sum"} {
			if b, cut := strings.CutSuffix(name, end); cut && known[b] == "histogram" {
				base = b
			}
		}
		switch kind := known[base]; {
		case name == "up" || strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_"):
		case kind == "":
			t.Errorf("%s: %s is in no METRICS.md", where, name)
		case kind == "histogram" && base == name:
			t.Errorf("%s: %s is a histogram and has no value of its own", where, name)
		case kind == "gauge":
			for _, p := range path {
				if c, ok := p.(*parser.Call); ok && (c.Func.Name == "rate" || c.Func.Name == "increase") {
					t.Errorf("%s: %s of the gauge %s", where, c.Func.Name, name)
				}
			}
		}
		return nil
	})
}

// Every alert says what is the matter, what shows it and what to do, and asks only for what a box exposes.
func TestAlerts(t *testing.T) {
	known := exported(t)
	groups, errs := rulefmt.ParseFile("../prometheus/millrace.rules.yaml", false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	for _, err := range errs {
		t.Error(err)
	}
	if groups == nil {
		t.FailNow()
	}
	seen := map[string]bool{}
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			if !strings.HasPrefix(r.Alert, "Millrace") || seen[r.Alert] {
				t.Errorf("alert %q: no name, or twice", r.Alert)
			}
			seen[r.Alert] = true
			for _, a := range []string{"summary", "evidence", "remedy"} {
				if len(r.Annotations[a]) < 10 {
					t.Errorf("%s has no %s", r.Alert, a)
				}
			}
			if s := r.Labels["severity"]; s != "critical" && s != "warning" && s != "info" {
				t.Errorf("%s: severity %q", r.Alert, s)
			}
			expression(t, r.Alert, r.Expr, known)
		}
	}
	if len(seen) < 15 {
		t.Errorf("only %d alerts", len(seen))
	}
}

type target struct{ Expr string }

type panel struct {
	ID          int
	Type, Title string
	Description string
	GridPos     struct{ H, W, X, Y int }
	Targets     []target
}

// Every panel of the dashboard asks for what a box exposes, says what it shows and stands beside the others, not on them.
func TestDashboard(t *testing.T) { dashboard(t, "box.json", exported(t), 15, 2) }

// That of stored values has one metric, which the box itself answers for; web.TestDashboardOfHistory asks it.
func TestDashboardOfHistory(t *testing.T) {
	dashboard(t, "history.json", map[string]string{"millrace_value": "gauge"}, 5, 3)
}

func dashboard(t *testing.T, file string, known map[string]string, panels, variables int) {
	text, err := os.ReadFile("../grafana/" + file)
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		UID, Title  string
		Panels      []panel
		Annotations struct{ List []target }
		Templating  struct{ List []struct{ Name string } }
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	filled := strings.NewReplacer("$__rate_interval", "1m", "$__interval", "30s", "$instance", ".*", "$workspace", "main", "$topic", ".*")
	ids, taken, shown := map[int]bool{}, map[[2]int]string{}, 0
	for _, p := range board.Panels {
		if ids[p.ID] {
			t.Errorf("%s: its id %d is there twice", p.Title, p.ID)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if taken[[2]int{x, y}] != "" || x >= 24 {
					t.Fatalf("%s stands on %s", p.Title, taken[[2]int{x, y}])
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		shown++
		if p.Description == "" || len(p.Targets) == 0 {
			t.Errorf("%s shows nothing or does not say what", p.Title)
		}
		for _, q := range p.Targets {
			expression(t, p.Title, filled.Replace(q.Expr), known)
		}
	}
	for _, a := range board.Annotations.List {
		expression(t, "annotation", filled.Replace(a.Expr), known)
	}
	if shown < panels || len(board.Templating.List) != variables || board.UID == "" {
		t.Errorf("%d panels, %d variables, uid %q", shown, len(board.Templating.List), board.UID)
	}
}
