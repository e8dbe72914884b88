package main

import (
	"embed"
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// shells are the scripts that make a shell ask `millrace __complete`. What there is to complete they do not know, so they do not
// grow old.
//
//go:embed completion/millrace.bash completion/millrace.zsh completion/millrace.fish
var shells embed.FS

type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

func (c completionCommand) Run(con console) error {
	text, err := shells.ReadFile("completion/millrace." + c.Shell)
	if err != nil {
		return err
	}
	_, err = con.out.Write(text)
	return err
}

// completeCommand answers the scripts. Its words are those after `millrace`, the last one as far as it is typed.
type completeCommand struct {
	Words []string `arg:"" optional:""`
}

// wantFiles is the answer that asks the shell for names of files.
const wantFiles = ":files"

func (c completeCommand) Run(con console, k *kong.Context) error {
	words := c.Words
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	for _, s := range suggestions(k.Model, words) {
		if _, err := fmt.Fprintln(con.out, s); err != nil {
			return err
		}
	}
	return nil
}

// suggestions are the words that can stand in the place of the last of words, each with a tab and what it means, in the order
// of the grammar; or wantFiles alone.
func suggestions(model *kong.Application, words []string) (list []string) {
	last := ""
	if len(words) > 0 {
		last, words = words[len(words)-1], words[:len(words)-1]
	}
	add := func(word, means string) {
		if strings.HasPrefix(word, last) {
			list = append(list, word+"\t"+means)
		}
	}
	node, place := model.Node, 0
	var pending *kong.Flag // its value is the next word
	for _, w := range words {
		flag := flagNamed(node, w)
		switch {
		case pending != nil:
			pending = nil
		case flag != nil && !flag.IsBool() && !flag.IsCounter() && !strings.Contains(w, "="):
			pending = flag
		case strings.HasPrefix(w, "-"):
		default:
			if child := childNamed(node, w); child != nil {
				node, place = child, 0
			} else {
				place++
			}
		}
	}
	if name, _, ok := strings.Cut(last, "="); ok && pending == nil {
		// Shells that break words at = come here with the value alone; others with both.
		if f := flagNamed(node, name); f != nil {
			for _, v := range enumWords(f.Value) {
				add(name+"="+v, f.Help)
			}
			return list
		}
	}
	switch {
	case pending != nil:
		for _, v := range enumWords(pending.Value) {
			add(v, pending.Help)
		}
		if pending.Enum == "" {
			return []string{wantFiles}
		}
	case strings.HasPrefix(last, "-"):
		for _, group := range node.AllFlags(true) {
			for _, f := range group {
				add("--"+f.Name, f.Help)
			}
		}
	case !node.Leaf():
		for _, child := range node.Children {
			if !child.Hidden {
				add(child.Name, child.Help)
			}
		}
	case place < len(node.Positional):
		a := node.Positional[place]
		for _, v := range enumWords(a) {
			add(v, a.Help)
		}
		if a.Enum == "" && slices.Contains([]string{"dir", "file"}, a.Name) {
			return []string{wantFiles}
		}
	}
	return list
}

func childNamed(node *kong.Node, name string) *kong.Node {
	for _, child := range node.Children {
		if child.Name == name && !child.Hidden {
			return child
		}
	}
	return nil
}

// flagNamed finds the flag that the word --name or --name=value is of.
func flagNamed(node *kong.Node, word string) *kong.Flag {
	word, _, _ = strings.Cut(word, "=")
	for _, group := range node.AllFlags(true) {
		for _, f := range group {
			if "--"+f.Name == word {
				return f
			}
		}
	}
	return nil
}
