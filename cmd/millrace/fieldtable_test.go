package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// docs/field-cases.md names only tests that exist, each in the folder it says, and every field case among the tests here.
func TestFieldCasesTable(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "field-cases.md"))
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]map[string]bool{}
	in := func(folder string) map[string]bool {
		if tests[folder] == nil {
			tests[folder] = testsOf(t, folder)
		}
		return tests[folder]
	}
	row := regexp.MustCompile(`(?m)^\| (F\d\d) \|[^|]+\|[^|]+\|([^|]+)\|$`)
	word := regexp.MustCompile(`[A-Za-z0-9_/]+`)
	rows := row.FindAllStringSubmatch(string(page), -1)
	if lines := regexp.MustCompile(`(?m)^\| F`).FindAllString(string(page), -1); len(rows) != len(lines) || len(rows) < 20 {
		t.Errorf("%d of %d rows were understood", len(rows), len(lines))
	}
	seen, shown := map[string]bool{}, map[string]bool{}
	for _, r := range rows {
		if seen[r[1]] {
			t.Errorf("%s is there twice", r[1])
		}
		seen[r[1]] = true
		folder, n := "", 0
		for _, w := range word.FindAllString(r[2], -1) {
			switch {
			case strings.HasPrefix(w, "Test"):
				n++
				shown[w] = true
				if folder == "" || !in(folder)[w] {
					t.Errorf("%s: there is no %s in %q", r[1], w, folder)
				}
			case w == "auth", w == "broker", w == "uns", w == "historian", w == "web", w == "cmd/millrace":
				folder = w
			}
		}
		if n == 0 {
			t.Errorf("%s names no test", r[1])
		}
	}
	for name := range in("cmd/millrace") {
		if regexp.MustCompile(`^TestF\d\d`).MatchString(name) && !shown[name] {
			t.Errorf("%s is not in docs/field-cases.md", name)
		}
	}
}

func testsOf(t *testing.T, folder string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", filepath.FromSlash(folder), "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatal(folder, err)
	}
	found := map[string]bool{}
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil {
				found[fn.Name.Name] = true
			}
		}
	}
	return found
}
