package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

func grammar(t *testing.T) *kong.Kong {
	t.Helper()
	var c cli
	k, err := kong.New(&c, kong.Name("millrace"), kong.WithHyphenPrefixedParameters(true), kong.Exit(func(int) {}),
		kong.BindTo(t.Context(), (*context.Context)(nil)), kong.Bind(console{}, &c.globals))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// pages are the commands that --help shows, groups included.
func pages(k *kong.Kong) (list []*kong.Node) {
	var walk func(n *kong.Node)
	walk = func(n *kong.Node) {
		list = append(list, n)
		for _, c := range n.Children {
			if !c.Hidden {
				walk(c)
			}
		}
	}
	walk(k.Model.Node)
	return list
}

// Every command has its page with every chapter and at least one example, which the grammar takes. A row of the table without
// its command is as wrong as a command without its row: a new command needs one in manual_table.go.
func TestManual(t *testing.T) {
	k := grammar(t)
	rows := map[string]bool{}
	for _, node := range pages(k) {
		path := commandPath(node)
		rows[path] = true
		m, ok := manual[path]
		if !ok || len(m.examples) == 0 {
			t.Errorf("%q has no example in manual_table.go", path)
		}
		for _, e := range m.examples {
			words := shellWords(t, e)
			if words[0] == "source" {
				continue
			}
			if i := slices.Index(words, ">"); i > 0 {
				words = words[:i]
			}
			if words[0] != "millrace" || !strings.HasPrefix(strings.Join(words[1:], " "), path) {
				t.Errorf("%q: the example %q is of something else", path, e)
				continue
			}
			if _, err := grammar(t).Parse(words[1:]); err != nil {
				t.Errorf("%q: the example %q: %v", path, e, err)
			}
		}
		var out strings.Builder
		if code := run(t.Context(), append(strings.Fields(path), "--help"), console{out: &out, err: &out}); code != exitOK {
			t.Fatalf("%q --help: exit %d: %s", path, code, out.String())
		}
		text := out.String()
		for _, chapter := range []string{"NAME\n", "\nSYNOPSIS\n", "\nCOMMON OPTIONS\n", "\nEXAMPLES\n", "\nEXIT STATUS\n"} {
			if !strings.Contains(text, chapter) {
				t.Errorf("%q --help lacks the chapter %s", path, strings.TrimSpace(chapter))
			}
		}
		for _, f := range node.Flags {
			if !f.Hidden && !strings.Contains(text, "--"+f.Name) {
				t.Errorf("%q --help lacks --%s", path, f.Name)
			}
		}
		for line := range strings.Lines(text) {
			if n := len([]rune(strings.TrimRight(line, "\n"))); n > manualWidth && !slices.ContainsFunc(m.examples, func(e string) bool { return strings.Contains(line, e) }) {
				t.Errorf("%q --help has a line of %d: %s", path, n, line)
			}
		}
	}
	for path := range manual {
		if !rows[path] {
			t.Errorf("manual_table.go speaks of %q, which does not exist", path)
		}
	}
}

// shellWords splits as a shell does, with single quotes.
func shellWords(t *testing.T, line string) (words []string) {
	t.Helper()
	for _, m := range regexp.MustCompile(`'([^']*)'|([^\s']+)`).FindAllStringSubmatch(line, -1) {
		words = append(words, m[1]+m[2])
	}
	return words
}

// What can be completed follows from the grammar: commands, flags, the words a value may have, and files where one is wanted.
func TestSuggestions(t *testing.T) {
	for _, tt := range []struct {
		words []string
		want  []string // those that must come, first of all; nil: none
	}{
		{[]string{"back"}, []string{"backup"}},
		{[]string{"backup", ""}, []string{"create", "status", "verify", "restore"}},
		{[]string{"--data", "x", "backup", "re"}, []string{"restore"}},
		{[]string{"backup", "create", "--inc"}, []string{"--incremental-from"}},
		{[]string{"backup", "create", ""}, []string{wantFiles}},
		{[]string{"backup", "create", "x", "--incremental-from", ""}, []string{wantFiles}},
		{[]string{"history", "get", "a", "--order", ""}, []string{"asc", "desc"}},
		{[]string{"history", "get", "a", "--order=d"}, []string{"--order=desc"}},
		{[]string{"completion", ""}, []string{"bash", "zsh", "fish"}},
		{[]string{"__comp"}, nil},
		{[]string{"client", "list", "x", ""}, nil},
	} {
		var got []string
		for _, s := range suggestions(grammar(t).Model, tt.words) {
			word, _, _ := strings.Cut(s, "\t")
			got = append(got, word)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("after %q: %q, want %q", tt.words, got, tt.want)
		}
	}
	all := suggestions(grammar(t).Model, []string{""})
	if len(all) < 10 || slices.ContainsFunc(all, func(s string) bool { return strings.HasPrefix(s, "__") }) {
		t.Errorf("at the beginning: %q", all)
	}
}

// The scripts are taken by their shells, and bash completes with the one it is given.
func TestCompletionInShells(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		path, err := exec.LookPath(shell)
		if err != nil {
			t.Fatalf("%s is missing: `make deps` installs it", shell)
		}
		file := filepath.Join(t.TempDir(), "millrace."+shell)
		script, err := exec.Command("millrace", "completion", shell).Output()
		if err != nil {
			t.Fatal(err)
		}
		write(t, file, string(script))
		if out, err := exec.Command(path, "-n", file).CombinedOutput(); err != nil {
			t.Errorf("%s does not take its script: %v: %s", shell, err, out)
		}
		var cmd *exec.Cmd
		switch shell {
		case "bash":
			cmd = exec.Command(path, "-c", `source "$1"; COMP_WORDS=(millrace backup re); COMP_CWORD=2; _millrace; echo "${COMPREPLY[@]}"`, "-", file)
		case "fish":
			cmd = exec.Command(path, "-c", `source `+file+`; complete -C "millrace backup re"`)
		default: // zsh completes at a prompt only; what it calls is looked at
			cmd = exec.Command(path, "-fc", `_describe() { print -l -- "${list[@]}" }; compdef() { }; source "$1"; words=(millrace backup re); CURRENT=3; _millrace`, "-", file)
		}
		cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.HasPrefix(strings.TrimSpace(string(out)), "restore") {
			t.Errorf("%s completes `backup re` to %q: %v", shell, out, err)
		}
	}
}
