package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/alecthomas/kong"
)

// manualWidth is where the text of --help breaks.
const manualWidth = 96

// withoutBox are the commands that speak to no running box, by their first words; perf ingest can, by --mqtt with --url and
// --token.
var withoutBox = []string{"serve", "config", "version", "completion", "backup verify", "backup restore"}

// exits is the last chapter of every page.
var exits = [][2]string{{"0", "done"}, {"1", "refused or failed; the reason is on stderr"}, {"2", "the command line itself is wrong"}}

// help prints the page of the command that was named, or of the program, in the order of a manual page.
func help(_ kong.HelpOptions, k *kong.Context) error {
	node := k.Selected()
	if node == nil {
		node = k.Model.Node
	}
	p := manualPage{to: k.Stdout}
	p.print(k.Model, node)
	return p.err
}

// manualPage is a manual page being written.
type manualPage struct {
	to  io.Writer
	err error
}

func (p *manualPage) line(text string) {
	if p.err == nil {
		_, p.err = fmt.Fprintln(p.to, strings.TrimRight(text, " "))
	}
}

func (p *manualPage) chapter(name string) {
	p.line("")
	p.line(name)
}

// rows prints words with what they mean beside or, where they are long, below them.
func (p *manualPage) rows(list [][2]string) {
	wide := 0
	for _, r := range list {
		if n := utf8.RuneCountInString(r[0]); n <= 28 {
			wide = max(wide, n)
		}
	}
	for _, r := range list {
		text := wrap(r[1], manualWidth-wide-6)
		first := ""
		if n := utf8.RuneCountInString(r[0]); n <= wide && len(text) > 0 {
			first, text = r[0]+strings.Repeat(" ", wide-n)+"  "+text[0], text[1:]
		} else {
			first = r[0]
		}
		p.line("  " + first)
		for _, t := range text {
			p.line("  " + strings.Repeat(" ", wide) + "  " + t)
		}
	}
}

func (p *manualPage) print(model *kong.Application, node *kong.Node) {
	path := commandPath(node)
	name := strings.TrimSpace("millrace " + path)
	m := manual[path]
	p.line("NAME")
	summary := node.Help
	if path == "" {
		summary = "MQTT whose acknowledgement means stored, history and a Unified Namespace, in one process"
	}
	for _, t := range wrap(name+" - "+strings.TrimSuffix(summary, "."), manualWidth-2) {
		p.line("  " + t)
	}
	p.chapter("SYNOPSIS")
	p.line("  " + synopsis(node, name))
	if m.text != "" {
		p.chapter("DESCRIPTION")
		for i, paragraph := range strings.Split(m.text, "\n") {
			if i > 0 {
				p.line("")
			}
			for _, t := range wrap(paragraph, manualWidth-2) {
				p.line("  " + t)
			}
		}
	}
	if list := leavesBelow(node, path); len(list) > 0 {
		p.chapter("COMMANDS")
		p.rows(list)
	}
	if len(node.Positional) > 0 {
		p.chapter("ARGUMENTS")
		var list [][2]string
		for _, a := range node.Positional {
			list = append(list, [2]string{a.Summary(), a.Help})
		}
		p.rows(list)
	}
	own, common := flagsOf(model, node, path)
	if len(own) > 0 {
		p.chapter("OPTIONS")
		p.rows(own)
	}
	p.chapter("COMMON OPTIONS")
	p.rows(common)
	if len(m.examples) > 0 {
		p.chapter("EXAMPLES")
		for _, e := range m.examples {
			p.line("  " + e)
		}
	}
	p.chapter("EXIT STATUS")
	p.rows(exits[:])
}

// commandPath is what is typed to reach node: backup create.
func commandPath(node *kong.Node) string {
	var words []string
	for n := node; n != nil && n.Type != kong.ApplicationNode; n = n.Parent {
		words = append(words, n.Name)
	}
	slices.Reverse(words)
	return strings.Join(words, " ")
}

func synopsis(node *kong.Node, name string) string {
	if !node.Leaf() {
		return name + " COMMAND [OPTIONS]"
	}
	text := name
	for _, a := range node.Positional {
		text += " " + a.Summary()
	}
	for _, f := range node.Flags {
		if f.Required {
			text += " " + flagText(f)
		}
	}
	return text + " [OPTIONS]"
}

// leavesBelow lists the commands that node leads to.
func leavesBelow(node *kong.Node, path string) (list [][2]string) {
	for _, leaf := range node.Leaves(true) {
		if leaf != node {
			list = append(list, [2]string{strings.TrimSpace(strings.TrimPrefix(commandPath(leaf), path)), leaf.Help})
		}
	}
	return list
}

func flagText(f *kong.Flag) string {
	text := "--" + f.Name
	if f.Short != 0 {
		text = fmt.Sprintf("-%c, %s", f.Short, text)
	}
	switch {
	case f.IsBool() || f.IsCounter():
	case f.PlaceHolder == "" && f.Enum != "":
		text += "=" + strings.Join(enumWords(f.Value), "|")
	case f.PlaceHolder == "" && f.Tag != nil && f.Default == "":
		text += "=" + strings.ToUpper(f.Name[strings.LastIndexByte(f.Name, '-')+1:])
	default:
		text += "=" + f.FormatPlaceHolder()
	}
	return text
}

// enumWords are the words a value may have, without the empty one.
func enumWords(v *kong.Value) (words []string) {
	for w := range strings.SplitSeq(v.Enum, ",") {
		if w = strings.TrimSpace(w); w != "" {
			words = append(words, w)
		}
	}
	return words
}

// flagsOf gives the flags of a command itself, and those that every command has and this one heeds.
func flagsOf(model *kong.Application, node *kong.Node, path string) (own, common [][2]string) {
	alone := slices.ContainsFunc(withoutBox, func(w string) bool { return path == w || strings.HasPrefix(path, w+" ") })
	for _, group := range node.AllFlags(true) {
		for _, f := range group {
			row := [2]string{flagText(f), f.Help}
			switch {
			case !slices.Contains(model.Flags, f):
				own = append(own, row)
			case alone && (f.Name == "url" || f.Name == "token"):
			default:
				common = append(common, row)
			}
		}
	}
	return own, common
}

// wrap breaks text into lines of at most width runes, where words allow.
func wrap(text string, width int) (lines []string) {
	line := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) <= width:
			line += " " + word
		default:
			lines = append(lines, line)
			line = word
		}
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}
