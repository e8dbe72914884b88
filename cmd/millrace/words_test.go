package main

import (
	"net/http"
	"net/http/httptest"
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
			if said == `"/api/v1"` || strings.Contains(said, "/broker/") || strings.Contains(said, "/prometheus/") { // no command speaks of sessions yet
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

// What a caller of REST mends by a header or a path has a remedy of its own here, and a page that is no problem at all
// is not shown.
func TestProblemsSpeakOfFlags(t *testing.T) {
	for code := range remedyFor {
		p := &problem{Code: code, Detail: "no", Remedy: "send `Authorization: Bearer TOKEN` to GET /api/v1/x as Content-Type: y"}
		if text := p.Error(); regexp.MustCompile(`/api/|Bearer|Content-Type|GET `).MatchString(text) || !strings.Contains(text, "; ") {
			t.Errorf("%s: the command line would say %s", code, text)
		}
	}
	files, err := filepath.Glob(filepath.Join("..", "..", "web", "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	for code := range remedyFor {
		if !strings.Contains(all.String(), `"`+code+`"`) {
			t.Errorf("web has no problem %s", code)
		}
	}
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	var out strings.Builder
	code := run(t.Context(), []string{"client", "list", "--url", other.URL}, console{out: &out, err: &out})
	if text := out.String(); code != exitFailed || strings.Count(text, "\n") != 1 || !strings.Contains(text, "404") || !strings.Contains(text, "--url") {
		t.Errorf("exit %d: %s", code, text)
	}
}

// Grants that are added are added to what was read: a change between must refuse them, not be lost.
func TestGrantRefusesWhatChangedMeanwhile(t *testing.T) {
	reads, match := 0, ""
	box := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			reads++
		} else {
			match = r.Header.Get("If-Match")
		}
		_, _ = w.Write([]byte(`{"id":"dev1","enabled":true,"grants":[],"revision":7}`))
	}))
	defer box.Close()
	var out strings.Builder
	args := []string{"client", "grant", "dev1", "--allow", "publish a", "--url", box.URL}
	if code := run(t.Context(), args, console{out: &out, err: &out}); code != exitOK || reads != 1 || match != `"7"` {
		t.Errorf("exit %d, %d reads, If-Match %s: %s", code, reads, match, out.String())
	}
}

// A running box is measured by --url, --token and --mqtt together: the call must get as far as that box.
func TestPerfReachesARunningBox(t *testing.T) {
	asked := 0
	box := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		http.Error(w, "no", http.StatusTeapot)
	}))
	defer box.Close()
	var out strings.Builder
	args := []string{"perf", "ingest", "--url", box.URL, "--token", "t", "--mqtt", "127.0.0.1:1", "--out", t.TempDir()}
	if code := run(t.Context(), args, console{out: &out, err: &out}); code != exitFailed || asked == 0 {
		t.Errorf("exit %d, %d calls: %s", code, asked, out.String())
	}
	out.Reset()
	if code := run(t.Context(), []string{"perf", "ingest", "--url", box.URL}, console{out: &out, err: &out}); code == exitOK || !strings.Contains(out.String(), "needs both") {
		t.Errorf("exit %d: %s", code, out.String())
	}
	out.Reset()
	if run(t.Context(), []string{"perf", "ingest", "--help"}, console{out: &out, err: &out}); !strings.Contains(out.String(), "--url") {
		t.Errorf("the help does not name --url: %s", out.String())
	}
}
