package broker_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// statement is a row of CONFORMANCE.md.
type statement struct {
	standard, number string
	tests            []string // "TestX", or "web.TestX" of another package
	reason           string
}

var (
	rowPattern    = regexp.MustCompile(`^\| ([0-9]+(?:\.[0-9]+)+-[0-9]+) \| (.+?) \| (.+?) \|$`)
	citePattern   = regexp.MustCompile(`\[MQTT-([0-9]+(?:\.[0-9]+)+-[0-9]+)\]`)
	reasonPattern = regexp.MustCompile(`^(client|own): .{4,}`)
	testPattern   = regexp.MustCompile(`^([a-z]+\.)?(Test|Fuzz)[A-Za-z0-9_]+$`)
)

func statements(t *testing.T) (rows []statement) {
	t.Helper()
	page, err := os.ReadFile("CONFORMANCE.md")
	if err != nil {
		t.Fatal(err)
	}
	standard := ""
	for i, line := range strings.Split(string(page), "\n") {
		if s, ok := strings.CutPrefix(line, "## MQTT "); ok {
			standard = s
		}
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| statement") {
			continue
		}
		m := rowPattern.FindStringSubmatch(line)
		if m == nil || standard == "" {
			t.Errorf("CONFORMANCE.md:%d: no row of the table: %s", i+1, line)
			continue
		}
		row := statement{standard: standard, number: m[1]}
		tests, reason, _ := strings.Cut(m[3], "; ")
		if reasonPattern.MatchString(m[3]) {
			tests, reason = "", m[3]
		}
		row.reason = reason
		for name := range strings.SplitSeq(tests, ", ") {
			switch {
			case name == "":
			case !testPattern.MatchString(name):
				t.Errorf("CONFORMANCE.md:%d: %q is neither a test nor a reason (client: | own:)", i+1, name)
			default:
				row.tests = append(row.tests, name)
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// cited reads the test files of a folder: which statements the comment of each test names, and all that are named anywhere.
func cited(t *testing.T, folder string, tests map[string][]string, prefix string, all map[string]string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatal(folder, err)
	}
	set := token.NewFileSet()
	for _, file := range files {
		f, err := parser.ParseFile(set, file, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, group := range f.Comments {
			for _, m := range citePattern.FindAllStringSubmatch(group.Text(), -1) {
				all[m[1]] = set.Position(group.Pos()).String()
			}
		}
		if !strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Recv != nil || !strings.HasPrefix(fn.Name.Name, "Test") && !strings.HasPrefix(fn.Name.Name, "Fuzz") {
				continue
			}
			numbers := []string{}
			for _, group := range f.Comments { // above the test and within it
				if group == fn.Doc || group.Pos() >= fn.Pos() && group.End() <= fn.End() {
					for _, m := range citePattern.FindAllStringSubmatch(group.Text(), -1) {
						numbers = append(numbers, m[1])
					}
				}
			}
			tests[prefix+fn.Name.Name] = numbers
		}
	}
}

// CONFORMANCE.md is held against the tests: what it says is shown is shown by a test that says so too, everything else has
// its reason, and nothing is counted twice.
func TestConformanceTable(t *testing.T) {
	tests, all := map[string][]string{}, map[string]string{}
	cited(t, ".", tests, "", all)
	cited(t, "../web", tests, "web.", map[string]string{})
	rows := statements(t)
	seen, known := map[string]bool{}, map[string]bool{}
	counts := map[string]int{}
	for _, row := range rows {
		key := row.standard + " " + row.number
		if seen[key] {
			t.Errorf("MQTT %s has two rows", key)
		}
		seen[key], known[row.number] = true, true
		switch {
		case len(row.tests) == 0 && row.reason == "":
			t.Errorf("MQTT %s has neither a test nor a reason", key)
		case len(row.tests) > 0:
			counts[row.standard+" shown by a test"]++
		default:
			counts[row.standard+" not for this server"]++
		}
		for _, name := range row.tests {
			switch numbers, ok := tests[name]; {
			case !ok:
				t.Errorf("MQTT %s: there is no %s", key, name)
			case !slices.Contains(numbers, row.number):
				t.Errorf("MQTT %s: %s does not say that it shows [MQTT-%s]", key, name, row.number)
			}
		}
	}
	for number, where := range all {
		if !known[number] {
			t.Errorf("%s names [MQTT-%s], which CONFORMANCE.md does not have", where, number)
		}
	}
	for name, numbers := range tests {
		for _, number := range numbers {
			if strings.Contains(name, ".") { // of another package, which may cite what it likes
				continue
			}
			if !slices.ContainsFunc(rows, func(r statement) bool { return r.number == number && slices.Contains(r.tests, name) }) {
				t.Errorf("%s says that it shows [MQTT-%s]; no row of CONFORMANCE.md agrees", name, number)
			}
		}
	}
	if len(rows) < 300 {
		t.Errorf("only %d rows were read", len(rows))
	}
	t.Log(counts)
}
