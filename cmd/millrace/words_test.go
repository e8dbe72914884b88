package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Whoever types commands must not be sent to a REST route: every route that web's problems name has its command.
func TestProblemsNameCommands(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "web", "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	literal, seen := regexp.MustCompile("\"[^\"\\n]*/api/v1[^\"\\n]*\""), 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, said := range literal.FindAllString(string(text), -1) {
			if said == `"/api/v1"` || strings.Contains(said, "/broker/") { // no command speaks of sessions yet
				continue
			}
			seen++
			p := &problem{Detail: "no", Remedy: said}
			if strings.Contains(p.Error(), "/api/") {
				t.Errorf("%s: the command line would say %s", file, p.Error())
			}
		}
	}
	for _, w := range commandFor {
		parts := strings.Split(w.command, "`")
		if len(parts) != 3 {
			continue
		}
		var out strings.Builder
		args := append(strings.Fields(parts[1])[1:], "--help")
		if code := run(t.Context(), args, console{out: &out, err: &out}); code != exitOK {
			t.Errorf("%s is no command: %s", parts[1], out.String())
		}
	}
	if seen < 5 {
		t.Errorf("only %d remedies with a route found", seen)
	}
}
