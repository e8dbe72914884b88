package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"
)

// version is set by the build (-ldflags -X main.version=…).
var version = "dev"

// built says what this program was made of.
type built struct {
	Version  string   `json:"version"`
	Commit   string   `json:"commit,omitempty"`
	Date     string   `json:"date,omitempty"` // of the commit: two builds of one commit are the same to the last octet
	Modified bool     `json:"modified"`       // the sources were not those of the commit
	Go       string   `json:"go"`
	Platform string   `json:"platform"`
	Modules  []module `json:"modules"`
}

type module struct {
	Path    string `json:"path"`
	Version string `json:"version"`
	Sum     string `json:"sum,omitempty"` // as in go.sum
}

func readBuilt() built {
	v := built{Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, Modules: []module{}}
	b, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	for _, s := range b.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Commit = s.Value
		case "vcs.time":
			v.Date = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	for _, m := range b.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		v.Modules = append(v.Modules, module{m.Path, m.Version, m.Sum})
	}
	return v
}

type versionCommand struct{}

func (versionCommand) Run(con console, g *globals) error {
	v := readBuilt()
	if g.JSON {
		return json.NewEncoder(con.out).Encode(v)
	}
	from := ""
	if v.Commit != "" {
		from = " (" + v.Commit[:min(12, len(v.Commit))]
		if v.Date != "" {
			from += ", " + v.Date
		}
		if v.Modified {
			from += ", modified"
		}
		from += ")"
	}
	_, err := fmt.Fprintf(con.out, "millrace %s%s %s %s\n", v.Version, from, v.Go, v.Platform)
	return err
}
