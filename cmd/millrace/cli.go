package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"
)

const about = `Millrace: MQTT whose acknowledgement means stored, history, and a Unified Namespace, in one process.

Commands other than serve, config, perf and version speak to a running box: by its admin socket DATA/admin.sock, or by --url and --token.`

// version is set by the build (-ldflags -X main.version=…).
var version = "dev"

// globals are the flags of every command.
type globals struct {
	Data   string `help:"Folder with everything the box writes (else MILLRACE_DATA, else data of the configuration, else ./data)." placeholder:"DIR"`
	Config string `help:"Configuration file (default ./config.yaml if there is one)." placeholder:"FILE"`
	URL    string `name:"url" help:"Speak to the box at this address instead of its admin socket." placeholder:"URL"`
	Token  string `help:"Personal access token for --url." placeholder:"T"`
	JSON   bool   `name:"json" help:"Print one JSON document."`
}

// cli is the grammar.
type cli struct {
	globals
	Serve  serveCommand   `cmd:"" help:"Run the box."`
	Cfg    configCommand  `cmd:"" name:"config" help:"Check or print the configuration."`
	Client clientCommand  `cmd:"" help:"API clients: the identities devices sign in with."`
	Topic  topicCommand   `cmd:"" help:"Topics of the Unified Namespace."`
	Hist   historyCommand `cmd:"" name:"history" help:"Stored values."`
	Token_ tokenCommand   `cmd:"" name:"token" help:"Personal access tokens for --url."`
	Perf   perfCommand    `cmd:"" help:"Measure a box: load, latency, bytes, and what survives kill -9."`
	Ver    versionCommand `cmd:"" name:"version" help:"Print the version."`
}

type versionCommand struct{}

func (versionCommand) Run(con console, g *globals) error {
	v := struct {
		Version  string `json:"version"`
		Revision string `json:"revision,omitempty"`
		Go       string `json:"go"`
		Platform string `json:"platform"`
	}{Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if b, ok := debug.ReadBuildInfo(); ok {
		for _, s := range b.Settings {
			if s.Key == "vcs.revision" {
				v.Revision = s.Value
			}
		}
	}
	if g.JSON {
		return json.NewEncoder(con.out).Encode(v)
	}
	if v.Revision != "" {
		v.Revision = " (" + v.Revision[:min(12, len(v.Revision))] + ")"
	}
	_, err := fmt.Fprintf(con.out, "millrace %s%s %s %s\n", v.Version, v.Revision, v.Go, v.Platform)
	return err
}
